"""The problems of an evaluation as batches, and the answer to one puzzle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latent_tokens.checkpoints.learned import check_fits
from latent_tokens.checks import check_int
from latent_tokens.configs import EvalConfig, SamplingConfig, Split
from latent_tokens.core.cost import most_tokens
from latent_tokens.core.decoding import POLICIES, Decoding
from latent_tokens.core.generated import Generated, Step
from latent_tokens.core.method import Method
from latent_tokens.core.policies import LatentPolicy, influence, relevant
from latent_tokens.data.loading import as_numpy, as_tensors, load_data
from latent_tokens.data.splits import make_problems, make_splits
from latent_tokens.evaluation.settings import NONE, check_policy, decoding_for
from latent_tokens.network.fast import generate
from latent_tokens.network.transformer import Transformer
from latent_tokens.progress import counting
from latent_tokens.tasks import (
    Examples,
    Language,
    Solvable,
    Sudoku,
    SudokuPuzzle,
    Task,
    Text,
    errors_of,
    signature,
)
from latent_tokens.tasks.examples import Tokens

DEFAULT_SAMPLES = 1_000
NUM_PROBED = 64  # examples on which the influence of a model is measured


@dataclass(frozen=True)
class Batch:
    """B problems as tensors of L positions. Problem b draws from the random stream (seed, rows[b])."""

    examples: Examples
    tokens: Tensor  # Int[B, L]
    known: Tensor  # Bool[B, L]
    lengths: Tensor  # Int[B]
    rows: Tensor  # Int[B]

    @staticmethod
    def of(
        examples: Examples, device: torch.device | str, rows: NDArray[np.int64] | None = None
    ) -> Batch:
        """Return the batch of these examples. `rows` are by default 0..B-1."""
        tokens, known, lengths = as_tensors(examples, device)
        numbers = np.arange(len(examples.tokens)) if rows is None else rows
        return Batch(examples, tokens, known, lengths, torch.from_numpy(numbers).to(device))

    @property
    def most_tokens(self) -> int:
        """The tokens processed if every step's input has all masked tokens, summed over the problems."""
        return int(most_tokens(self.lengths, self.known.sum(1)).sum())


@dataclass(frozen=True)
class DecodedBatch:
    """A decoded batch: the result of `generate`, the samples as a task scores them, and the seconds."""

    generated: Generated
    samples: Tokens
    seconds: float

    @property
    def processed(self) -> int:
        """Tokens processed, summed over steps and problems."""
        return int(self.generated.tokens_processed.sum())


def batches(
    problems: Examples,
    batch_size: int,
    device: torch.device | str,
    which: NDArray[np.int64] | None = None,
) -> Iterator[Batch]:
    """Yield the problems `which`, by default all, in batches. Problem i draws from the stream (seed, i)."""
    chosen = np.arange(len(problems.tokens)) if which is None else which
    for start in range(0, len(chosen), batch_size):
        rows = chosen[start : start + batch_size]
        yield Batch.of(problems.take(rows), device, rows)


def decode_batch(
    net: Transformer,
    batch: Batch,
    decoding: Decoding,
    seed: int,
    on_step: Callable[[Step], None] | None = None,
) -> DecodedBatch:
    """Decode a batch. Raise ValueError as `generate` does.

    Every command decodes with this function, and scores with `task.score(decoded.samples,
    batch.examples)`.
    """
    begin = time.perf_counter()
    inputs = (net, net.method, batch.tokens, batch.known, decoding, seed)
    generated = generate(*inputs, rows=batch.rows, lengths=batch.lengths, on_step=on_step)
    samples = as_numpy(generated.tokens)
    return DecodedBatch(generated, samples, time.perf_counter() - begin)


def samples_in_words(task: Language, samples: Tokens, problems: Examples) -> list[str]:
    """Return samples as their task writes them, a text up to its first decoded end of document."""
    rows = zip(samples, problems.known, problems.lengths.tolist(), strict=True)
    if isinstance(task, Text):
        return [task.document(sample[:length], known[:length]) for sample, known, length in rows]
    return [task.decode(sample[:length]) for sample, _, length in rows]


def device_of(net: Transformer) -> torch.device:
    """Return the device of the weights, or the CPU if a network has none."""
    return next((weight.device for weight in net.parameters()), torch.device("cpu"))


def find_problems(task: Task, config: EvalConfig) -> Examples:
    """Return the problems to solve: those of the data set's test split, else generated ones.

    A model of Sudoku boards infills puzzles.

    Raises:
        ValueError: the test split has fewer problems, or is of another task.
    """
    if config.data is None:
        count = config.num_samples or DEFAULT_SAMPLES
        with counting(f"making {count:,} problems", count) as report:
            problems = make_problems(task, count, config.seed, report)
    else:
        problems = read_split(task, config.data, "test")
    available = len(problems.tokens)
    count = config.num_samples or min(DEFAULT_SAMPLES, available)
    if not 1 <= count <= available:
        problem = f"the test split of {config.data or task.name} has {available} problems"
        fix = f"at most num_samples={available}" if available else "a data set that has some"
        raise ValueError(f"num_samples={count}: {problem}. Use {fix}.")
    return problems.take(slice(count))


