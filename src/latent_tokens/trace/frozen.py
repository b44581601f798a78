"""Frozen boards with one cell to decode: its prediction without, with one and with all latent tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.configs import SamplingConfig
from latent_tokens.core.attention import dense_mask
from latent_tokens.core.denoiser import exclude_mask_token
from latent_tokens.core.layout import Layout
from latent_tokens.data.loading import as_tensors
from latent_tokens.evaluation.problems import batches, decode_batch, device_of
from latent_tokens.network.transformer import Transformer
from latent_tokens.progress import Advance
from latent_tokens.tasks import Examples, Sudoku, SudokuPuzzle
from latent_tokens.trace.boards import COMPARISONS, Comparison
from latent_tokens.trace.record import DecodeRequest, LoadedModel

TOGETHER = 25  # puzzles per batch


def puzzles(task: Sudoku, count: int, givens: int, seed: int) -> Examples:
    """Return generated puzzles with one solution each, as boards of the task with `givens` given cells."""
    generator = SudokuPuzzle(
        f"{task.name}-puzzle",
        task.grid.box_rows,
        task.grid.box_columns,
        clues=givens,
        guessing="allowed",
    )
    return generator.to_infill(generator.generate(count, seed), task)


def solved(
    model: LoadedModel, problems: Examples, setting: SamplingConfig, advance: Advance
) -> NDArray[np.bool_]:
    """Return which of N problems (N,) the model solves exactly.

    Each is decoded with the random numbers of a problem that is decoded alone.
    """
    decoding = DecodeRequest(model, problems.take(slice(1)), setting).decoding
    solved_in_batches = []
    for batch in batches(problems, TOGETHER, device_of(model.net)):
        first_stream = replace(batch, rows=torch.zeros_like(batch.rows))
        decoded = decode_batch(model.net, first_stream, decoding, setting.seed)
        solved_in_batches.append(model.task.score(decoded.samples, batch.examples)["exact"] == 1)
        advance(len(decoded.samples), "")
    return np.concatenate(solved_in_batches)


def compared(without: NDArray[np.bool_], with_all: NDArray[np.bool_]) -> dict[str, int]:
    """Return the numbers of puzzles solved with all latent tokens only, none only, both and neither."""
    pairs: dict[Comparison, NDArray[np.bool_]] = {
        "gained": with_all & ~without,
        "lost": without & ~with_all,
        "both": with_all & without,
        "neither": ~with_all & ~without,
    }
    return {kind: int(pairs[kind].sum()) for kind in COMPARISONS}


PAGE_RECORD = BUNDLED / "page.json"  # written by scripts/page_examples.py


class CellCounts(TypedDict):
    """How many states are predicted wrong without latent tokens, and what latent tokens change."""

    states: int
    wrong: int  # without latent tokens
    mended: int  # of these: right with all latent tokens
    mended_by_one: int  # of those: right with one latent token, for at least one cell
    spoiled: int  # right without latent tokens, wrong with all


class ChosenCell(TypedDict):
    """The state whose prediction changes most."""

    puzzle: str
    target: int
    latent: int  # the cell that changes the prediction most
    others: list[int]  # the other empty cells, in the order in which the slider takes them
    answer: int  # the token of the solution
    mistake: int  # the token predicted without latent tokens
    probability: float  # of the mistake
    probability_with_one: float  # of the answer, with the latent token
    helpful: int  # empty cells that alone make the prediction right


class Race(TypedDict):
    """Puzzles, and whether each is solved without latent tokens and with all."""

    puzzles: list[str]
    solved: dict[str, list[bool]]


class PageRecord(TypedDict):
    """What the page shows of a bundled model, and the hash of its weights."""

    model: str
    sha256: str
    givens: int
    seed: int
    counts: CellCounts
    cell: ChosenCell
    race: Race
    puzzles: dict[str, list[str]]  # by task: what the tab Curve decodes


@dataclass(frozen=True)
class FrozenBoards:
    """B boards with equally many given cells, each with a cell to decode and its other empty cells."""

    tokens: Int[Tensor, "B L"]
    known: Bool[Tensor, "B L"]
    target: Int[Tensor, " B"]
    others: Int[Tensor, "B N"]

    @classmethod
    def draw(cls, problems: Examples, seed: int) -> FrozenBoards:
        """Return the boards of puzzles, the empty cells of each in random order. The first is decoded."""
        tokens, known, _ = as_tensors(problems)
        generator = np.random.default_rng(seed)
        rows = [generator.permutation(np.flatnonzero(~row)) for row in problems.known]
        empty = torch.tensor(np.stack(rows))
        return cls(tokens, known, empty[:, 0], empty[:, 1:])

    @property
    def answer(self) -> Int[Tensor, " B"]:
        return self.tokens.gather(1, self.target[:, None])[:, 0]

    def predict(self, net: Transformer, latents: Int[Tensor, "B M"]) -> Float[Tensor, "B M1 V"]:
        """Return the predicted probabilities of the latent cells, then of the cell to decode."""
        assert net.method is not None
        clean = torch.argsort(~self.known, dim=1, stable=True)[:, : int(self.known[0].sum())]
        positions = torch.cat([clean, latents, self.target[:, None]], 1)
        num_rows, num_slots = positions.shape
        layout = Layout(
            positions, torch.full((num_rows,), clean.shape[1]), torch.full((num_rows,), num_slots)
        )
        ids = net.method.input_ids(self.tokens, layout, net.mask_id)
        with torch.inference_mode():
            logits = net(ids, positions, dense_mask(net.method.attention, layout))
        return exclude_mask_token(net.mask_id, logits[:, clean.shape[1] :].float()).softmax(-1)


def measure(net: Transformer, boards: FrozenBoards, task: Sudoku) -> tuple[CellCounts, ChosenCell]:
    """Return what latent tokens change in the predictions, and the state to show.

    The shown state is wrong without latent tokens and right with all. One latent token makes it
    right: there the model predicts the mistake, in the same row, column or box. The chosen state is
    the one whose smallest probability is largest.
    """
    # Predict without, with one and with all latent tokens.
    rows = torch.arange(len(boards.target))
    without = boards.predict(net, boards.others[:, :0])[:, -1]
    with_all = boards.predict(net, boards.others)[:, -1]
    singles = torch.stack([boards.predict(net, cell[:, None]) for cell in boards.others.T], 1)
    with_one = singles[:, :, -1]  # (B, N, V)

    # Count the states that they change.
    mistake = without.argmax(-1)
    is_right = mistake == boards.answer
    right_with_all = with_all.argmax(-1) == boards.answer
    right_with_one = with_one.argmax(-1) == boards.answer[:, None]
    mended = ~is_right & right_with_all
    counts: CellCounts = {
        "states": len(rows),
        "wrong": int((~is_right).sum()),
        "mended": int(mended.sum()),
        "mended_by_one": int((mended & right_with_one.any(1)).sum()),
        "spoiled": int((is_right & ~right_with_all).sum()),
    }

    # Choose the state, and the latent token that explains it.
    takes_mistake = singles[:, :, 0].gather(
        2, mistake[:, None, None].expand(-1, singles.shape[1], 1)
    )[..., 0]
    answer_with_one = with_one.gather(
        2, boards.answer[:, None, None].expand(-1, singles.shape[1], 1)
    )[..., 0]
    strength = torch.minimum(takes_mistake, answer_with_one)
    strength = torch.minimum(strength, without.gather(1, mistake[:, None]))
    peers = torch.from_numpy(peers_of(task))[boards.target].gather(1, boards.others)
    strength = strength.where(mended[:, None] & right_with_one & peers, torch.zeros(()))
    state, latent = divmod(int(strength.argmax()), strength.shape[1])
    others = boards.others[state].tolist()
    chosen: ChosenCell = {
        "puzzle": board_text(boards.tokens[state].tolist(), boards.known[state].tolist()),
        "target": int(boards.target[state]),
        "latent": others[latent],
        "others": others,
        "answer": int(boards.answer[state]),
        "mistake": int(mistake[state]),
        "probability": round(float(without[state, mistake[state]]), 3),
        "probability_with_one": round(float(answer_with_one[state, latent]), 3),
        "helpful": int(right_with_one[state].sum()),
    }
    return counts, chosen


def peers_of(task: Sudoku) -> NDArray[np.bool_]:
    """Return which cells are in a row, column or box with each cell: (cells, cells)."""
    num_cells = task.side**2
    peers = np.zeros((num_cells, num_cells), bool)
    for unit in task.grid.cells_of:
        peers[np.ix_(unit, unit)] = True
    return peers & ~np.eye(num_cells, dtype=bool)


def board_text(tokens: Sequence[int], known: Sequence[bool]) -> str:
    """Return a board as one line of digits, with a dot for each empty cell."""
    return "".join(
        str(token + 1) if given else "." for token, given in zip(tokens, known, strict=True)
    )
