"""Predictions of latent tokens: how often the most probable token is the one decoded there later.

python research/predictions/predictions.py          # print table.md from the stored rows
python research/predictions/predictions.py --draw-figure  # also draw predictions.png
python research/predictions/predictions.py RUN      # count them for a model
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

import latent_tokens as lt
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown, legend_of, save_sheet, style
from latent_tokens.palette import METHOD_COLORS
from latent_tokens.paper.tables import interval_over_seeds

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from tables import Cell, Line, lines_of, report, rows_of, watched  # noqa: E402

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


def curve_of(line: Line) -> NDArray[np.float64]:
    """Return (steps ahead, percent, bounds of its 95% interval over training seeds) (4, N) of a setting."""
    by_seed = [
        {each["steps"]: 100 * each["hit_right"] / each["seen_right"] for each in row["foresight"]}
        for row in line.rows
    ]
    points = []
    for steps in sorted(set.intersection(*map(set, by_seed))):
        interval = interval_over_seeds([shares[steps] for shares in by_seed], None)
        if interval is not None:
            low, high = max(0, interval.low), min(100, interval.high)
            points.append((steps, np.mean([shares[steps] for shares in by_seed]), low, high))
    return np.array(points).T


def draw(lines: list[Line]) -> None:
    """Draw the percent of predictions that are decoded over the steps until then, a panel per order."""
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(9.6, 4.6), layout="constrained")
    panels = dict(
        zip(("uniform", "top_prob", "left_to_right"), sheet.subplots(1, 3, sharey=True), strict=True)
    )
    for line in lines:
        method, order, n, *_ = line.cell
        steps, means, low, high = curve_of(line)
        label = method if n is None else f"{method}, n = {n}"
        look = {"color": METHOD_COLORS[method], "linestyle": "--" if n == 4 else "-"}
        panels[order].plot(steps, means, **look, linewidth=1.6, label=label)
        panels[order].fill_between(steps, low, high, color=look["color"], alpha=0.15, linewidth=0)
    for order, axes in panels.items():
        y = "predicted as decoded later (%)" if order == "uniform" else ""
        style(axes, "steps until the token is decoded", y, ORDER_NAMES[order])
        axes.set(ylim=(0, 100), xlim=(0, None))
    legend_of(sheet, columns=4)
    first = [row for line in lines for row in line.rows]
    samples = sorted({row["num_samples"] for row in first})
    means = {line.cell.order: curve_of(line)[1][0] for line in lines if line.cell.method == "mdm"}
    uniform, top_prob = (round(means[order]) for order in ("uniform", "top_prob"))
    title = f"mdm predicts {uniform}% of the next token in uniform order, {top_prob}% in top-prob order"
    caption = (
        "Latent tokens of valid 6x6 boards whose most probable token is the one decoded there later, "
        f"k = 4 in top-prob order, {samples[0]:,} samples per training seed, "
        f"{len(lines[0].rows)} training seeds, bands: 95% intervals over training seeds."
    )
    save_sheet(sheet, title, caption, HERE / "predictions")


def main(run: str | None = None, /, draw_figure: bool = False) -> None:
    """Print the table, or measure a model.

    Args:
        run: model to measure.
        draw_figure: draw predictions.png from the stored rows.
    """
    if run is not None:
        print(f"% predicted 1, 4 and 16 steps ahead: {shares([measure(run)])}")
        return
    results = rows_of("predictions")
    if draw_figure:
        draw(lines_of(results, SETTINGS))
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
