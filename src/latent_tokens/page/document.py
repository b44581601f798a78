"""The page as one file: page.html with its style, its scripts, models or recorded decodes, and its policy."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from latent_tokens.configs import block_in
from latent_tokens.page.curves import curves
from latent_tokens.page.models import (
    inlined,
    model_entry,
    weights_of,
    why_not_in_page,
    why_recorded,
    why_too_large,
)
from latent_tokens.storage import sha256_of
from latent_tokens.trace.examples import PAGE_RECORD
from latent_tokens.trace.record import LoadedModel, Start, StartSettings, Trace

FOLDER = Path(__file__).parent
STYLE = re.compile(r'<link rel="stylesheet" href="([a-z]+\.css)">')
SCRIPT = re.compile(r'<script src="([a-z]+\.js)"></script>')
CHARSET = '<meta charset="utf-8">'
MOST_BYTES = 2_000_000  # of the traces in a page
NO_MODEL = "This file has no model in it."


def page_of(models: Sequence[LoadedModel]) -> str:
    """Return the page that decodes with these models in the browser.

    Args:
        models: models of different names, the first of which the page opens with.

    Raises:
        ValueError: the engine cannot decode with a model, or the weights exceed MOST_WEIGHTS.
    """
    instead = "Leave it out, or record one decode: latent-tokens trace RUN PUZZLE -o FILE."
    reasons = [f"{model.name}: {why_not_in_page(model)}" for model in models]
    for reason in reasons:
        if not reason.endswith(": "):
            raise ValueError(f"{reason} {instead}")
    if reason := why_too_large(models):
        names = " ".join(model.name for model in models)
        raise ValueError(f"{names}: {reason} Name fewer or smaller models.")
    return filled_page({"curves": curves(), **decoding_with(models, map(model_entry, models))})


def decoding_with(
    models: Sequence[LoadedModel], entries: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    """Return the contents with which a page decodes: models, their weights, and measured examples."""
    return {
        "record": record_of(models),
        "entries": list(entries),
        "weights": {model.name: inlined(model) for model in models},
    }


def page_with(
    traces: Sequence[Trace], caption: str = "", models: Sequence[LoadedModel] = ()
) -> str:
    """Return the page that opens on recorded decodes.

    The page decodes with the models if `why_recorded` accepts them and `why_not_repeated` the
    settings. Else it has the recorded steps only, and states why its slider is fixed.

    Args:
        traces: one decode, or two to compare.
        caption: how the puzzle was chosen.
        models: the models of the decodes.

    Raises:
        ValueError: the traces exceed MOST_BYTES.
    """
    size = len(json.dumps(traces, separators=(",", ":")))
    if size > MOST_BYTES:
        raise ValueError(
            f"the decode has {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f} MB. "
            "Use fewer latent tokens, a smaller board, or one decode."
        )
    reason = why_recorded(models) if models else NO_MODEL
    reasons = [reason, *(why_not_repeated(trace["start"]["settings"]) for trace in traces)]
    reason = next(filter(None, reasons), "")
    contents: dict[str, Any] = {
        "curves": curves(),
        "traces": traces,
        "recorded": {"caption": caption, "reason": reason},
    }
    if not reason:
        own = list({model.name: model for model in models}.values())
        start = traces[0]["start"]
        contents |= decoding_with(own, (entry_with(model, start, caption) for model in own))
    return filled_page(contents)


def why_not_repeated(settings: StartSettings) -> str:
    """Return why the engine cannot decode with these settings, in one sentence, or ""."""
    if block_in(settings["order"]) is not None:
        return f"A page does not decode in the order {settings['order']}."
    if settings.get("off_distribution", False):
        return "A page does not decode off-distribution."
    return ""


def entry_with(model: LoadedModel, start: Start, caption: str) -> dict[str, Any]:
    """Return the entry of a model, with the recorded puzzle as its first example."""
    entry = model_entry(model)
    cells = ["." if token is None else str(token + 1) for token in start["tokens"]]
    recorded = {"puzzle": " ".join(cells), "label": "the recorded puzzle", "caption": caption}
    return {**entry, "examples": [recorded, *entry["examples"]]}


def record_of(models: Sequence[LoadedModel]) -> Any:
    """Return what the page shows of a bundled model, if one of the models is that one."""
    record = json.loads(PAGE_RECORD.read_text())
    hashes = {model.name: sha256_of(weights_of(model)) for model in models}
    return record if hashes.get(record["model"]) == record["sha256"] else None


def filled_page(contents: Mapping[str, object]) -> str:
    """Return the page with contents, which states its own Content-Security-Policy."""
    document = document_with(contents)
    tag = f'<meta http-equiv="Content-Security-Policy" content="{policy(document)}">'
    return document.replace(CHARSET, f"{CHARSET}\n{tag}", 1)


def document_with(contents: Mapping[str, object]) -> str:
    """Return page.html with its style and its scripts inlined, and JSON in its elements of these names."""
    document = read_asset("page.html")
    document = STYLE.sub(lambda match: f"<style>\n{read_asset(match[1])}</style>", document)
    document = SCRIPT.sub(lambda match: f"<script>\n{read_asset(match[1])}</script>", document)
    for name, content in contents.items():
        start = f'<script type="application/json" id="{name}">'
        before, after = document.split(start, 1)
        rest = after.split("</script>", 1)[1]
        # No </script> is within.
        text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
        document = f"{before}{start}{text}</script>{rest}"
    return document


def read_asset(name: str) -> str:
    """Return the text of a file of the page."""
    return (FOLDER / name).read_text(encoding="utf-8")


def policy(document: str) -> str:
    """Return the Content-Security-Policy that allows the page's own scripts and styles, and no requests.

    The engine compiles WebAssembly, in a worker that is made from its own text.
    """
    directives = (
        "default-src 'none'",
        f"script-src {hashes(document, 'script')} 'wasm-unsafe-eval'",
        "worker-src blob:",
        f"style-src {hashes(document, 'style')}",
        "font-src data:",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(directives)


def hashes(document: str, tag: str) -> str:
    """Return the sources of a policy that allow exactly the inline elements of a page with that tag."""
    element = rf"<{tag}(?![^>]*application/json)[^>]*>(.*?)</{tag}>"
    digests = [
        hashlib.sha256(text.encode()).digest() for text in re.findall(element, document, re.S)
    ]
    return (
        " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests) or "'none'"
    )
