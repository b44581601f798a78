"""What a budget of 1.3 million 9x9 boards buys: every method, order and number of latent tokens.

python research/boards-9x9/boards_9x9.py                      # print table.md from the rows
python research/boards-9x9/boards_9x9.py --measure-missing    # train and measure what rows.jsonl lacks
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import tyro

import latent_tokens as lt
from latent_tokens.checkpoints.files import read_tensor_file, tensors_sha256
from latent_tokens.evaluation.report import as_markdown, legend_of, save_sheet, style
from latent_tokens.evaluation.rows import append_result, read_results
from latent_tokens.palette import METHOD_COLORS
from latent_tokens.training.checkpoint import saved_step

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

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
)

ROOT = HERE.parents[1]
SEEDS = range(3)
SAMPLES = 1_000
SAMPLES_OF_BUNDLED = 500
PLANNED = 15_000  # steps of the learning rate schedule
TAKEN = {"arm": 11_000, "ar-mtp": 11_000, "mdm": 10_000, "sidm": 10_000, "scdm": 10_000}
"""The steps after which the training of a method ended: what one GPU took in nine minutes."""
LONGER = "17,000 steps"
LONGER_STEPS = 17_000  # of one mdm, in bf16 on a CPU core, to the end of the schedule
BUNDLED = "bundled"
BUNDLED_STEPS = {"mdm": LONGER_STEPS, "scdm": 20_000}  # of sudoku-9-mdm, which is LONGER in bf16, and -scdm
BUNDLED_ORDERS = ("left to right", "rows, entropy, k = 8")
FEW_NUMBERS = (0, 4, 8, "all")
LONGER_ORDERS = ("top-prob, k = 8", "entropy, k growing", "entropy, k = 8", "top-prob, k growing",
                 "left to right", "uniform")  # fmt: skip

SETTINGS: dict[str, dict[str, Any]] = {
    "left to right": {"order": "left_to_right"},
    "uniform": {"order": "uniform"},
    "top-prob, k = 8": {"order": "top_prob", "candidates": 8},
    "top-prob, k growing": {"order": "top_prob", "candidates": "growing"},
    "top-prob, k = all": {"order": "top_prob", "candidates": "all"},
    "margin, k = 8": {"order": "margin", "candidates": 8},
    "entropy, k = 8": {"order": "entropy", "candidates": 8},
    "entropy, k growing": {"order": "entropy", "candidates": "growing"},
    "rows, entropy, k = 8": {"order": "blockwise:9", "confidence": "entropy", "candidates": 8},
    "rows, top-prob, k = 8": {"order": "blockwise:9", "candidates": 8},
}
NUMBERS: dict[str, tuple[int | str, ...]] = {
    "left to right": (0, 1, 2, 3, 4, 6, 8, 16, 32, "all"),
    "uniform": (0, 8, "all"),
    "top-prob, k = 8": (0, 2, 4, 8, 16, 32, "all"),
    "top-prob, k growing": (0, "all"),
    "top-prob, k = all": (0,),
    "entropy, k = 8": (0, 8, "all"),
    "entropy, k growing": (0, "all"),
    "rows, entropy, k = 8": FEW_NUMBERS,
    "rows, top-prob, k = 8": FEW_NUMBERS,
}
"""The numbers of latent tokens of scdm in each order."""


def cells() -> Iterator[Cell]:
    """Yield every setting."""
    for order in SETTINGS:
        yield from (Cell("scdm", order, n) for n in NUMBERS.get(order, ()))
        yield from (Cell(method, order) for method in ("mdm", "sidm"))
    yield from (Cell(method, "left to right") for method in ("ar-mtp", "arm"))


def longer(order: str) -> Cell:
    """Return the setting of the mdm that was trained longer, with seed 0."""
    return Cell("mdm", order, None, LONGER)


def bundled(order: str) -> list[Cell]:
    """Return the settings of the bundled models in an order: mdm, and scdm by its number of latent tokens."""
    models = [("mdm", None), *(("scdm", n) for n in FEW_NUMBERS)]
    return [Cell(method, order, n, BUNDLED) for method, n in models]


def of_one_seed() -> Iterator[Cell]:
    """Yield the settings of the models that were trained once."""
    yield from map(longer, LONGER_ORDERS)
    for order in BUNDLED_ORDERS:
        yield from bundled(order)


def steps_of(cell: Cell) -> tuple[int, int]:
    """Return the planned and the taken steps of a model."""
    if cell.variant is None:
        return PLANNED, TAKEN[cell.method]
    steps = LONGER_STEPS if cell.variant == LONGER else BUNDLED_STEPS[cell.method]
    return steps, steps


class Taken(Exception):
    """The steps of a training are taken."""


def trained(cell: Cell, seed: int, runs: Path) -> Path:
    """Return the directory of a model, which is trained if it does not exist.

    The weights are those of the last validation, at the step that TAKEN names.
    """
    is_longer = cell.variant == LONGER
    steps, taken = steps_of(cell)
    data = lt.DataConfig("sudoku-9", num_train=1_000_000, out=runs / "data")
    if not data.folder.exists():
        lt.make_data(data)
    out = runs / f"sudoku-9-{cell.method}-{seed}{'-longer' if is_longer else ''}"
    config = lt.TrainConfig(
        "sudoku-9", cell.method, data=data.folder, out=out, seed=seed, steps=steps, batch_size=128, lr=2.5e-3,
        warmup=300, precision="bf16" if is_longer else "fp32", resume="auto",
    )  # fmt: skip

    def end(stage: str, step: int) -> None:
        if stage == "saved" and step == taken < steps:
            raise Taken

    if not out.exists() or saved_step(out) < taken:
        with suppress(Taken):
            lt.fit(config, observe=end)
    return out


def measure(cell: Cell, seed: int, runs: Path, path: Path) -> None:
    """Append the row of a setting."""
    model = lt.load(f"sudoku-9-{cell.method}" if cell.variant == BUNDLED else trained(cell, seed, runs))
    n = None if cell.latents is None else (cell.latents,)
    settings: Any = {} if cell.method in ("arm", "ar-mtp") else SETTINGS[cell.order]
    number = SAMPLES_OF_BUNDLED if cell.variant == BUNDLED else SAMPLES
    (row,) = lt.evaluate(model.net, model.task, latents=n, num_samples=number, seed=seed, **settings)
    planned, taken = steps_of(cell)
    digest = tensors_sha256(read_tensor_file(model.net.folder / "model.safetensors"))
    entries = {"cell": cell._asdict(), "train_seed": seed, "train_steps": taken}
    append_result(path, {**row, **entries, "train_steps_planned": planned, "weights_sha256": digest})


def values_table(lines: dict[Cell, Line]) -> str:
    """Return a row per order, with the methods that have a fixed n."""
    table = [("order", "mdm", "sidm", "ar-mtp", "arm")]
    for order in SETTINGS:
        found = [lines.get(Cell(method, order)) for method in table[0][1:]]
        if any(found):
            table.append((order, *map(mean_and_bounds, found)))
    return as_markdown(table)


def longer_table(lines: dict[Cell, Line]) -> str:
    """Return the accuracy of one mdm, and of the one that was trained longer from the same seed."""
    table = [("mdm, seed 0", f"{TAKEN['mdm']:,} steps", LONGER)]
    for order in LONGER_ORDERS:
        found = (lines[Cell("mdm", order)].of_seeds((0,)), lines[longer(order)])
        table.append((order, *map(mean_and_bounds, found)))
    return as_markdown(table)


def bundled_table(lines: dict[Cell, Line]) -> str:
    """Return the accuracy of the bundled models: a row per order, a column per model and n."""
    table = [("bundled models", "mdm", *(f"scdm, n = {n}" for n in FEW_NUMBERS))]
    for order in BUNDLED_ORDERS:
        table.append((order, *(mean_and_bounds(lines[cell]) for cell in bundled(order))))
    return as_markdown(table)


def dial_table(lines: dict[Cell, Line]) -> str:
    """Return the accuracy of scdm: a row per order, a column per number of latent tokens."""
    numbers = (0, 1, 2, 3, 4, 6, 8, 16, 32, "all")
    table = [("scdm", *(f"n = {n}" for n in numbers))]
    for order in NUMBERS:
        found = [lines.get(Cell("scdm", order, n)) for n in numbers]
        if any(found):
            table.append((order, *map(mean_and_bounds, found)))
    return as_markdown(table)


def claims(lines: dict[Cell, Line]) -> list[Claim]:
    """Return the claims of the paper, in each order, and those on the order, of what was measured."""
    listed = []
    for order in SETTINGS:
        none, every = Cell("scdm", order, 0), Cell("scdm", order, "all")
        mdm, sidm = Cell("mdm", order), Cell("sidm", order)
        pairs = {
            "mdm > sidm": (mdm, sidm), "scdm n=all > n=0": (every, none), "scdm n=all > sidm": (every, sidm),
            "sidm > scdm n=0": (sidm, none), "mdm > scdm n=all": (mdm, every),
        }  # fmt: skip
        listed += [Claim(f"{order}: {text}", *pair) for text, pair in pairs.items()]
    mtp, arm, right = (Cell(method, "left to right") for method in ("ar-mtp", "arm", "mdm"))
    none, four, eight = (Cell("scdm", "left to right", n) for n in (0, 4, 8))
    top, growing, uniform = (Cell("mdm", o) for o in ("top-prob, k = 8", "top-prob, k growing", "uniform"))
    best, entropy = Cell("mdm", "entropy, k growing"), Cell("mdm", "entropy, k = 8")
    listed += [
        Claim("ar-mtp > arm", mtp, arm), Claim("ar-mtp > mdm left to right", mtp, right),
        Claim("mdm top-prob, k = 8 > ar-mtp", top, mtp), Claim("mdm entropy, k growing > ar-mtp", best, mtp),
        Claim("ar-mtp > mdm uniform", mtp, uniform), Claim("mdm uniform > arm", uniform, arm),
        Claim("mdm: entropy > top-prob, k = 8", entropy, top),
        Claim("mdm: entropy > top-prob, k growing", best, growing),
        Claim("mdm: margin > top-prob, k = 8", Cell("mdm", "margin, k = 8"), top),
        Claim("mdm: left to right > uniform", right, uniform),
        Claim("mdm: top-prob, k = 8 > left to right", top, right),
        Claim("scdm left to right: n=8 > n=0", eight, none),
        Claim("scdm left to right: n=8 > n=4", eight, four),
    ]  # fmt: skip
    return compared(lines, listed)


def draw(lines: dict[Cell, Line]) -> None:
    """Draw accuracy over n for scdm in each order, with mdm and sidm beside it."""
    from matplotlib.figure import Figure

    shown = ("entropy, k growing", "entropy, k = 8", "top-prob, k = 8", "left to right")
    places = (0, 4, 8, 16, 32, 80)
    sheet = Figure(figsize=(9.6, 4.2), layout="constrained")
    panels = sheet.subplots(1, len(shown), sharey=True)
    for axes, order in zip(panels, shown, strict=True):
        numbers = [n for n in NUMBERS[order] if n == "all" or n in places]
        curve = [lines[Cell("scdm", order, n)] for n in numbers]
        at = [places.index(80 if n == "all" else n) for n in numbers]
        marks = {"scdm": (at, curve, "-o"), "sidm": ([-1], [lines[Cell("sidm", order)]], "s")}
        marks["mdm"] = ([len(places)], [lines[Cell("mdm", order)]], "^")
        if order == "left to right":
            marks["ar-mtp"] = ([len(places) + 1], [lines[Cell("ar-mtp", order)]], "D")
        for method, (x, found, form) in marks.items():
            error_bars(axes, x, found, color=METHOD_COLORS[method], fmt=form, label=method)
        axes.set_xticks(range(len(places)), ["0", "4", "8", "16", "32", "all"])
        axes.set(ylim=(0, 100), xlim=(-1.8, len(places) + 1.8))
        style(axes, "latent tokens n", "valid boards (%)" if axes is panels[0] else "", order)
    legend_of(sheet, columns=4)
    caption = (
        f"9x9 boards, 0.8M parameters, {TAKEN['mdm']:,} steps of 128, {SAMPLES:,} boards per point and "
        f"training seed, {len(SEEDS)} training seeds, 95% intervals."
    )
    by_order = {order: lines[Cell("mdm", order)].mean for order in shown}
    best, worst = max(by_order, key=by_order.get), min(by_order, key=by_order.get)
    title = f"mdm on 9x9 boards: {by_order[best]:.0f}% valid ({best}) to {by_order[worst]:.0f}% ({worst})"
    save_sheet(sheet, title, caption, HERE / "boards-9x9", dark=True)


def main(
    measure_missing: bool = False, draw_figure: bool = False, runs: Path = ROOT / "runs" / "boards-9x9"
) -> None:
    """Print the tables, or train and measure what is missing.

    Args:
        draw_figure: draw the figure from the stored rows.
        measure_missing: train and measure what rows.jsonl lacks, then draw.
        runs: directory of the data set and the models.
    """
    path = HERE / "rows.jsonl"
    if measure_missing:
        done = {(Cell(**row["cell"]), row["train_seed"]) for row in read_results(path)}
        wanted = [*((cell, 0) for cell in of_one_seed()), *product(cells(), SEEDS)]
        for cell, seed in wanted:
            if (cell, seed) not in done:
                measure(cell, seed, runs, path)
    lines = lines_in(path)
    if measure_missing or draw_figure:
        draw(lines)
    parts = [values_table(lines), longer_table(lines), bundled_table(lines), dial_table(lines)]
    parts += [claims_table(lines, claims(lines)), f"{RULE}\n"]
    print("\n".join(parts), end="")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
