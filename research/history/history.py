"""What a model learns first: accuracy over the number of latent tokens, by the history of its training.

python research/history/history.py                     # print table.md, with --draw-figure draw, too
python research/history/history.py --measure boards    # train and measure what rows.jsonl lacks
python research/history/history.py --measure left-to-right
python research/history/history.py --measure zebra countdown --workers 2

A history is a method that the first steps train with: in one run with one schedule (`--first`), or in a run
from whose weights a second one starts (`--from`). Trainings resume, in runs/history.
"""

import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

import tyro
from joblib import Parallel, delayed

from latent_tokens.evaluation.report import as_markdown, save_sheet
from latent_tokens.evaluation.rows import read_results
from latent_tokens.palette import METHOD_COLORS, PAGE

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent)]

from histories import (  # noqa: E402
    FIRST,
    LEFT_TO_RIGHT,
    SETTINGS,
    History,
    data_of,
    histories,
    left_to_right_cell,
    measure_history,
    measure_left_to_right,
)
from tables import ENOUGH, Cell, Claim, Line, compared, difference, lines_in, report  # noqa: E402

Name = Literal["boards", "zebra", "countdown", "left-to-right"]


class Estimate(NamedTuple):
    """A mean over training seeds with its 95% interval."""

    mean: float
    half: float  # the longer side of the interval, 0 for fewer than three seeds
    num_seeds: int

    def __str__(self) -> str:
        seeds = f"({self.num_seeds} seed{'s' * (self.num_seeds > 1)})"
        return f"{self.mean:.1f} {seeds if self.num_seeds < ENOUGH else f'± {self.half:.1f}'}"


def lines_of(rows: list[Any], key: str = "accuracy") -> dict[History, dict[Any, Line]]:
    """Return the values of each history, by n."""
    found: dict[History, dict[Any, list[Any]]] = {}
    for row in rows:
        label = dict(row["setting"])
        n, seed = label.pop("n"), label.pop("seed")
        of_seeds = found.setdefault(History(**label), {}).setdefault(n, [])
        of_seeds.append({**row, row["metric"]: row[key], "train_seed": seed})
    return {
        each: {n: Line(Cell(each.method, key, n), tuple(of_seeds)) for n, of_seeds in by_n.items()}
        for each, by_n in found.items()
    }


def estimate(mean: float, interval: tuple[float, float] | None, num_seeds: int) -> Estimate:
    """Return a mean with the longer side of its interval."""
    is_known = interval is not None and num_seeds >= ENOUGH
    return Estimate(mean, max(mean - interval[0], interval[1] - mean) if is_known else 0.0, num_seeds)


def value_of(line: Line) -> Estimate:
    """Return the mean of a line."""
    return estimate(line.mean, line.interval, len(line.by_seed))


def minus(first: Line, second: Line) -> Estimate | None:
    """Return the mean difference of the seeds that both lines have."""
    seeds = first.by_seed.keys() & second.by_seed.keys()
    if not seeds:
        return None
    return estimate(*difference(first.of_seeds(seeds), second.of_seeds(seeds)), len(seeds))


def table(rows: list[Any]) -> str:
    """Return the table of all histories. The floor is sidm from scratch.

    Two runs are compared with one of the same history and steps, in top-prob order.
    """
    start = ("task", "method", "first", "share", "runs", "n")
    values = ("top-prob %", "minus sidm", "uniform %", "minus sidm", "all minus 0", "two runs minus one")
    lines = [(*start, *values)]
    top_prob, uniform = lines_of(rows), lines_of(rows, "uniform")
    for history in sorted(top_prob, key=lambda each: str(each._replace(first=each.first or ""))):
        sidm = History(history.name, "sidm")
        of_history = (history.name, history.method, history.first or "none", f"{history.share:.0%}")
        runs = f"{history.runs}{', redrawn' if history.redrawn else ''}"
        by_n = top_prob[history]
        is_control = history.first == history.method  # whose one run is that from scratch
        one_run = History(history.name, history.method) if is_control else history._replace(runs=1)
        for n in by_n:
            cells = []
            for found in (top_prob, uniform):
                line, floor = found[history][n], found.get(sidm, {}).get(None)
                above = minus(line, floor) if floor is not None and history != sidm else None
                cells += [str(value_of(line)), str(above or "")]
            steepness = minus(by_n["all"], by_n[0]) if n == "all" and 0 in by_n else None
            is_compared = history.runs == 2 and not history.redrawn
            single = top_prob.get(one_run, {}).get(n) if is_compared else None
            restarted = minus(by_n[n], single) if single is not None else None
            cells += [str(steepness or ""), str(restarted or "")]
            lines.append((*of_history, runs, "" if n is None else str(n), *cells))
    return as_markdown(lines)


