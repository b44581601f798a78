"""What latents predict: how often a latent's likeliest token is the one decoded there later, against the steps until then."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latent_tokens.core.decoding import Step
from latent_tokens.tasks.base import Tokens

Row = dict[str, Any]
Counts = NDArray[np.int64]


class Foresight:
    """A watcher of `evaluate`: adds the key "foresight" to its row, a record for each number of steps until a latent is decoded.

    `seen` latents, of which `hit` had as their likeliest token the one that was then drawn; `seen_right` and `hit_right` in samples
    that the judge calls right.
    """

    def __init__(self) -> None:
        self.counts: dict[int, Counts] = {}  # by steps until decoded: hit, seen, hit_right, seen_right

    def begin(self, rows: int, length: int) -> None:
        """Before a batch."""
        self.likeliest = np.full((rows, length, length), -1)  # row, step, position; -1 where it is no latent
        self.decoded_at = np.full((rows, length), -1)

    def __call__(self, step: Step) -> None:
        likeliest = step.probabilities.argmax(-1).cpu().numpy()
        for i, (row, number, latents) in enumerate(
            zip(step.rows.tolist(), step.number.tolist(), step.latents, strict=True)
        ):
            start = int(step.layout.num_clean[i])
            self.likeliest[row, number, latents] = likeliest[i, start : start + len(latents)]
            chosen = step.chosen[i]
            self.decoded_at[row, chosen[chosen >= 0].cpu().numpy()] = number

    def end(self, tokens: Tokens, right: NDArray[np.bool_]) -> None:
        """After a batch: its samples, and which of them are right."""
        hit, ahead = self.predictions(tokens)
        for steps in np.unique(ahead[ahead > 0]).tolist():
            seen = ahead == steps
            found = [
                (part & of).sum() for of in (np.True_, right[:, None, None]) for part in (seen & hit, seen)
            ]
            self.counts[steps] = self.counts.get(steps, np.zeros(4, np.int64)) + np.array(found)

    def predictions(self, tokens: Tokens) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """(whether a latent's likeliest token was decoded there, steps until then), each (rows, steps, positions); 0 steps where it is no latent."""
        ahead = self.decoded_at[:, None, :] - np.arange(self.likeliest.shape[1])[None, :, None]
        return self.likeliest == tokens[:, None, :], np.where(self.likeliest >= 0, ahead, 0)

    def found(self) -> Row:
        """What the row of results gets."""
        names = ("hit", "seen", "hit_right", "seen_right")
        return {
            "foresight": [
                {"steps": steps, **dict(zip(names, self.counts[steps].tolist(), strict=True))}
                for steps in sorted(self.counts)
            ]
        }
