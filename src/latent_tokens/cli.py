"""The command line: parses, calls, prints. A user's mistake is one line and exit code 2."""

from __future__ import annotations

import ctypes
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import tyro
from tyro.conf import OmitArgPrefixes, Positional, PositionalRequiredArgs, subcommand

from latent_tokens.configs import DEFAULT_CANDIDATES, DataConfig, DemoConfig, EvalConfig, OrderName, TrainConfig, check_out, whole

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


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
    candidates: int | Literal["all"] | None = None
    """Of how many next positions an adaptive order decodes the most confident (k). Default: 8."""
    order: OrderName | None = None
    """top_prob, margin and entropy are adaptive. Default: top_prob, or left_to_right where the method is."""
    temperature: float = 1.0
    """0 takes the likeliest token."""
    top_p: float = 1.0
    """Draw from the smallest set of tokens that holds this much probability."""
    seed: int = 0
    """Sample number i draws from the stream (seed, i)."""
    json: bool = False
    """Print JSON lines with tokens and order instead of text."""


@dataclass(frozen=True)
class Solve:
    """Infill a puzzle with a model and say whether it is solved. Exit code 1 where it is not."""

    puzzle: Positional[str]
    """Its cells row by row, 0 or . for an empty one, or a file that holds them; the length says the size."""
    run: str | None = None
    """A run folder, or the name of a model that comes along. Default: the one that comes along for the size."""
    latents: int | Literal["all"] | None = None
    """Latent tokens to show. Default: as many as the method can use."""
    candidates: int | None = None
    """Of how many next cells the most confident is decoded (k). Default: 8, or 1 where the method is left to right."""
    temperature: float = 0.0
    """0 takes the likeliest digit."""
    attempts: int = 1
    """Boards to try; the first valid one is shown."""
    seed: int = 0
    """Attempt i draws from the stream (seed, i)."""


Command = Union[
    Annotated[DataConfig, subcommand("data", description="Make a data set: arrays and a manifest that pins them.")],
    Annotated[TrainConfig, subcommand("train", description="Train a model; the run folder holds all that repeats it.")],
    Annotated[Evaluate, subcommand("evaluate")],
    Annotated[Sample, subcommand("sample")],
    Annotated[Solve, subcommand("solve")],
    Annotated[DemoConfig, subcommand("demo")],
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code: 0, 1 for an unsolved puzzle, 2 for a user's mistake, 130 for Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        command: Any = tyro.cli(Command, prog="latent-tokens", args=arguments, config=(PositionalRequiredArgs,))
        return RUN[type(command)](command)
    except (ValueError, OSError) as error:
        print(f"latent-tokens: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        again = [*arguments, *([] if "--resume" in arguments else ["--resume"])]
        way_out = f"; go on with: latent-tokens {shlex.join(again)}" if arguments[:1] == ["train"] and stop.args else ""
        print(f"latent-tokens: {str(stop) or 'stopped'}{way_out}", file=sys.stderr)
        return 130


def run_data(config: DataConfig) -> int:
    """latent-tokens data: prints the folder."""
    from latent_tokens.data import make_data
    from latent_tokens.progress import progress

    with progress(f"making {config.task}", config.num_train + config.num_validation) as advance:
        folder = make_data(config, lambda made: advance(made, ""))
    print(folder)
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
    """latent-tokens sample: boards, or JSON lines."""
    import torch

    from latent_tokens.decoding import generate
    from latent_tokens.evaluation import as_numpy, decoding_for
    from latent_tokens.pretrained import find, from_pretrained

    whole("num_samples", command.num_samples, 1)
    net, task = from_pretrained(command.run), task_of(find(command.run))
    asked = EvalConfig(candidates=command.candidates, order=command.order, temperature=command.temperature, top_p=command.top_p, seed=command.seed)
    known = torch.zeros(command.num_samples, task.length, dtype=torch.bool)
    decoding = decoding_for(net.method, asked, command.latents)
    made = generate(net, net.method, known.long(), known, decoding, command.seed)
    boards = as_numpy(made.tokens)
    for board, order, score in zip(boards, made.order.tolist(), task.score(boards)[task.metric], strict=True):
        if command.json:
            print(json.dumps({"tokens": board.tolist(), "order": order, task.metric: bool(score)}))
        else:
            print(task.decode(board), f"{'' if score else 'not '}{task.metric}\n", sep="\n")
    return 0


def run_solve(command: Solve) -> int:
    """latent-tokens solve: the board and the verdict; 1 where it is not solved."""
    from latent_tokens.decoding import Decoding
    from latent_tokens.methods import most_latents
    from latent_tokens.order import left_to_right
    from latent_tokens.pretrained import from_pretrained, shipped_names
    from latent_tokens.solving import solve
    from latent_tokens.tasks.sudoku import read_puzzle

    whole("attempts", command.attempts, 1)
    task, tokens, known = read_puzzle(puzzle_text(command.puzzle))
    name = command.run or f"{task.name}-scdm"
    if command.run is None and name not in shipped_names():
        raise ValueError(f"no model for {task.side}x{task.side} comes along; train one (latent-tokens train {task.name} scdm) and name it with --run")
    net = from_pretrained(name)
    candidates = command.candidates or (1 if net.method.order is left_to_right else DEFAULT_CANDIDATES)
    latents = most_latents(net.method) if command.latents is None else command.latents
    decoding = Decoding(candidates, latents, temperature=command.temperature)
    attempt = solve(net, task, tokens, known, decoding, command.seed, command.attempts)
    verdict = "solved" if not attempt.broken else f"not solved: digits are missing in {', '.join(attempt.broken)}"
    tried = f" (attempt {attempt.number + 1} of {command.attempts})" if command.attempts > 1 else ""
    print(task.decode(attempt.board), f"{verdict}{tried}; {attempt.processed:,} tokens processed by {name}", sep="\n")
    return 1 if attempt.broken else 0


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


RUN: dict[type, Callable[[Any], int]] = {
    DataConfig: run_data,
    TrainConfig: run_train,
    Evaluate: run_evaluate,
    Sample: run_sample,
    Solve: run_solve,
    DemoConfig: run_demo,
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
    except OSError:
        return puzzle


def task_of(folder: Path) -> Any:
    """The task that a run folder's model learned."""
    from latent_tokens.data import with_source
    from latent_tokens.storage import read_description
    from latent_tokens.tasks import TASKS

    about = read_description(folder, "config.json", "model").get("task")
    if not isinstance(about, dict) or set(about) != {"name", "source"}:
        raise ValueError(f"{folder}: its config.json names no task; evaluate it in Python: evaluate(net, task, EvalConfig())")
    return with_source(TASKS[about["name"]], about["source"])


def entry() -> None:
    """The `latent-tokens` command."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
