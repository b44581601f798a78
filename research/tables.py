"""Tables of stored results: values with their 95% intervals, and differences of two settings.

The scripts of the folders import it. `python research/NAME/NAME.py` prints NAME/table.md, from the rows of
its folder, of other folders that measured the same setting, and of results/cpu.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import latent_tokens as lt
from latent_tokens.evaluation.evaluate import checked_decodings
from latent_tokens.evaluation.intervals import wilson, wilson_difference
from latent_tokens.evaluation.problems import batches, decode_batch, device_of, find_problems
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown
from latent_tokens.evaluation.rows import Row, read_results
from latent_tokens.paper.experiments import PUZZLE_TASKS
from latent_tokens.paper.tables import ENOUGH, interval_over_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESEARCH = Path(__file__).parent
OF_PAPER = RESEARCH.parent / "results" / "cpu" / "rows.jsonl"
Latents = int | str | None

DIGITS = {"nats_per_token": 4, "soft_loss": 2}  # of a metric; 1 for the others
LOSSES = ("nats_per_token", "perplexity", "soft_loss")  # lower is better
LABELS = {
    "plain": "default",
    "as printed": "not reshuffled",
    "a share": "proportional",
    "early": "all early, then none",
    "late": "none early, then all",
    "elbo": "elbo weight",
    "of a unit": "shared unit",
    "constrained of a unit": "constrained, shared unit",
    "fp32": "default",
}  # names of variants in rows stay as they are
RULE = (
    "Intervals are Student's t over training seeds, from three on, and never narrower than the sampling noise"
    " of Wilson's intervals. With fewer seeds they are the sampling noise alone. Seeds that solve the same"
    " puzzles count each puzzle once. A claim holds (yes) if three seeds decide it: its interval excludes 0."
    " An undecided claim is not evidence of equality. Relative cost is tokens processed, relative to all"
    " masked tokens in every step."
)


class Cell(NamedTuple):
    """The setting of some rows, one row per training seed."""

    method: str
    order: str
    latents: Latents = None
    variant: str | None = None
    task: str = "sudoku-gen"
    problems: str | None = None  # the task whose puzzles a model of boards infills


class Claim(NamedTuple):
    """A claim that the first setting is better than the second, or worse by less than a margin."""

    text: str
    first: Cell
    second: Cell
    margin: float = 0


@dataclass(frozen=True)
class Line:
    """A setting with its rows."""

    cell: Cell
    rows: tuple[Row, ...]

    @property
    def metric(self) -> str:
        """The key of the value in a row."""
        return str(self.rows[0]["metric"])

    @property
    def is_loss(self) -> bool:
        """Whether lower is better."""
        return self.metric in LOSSES

    @property
    def by_seed(self) -> dict[int, float]:
        """The value of each training seed: percent correct, or a loss."""
        return {row["train_seed"]: value_of(row) for row in self.rows}

    @property
    def mean(self) -> float:
        """The mean over training seeds."""
        return fmean(self.by_seed.values())

    @property
    def num_independent(self) -> int:
        """The samples of all seeds. Seeds that solve the same puzzles count each puzzle once."""
        if self.cell.problems or self.cell.task in PUZZLE_TASKS:
            return sum({row["problems_sha256"]: row["num_samples"] for row in self.rows}.values())
        return sum(row["num_samples"] for row in self.rows)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval of the mean."""
        noise = None
        if not self.is_loss:
            low, high = wilson(self.mean / 100, self.num_independent)
            noise = 100 * low, 100 * high
        found = interval_over_seeds(list(self.by_seed.values()), noise)
        if found is None or self.is_loss:
            return found and found[:2]
        return max(0, found.low), min(100, found.high)

    def of_seeds(self, seeds: Iterable[int]) -> Line:
        """Return the line with the rows of some training seeds only."""
        return Line(self.cell, tuple(row for row in self.rows if row["train_seed"] in seeds))

    def written(self, value: float, sign: str = "") -> str:
        """Return a value with its digits."""
        return f"{value:{sign}.{DIGITS.get(self.metric, 1)}f}"


