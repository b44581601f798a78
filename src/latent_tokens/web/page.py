"""The page: as it is served, and as one file that contains traces and needs no server."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path

from latent_tokens.trace.events import Trace

FOLDER = Path(__file__).parent
STYLE = re.compile(r'<link rel="stylesheet" href="([a-z]+\.css)">')
SCRIPT = re.compile(r'<script src="([a-z]+\.js)"></script>')
TRACES = re.compile(r'(<script type="application/json" id="traces">)\[\](</script>)')
CAPTION = re.compile(r'(<p class="words" id="caption">)(</p>)')
MOST_BYTES = 2_000_000  # of a page with traces


def page() -> str:
    """Return page.html with its style and its scripts inlined."""
    styled = STYLE.sub(lambda match: f"<style>\n{read_asset(match[1])}</style>", read_asset("page.html"))
    return SCRIPT.sub(lambda match: f"<script>\n{read_asset(match[1])}</script>", styled)


def read_asset(name: str) -> str:
    """Return the text of a file of the page."""
    return (FOLDER / name).read_text(encoding="utf-8")


def page_with(traces: Sequence[Trace], caption: str = "") -> str:
    """Return the page with traces in it and a caption above them.

    Raise ValueError if it exceeds MOST_BYTES.
    """
    inlined = json.dumps(traces, separators=(",", ":")).replace("<", "\\u003c")  # no </script> within
    document = TRACES.sub(lambda match: match[1] + inlined + match[2], page(), count=1)
    document = CAPTION.sub(lambda match: match[1] + html.escape(caption) + match[2], document, count=1)
    size = len(document.encode())
    if size > MOST_BYTES:
        raise ValueError(
            f"the page has {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f} MB. "
            "Use fewer latent tokens, a smaller board, or one decode."
        )
    return document


def policy(document: str) -> str:
    """Return the Content-Security-Policy that allows the page's own scripts, styles and requests."""
    directives = (
        "default-src 'none'",
        f"script-src {hashes(document, 'script')}",
        f"style-src {hashes(document, 'style')}",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(directives)


def hashes(document: str, tag: str) -> str:
    """Return the sources of a policy that allow exactly the inline elements of a page with that tag."""
    element = rf"<{tag}(?![^>]*application/json)[^>]*>(.*?)</{tag}>"
    digests = [hashlib.sha256(text.encode()).digest() for text in re.findall(element, document, re.S)]
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests) or "'none'"
