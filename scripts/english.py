"""A real English text of 11 MB for experiments: the pages of Debian's package `anarchism`, a document a page.

    python scripts/english.py texts/english

Takes `apt-get` and `dpkg-deb`, and a network; nothing is installed. The text is under the GPL-2.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

PACKAGE = "anarchism"
BLOCKS = {
    "p",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "li",
    "blockquote",
    "div",
    "br",
    "tr",
}  # tags that a line ends with
UNREAD = {"head", "script", "style"}


class Page(HTMLParser):
    """The words of a page, a line for each of its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.lines, self.unread = [""], 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.unread += tag in UNREAD
        if tag in BLOCKS:
            self.lines.append("")

    def handle_endtag(self, tag: str) -> None:
        self.unread -= tag in UNREAD
        if tag in BLOCKS:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if not self.unread:
            self.lines[-1] += data


def words_of(html: str) -> str:
    """A page's text: a paragraph a line, single spaces."""
    page = Page()
    page.feed(html)
    lines = (" ".join(line.split()) for line in page.lines)
    return "".join(f"{line}\n" for line in lines if line)


def main(out: Path) -> None:
    """Fetches the package and writes a .txt for each of its pages."""
    if out.exists():
        sys.exit(f"{out}: is there already; name a new folder")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True)
        (package,) = Path(folder).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        texts = {
            page.stem: words_of(page.read_text(encoding="utf-8"))
            for page in sorted(Path(folder).rglob("html/*.html"))
        }
    out.mkdir(parents=True)
    for name, text in texts.items():
        (out / f"{name}.txt").write_text(text, encoding="utf-8")
    print(f"{out}: {len(texts)} documents, {sum(map(len, texts.values())):,} characters of {package.name}")


if __name__ == "__main__":
    main(Path(*sys.argv[1:]) if len(sys.argv) == 2 else sys.exit(__doc__))
