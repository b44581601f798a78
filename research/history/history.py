"""What a model learns first: accuracy over the number of latent tokens, by the history of its training.

python research/history/history.py                     # print table.md from the rows
python research/history/history.py --measure boards    # train and measure what rows.jsonl lacks, then draw
python research/history/history.py --measure zebra countdown --workers 2

A history is a method that the first steps train with: in one run with one schedule (`--first`), or in a run
from whose weights a second one starts (`--from`). Trainings resume, in runs/history.
"""

import argparse
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from joblib import Parallel, delayed

from latent_tokens.evaluation.intervals import half_interval
from latent_tokens.evaluation.report import as_markdown, save_sheet
from latent_tokens.evaluation.rows import Row, read_results

HERE = Path(__file__).parent
sys.path.append(str(HERE))

from histories import SETTINGS, History, data_of, histories, measure  # noqa: E402

BySeed = dict[int, float]
COLORS = {None: "#000000", "sidm": "#0072b2", "mdm": "#d55e00", "scdm": "#009e73"}


def values_of(rows: list[Row], key: str = "accuracy") -> dict[History, dict[Any, BySeed]]:
    """Return the values of each history, by n and training seed."""
    found: dict[History, dict[Any, BySeed]] = {}
    for row in rows:
        label = dict(row["setting"])
        n, seed = label.pop("n"), label.pop("seed")
        found.setdefault(History(**label), {}).setdefault(n, {})[seed] = row[key]
    return found


def half_of(values: list[float]) -> float:
    """Return half of the 95% interval over seeds, 0 for fewer than three."""
    return half_interval(values) if len(values) > 2 else 0.0


def shown(values: list[float]) -> str:
    """Return a mean with its interval, or the number of seeds if they are too few."""
    if not values:
        return ""
    few = f"{fmean(values):.1f} ({len(values)} seed{'s' * (len(values) > 1)})"
    return f"{fmean(values):.1f} ± {half_of(values):.1f}" if len(values) > 2 else few


def minus(first: BySeed, second: BySeed) -> list[float]:
    """Return the differences of the seeds that both have."""
    return [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]


def dial(by_n: dict[Any, BySeed]) -> list[float]:
    """Return accuracy at n = all minus at n = 0, by seed."""
    return minus(by_n["all"], by_n[0])


def table(rows: list[Row]) -> str:
    """Return the table of all histories. The floor is sidm from scratch."""
    start = ("task", "method", "first", "share", "runs", "n")
    lines = [(*start, "top-prob %", "minus sidm", "uniform %", "minus sidm", "all minus 0")]
    top_prob, uniform = values_of(rows), values_of(rows, "uniform")
    for history in sorted(top_prob, key=lambda each: str(each._replace(first=each.first or ""))):
        sidm = History(history.name, "sidm")
        of_history = (history.name, history.method, history.first or "none", f"{history.share:.0%}")
        runs = f"{history.runs}{', redrawn' if history.redrawn else ''}"
        by_n = top_prob[history]
        for n in by_n:
            cells = []
            for found in (top_prob, uniform):
                values = found[history][n]
                floor = {} if history == sidm else found.get(sidm, {}).get(None, {})
                cells += [shown(list(values.values())), shown(minus(values, floor))]
            steepness = shown(dial(by_n)) if n == "all" and 0 in by_n else ""
            lines.append((*of_history, runs, "" if n is None else str(n), *cells, steepness))
    return as_markdown(lines)


def draw(rows: list[Row]) -> None:
    """Draw accuracy over n, one line per history, and the dial over the share of the first part."""
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(10, 4.2), layout="constrained")
    curves, dials = sheet.subplots(1, 2)
    found = {each: by_n for each, by_n in values_of(rows).items() if (each.name, each.runs) == ("boards", 1)}
    for each, by_n in sorted(found.items(), key=str):
        color = COLORS[each.first]
        if each.method == "scdm" and each.share in (0, 0.5):
            values = [list(by_seed.values()) for by_seed in by_n.values()]
            means, halves = map(fmean, values), map(half_of, values)
            name = "scdm from scratch" if each.first is None else f"half of the steps {each.first} first"
            curves.errorbar([*map(str, by_n)], [*means], [*halves], color=color, marker="o", label=name)
        if each.method == "scdm":
            steepness = dial(by_n)
            dials.errorbar(
                [100 * each.share], [fmean(steepness)], [half_of(steepness)], color=color, marker="o"
            )
    curves.set(xlabel="latent tokens n", ylabel="valid boards %", ylim=(0, None))
    curves.legend(fontsize=7)
    dials.set(xlabel="share of the first part (%)", ylabel="valid % at n = all minus at n = 0")
    caption = "6x6 boards, 6,800 steps, k = 4, 1,000 samples per training seed, three seeds, 95% intervals."
    save_sheet(sheet, "What is learned first", caption, HERE / "history")


def main() -> None:
    """Print the table, or measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", nargs="+", choices=SETTINGS, metavar="SETTING")
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    path = HERE / "rows.jsonl"
    for name in arguments.measure or ():
        data_of(SETTINGS[name])  # before the workers need it
        jobs = (delayed(measure)(history, path, 1_000) for history in histories(name))
        Parallel(n_jobs=arguments.workers)(jobs)
        draw(read_results(path))
    print(table(read_results(path)), end="")


if __name__ == "__main__":
    main()