def value_of(row: Any) -> float:
    """Return the value of a row. Nats are those of the sequences, because a row rounds their mean."""
    if row["metric"] == "nats_per_token":
        return float(sum(row["held_out_nats"]) / row["held_out_tokens"])
    return float(row[row["metric"]])


def rows_of(*folders: str) -> dict[Cell, Line]:
    """Return the rows of these folders and of results/cpu by their setting."""
    by_cell: dict[Cell, dict[int, Row]] = {}
    for path in (*(RESEARCH / name / "rows.jsonl" for name in folders), OF_PAPER):
        for row in read_results(path):
            fields = row["cell"]
            names = ("method", "order", "latents", "variant", "task", "problems")
            cell = canonical(Cell(*(fields.get(name) for name in names)))
            by_cell.setdefault(cell, {}).setdefault(row["train_seed"], row)
    return {cell: Line(cell, tuple(of[seed] for seed in sorted(of))) for cell, of in by_cell.items()}


def lines_in(path: Path) -> dict[Cell, Line]:
    """Return the rows of one file by their setting."""
    by_cell: dict[Cell, dict[int, Row]] = {}
    for row in read_results(path):
        by_cell.setdefault(Cell(**row["cell"]), {})[row["train_seed"]] = row
    return {cell: Line(cell, tuple(of[seed] for seed in sorted(of))) for cell, of in by_cell.items()}


def error_bars(axes: Axes, at: Sequence[float], lines: Sequence[Line], **look: Any) -> None:
    """Draw lines with their 95% intervals, in one curve over `at`."""
    means = np.array([line.mean for line in lines])
    bounds = np.array([line.interval or (line.mean, line.mean) for line in lines]).T
    axes.errorbar(
        at, means, np.abs(bounds - means), **{"markersize": 5, "capsize": 2, "linewidth": 1.6, **look}
    )


def mean_and_bounds(line: Line | None) -> str:
    """Return the mean of a line with its interval, and the number of its seeds if it is below three."""
    if line is None:
        return ""
    low, high = line.interval or (line.mean, line.mean)
    few = "" if len(line.rows) >= ENOUGH else f" [{len(line.rows)}]"
    return f"{line.mean:.1f} ({low:.0f}-{high:.0f}){few}"


def canonical(cell: Cell) -> Cell:
    """Return the name of a setting that has two: k = 4 is the default in top-prob order on 6x6 boards."""
    default = None if cell.problems else "plain"
    is_same = (cell.task, cell.order, cell.variant) == ("sudoku-gen", "top_prob", default)
    return cell._replace(variant="k=4") if is_same else cell


def lines_of(results: Mapping[Cell, Line], cells: Iterable[Cell]) -> list[Line]:
    """Return the lines of some settings that have rows, named as they are asked for."""
    found = ((cell, results.get(canonical(cell))) for cell in dict.fromkeys(cells))
    return [Line(cell, line.rows) for cell, line in found if line is not None]


def values_table(lines: Sequence[Line]) -> str:
    """Return a table with a row per setting. Columns without entries are left out."""
    headings = ("task", "method", "order", "k", "n", "variant", "ours", "metric", "95% interval", "samples")
    table: list[tuple[str, ...]] = [(*headings, "each seed", "relative cost")]
    for line in lines:
        row: Any = line.rows[0]
        low, high = (line.written(bound) for bound in line.interval) if line.interval else ("", "")
        table.append(
            (
                f"{row['task']}, infilling puzzles" if line.cell.problems else row["task"],
                line.cell.method,
                ORDER_NAMES.get(line.cell.order, line.cell.order),
                "" if line.cell.order in ("uniform", "left_to_right") else str(row.get("candidates", "")),
                "" if line.cell.latents is None else str(line.cell.latents),
                label(line.cell.variant),
                line.written(line.mean),
                line.metric.replace("_", " ") if line.is_loss else f"{line.metric} %",
                f"{low} - {high}" if low else "",
                f"{sum(row['num_samples'] for row in line.rows):,}",
                " ".join(map(line.written, line.by_seed.values())),
                f"{fmean(row['relative_cost'] for row in line.rows):.2f}x",
            )
        )
    used = [column for column in range(len(table[0])) if any(row[column] for row in table[1:])]
    return as_markdown([[row[column] for column in used] for row in table])


