"""What masked tokens in the input are worth: exact nats of held-out text by n, policy and block length.

python research/worth/worth.py                            # print table.md from the stored rows
python research/worth/worth.py --run RUN --data DATA      # score 64 sequences of DATA with a model
"""

import sys
from pathlib import Path
from typing import Any

import tyro

import latent_tokens as lt
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown
from latent_tokens.paper.run import held_out, nats_above
from latent_tokens.tasks.base import evenly

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from policies import adjacent, decaying, distant
from tables import Cell, Line, lines_of, rows_of

POLICIES = {"nearest": lt.nearest, "adjacent": adjacent, "decaying": decaying, "distant": distant}
NUMBERS = (0, 2, 8, 32)
BLOCKS = (1, 4, 16, 64)
MODELS = {
    ("text", "esolm", "uniform"): ((0, 1, 2, 4, 8, 16, 32, 64), (2, 8, 32)),
    ("text", "scdm", "uniform"): ((0, 1, 2, 4, 8, 16, 32, 64), (2, 8, 32)),
    ("smollm2", "ar-latents", "left_to_right"): ((0, 2, 8, 64), (2, 8)),
    ("smollm2", "esolm", "uniform"): ((0, 2, 8, 64), (2, 8)),
}
"""Task, method and order -> the numbers of latent tokens, and those with a choice of policy."""
LEGEND = (
    "Nats are exact, of the same held-out sequences in every line of a model, along one order per sequence. A"
    " difference has a 95% interval over sequences. Each line is of one training seed, and no interval covers"
    " the variation between seeds. In blocks of b positions, blocks are decoded from left to right, and each"
    " in any order. The difference is to n = 0 in the same blocks."
)


def settings() -> list[Cell]:
    """Return the settings of each model."""
    cells = []
    for (task, method, order), (numbers, chosen) in MODELS.items():
        likelihood = None if task == "text" else "likelihood"
        cells += [Cell(method, order, n, likelihood, task) for n in numbers]
        third = "random" if order == "left_to_right" else "adjacent"
        cells += [Cell(method, order, n, p, task) for p in ("decaying", third, "distant") for n in chosen]
        if order == "uniform":
            ends = (0, 8)
            cells += [Cell(method, order, n, f"blocks of {size}", task) for size in BLOCKS for n in ends]
    return cells


def is_in_blocks(cell: Cell) -> bool:
    """Return whether a setting decodes in blocks."""
    return (cell.variant or "").startswith("blocks")


def table(lines: list[Line]) -> str:
    """Return a table with a row per setting, and its difference to n = 0 of the same model and order."""
    headings = ("model", "order", "n", "latent tokens", "nats per token", "difference to n = 0")
    rows = [(*headings, "relative cost", "sequences")]
    for line in lines:
        cell = line.cell
        model = f"SmolLM2, {cell.method}" if cell.task == "smollm2" else cell.method
        policy = "nearest" if cell.variant in (None, "likelihood") or is_in_blocks(cell) else cell.variant
        order = cell.variant if is_in_blocks(cell) else ORDER_NAMES[cell.order]
        likelihood = None if cell.task == "text" else "likelihood"
        first = cell._replace(latents=0, variant=cell.variant if is_in_blocks(cell) else likelihood)
        (of_none,) = [other for other in lines if other.cell == first]
        row: Any = line.rows[0]
        above = None if cell.latents == 0 else nats_above(row, of_none.rows[0])
        apart = "" if above is None else f"{above[0]:+.4f} ± {above[1]:.4f}"
        cost = f"{row['relative_cost']:.2f}x"
        count = str(len(row["held_out_nats"]))
        rows.append(
            (model, str(order), str(cell.latents), str(policy), f"{held_out(row):.3f}", apart, cost, count)
        )
    return as_markdown(rows)


def measure(run: str, data: str, order: str | None) -> None:
    """Print the nats per token of held-out sequences for each policy and n."""
    net = lt.from_pretrained(run)
    _, splits = lt.load_data(data, ("test",))
    examples = splits["test"].take(evenly(len(splits["test"].tokens), min(64, len(splits["test"].tokens))))
    for name, policy in POLICIES.items():
        for n in NUMBERS:
            nats = lt.nats_along_orders(net, examples, order=order, latents=n, latent_policy=policy)
            print(f"{name}, n={n}: {nats.sum() / examples.lengths.sum():.4f} nats per token")


def main(run: str | None = None, data: str | None = None, order: str | None = None) -> None:
    """Print the table, or measure a model.

    Args:
        run: the model.
        data: its data set.
        order: uniform, left_to_right or blockwise:N. Default: that of the method.
    """
    if run is not None and data is not None:
        measure(run, data, order)
        return
    print(table(lines_of(rows_of("worth"), settings())))
    print(LEGEND)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
