"""One decode as frames: plain JSON that holds all that is needed to draw it, step by step, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

from jaxtyping import Float
from torch import Tensor

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

Event = dict[str, Any]
Tell = Callable[[str, Event], None]

MOST_BELIEFS = 6  # at a cell
NINE = 9  # on a board of 9x9 all digits
DIGITS = 3  # of a probability


@dataclass(frozen=True)
class DecodeSettings:
    """How a puzzle is to be decoded; None is what `latent-tokens solve` does. Raises ValueError for a value out of range."""

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
    """A network, what it learned, and the name that it goes by. Raises ValueError where they do not fit, or the task has no puzzles."""

    name: str
    net: Transformer
    task: Solvable

    def __post_init__(self) -> None:
        check_fits(self.net, solvable(self.name, self.task))


@dataclass(frozen=True)
class DecodeRequest:
    """A puzzle that a model is to decode in a setting. Raises ValueError where it has no answer, or the method cannot decode so."""

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
    """The task of a model of that name. Raises ValueError where it has no puzzles."""
    if not isinstance(task, Solvable):
        raise ValueError(
            f"run={name}: a model of {task.name}, which has no puzzles; use latent-tokens sample --show"
        )
    return task


def has_free_latents(method: Method) -> bool:
    """Whether the number of latents is free when sampling."""
    return method.latent_control == "free"


def start_of(asked: DecodeRequest) -> Event:
    """What is known before the first step; docs/watching.md says what each entry holds."""
    model, drawn, problem, method = asked.model, asked.view, asked.problem, asked.model.net.method
    return {
        "model": model.name,
        "method": name_of(method),
        "task": model.task.name,
        **drawn_as(drawn),
        "tokens": given(drawn, problem),
        "words": list(drawn.words),
        "settings": {
            "latents": shown_latents(method, asked.decoding),
            "candidates": shown_candidates(asked.decoding),
            "order": asked.order,
            "temperature": asked.decoding.temperature,
            "seed": asked.setting.seed,
        },
        "dial": has_free_latents(method),
        "all_processed": all_processed(problem),
    }


def drawn_as(drawn: View) -> Event:
    """The part of `start` that says how cells are drawn."""
    board = {} if drawn.box is None else {"side": drawn.columns, "box": list(drawn.box)}
    return {
        "kind": drawn.kind,
        **board,
        "columns": drawn.columns,
        "heads": list(drawn.heads),
        "signs": list(drawn.signs),
    }


def given(drawn: View, problem: Examples) -> list[int | None]:
    """The token that is given at each cell, or None."""
    return [int(problem.tokens[0, place]) if problem.known[0, place] else None for place in drawn.positions]


def all_processed(problem: Examples) -> int:
    """Tokens that a decode of the problem processes when all masked tokens are shown at every step, one decoded a step."""
    _, known, lengths = as_tensors(problem)
    return int(most_tokens(lengths, known.sum(1))[0])


def watch(asked: DecodeRequest, tell: Tell) -> Generated:
    """Decodes the puzzle and tells of it: `start`, a `frame` a step, `end`. What `tell` raises ends the decoding."""
    tell("start", start_of(asked))
    cell_of = {place: cell for cell, place in enumerate(asked.view.positions)}
    length, known, processed = int(asked.problem.lengths[0]), int(asked.problem.known.sum()), 0

    def on_step(step: Step) -> None:
        nonlocal processed
        processed += int(step.layout.num_shown[0])
        decoded = int(step.layout.num_clean[0]) - known + step.chosen.shape[1]
        tell("frame", {**frame_of(step, cell_of), "processed": processed, "all_processed": length * decoded})

    made, seconds = answer(asked, on_step)
    tell("end", end_of(asked, made, seconds))
    return made


def answer(asked: DecodeRequest, on_step: Callable[[Step], None] | None = None) -> tuple[Generated, float]:
    """(what `generate` gives for the puzzle, seconds). It draws from the stream (seed, 0), as the first attempt of `latent-tokens solve`."""
    net, begun = asked.model.net, time.perf_counter()
    tokens, known, lengths = as_tensors(asked.problem, next(net.parameters()).device)
    made = generate(
        net, net.method, tokens, known, asked.decoding, asked.setting.seed, lengths=lengths, on_step=on_step
    )
    return made, time.perf_counter() - begun


def frame_of(step: Step, cell_of: dict[int, int]) -> Event:
    """What one step shows and decodes, of its only row. Positions that are not drawn are left out."""
    pairs = zip(step.chosen[0].tolist(), step.tokens[0].tolist(), strict=True)
    places = step.layout.positions[0].tolist()
    first, end = int(step.layout.num_clean[0]), int(step.layout.num_shown[0])
    return {
        "step": int(step.number[0]),
        "chosen": [[cell_of[place], token] for place, token in pairs if place in cell_of],
        "candidates": [cell_of[place] for place in step.candidates[0] if place in cell_of],
        "latents": [cell_of[place] for place in step.latents[0] if place in cell_of],
        "beliefs": dict(beliefs(places[first:end], step.probabilities[0, first:end], cell_of)),
    }


def beliefs(
    places: list[int], probabilities: Float[Tensor, "N V"], cell_of: dict[int, int]
) -> Iterator[tuple[str, list[list[float]]]]:
    """(the number of a cell, its likeliest tokens with their probabilities, the likeliest first), those left out that round to 0."""
    most = probabilities.topk(
        min(NINE if len(cell_of) == NINE**2 else MOST_BELIEFS, probabilities.shape[1]), dim=1
    )
    for place, tokens, values in zip(places, most.indices.tolist(), most.values.tolist(), strict=True):
        if place in cell_of:
            rounded = [[token, round(value, DIGITS)] for token, value in zip(tokens, values, strict=True)]
            yield str(cell_of[place]), [pair for pair in rounded if pair[1] > 0]


def end_of(asked: DecodeRequest, made: Generated, seconds: float) -> Event:
    """The verdict: what is wrong in words and where, and what it cost."""
    tokens = as_numpy(made.tokens[0])
    wrong = asked.model.task.verify(tokens)
    broken = asked.view.broken(tokens) if wrong else []
    return {
        "right": not wrong,
        "wrong": wrong,
        "broken": broken,
        "processed": int(made.processed[0]),
        "seconds": round(seconds, 3),
    }


def trace(asked: DecodeRequest) -> Event:
    """The whole decode as one object: `start`, `frames` and `end`."""
    found: dict[str, list[Event]] = {"start": [], "frame": [], "end": []}
    watch(asked, lambda kind, event: found[kind].append(event))
    return {"start": found["start"][0], "frames": found["frame"], "end": found["end"][0]}


def brief(asked: DecodeRequest, on_step: Callable[[Step], None]) -> Event:
    """The trace without frames, and the answer's cells."""
    made, seconds = answer(asked, on_step)
    tokens = made.tokens[0].tolist()
    return {
        "start": start_of(asked),
        "end": end_of(asked, made, seconds),
        "tokens": [tokens[place] for place in asked.view.positions],
    }