def label(variant: str | None) -> str:
    """Return the name of a variant in tables."""
    name = (variant or "").removesuffix(", nats").removesuffix(", diversity").removesuffix(", fp32")
    return LABELS.get(name, name).replace(" %", "%")


def claims_table(results: Mapping[Cell, Line], claims: Iterable[Claim]) -> str:
    """Return a table of differences over the training seeds that both settings have, with verdicts."""
    table: list[tuple[str, ...]] = [("claim", "first", "second", "difference (95% interval)", "verdict")]
    for claim in claims:
        sides = lines_of(results, (claim.first, claim.second))
        if len(sides) < 2:
            table.append((claim.text, *("not run" if not sides else "" for _ in range(2)), "", "not run"))
            continue
        seeds = sides[0].by_seed.keys() & sides[1].by_seed.keys()
        if not seeds:
            shown = (side.written(side.mean) for side in sides)
            table.append((claim.text, *shown, "", "no claim: no seed in common"))
            continue
        first, second = (side.of_seeds(seeds) for side in sides)
        mean, interval = difference(first, second)
        bounds = f" ({' to '.join(first.written(b, '+') for b in interval)})" if interval else ""
        text = f"{first.written(mean, '+')}{bounds}"
        values = (side.written(side.mean) for side in (first, second))
        table.append((claim.text, *values, text, verdict(interval, len(seeds), first.is_loss, claim.margin)))
    return as_markdown(table)


def compared(lines: Mapping[Cell, Line], claims: Iterable[Claim]) -> list[Claim]:
    """Return the claims whose settings were both measured."""
    return [claim for claim in claims if {claim.first, claim.second} <= lines.keys()]


def difference(first: Line, second: Line) -> tuple[float, tuple[float, float] | None]:
    """Return the mean difference of two lines with equal seeds, and its 95% interval."""
    noise = None
    if not first.is_loss:
        counts = first.num_independent, second.num_independent
        low, high = wilson_difference(first.mean / 100, counts[0], second.mean / 100, counts[1])
        noise = 100 * low, 100 * high
    values = [value - second.by_seed[seed] for seed, value in first.by_seed.items()]
    interval = interval_over_seeds(values, noise)
    return fmean(values), interval and interval[:2]


def verdict(interval: tuple[float, float] | None, num_seeds: int, is_loss: bool, margin: float) -> str:
    """Return whether an interval decides that the first setting is better, in words."""
    if num_seeds < ENOUGH or interval is None:
        return f"no claim: {num_seeds} seed{'s' * (num_seeds > 1)}"
    low, high = (-interval[1], -interval[0]) if is_loss else interval
    if low > -margin:
        return "yes"
    if high >= -margin:
        return "undecided"
    return "no" if margin else "no, the reverse"


def report(results: Mapping[Cell, Line], cells: Iterable[Cell], claims: Sequence[Claim] = ()) -> str:
    """Return the table of some settings, that of some claims, and the rule of their intervals."""
    parts = [values_table(lines_of(results, cells))]
    if claims:
        parts.append(claims_table(results, claims))
    return "\n".join([*parts, f"{RULE}\n"])


def watched(net: Any, task: Any, watcher: Any, **settings: Any) -> Row:
    """Return the row of one setting with what a watcher adds, which receives every step of the same samples.

    A watcher has `begin(rows, length)` before a batch, `__call__(step)`, `end(samples, right)` after it, and
    `measured()`.
    """
    config = lt.EvalConfig(**settings)
    (row,) = lt.evaluate(net, task, config)
    (decoding,) = checked_decodings(net, task, config)
    for batch in batches(find_problems(task, config), config.batch_size, device_of(net)):
        watcher.begin(*batch.tokens.shape)
        samples = decode_batch(net, batch, decoding, config.seed, watcher).samples
        watcher.end(samples, task.score(samples, batch.examples)[task.metric].astype(bool))
    return {**row, **watcher.measured()}


def checksums() -> str:
    """Return the SHA-256 of every file of rows below this folder, as `sha256sum` prints it."""
    paths = sorted(RESEARCH.glob("*/*.jsonl"))
    lines = (
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(RESEARCH)}" for path in paths
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (RESEARCH / "SHA256SUMS").write_text(checksums())
