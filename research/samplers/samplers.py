"""Decoders compared at equal accuracy: fixed counts, rules that decide after the predictions, remasking.

python research/samplers/samplers.py                  # print table.md from the rows
python research/samplers/samplers.py --measure RUNS   # measure what rows.jsonl lacks first
python research/samplers/samplers.py --draw-figure    # draw samplers.png, too

RUNS has the models: TASK-METHOD-SEED of sudoku-6, sudoku-9 and zebra-compact-3.
"""

import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import tyro

import latent_tokens as lt
from latent_tokens.evaluation.report import as_markdown, legend_of, save_sheet, style
from latent_tokens.evaluation.rows import append_result, read_results
from latent_tokens.palette import RULE_COLORS

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from tables import Cell, Line  # noqa: E402

Settings = dict[str, Any]


def each(name: str, *values: float, **shared: str | float) -> list[Settings]:
    """Return the settings of each value of a rule."""
    return [{**shared, name: value} for value in values]


OF_ALL: dict[str, list[Settings]] = {
    "top-prob, T": each("tokens_per_step", 1, 2, 4, order="top_prob"),
    "entropy, T": each("tokens_per_step", 1, 2, 4, order="entropy"),
    "threshold": each("threshold", 0.7, 0.9, 0.95, 0.99),
    "entropy bound": each("entropy_bound", 0.03, 0.1, 0.3, 1.0),
    "factor": each("factor", 0.1, 0.3, 1.0),
}
OF_ALL_CANDIDATES = OF_ALL | {
    "entropy, threshold": each("threshold", 0.7, 0.9, 0.95, 0.99, order="entropy"),
    "entropy, factor": each("factor", 0.1, 0.3, order="entropy"),
    "Fréchet bound": each("frechet_bound", 0.5, 0.8, 0.95),
    "entropy, Fréchet bound": each("frechet_bound", 0.5, 0.8, 0.95, order="entropy"),
}
RULES = OF_ALL_CANDIDATES | {
    "remasking": each("remask_every", 2, order="top_prob"),
    "entropy, remasking": each("remask_every", 2, order="entropy"),
    "entropy, threshold 0.9, remasking": each("remask_every", 2, order="entropy", threshold=0.9),
}
"""All of them. Remasking takes long, so only one curve has it (../remasking has others)."""
OF_NINE = {
    "top-prob, T": each("tokens_per_step", 1, order="top_prob"),
    "entropy, T": each("tokens_per_step", 1, order="entropy"),
    "threshold": each("threshold", 0.99),
    "entropy bound": each("entropy_bound", 0.03, 0.1),
    "entropy, threshold": each("threshold", 0.9, 0.95, order="entropy"),
}
"""The rules of 9x9 boards, whose decodes take the longest."""
VALUES = ("tokens_per_step", "remask_every", "threshold", "entropy_bound", "factor", "frechet_bound")
DRAWN = (0, 1, 8, 9)  # the curves of the figure
COLORS = {rule: RULE_COLORS[name] for rule in RULES if (name := rule.removesuffix(", T")) in RULE_COLORS}
"""The rules of the figure."""
CLOSE = 2.0  # points below the best one token per step that count as equal


class Curve(NamedTuple):
    """A model in one setting, which each rule decodes."""

    task: str
    method: str
    candidates: int | str
    latents: int | str | None
    samples: int

    @property
    def title(self) -> str:
        """The title of its panel."""
        n = "" if self.latents is None else f", n = {self.latents}"
        return f"{self.task}, {self.method}, k = {self.candidates}{n}"

    @property
    def rules(self) -> dict[str, list[Settings]]:
        """The rules that decode it."""
        if self.task == "boards 9x9":
            return OF_NINE
        if (self.task, self.method) == ("boards 6x6", "mdm"):
            return RULES
        return OF_ALL_CANDIDATES if (self.task, self.method) == ("puzzles 6x6", "mdm") else OF_ALL

    @property
    def seeds(self) -> range:
        """The training seeds of its models."""
        return range(1 if self.task == "Zebra" else 3)


ON_BOARDS = [("mdm", "all", None), ("scdm", "all", None), *product(("scdm", "esolm"), (8,), (0, "all"))]
CURVES = [
    *(Curve("boards 6x6", *setting, samples=300) for setting in ON_BOARDS),
    *(Curve("Zebra", method, "all", None, 500) for method in ("mdm", "scdm")),
    Curve("boards 9x9", "mdm", "all", None, 100),
    *(Curve("puzzles 6x6", method, "all", None, 300) for method in ("mdm", "scdm")),
]
TASKS = {"boards 6x6": "sudoku-6", "puzzles 6x6": "sudoku-6", "boards 9x9": "sudoku-9"}


def models_of(curve: Curve, runs: Path) -> Iterator[tuple[int, Path]]:
    """Yield the training seeds of a curve whose models are there, with their directories."""
    for seed in curve.seeds:
        folder = runs / f"{TASKS.get(curve.task, 'zebra-compact-3')}-{curve.method}-{seed}"
        if folder.exists():
            yield seed, folder


def measure_missing(runs: Path, path: Path = HERE / "rows.jsonl") -> None:
    """Append the rows that a file lacks."""
    done = [row["setting"] for row in read_results(path)] if path.exists() else []
    load = lru_cache(1)(lt.load)
    for curve in CURVES:
        for seed, folder in models_of(curve, runs):
            for rule, values in ((rule, values) for rule, every in curve.rules.items() for values in every):
                setting: Settings = {**curve._asdict(), "seed": seed, "rule": rule, **values}
                if setting in done:
                    continue
                data = puzzles(runs / "puzzles") if curve.task == "puzzles 6x6" else None
                shared = {"candidates": curve.candidates, "num_samples": curve.samples}
                latents = None if curve.latents is None else (curve.latents,)
                (row,) = load(folder).evaluate(**shared, latents=latents, data=data, seed=seed, **values).rows
                kept = ("metric", row["metric"], "num_samples", "processed", "relative_cost")
                kept += ("forward_passes_mean", "seconds", "problems_sha256")
                append_result(path, {"setting": setting, **{key: row[key] for key in kept}})


