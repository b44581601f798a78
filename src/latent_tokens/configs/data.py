"""The settings of a data set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from latent_tokens.checks import check_choice, check_int
from latent_tokens.configs.forms import set_paths, set_texts, set_tuple

TaskName = Literal[
    "sudoku-4", "sudoku-6", "sudoku-9", "sudoku-16", "sudoku-36", "sudoku-puzzle", "sudoku-6-puzzle",
    "sudoku-9-pattern", "zebra", "zebra-3", "zebra-compact-3", "zebra-compact-4", "countdown", "countdown-3",
    "countdown-4", "sudoku-gen", "sudoku-large", "text",
]  # fmt: skip
Split = Literal["train", "validation", "test"]
MOST_PROCESSES = 1_024


@dataclass(frozen=True)
class DataConfig:
    """A data set to make or to convert: splits that share no puzzle, and a manifest with checksums.

    Example:
        >>> DataConfig("zebra", houses=(3, 4), num_train=1_000).num_train
        1000
    """

    task: str
    """Task to make data for. sudoku-4, sudoku-6, sudoku-9 (or sudoku-gen), sudoku-16, sudoku-36 (or
    sudoku-large), sudoku-9-pattern, sudoku-puzzle, sudoku-6-puzzle, zebra, zebra-3, zebra-compact-3,
    zebra-compact-4, countdown, countdown-3, countdown-4, module:Name of your own or text, which needs
    --source."""
    out: Path | None = None
    """Directory to write. It must be missing or empty. Default: data/TASK."""
    source: str | None = None
    """Source of the examples. For Sudoku boards: solver, pattern (few boards, much easier) or a file of
    puzzles. docs/tasks.md lists the formats. For text: a UTF-8 text file, a directory of them, a .jsonl file,
    a directory saved by the library datasets, or hub:OWNER/NAME[:CONFIG] on the Hugging Face Hub. Default:
    solver for Sudoku boards."""
    split: Split | None = None
    """Split that receives the puzzles of a file. Default: chosen by the hash of each puzzle (Countdown: of
    its target)."""
    skip_bad: bool = False
    """Leave out and list the invalid rows of a file. Otherwise the first invalid row is an error."""
    apart_from: tuple[Path, ...] = ()
    """Data sets whose puzzles are left out."""
    num_train: int | None = None
    """Number of training examples. Default: the paper's number, 100,000 for a small task, or all rows of a
    file."""
    num_validation: int | None = None
    """Number of validation examples. Default: 1,024, or all rows of a file."""
    num_test: int | None = None
    """Number of test examples. Default: 1,024, or all rows of a file."""
    padding: Literal["none", "paper"] | None = None
    """Padding of a sequence. paper: framed and padded to the paper's length, and padding is predicted too.
    Default: none."""
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
    """Tokenizer, for text. bytes, bpe:SIZE (learned from the training documents), a tokenizer.json, a
    directory with one, or a name on the Hugging Face Hub. Default: bytes."""
    field: str | None = None
    """Field of each .jsonl line or data set row with the text, for text. Default: text."""
    seed: int = 0
    """Random seed. The data depend on the task, its settings and the seed only."""
    processes: int | None = None
    """Number of worker processes. The data do not depend on it. Default: one per core."""

    def __post_init__(self) -> None:
        set_paths(self, "out")
        set_texts(self, "source", "tokenizer")
        set_tuple(self, "apart_from")
        object.__setattr__(self, "apart_from", tuple(map(Path, self.apart_from)))
        for name in ("num_train", "num_validation", "num_test"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 0)
        if self.num_train == self.num_validation == self.num_test == 0:
            raise ValueError(
                "num_train=0 with num_validation=0 and num_test=0: there is nothing to make. "
                "Ask for at least one example."
            )
        if self.processes is not None:
            check_int("processes", self.processes, 1)
            if self.processes > MOST_PROCESSES:
                raise ValueError(f"processes={self.processes}: must be at most {MOST_PROCESSES:,}")
        check_int("seed", self.seed, 0)
        check_choice("split", self.split, (None, *get_args(Split)))
        if not self.from_file and (self.split or self.skip_bad):
            name = "split" if self.split else "skip_bad"
            raise ValueError(
                f"{name}={getattr(self, name)}: is for puzzles of a file. Name the file: source=FILE."
            )
        if self.source is not None and not self.source.strip():
            raise ValueError("source=: is empty. Name a file or a directory.")
        for name in ("length", "tokenizer", "field"):
            if getattr(self, name) is not None and self.task != "text":
                raise ValueError(
                    f"{name}={getattr(self, name)}: is for text, and {self.task} has no such setting. "
                    "Leave it out."
                )

    @property
    def folder(self) -> Path:
        return Path("data", self.task.replace(":", ".")) if self.out is None else self.out

    @property
    def from_file(self) -> bool:
        return self.source not in (None, "solver", "pattern")
