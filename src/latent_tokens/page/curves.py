"""The stored curves of the bundled models, which the tab Curve opens with, and the puzzles it decodes."""

from __future__ import annotations

import json
from functools import cache
from itertools import groupby
from typing import Any

from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.core.cost import tokens_processed
from latent_tokens.evaluation.intervals import wilson
from latent_tokens.evaluation.rows import Row, read_results
from latent_tokens.storage import sha256_of
from latent_tokens.tasks import TASKS
from latent_tokens.trace.examples import PAGE_RECORD, measured


def curves() -> dict[str, Any]:
    """Return the stored curves, and the puzzles by task."""
    puzzles = json.loads(PAGE_RECORD.read_text())["puzzles"]
    return {"stored": [*sampled_curves(), *solved_curves()], "puzzles": puzzles}


def sampled_curves() -> list[dict[str, Any]]:
    """Return the curves of bundled/results.jsonl: valid boards of samples from an empty grid."""

    def setting(row: Row) -> tuple[str, str, str, int]:
        return row["task"], row["method"], str(row["order"]), int(row["candidates"] or 1)

    stored = []
    rows = sorted(read_results(BUNDLED / "results.jsonl"), key=setting)
    for (task, method, order, candidates), group in groupby(rows, setting):
        points = []
        for row in group:
            count = row["num_samples"]
            right = round(row["valid"] * count / 100)
            cost = (row["processed"], row["relative_cost"])
            points.append(point(row["latents"], right, count, *cost))
        stored.append(curve(f"{task}-{method}", task, "sampled", order, candidates, points))
    return stored


def solved_curves() -> list[dict[str, Any]]:
    """Return the curves of bundled/examples.json: puzzles solved in top-prob order."""
    stored = []
    for task, record in measured().items():
        length = TASKS[task].length
        known = record["givens"]
        k = record["candidates"]
        most = length * (length - known)
        points = []
        for latents, right in record["solved"].items():
            num_latents = length if latents == "all" else int(latents)
            processed = tokens_processed(length, known, k, num_latents)
            points.append(point(latents, right, record["puzzles"], processed, processed / most))
        stored.append(curve(record["model"], task, "solved", "top_prob", k, points))
    return stored


def curve(
    model: str, task: str, measure: str, order: str, candidates: int, points: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return a curve of a bundled model, with the hash of its weights.

    The measure is "sampled", of boards from an empty grid at temperature 1, or "solved", of puzzles
    at temperature 0.
    """
    return {
        "model": model,
        "method": model.removeprefix(f"{task}-"),
        "sha256": hash_of(model),
        "task": task,
        "measure": measure,
        "order": order,
        "candidates": candidates,
        "points": points,
    }


def point(
    latents: int | str, right: int, count: int, processed: float, relative: float
) -> dict[str, Any]:
    """Return a point of a complete measurement."""
    low, high = wilson(right / count, count)
    return {
        "latents": latents,
        "done": count,
        "of": count,
        "right": right,
        "low": low,
        "high": high,
        "processed": processed,
        "relative": relative,
    }


@cache
def hash_of(name: str) -> str:
    """Return the hash of a bundled model's weights."""
    return sha256_of(BUNDLED / name / "model.safetensors")
