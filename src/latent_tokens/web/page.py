"""The page: page.html with its style, its scripts and its data inlined, and its policy."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from latent_tokens.trace.frozen import PAGE_RECORD, PageRecord
from latent_tokens.web.curves import curves
from latent_tokens.web.payloads import ModelEntry

FOLDER = Path(__file__).parent
STYLE = re.compile(r'<link rel="stylesheet" href="([a-z]+\.css)">')
SCRIPT = re.compile(r'<script src="([a-z]+\.js)"></script>')
CHARSET = '<meta charset="utf-8">'
MODEL_FILES = ("config.json", "model.safetensors")  # that the engine in the page reads


def page() -> str:
    """Return page.html with its style, its scripts and its record inlined."""
    return document_with({"record": bundled_record(), "curves": curves()})


def static_page(entries: Sequence[ModelEntry], weights: Mapping[str, object] | None = None) -> str:
    """Return the page that decodes in the browser, without a server.

    Args:
        entries: the models to offer.
        weights: the config and the weights in base64 of each model. By default the page reads the files of
            `models/NAME`, next to it.
    """
    contents = {"record": bundled_record(), "curves": curves(), "entries": entries, "weights": weights}
    return with_policy(document_with(contents))


def bundled_record() -> PageRecord:
    """Return what the page shows of a bundled model."""
    return cast(PageRecord, json.loads(PAGE_RECORD.read_text()))


def document_with(contents: Mapping[str, object]) -> str:
    """Return page.html with its style and its scripts inlined, and JSON in its elements of these names."""
    document = assembled(read_asset("page.html"))
    for name, content in contents.items():
        document = filled(document, name, content)
    return document


def with_policy(document: str) -> str:
    """Return a page that states its own Content-Security-Policy, as no server sends one."""
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
