"""Write the owner of the repository on GitHub, and show the links that need its address.

python scripts/set_owner.py OWNER            in a clone. A second time it replaces the owner
python scripts/set_owner.py OWNER --check    only check that this is the owner, and that all links are shown

Until then these links are hidden, and `{repository}`, `{pages}` and `{colab}` are the addresses in them:

    <!-- published: TEXT -->                   in Markdown, on one line or several
    # published: LINE                          in YAML
    <!-- unpublished -->TEXT<!-- end -->       what they replace
"""

from __future__ import annotations

import argparse
import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = "src/latent_tokens/address.py"
addresses = runpy.run_path(str(ROOT / ADDRESS))["addresses"]  # the package may not be installed
ENDINGS = (".md", ".yml", ".cff", ".ipynb")
LINE = re.compile(r"^OWNER = \"(.*?)\"", re.M)
HIDDEN = re.compile(r"<!-- published:\s(.*?)\s-->|^# published: ([^\n]*)$", re.M | re.S)
REPLACED = re.compile(r"<!-- unpublished -->\s?(.*?)<!-- end -->\n?", re.S)
REMAINDER = re.compile(r"<!-- (?:un)?published|# published:|\{(?:repository|pages|colab)\}")


def shown(text: str, owner: str, previous: str = "") -> str:
    """Return a text with the links that it hides, or with those of another owner."""
    text = HIDDEN.sub(lambda hidden: hidden[1] or hidden[2], REPLACED.sub("", text))
    old = addresses(previous)
    for name, address in addresses(owner).items():
        text = text.replace(f"{{{name}}}", address).replace(old.get(name, address), address)
    return text


def tracked(root: Path) -> list[Path]:
    """Return the files with links: those that git tracks, of the kinds that hide some."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    return [root / name for name in names.split("\0") if name.endswith(ENDINGS)]


def problems(root: Path, owner: str) -> list[str]:
    """Return where the owner is another, and where a link is hidden or lacks its address."""
    other = LINE.search((root / ADDRESS).read_text())[1]  # type: ignore[index]
    found = [] if other == owner else [f"{ADDRESS}: the owner is {other or 'not set'}, and not {owner}"]
    for path in tracked(root):
        if hit := REMAINDER.search(path.read_text()):
            found.append(f"{path.relative_to(root)}: has {hit[0]}")
    return found


def main(root: Path = ROOT) -> int:
    """Write the owner, then print each problem. The exit code is 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("owner")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    owner = arguments.owner
    if not re.fullmatch(r"[A-Za-z0-9](?:-?[A-Za-z0-9])*", owner):
        parser.error(f"owner={owner}: is not a name on GitHub")
    if not arguments.check:
        source = (root / ADDRESS).read_text()
        previous = LINE.search(source)[1]  # type: ignore[index]
        for path in tracked(root):
            text = path.read_text()
            if (changed := shown(text, owner, previous)) != text:
                path.write_text(changed)
                print(path.relative_to(root))
        (root / ADDRESS).write_text(LINE.sub(f'OWNER = "{owner}"', source))
        print(ADDRESS)
    found = problems(root, owner)
    print(*found, sep="\n", end="\n" * bool(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
