"""Solving a puzzle with a model: clamp what is given, infill the rest, let the verifier judge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from latent_tokens.decoding import Decoding, generate
from latent_tokens.model import Transformer
from latent_tokens.pretrained import check_fits
from latent_tokens.tasks import Sudoku
from latent_tokens.tasks.base import Known, Tokens


@dataclass(frozen=True)
class Attempt:
    """A filled-in puzzle: its board (L,), the units that are not complete, which attempt it was, and tokens processed a board."""

    board: NDArray[np.uint8]
    broken: list[str]
    number: int
    processed: int


def solve(net: Transformer, task: Sudoku, tokens: Tokens, known: Known, decoding: Decoding, seed: int, attempts: int) -> Attempt:
    """The first valid of `attempts` boards that agree with the known cells, else the first. Attempt i draws from (seed, i).

    Raises ValueError where no solution exists or the net is of another size.
    """
    check_fits(net, task)
    if task.count_solutions(tokens, known, most=1) == 0:
        raise ValueError("puzzle has no solution: no conflict shows yet, but its given cells cannot all be right")
    device = next(net.parameters()).device
    rows = torch.from_numpy(np.repeat(tokens[None].astype(np.int64), attempts, 0)).to(device)
    clamped = torch.from_numpy(np.repeat(known[None], attempts, 0)).to(device)
    made = generate(net, net.method, rows, clamped, decoding, seed)
    boards = made.tokens.cpu().numpy().astype(np.uint8)
    valid = task.score(boards)["valid"].astype(bool)
    first = int(valid.argmax())
    return Attempt(boards[first], task.verify(boards[first]), first, int(made.processed[first]))
