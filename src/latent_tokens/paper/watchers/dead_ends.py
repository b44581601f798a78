"""Dead ends: the step at which the last correct answer is lost, and the predicted probability there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latent_tokens.core.decoding import Step
from latent_tokens.evaluation.rows import DeadEndRecord, Watched
from latent_tokens.tasks import Examples, Solvable
from latent_tokens.tasks.examples import Tokens


class DeadEnds:
    """A watcher of `evaluate` that adds the key "dead_ends" to its row.

    It has one record for each number of clean tokens before a step. Of `alive` samples, which
    had a correct answer left before the step, `died` had none after it. `sure` is the mean of the largest
    probability where a token was decoded.
    """

    def __init__(self, task: Solvable) -> None:
        self.task = task
        self.counts = np.zeros((task.length, 3))  # alive, died, sum of the largest probabilities

    def begin(self, rows: int, length: int) -> None:
        """Prepare for a batch."""
        self.tokens = np.zeros((rows, length), np.uint8)
        self.known = np.zeros((rows, length), np.bool_)
        self.alive = np.ones(rows, np.bool_)

    def __call__(self, step: Step) -> None:
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
        problem = Examples(self.tokens[here], self.known[here], np.array([self.task.length], np.uint16))
        return self.task.count_solutions(problem, most=1) != 0

    def end(self, tokens: Tokens, right: NDArray[np.bool_]) -> None:
        """Check a batch: a sample is right if and only if it never lost the last answer."""
        if (self.alive != right).any():
            raise AssertionError(
                "a sample without an answer left is valid, or one with an answer left is not"
            )

    def measured(self) -> Watched:
        """Return the entries that are added to the row."""
        records: list[DeadEndRecord] = []
        for clean, (alive, died, sure) in enumerate(self.counts.tolist()):
            if alive:
                mean = round(sure / alive, 4)
                records.append({"clean": clean, "alive": int(alive), "died": int(died), "sure": mean})
        return {"dead_ends": records}
