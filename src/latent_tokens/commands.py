"""What each command takes and does; everything heavy is imported when it is called, so that --help is quick."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tyro.conf import OmitArgPrefixes, Positional

from latent_tokens.checks import check_out, whole
from latent_tokens.configs import (
    DEFAULT_CANDIDATES,
    BenchConfig,
    DataConfig,
    DemoConfig,
    EvalConfig,
    OrderName,
    ReproduceConfig,
    TrainConfig,
)

MOST_SHOWN = 1_000
NO_TOKEN = 255  # of no task: decodes as an empty cell
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


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


@dataclass(frozen=True)
class Evaluate:
    """Measure a model: samples, their validity with its 95 % interval, and what they cost; a row a number of latents."""

    run: Positional[str]
    """A run folder, or the name of a model that comes along."""
    config: OmitArgPrefixes[EvalConfig] = field(default_factory=EvalConfig)
    out: Path | None = None
    """A folder for results.jsonl, missing or empty. Default: the run folder, to which rows are added."""
    json: bool = False
    """Print the rows as JSON lines instead of a table."""


@dataclass(frozen=True)
class Sample:
    """Draw samples from a model and print them, each with the verifier's word."""

    run: Positional[str]
    """A run folder, or the name of a model that comes along."""
    num_samples: int = 2
    """How many."""
    latents: int | Literal["all"] | None = None
    """Latent tokens to show. Default: the method's own."""
    candidates: int | Literal["all", "growing"] | None = None
    """Of how many next positions an adaptive order decodes the most confident (k): a number, all, or growing with the clean ones. Default: 8."""
    order: OrderName | None = None
    """top_prob, margin and entropy are adaptive. Default: top_prob, or left_to_right where the method is."""
    temperature: float | None = None
    """0 takes the likeliest token. Default: 0 for Countdown, 1 for the other tasks."""
    top_p: float = 1.0
    """Draw from the smallest set of tokens that holds this much probability."""
    seed: int = 0
    """Sample number i draws from the stream (seed, i)."""
    json: bool = False
    """Print JSON lines with tokens and order instead of text."""


@dataclass(frozen=True)
class Solve:
    """Answer a puzzle with a model and say whether it is solved. Exit code 1 where it is not."""

    puzzle: Positional[str]
    """Sudoku: its cells row by row, 0 or . for an empty one. Countdown: numbers and target, 86,28,13,31,96. Zebra: clue tokens. Or a file."""
    run: str | None = None
    """A run folder, or the name of a model that comes along. Default: the one that comes along for the Sudoku's size."""
    latents: int | Literal["all"] | None = None
    """Latent tokens to show. Default: as many as the method can use."""
    candidates: int | Literal["all", "growing"] | None = None
    """Of how many next cells the most confident is decoded (k): a number, all, or growing with the clean ones. Default: all, with --latents 8,
    1 from left to right."""
    temperature: float = 0.0
    """0 takes the likeliest token."""
    attempts: int = 1
    """Answers to try; the first right one is shown."""
    seed: int = 0
    """Attempt i draws from the stream (seed, i)."""


@dataclass(frozen=True)
class Bench:
    """Measure training and decoding on this machine, beside the machine's own limits and the plain ways."""

    config: OmitArgPrefixes[BenchConfig] = field(default_factory=BenchConfig)
    growth: Path | None = None
    """Instead, measure how decoding time grows with latents, length and batch, and write growth.png, growth.svg and growth.jsonl to this folder."""
    json: bool = False
    """Print the rows as JSON lines instead of a table."""


