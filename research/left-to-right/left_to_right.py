"""What latent tokens are worth on puzzles that are decoded from left to right, and to AR-MTP.

python research/left-to-right/left_to_right.py                             # print table.md from the rows
python research/left-to-right/left_to_right.py --measure sudoku-puzzle     # train and measure what is missing

The models are those of `latent-tokens reproduce table-1`, and ar-mtp-window-1, in the directory of --runs.
"""

import sys
from pathlib import Path
from typing import Literal, get_args

import torch
import tyro

from latent_tokens.paper.experiments import Cell as Trained
from latent_tokens.paper.recipes import of_cells
from latent_tokens.paper.run import run

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from tables import Cell, Claim, report, rows_of  # noqa: E402

Puzzles = Literal["sudoku-puzzle", "zebra", "countdown"]
ORDER = "left_to_right"
MODELS = (("scdm", 0), ("scdm", 4), ("scdm", "all"), ("sidm", None), ("mdm", None), ("ar-mtp-window-1", None))
STORED = (("arm", None), ("ar-mtp", None))  # in results/cpu


def claims(task: str) -> list[Claim]:
    """Return the claims on a task, of models that decode from left to right."""

    def cell(method: str, n: int | str | None = None) -> Cell:
        return Cell(method, ORDER, n, task=task)

    none, four, every = (cell("scdm", n) for n in (0, 4, "all"))
    sidm, mdm, mtp, one, arm = map(cell, ("sidm", "mdm", "ar-mtp", "ar-mtp-window-1", "arm"))
    pairs = {
        "scdm n=4 > n=0": (four, none), "scdm n=all > n=0": (every, none), "scdm n=all > sidm": (every, sidm),
        "mdm > sidm": (mdm, sidm), "mdm > scdm n=all": (mdm, every), "ar-mtp > mdm": (mtp, mdm),
        "ar-mtp > ar-mtp-window-1": (mtp, one), "ar-mtp-window-1 > arm": (one, arm),
    }  # fmt: skip
    return [Claim(f"{task}: {text}", *pair) for text, pair in pairs.items()]


def main(measure: Puzzles | None = None, runs: Path = HERE.parents[1] / "runs" / "paper") -> None:
    """Print the table, or train and measure what is missing of a task.

    Args:
        measure: the task.
        runs: directory of data sets and models.
    """
    if measure is not None:
        torch.set_num_threads(1)
        cells = [Trained(measure, method, ORDER, n) for method, n in MODELS]
        run(of_cells(cells, "cpu", runs), HERE / "rows.jsonl")
    results = rows_of("left-to-right")
    measured = [task for task in get_args(Puzzles) if Cell("mdm", ORDER, task=task) in results]
    shown = [Cell(method, ORDER, n, task=task) for task in measured for method, n in (*MODELS, *STORED)]
    listed = [claim for task in measured for claim in claims(task)]
    print(report(results, shown, listed), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
