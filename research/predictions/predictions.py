"""Predictions of latent tokens: how often the most probable token is the one decoded there later.

python research/predictions/predictions.py          # print table.md from the stored rows
python research/predictions/predictions.py RUN      # count them for a model
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

import latent_tokens as lt
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown

sys.path.append(str(Path(__file__).parents[1]))

from tables import Cell, lines_of, report, rows_of, watched

STEPS_AHEAD = (1, 4, 16)  # between a prediction and its decoding
SETTINGS = (
    *(Cell("scdm", order, n, "watched") for order in ("uniform", "top_prob") for n in (4, "all")),
    *(Cell("mdm", order, None, "watched") for order in ("uniform", "top_prob")),
    Cell("ar-mtp", "left_to_right", None, "watched"),
)


class Foresight:
    """A watcher that adds the key "foresight" to its row.

    It has one record for each number of steps until a latent token is decoded. Of `seen` ones, `hit` had as
    their most probable token the one that was decoded later. `seen_right` and `hit_right` are those in
    samples that the verifier accepts.
    """

    def __init__(self) -> None:
        self.counts: dict[int, NDArray[np.int64]] = {}  # by steps: hit, seen, hit_right, seen_right

    def begin(self, rows: int, length: int) -> None:
        """Prepare for a batch."""
        # The tokens by row, step and position, and -1 at positions that are not latent.
        self.most_probable = np.full((rows, length, length), -1)
        self.decoded_at = np.full((rows, length), -1)

    def __call__(self, step: lt.Step) -> None:
        most_probable = step.probabilities.argmax(-1).cpu().numpy()
        numbers = zip(step.rows.tolist(), step.number.tolist(), step.latents, strict=True)
        for i, (row, number, latents) in enumerate(numbers):
            start = int(step.layout.num_clean[i])
            self.most_probable[row, number, latents] = most_probable[i, start : start + len(latents)]
            chosen = step.chosen[i]
            self.decoded_at[row, chosen[chosen >= 0].cpu().numpy()] = number

    def end(self, tokens: NDArray[np.uint8], right: NDArray[np.bool_]) -> None:
        """Count the predictions of a batch, given its samples and which of them are right."""
        hit, ahead = self.predictions(tokens)
        for steps in np.unique(ahead[ahead > 0]).tolist():
            seen = ahead == steps
            parts = [(seen & hit, seen) for _ in range(2)]
            masks = (np.True_, right[:, None, None])
            sums = [(part & of).sum() for of, pair in zip(masks, parts, strict=True) for part in pair]
            self.counts[steps] = self.counts.get(steps, np.zeros(4, np.int64)) + np.array(sums)

    def predictions(self, tokens: NDArray[np.uint8]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return whether a latent token's most probable token was decoded there, and the steps until then.

        Both are (rows, steps, positions), with 0 steps if the position is not latent.
        """
        ahead = self.decoded_at[:, None, :] - np.arange(self.most_probable.shape[1])[None, :, None]
        return self.most_probable == tokens[:, None, :], np.where(self.most_probable >= 0, ahead, 0)

    def measured(self) -> dict[str, Any]:
        """Return the entries that are added to the row."""
        names = ("hit", "seen", "hit_right", "seen_right")
        records = sorted(self.counts.items())
        return {"foresight": [{"steps": s, **dict(zip(names, c.tolist(), strict=True))} for s, c in records]}


def measure(run: str, num_samples: int = 200, **settings: Any) -> Any:
    """Return the row of a model, with the predictions of its latent tokens."""
    model = lt.load(run)
    return watched(model.net, model.task, Foresight(), num_samples=num_samples, **settings)


def shares(rows: Any) -> list[str]:
    """Return the percent of latent tokens of correct samples whose prediction is decoded, by steps ahead."""
    cells = []
    for steps in STEPS_AHEAD:
        records = [each for row in rows for each in row["foresight"] if each["steps"] == steps]
        seen = sum(each["seen_right"] for each in records)
        cells.append(f"{100 * sum(each['hit_right'] for each in records) / seen:.0f}" if seen else "")
    return cells


def main(run: str | None = None, /) -> None:
    """Print the table, or measure a model."""
    if run is not None:
        print(f"% predicted 1, 4 and 16 steps ahead: {shares([measure(run)])}")
        return
    results = rows_of("predictions")
    print(report(results, SETTINGS))
    headings = ("method", "order", "n", *(f"{steps} ahead" for steps in STEPS_AHEAD))
    table = [
        (line.cell.method, ORDER_NAMES[line.cell.order], str(line.cell.latents or ""), *shares(line.rows))
        for line in lines_of(results, SETTINGS)
    ]
    print("Latent tokens of valid boards whose most probable token is the one decoded later, in percent:\n")
    print(as_markdown([headings, *table]), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