def run_data(command: Data) -> int:
    """latent-tokens data: prints the folder, puzzles to look at, or rates."""
    if command.show is not None and command.benchmark:
        raise ValueError("show with benchmark: name one of the two")
    if command.show is not None:
        return show_data(command.config, command.show)
    if command.benchmark:
        return benchmark_data(command.config, command.json)

    from latent_tokens.data import make_counted, read_manifest
    from latent_tokens.progress import CONSOLE

    folder = make_counted(command.config)
    _, manifest = read_manifest(folder)
    sizes = ", ".join(f"{split} {about['examples']:,}" for split, about in manifest["splits"].items())
    counts = ", ".join(f"{manifest[name]:,} {name.replace('_', ' ')}" for name in ("repeated", "too_long", "kept_out") if manifest.get(name))
    CONSOLE.print(sizes + (f"; left out: {counts}" if counts else ""), highlight=False, soft_wrap=True)
    for split, asked in manifest.get("smaller_than_asked", {}).items():
        line = f"{split} is smaller than the {asked:,} asked for: there are no more that are different"
        CONSOLE.print(line, highlight=False, soft_wrap=True)
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


def run_train(config: TrainConfig) -> int:
    """latent-tokens train: prints the run folder."""
    from latent_tokens.training import fit

    keep_freed_memory()
    print(fit(config))
    return 0


def run_evaluate(command: Evaluate) -> int:
    """latent-tokens evaluate: a table, or JSON lines."""
    from rich.console import Console

    from latent_tokens.evaluation import evaluate
    from latent_tokens.pretrained import SHIPPED, find, from_pretrained
    from latent_tokens.report import table
    from latent_tokens.storage import append_line

    net, folder = from_pretrained(command.run), find(command.run)
    if command.out is not None:
        check_out(command.out)
        command.out.mkdir(parents=True, exist_ok=True)
    kept = command.out or (None if SHIPPED in folder.parents else folder)

    def keep(row: dict[str, Any]) -> None:
        if command.json:
            print(json.dumps(row), flush=True)
        if kept is not None:
            append_line(kept / "results.jsonl", row)

    rows = evaluate(net, task_of(folder), command.config, on_row=keep)
    if not command.json:
        Console(width=None if sys.stdout.isatty() else 110).print(table(rows, f"{command.run}, {rows[0]['num_samples']:,} samples a row"))
    return 0


def run_sample(command: Sample) -> int:
    """latent-tokens sample: samples as text, or JSON lines."""
    from latent_tokens.evaluation import decoding_for
    from latent_tokens.fast import generate
    from latent_tokens.pretrained import find, from_pretrained
    from latent_tokens.splits import make_problems
    from latent_tokens.tensors import as_numpy, as_tensors

    whole("num_samples", command.num_samples, 1)
    net, task = from_pretrained(command.run), task_of(find(command.run))
    asked = EvalConfig(candidates=command.candidates, order=command.order, temperature=command.temperature, top_p=command.top_p, seed=command.seed)
    decoding = decoding_for(net.method, task, asked, command.latents)
    problems = make_problems(task, command.num_samples, command.seed)
    tokens, known, lengths = as_tensors(problems)
    made = generate(net, net.method, tokens, known, decoding, command.seed, lengths=lengths)
    samples = as_numpy(made.tokens)
    for sample, order, score in zip(samples, made.order.tolist(), task.score(samples, problems)[task.metric], strict=True):
        if command.json:
            print(json.dumps({"tokens": sample.tolist(), "order": order, task.metric: bool(score)}))
        else:
            print(task.decode(sample), f"{'' if score else 'not '}{task.metric}\n", sep="\n")
    return 0