def draw(rows: list[Any]) -> None:
    """Draw accuracy over n, one line per history, and the dial over the share of the first part."""
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(10, 4.2), layout="constrained")
    curves, dials = sheet.subplots(1, 2)
    found = {
        each: by_n
        for each, by_n in sorted(lines_of(rows).items(), key=lambda pair: pair[0].share)
        if (each.name, each.method, each.runs) == ("boards", "scdm", 1)
        and min(len(by_n[n].by_seed) if n in by_n else 0 for n in (0, "all")) >= ENOUGH
    }
    style: dict[str, Any] = {"marker": "o", "capsize": 2}
    added = {}
    for each, by_n in found.items():
        if each.share in (0, 0.5):
            values = [value_of(line) for line in by_n.values()]
            means, halves = [value.mean for value in values], [value.half for value in values]
            name = "scdm from scratch" if each.first is None else f"half of the steps {each.first} first"
            color = METHOD_COLORS[each.first or "scdm"]
            curves.errorbar([*map(str, by_n)], means, halves, color=color, label=name, **style)
            added[each.first] = minus(by_n["all"], by_n[0]).mean
    for first in ("sidm", "mdm"):
        shown = [(each.share, minus(by_n["all"], by_n[0])) for each, by_n in found.items()
                 if each.first in (None, first)]  # fmt: skip
        means, halves = [value.mean for _, value in shown], [value.half for _, value in shown]
        dials.errorbar(
            [100 * share for share, _ in shown], means, halves, color=METHOD_COLORS[first], **style
        )
    scratch = next(minus(by_n["all"], by_n[0]) for each, by_n in found.items() if each.first is None)
    dials.errorbar([0], [scratch.mean], [scratch.half], color=METHOD_COLORS["scdm"], **style)
    dials.axhline(0, color=PAGE["edge"], linewidth=0.6)
    curves.set(xlabel="latent tokens n", ylabel="valid boards (%)", ylim=(0, None))
    curves.legend(fontsize=8, frameon=False)
    dials.set(xlabel="share of the steps of the first method (%)", ylabel="points at n = all minus at n = 0")
    caption = "6x6 boards, 6,800 steps, k = 4, 1,000 samples per training seed, three seeds, 95% intervals."
    title = (
        f"All latent tokens add {added[None]:.0f} points to an SCDM, {added['mdm']:.0f} after MDM, "
        f"{added['sidm']:.0f} after SIDM"
    )
    save_sheet(sheet, title, caption, HERE / "history", dark=True)


def left_to_right(lines: dict[Cell, Line]) -> str:
    """Return the tables of scdm on boards from left to right: values, then claims."""
    cells = {name: {n: left_to_right_cell(name, n) for n in LEFT_TO_RIGHT} for name in FIRST}
    scratch, after_sidm, after_mdm = cells.values()
    claims = [Claim(f"{name}: n={n} > n=0", of[n], of[0]) for name, of in cells.items() for n in (4, "all")]
    claims += [Claim(f"{name}: n=4 > n=all", of[4], of["all"]) for name, of in cells.items()]
    for n in LEFT_TO_RIGHT:
        claims.append(Claim(f"n={n}: after mdm > from scratch", after_mdm[n], scratch[n]))
        claims.append(Claim(f"n={n}: from scratch > after sidm", scratch[n], after_sidm[n]))
    return report(lines, [cell for of in cells.values() for cell in of.values()], compared(lines, claims))


def main(
    measure: tuple[Name, ...] = (),
    draw_figure: bool = False,
    workers: int = 1,
) -> None:
    """Print the tables, or train and measure first.

    Args:
        measure: the tasks, or boards from left to right.
        draw_figure: draw the figure.
        workers: processes at a time, of one thread each. From left to right takes one.
    """
    path = HERE / "rows.jsonl"
    for name in measure:
        if name == "left-to-right":
            measure_left_to_right(HERE / "left-to-right.jsonl", 1_000)
            continue
        data_of(SETTINGS[name])  # before the workers need it
        jobs = (delayed(measure_history)(history, path, 1_000) for history in histories(name))
        Parallel(n_jobs=workers)(jobs)
    if draw_figure:
        draw(read_results(path))
    lines = lines_in(HERE / "left-to-right.jsonl")
    print("\n".join([table(read_results(path)), left_to_right(lines)]), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
