"""The settings of a data set. Standard library only, so that --help is quick."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from latent_tokens.checks import in_message
from latent_tokens.configs import Config, Split

OF_PUZZLE_TASKS = ("padding", "clues", "guessing", "houses", "attributes", "numbers", "targets")
"""Settings of a puzzle task: fields of its class."""
OF_PUZZLES = (*OF_PUZZLE_TASKS, "split", "skip_bad", "apart_from")
OF_TEXT = ("length", "tokenizer", "field")


@dataclass(frozen=True)
class DataConfig(Config):
    """A data set to make or to convert: splits that share no puzzle, and a manifest with checksums.

    Example:
        >>> DataConfig("zebra", houses=(3, 4), num_train=1_000).num_train
        1000
    """

    may_be_zero = ("seed", "num_train", "num_validation", "num_test")

    task: str
    """Task to make data for. {tasks}, module:Name of your own or text, which needs --source."""
    out: Path | None = None
    """Directory to write. It must be missing or empty. Default: data/TASK."""
    source: str | None = None
    """Source of the examples. For Sudoku boards: solver, pattern (few boards, much easier) or a
    file of puzzles. docs/tasks.md lists the formats. For text: a UTF-8 text file, a directory of
    them, a .jsonl file, a directory saved by the library datasets, or hub:OWNER/NAME[:CONFIG] on
    the Hugging Face Hub. Records with prompt and response, or messages, are learned as
    dialogues. Default: solver for Sudoku boards."""
    split: Split | None = None
    """Split that receives the puzzles of a file. Default: chosen by the hash of each puzzle
    (Countdown: of its target)."""
    skip_bad: bool = False
    """Leave out and list the invalid rows of a file. Otherwise the first invalid row is an
    error."""
    apart_from: tuple[Path, ...] = ()
    """Data sets whose puzzles are left out."""
    num_train: int | None = None
    """Number of training examples. Default: the paper's number, 100,000 for a small task, or all
    rows of a file."""
    num_validation: int | None = None
    """Number of validation examples. Default: 1,024, or all rows of a file."""
    num_test: int | None = None
    """Number of test examples. Default: 1,024, or all rows of a file."""
    padding: Literal["none", "paper"] | None = None
    """Padding of a sequence. paper: framed and padded to the paper's length, and padding is
    predicted too. Default: none."""
    clues: int | Literal["minimal"] | None = None
    """Number of clues of a Sudoku puzzle, or minimal: no clue can be removed. Default: minimal."""
    guessing: Literal["never", "allowed"] | None = None
    """Whether Sudoku puzzles may need more than deduction. Default: never."""
    houses: tuple[int, ...] | None = None
    """Numbers of houses to draw from, for zebra. Each is 3 to 6. Default: 3 4 5 6."""
    attributes: tuple[int, ...] | None = None
    """Numbers of attributes to draw from, for zebra. Each is 3 to 6. Default: 3 4 5 6."""
    numbers: int | None = None
    """Number of given numbers, for countdown. 3, 4 or 5. Default: the task's own."""
    targets: tuple[int, int] | None = None
    """Lowest and highest target, for countdown. Default: 10 100."""
    length: int | None = None
    """Tokens per sequence, for text. Default: 256."""
    tokenizer: str | None = None
    """Tokenizer, for text. bytes, bpe:SIZE (learned from the training documents), a
    tokenizer.json, a directory with one, or a name on the Hugging Face
    Hub. Default: bytes."""
    field: str | None = None
    """Field of each .jsonl line or data set row with the text, for text. Default: text."""
    seed: int = 0
    """Random seed. The data depend on the task, its settings and the seed only."""
    processes: int | None = None
    """Number of worker processes. The data do not depend on it. Default: one per core."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("apart_from", tuple(map(Path, self.apart_from)))
        if self.num_train == self.num_validation == self.num_test == 0:
            raise ValueError(
                "num_train=0 with num_validation=0 and num_test=0: there is nothing to make."
            )
        for name in OF_PUZZLES:
            value = getattr(self, name)
            if value and self.task == "text":
                raise ValueError(f"{name}={in_message(value)}: text has no such setting")
        for name in OF_TEXT:
            if getattr(self, name) is not None and self.task != "text":
                reason = f"is for text, and {self.task} has no such setting"
                raise ValueError(f"{name}={getattr(self, name)}: {reason}. Leave it out.")
        for name in ("split", "skip_bad"):
            if getattr(self, name) and not self.from_file:
                reason = "is for puzzles of a file. Name the file: source=FILE"
                raise ValueError(f"{name}={getattr(self, name)}: {reason}.")
        for split in get_args(Split) if self.split is not None else ():
            name, value = f"num_{split}", getattr(self, f"num_{split}")
            if value and split != self.split:
                reason = f"all puzzles of the file go to {self.split}"
                raise ValueError(
                    f"{name}={value}: {reason}. Use num_{self.split}={value}, or leave out split."
                )
        for name in ("clues", "guessing"):
            if getattr(self, name) is not None and self.from_file and self.task != "text":
                reason = f"is for generated puzzles, and {self.source} has its own. Leave it out"
                raise ValueError(f"{name}={getattr(self, name)}: {reason}.")

    @property
    def folder(self) -> Path:
        return Path("data", self.task.replace(":", ".")) if self.out is None else self.out

    @property
    def from_file(self) -> bool:
        return self.source not in (None, "solver", "pattern")
