"""One decode as a trace: plain JSON that contains everything needed to draw it step by step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, cast, get_args

from latent_tokens.checkpoints.pretrained import check_fits
from latent_tokens.checks import check_choice, check_int, check_min
from latent_tokens.configs import DEFAULT_CANDIDATES, EvalConfig, OrderName
from latent_tokens.core.cost import most_tokens
from latent_tokens.core.decoding import Decoding, Generated, Step, check_decoding
from latent_tokens.core.methods import Method, name_of
from latent_tokens.data.tensors import as_numpy, as_tensors
from latent_tokens.evaluation.evaluate import (
    CONFIDENCES,
    decoding_for,
    default_order,
    named_candidates,
    shown_candidates,
    shown_latents,
)
from latent_tokens.evaluation.solve import check_solvable
from latent_tokens.network.fast import generate
from latent_tokens.network.transformer import Transformer
from latent_tokens.tasks import Examples, Language, Solvable
from latent_tokens.trace.boards import View, view
from latent_tokens.trace.events import BoardFormat, Brief, End, Frame, Start, Tell, Trace
from latent_tokens.trace.steps import cells_of


@dataclass(frozen=True)
class DecodeSettings:
    """How a puzzle is to be decoded; None is what `latent-tokens solve` does.

    Raises ValueError for a value out of range.
    """

    latents: int | Literal["all"] | None = None  # None: as many as the method can use
    candidates: int | Literal["all", "growing"] | None = (
        None  # None: all, with a number of latents 8; one where the order is not adaptive
    )
    order: OrderName | None = None
    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.latents not in (None, "all"):
            check_int("latents", self.latents, 0)
        if self.candidates not in (None, "all", "growing"):
            check_int("candidates", self.candidates, 1)
        check_choice("order", self.order, (None, *get_args(OrderName)))
        check_min("temperature", self.temperature, 0)
        check_int("seed", self.seed, 0)


@dataclass(frozen=True)
class LoadedModel:
    """A network, its task and its name.

    Raise ValueError if network and task do not fit, or the task has no puzzles.
    """

    name: str
    net: Transformer
    task: Solvable

    def __post_init__(self) -> None:
        check_fits(self.net, solvable(self.name, self.task))


@dataclass(frozen=True)
class DecodeRequest:
    """A puzzle to decode with a model.

    Raise ValueError if it has no solution, or the method does not support the setting.
    """

    model: LoadedModel
    problem: Examples
    setting: DecodeSettings

    def __post_init__(self) -> None:
        method, problem = self.model.net.method, self.problem
        check_decoding(method, self.decoding)
        method.check_known(as_tensors(problem)[1])
        if problem.known[0, : int(problem.lengths[0])].all():
            raise ValueError("puzzle has nothing to solve: every cell is given")
        check_solvable(self.model.task, problem)

    @cached_property
    def decoding(self) -> Decoding:
        """As `latent-tokens solve` decodes, with an order where one is asked for."""
        method, task, asked = self.model.net.method, self.model.task, self.setting
        free: int | Literal["all"] = (
            "all" if asked.latents is None else DEFAULT_CANDIDATES
        )  # where all are candidates there are no latents
        most: Literal["all"] | None = None if method.latent_control == "none" else "all"
        latents = most if asked.latents is None else asked.latents
        found = decoding_for(
            method, task, EvalConfig(order=asked.order, temperature=asked.temperature), latents
        )
        return (
            replace(found, candidates=named_candidates(asked.candidates or free))
            if self.order in CONFIDENCES
            else found
        )

    @property
    def order(self) -> str:
        return self.setting.order or default_order(self.model.net.method, self.model.task)

    @cached_property
    def view(self) -> View:
        return view(self.model.task, self.problem)


def solvable(name: str, task: Language) -> Solvable:
    """Return the task of a model. Raise ValueError if it has no puzzles."""
    if not isinstance(task, Solvable):
        raise ValueError(
            f"run={name}: a model of {task.name}, which has no puzzles; use latent-tokens sample --show"
        )
    return task


def has_free_latents(method: Method) -> bool:
    """Return whether the number of latent tokens can be set at inference."""
    return method.latent_control == "free"


def start_of(request: DecodeRequest) -> Start:
    """Return everything known before the first step."""
    method = request.model.net.method
    board = request.view
    return {
        "model": request.model.name,
        "method": name_of(method),
        "task": request.model.task.name,
        **board_format(board),
        "tokens": given(board, request.problem),
        "words": list(board.words),
        "settings": {
            "latents": shown_latents(method, request.decoding),
            "candidates": shown_candidates(request.decoding),
            "order": request.order,
            "temperature": request.decoding.temperature,
            "seed": request.setting.seed,
        },
        "dial": has_free_latents(method),
        "all_processed": all_processed(request.problem),
    }


def board_format(board: View) -> BoardFormat:
    """Return the part of `start` that describes how cells are drawn."""
    entries: BoardFormat = {
        "kind": board.kind,
        "columns": board.columns,
        "heads": list(board.heads),
        "signs": list(board.signs),
    }
    if board.box is not None:
        entries["side"] = board.columns
        entries["box"] = list(board.box)
    return entries


def given(board: View, problem: Examples) -> list[int | None]:
    """Return the given token of each cell, or None."""
    tokens = problem.tokens[0].tolist()
    known = problem.known[0].tolist()
    return [tokens[position] if known[position] else None for position in board.positions]


def all_processed(problem: Examples) -> int:
    """Return the tokens processed by a decode with all latent tokens, one token per step."""
    _, known, lengths = as_tensors(problem)
    return int(most_tokens(lengths, known.sum(1))[0])


def watch(request: DecodeRequest, tell: Tell) -> Generated:
    """Decode a puzzle and tell `start`, a `frame` per step, and `end`.

    An exception of `tell` ends the decoding.
    """
    tell("start", start_of(request))
    cell_of = {position: cell for cell, position in enumerate(request.view.positions)}
    length = int(request.problem.lengths[0])
    num_known = int(request.problem.known.sum())
    processed = 0

    def on_step(step: Step) -> None:
        nonlocal processed
        processed += int(step.layout.num_shown[0])
        num_decoded = int(step.layout.num_clean[0]) - num_known + step.chosen.shape[1]
        frame: Frame = {
            **cells_of(step, cell_of),
            "processed": processed,
            "all_processed": length * num_decoded,
        }
        tell("frame", frame)

    result, seconds = decode(request, on_step)
    tell("end", end_of(request, result, seconds))
    return result


def decode(request: DecodeRequest, on_step: Callable[[Step], None] | None = None) -> tuple[Generated, float]:
    """Return the result of `generate` and its seconds.

    It draws the samples of `latent-tokens solve` at its first attempt.
    """
    net = request.model.net
    start_time = time.perf_counter()
    tokens, known, lengths = as_tensors(request.problem, next(net.parameters()).device)
    result = generate(
        net,
        net.method,
        tokens,
        known,
        request.decoding,
        request.setting.seed,
        lengths=lengths,
        on_step=on_step,
    )
    return result, time.perf_counter() - start_time


def end_of(request: DecodeRequest, result: Generated, seconds: float) -> End:
    """Return the verdict, with the errors in words and their cells, and the cost."""
    tokens = as_numpy(result.tokens[0])
    wrong = request.model.task.verify(tokens)
    return {
        "right": not wrong,
        "wrong": wrong,
        "broken": request.view.broken(tokens) if wrong else [],
        "processed": int(result.processed[0]),
        "seconds": round(seconds, 3),
    }


def trace(request: DecodeRequest) -> Trace:
    """Decode a puzzle and return its trace."""
    events: list[Start | Frame | End] = []
    watch(request, lambda kind, payload: events.append(payload))
    start, *frames, end = events
    return {"start": cast(Start, start), "frames": cast(list[Frame], frames), "end": cast(End, end)}


def brief(request: DecodeRequest, on_step: Callable[[Step], None]) -> Brief:
    """Decode a puzzle and return its trace without the steps, and the tokens of the answer."""
    result, seconds = decode(request, on_step)
    tokens = result.tokens[0].tolist()
    return {
        "start": start_of(request),
        "end": end_of(request, result, seconds),
        "tokens": [tokens[position] for position in request.view.positions],
    }
