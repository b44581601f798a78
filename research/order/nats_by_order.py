"""The exact nats of boards in each decoding order, and the share of valid boards that they guarantee.

With q the distribution of the boards and p that of the samples, the share of valid samples is at least the
mean of p / q over boards of q, and so at least exp(H - nats) by Jensen's inequality. H is the entropy of q,
and nats are those of p.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from tables import Cell, Line

import latent_tokens as lt
from latent_tokens.evaluation.report import as_markdown
from latent_tokens.evaluation.rows import append_result, read_results

PATH = Path(__file__).parent / "nats.jsonl"
BOARDS = 500
ENTROPY = 36 * 0.4691  # nats of a board of the solver: `python research/nats/nats.py --entropy`
NUMBERS = (0, 4, "all")


def cells(orders: Any) -> Iterator[Cell]:
    """Yield every setting of some orders that are fixed before the first step."""
    for order in orders:
        yield from (Cell("scdm", order, n) for n in NUMBERS)
        yield from (Cell(method, order) for method in ("mdm", "sidm"))


def measure(cell: Cell, order: list[int] | None, folder: Path, seed: int) -> None:
    """Append the mean nats of boards of seed 1 along an order, or along a random one per board (None)."""
    torch.set_num_threads(1)
    model = lt.load(folder)
    tokens, known, lengths = lt.as_tensors(model.task.generate(BOARDS, 1))
    generator = torch.Generator().manual_seed(0)
    along = torch.rand(tokens.shape, generator=generator).argsort(1)
    if order is not None:
        along = torch.tensor(order).expand_as(along)
    counts = (known.sum(1), lengths)
    scores = lt.log_likelihood(model.net, model.method, tokens, along, *counts, cell.latents)
    row = {"cell": cell._asdict(), "train_seed": seed, "boards": BOARDS}
    append_result(PATH, {**row, "nats": round(-float(scores.sum(1).mean()), 4)})


def by_cell() -> dict[Cell, dict[int, float]]:
    """Return the stored nats of each setting, by training seed."""
    found: dict[Cell, dict[int, float]] = {}
    for row in read_results(PATH):
        found.setdefault(Cell(**row["cell"]), {})[row["train_seed"]] = row["nats"]
    return found


def nats_table(orders: Any, lines: dict[Cell, Line]) -> str:
    """Return nats per board, the share of valid boards that they guarantee, and that of samples."""
    found, pairs = by_cell(), []
    table = [("order", "model", "nats per board", "guaranteed valid %", "valid %")]
    for cell in cells(orders):
        if cell in found:
            nats = found[cell].values()
            least = fmean(100 * math.exp(ENTROPY - each) for each in nats)
            name = cell.method if cell.latents is None else f"{cell.method}, n = {cell.latents}"
            pairs.append((least, lines[cell].mean))
            table.append((cell.order, name, f"{fmean(nats):.2f}", *(f"{share:.1f}" for share in pairs[-1])))
    ranks = np.argsort(np.argsort(np.array(pairs), axis=0), axis=0).T
    return (
        f"{as_markdown(table)}\nRank correlation of the last two columns: {np.corrcoef(ranks)[0, 1]:.2f}.\n"
    )
