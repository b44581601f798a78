"""Figures of findings whose trainings are over, from their stored rows: values with 95% intervals.

python research/curves.py [NAME ...]      # draw NAME.png, NAME.svg and NAME-dark.svg in the folder of each
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
FOLDERS = (
    *("adapting", "candidates", "confidence", "dead-ends", "depth", "equal-compute", "infilling", "nats"),
    *("training", "worth"),
)
sys.path += [str(HERE), *(str(HERE / name) for name in FOLDERS)]

import adapting  # noqa: E402
import candidates  # noqa: E402
import confidence  # noqa: E402
import dead_ends  # noqa: E402
import depth  # noqa: E402
import equal_compute  # noqa: E402
import infilling  # noqa: E402
import nats  # noqa: E402
import training  # noqa: E402
import worth  # noqa: E402
from tables import Cell, Line, rows_of  # noqa: E402

from latent_tokens.evaluation.intervals import wilson  # noqa: E402
from latent_tokens.evaluation.report import ORDER_NAMES, legend_of, save_sheet, style  # noqa: E402
from latent_tokens.evaluation.rows import read_results  # noqa: E402
from latent_tokens.palette import METHOD_COLORS  # noqa: E402
from latent_tokens.paper.run import nats_above  # noqa: E402
from latent_tokens.paper.tables import interval_over_seeds  # noqa: E402

Point = tuple[float, float, float]  # a value and the bounds of its interval
STYLES = {
    (method, n): style for n, style in ((0, "--"), ("all", "-"), (None, "-")) for method in METHOD_COLORS
}
PER_SEED = "95% intervals over three training seeds, PyTorch 2.13 on one CPU thread."


class Panel(NamedTuple):
    """A panel: curves by their labels and styles. Values of x without a number are ticks, in their order."""

    title: str
    x_label: str
    curves: Mapping[tuple[str, str, str], Mapping[Any, Point]]  # label, color, line style
    apart: Any = None  # a tick that no line leads to


def point(line: Line) -> Point:
    """Return the mean of a line with its interval."""
    low, high = line.interval or (line.mean, line.mean)
    return line.mean, low, high


def curve(results: Mapping[Cell, Line], cells: Mapping[Any, Cell]) -> dict[Any, Point]:
    """Return the points of the cells that were measured, by x."""
    return {x: point(results[cell]) for x, cell in cells.items() if cell in results}


def named(method: str, n: Any) -> tuple[str, str, str]:
    """Return the label, color and line style of a method with n latent tokens."""
    return (method if n is None else f"{method}, n = {n}", METHOD_COLORS[method], STYLES[method, n])


def draw_panel(axes: Axes, panel: Panel, limits: tuple[float, float] = (0, 100)) -> None:
    """Draw curves over ticks, or over numbers."""
    xs = list(dict.fromkeys(x for points in panel.curves.values() for x in points))
    xs.sort(key=lambda x: x == panel.apart)
    is_numeric = all(isinstance(x, float) for x in xs)
    for number, ((name, color, form), points) in enumerate(panel.curves.items()):
        shift = 0 if is_numeric else 0.05 * (number - (len(panel.curves) - 1) / 2)
        look: dict[str, Any] = {"color": color, "marker": "o", "markersize": 4, "capsize": 2}
        for is_apart in (False, True):
            part = {x: value for x, value in points.items() if (x == panel.apart) == is_apart}
            if part:
                at = [x if is_numeric else xs.index(x) + shift for x in part]
                means = [mean for mean, _, _ in part.values()]
                halves = [
                    [mean - low for mean, low, _ in part.values()],
                    [high - mean for mean, _, high in part.values()],
                ]
                text = None if is_apart else name
                axes.errorbar(at, means, halves, linestyle="none" if is_apart else form, label=text, **look)
    if not is_numeric:
        axes.set_xticks(range(len(xs)), ["growing\n(clean + 1)" if x == "growing" else str(x) for x in xs])
    axes.set(ylim=limits)


def draw(
    panels: Sequence[Panel],
    title: str,
    caption: str,
    stem: Path,
    metric: str = "valid boards (%)",
    limits: tuple[float, float] = (0, 100),
) -> None:
    """Draw panels of one scale, with one legend below."""
    sheet = Figure(figsize=(max(7.0, 2.6 * len(panels) + 1), 4.4), layout="constrained")
    every = sheet.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(every, panels, strict=True):
        draw_panel(axes, panel, limits)
        style(axes, panel.x_label, metric if axes is every[0] else "", panel.title)
    legend_of(sheet, columns=4)
    save_sheet(sheet, title, caption, stem, dark=True)


def over_k(results: Mapping[Cell, Line], title: str, cell_of: Any, numbers: Iterable[Any]) -> Panel:
    """Return a panel of accuracy over the number of candidates."""
    numbers = list(numbers)
    curves = {
        named(method, n): curve(results, {k: cell_of(method, n, k) for k in numbers})
        for method, n in candidates.MODELS
    }
    return Panel(
        title, "candidates k", {name: points for name, points in curves.items() if points}, "growing"
    )


def draw_candidates() -> None:
    """Draw accuracy over k on 6x6 boards."""
    results = rows_of("candidates", "latent-choice")
    panel = over_k(results, "6x6 boards, top-prob", candidates.boards, candidates.NUMBERS)
    mdm = panel.curves[named("mdm", None)]
    means = [mdm[k][0] for k in (8, "all", "growing")]
    title = "mdm: {:.0f}% at k = 8, {:.0f}% with all, {:.0f}% with adaptive candidates".format(*means)
    draw([panel], title, f"1,334 samples per seed. {PER_SEED}", HERE / "candidates/candidates")


def draw_infilling() -> None:
    """Draw accuracy over k of models of boards that infill puzzles."""
    results = rows_of("infilling")
    panel = over_k(
        results, "6x6 puzzles, a model of boards, top-prob", infilling.infilled, (4, 8, "all", "growing")
    )
    mdm = panel.curves[named("mdm", None)]
    title = f"mdm solves {mdm['all'][0]:.0f}% with all candidates, {mdm[8][0]:.0f}% with eight"
    caption = f"1,000 puzzles per seed. {PER_SEED}"
    draw([panel], title, caption, HERE / "infilling/infilling", "solved puzzles (%)")


def draw_confidence() -> None:
    """Draw accuracy over k for each confidence: of three seeds, and of bundled models."""
    results = rows_of("confidence")
    panels = []
    for order, noise in confidence.CONFIDENCES:
        if noise == ", noise 1":
            continue  # in the table only

        def cell_of(method: str, n: Any, k: Any, order: str = order, noise: str = noise) -> Cell:
            return confidence.boards(method, order, n, k, noise)

        panels.append(over_k(results, ORDER_NAMES[order] + noise, cell_of, (8, "all", "growing")))
    best = {panel.title: panel.curves[named("mdm", None)][8][0] for panel in panels}
    title = f"mdm at k = 8: {', '.join(f'{mean:.0f}% by {name}' for name, mean in best.items())}"
    caption = f"6x6 boards, 1,334 samples per seed. {PER_SEED} In the table only: noise 1."
    draw(panels, title, caption, HERE / "confidence/three-seeds")

    rows = {confidence.setting_of(row): row for row in read_results(HERE / "confidence/bundled.jsonl")}
    panels, styles = [], {"top_prob": "-", "entropy": ":", "margin": "-."}
    for side in (6, 9):
        curves: dict[tuple[str, str, str], dict[Any, Point]] = {}
        for setting, row in rows.items():
            # With all candidates, n = 0 is the only one.
            is_without = (setting.latents, setting.candidates) == (0, 8)
            if setting.run.startswith(f"sudoku-{side}-") and not is_without:
                method = setting.run.rpartition("-")[2]
                order = ORDER_NAMES[setting.order]
                name = (f"{method}, {order}", METHOD_COLORS[method], styles[setting.order])
                value = (row[row["metric"]], *row["ci95"])
                curves.setdefault(name, {})[setting.candidates] = value
        panels.append(Panel(f"{side}x{side} boards", "candidates k", curves, "growing"))
    of_nine = {name: points for (name, *_), points in panels[1].curves.items()}
    means = [of_nine[f"mdm, {name}"]["all"][0] for name in ("top-prob", "entropy")]
    title = f"9x9 boards, all candidates: {means[0]:.0f}% by top-prob, {means[1]:.0f}% by entropy (mdm)"
    caption = (
        "Bundled models, one training seed, 500 samples. 95% intervals of the samples. n = all at k = 8."
    )
    draw(panels, title, caption, HERE / "confidence/bundled-models")


def draw_training() -> None:
    """Draw accuracy over the share of the training steps."""
    results = rows_of("training", "latent-choice", "candidates")
    shares = {share.partition(" ")[0].replace("plain", "100"): share for share in training.SHARES}
    curves = {
        (method, METHOD_COLORS[method], "-"): curve(
            results, {x: training.left(method, share) for x, share in shares.items()}
        )
        for method in ("arm", "ar-mtp")
    }
    first, last = ([points[x][0] for points in curves.values()] for x in ("12.5", "100"))
    title = f"arm goes from {first[0]:.0f} to {last[0]:.0f}%, ar-mtp from {first[1]:.0f} to {last[1]:.0f}%"
    panel = Panel("6x6 boards, left to right", "training steps (% of the recipe)", curves)
    draw([panel], title, f"1,334 samples per seed. {PER_SEED}", HERE / "training/training")


def draw_depth() -> None:
    """Draw accuracy over tokens processed, for models that were trained with other depths."""
    results = rows_of("depth")
    panels = []
    for order, variant in depth.WAYS:
        kinds = [("sidm", variant), ("mdm", variant), ("mdm", depth.OFF_DISTRIBUTION)]
        kinds += [(method, variant) for method in depth.FREE]
        curves = {}
        for method, name in kinds:
            if name == depth.OFF_DISTRIBUTION and "k=8" not in variant:
                continue
            cells = [Cell(method, order, n, name) for n in (None, *depth.NUMBERS)]
            lines = [results[cell] for cell in cells if cell in results]
            text = f"{method}{', off-distribution' * (name == depth.OFF_DISTRIBUTION)}"
            style = "-." if name == depth.OFF_DISTRIBUTION else "-"
            cost = [fmean(row["relative_cost"] for row in line.rows) for line in lines]
            curves[text, METHOD_COLORS[method], style] = dict(zip(cost, map(point, lines), strict=True))
        name = "uniform" if order == "uniform" else f"top-prob, k = {variant[2]}"
        panels.append(Panel(name, "tokens processed (1: n = all)", curves))
    (of_eight,) = [panel.curves for panel in panels if panel.title == "top-prob, k = 8"]
    by_name = {name: points for (name, *_), points in of_eight.items()}
    ends = {name: [by_name[name][end(by_name[name])][0] for end in (min, max)] for name in depth.FREE}
    title = "k = 8, n = 0 to all: " + ", ".join(
        f"{n} {low:.0f} to {high:.0f}%" for n, (low, high) in ends.items()
    )
    draw(panels, title, f"6x6 boards, 1,334 samples per seed. {PER_SEED}", HERE / "depth/depth")


def draw_equal_compute() -> None:
    """Draw accuracy after the steps of the recipe and after three times as many."""
    results = rows_of("equal-compute", "training", "candidates", "latent-choice")
    curves = {}
    for method, order, n in equal_compute.MODELS:
        steps = {"3,400": "k=4" if order == "top_prob" else "plain", "10,200": equal_compute.MORE}
        cells = {x: Cell(method, order, n, variant) for x, variant in steps.items()}
        curves[named(method, n)] = curve(results, cells)
    gains = [points["10,200"][0] - points["3,400"][0] for points in curves.values()]
    diffusion, others = gains[:4], gains[4:]
    title = (
        f"Three times the steps: diffusion models {min(diffusion):+.0f} to {max(diffusion):+.0f} points, "
        f"others {max(others):+.0f}"
    )
    panel = Panel("6x6 boards, k = 4 in top-prob order", "training steps", curves)
    caption = f"1,334 samples per seed. {PER_SEED}"
    draw([panel], title, caption, HERE / "equal-compute/equal-compute")


def lost_until(rows: Sequence[Any], clean: int) -> Point:
    """Return the percentage of boards without a solution at a number of clean tokens, over the seeds."""
    shares = []
    for row in rows:
        died = sum(record["died"] for record in row["dead_ends"] if record["clean"] < clean)
        shares.append(100 * died / row["dead_ends"][0]["alive"])
    low, high = wilson(fmean(shares) / 100, sum(row["dead_ends"][0]["alive"] for row in rows))
    found = interval_over_seeds(shares, (100 * low, 100 * high))
    bounds = (100 * low, 100 * high) if found is None else (max(0, found.low), min(100, found.high))
    return fmean(shares), *bounds


def draw_dead_ends() -> None:
    """Draw the boards that have lost their last solution, over the number of clean tokens."""
    results = rows_of("dead-ends")
    styles = dict(zip(dead_ends.NUMBERS, (":", "--", "-", "-."), strict=True))
    panels, early = [], []
    for method, n in dead_ends.MODELS:
        curves = {}
        for k in dead_ends.NUMBERS:
            rows = results[Cell(method, "top_prob", n, f"dead ends, k={k}")].rows
            points = {float(clean): lost_until(rows, clean) for clean in range(0, 37, 4)}
            curves[f"{method}, k = {k}", METHOD_COLORS[method], styles[k]] = points
            if k == "all":
                early.append(f"{100 * points[12.0][0] / points[36.0][0]:.0f}% of {method}")
        panels.append(Panel(named(method, n)[0], "clean tokens", curves))
    title = f"k = all: failures in the first 12 steps are {' and '.join(early)}"
    caption = f"6x6 boards, top-prob, 200 samples per seed. {PER_SEED}"
    draw(panels, title, caption, HERE / "dead-ends/dead-ends", "boards without a solution left (%)")


def draw_nats() -> None:
    """Draw the nats of held-out boards over the tokens processed."""
    results = rows_of("nats")
    panels, gains = [], []
    for order in nats.ORDERS:
        of_scdm = {"random": nats.NUMBERS, "relevant": nats.CHOSEN, "nearest": nats.CHOSEN}
        cells = {
            (f"scdm, {name}", METHOD_COLORS["scdm"], style): [nats.scdm(order, n, name) for n in numbers]
            for (name, numbers), style in zip(of_scdm.items(), ("-", ":", "--"), strict=True)
        }
        for method in ("sidm", "mdm"):
            cells[method, METHOD_COLORS[method], "-"] = [Cell(method, order, None, "nearest, nats")]
        curves = {
            name: {
                fmean(row["relative_cost"] for row in results[cell].rows): point(results[cell])
                for cell in each
            }
            for name, each in cells.items()
        }
        means = [mean for mean, _, _ in next(iter(curves.values())).values()]
        gains.append(f"{means[0] - means[-1]:.3f}")
        panels.append(Panel(f"{ORDER_NAMES[order]} order", "tokens processed (1: n = all)", curves))
    title = f"All latent tokens save {' and '.join(gains)} nats per cell (scdm)"
    caption = (
        "64 boards of 6x6 cells. 95% intervals over three training seeds, PyTorch 2.13 on one CPU thread."
    )
    draw(panels, title, caption, HERE / "nats/nats", "nats per cell", (0.46, 0.66))


def draw_worth() -> None:
    """Draw what masked tokens save by number and policy, for each model."""
    results = rows_of("worth")
    styles = {"nearest": "-", "adjacent": "--", "random": "--", "decaying": "-.", "distant": ":"}
    panels, most = [], []
    for (task, method, order), (numbers, chosen) in worth.MODELS.items():
        plain = None if task == "text" else "likelihood"
        (of_none,) = results[Cell(method, order, 0, plain, task)].rows
        third = "random" if order == "left_to_right" else "adjacent"
        curves = {}
        for policy in ("nearest", third, "decaying", "distant"):
            is_plain = policy == "nearest"
            of_policy = dict.fromkeys(numbers, plain) if is_plain else dict.fromkeys(chosen, policy)
            found = {}
            for n, variant in of_policy.items():
                above = nats_above(results[Cell(method, order, n, variant, task)].rows[0], of_none)
                mean, half = (0.0, 0.0) if above is None or n == 0 else above
                found[n] = (mean, mean - half, mean + half)
            curves[policy, METHOD_COLORS[method], styles[policy]] = found
        name = f"{'SmolLM2, ' * (task == 'smollm2')}{method}"
        most.append(f"{-curves['nearest', METHOD_COLORS[method], '-'][8][0]:.3f} ({name})")
        panels.append(Panel(name, "latent tokens n", curves))
    title = f"Eight latent tokens save nats per token: {', '.join(most)}"
    caption = "32 or 64 sequences of 128 tokens, one training seed. 95% intervals over sequences."
    draw(panels, title, caption, HERE / "worth/worth", "nats per token above n = 0", (-0.12, 0.03))


def draw_adapting() -> None:
    """Draw what latent tokens save adapted models at their end."""
    rows = [row for row in read_results(adapting.ROWS) if len(row["nats"]) == adapting.SEQUENCES]
    curves = {}
    for method in ("ar-latents", "esolm", "scdm"):
        found = {row["latents"]: row for row in rows if row["model"] == f"smollm2-{method}"}
        apart = {n: adapting.difference(row, found[0]) for n, row in found.items()}
        points = {n: (mean, mean - half, mean + half) for n, (mean, half) in apart.items()}
        curves[method, METHOD_COLORS[method], "-"] = points
    saved = ", ".join(f"{-points['all'][0]:.2f} ({name})" for (name, *_), points in curves.items())
    panel = Panel("SmolLM2-135M, 600 steps with LoRA", "latent tokens n", curves)
    caption = "32 sequences of 128 tokens, one training seed. 95% intervals over sequences."
    title = f"Nats saved by all latent tokens: {saved}"
    draw([panel], title, caption, HERE / "adapting/adapting", "nats per token above n = 0", (-0.12, 0.03))


DRAWN = {
    "adapting": draw_adapting,
    "nats": draw_nats,
    "worth": draw_worth,
    "candidates": draw_candidates,
    "infilling": draw_infilling,
    "confidence": draw_confidence,
    "training": draw_training,
    "depth": draw_depth,
    "equal-compute": draw_equal_compute,
    "dead-ends": draw_dead_ends,
}


def main() -> None:
    """Draw the figures that are named, or all."""
    for name in sys.argv[1:] or DRAWN:
        DRAWN[name]()


if __name__ == "__main__":
    main()
