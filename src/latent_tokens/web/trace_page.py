"""The page as one file: with models, or with recorded decodes of `latent-tokens trace` and the demo."""

from __future__ import annotations

import json
from collections.abc import Sequence

from latent_tokens.configs.sampling import block_in
from latent_tokens.storage import sha256_of
from latent_tokens.trace.frozen import PageRecord
from latent_tokens.trace.record import LoadedModel, Start, StartSettings, Trace
from latent_tokens.web.curves import curves
from latent_tokens.web.inlined import (
    folders_of,
    inlined,
    weights_of,
    why_not_in_page,
    why_recorded,
    why_too_large,
)
from latent_tokens.web.model_cache import model_entry
from latent_tokens.web.page import bundled_record, document_with, with_policy
from latent_tokens.web.payloads import Example, ModelEntry

MOST_BYTES = 2_000_000  # of the traces in a page
NO_MODEL = "This file has no model in it."


def page_of(models: Sequence[LoadedModel]) -> str:
    """Return the page that decodes with these models in the browser.

    Args:
        models: models of different names, the first of which the page opens with.

    Raises:
        ValueError: the engine cannot decode with a model, or the weights exceed MOST_WEIGHTS.
    """
    # Check the models.
    for model in models:
        reason = why_not_in_page(model)
        if reason:
            raise ValueError(
                f"{model.name}: {reason} "
                "Leave it out, or record one decode: latent-tokens trace RUN PUZZLE -o FILE."
            )
    reason = why_too_large(models)
    if reason:
        names = " ".join(model.name for model in models)
        raise ValueError(f"{names}: {reason} Name fewer or smaller models.")

    # Put them into the page.
    contents = {
        "record": record_of(models),
        "curves": curves(),
        "entries": [entry_of(model) for model in models],
        "weights": {model.name: inlined(model) for model in models},
    }
    return with_policy(document_with(contents))


def page_with(traces: Sequence[Trace], caption: str = "", models: Sequence[LoadedModel] = ()) -> str:
    """Return the page that opens on recorded decodes.

    The page decodes with the models if `why_recorded` accepts them and `why_not_repeated` the settings. Else
    it has the recorded steps only, and states why its slider is fixed.

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
    contents: dict[str, object] = {
        "curves": curves(),
        "traces": traces,
        "recorded": {"caption": caption, "reason": reason},
    }
    if not reason:
        by_name = {model.name: model for model in models}
        contents["entries"] = [entry_with(model, traces[0]["start"], caption) for model in by_name.values()]
        contents["weights"] = {name: inlined(model) for name, model in by_name.items()}
        contents["record"] = record_of(models)
    return with_policy(document_with(contents))


def why_not_repeated(settings: StartSettings) -> str:
    """Return why the engine cannot decode with these settings, in one sentence, or ""."""
    if block_in(settings["order"]) is not None:
        return f"A page does not decode in the order {settings['order']}."
    if settings.get("off_distribution", False):
        return "A page does not decode off-distribution."
    return ""


def entry_with(model: LoadedModel, start: Start, caption: str) -> ModelEntry:
    """Return the entry of a model, with the recorded puzzle as its first example."""
    entry = entry_of(model)
    cells = ["." if token is None else str(token + 1) for token in start["tokens"]]
    recorded: Example = {"puzzle": " ".join(cells), "label": "the recorded puzzle", "caption": caption}
    return {**entry, "examples": [recorded, *entry["examples"]]}


def entry_of(model: LoadedModel) -> ModelEntry:
    """Return the entry of a model that the page decodes with."""
    (folder,) = folders_of([model])
    return {**model_entry(model.name, folder, model.task), "in_page": True}


def record_of(models: Sequence[LoadedModel]) -> PageRecord | None:
    """Return what the page shows of a bundled model, if one of the models is that one."""
    record = bundled_record()
    hashes = {model.name: sha256_of(weights_of(folder)) for model in models for folder in folders_of([model])}
    return record if hashes.get(record["model"]) == record["sha256"] else None
