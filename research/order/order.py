"""What latent tokens are worth in each decoding order, on 6x6 boards.

python research/order/order.py                      # print table.md from the rows
python research/order/order.py --measure-missing    # train and measure what rows.jsonl lacks, then draw

The models are those of `latent-tokens reproduce figure-1`, in the directory of --runs. With --workers 2 they
are measured in two processes.
"""

import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import tyro
from joblib import Parallel, delayed

import latent_tokens as lt
from latent_tokens.checkpoints.files import read_tensor_file, tensors_sha256
from latent_tokens.core.policies import LatentPolicy, rank_by
from latent_tokens.evaluation.report import as_markdown, legend_of, save_sheet, style as style_of
from latent_tokens.evaluation.rows import append_result, read_results
from latent_tokens.palette import METHOD_COLORS
from latent_tokens.paper.experiments import Cell as Trained
from latent_tokens.paper.recipes import Recipe, of_cells
from latent_tokens.paper.run import ready, ready_model

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent)]

import nats_by_order  # noqa: E402
from contradictions import SHOWN, contradictions_of, kinds_table, peers_of, reach_table  # noqa: E402
from tables import (  # noqa: E402
    RULE,
    Cell,
    Claim,
    Line,
    claims_table,
    compared,
    error_bars,
    lines_in,
    mean_and_bounds,
    values_table,
)

ROOT = HERE.parents[1]
SIDE, BOX_ROWS, BOX_COLUMNS = 6, 2, 3
SAMPLES = 1_000
WATCHED = 200  # boards whose loss is looked into
SEEDS = range(3)
CELLS = [(row, column) for row in range(SIDE) for column in range(SIDE)]


def index(cells: Any) -> list[int]:
    """Return the positions of cells (row, column)."""
    return [SIDE * row + column for row, column in cells]


@lt.of_logits
def least_certain(logits: torch.Tensor) -> torch.Tensor:
    """Rank the candidates (A, K) by how small their largest probability is."""
    return -logits.softmax(-1).amax(-1)


