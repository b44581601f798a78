"""Models in the page: which ones its engine decodes with, their entries, and their files as JSON."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open

from latent_tokens.checkpoints.stored_methods import STORED_ORDERS, STORED_RULES
from latent_tokens.core.decoding import DEFAULT_CANDIDATES, Decoding
from latent_tokens.core.method import Method, name_of
from latent_tokens.data.loading import as_tensors
from latent_tokens.evaluation.settings import shown_latents
from latent_tokens.hf.directory import describe
from latent_tokens.network.transformer import Transformer
from latent_tokens.storage import Json
from latent_tokens.tasks import Examples, Sudoku
from latent_tokens.trace.examples import (
    COMPARISONS,
    chosen,
    examples,
    left_to_right_example,
    measured,
    measured_for,
)
from latent_tokens.trace.record import LoadedModel

MOST_WEIGHTS = 4_000_000  # bytes of the weights in a page
TASK_IN_PAGE = re.compile(r"sudoku-\d+(-pattern)?")  # as in js/sudoku.js
SIDES = (4, 6, 9, 16)
KERNEL_COLUMNS = 8  # as in js/network.js
DTYPES_IN_PAGE = {"F32", "BF16"}  # as in js/safetensors.js


def why_recorded(models: Sequence[LoadedModel]) -> str:
    """Return why a page cannot have these models in it, in one sentence, or ""."""
    reasons = filter(None, map(why_not_in_page, models))
    return next(reasons, "") or why_too_large(models)


def why_not_in_page(model: LoadedModel) -> str:
    """Return why the engine of the page cannot decode with a model, in one sentence, or ""."""
    net = model.net
    if not TASK_IN_PAGE.fullmatch(model.task.name) or model.task.length not in [
        side**2 for side in SIDES
    ]:
        return "A page decodes with models of sudoku-4, sudoku-6, sudoku-9 and sudoku-16 only."
    is_saved = type(net) is Transformer and net.method is not None and net.folder is not None
    if not is_saved or net.parts is not None or net.answer_tokens is not None:
        return "A page takes saved models of the built-in network only, without parts or answer_tokens."
    if (
        net.method.attention not in STORED_RULES.values()
        or net.method.order not in STORED_ORDERS.values()
        or net.method.readout == "left"
    ):
        return "A page decodes with the built-in attention masks and orders only, not with readout=left."
    if net.size.width % KERNEL_COLUMNS:
        return f"A page decodes with widths that are multiples of {KERNEL_COLUMNS} only."
    with safe_open(weights_of(model), "pt") as file:
        dtypes = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    if not dtypes <= DTYPES_IN_PAGE:
        return "A page decodes with weights in float32 or bfloat16 only."
    return ""


def why_too_large(models: Sequence[LoadedModel]) -> str:
    """Return why the weights of saved models do not fit a page, in one sentence, or ""."""
    size = sum({path: path.stat().st_size for path in map(weights_of, models)}.values())
    if size <= MOST_WEIGHTS:
        return ""
    return f"The weights have {size / 1e6:.1f} MB, more than the {MOST_WEIGHTS / 1e6:.0f} MB that fit a page."


def weights_of(model: LoadedModel) -> Path:
    """Return the file with the weights of a saved model."""
    return (model.net.folder or Path()) / "model.safetensors"


def weights_entry(model: LoadedModel) -> dict[str, Json]:
    """Return the config of a model that `why_recorded` accepts, and its weights in base64."""
    return {
        "config": {**describe(model.net), "task": {"name": model.task.name}},
        "weights": base64.b64encode(weights_of(model).read_bytes()).decode(),
    }


def model_entry(model: LoadedModel) -> dict[str, Any]:
    """Return what the page knows of a model that `why_recorded` accepts, without its weights."""
    method = model.net.method
    task = model.task
    assert isinstance(task, Sudoku)
    puzzles = [puzzle for puzzle in examples(task) if accepts(method, task.encode(puzzle))]
    record = measured_for(task, weights_of(model))
    kinds = {} if record is None else {one["puzzle"]: one["kind"] for one in record["examples"]}
    labels = {puzzle: COMPARISONS[kind] for puzzle, kind in kinds.items()}
    captions = {puzzle: chosen(kind, record or {}) for puzzle, kind in kinds.items()}
    empty = "." * task.length
    first = left_to_right_example(task, weights_of(model))
    is_first = first is not None and accepts(method, task.encode(first["puzzle"]))
    return {
        "name": model.name,
        "task": task.name,
        "method": name_of(method),
        "latent_control": method.latent_control,
        "latents": shown_latents(method, Decoding()),
        "side": task.side,
        "candidates": measured().get(task.name, {"candidates": DEFAULT_CANDIDATES})["candidates"],
        "examples": [
            *([first] if is_first else []),
            *(
                {
                    "puzzle": puzzle,
                    "label": "empty board" if puzzle == empty else labels.get(puzzle, ""),
                    "caption": captions.get(puzzle, ""),
                    "settings": {} if puzzle in labels else None,
                }
                for puzzle in puzzles
            ),
        ],
    }


def accepts(method: Method, problem: Examples) -> bool:
    """Return whether a method supports the given tokens. A shifted readout only continues a prefix."""
    try:
        method.check_known(as_tensors(problem)[1])
    except ValueError:
        return False
    return True
