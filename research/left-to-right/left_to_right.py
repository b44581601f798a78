"""What latent tokens are worth on puzzles that are decoded from left to right, and to AR-MTP.

python research/left-to-right/left_to_right.py                             # print table.md from the rows
python research/left-to-right/left_to_right.py --measure sudoku-puzzle     # train and measure what is missing
python research/left-to-right/left_to_right.py --draw-figure               # draw the figure, too

The models are those of `latent-tokens reproduce table-1`, and two controls of AR-MTP, in the directory of
--runs: ar-mtp-window-1, whose input has no latent tokens, and ar-latents, whose n is set when it decodes.
"""

import sys
from pathlib import Path
from typing import Literal, get_args

import torch
import tyro

from latent_tokens.evaluation.report import legend_of, save_sheet, style
from latent_tokens.palette import METHOD_COLORS
from latent_tokens.paper.experiments import Cell as Trained
from latent_tokens.paper.recipes import of_cells
from latent_tokens.paper.run import run

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from tables import Cell, Claim, Line, compared, error_bars, report, rows_of  # noqa: E402

Puzzles = Literal["sudoku-puzzle", "zebra", "countdown"]
ORDER = "left_to_right"
DRAWN = {"sudoku-puzzle": "6x6 puzzles", "zebra": "Zebra with three houses", "countdown": "Countdown"}
NUMBERS = (0, 4, "all")
MODELS = (
    *(("scdm", n) for n in NUMBERS), ("sidm", None), ("mdm", None),
    *(("ar-latents", n) for n in NUMBERS), ("ar-mtp-window-1", None),
)  # fmt: skip
STORED = (("arm", None), ("ar-mtp", None))  # in results/cpu


def claims(task: str) -> list[Claim]:
    """Return the claims on a task, of models that decode from left to right."""

    def cell(method: str, n: int | str | None = None) -> Cell:
        return Cell(method, ORDER, n, task=task)

    none, four, every = (cell("scdm", n) for n in NUMBERS)
    without, with_four, with_all = (cell("ar-latents", n) for n in NUMBERS)
    sidm, mdm, mtp, one, arm = map(cell, ("sidm", "mdm", "ar-mtp", "ar-mtp-window-1", "arm"))
    pairs = {
        "scdm n=4 > n=0": (four, none), "scdm n=all > n=0": (every, none), "scdm n=4 > n=all": (four, every),
        "scdm n=all > sidm": (every, sidm), "sidm > scdm n=0": (sidm, none),
        "mdm > sidm": (mdm, sidm), "mdm > scdm n=all": (mdm, every), "ar-mtp > mdm": (mtp, mdm),
        "ar-latents n=4 > n=0": (with_four, without), "ar-latents n=all > n=0": (with_all, without),
        "ar-latents n=all > n=4": (with_all, with_four), "ar-latents n=0 > arm": (without, arm),
        "ar-latents n=all > arm": (with_all, arm), "ar-mtp > ar-latents n=all": (mtp, with_all),
        "ar-mtp > ar-mtp-window-1": (mtp, one), "ar-mtp > arm": (mtp, arm),
        "ar-mtp-window-1 > arm": (one, arm),
    }  # fmt: skip
    return [Claim(f"{task}: {text}", *pair) for text, pair in pairs.items()]


def draw(results: dict[Cell, Line]) -> None:
    """Draw accuracy over n of the methods whose n is set when they decode, and the others beside them."""
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(11.0, 4.2), layout="constrained")
    panels = sheet.subplots(1, len(DRAWN), sharey=True)
    others = {"sidm": (-1, "s"), "arm": (-1, "v"), "mdm": (len(NUMBERS), "^"), "ar-mtp": (len(NUMBERS), "D")}
    for axes, (task, title) in zip(panels, DRAWN.items(), strict=True):
        for method, color in (("scdm", METHOD_COLORS["scdm"]), ("ar-latents", METHOD_COLORS["ar-mtp"])):
            curve = [results[Cell(method, ORDER, n, task=task)] for n in NUMBERS]
            error_bars(axes, range(len(NUMBERS)), curve, color=color, fmt="-o", label=method)
        for method, (at, form) in others.items():
            line = results[Cell(method, ORDER, task=task)]
            shifted = at + (0.3 if method.startswith("ar") else 0)  # both are seen
            error_bars(axes, [shifted], [line], color=METHOD_COLORS[method], fmt=form, label=method)
        axes.set_xticks(range(len(NUMBERS)), list(map(str, NUMBERS)))
        axes.set(ylim=(0, 100), xlim=(-1.6, len(NUMBERS) + 0.9))
        style(axes, "latent tokens n", "solved (%)" if axes is panels[0] else "", title)
    legend_of(sheet, columns=3)
    none, every = (results[Cell("ar-latents", ORDER, n, task="zebra")].mean for n in (0, "all"))
    caption = "0.8M parameters, 1,000 puzzles, three training seeds, 95% intervals. sidm and arm have n = 0, "
    caption += "mdm and ar-mtp all."
    gain = f"Latent tokens take ar-latents from {none:.0f} to {every:.0f}% on Zebra."
    title = f"{gain} On Countdown no gain is shown"
    save_sheet(sheet, title, caption, HERE / "left-to-right", dark=True)


def main(
    measure: Puzzles | None = None, draw_figure: bool = False, runs: Path = HERE.parents[1] / "runs" / "paper"
) -> None:
    """Print the table, or train and measure what is missing of a task.

    Args:
        measure: the task.
        draw_figure: draw the figure.
        runs: directory of data sets and models.
    """
    if measure is not None:
        torch.set_num_threads(1)
        cells = [Trained(measure, method, ORDER, n) for method, n in MODELS]
        run(of_cells(cells, "cpu", runs), HERE / "rows.jsonl")
    results = rows_of("left-to-right")
    if draw_figure:
        draw(results)
    measured = [task for task in get_args(Puzzles) if Cell("mdm", ORDER, task=task) in results]
    shown = [Cell(method, ORDER, n, task=task) for task in measured for method, n in (*MODELS, *STORED)]
    listed = (claim for task in measured for claim in claims(task))
    print(report(results, shown, compared(results, listed)), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
