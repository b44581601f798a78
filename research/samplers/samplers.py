"""Rules that decide after the predictions against a fixed count: accuracy over forward passes.

python research/samplers/samplers.py             # print table.md from the rows
python research/samplers/samplers.py --measure   # measure what rows.jsonl lacks, then draw samplers.png
python research/samplers/samplers.py --draw      # draw samplers.png from the rows
"""

import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

import latent_tokens as lt
from latent_tokens.evaluation.report import as_markdown, legend_of, save_sheet, style
from latent_tokens.evaluation.rows import append_result, read_results
from latent_tokens.palette import RULE_COLORS

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from tables import Cell, Line  # noqa: E402

ROOT = HERE.parents[1]
PUZZLES = ROOT / "runs" / "samplers" / "puzzles"
RULES = {
    "top-prob, T": [{"order": "top_prob", "tokens_per_step": t} for t in (1, 2, 4)],
    "entropy, T": [{"order": "entropy", "tokens_per_step": t} for t in (1, 2, 4)],
    "threshold": [{"threshold": value} for value in (0.7, 0.9, 0.95, 0.99)],
    "entropy bound": [{"entropy_bound": value} for value in (0.03, 0.1, 0.3, 1.0)],
    "factor": [{"factor": value} for value in (0.1, 0.3, 1.0)],
}
DRAWN = (0, 3, 8, 10)  # the curves of the figure
CLOSE = 2.0  # points below one token per step that count as equal


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


ON_BOARDS = [("mdm", "all", None), ("scdm", "all", None), *product(("scdm", "esolm"), (8,), (0, "all"))]
CURVES = [
    *(Curve("boards 6x6", *setting, samples=300) for setting in ON_BOARDS),
    *(Curve("Zebra", method, "all", None, 500) for method in ("mdm", "scdm")),
    *(Curve("boards 9x9", method, "all", None, 100) for method in ("mdm", "scdm")),
    *(Curve("puzzles 6x6", method, "all", None, 300) for method in ("mdm", "scdm")),
]


def models_of(curve: Curve) -> Iterator[tuple[int, str]]:
    """Yield the training seeds of a curve, with the directory or name of each model."""
    if curve.task == "boards 9x9":
        yield 0, f"sudoku-9-{curve.method}"
    else:
        task, num_seeds = ("zebra-compact-3", 1) if curve.task == "Zebra" else ("sudoku-6", 3)
        for seed in range(num_seeds):
            yield seed, str(ROOT / "runs" / "samplers" / f"{task}-{curve.method}-{seed}")


def measure(path: Path = HERE / "rows.jsonl", samples: int | None = None) -> None:
    """Append the rows that a file lacks."""
    done = [row["setting"] for row in read_results(path)] if path.exists() else []
    load = lru_cache(1)(lt.load)
    for curve in CURVES:
        for seed, name in models_of(curve):
            for rule, settings in RULES.items():
                for values in settings:
                    setting: dict[str, Any] = {**curve._asdict(), "seed": seed, "rule": rule, **values}
                    if setting in done:
                        continue
                    model = load(name)
                    data = puzzles() if curve.task == "puzzles 6x6" else None
                    shared = {"candidates": curve.candidates, "num_samples": samples or curve.samples}
                    latents = None if curve.latents is None else (curve.latents,)
                    (row,) = model.evaluate(**shared, latents=latents, data=data, seed=seed, **values).rows
                    kept = ("metric", row["metric"], "num_samples", "processed", "relative_cost")
                    kept += ("forward_passes_mean", "seconds", "problems_sha256")
                    append_result(path, {"setting": setting, **{key: row[key] for key in kept}})


def puzzles() -> Path:
    """Return the data set of 6x6 puzzles, which is made if it is missing."""
    if not PUZZLES.exists():
        lt.make_data(lt.DataConfig("sudoku-6-puzzle", PUZZLES, num_train=100, num_test=300))
    return PUZZLES


def points(rows: list[Any], curve: Curve, rule: str) -> dict[float, Line]:
    """Return the lines of a rule by its value."""
    found: dict[float, list[Any]] = {}
    for row in rows:
        setting = row["setting"]
        if Curve(*(setting[name] for name in Curve._fields)) == curve and setting["rule"] == rule:
            names = ("tokens_per_step", "threshold", "entropy_bound", "factor")
            of_value = found.setdefault(next(setting[n] for n in names if n in setting), [])
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


def fewest(rows: list[Any]) -> str:
    """Return the fewest passes of each rule at most CLOSE points below one token per step in its order."""
    lines = [("task, model", "one token: passes, accuracy %", *list(RULES)[2:])]
    for curve in CURVES:
        cells = []
        one: dict[str, Line] = {
            order: points(rows, curve, f"{order}, T")[1] for order in ("top-prob", "entropy")
        }
        for rule in list(RULES)[2:]:
            goal = one["entropy" if rule == "entropy bound" else "top-prob"].mean - CLOSE
            fits = [(passes_of(at), at.mean) for at in points(rows, curve, rule).values()]
            best = min((each for each in fits if each[1] >= goal), default=None)
            cells.append("none" if best is None else f"{best[0]:.1f} ({best[1]:.1f}%)")
        shown = ", ".join(f"{order} {at.mean:.1f}" for order, at in one.items())
        lines.append((curve.title, f"{passes_of(one['entropy']):.0f}: {shown}", *cells))
    return as_markdown(lines)


def draw(rows: list[Any]) -> None:
    """Draw accuracy over passes, one panel for each of four curves."""
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(9.6, 7.4), layout="constrained")
    for axes, index in zip(sheet.subplots(2, 2).flat, DRAWN, strict=True):
        curve = CURVES[index]
        for rule, marker in zip(RULES, "osD^v", strict=True):
            found = points(rows, curve, rule).values()
            at = sorted((passes_of(line), line.mean, *(line.interval or ())) for line in found)
            passes, means, lows, highs = np.array(at).T
            color = RULE_COLORS[rule.removesuffix(", T")]
            label = rule.replace(", T", ", fixed T")
            look = {"marker": marker, "markersize": 4, "capsize": 2, "label": label}
            axes.errorbar(passes, means, (means - lows, highs - means), color=color, **look)
        is_puzzle = curve.task in ("Zebra", "puzzles 6x6")
        style(axes, "forward passes per sample", f"{'solved' if is_puzzle else 'valid'} (%)", curve.title)
        axes.set(ylim=(0, 100), xlim=(0, None))
    legend_of(sheet, columns=5)
    puzzles, boards = (
        passes_of(points(rows, CURVES[index], "threshold")[0.99])
        / passes_of(points(rows, CURVES[index], "top-prob, T")[1])
        for index in (10, 0)
    )
    title = f"A threshold of 0.99 needs {puzzles:.0%} of the passes on puzzles, {boards:.0%} on boards (mdm)"
    caption = (
        "Fixed: T = 1, 2 or 4 tokens per step. 6x6: three training seeds, 300 samples each. "
        "9x9: one seed, 100 samples. 95% intervals."
    )
    save_sheet(sheet, title, caption, HERE / "samplers")


def main() -> None:
    """Print the tables, or measure."""
    if "--measure" in sys.argv:
        measure()
        draw(read_results(HERE / "rows.jsonl"))
        return
    rows = read_results(HERE / "rows.jsonl")
    if "--draw" in sys.argv:
        draw(rows)
    print(table(rows), fewest(rows), sep="\n", end="")


if __name__ == "__main__":
    main()