FIXED = {
    "left to right": [*range(SIDE**2)],
    "snake": index((row, column if row % 2 == 0 else SIDE - 1 - column) for row, column in CELLS),
    "box by box": index(sorted(CELLS, key=lambda cell: (cell[0] // BOX_ROWS, cell[1] // BOX_COLUMNS, cell))),
    "column by column": index(sorted(CELLS, key=lambda cell: (cell[1], cell[0]))),
    "diagonals": index(sorted(CELLS, key=lambda cell: (sum(cell), cell))),
    "every seventh": [7 * i % SIDE**2 for i in range(SIDE**2)],
}
"""The positions of 6x6 boards in decoding order."""

CHOICES: dict[str, dict[str, Any]] = {
    "uniform": {"order": "uniform"},
    "top-prob": {"order": "top_prob", "candidates": 4},
    "entropy": {"order": "entropy", "candidates": 4},
    "least certain": {"confidence": least_certain, "candidates": 4},
    "blocks of 6": {"order": "blockwise:6", "candidates": 4},
    "blocks of 6, entropy": {"order": "blockwise:6", "confidence": "entropy", "candidates": 4},
    "blocks of 12": {"order": "blockwise:12", "candidates": 4},
}
"""The settings of the other orders. With k = 4, as in figure-1, n = 0 leaves three other masked tokens."""

ORDERS = (*FIXED, *CHOICES)
BEST = "blocks of 6, entropy"
NAMES = {BEST: "row by row, entropy"}  # in the figure
NOT_ADAPTIVE = (*FIXED, "uniform")  # orders that do not depend on predictions


def constrained(sign: int, net: lt.Denoiser, task: Any) -> LatentPolicy:
    """Choose the cells as latent tokens that have the fewest (1) or the most (-1) digits left."""
    peers = torch.from_numpy(peers_of(task))  # (L, P)

    def excluded(step: lt.PolicyInput) -> torch.Tensor:
        digits = torch.nn.functional.one_hot(step.tokens[:, peers], net.vocab_size + 1)  # (A, L, P, V + 1)
        is_excluded = digits[..., : task.side].any(-2)
        return sign * is_excluded.sum(-1).double()

    return rank_by(excluded, "constrained" if sign > 0 else "least constrained")


POLICIES: dict[str, Any] = {
    "constrained": partial(constrained, 1),
    "least constrained": partial(constrained, -1),
    "random": lambda net, task: "random",
    "relevant": lambda net, task: "relevant",
}
"""Latent tokens other than the nearest, from left to right: a test of the explanation."""

NUMBERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, "all")


def settings_of(order: str) -> dict[str, Any]:
    """Return the settings of `evaluate` and `generate` that decode in an order."""
    if order == "left to right":
        return {"order": "left_to_right"}
    return {"order": lt.given(FIXED[order])} if order in FIXED else CHOICES[order]


def cells() -> Iterator[Cell]:
    """Yield every setting, those of the finding first."""
    parts = ((NUMBERS, ("left to right",)), ((0, 4, "all"), ORDERS))
    for numbers, orders in parts:
        for order in orders:
            yield from (Cell("scdm", order, n) for n in numbers)
            yield from (Cell(method, order) for method in ("mdm", "sidm"))
    yield from (Cell("scdm", BEST, n) for n in (1, 2))
    yield from (Cell("esolm", "left to right", n) for n in (1, 2, 8))
    yield from (Cell("esolm", order, n) for order in ORDERS for n in (0, 4, "all"))


def chosen_latents() -> list[Cell]:
    """Return the settings in which a policy chooses the latent tokens."""
    return [Cell("scdm", "left to right", n, name) for name in POLICIES for n in (1, 2, 4)]


def recipe_of(method: str, seed: int, runs: Path) -> Recipe:
    """Return the recipe of a model: that of figure-1, on one thread."""
    trained = Trained("sudoku-gen", method, "left_to_right")
    return of_cells([trained], "cpu", runs)[seed]


def measure(cell: Cell, seed: int, runs: Path, path: Path) -> None:
    """Append the row of a setting, with when and how its invalid boards lost their last solution."""
    torch.set_num_threads(1)
    recipe = recipe_of(cell.method, seed, runs)
    model = lt.load(recipe.training.folder)
    settings = settings_of(cell.order)
    if cell.variant is not None:
        settings["latent_policy"] = POLICIES[cell.variant](model.net, model.task)
    n = None if cell.latents is None else (cell.latents,)
    (row,) = lt.evaluate(model.net, model.task, latents=n, num_samples=SAMPLES, seed=seed, **settings)
    entries = {"cell": cell._asdict(), "train_seed": seed, "model": recipe.model}
    entries["weights_sha256"] = tensors_sha256(read_tensor_file(recipe.training.folder / "model.safetensors"))
    if cell.method == "mdm" or (cell.method == "scdm" and cell.latents in SHOWN and cell.variant is None):
        drawn = {"latents": cell.latents, "seed": seed, "num_samples": WATCHED, **settings}
        entries |= {"watched": WATCHED, "contradictions": contradictions_of(model, **drawn)}
    append_result(path, {**row, **entries})


def accuracy_table(lines: dict[Cell, Line], method: str, numbers: Any) -> str:
    """Return the accuracy of a method: a row per order, a column per number of latent tokens."""
    table = [(f"{method}, order", *(f"n = {n}" if n is not None else "valid %" for n in numbers))]
    for order in ORDERS:
        found = [lines.get(Cell(method, order, n)) for n in numbers]
        if any(found):
            table.append((order, *map(mean_and_bounds, found)))
    return as_markdown(table)


def choices_table(lines: dict[Cell, Line]) -> str:
    """Return the accuracy from left to right by the choice of latent tokens: a row each, a column per n."""
    table = [("latent tokens", "n = 1", "n = 2", "n = 4")]
    for name in (None, *POLICIES):
        found = [lines.get(Cell("scdm", "left to right", n, name)) for n in (1, 2, 4)]
        table.append((name or "nearest", *map(mean_and_bounds, found)))
    return as_markdown(table)


def claims() -> list[Claim]:
    """Return the claims on the worth of latent tokens in each order."""
    listed = []
    for order in ORDERS:
        none, four, every = (Cell("scdm", order, n) for n in (0, 4, "all"))
        mdm, sidm = Cell("mdm", order), Cell("sidm", order)
        pairs = {
            "scdm n=4 > n=0": (four, none), "scdm n=all > n=0": (every, none),
            "scdm n=4 > n=all": (four, every),
            "scdm n=all > sidm": (every, sidm), "sidm > scdm n=0": (sidm, none), "mdm > sidm": (mdm, sidm),
            "mdm > scdm n=all": (mdm, every), "mdm > scdm n=4": (mdm, four), "scdm n=4 > sidm": (four, sidm),
        }  # fmt: skip
        without, with_four, with_all = (Cell("esolm", order, n) for n in (0, 4, "all"))
        pairs |= {
            "esolm n=4 > n=0": (with_four, without), "esolm n=all > n=0": (with_all, without),
            "esolm n=4 > n=all": (with_four, with_all), "esolm n=4 > scdm n=4": (with_four, four),
            "mdm > esolm n=4": (mdm, with_four), "mdm > esolm n=all": (mdm, with_all),
        }  # fmt: skip
        listed += [Claim(f"{order}: {text}", *pair) for text, pair in pairs.items()]
    one, none, four = (Cell("scdm", BEST, n) for n in (1, 0, 4))
    listed += [Claim(f"{BEST}: scdm n=1 > n=0", one, none), Claim(f"{BEST}: scdm n=4 > n=1", four, one)]
    for n, name in product((1, 2, 4), POLICIES):
        pair = (Cell("scdm", "left to right", n, variant) for variant in (name, None))
        listed.append(Claim(f"left to right, n={n}: {name} > nearest", *pair))
    return listed


def draw(lines: dict[Cell, Line]) -> None:
    """Draw accuracy over n, a panel for the orders in which n counts and one for the others."""
    from matplotlib.figure import Figure

    sheet = Figure(figsize=(9.6, 4.6), layout="constrained")
    panels = sheet.subplots(1, 2, sharey=True)
    shown = (
        [("scdm", "left to right"), ("scdm", "box by box"), ("esolm", "left to right")],
        [("scdm", order) for order in (BEST, "entropy", "column by column", "top-prob")],
    )
    most = SIDE**2 - 1
    styles = ("-", "--", ":", "-.")
    for axes, curves in zip(panels, shown, strict=True):
        for (method, order), style in zip(curves, styles, strict=False):
            curve = [lines[cell] for n in NUMBERS if (cell := Cell(method, order, n)) in lines]
            at = [most if line.cell.latents == "all" else line.cell.latents for line in curve]
            name = NAMES.get(order, order)
            error_bars(
                axes, at, curve, color=METHOD_COLORS[method], fmt=f"{style}o", label=f"{method}, {name}"
            )
            mdm = lines.get(Cell("mdm", order))
            if mdm is not None and method == "scdm":
                number = styles.index(style)
                look = {"color": METHOD_COLORS["mdm"], "fmt": "os^D"[number], "label": f"mdm, {name}"}
                error_bars(axes, [most + 1.5 + 1.2 * number], [mdm], **look)
        axes.set_xticks([0, 4, 8, 16, 24, most], ["0", "4", "8", "16", "24", "all"])
        axes.set(ylim=(0, 100))
        style_of(axes, "latent tokens n", "valid boards (%)" if axes is panels[0] else "")
    legend_of(sheet, columns=4)
    first = lines[Cell("scdm", "left to right", 0)]
    caption = (
        f"6x6 boards, 0.8M parameters, 3,400 steps, {SAMPLES:,} boards per point and training seed, "
        f"{len(first.rows)} training seeds, 95% intervals. Adaptive orders: k = 4."
    )
    added = [
        lines[Cell("scdm", order, 4)].mean - lines[Cell("scdm", order, 0)].mean
        for order in ("left to right", BEST, "top-prob")
    ]
    title = "Four latent tokens add {:.0f} points from left to right, {:.0f} row by row, {:.0f} by top-prob"
    save_sheet(sheet, title.format(*added), caption, HERE / "order", dark=True)


def main(
    draw_figure: bool = False,
    measure_missing: bool = False,
    runs: Path = ROOT / "runs" / "paper",
    workers: int = 1,
) -> None:
    """Print the tables, or train and measure what is missing.

    Args:
        draw_figure: draw the figure from the stored rows.
        measure_missing: train and measure what rows.jsonl lacks, then draw.
        runs: directory of data sets and models.
        workers: processes at a time, of one thread each.
    """
    path = HERE / "rows.jsonl"
    if measure_missing:
        wanted = dict.fromkeys((cell, seed) for cell in (*chosen_latents(), *cells()) for seed in SEEDS)
        done = {(Cell(**row["cell"]), row["train_seed"]) for row in read_results(path)}
        missing = [each for each in wanted if each not in done]
        scored = {(cell, seed) for cell, by_seed in nats_by_order.by_cell().items() for seed in by_seed}
        unscored = [each for each in product(nats_by_order.cells(NOT_ADAPTIVE), SEEDS) if each not in scored]
        needed = [*missing, *unscored]
        recipes = {(cell.method, seed): recipe_of(cell.method, seed, runs) for cell, seed in needed}
        for recipe in recipes.values():
            ready(recipe.data)  # before the workers need it
        run = Parallel(n_jobs=workers, pre_dispatch=workers, batch_size=1)
        run(delayed(ready_model)(recipe) for recipe in recipes.values())
        run(delayed(measure)(cell, seed, runs, path) for cell, seed in missing)
        folders = {key: recipe.training.folder for key, recipe in recipes.items()}
        run(
            delayed(nats_by_order.measure)(cell, FIXED.get(cell.order), folders[cell.method, seed], seed)
            for cell, seed in unscored
        )
    lines = lines_in(path)
    if measure_missing or draw_figure:
        draw(lines)
    chosen = [Cell(method, "left to right", n) for method in ("scdm", "esolm") for n in (0, 4, "all")]
    chosen += [Cell(method, "left to right") for method in ("sidm", "mdm")]
    chosen += [Cell("scdm", BEST, n) for n in (0, 1, 2, 4, "all")]
    chosen += [Cell("esolm", BEST, n) for n in (0, 4, "all")]
    chosen += [Cell(method, BEST) for method in ("sidm", "mdm")]
    tables = [values_table([lines[cell] for cell in chosen])]
    tables.append(accuracy_table(lines, "scdm", NUMBERS))
    tables += [accuracy_table(lines, method, (None,)) for method in ("mdm", "sidm")]
    if any(cell.method == "esolm" for cell in lines):
        tables.append(accuracy_table(lines, "esolm", NUMBERS))
    tables += [choices_table(lines), claims_table(lines, compared(lines, claims()))]
    tables += [reach_table(lines), kinds_table(lines)]
    tables.append(nats_by_order.nats_table(NOT_ADAPTIVE, lines))
    print("\n".join([*tables, f"{RULE}\n"]), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
