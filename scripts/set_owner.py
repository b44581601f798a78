"""Replace the placeholder OWNER in the repository's public addresses: `python scripts/set_owner.py NAME`."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/OWNER/latent-tokens"
MANUAL = "https://OWNER.github.io/latent-tokens"
COLAB = "https://colab.research.google.com/github/OWNER/latent-tokens"
ADDRESSES = (REPOSITORY, MANUAL, COLAB)
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9]|-(?=[A-Za-z0-9])){0,38}")  # GitHub's rule for user names
EXCEPT = ("scripts/set_owner.py", "tests/test_owner.py")  # these define and list the placeholder


def holding(root: Path = ROOT) -> list[Path]:
    """Return the tracked text files that hold a placeholder address, sorted."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    paths = [root / name for name in listed.split("\0") if name and name not in EXCEPT]
    return sorted(
        path for path in paths if path.is_file() and any(address in text_of(path) for address in ADDRESSES)
    )


def text_of(path: Path) -> str:
    """Return a file's text, or nothing if it is binary."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def set_owner(owner: str, root: Path = ROOT) -> list[Path]:
    """Write the owner's name into every address and return the files that changed.

    Raises:
        ValueError: `owner` is not a GitHub user or organization name.
    """
    if NAME.fullmatch(owner) is None:
        raise ValueError(
            f"NAME {owner!r}: is not a GitHub name. Use letters, digits and single hyphens, at most 39 "
            f"characters."
        )
    changed = holding(root)
    for path in changed:
        text = text_of(path)
        for address in ADDRESSES:
            text = text.replace(address, address.replace("OWNER", owner))
        path.write_text(text, encoding="utf-8")
    return changed


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "name", metavar="NAME", help="GitHub user or organization that publishes the repository"
    )
    try:
        changed = set_owner(parser.parse_args().name)
    except ValueError as error:
        print(f"set_owner.py: {error}", file=sys.stderr)
        return 2
    print(*(path.relative_to(ROOT) for path in changed), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
