"""latent-tokens data."""

from __future__ import annotations

from dataclasses import dataclass

from latent_tokens import processes
from latent_tokens.checks import check_int
from latent_tokens.configs import DataConfig

MOST_SHOWN = 1_000
NO_TOKEN = 255  # in no vocabulary: decodes as an empty cell


@dataclass(frozen=True)
class Data:
    """Make a data set, or convert one from a file."""

    config: DataConfig
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

    folder = make_counted(command.config)
    task = None if command.config.task == Text.name else task_of(command.config)
    _, manifest = read_manifest(folder, task)
    sizes = ", ".join(f"{split} {entry['examples']:,}" for split, entry in manifest["splits"].items())
    counts = [
        f"{manifest[name]:,} {name.replace('_', ' ')}"
        for name in ("repeated", "empty", "too_long")
        if manifest.get(name)
    ]
    if command.config.apart_from and "kept_out" in manifest:  # of a file: 0 is a result, too
        counts.append(f"{manifest['kept_out']:,} shared with --apart-from")
    if "tokens" in manifest:
        sizes += f" sequences of {manifest['tokens']:,} different tokens"
    CONSOLE.print(
        sizes + (f". Left out: {', '.join(counts)}" if counts else ""), highlight=False, soft_wrap=True
    )
    if manifest.get("not_read"):
        kinds = ".txt, .md, .rst, .text and files without a suffix"
        line = (
            f"not read: {manifest['not_read']:,} files. A directory is searched for {kinds}. "
            "Name a .jsonl file itself."
        )
        CONSOLE.print(line, highlight=False, soft_wrap=True)
    for split, num_requested in manifest.get("smaller_than_asked", {}).items():
        line = f"{split} has fewer than {num_requested:,} examples: there are no more different ones"
        CONSOLE.print(line, highlight=False, soft_wrap=True)
    for split in SPLITS if "tokens" in manifest else ():
        if split not in manifest["splits"] and getattr(command.config, f"num_{split}") != 0:
            CONSOLE.print(
                f"{split}: empty, there are too few documents. Use more text, or shorter documents.",
                highlight=False,
                soft_wrap=True,
            )
    for bad in manifest.get("bad_rows", []):
        CONSOLE.print(f"left out: {bad}", highlight=False, soft_wrap=True)
    print(folder)
    return 0


def show_data(command: Data) -> int:
    """Run `latent-tokens data --show`. Print puzzles with their solutions."""
    from latent_tokens.data.datasets import preview, task_of
    from latent_tokens.tasks import Sudoku

    config = command.config
    if config.task == "text":
        raise ValueError("--show is for puzzles, not for text. Leave it out.")
    check_int("show", command.show, 1)
    task = task_of(config)
    examples = preview(task, config, min(command.show or 1, MOST_SHOWN))
    for tokens, known in zip(examples.tokens, examples.known, strict=True):
        if isinstance(task, Sudoku) and known.any():  # the other tasks show their prompts themselves
            print(task.decode(tokens | ~known * NO_TOKEN), end="\n\n")
        print(task.decode(tokens), end="\n\n")
    return 0
