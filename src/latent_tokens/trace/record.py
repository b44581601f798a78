"""One decode as data: what is known before it, its steps, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NotRequired, TypedDict

from latent_tokens.checkpoints.learned import check_fits
from latent_tokens.configs import SamplingConfig
from latent_tokens.core.cost import most_tokens
from latent_tokens.core.decoding import Decoding, check_decoding, is_off_distribution
from latent_tokens.core.generated import Step
from latent_tokens.core.method import name_of
from latent_tokens.data.loading import as_tensors
from latent_tokens.evaluation.problems import Batch, check_solvable, decode_batch, device_of
from latent_tokens.evaluation.settings import (
    decoding_for,
    for_puzzles,
    order_of_row,
    shown_candidates,
    shown_latents,
)
from latent_tokens.network.transformer import Transformer
from latent_tokens.tasks import Examples, Solvable, Text, errors_of
from latent_tokens.trace.boards import View, view


class StartSettings(TypedDict):
    """The settings of a decode, with defaults filled in. `off_distribution` is left out if it is false."""

    latents: int | str
    candidates: int | str
    order: str
    temperature: float
    seed: int
    off_distribution: NotRequired[bool]
    remask_every: NotRequired[int]
    remask_below: NotRequired[float]


class Start(TypedDict):
    """Everything known before the first step. Only a Sudoku has `side` and `box`."""

    model: str
    method: str
    task: str
    kind: str
    side: NotRequired[int]
    box: NotRequired[list[int]]
    columns: int
    heads: list[str]
    signs: list[str]
    tokens: list[int | None]
    words: list[str]
    settings: StartSettings
    dial: bool
    all_processed: int


class Frame(TypedDict):
    """A step: its cells, the predicted probabilities of masked ones, and the tokens processed so far."""

    step: int
    chosen: list[list[int]]  # pairs of a cell and its token
    again: NotRequired[list[int]]  # the cells that were masked again before the step
    candidates: list[int]
    latents: list[int]
    # by cell: pairs of a token and its probability, descending
    beliefs: dict[str, list[list[float]]]
    processed: int
    all_processed: int


class End(TypedDict):
    """The verdict and the cost. A text has no errors."""

    right: bool
    wrong: list[str]
    broken: list[int]
    processed: int
    seconds: float


class TraceRecord(TypedDict):
    """A decode."""

    start: Start
    frames: list[Frame]
    end: End


TOP_TOKENS = 6  # most likely tokens of a cell
NINE = 9  # on a board of 9x9, all digits
DIGITS = 3  # of a probability


@dataclass(frozen=True)
class LoadedModel:
    """A network, its task and its name.

    Raise ValueError if network and task do not fit, or the task has neither puzzles nor text.
    """

    name: str
    net: Transformer
    task: Solvable | Text

    def __post_init__(self) -> None:
        if not isinstance(self.task, Solvable | Text):
            raise ValueError(
                f"run={self.name}: a model of {self.task.name}, which has neither puzzles nor text. "
                "Use latent-tokens sample."
            )
        check_fits(self.net, self.task)


@dataclass(frozen=True)
class DecodeRequest:
    """A puzzle to decode with a model. The defaults of the settings are those of `latent-tokens solve`.

    Raise ValueError if it has no solution, or the method does not support the setting.
    """

    model: LoadedModel
    problem: Examples
    setting: SamplingConfig

    def __post_init__(self) -> None:
        method, problem = self.model.net.method, self.problem
        check_decoding(method, self.decoding)
        method.check_known(as_tensors(problem)[1])
        if problem.known[0, : int(problem.lengths[0])].all():
            raise ValueError("puzzle has nothing to solve: every cell is given")
        if not isinstance(self.model.task, Text):
            check_solvable(self.model.task, problem)

    @cached_property
    def decoding(self) -> Decoding:
        """The `Decoding` of the setting, with the defaults of `solve`, and for text those of `sample`."""
        method, task = self.model.net.method, self.model.task
        setting = self.setting if isinstance(task, Text) else for_puzzles(method, self.setting)
        return decoding_for(method, task, setting)

    @cached_property
    def view(self) -> View:
        return view(self.model.task, self.problem)


def verdict_of(trace: TraceRecord) -> str:
    """Return the verdict of a decode in one word."""
    if trace["start"]["kind"] == "text":
        return "decoded"
    return "solved" if trace["end"]["right"] else "wrong"


def trace(request: DecodeRequest) -> TraceRecord:
    """Decode a puzzle and return its trace."""
    frames: list[Frame] = []
    cell_of = {position: cell for cell, position in enumerate(request.view.positions)}
    length = int(request.problem.lengths[0])
    num_known = int(request.problem.known[0, :length].sum())
    decoded_before: set[int] = set()  # positions

    def on_step(step: Step) -> None:
        before = frames[-1]["processed"] if frames else 0
        num_decoded = int(step.layout.num_clean[0]) - num_known + step.chosen.shape[1]
        chosen, tokens = step.chosen[0].tolist(), step.tokens[0].tolist()
        decoded = zip(chosen, tokens, strict=True)
        again = decoded_before.difference(step.clean[0])
        decoded_before.difference_update(again)
        decoded_before.update(chosen)
        frame: Frame = {
            "step": int(step.number[0]),
            "chosen": [[cell_of[at], token] for at, token in decoded if at in cell_of],
            "candidates": [cell_of[at] for at in step.candidates[0] if at in cell_of],
            "latents": [cell_of[at] for at in step.latents[0] if at in cell_of],
            "beliefs": dict(top_probabilities(step, cell_of)),
            "processed": before + int(step.layout.num_shown[0]),
            "all_processed": length * num_decoded,
        }
        if again:
            frame["again"] = sorted(cell_of[at] for at in again if at in cell_of)
        frames.append(frame)

    # The sample is that of the first attempt of `latent-tokens solve`.
    task = request.model.task
    net = request.model.net
    batch = Batch.of(request.problem, device_of(net))
    decoded = decode_batch(net, batch, request.decoding, request.setting.seed, on_step)
    tokens = decoded.samples[0]
    wrong = [] if isinstance(task, Text) else errors_of(task, tokens, length)
    end: End = {
        "right": not wrong,
        "wrong": wrong,
        "broken": request.view.broken(tokens) if wrong else [],
        "processed": decoded.processed,
        "seconds": round(decoded.seconds, 3),
    }
    start = start_of(request)
    if isinstance(task, Text):
        seen = seen_tokens(start, frames)
        start["signs"] = [
            sign if token in seen else "" for token, sign in enumerate(start["signs"])
        ]
    return {"start": start, "frames": frames, "end": end}


def seen_tokens(start: Start, frames: list[Frame]) -> set[float | None]:
    """Return the tokens that a decode gives, decodes or predicts. A text may have 100,000 others."""
    decoded = [token for frame in frames for _, token in frame["chosen"]]
    beliefs = [pairs for frame in frames for pairs in frame["beliefs"].values()]
    return {*start["tokens"], *decoded, *(token for pairs in beliefs for token, _ in pairs)}


def start_of(request: DecodeRequest) -> Start:
    """Return everything known before the first step."""
    method = request.model.net.method
    board = request.view
    tokens = request.problem.tokens[0].tolist()
    is_known = request.problem.known[0].tolist()
    _, known, lengths = as_tensors(request.problem)
    settings = StartSettings(
        latents=shown_latents(method, request.decoding),
        candidates=shown_candidates(method, request.decoding),
        order=order_of_row(method, request.model.task, request.setting, request.decoding),
        temperature=request.decoding.temperature,
        seed=request.setting.seed,
    )
    if is_off_distribution(method, request.decoding.latents):
        settings["off_distribution"] = True
    if request.setting.remask_every is not None:
        settings["remask_every"] = request.setting.remask_every
    if request.setting.remask_below is not None:
        settings["remask_below"] = request.setting.remask_below
    start: Start = {
        "model": request.model.name,
        "method": name_of(method),
        "task": request.model.task.name,
        "kind": board.kind,
        "columns": board.columns,
        "heads": list(board.heads),
        "signs": list(board.signs),
        "tokens": [tokens[at] if is_known[at] else None for at in board.positions],
        "words": list(board.words),
        "settings": settings,
        "dial": method.latent_control == "free",
        "all_processed": int(most_tokens(lengths, known.sum(1))[0]),
    }
    if board.box is not None:
        start |= {"side": board.columns, "box": list(board.box)}
    return start


def top_probabilities(
    step: Step, cell_of: dict[int, int]
) -> Iterator[tuple[str, list[list[float]]]]:
    """Yield each masked cell with its most likely tokens and probabilities that do not round to 0."""
    masked = slice(int(step.layout.num_clean[0]), int(step.layout.num_shown[0]))
    probabilities = step.probabilities[0, masked]  # (masked slots, V)
    most = NINE if len(cell_of) == NINE**2 else TOP_TOKENS
    top = probabilities.topk(min(most, probabilities.shape[1]), dim=1)
    positions = step.layout.positions[0, masked].tolist()
    for position, tokens, values in zip(
        positions, top.indices.tolist(), top.values.tolist(), strict=True
    ):
        if position in cell_of:
            pairs = [[token, round(p, DIGITS)] for token, p in zip(tokens, values, strict=True)]
            yield str(cell_of[position]), [pair for pair in pairs if pair[1] > 0]
