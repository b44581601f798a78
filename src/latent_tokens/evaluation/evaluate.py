"""Measuring a model: generate, score, a 95 % interval, and what it cost. One row for each number of latent tokens."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from latent_tokens import processes
from latent_tokens.checkpoints.pretrained import check_fits
from latent_tokens.configs import DEFAULT_CANDIDATES, EvalConfig, Split
from latent_tokens.core.confidence import entropy, margin, top_prob
from latent_tokens.core.cost import most_tokens, relative_cost
from latent_tokens.core.decoding import Decoding, Step, check_decoding, growing
from latent_tokens.core.methods import Method, name_of
from latent_tokens.core.order import LatentPolicy, Order, any_order, left_to_right, nearest, random
from latent_tokens.core.relevance import influence, relevant
from latent_tokens.data.datasets import fingerprint, load_data
from latent_tokens.data.splits import make_problems, make_splits
from latent_tokens.data.tensors import as_numpy, as_tensors
from latent_tokens.evaluation.intervals import wilson
from latent_tokens.evaluation.results import in_percent
from latent_tokens.network.fast import generate
from latent_tokens.network.transformer import Transformer
from latent_tokens.progress import counting, progress
from latent_tokens.storage import provenance
from latent_tokens.tasks import Examples, Language, Sudoku, SudokuPuzzle, Task, Text, description
from latent_tokens.tasks.base import Tokens

CONFIDENCES = {"top_prob": top_prob, "margin": margin, "entropy": entropy}
ORDERS: dict[str, Order] = {"uniform": any_order, "left_to_right": left_to_right}
POLICIES: dict[str, LatentPolicy] = {"nearest": nearest, "random": random}

Row = dict[str, Any]
Adjust = Callable[[Transformer, Task, Decoding], Decoding]

DEFAULT_SAMPLES = 1_000
PROBED = 64  # examples that a model's influence is measured on


class Watcher(Protocol):
    """Sees every step of every batch, and adds what it found to the row."""

    def begin(self, rows: int, length: int) -> None: ...

    def __call__(self, step: Step) -> None: ...

    def end(self, tokens: Tokens, right: NDArray[np.bool_]) -> None: ...

    def found(self) -> Row: ...


def evaluate(
    net: Transformer,
    task: Task,
    config: EvalConfig,
    *,
    adjust: Adjust | None = None,
    watcher: Callable[[], Watcher] | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """The rows of results.jsonl, one a number of latents; `on_row` receives each as soon as it is measured.

    `adjust` has the last word on how is decoded; a watcher, one a row, sees every step and adds to the row.

    Percentages are of samples; `processed` and `forward_passes` are counted, the latter a batch; `relative_cost` is
    tokens relative to showing all masked tokens, `paper_cost` the same by the paper's formula (D-21, relative cost), None where n or k is a rule;
    seconds are of decoding alone. The net is left in eval mode. Raises ValueError where the net is not of the task, or its method
    cannot decode so.
    """
    check_fits(net, task)
    decodings = [decoding_for(net.method, task, config, latents) for latents in config.latents or (None,)]
    for decoding in decodings:
        check_decoding(net.method, decoding)
    check_choice(net.method, config)
    problems = find_problems(task, config)
    model = deepcopy(net.eval()).bfloat16() if config.precision == "bf16" else net.eval()
    policy = policy_for(model, task, config)
    about: Row = {
        "problems": config.data.name if config.data else None,
        "problems_sha256": fingerprint(problems),
    }
    about |= {"precision": config.precision, "made_with": provenance()}
    rows = []
    for decoding in decodings:
        asked = replace(decoding, latent_policy=policy)
        row = measure(
            model,
            task,
            problems,
            config,
            adjust(model, task, asked) if adjust else asked,
            watcher and watcher(),
        )
        rows.append(in_percent({**row, **about}))
        if processes.is_main():
            on_row(rows[-1])
    return rows


def find_problems(task: Task, config: EvalConfig) -> Examples:
    """The problems to solve, of the test split: of the config's data set, else made on the spot; where nothing is given, that, again and again.

    A model of Sudoku boards infills puzzles. Raises ValueError where the data set has not so many, or is of another task.
    """
    if config.data is None:
        count = config.num_samples or DEFAULT_SAMPLES
        with counting(f"making {count:,} problems", count) as made:
            problems = make_problems(task, count, config.seed, made)
        check_enough(config.num_samples or len(problems.tokens), len(problems.tokens), task.name)
        return problems
    problems = read_split(task, config.data, "test")
    count = config.num_samples or min(DEFAULT_SAMPLES, len(problems.tokens))
    check_enough(count, len(problems.tokens), str(config.data))
    return problems.take(slice(count))


def read_split(task: Language, folder: Path, split: Split) -> Examples:
    """A split of a data set, puzzles as boards to infill where the task is boards; of no example where it has none.

    Raises ValueError where it is of another task.
    """
    found, splits = load_data(folder, (split,))
    examples = splits.get(split, Examples.of(np.zeros((0, found.length), np.uint8), 0))
    if isinstance(task, Sudoku) and isinstance(found, SudokuPuzzle) and task.grid == found.grid:
        return found.to_infill(examples, task)
    if form(found) != form(task):
        raise ValueError(
            f"data={folder}: has {form(found)}, and the model learned {form(task)}. Use a data set of its task."
        )
    return examples


def check_enough(count: int, available: int, name: str) -> None:
    """Raises ValueError where a test split has not so many problems."""
    if not available:
        raise ValueError(f"{name} has no problems in the test split. Make a data set that has some.")
    if not 1 <= count <= available:
        raise ValueError(
            f"num_samples={count}: the test split of {name} has {available} problems. Use at most num_samples={available}."
        )


def form(task: Language) -> str:
    """What must be alike where a model is judged on a data set; how its puzzles are made need not be."""
    about = {"padding": "none", **description(task)}
    if isinstance(task, Text):
        about = {"tokenizer": f"{task.tokenizer} ({task.fingerprint})"}
    settings = ", ".join(
        f"{name}={about[name]}" for name in ("padding", "numbers", "tokenizer") if name in about
    )
    return f"{type(task).__name__} of {task.length} positions over {task.vocab_size} tokens, {settings}"


def measure(
    net: Transformer,
    task: Task,
    problems: Examples,
    config: EvalConfig,
    decoding: Decoding,
    watcher: Watcher | None = None,
) -> Row:
    """One row: an answer to each problem, judged."""

    def ended(samples: Tokens, part: Examples) -> None:
        if watcher is not None:
            watcher.end(samples, task.score(samples, part)[task.metric].astype(bool))

    samples, costs = answer(net, problems, config, decoding, watcher, ended)
    scores, count = task.score(samples, problems), len(samples)
    share = float(scores[task.metric].mean())
    return {
        **setting_of(net.method, task, config, decoding),
        "metric": task.metric,
        task.metric: round(100 * share, 2),
        "ci95": [round(100 * bound, 2) for bound in wilson(share, count)],
        "num_samples": count,
        **{name: round(float(values.mean()), 4) for name, values in scores.items() if name != task.metric},
        **costs,
        **({} if watcher is None else watcher.found()),
    }


def setting_of(method: Method, task: Language, config: EvalConfig, decoding: Decoding) -> Row:
    """What a row was decoded with."""
    return {
        "task": task.name,
        "method": name_of(method),
        "order": config.order or default_order(method, task),
        "latents": shown_latents(method, decoding),
        "candidates": shown_candidates(decoding),
        **({} if decoding.tokens_per_step == 1 else {"tokens_per_step": decoding.tokens_per_step}),
    }


def answer(
    net: Transformer,
    problems: Examples,
    config: EvalConfig,
    decoding: Decoding,
    watcher: Watcher | None = None,
    ended: Callable[[Tokens, Examples], None] = lambda samples, part: None,
) -> tuple[Tokens, Row]:
    """(an answer to each problem, in batches that do not matter to them; what they cost and how they were drawn). `ended` hears of every batch.

    Each process answers its share, and all of them get all; seconds are those of the slowest. Raises ValueError for a watcher of several.
    """
    if watcher is not None and processes.world_size() > 1:
        raise ValueError(
            f"{processes.world_size()} processes: what is watched while it is decoded takes one; leave out the launcher"
        )
    device = next(net.parameters()).device
    samples: list[Tokens] = [
        np.zeros((0, problems.tokens.shape[1]), np.uint8)
    ]  # for a process that has no share
    processed, passes, seconds, most, count = 0, 0, 0.0, 0, len(problems.tokens)
    own = processes.shard_indices(count)
    with progress(label(net.method, decoding), len(own)) as advance:
        for start in range(0, len(own), config.batch_size):
            chosen = own[start : start + config.batch_size]
            part, numbers = problems.take(chosen), torch.from_numpy(chosen).to(device)
            tokens, known, lengths = as_tensors(part, device)
            if watcher is not None:
                watcher.begin(*tokens.shape)
            begun = time.perf_counter()
            made = generate(
                net,
                net.method,
                tokens,
                known,
                decoding,
                config.seed,
                rows=numbers,
                lengths=lengths,
                on_step=watcher,
            )
            samples.append(as_numpy(made.tokens))
            seconds += time.perf_counter() - begun
            ended(samples[-1], part)
            processed += int(made.processed.sum())
            passes = max(passes, made.forward_passes)
            most += int(most_tokens(lengths, known.sum(1)).sum())
            advance(len(chosen), f"{(start + len(chosen)) / seconds:.3g} samples/s")
    all_processed, all_most, all_passes, all_seconds = zip(
        *processes.all_gather_object((processed, most, passes, seconds)), strict=True
    )
    processed, most, passes, seconds = sum(all_processed), sum(all_most), max(all_passes), max(all_seconds)
    by_formula = paper_cost(problems.tokens.shape[1], decoding, shown_latents(net.method, decoding))
    return processes.gather_rows(np.concatenate(samples)), {
        "processed": processed / count,
        "relative_cost": round(processed / most, 4),
        "paper_cost": None if by_formula is None else round(by_formula, 4),
        "forward_passes": passes,
        "seconds": round(seconds, 3),
        "samples_per_second": round(count / seconds, 2),
        "seed": config.seed,
        "temperature": decoding.temperature,
        "top_p": decoding.top_p,
        "refresh": decoding.refresh,
        "latent_policy": getattr(decoding.latent_policy, "__name__", "custom"),
        "device": str(device),
        "threads": torch.get_num_threads(),
    }


def decoding_for(
    method: Method, task: Language, config: EvalConfig, latents: int | Literal["all"] | None
) -> Decoding:
    """The Decoding that a config means for a method and a task: by default 8 candidates where the order is adaptive, one where it is not,
    and the task's own temperature and top-p.

    Raises ValueError for an adaptive order with a left-to-right method.
    """
    order = config.order or default_order(method, task)
    adaptive = order in CONFIDENCES
    if adaptive and method.is_left_to_right:
        raise ValueError(
            f"order={order} is not supported by {name_of(method)}: it decodes the next token. Use order=left_to_right, or a mdm or scdm model."
        )
    return Decoding(
        candidates=named_candidates(config.candidates or DEFAULT_CANDIDATES) if adaptive else 1,
        latents=latents,
        tokens_per_step=config.tokens_per_step or 1,
        order=ORDERS.get(order),
        confidence=CONFIDENCES.get(order, top_prob),
        refresh=config.refresh,
        temperature=getattr(task, "temperature", 1.0) if config.temperature is None else config.temperature,
        top_p=getattr(task, "top_p", 1.0) if config.top_p is None else config.top_p,
    )


def check_choice(method: Method, config: EvalConfig) -> None:
    """Raises ValueError where a latent policy is asked of a method that shows all of its latents or none."""
    name = config.latent_policy or "nearest"
    if name != "nearest" and method.latent_control != "free":
        raise ValueError(
            f"latent_policy={name} is not supported by {name_of(method)}: its latent tokens cannot be chosen. Use a scdm or esolm model."
        )


def policy_for(net: Transformer, task: Language, config: EvalConfig) -> LatentPolicy:
    """The latent policy that a config means. For `relevant` the model's influence is measured, on examples of the validation split.

    Raises ValueError where there is none.
    """
    if config.latent_policy != "relevant":
        return POLICIES[config.latent_policy or "nearest"]
    if config.data is None:
        examples = (
            make_splits(task, {"validation": PROBED}, config.seed).examples().get("validation")
            if isinstance(task, Task)
            else None
        )
    else:
        examples = read_split(task, config.data, "validation")
    if examples is None or not len(examples.tokens):
        raise ValueError(
            f"latent_policy=relevant: {task.name} has no validation examples. Name a data set with data=DIR, or use latent_policy=nearest."
        )
    tokens, known, lengths = as_tensors(examples.take(slice(PROBED)), next(net.parameters()).device)
    generator = torch.Generator().manual_seed(config.seed)
    with counting("measuring influence", int((lengths - known.sum(1)).max())) as report:
        return relevant(influence(net, net.method, tokens, known, generator, lengths=lengths, report=report))


def default_order(method: Method, task: Language) -> str:
    """left_to_right for the methods that are; for the others the task's own, or top_prob (appendix D)."""
    return "left_to_right" if method.is_left_to_right else getattr(task, "order", "top_prob")


