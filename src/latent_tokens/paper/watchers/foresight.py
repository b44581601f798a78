"""Predictions at latents: how often a latent's most probable token is the one decoded there later."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latent_tokens.core.decoding import Step
from latent_tokens.evaluation.rows import ForesightRecord, Watched
from latent_tokens.tasks.examples import Tokens

Counts = NDArray[np.int64]


class Foresight:
    """A watcher of `evaluate` that adds the key "foresight" to its row.

    It has one record for each number of steps until a latent is decoded. Of `seen` latents,
    `hit` had as their most probable token the one that was decoded later. `seen_right` and `hit_right` are
    those in samples that the verifier accepts.
    """

    def __init__(self) -> None:
        self.counts: dict[int, Counts] = {}  # by steps until decoded: hit, seen, hit_right, seen_right

    def begin(self, rows: int, length: int) -> None:
        """Prepare for a batch."""
        # The tokens by row, step and position, and -1 at positions that are not latents.
        self.most_probable = np.full((rows, length, length), -1)
        self.decoded_at = np.full((rows, length), -1)

    def __call__(self, step: Step) -> None:
        most_probable = step.probabilities.argmax(-1).cpu().numpy()
        for i, (row, number, latents) in enumerate(
            zip(step.rows.tolist(), step.number.tolist(), step.latents, strict=True)
        ):
            start = int(step.layout.num_clean[i])
            self.most_probable[row, number, latents] = most_probable[i, start : start + len(latents)]
            chosen = step.chosen[i]
            self.decoded_at[row, chosen[chosen >= 0].cpu().numpy()] = number

    def end(self, tokens: Tokens, right: NDArray[np.bool_]) -> None:
        """Count the predictions of a batch, given its samples and which of them are right."""
        hit, ahead = self.predictions(tokens)
        for steps in np.unique(ahead[ahead > 0]).tolist():
            seen = ahead == steps
            sums = [
                (part & of).sum() for of in (np.True_, right[:, None, None]) for part in (seen & hit, seen)
            ]
            self.counts[steps] = self.counts.get(steps, np.zeros(4, np.int64)) + np.array(sums)

    def predictions(self, tokens: Tokens) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return whether a latent's most probable token was decoded there, and the steps until then.

        Both are (rows, steps, positions), with 0 steps if the position is not a latent.
        """
        ahead = self.decoded_at[:, None, :] - np.arange(self.most_probable.shape[1])[None, :, None]
        return self.most_probable == tokens[:, None, :], np.where(self.most_probable >= 0, ahead, 0)

    def measured(self) -> Watched:
        """Return the entries that are added to the row."""
        records: list[ForesightRecord] = []
        for steps in sorted(self.counts):
            hit, seen, hit_right, seen_right = self.counts[steps].tolist()
            records.append(
                {"steps": steps, "hit": hit, "seen": seen, "hit_right": hit_right, "seen_right": seen_right}
            )
        return {"foresight": records}