def read_split(task: Language, folder: Path, split: Split) -> Examples:
    """Return a split of a data set, empty if the data set does not have it.

    Puzzles become boards for a task of boards.

    Raises:
        ValueError: the data set is of another task.
    """
    data_task, splits = load_data(folder, (split,), task)
    examples = splits.get(split, Examples.of(np.zeros((0, data_task.length), np.uint8), 0))
    if (
        isinstance(task, Sudoku)
        and isinstance(data_task, SudokuPuzzle)
        and task.grid == data_task.grid
    ):
        return data_task.to_infill(examples, task)
    if signature(data_task) != signature(task):
        raise ValueError(
            f"data={folder}: has {signature(data_task)}, and the model learned {signature(task)}. "
            "Use a data set of its task."
        )
    return examples


def policy_for(net: Transformer, task: Language, config: EvalConfig) -> LatentPolicy:
    """Return the latent policy of a config. `relevant` measures the model's influence on validation examples.

    Raises:
        ValueError: there is no validation example.
    """
    if config.latent_policy != "relevant":
        return POLICIES[config.latent_policy or "nearest"]
    examples = None
    if config.data is not None:
        examples = read_split(task, config.data, "validation")
    elif isinstance(task, Task):
        splits = make_splits(task, {"validation": NUM_PROBED}, config.seed)
        examples = splits.examples().get("validation")
    if examples is None or not len(examples.tokens):
        raise ValueError(
            "latent_policy=relevant: the task has no validation examples. "
            "Name a data set with data=DIR, or use latent_policy=nearest."
        )
    batch = Batch.of(examples.take(slice(NUM_PROBED)), device_of(net))
    generator = torch.Generator().manual_seed(config.seed)
    most_masked = int((batch.lengths - batch.known.sum(1)).max())
    with counting("measuring influence", most_masked) as report:
        inputs = (net, net.method, batch.tokens, batch.known, generator)
        return relevant(influence(*inputs, lengths=batch.lengths, report=report))


def decoding_with_policy(
    net: Transformer,
    method: Method,
    task: Language,
    config: SamplingConfig,
    functions: Mapping[str, Any] = NONE,
) -> Decoding:
    """Return `decoding_for` with the latent policy of the config, which `policy_for` may measure."""
    decoding = decoding_for(method, task, config, functions)
    if "latent_policy" in functions:
        return decoding
    check_policy(method, config, [functions.get("latents", config.latents)])
    of_examples = EvalConfig(latent_policy=config.latent_policy, seed=config.seed)
    return replace(decoding, latent_policy=policy_for(net, task, of_examples))


@dataclass(frozen=True)
class Attempt:
    """An answered puzzle."""

    tokens: np.ndarray  # (L,), of unsigned integers
    wrong: list[str]  # the faults that the verifier lists, none if it is solved
    number: int  # which attempt it was, from 0
    processed: int  # tokens processed by the attempt


def solve(
    net: Transformer,
    task: Solvable,
    problem: Examples,
    decoding: Decoding,
    seed: int,
    attempts: int,
) -> Attempt:
    """Return the first correct one of `attempts` answers to a problem of one example, else the first.

    Attempt i draws from the random stream (seed, i).

    Args:
        net: the network, with its method.
        task: the task that it learned.
        problem: one example.
        decoding: the settings of decoding.
        seed: of the random streams.
        attempts: the number of answers to try.

    Raises:
        ValueError: the problem has no solution, or the net is of another size.

    Example:
        >>> problem = task.encode("1.....3............2................")
        >>> solve(net, task, problem, Decoding(candidates=8, latents=4), seed=0, attempts=5).tokens.shape
        (36,)
    """
    check_int("attempts", attempts, 1)
    check_fits(net, task)
    check_solvable(task, problem)
    batch = Batch.of(problem.take(np.zeros(attempts, np.int64)), device_of(net))
    decoded = decode_batch(net, batch, decoding, seed)
    length = int(problem.lengths[0])
    wrong = [errors_of(task, answer, length) for answer in decoded.samples]
    number = next((i for i, faults in enumerate(wrong) if not faults), 0)
    processed = int(decoded.generated.tokens_processed[number])
    return Attempt(decoded.samples[number], wrong[number], number, processed)


def check_solvable(task: Solvable, problem: Examples) -> None:
    """Raise ValueError if a problem of one example has no solution."""
    if task.count_solutions(problem, most=1) == 0:
        raise ValueError(
            "puzzle has no solution: its parts do not contradict each other openly, "
            "but no answer fits them all"
        )


def without_prompt(net: Transformer, task: Language, count: int, seed: int) -> Examples:
    """Return `count` problems of the test split, or texts to generate.

    Only texts of the readout "left" have a given token, the first: no slot is to its left.
    """
    if isinstance(task, Task):
        return make_problems(task, count, seed)
    if net.method.readout == "left":
        return task.encode("").take(np.zeros(count, np.int64))
    return Examples.of(np.zeros((count, task.length), np.uint16), 0)
