"""Accuracy over passes of remasking, against one token per step and the better of two samples.

python research/remasking/remasking.py                  # print table.md from the rows
python research/remasking/remasking.py --measure RUNS   # measure what rows.jsonl lacks

RUNS has the models of boards: sudoku-6-METHOD-SEED and sudoku-9-METHOD-SEED for mdm and scdm.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import tyro

import latent_tokens as lt
from latent_tokens.evaluation.intervals import wilson, wilson_difference
from latent_tokens.evaluation.problems import read_split
from latent_tokens.evaluation.report import as_markdown
from latent_tokens.evaluation.rows import append_result, read_results
from latent_tokens.paper.tables import interval_over_seeds

HERE = Path(__file__).parent
SAMPLES, SEEDS = 100, (0, 1, 2)
Start = tuple[torch.Tensor, torch.Tensor]  # tokens and what is known
PLAIN, BEST = "one token per step", "better of two"
RULES: dict[str, dict[str, Any]] = {
    PLAIN: {},
    BEST: {},
    "below 0.2": {"remask_below": 0.2},
    "every second step": {"remask_every": 2},
}
METHODS = ("mdm", "scdm")
BOARDS, PUZZLES, NINE = "6x6 boards", "6x6 puzzles", "9x9 boards"
CANDIDATES: dict[str, int | str] = {BOARDS: 4, PUZZLES: "all", NINE: 8}
ORDERS = {BOARDS: ("top_prob", "entropy"), PUZZLES: ("top_prob", "entropy"), NINE: ("entropy",)}


def cells() -> Iterator[tuple[str, str, str, str]]:
    """Yield each task, method, order and rule."""
    for task, orders in ORDERS.items():
        for order, method, rule in product(orders, METHODS, RULES):
            yield task, method, order, rule


def setting_of(task: str, method: str, order: str, rule: str, seed: int) -> dict[str, Any]:
    """Return the setting of a row. That of 6x6 boards has no task."""
    setting = {"method": method, "order": order, "rule": rule, "seed": seed}
    return setting if task == BOARDS else {"task": task, **setting}


def measure_missing(runs: Path, path: Path = HERE / "rows.jsonl") -> None:
    """Append the rows that a file lacks."""
    torch.set_num_threads(1)
    done = [row["setting"] for row in read_results(path)] if path.exists() else []
    for (task, method, order, rule), seed in product(cells(), SEEDS):
        setting = setting_of(task, method, order, rule, seed)
        if setting in done:
            continue
        model = lt.load(runs / f"sudoku-{task[0]}-{method}-{seed}")
        start = puzzles(model, runs / "puzzles") if task == PUZZLES else empty(model.task.length)
        k = CANDIDATES[task]
        settings = {"candidates": k, "latents": None if k == "all" else "all", **RULES[rule]}
        decoding = lt.Decoding(order=order, **settings)
        tries = [draw(model, start, decoding, seed + 10 * number) for number in range(1 + (rule == BEST))]
        nats = torch.stack([sample_nats for _, sample_nats in tries])  # (tries, B)
        made = torch.stack([sample.tokens for sample, _ in tries])
        tokens = made[nats.argmin(0), torch.arange(SAMPLES)]
        row: Any = {
            "setting": setting,
            "valid": 100 * float(model.task.score(tokens.numpy(), None)["valid"].mean()),
            "passes": sum(sample.passes.double().mean().item() for sample, _ in tries),
            "processed": sum(sample.tokens_processed.double().mean().item() for sample, _ in tries),
        }
        append_result(path, row)
        print(row, flush=True)


def empty(length: int, number: int = SAMPLES) -> Start:
    """Return boards without givens."""
    known = torch.zeros(number, length, dtype=torch.bool)
    return known.long(), known


def puzzles(model: lt.Model, folder: Path) -> Start:
    """Return puzzles with one solution, which are made if they are missing."""
    if not folder.exists():
        lt.make_data(lt.DataConfig("sudoku-6-puzzle", folder, num_train=100, num_test=300))
    found = read_split(model.task, folder, "test").take(slice(SAMPLES))
    return torch.from_numpy(found.tokens).long() * torch.from_numpy(found.known), torch.from_numpy(
        found.known
    )


def draw(
    model: lt.Model, start: Start, decoding: lt.Decoding, seed: int
) -> tuple[lt.Generated, torch.Tensor]:
    """Return samples, and the nats of each: those of its tokens when they were decoded."""
    nats = torch.zeros(len(start[0]), dtype=torch.float64)

    def add(step: lt.Step) -> None:
        slot = (step.layout.positions == step.chosen[:, :1]).int().argmax(1)
        row = torch.arange(len(slot))
        nats[step.rows] -= step.probabilities[row, slot, step.tokens[:, 0]].double().log()

    on_step = add if decoding.remask is None else None
    return lt.generate(model.net, model.method, *start, decoding, seed, on_step=on_step), nats


def table(rows: list[Any]) -> str:
    """Return the table of the settings that every seed has, with intervals over seeds."""
    found = {tuple(row["setting"].items()): row for row in rows}
    heads = ("task", "method", "order", "rule", "passes", "tokens", "valid %", "95% interval")
    lines = [(*heads, f"minus {PLAIN}", f"minus {BEST}")]
    for task, method, order, rule in cells():
        keys = [
            [tuple(setting_of(task, method, order, each, seed).items()) for seed in SEEDS]
            for each in (rule, PLAIN, BEST)
        ]
        if not all(key in found for of_rule in keys for key in of_rule):
            continue
        ours, plain, best = ([found[key] for key in of_rule] for of_rule in keys)
        valid = [row["valid"] for row in ours]
        # Every seed solves the same puzzles
        count = SAMPLES if task == PUZZLES else len(SEEDS) * SAMPLES
        passes, tokens = (fmean([row[name] for row in ours]) for name in ("passes", "processed"))
        gains = []
        for others, name in ((plain, PLAIN), (best, BEST)):
            of_others = [row["valid"] for row in others]
            differences = [value - other for value, other in zip(valid, of_others, strict=True)]
            noise = wilson_difference(fmean(valid) / 100, count, fmean(of_others) / 100, count)
            is_shown = rule not in (PLAIN, name)
            gains.append(f"{fmean(differences):+.1f} ({bounds(differences, noise)})" if is_shown else "")
        cost = (f"{passes:.1f}", f"{tokens:.0f}")
        interval = bounds(valid, wilson(fmean(valid) / 100, count))
        lines.append((task, method, order, rule, *cost, f"{fmean(valid):.1f}", interval, *gains))
    return as_markdown(lines)


def bounds(values: list[float], noise: tuple[float, float]) -> str:
    """Return the 95% interval of percentages or differences over seeds, at most 100.

    `noise` is the interval of their mean from the number of samples, of shares.
    """
    found = interval_over_seeds(values, (100 * noise[0], 100 * noise[1]))
    return f"{found.low:.1f} to {min(found.high, 100):.1f}" if found else ""


def main(measure: Path | None = None) -> None:
    """Print the table.

    Args:
        measure: directory of the models, to measure what rows.jsonl lacks first.
    """
    if measure is not None:
        measure_missing(measure)
    print(table(read_results(HERE / "rows.jsonl")), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
