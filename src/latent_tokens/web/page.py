"""The page: as it is served, and as one file that contains traces and needs no server."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from latent_tokens.trace.events import Trace
from latent_tokens.trace.frozen import PAGE_RECORD
from latent_tokens.web.payloads import ModelEntry

FOLDER = Path(__file__).parent
STYLE = re.compile(r'<link rel="stylesheet" href="([a-z]+\.css)">')
SCRIPT = re.compile(r'<script src="([a-z]+\.js)"></script>')
ENGINE = '<script src="engine.js"></script>\n'
CHARSET = '<meta charset="utf-8">'
MODEL_FILES = ("config.json", "model.safetensors")  # that the engine in the page reads
CAPTION = re.compile(r'(<p class="words" id="caption">)(</p>)')
MOST_BYTES = 2_000_000  # of a page with traces


def page() -> str:
    """Return page.html with its style, its scripts and its record inlined."""
    return filled(assembled(read_asset("page.html")), "record", json.loads(PAGE_RECORD.read_text()))


def static_page(entries: Sequence[ModelEntry], weights: Mapping[str, object] | None = None) -> str:
    """Return the page that decodes in the browser, without a server.

    Args:
        entries: the models to offer.
        weights: the config and the weights in base64 of each model. By default the page reads the files of
            `models/NAME`, next to it.
    """
    document = filled(page(), "entries", entries)
    if weights is not None:
        document = filled(document, "weights", weights)
    tag = f'<meta http-equiv="Content-Security-Policy" content="{policy(document)}">'
    return document.replace(CHARSET, f"{CHARSET}\n{tag}", 1)


def assembled(document: str) -> str:
    """Return a page with its style and its scripts inlined."""
    styled = STYLE.sub(lambda match: f"<style>\n{read_asset(match[1])}</style>", document)
    return SCRIPT.sub(lambda match: f"<script>\n{read_asset(match[1])}</script>", styled)


def read_asset(name: str) -> str:
    """Return the text of a file of the page."""
    return (FOLDER / name).read_text(encoding="utf-8")


def filled(document: str, name: str, content: object) -> str:
    """Return a page with JSON in its element of that name."""
    start, end = f'<script type="application/json" id="{name}">', "</script>"
    before, after = document.split(start, 1)
    inlined = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")  # no </script> within
    return before + start + inlined + end + after.split(end, 1)[1]


def page_with(traces: Sequence[Trace], caption: str = "") -> str:
    """Return the page with traces in it and a caption. It decodes nothing, so it has no engine.

    Raise ValueError if it exceeds MOST_BYTES.
    """
    document = filled(assembled(read_asset("page.html").replace(ENGINE, "")), "traces", traces)
    document = CAPTION.sub(lambda match: match[1] + html.escape(caption) + match[2], document, count=1)
    size = len(document.encode())
    if size > MOST_BYTES:
        raise ValueError(
            f"the page has {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f} MB. "
            "Use fewer latent tokens, a smaller board, or one decode."
        )
    return document


def policy(document: str) -> str:
    """Return the Content-Security-Policy that allows the page's own scripts, styles and requests.

    The engine compiles WebAssembly, in a worker that is made from its own text.
    """
    directives = (
        "default-src 'none'",
        f"script-src {hashes(document, 'script')} 'wasm-unsafe-eval'",
        "worker-src blob:",
        f"style-src {hashes(document, 'style')}",
        "font-src data:",
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
