"""Metadata of the wheel that need the address: links, and README.md with absolute links."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(\]\(|\bsrc(?:set)?=\")(?!https?:|#|\{)([^)\"]+)")
COMMENT = re.compile(r"<!--.*?-->\n?", re.S)
IMAGE = (".png", ".gif", ".svg")


def with_absolute_links(page: str, repository: str, ref: str) -> str:
    """Return a page whose links to files of the repository lead to their stored version."""

    def absolute(link: re.Match[str]) -> str:
        is_image = link[2].endswith(IMAGE)
        return f"{link[1]}{repository}/{'raw' if is_image else 'blob'}/{ref}/{link[2]}"

    return LINK.sub(absolute, COMMENT.sub("", page))


class AddressHook(MetadataHookInterface):
    """Add the links and the description, which show no address before there is one."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the dynamic entries of pyproject.toml."""
        root = Path(self.root)
        address = runpy.run_path(str(root / "src/latent_tokens/address.py"))["addresses"]()
        page = (root / "README.md").read_text(encoding="utf-8")
        metadata["urls"] = {"Paper": "https://arxiv.org/abs/2602.03769"}
        if address:
            page = with_absolute_links(page, address["repository"], f"v{metadata['version']}")
            metadata["urls"] |= {"Repository": address["repository"], "Documentation": address["pages"]}
            metadata["urls"] |= {"Demo": f"{address['pages']}/page/"}
        metadata["readme"] = {"content-type": "text/markdown", "text": page}
