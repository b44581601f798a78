"""The page itself: as it is served, and as one file with traces in it that needs no server."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
STYLE, SCRIPT = re.compile(r'<link rel="stylesheet" href="([a-z]+\.css)">'), re.compile(r'<script src="([a-z]+\.js)"></script>')
PLACE = re.compile(r'(<script type="application/json" id="traces">)\[\](</script>)')
MOST_BYTES = 2_000_000  # of a page with traces


def page() -> str:
    """The page as it comes with the package: page.html with the style and the scripts that it names in it."""
    html = STYLE.sub(lambda found: f"<style>\n{beside(found[1])}</style>", beside("page.html"))
    return SCRIPT.sub(lambda found: f"<script>\n{beside(found[1])}</script>", html)


def beside(name: str) -> str:
    """What a file of the page holds."""
    return (FOLDER / name).read_text(encoding="utf-8")


def page_with(traces: Sequence[dict[str, Any]]) -> str:
    """The page with traces in it. Raises ValueError where it is larger than a page should be."""
    inlined = json.dumps(traces, separators=(",", ":")).replace("<", "\\u003c")  # no </script> within
    made = PLACE.sub(lambda found: found[1] + inlined + found[2], page(), count=1)
    size = len(made.encode())
    if size > MOST_BYTES:
        raise ValueError(f"a page of {size / 1e6:.1f} MB: it may have {MOST_BYTES / 1e6:.0f}; watch fewer latents, a smaller board, or one decode")
    return made


def policy(html: str) -> str:
    """The Content-Security-Policy under which the page's own scripts and styles run, it speaks to where it came from, and nothing else is done."""
    scripts, styles = (hashes(html, rf"<{tag}(?![^>]*application/json)[^>]*>(.*?)</{tag}>") for tag in ("script", "style"))
    return "; ".join([
        "default-src 'none'", f"script-src {scripts}", f"style-src {styles}", "connect-src 'self'", "img-src 'self' data: blob:",
        "base-uri 'none'", "form-action 'none'",
    ])  # fmt: skip


def hashes(html: str, block: str) -> str:
    """The sources of a policy that allow exactly the blocks found in a page."""
    found = [hashlib.sha256(text.encode()).digest() for text in re.findall(block, html, re.S)]
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in found) or "'none'"
