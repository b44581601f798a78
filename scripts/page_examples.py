"""Select the example puzzles of the page, and count how often latent tokens matter.

    python scripts/page_examples.py
    python scripts/page_examples.py --scale smoke      # few puzzles, to try it in a copy of the repository

writes examples.json (puzzles solved with and without latent tokens) and page.json (the boards of the first
scene, and which of a hundred boards are solved at each n) into src/latent_tokens/bundled, and prints the
counts. It takes 8 minutes on 2 vCPUs. Run it again after the bundled models change: a test compares the hash
of their weights with the files.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.configs import SamplingConfig
from latent_tokens.core.attention import dense_mask
from latent_tokens.core.cost import tokens_processed
from latent_tokens.core.denoiser import token_logits
from latent_tokens.core.layout import Layout
from latent_tokens.data.loading import as_tensors
from latent_tokens.data.splits import dataset
from latent_tokens.evaluation.compare import mcnemar
from latent_tokens.hf.directory import from_pretrained
from latent_tokens.network.transformer import Transformer
from latent_tokens.progress import progress
from latent_tokens.storage import json_bytes, sha256_of, write_atomic
from latent_tokens.tasks import TASKS, Examples, Sudoku
from latent_tokens.trace.examples import (
    COMPARISONS,
    MEASURED,
    PAGE_RECORD,
    Comparison,
    compared,
    puzzles,
    solved,
)
from latent_tokens.trace.record import DIGITS, TOP_TOKENS, LoadedModel

LATENTS: tuple[int | Literal["all"], ...] = (0, 4, "all")
SEED = 0  # of the puzzles, the cells and every decode
KEPT: dict[Comparison, int] = {"gained": 3, "lost": 1, "both": 1}
NUM_SHOWN = 100  # boards of the second scene
NUM_GIVENS = 4  # of each of them
ORDERS = (("left_to_right", 1), ("uniform", 1), ("top_prob", 4), ("entropy", 4))  # compared, each with its k


class PuzzleSet(NamedTuple):
    """Generated puzzles with one solution each, and the candidate set size k to decode them with."""

    task: str
    num_puzzles: int
    num_givens: int
    candidates: int


SETS = {
    "full": (PuzzleSet("sudoku-6", 400, 14, 4), PuzzleSet("sudoku-9", 150, 36, 8)),
    "smoke": (PuzzleSet("sudoku-6", 2, 24, 4), PuzzleSet("sudoku-9", 1, 60, 8)),
}
ON_PAGE = {"full": PuzzleSet("sudoku-6", 400, 14, 4), "smoke": PuzzleSet("sudoku-6", 4, 14, 4)}


def loaded(task: str) -> LoadedModel:
    """Return the bundled scdm of a task."""
    return LoadedModel(f"{task}-scdm", from_pretrained(f"{task}-scdm"), TASKS[task])


def drawn(puzzle_set: PuzzleSet) -> Examples:
    """Return the puzzles of a set."""
    task = TASKS[puzzle_set.task]
    assert isinstance(task, Sudoku)
    return puzzles(task, puzzle_set.num_puzzles, puzzle_set.num_givens, SEED)


def solved_by_latents(
    model: LoadedModel, problems: Examples, numbers: Sequence[int | Literal["all"]], *settings: Any
) -> dict[str, NDArray[np.bool_]]:
    """Return which problems a model solves with each number of latent tokens."""
    results = {}
    for latents in numbers:
        with progress(f"{model.name}, n = {latents}", len(problems.tokens)) as advance:
            sampling = SamplingConfig(latents, *settings, seed=SEED)
            results[str(latents)] = solved(model, problems, sampling, advance)
    return results


def example_record(puzzle_set: PuzzleSet) -> dict[str, Any]:
    """Return the record of one task: the counts over the set, and the first puzzles of each kind in KEPT."""
    model = loaded(puzzle_set.task)
    problems = drawn(puzzle_set)
    results = solved_by_latents(model, problems, LATENTS, puzzle_set.candidates)
    with_all = np.where(results["0"], "both", "gained")
    kinds = np.where(results["all"], with_all, np.where(results["0"], "lost", "neither"))
    chosen = [(kind, int(i)) for kind, count in KEPT.items() for i in np.flatnonzero(kinds == kind)[:count]]
    texts = texts_of(problems)
    return {
        "model": model.name,
        "sha256": sha256_of(BUNDLED / model.name / "model.safetensors"),
        "puzzles": len(problems),
        "givens": puzzle_set.num_givens,
        "candidates": puzzle_set.candidates,
        "seed": SEED,
        "solved": {latents: int(is_solved.sum()) for latents, is_solved in results.items()},
        **compared(results["0"], results["all"]),
        "examples": [
            {
                "puzzle": texts[index],
                "kind": kind,
                "solved": {latents: bool(is_solved[index]) for latents, is_solved in results.items()},
            }
            for kind, index in chosen
        ],
    }


def page_record(puzzle_set: PuzzleSet) -> dict[str, Any]:
    """Return what the page shows of the bundled model, measured on this many puzzles."""
    model = loaded(puzzle_set.task)
    problems = drawn(puzzle_set)
    counts, corrected, spoiled = measure(model.net, OneCellBoards.draw(problems, SEED), model.task)
    return {
        "model": model.name,
        "sha256": sha256_of(BUNDLED / model.name / "model.safetensors"),
        "givens": puzzle_set.num_givens,
        "seed": SEED,
        "counts": counts,
        "corrected": corrected,
        "spoiled": spoiled,
        "hundred": hundred_record(model, problems.take(slice(NUM_SHOWN))),
    }


def hundred_record(model: LoadedModel, with_one_solution: Examples) -> dict[str, Any]:
    """Return which boards are solved from left to right at each n, from 0 to the largest, and the cost.

    Args:
        model: decodes them.
        with_one_solution: puzzles to compare the orders on. The boards of the scene are as many, with few
            givens and many solutions, of which each counts.
    """
    assert isinstance(model.task, Sudoku)
    boards = with_few_givens(model.task, len(with_one_solution.tokens))
    length = model.task.length
    numbers = range(length - NUM_GIVENS)
    results = solved_by_latents(model, boards, numbers, 1, "left_to_right")
    return {
        "order": "left_to_right",
        "candidates": 1,
        "givens": NUM_GIVENS,
        "puzzles": texts_of(boards),
        "solved": ["".join(str(int(bit)) for bit in is_solved) for is_solved in results.values()],
        "processed": [tokens_processed(length, NUM_GIVENS, 1, n) for n in numbers],
        "orders": [row for problems in (boards, with_one_solution) for row in order_rows(model, problems)],
    }


def order_rows(model: LoadedModel, problems: Examples) -> list[dict[str, Any]]:
    """Return how many problems are solved in each of ORDERS, with each of LATENTS."""
    rows = []
    for order, candidates in ORDERS:
        results = solved_by_latents(model, problems, LATENTS, candidates, order)
        counts = {latents: int(is_solved.sum()) for latents, is_solved in results.items()}
        givens = int(problems.known[0].sum())
        rows.append({"givens": givens, "order": order, "candidates": candidates, "solved": counts})
    return rows


def with_few_givens(task: Sudoku, count: int) -> Examples:
    """Return valid boards of which NUM_GIVENS random cells each are given."""
    boards = dataset(task, "test", count, SEED)
    generator = np.random.default_rng(SEED)
    cells = np.stack([generator.permutation(task.length)[:NUM_GIVENS] for _ in range(count)])
    known = np.zeros_like(boards.known)
    np.put_along_axis(known, cells, True, axis=1)
    return replace(boards, known=known)


def texts_of(problems: Examples) -> list[str]:
    """Return each puzzle as one line of digits, with a dot for each empty cell."""
    boards = zip(problems.tokens.tolist(), problems.known.tolist(), strict=True)
    return [board_text(*board) for board in boards]


@dataclass(frozen=True)
class OneCellBoards:
    """B boards with equally many given cells, each with a cell to decode and its other empty cells."""

    tokens: Int[Tensor, "B L"]
    known: Bool[Tensor, "B L"]
    target: Int[Tensor, " B"]
    others: Int[Tensor, "B N"]

    @classmethod
    def draw(cls, problems: Examples, seed: int) -> OneCellBoards:
        """Return the boards of puzzles, the empty cells of each in random order. The first is decoded."""
        tokens, known, _ = as_tensors(problems)
        generator = np.random.default_rng(seed)
        rows = [generator.permutation(np.flatnonzero(~row)) for row in problems.known]
        empty = torch.tensor(np.stack(rows))
        return cls(tokens, known, empty[:, 0], empty[:, 1:])

    @property
    def answer(self) -> Int[Tensor, " B"]:
        """The token of the cell to decode."""
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
        return token_logits(net, logits[:, clean.shape[1] :].float()).softmax(-1)


def measure(
    net: Transformer, boards: OneCellBoards, task: Sudoku
) -> tuple[dict[str, int], dict[str, Any], dict[str, Any]]:
    """Return what latent tokens change in the predictions, and the two boards to show.

    The first board is wrong without latent tokens and right with all. One latent token makes it
    right: there the model predicts the mistake, in the same row, column or box. The second board is
    right without latent tokens and wrong with all, and one latent token makes it wrong. Of all such
    boards, the one is shown whose smallest probability is largest.
    """
    # Predict without, with one and with all latent tokens.
    without = boards.predict(net, boards.others[:, :0])[:, -1]
    with_all = boards.predict(net, boards.others)[:, -1]
    singles = torch.stack([boards.predict(net, cell[:, None]) for cell in boards.others.T], 1)
    with_one = singles[:, :, -1]  # (B, N, V)

    # Count the boards that they change.
    first = without.argmax(-1)
    is_right = first == boards.answer
    right_with_all = with_all.argmax(-1) == boards.answer
    right_with_one = with_one.argmax(-1) == boards.answer[:, None]
    corrected = ~is_right & right_with_all
    spoiled = is_right & ~right_with_all
    counts = {
        "states": len(boards.target),
        "right": int(is_right.sum()),  # without latent tokens
        "right_with_all": int(right_with_all.sum()),
        "right_with_one": int(right_with_one[:, 0].sum()),  # with one in a random cell
        "corrected": int(corrected.sum()),  # wrong without, right with all
        "spoiled": int(spoiled.sum()),  # right without, wrong with all
    }

    # The clearest board that a guess of the mistake corrects, in the same row, column or box.
    guesses_mistake = chances(singles[:, :, 0], first[:, None])
    peers = torch.from_numpy(peers_of(task))[boards.target].gather(1, boards.others)
    strength = torch.minimum(guesses_mistake, chances(with_one, boards.answer[:, None]))
    strength = torch.minimum(strength, chances(without, first)[:, None])
    shown = shown_board(boards, without, singles, strength * (corrected[:, None] & right_with_one & peers))

    # The clearest board that a guess spoils.
    strength = torch.minimum(with_one.amax(-1), chances(without, first)[:, None])
    mirror = shown_board(boards, without, singles, strength * (spoiled[:, None] & ~right_with_one))
    return counts, shown, mirror


def chances(probabilities: Float[Tensor, "*B V"], tokens: Int[Tensor, "*C"]) -> Float[Tensor, "*B"]:
    """Return the probability of a token, for each of some predictions."""
    tokens = tokens.expand(probabilities.shape[:-1])
    return probabilities.gather(-1, tokens[..., None])[..., 0]


def shown_board(
    boards: OneCellBoards,
    without: Float[Tensor, "B V"],
    singles: Float[Tensor, "B N 2 V"],
    strength: Float[Tensor, "B N"],
) -> dict[str, Any]:
    """Return the board and the latent token of the largest strength, with their predictions."""
    state, latent = divmod(int(strength.argmax()), strength.shape[1])
    others = boards.others[state].tolist()
    answer = int(boards.answer[state])
    guesses, predictions = singles[state].unbind(1)
    is_right = predictions.argmax(-1) == answer
    return {
        "puzzle": board_text(boards.tokens[state].tolist(), boards.known[state].tolist()),
        "target": int(boards.target[state]),
        "latent": others[latent],  # the cell whose guess changes the prediction most
        "others": others,  # in random order
        "answer": answer,
        "right_with": int(is_right.sum()),  # empty cells with which the prediction is right
        "predictions": {
            "without": ranked(without[state]),
            "with_one": [ranked(prediction) for prediction in predictions],  # with each of the others
            "guesses": [ranked(guess) for guess in guesses],  # of each of the others
        },
    }


def ranked(probabilities: Float[Tensor, " V"]) -> list[list[float]]:
    """Return the tokens and their probabilities, as a frame of a trace has them."""
    top = probabilities.topk(TOP_TOKENS)
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [[token, round(p, DIGITS)] for token, p in pairs if round(p, DIGITS) > 0]


def peers_of(task: Sudoku) -> NDArray[np.bool_]:
    """Return which cells are in a row, column or box with each cell: (cells, cells)."""
    num_cells = task.side**2
    peers = np.zeros((num_cells, num_cells), bool)
    for unit in task.grid.cells_of:
        peers[np.ix_(unit, unit)] = True
    return peers & ~np.eye(num_cells, dtype=bool)


def board_text(tokens: Sequence[int], known: Sequence[bool]) -> str:
    """Return a board as one line of digits, with a dot for each empty cell."""
    return "".join(str(token + 1) if given else "." for token, given in zip(tokens, known, strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the bundled models, write the records and print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", choices=tuple(SETS), default="full")
    scale = parser.parse_args(arguments).scale
    records = {puzzle_set.task: example_record(puzzle_set) for puzzle_set in SETS[scale]}
    write_atomic({MEASURED: json_bytes(records)})
    for task, record in records.items():
        rates = ", ".join(f"n = {latents}: {count}" for latents, count in record["solved"].items())
        kinds = ", ".join(f"{words}: {record[kind]}" for kind, words in COMPARISONS.items())
        print(f"{task}, {record['puzzles']} puzzles, solved at {rates}. {kinds}.")

    page = page_record(ON_PAGE[scale])
    write_atomic({PAGE_RECORD: json_bytes(page)})
    p_value = mcnemar(page["counts"]["corrected"], page["counts"]["spoiled"])
    print(f"Cells predicted without and with latent tokens: {page['counts']}, McNemar's p = {p_value:.3f}")
    solved_counts = [bits.count("1") for bits in page["hundred"]["solved"]]
    print(f"Solved of {NUM_SHOWN} boards of {NUM_GIVENS} givens from left to right, by n: {solved_counts}")
    for row in page["hundred"]["orders"]:
        counts = ", ".join(f"n = {latents}: {count}" for latents, count in row["solved"].items())
        print(f"{row['givens']} givens, {row['order']}, k = {row['candidates']}: {counts}")


if __name__ == "__main__":
    main()
