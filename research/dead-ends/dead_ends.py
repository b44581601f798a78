"""When boards fail: the step at which the last solution is lost, by the number of candidates.

python research/dead-ends/dead_ends.py          # print table.md from the stored rows
python research/dead-ends/dead_ends.py RUN      # count the solutions after every step of a model
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

import latent_tokens as lt
from latent_tokens.evaluation.report import as_markdown

sys.path.append(str(Path(__file__).parents[1]))

from tables import Cell, lines_of, report, rows_of, watched

NUMBERS = (1, 8, "all", "growing")
MODELS = (("scdm", "all"), ("mdm", None))
STEPS = ((0, 10), (10, 20), (20, 81))  # numbers of clean tokens, the last one excluded


class DeadEnds:
    """A watcher that adds the key "dead_ends" to its row.

    It has one record for each number of clean tokens before a step. Of `alive` samples, which had a correct
    answer left before the step, `died` had none after it. `sure` is the mean of the largest probability where
    a token was decoded.
    """

    def __init__(self, task: Any) -> None:
        self.task = task
        self.counts = np.zeros((task.length, 3))  # alive, died, sum of the largest probabilities

    def begin(self, rows: int, length: int) -> None:
        """Prepare for a batch."""
        self.tokens = np.zeros((rows, length), np.uint8)
        self.known = np.zeros((rows, length), np.bool_)
        self.alive = np.ones(rows, np.bool_)

    def __call__(self, step: lt.Step) -> None:
        largest = step.probabilities.amax(-1)
        for i, row in enumerate(step.rows.tolist()):
            clean = int(step.layout.num_clean[i])
            position = int(step.chosen[i, 0])
            self.tokens[row, position] = int(step.tokens[i, 0])
            self.known[row, position] = True
            if self.alive[row]:
                slot = (step.layout.positions[i] == position).nonzero()[0, 0]
                self.alive[row] = self._is_open(row)
                self.counts[clean] += 1, not self.alive[row], float(largest[i, slot])

    def _is_open(self, row: int) -> bool:
        """Return whether a correct answer is left."""
        here = slice(row, row + 1)
        problem = lt.Examples(self.tokens[here], self.known[here], np.array([self.task.length], np.uint16))
        return bool(self.task.count_solutions(problem, most=1) != 0)

    def end(self, tokens: NDArray[np.uint8], right: NDArray[np.bool_]) -> None:
        """Check a batch: a sample is right if and only if it never lost the last answer."""
        if (self.alive != right).any():
            raise AssertionError("a valid sample lost its last answer, or an invalid one did not")

    def measured(self) -> dict[str, Any]:
        """Return the entries that are added to the row."""
        records = []
        for clean, (alive, died, sure) in enumerate(self.counts.tolist()):
            if alive:
                mean = round(sure / alive, 4)
                records.append({"clean": clean, "alive": int(alive), "died": int(died), "sure": mean})
        return {"dead_ends": records}


def measure(run: str, num_samples: int = 200, **settings: Any) -> Any:
    """Return the row of a model, with its dead ends."""
    model = lt.load(run)
    return watched(model.net, model.task, DeadEnds(model.task), num_samples=num_samples, **settings)


def lost(rows: Iterable[Any]) -> list[str]:
    """Return the samples of some rows that lost their last answer in each group of steps, out of 100."""
    rows = list(rows)
    num_samples = sum(row["dead_ends"][0]["alive"] for row in rows)
    records = [record for row in rows for record in row["dead_ends"]]
    counts = (sum(each["died"] for each in records if low <= each["clean"] < high) for low, high in STEPS)
    return [f"{100 * count / num_samples:.1f}" for count in counts]


def certainty(rows: Iterable[Any]) -> str:
    """Return the mean of the largest probability in the first group of steps."""
    records = [each for row in rows for each in row["dead_ends"] if each["clean"] < STEPS[0][1]]
    return f"{sum(e['sure'] * e['alive'] for e in records) / sum(e['alive'] for e in records):.3f}"


def main(run: str | None = None, /) -> None:
    """Print the table, or measure a model with all candidates."""
    if run is not None:
        row = measure(run, candidates="all")
        print(f"lost out of 100 in steps 1 to 10, 11 to 20, later: {', '.join(lost([row]))}")
        return
    results = rows_of("dead-ends")
    cells = [Cell(method, "top_prob", n, f"dead ends, k={k}") for method, n in MODELS for k in NUMBERS]
    print(report(results, cells))
    headings = ("method", "k", "steps 1 to 10", "11 to 20", "later", "largest probability, steps 1 to 10")
    table = [
        (line.cell.method, str(line.rows[0]["candidates"]), *lost(line.rows), certainty(line.rows))
        for line in lines_of(results, cells)
    ]
    print("Boards out of 100 that lose their last solution:\n")
    print(as_markdown([headings, *table]), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
