"""How a wrong token shows: the step at which a board loses its last solution, and which masked cells tell.

A board is lost at the first token after which its masked cells cannot be filled. The token is

- a repetition, if a clean cell of its row, column or box has the same digit,
- told by a cell, if some masked cell has no digit left,
- told by a unit, if each masked cell has a digit left, but those of a row, column or box together have not,
- told by several units in all other cases.

Its reach is the smallest m such that the next m cells of the decoding order cannot be filled together: so
many latent tokens are the least that could have told.
"""

from collections import Counter
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from tables import Cell, Line

import latent_tokens as lt
from latent_tokens.evaluation.report import as_markdown

SHOWN = (0, 4, 8, "all")  # numbers of latent tokens of which losses are looked into
KINDS = ("repetition", "cell", "unit", "several units")
REACHES = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 99))


@numba.njit(cache=True)
def fits(board, cells, peers):  # type: ignore[no-untyped-def]
    """Return whether the empty ones of some cells can be filled, whatever happens to the others.

    Digits are 1 to the side, 0 is empty. Depth first, the cell with the fewest digits left first.
    """
    side = int(len(board) ** 0.5)
    best, fewest, best_used = -1, side + 1, 0
    for cell in cells:
        if board[cell]:
            continue
        used = 0
        for peer in peers[cell]:
            used |= 1 << board[peer]
        left = 0
        for digit in range(1, side + 1):
            left += 1 - (used >> digit & 1)
        if left < fewest:
            best, fewest, best_used = cell, left, used
    if best < 0:
        return True
    for digit in range(1, side + 1):
        if not best_used >> digit & 1:
            board[best] = digit
            is_open = fits(board, cells, peers)
            board[best] = 0
            if is_open:
                return True
    return False


def peers_of(task: Any) -> NDArray[np.int64]:
    """Return the cells that share a unit with each cell, (L, P)."""
    units = task.grid.unit_of
    shares = (units[:, None] == units).any(-1) & ~np.eye(len(units), dtype=bool)
    return np.stack([row.nonzero()[0] for row in shares])


def first_loss(
    board: NDArray[np.int64], order: NDArray[np.int64], peers: NDArray[np.int64]
) -> tuple[int, NDArray[np.int64]] | None:
    """Return the step of the first token that leaves no solution, and the board after it. None: it is valid.

    What was lost stays lost, so the step is found by bisection.
    """

    def after(step: int) -> NDArray[np.int64]:
        partial = np.zeros_like(board)
        partial[order[: step + 1]] = board[order[: step + 1]]
        return partial

    def is_lost(step: int) -> bool:
        partial = after(step)
        decoded = order[: step + 1]
        repeats = (partial[peers[decoded]] == partial[decoded, None]).any()
        return bool(repeats) or not fits(partial, order, peers)

    low, high = 0, len(order) - 1
    if not is_lost(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_lost(middle) else (middle + 1, high)
    return low, after(low)


def kind_and_reach(
    board: NDArray[np.int64], order: NDArray[np.int64], step: int, task: Any, peers: NDArray[np.int64]
) -> tuple[str, int]:
    """Return how a token shows that it is wrong, and its reach (0 for a repetition)."""
    last = order[step]
    if (board[peers[last]] == board[last]).any():
        return "repetition", 0
    later = order[step + 1 :]
    reach = next(m for m in range(1, len(later) + 1) if not fits(board, later[:m], peers))
    if not all(fits(board, later[i : i + 1], peers) for i in range(len(later))):
        return "cell", reach
    units = task.grid.unit_of.T.reshape(-1)
    cells = np.tile(np.arange(len(board)), 3)
    is_open = all(fits(board, cells[units == unit], peers) for unit in np.unique(units))
    return "several units" if is_open else "unit", reach


def contradictions_of(model: lt.Model, **settings: Any) -> list[dict[str, Any]]:
    """Return how many boards of a model are lost in each way: records of step, kind, reach and boards.

    Samples are those of `evaluate` with the same seed. Raises AssertionError if a lost board is valid.
    """
    samples = model.generate(**settings)
    peers = peers_of(model.task)
    boards = model.task.boards(samples.tokens).astype(np.int64) + 1
    counts: Counter[tuple[int, str, int]] = Counter()
    for board, order, valid in zip(boards, samples.order, samples.valid, strict=True):
        lost = first_loss(board, order, peers)
        if (lost is None) != valid:
            raise AssertionError("a valid board is lost, or one that is not valid has a solution")
        if lost is not None:
            step, after = lost
            counts[step, *kind_and_reach(after, order, step, model.task, peers)] += 1
    names = ("step", "kind", "reach", "boards")
    return [dict(zip(names, (*key, number), strict=True)) for key, number in sorted(counts.items())]


def shares(line: Line, **wanted: Any) -> float:
    """Return the boards of 100 that are lost in a way, the mean over seeds."""
    per_seed = []
    for row in line.rows:
        total = sum(
            each["boards"]
            for each in row["contradictions"]
            if all(each[name] in values for name, values in wanted.items())
        )
        per_seed.append(100 * total / row["watched"])
    return fmean(per_seed)


def kinds_table(lines: Mapping[Cell, Line]) -> str:
    """Return a row per setting with the boards of 100 that are lost in each way."""
    table = [("order", "method", "n", *KINDS)]
    for cell, line in lines.items():
        if "contradictions" in line.rows[0]:
            n = "" if cell.latents is None else str(cell.latents)
            table.append((cell.order, cell.method, n, *(f"{shares(line, kind=(k,)):.1f}" for k in KINDS)))
    return "Boards of 100 that lose their last solution, by what tells:\n\n" + as_markdown(table)


def reach_table(lines: Mapping[Cell, Line]) -> str:
    """Return a row per setting with the boards of 100 that a cell tells, by reach."""
    names = [
        str(low) if low == high else f"{low} to {high}" if high < 99 else f"{low} on" for low, high in REACHES
    ]
    table = [("order", "n", *names)]
    for cell, line in lines.items():
        if cell.method == "scdm" and "contradictions" in line.rows[0]:
            by_reach = (shares(line, kind=("cell",), reach=range(low, high + 1)) for low, high in REACHES)
            table.append((cell.order, str(cell.latents), *(f"{value:.1f}" for value in by_reach)))
    return "Those of scdm that a masked cell tells, by reach:\n\n" + as_markdown(table)
