"""The format of a trace, as docs/watching.md describes it."""

from __future__ import annotations

from typing import NotRequired, Protocol, TypedDict


class StartSettings(TypedDict):
    """The settings of a decode, with defaults filled in. `off_distribution` is left out if it is false."""

    latents: int | str
    candidates: int | str
    order: str
    temperature: float
    seed: int
    off_distribution: NotRequired[bool]


class BoardFormat(TypedDict):
    """The part of `start` that describes how cells are drawn. Only a Sudoku has `side` and `box`."""

    kind: str
    side: NotRequired[int]
    box: NotRequired[list[int]]
    columns: int
    heads: list[str]
    signs: list[str]


class Start(BoardFormat):
    """Everything known before the first step."""

    model: str
    method: str
    task: str
    tokens: list[int | None]
    words: list[str]
    settings: StartSettings
    dial: bool
    all_processed: int


class StepCells(TypedDict):
    """The cells of a step, and the predicted probabilities of candidate and latent ones."""

    step: int
    chosen: list[list[int]]  # pairs of a cell and its token
    candidates: list[int]
    latents: list[int]
    beliefs: dict[
        str, list[list[float]]
    ]  # by cell: pairs of a token and its probability, in descending order


class Frame(StepCells):
    """A step, with the tokens processed so far."""

    processed: int
    all_processed: int


class End(TypedDict):
    """The verdict and the cost."""

    right: bool
    wrong: list[str]
    broken: list[int]
    processed: int
    seconds: float


class Trace(TypedDict):
    """A decode."""

    start: Start
    frames: list[Frame]
    end: End


class Brief(TypedDict):
    """A decode without its steps: the answer's token of each cell."""

    start: Start
    end: End
    tokens: list[int]


class Tell(Protocol):
    """Receives the events of a decode: `start`, a `frame` per step, `end`."""

    def __call__(self, kind: str, payload: Start | Frame | End, /) -> None: ...
