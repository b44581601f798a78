"""Functions that several commands use."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from tyro.conf import arg

from latent_tokens.configs import NumLatents

if TYPE_CHECKING:
    from latent_tokens.network.transformer import Transformer
    from latent_tokens.tables import Sheet
    from latent_tokens.tasks import Solvable, Text

T = TypeVar("T")
RunName = Annotated[str, arg(metavar="RUN")]
RunNames = Annotated[tuple[str, ...], arg(metavar="RUN [RUN ...]")]
ManyLatents = Annotated[tuple[NumLatents, ...] | None, arg(metavar="N|all [N|all ...]")]
EvaluatorName = Annotated[str | None, arg(aliases=("--judge",), metavar="EVALUATOR")]
Output = Annotated[Path | None, arg(aliases=("-o",), metavar="FILE")]


class Command:
    """The flags of a command. A class that extends a config has its settings as flags.

    The config is made, and checks its values, when the command runs: an error is one line.
    """

    def __post_init__(self) -> None:
        pass

    def config(self, kind: type[T]) -> T:
        """Return a config with the values of the flags, and the defaults of settings without one."""
        flags = vars(self)
        names = [field.name for field in fields(kind) if field.name in flags]  # type: ignore[arg-type]
        return kind(**{name: flags[name] for name in names})


@dataclass(frozen=True, kw_only=True)
class OwnMethod:
    """Parts that a model directory lacks: a method of a user, or a LoRA adapter's base that was moved."""

    method: str | None = None
    """Method of the model if it has functions of your own, as module:name. Default: that of the
    model."""
    base: str | None = None
    """Base of a LoRA adapter, by directory or name. Default: the one that it was trained with."""


@dataclass(frozen=True, kw_only=True)
class OwnCode(OwnMethod):
    """In addition, the task of a user. A module is imported only if its name is typed."""

    task: str | None = None
    """Task of the model if it is your own, as module:Name. Default: that of the model."""

    def models(self, *runs: str) -> list[tuple[Path, Transformer, Solvable | Text]]:
        """Return (directory, model on the CPU, task) of each run.

        Raise ValueError if a model or its task cannot be opened, or none has the typed method.
        """
        from latent_tokens.checkpoints.files import find
        from latent_tokens.checkpoints.learned import learned_task
        from latent_tokens.hf.directory import open_models

        folders = [find(run) for run in runs]
        nets = open_models(*folders, method=self.method, base=self.base)
        tasks = [learned_task(folder, self.task) for folder in folders]
        return list(zip(folders, nets, tasks, strict=True))


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def keep_freed_memory() -> None:
    """Make glibc keep freed memory.

    A training step on a CPU allocates the same large blocks each time, and new blocks cost page
    faults.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


def latents_in_words(
    latents: int | str, candidates: int | str, is_off_distribution: bool = False
) -> str:
    """Return the number of latent tokens in the input of a step, in words."""
    if is_off_distribution:
        return f"{latents_in_words(latents, candidates)} (off-distribution)"
    if candidates == "all":
        return "0 latent tokens: all masked tokens are candidates"
    if latents == "all":
        return "all masked tokens that are not candidates are latent tokens"
    if latents == 0:
        return "0 latent tokens"
    return f"{latents} latent token{'' if latents == 1 else 's'} per step, fewer in the last steps"


def print_table(sheet: Sheet) -> None:
    """Print a table: fitted to a terminal, else complete."""
    from rich.console import Console

    if sys.stdout.isatty():
        sheet.print_to(Console())
    else:
        print(sheet)


def print_markdown(text: str, optional: tuple[str, ...]) -> None:
    """Print text with Markdown tables: fitted to a terminal, else as it is. `optional` is that of `Sheet`."""
    from rich.console import Console

    from latent_tokens.tables import Sheet, blocks

    if not sys.stdout.isatty():
        print(text, end="")
        return
    console = Console(highlight=False, markup=False)
    for block in blocks(text.splitlines(), optional):
        if isinstance(block, Sheet):
            block.print_to(console)
        else:
            console.print(block)


def check_outputs(outputs: Mapping[str, Path | None], replace: bool) -> None:
    """Raise ValueError if a file cannot be written. `outputs` has the file of each ending, or None."""
    for ending, path in outputs.items():
        if path is None:
            continue
        if path.is_dir() or path.suffix.lower() != ending:
            raise ValueError(f"{path}: must end with {ending}, and be a file. Choose another name.")
        if path.exists() and not replace:
            raise ValueError(f"{path}: exists. Choose another name, or add --replace.")
        if not path.absolute().parent.is_dir():
            raise ValueError(f"{path}: its directory does not exist. Create it first.")
