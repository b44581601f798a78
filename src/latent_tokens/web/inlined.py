"""Models in the page: which ones the engine decodes with, and their files as JSON."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path

from latent_tokens.checkpoints.directory import describe
from latent_tokens.checkpoints.stored_methods import ORDERS, RULES
from latent_tokens.network.transformer import Transformer
from latent_tokens.storage import Json
from latent_tokens.trace.record import LoadedModel

WEIGHTS = "model.safetensors"
MOST_WEIGHTS = 4_000_000  # bytes of the weights in a page
TASK = re.compile(r"sudoku-\d+(-pattern)?")  # as in web/src/engine/sudoku.js
SIDES = (4, 6, 9, 16)


def why_recorded(models: Sequence[LoadedModel]) -> str:
    """Return why a page cannot have these models in it, in one sentence, or ""."""
    reasons = [why_not_in_page(model) for model in models]
    return next(filter(None, [*reasons, why_too_large(models)]), "")


def why_not_in_page(model: LoadedModel) -> str:
    """Return why the engine of the page cannot decode with a model, in one sentence, or ""."""
    net = model.net
    if not TASK.fullmatch(model.task.name) or model.task.length not in [side**2 for side in SIDES]:
        return "A page decodes with models of sudoku-4, sudoku-6, sudoku-9 and sudoku-16 only."
    if type(net) is not Transformer or net.method is None or net.folder is None:
        return "A page decodes with saved models of the built-in network only."
    if net.method.attention not in RULES.values() or net.method.order not in ORDERS.values():
        return "A page decodes with the built-in attention masks and orders only."
    return ""


def why_too_large(models: Sequence[LoadedModel]) -> str:
    """Return why the weights of models do not fit a page, in one sentence, or ""."""
    size = sum({folder: weights_of(folder).stat().st_size for folder in folders_of(models)}.values())
    if size <= MOST_WEIGHTS:
        return ""
    return f"The weights have {size / 1e6:.1f} MB, more than the {MOST_WEIGHTS / 1e6:.0f} MB that fit a page."


def folders_of(models: Sequence[LoadedModel]) -> list[Path]:
    """Return the directories that the models were read from."""
    return [model.net.folder for model in models if model.net.folder is not None]


def weights_of(folder: Path) -> Path:
    """Return the file with the weights of a model."""
    return folder / WEIGHTS


def inlined(model: LoadedModel) -> dict[str, Json]:
    """Return the config of a model that `why_recorded` accepts, and its weights in base64."""
    (folder,) = folders_of([model])
    return {
        "config": {**describe(model.net), "task": {"name": model.task.name}},
        "weights": base64.b64encode(weights_of(folder).read_bytes()).decode(),
    }
