"""The stored curves of the bundled models, which the tab Curve opens with, and the puzzles it decodes."""

from __future__ import annotations

import json
from functools import cache
from itertools import groupby
from typing import Literal, TypedDict

from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.core.cost import tokens_processed
from latent_tokens.evaluation.intervals import wilson
from latent_tokens.evaluation.rows import Row, read_results
from latent_tokens.storage import sha256_of
from latent_tokens.tasks import TASKS
from latent_tokens.trace.boards import measured
from latent_tokens.trace.frozen import PAGE_RECORD

# Boards from an empty grid at temperature 1; puzzles at temperature 0
Measure = Literal["sampled", "solved"]


class Point(TypedDict):
    """The samples of one number of latent tokens."""

    latents: int | str
    done: int
    of: int
    right: int
    low: float
    high: float
    processed: float
    relative: float


class StoredCurve(TypedDict):
    """The points of one model in one setting, and the hash of its weights."""

    model: str
    method: str
    sha256: str
    task: str
    measure: Measure
    order: str
    candidates: int
    points: list[Point]


class Curves(TypedDict):
    """The content with which the tab Curve opens."""

    stored: list[StoredCurve]
    puzzles: dict[str, list[str]]  # by task


def curves() -> Curves:
    """Return the stored curves and the puzzles."""
    puzzles = json.loads(PAGE_RECORD.read_text())["puzzles"]
    return {"stored": [*sampled_curves(), *solved_curves()], "puzzles": puzzles}


def sampled_curves() -> list[StoredCurve]:
    """Return the curves of bundled/results.jsonl: valid boards of samples from an empty grid."""

    def setting(row: Row) -> tuple[str, str, str, int]:
        return row["task"], row["method"], str(row["order"]), int(row["candidates"] or 1)

    rows = sorted(read_results(BUNDLED / "results.jsonl"), key=setting)
    return [
        {
            "model": f"{task}-{method}",
            "method": method,
            "sha256": hash_of(f"{task}-{method}"),
            "task": task,
            "measure": "sampled",
            "order": order,
            "candidates": candidates,
            "points": [sampled_point(row) for row in group],
        }
        for (task, method, order, candidates), group in groupby(rows, setting)
    ]


def sampled_point(row: Row) -> Point:
    """Return a stored row as a point."""
    count = row["num_samples"]
    right = round(row["valid"] * count / 100)
    return point(row["latents"], right, count, row["processed"], row["relative_cost"])


def solved_curves() -> list[StoredCurve]:
    """Return the curves of bundled/examples.json: puzzles solved in top-prob order."""
    curves: list[StoredCurve] = []
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
        curves.append(
            {
                "model": record["model"],
                "method": record["model"].removeprefix(f"{task}-"),
                "sha256": record["sha256"],
                "task": task,
                "measure": "solved",
                "order": "top_prob",
                "candidates": k,
                "points": points,
            }
        )
    return curves


def point(latents: int | str, right: int, count: int, processed: float, relative: float) -> Point:
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
