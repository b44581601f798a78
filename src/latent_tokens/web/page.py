"""The page: as it is served, and as one file with traces in it that needs no server."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
STYLE, SCRIPT = (
    re.compile(r'<link rel="stylesheet" href="([a-z]+\.css)">'),
    re.compile(r'<script src="([a-z]+\.js)"></script>'),
)
PLACE = re.compile(r'(<script type="application/json" id="traces">)\[\](</script>)')
CAPTION = re.compile(r'(<p class="words" id="caption">)(</p>)')
MOST_BYTES = 2_000_000  # of a page with traces


def page() -> str:
    """page.html with its style and its scripts inlined."""
    styled = STYLE.sub(lambda found: f"<style>\n{beside(found[1])}</style>", beside("page.html"))
    return SCRIPT.sub(lambda found: f"<script>\n{beside(found[1])}</script>", styled)


def beside(name: str) -> str:
    """The text of a file of the page."""
    return (FOLDER / name).read_text(encoding="utf-8")


def page_with(traces: Sequence[dict[str, Any]], caption: str = "") -> str:
    """The page with traces in it, and a caption above them. Raises ValueError if it is larger than MOST_BYTES."""
    inlined = json.dumps(traces, separators=(",", ":")).replace("<", "\\u003c")  # no </script> within
    made = PLACE.sub(lambda found: found[1] + inlined + found[2], page(), count=1)
    made = CAPTION.sub(lambda found: found[1] + html.escape(caption) + found[2], made, count=1)
    size = len(made.encode())
    if size > MOST_BYTES:
        raise ValueError(
            f"the page has {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f} MB. Use fewer latent tokens, a smaller board, or one decode."
        )
    return made


def policy(document: str) -> str:
    """The Content-Security-Policy that allows the page's own scripts and styles and requests to its own server, and nothing else."""
    scripts, styles = (
        hashes(document, rf"<{tag}(?![^>]*application/json)[^>]*>(.*?)</{tag}>")
        for tag in ("script", "style")
    )
    return "; ".join([
        "default-src 'none'", f"script-src {scripts}", f"style-src {styles}", "connect-src 'self'", "img-src 'self' data: blob:",
        "base-uri 'none'", "form-action 'none'",
    ])  # fmt: skip


def hashes(document: str, block: str) -> str:
    """The sources of a policy that allow exactly the blocks found in a page."""
    found = [hashlib.sha256(text.encode()).digest() for text in re.findall(block, document, re.S)]
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in found) or "'none'"