def run_solve(command: Solve) -> int:
    """latent-tokens solve: the answer and the verdict; 1 where it is not solved."""
    from latent_tokens.decoding import Decoding
    from latent_tokens.evaluation import named_candidates
    from latent_tokens.methods import most_latents
    from latent_tokens.order import left_to_right
    from latent_tokens.pretrained import find, from_pretrained, shipped_names
    from latent_tokens.solving import solve
    from latent_tokens.tasks.sudoku import read_puzzle

    whole("attempts", command.attempts, 1)
    text = puzzle_text(command.puzzle)
    if command.run is None:
        if "," in text or "CLUE_END" in text:
            raise ValueError("a puzzle of Zebra or Countdown: no model of these comes along; train one and name it with --run")
        task, problem = read_puzzle(text)
        name = f"{task.name}-scdm"
        if name not in shipped_names():
            raise ValueError(
                f"no model for {task.side}x{task.side} comes along; train one (latent-tokens train {task.name} scdm) and name it with --run"
            )
        net = from_pretrained(name)
    else:
        name, net = command.run, from_pretrained(command.run)
        task = task_of(find(name))
        problem = task.encode(text)
    free: int | Literal["all"] = "all" if command.latents is None else DEFAULT_CANDIDATES  # where all are candidates there are no latents
    candidates = command.candidates or (1 if net.method.order is left_to_right else free)
    latents = most_latents(net.method) if command.latents is None else command.latents
    decoding = Decoding(named_candidates(candidates), latents, temperature=command.temperature)
    attempt = solve(net, task, problem, decoding, command.seed, command.attempts)
    verdict = "\n  ".join(["not solved:", *attempt.wrong]) if attempt.wrong else "solved"
    tried = f"attempt {attempt.number + 1} of {command.attempts}; " if command.attempts > 1 else ""
    print(task.decode(attempt.tokens), verdict, f"{tried}{attempt.processed:,} tokens processed by {name}", sep="\n")
    return 1 if attempt.wrong else 0


def run_demo(config: DemoConfig) -> int:
    """latent-tokens demo: the tables and where the figure is."""
    from rich.console import Console

    from latent_tokens.demo import demo
    from latent_tokens.report import table

    keep_freed_memory()
    rows, references = demo(config)
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(table(rows, f"sudoku-6: latent tokens n, {rows[0]['num_samples']:,} samples a row"))
    if references:
        console.print(table(references, "for comparison: models without a dial" + ("" if config.every_method else ", as they come with the package")))
    print(f"{config.out / 'latents.png'} and summary.json beside it")
    return 0


def run_bench(command: Bench) -> int:
    """latent-tokens bench: a table, or JSON lines; or the figure of growth."""
    from rich.console import Console

    from latent_tokens.bench import bench
    from latent_tokens.growth import grow
    from latent_tokens.report import speed_table

    keep_freed_memory()
    if command.growth is not None:
        check_out(command.growth)

    def keep(row: dict[str, Any]) -> None:
        if command.json:
            print(json.dumps(row), flush=True)

    rows = bench(command.config, on_row=keep) if command.growth is None else grow(command.config, command.growth, on_row=keep)
    if not command.json:
        Console(width=None if sys.stdout.isatty() else 130).print(speed_table(rows))
    return 0


def run_reproduce(config: ReproduceConfig) -> int:
    """latent-tokens reproduce: prints the table."""
    from latent_tokens.paper.reproduce import reproduce

    keep_freed_memory()
    print(reproduce(config), end="")
    return 0


RUN: dict[type, Callable[[Any], int]] = {
    Data: run_data,
    TrainConfig: run_train,
    Evaluate: run_evaluate,
    Sample: run_sample,
    Solve: run_solve,
    DemoConfig: run_demo,
    Bench: run_bench,
    ReproduceConfig: run_reproduce,
}


def keep_freed_memory() -> None:
    """Lets glibc keep what is freed: a CPU training step asks for the same large blocks each time, and fresh ones cost page faults."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


def puzzle_text(puzzle: str) -> str:
    """The puzzle itself, or what the file of that name holds."""
    try:
        path = Path(puzzle)
        return path.read_text() if path.is_file() else puzzle
    except UnicodeDecodeError:
        raise ValueError(f"{puzzle}: holds no text") from None
    except OSError:
        return puzzle


def task_of(folder: Path) -> Any:
    """The task that a run folder's model learned."""
    from latent_tokens.storage import read_description
    from latent_tokens.tasks import described

    try:
        return described(read_description(folder, "config.json", "model").get("task"))
    except ValueError as error:
        raise ValueError(f"{folder}: {error}; bring the task and evaluate in Python: evaluate(net, task, EvalConfig())") from None