def puzzles(folder: Path) -> Path:
    """Return the data set of 6x6 puzzles, which is made if it is missing."""
    if not folder.exists():
        lt.make_data(lt.DataConfig("sudoku-6-puzzle", folder, num_train=100, num_test=300))
    return folder


def points(rows: list[Any], curve: Curve, rule: str) -> dict[float, Line]:
    """Return the lines of a rule by its value."""
    found: dict[float, list[Any]] = {}
    for row in rows:
        setting = row["setting"]
        if Curve(*(setting[name] for name in Curve._fields)) == curve and setting["rule"] == rule:
            value = next(setting[name] for name in VALUES if name in setting)
            of_value = found.setdefault(value, [])
            of_value.append({**row, "train_seed": setting["seed"]})
    problems = None if curve.task.startswith("boards") else curve.task
    cell = Cell(curve.method, rule, curve.latents, task=curve.task, problems=problems)
    return {value: Line(cell, tuple(of_seeds)) for value, of_seeds in found.items()}


def passes_of(line: Line) -> float:
    """Return the mean number of forward passes over training seeds."""
    return fmean(row["forward_passes_mean"] for row in line.rows)


def table(rows: list[Any]) -> str:
    """Return the table of all points."""
    heading = ("task", "method", "k", "n", "rule", "value", "passes", "tokens", "accuracy %")
    lines = [(*heading, "95% interval", "each seed")]
    for curve in CURVES:
        for rule in RULES:
            for value, at in points(rows, curve, rule).items():
                n = "" if curve.latents is None else str(curve.latents)
                setting = (curve.task, curve.method, str(curve.candidates), n, rule, f"{value:g}")
                tokens = fmean(row["relative_cost"] for row in at.rows)
                interval = " - ".join(map(at.written, at.interval or ()))
                seeds = " ".join(map(at.written, at.by_seed.values()))
                cost = (f"{passes_of(at):.1f}", f"{tokens:.2f}x")
                lines.append((*setting, *cost, at.written(at.mean), interval, seeds))
    return as_markdown(lines)


def choices(rows: list[Any]) -> str:
    """Return for each curve one token per step, the fewest passes at its accuracy, and the best decoder."""
    heads = ("model", *(f"one token, {order}" for order in ("top-prob", "entropy")))
    lines = [(*heads, "fewest passes at the better of both", "most accurate")]
    for curve in CURVES:
        found = {(rule, value): at for rule in RULES for value, at in points(rows, curve, rule).items()}
        if not found:
            continue
        one = [found[f"{order}, T", 1] for order in ("top-prob", "entropy")]
        goal = max(at.mean for at in one) - CLOSE
        fits = [key for key, at in found.items() if at.mean >= goal]
        fewest, best = (
            min(fits, key=lambda key: passes_of(found[key])),
            max(fits, key=lambda key: found[key].mean),
        )
        told = [f"{rule} {value:g}: {shown(found[rule, value])}" for rule, value in (fewest, best)]
        lines.append((curve.title, *map(shown, one), *told))
    return as_markdown(lines)


def shown(line: Line) -> str:
    """Return the passes of a line and its accuracy."""
    return f"{passes_of(line):.1f} ({line.mean:.1f}%)"


def draw(rows: list[Any]) -> None:
    """Draw accuracy over passes, one panel for each of four curves."""
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(9.6, 7.4), layout="constrained")
    for axes, index in zip(sheet.subplots(2, 2).flat, DRAWN, strict=True):
        curve = CURVES[index]
        for rule, marker in zip(COLORS, "osD^vP", strict=True):
            found = points(rows, curve, rule).values()
            at = sorted((passes_of(line), line.mean, *(line.interval or ())) for line in found)
            if at:
                passes, means, lows, highs = np.array(at).T
                label = rule.replace(", T", ", fixed T")
                look = {"marker": marker, "markersize": 4, "capsize": 2, "label": label}
                axes.errorbar(passes, means, (means - lows, highs - means), color=COLORS[rule], **look)
        solved = "valid" if curve.task.startswith("boards") else "solved"
        style(axes, "forward passes per sample", f"{solved} (%)", curve.title)
        axes.set(ylim=(0, 100), xlim=(0, None))
    legend_of(sheet, columns=3)
    (with_threshold, one) = (
        points(rows, CURVES[0], rule)[value]
        for rule, value in (("entropy, threshold", 0.9), ("entropy, T", 1))
    )
    title = (
        f"By entropy, a threshold of 0.9 has {with_threshold.mean:.0f}% valid boards in "
        f"{passes_of(with_threshold):.0f} passes, one token {one.mean:.0f}% in {passes_of(one):.0f} (mdm)"
    )
    caption = (
        "Fixed: T = 1, 2 or 4 tokens per step. Three training seeds of 300 samples (9x9: 100), 95% intervals"
    )
    save_sheet(sheet, title, caption, HERE / "samplers", dark=True)


def main(measure: Path | None = None, draw_figure: bool = False) -> None:
    """Print the tables.

    Args:
        measure: directory of the models, to measure what rows.jsonl lacks first.
        draw_figure: draw the figure.
    """
    if measure is not None:
        measure_missing(measure)
    rows = read_results(HERE / "rows.jsonl")
    if draw_figure:
        draw(rows)
    print(table(rows), choices(rows), sep="\n", end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
