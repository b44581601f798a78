"""latent-tokens data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from latent_tokens import processes
from latent_tokens.checks import check_int
from latent_tokens.commands.shared import Command
from latent_tokens.data.config import DataConfig

MOST_SHOWN = 1_000
NO_TOKEN = 255  # in no vocabulary: decodes as an empty cell


@dataclass(frozen=True, kw_only=True)
class Data(Command, DataConfig):
    """Make a data set, or convert one from a file.

    Examples:
        latent-tokens data sudoku-6 --num-train 10000 --out data/six
        latent-tokens data text --source book.txt --tokenizer bpe:4096 --length 128
    """

    task: Annotated[str, arg(metavar="TASK")]
    show: int | None = None
    """Print this many puzzles with their solutions and write nothing."""


def run_data(command: Data) -> int:
    """Run `latent-tokens data`. Print the directory or puzzles."""
    if command.show is not None:
        return show_data(command)
    if not processes.is_main():
        return 0  # rank 0 makes the data set, with one worker process per core

    from latent_tokens.data.datasets import make_counted, task_of
    from latent_tokens.data.loading import read_manifest
    from latent_tokens.progress import CONSOLE
    from latent_tokens.tasks import SPLITS, Text

    config = command.config(DataConfig)
    folder = make_counted(config)
    task = None if config.task == Text.name else task_of(config)
    _, manifest = read_manifest(folder, task)
    sizes = ", ".join(
        f"{split} {entry['examples']:,}" for split, entry in manifest["splits"].items()
    )
    counts = [
        f"{manifest[name]:,} {name.replace('_', ' ')}"
        for name in ("repeated", "empty", "too_long")
        if manifest.get(name)
    ]
    if config.apart_from and "kept_out" in manifest:  # of a file: 0 is a result, too
        counts.append(f"{manifest['kept_out']:,} shared with --apart-from")
    if "tokens" in manifest:
        sizes += f" sequences of {manifest['tokens']:,} different tokens"
    lines = [sizes + (f". Left out: {', '.join(counts)}" if counts else "")]
    if manifest.get("not_read"):
        lines.append(
            f"not read: {manifest['not_read']:,} files. A directory is searched for .txt, .md, "
            ".rst, .text and files without a suffix. Name a .jsonl file itself."
        )
    for split, num_requested in manifest.get("smaller_than_asked", {}).items():
        lines.append(f"{split} has fewer than {num_requested:,} examples: there are no more")
    for split in SPLITS if "tokens" in manifest else ():
        if split not in manifest["splits"] and getattr(config, f"num_{split}") != 0:
            lines.append(f"{split}: empty, there are too few documents. Use more text.")
    lines += [f"left out: {bad}" for bad in manifest.get("bad_rows", [])]
    for line in lines:
        CONSOLE.print(line, highlight=False, soft_wrap=True)
    print(folder)
    return 0


def show_data(command: Data) -> int:
    """Run `latent-tokens data --show`. Print puzzles with their solutions."""
    from latent_tokens.data.datasets import preview, task_of
    from latent_tokens.tasks import Sudoku

    config = command.config(DataConfig)
    if config.task == "text":
        raise ValueError("--show is for puzzles, not for text. Leave it out.")
    check_int("show", command.show, 1, MOST_SHOWN)
    task = task_of(config)
    examples = preview(task, config, command.show or 1)
    for tokens, known, length in zip(
        examples.tokens, examples.known, examples.lengths.tolist(), strict=True
    ):
        # The other tasks show their prompts themselves
        if isinstance(task, Sudoku) and known.any():
            print(task.decode(tokens | ~known * NO_TOKEN), end="\n\n")
        print(task.decode(tokens[:length]), end="\n\n")
    return 0
