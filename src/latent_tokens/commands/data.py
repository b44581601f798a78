"""latent-tokens data."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tyro.conf import OmitArgPrefixes

from latent_tokens import processes
from latent_tokens.checks import whole
from latent_tokens.configs import DataConfig

MOST_SHOWN = 1_000
NO_TOKEN = 255  # of no task: decodes as an empty cell


@dataclass(frozen=True)
class Data:
    """Make a data set, or read one from a file: arrays in three splits that share no puzzle, and a manifest that pins them."""

    config: OmitArgPrefixes[DataConfig]
    show: int | None = None
    """Print so many puzzles with their solutions as a person would draw them, and write nothing."""
    benchmark: bool = False
    """Measure how many examples a second this machine makes, in one process and in two, and write nothing."""
    json: bool = False
    """Print the benchmark's rows as JSON lines."""


def run_data(command: Data) -> int:
    """latent-tokens data: prints the folder, puzzles to look at, or rates."""
    if command.config.task == "text" and (command.show is not None or command.benchmark):
        raise ValueError("show and benchmark: are for puzzles; a text is looked at where it is")
    if command.show is not None and command.benchmark:
        raise ValueError("show with benchmark: name one of the two")
    if command.show is not None:
        return show_data(command.config, command.show)
    if command.benchmark:
        return benchmark_data(command.config, command.json)

    if not processes.is_first():
        return 0  # the first makes it, in as many processes as there are cores

    from latent_tokens.data import make_counted, read_manifest
    from latent_tokens.progress import CONSOLE
    from latent_tokens.tasks import SPLITS

    folder = make_counted(command.config)
    _, manifest = read_manifest(folder)
    sizes = ", ".join(f"{split} {about['examples']:,}" for split, about in manifest["splits"].items())
    counts = ", ".join(f"{manifest[name]:,} {name.replace('_', ' ')}" for name in ("repeated", "empty", "too_long", "kept_out") if manifest.get(name))
    if "tokens" in manifest:
        sizes += f" sequences of {manifest['tokens']:,} different tokens"
    CONSOLE.print(sizes + (f"; left out: {counts}" if counts else ""), highlight=False, soft_wrap=True)
    if manifest.get("not_read"):
        line = f"not read: {manifest['not_read']:,} files; of a folder .txt, .md, .rst, .text and no ending are taken, name a .jsonl itself"
        CONSOLE.print(line, highlight=False, soft_wrap=True)
    for split, asked in manifest.get("smaller_than_asked", {}).items():
        line = f"{split} is smaller than the {asked:,} asked for: there are no more that are different"
        CONSOLE.print(line, highlight=False, soft_wrap=True)
    for split in SPLITS if "tokens" in manifest else ():
        if split not in manifest["splits"] and getattr(command.config, f"num_{split}") != 0:
            CONSOLE.print(f"{split}: nothing, there are too few documents for it", highlight=False, soft_wrap=True)
    for bad in manifest.get("bad_rows", []):
        CONSOLE.print(f"left out: {bad}", highlight=False, soft_wrap=True)
    print(folder)
    return 0


def show_data(config: DataConfig, count: int) -> int:
    """latent-tokens data --show: puzzles with their solutions as a person would draw them."""
    from latent_tokens.data import preview, task_of
    from latent_tokens.tasks import Sudoku

    whole("show", count, 1)
    if count > MOST_SHOWN:
        raise ValueError(f"show={count}: must be at most {MOST_SHOWN:,}")
    task = task_of(config)
    examples = preview(task, config, count)
    for tokens, known in zip(examples.tokens, examples.known, strict=True):
        if isinstance(task, Sudoku) and known.any():  # the other tasks show their prompts themselves
            print(task.decode(tokens | ~known * NO_TOKEN), end="\n\n")
        print(task.decode(tokens), end="\n\n")
    return 0


def benchmark_data(config: DataConfig, as_json: bool) -> int:
    """latent-tokens data --benchmark: rates, as a line each or as JSON lines."""
    from latent_tokens.data import task_of
    from latent_tokens.rates import measure_rates

    if config.from_file:
        raise ValueError(f"source={config.source}: a benchmark is of examples that are made here; leave it out")
    for row in measure_rates(task_of(config)):
        print(json.dumps(row) if as_json else f"{row['task']}, {row['what']}: {row['rate']:,} {row['unit']} on {row['cores']} core(s)", flush=True)
    return 0
