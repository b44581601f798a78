"""The JSON that the server sends, as docs/watching.md describes it."""

from __future__ import annotations

from typing import Literal, TypedDict

from latent_tokens.trace.record import Brief, End, Frame, Start


class Point(TypedDict):
    """An event of /api/curve: the samples of one number of latent tokens so far."""

    latents: int | str
    done: int
    of: int
    right: int
    low: float
    high: float
    processed: float
    relative: float


class CurveEnd(TypedDict):
    """The last event of /api/curve."""

    seconds: float


class Fault(TypedDict):
    """The error of a request, in one line."""

    detail: str


class Example(TypedDict):
    """An example puzzle of a model."""

    puzzle: str
    label: str
    caption: str


class ModelEntry(TypedDict):
    """An entry of /api/models."""

    name: str
    task: str
    kind: str
    method: str
    parameters: int
    dial: bool
    side: int | None
    box: list[int] | None
    left_to_right: bool
    continues_prefix: bool
    candidates: int
    in_page: bool  # whether the page decodes with it, without the server
    examples: list[Example]


class CheckedPuzzle(TypedDict):
    """The answer of /api/check."""

    tokens: list[int | None]
    conflicts: list[int]
    words: list[str]
    solutions: int | None


class Slot(TypedDict):
    """A slot of the input in /api/masks."""

    position: int
    kind: str


class Mask(TypedDict):
    """The answer of /api/masks: `mask[q][k]` is true if slot q attends to slot k."""

    slots: list[Slot]
    mask: list[list[bool]]
    words: str
    order: Literal["left to right", "any"]


Payload = Start | Frame | End | Brief | Point | CurveEnd | Fault