def shown_latents(method: Method, decoding: Decoding) -> int | str:
    """The number of latents that a row reports: as asked for, else the method's own; a window shows no more than it has."""
    asked = method.latents if decoding.latents is None else decoding.latents
    if asked is None or asked == "all":
        return "all" if method.window is None else method.window - 1
    return asked if isinstance(asked, int) else getattr(asked, "__name__", "custom")


def named_candidates(name: int | Literal["all", "growing"]) -> int | Literal["all"] | Callable[[int], int]:
    """A number of candidates, or the rule of that name."""
    return growing if name == "growing" else name


def shown_candidates(decoding: Decoding) -> int | str:
    """The number of candidates that a row reports: as asked for, or the name of the rule."""
    return (
        getattr(decoding.candidates, "__name__", "custom")
        if callable(decoding.candidates)
        else decoding.candidates
    )


def paper_cost(length: int, decoding: Decoding, latents: int | str) -> float | None:
    """`relative_cost` of a decoding; None where the number of latents is none that it has a formula for."""
    if (isinstance(latents, str) and latents != "all") or callable(decoding.candidates):
        return None
    candidates = length if decoding.candidates == "all" else decoding.candidates
    return relative_cost(length, candidates, length if isinstance(latents, str) else latents)


def label(method: Method, decoding: Decoding) -> str:
    """What the progress bar of a row says."""
    return f"{name_of(method)} n={shown_latents(method, decoding)} k={shown_candidates(decoding)}"
