"""Write 11 MB of English text for experiments: one document per page of Debian's package `anarchism`.

    python scripts/english.py texts/english

It needs `apt-get`, `dpkg-deb` and a network, and installs nothing. The text is under the GPL-2.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

PACKAGE = "anarchism"
LINE_TAGS = {*["p", "h1", "h2", "h3", "h4", "h5", "li", "blockquote", "div", "br", "tr"]}
SKIPPED = {"head", "script", "style"}


class Page(HTMLParser):
    """A parser that collects the text of a page, one line per block."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = [""]
        self.skipped_depth = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.skipped_depth += tag in SKIPPED
        if tag in LINE_TAGS:
            self.lines.append("")

    def handle_endtag(self, tag: str) -> None:
        self.skipped_depth -= tag in SKIPPED
        if tag in LINE_TAGS:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if not self.skipped_depth:
            self.lines[-1] += data


def words_of(html: str) -> str:
    """Return the text of a page, one line per paragraph, with single spaces."""
    page = Page()
    page.feed(html)
    lines = (" ".join(line.split()) for line in page.lines)
    return "".join(f"{line}\n" for line in lines if line)


def unpacked(package: str, folder: Path) -> Path:
    """Download a package of Debian, unpack it in a directory, and return its file."""
    subprocess.run(["apt-get", "download", package], cwd=folder, check=True)
    (file,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", file, folder], check=True)
    return file


def main(out: Path) -> None:
    """Download the package and write one .txt file per page."""
    if out.exists():
        sys.exit(f"{out}: exists. Name a new directory.")
    with tempfile.TemporaryDirectory() as folder:
        package = unpacked(PACKAGE, Path(folder))
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
