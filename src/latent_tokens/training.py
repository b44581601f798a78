"""Training: one loop for every method, on Accelerate; it can stop at any step and go on as if it had not.

All that is random in step s is drawn from (seed, s), so the state to go on from is tensors and a step number.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from latent_tokens.batches import VALIDATION, draw_examples, seed_of, training_batches
from latent_tokens.checks import check_out
from latent_tokens.configs import Split, TrainConfig
from latent_tokens.data import fingerprint, load_data
from latent_tokens.memory import training_rows
from latent_tokens.methods import METHODS, Method
from latent_tokens.model import Transformer
from latent_tokens.objective import Drawn, score
from latent_tokens.pretrained import describe, weights_bytes
from latent_tokens.progress import CONSOLE, counting, progress
from latent_tokens.sizes import SIZES
from latent_tokens.splits import chunks_of, make_splits
from latent_tokens.state import State, load_state, save_state
from latent_tokens.storage import append_line, json_bytes, provenance, read_description, write_whole
from latent_tokens.tasks import Examples, Language, Task, Text, description, named

EARLIER = {"gelu": "tanh"}  # what runs were started with before it was a setting
LOG_EVERY = 50  # steps between two lines of metrics.jsonl


def fit(config: TrainConfig, *, task: Language | None = None, method: Method | None = None) -> Path:
    """Trains and returns the run folder: config.json, model.safetensors (averaged weights at the lowest validation loss),
    metrics.jsonl and the state to go on from. `task` and `method` stand in for the config's names: bring your own.

    Ctrl-C ends the step, saves, and raises KeyboardInterrupt; `resume=True` goes on. Raises ValueError for a config that is
    not possible or not the one the run was started with, OSError where the disk is full.
    """
    method = METHODS[config.method] if method is None else method
    method = replace(method, **{name: value for name in ("weight", "targets") if (value := getattr(config, name)) is not None})
    started = read_description(config.folder, "config.json", "run to go on with") if config.resume else None
    check_out(config.folder) if started is None else check_same(config.folder, EARLIER | started.get("training", {}), settings(config))
    task, splits = training_data(config, named(config.task) if task is None else task)
    check_known(method, splits["train"])
    config.folder.mkdir(parents=True, exist_ok=True)
    data = {split: fingerprint(examples) for split, examples in splits.items()}
    mean_length = float(splits["train"].lengths.mean())

    accelerator = Accelerator()
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        net = Transformer(SIZES[config.size], task.vocab_size, task.length, config.positions, config.dropout, config.gelu)
    net.method = method
    if started is None:
        write_start(config, net, task, data)
    else:
        check_same(config.folder, started.get("data_sha256", {}), data)
    optimiser = torch.optim.AdamW(net.parameters(), config.lr, weight_decay=config.weight_decay, fused=True)
    averaged = AveragedModel(net, multi_avg_fn=ramped_average(config.ema))
    state = load_state(config.folder, net, averaged, optimiser) if config.resume else State()
    averaged.to(accelerator.device)
    model, optimiser = accelerator.prepare(net, optimiser)
    model.mask_id, model.reads = net.mask_id, net.reads
    batches = training_batches(splits["train"], method, config, net.mask_id, state.step, accelerator.device)

    bar = progress(f"{config.method} on {config.task}", config.steps, state.step)
    with closing(batches), bar as advance, interruptible() as stop, torch.random.fork_rng():
        begun, begun_at, recent = time.perf_counter(), state.step, list[float]()
        while state.step < config.steps:
            value, norm = train_step(model, method, optimiser, next(batches), config, state.step, accelerator)
            averaged.update_parameters(net)
            state.step += 1
            last = state.step == config.steps

            recent.append(value)
            speed = (state.step - begun_at) * config.batch_size * mean_length / (time.perf_counter() - begun)
            advance(1, f"loss {value:.3f}  {speed:,.0f} tokens/s")
            if state.step % LOG_EVERY == 0 or last:
                row = {"step": state.step, "loss": sum(recent) / len(recent), "grad_norm": norm, "tokens_per_second": round(speed)}
                append_line(config.folder / "metrics.jsonl", row)
                recent.clear()
            if state.step % config.evaluate_every == 0 or last:
                found = validation_loss(cast(Transformer, averaged.module), method, splits["validation"], config, accelerator.device)
                keep_if_best(averaged.module, found, config, state)
            if state.step % config.save_every == 0 or last or stop.is_set():
                save_state(config.folder, net, averaged, optimiser, state)
            if stop.is_set() and not last:
                raise KeyboardInterrupt(f"stopped at step {state.step} of {config.steps}, saved in {config.folder}")
    return config.folder


def write_start(config: TrainConfig, net: Transformer, task: Language, data: dict[Split, str]) -> None:
    """What a run folder holds from its first moment: config.json, and the files that its task needs."""
    about = {"task": description(task), "name": config.method}
    made = {**describe(net), **about, "training": settings(config), "data_sha256": data, "made_with": provenance()}
    beside = task.files() if isinstance(task, Text) else {}
    write_whole({**{config.folder / name: content for name, content in beside.items()}, config.folder / "config.json": json_bytes(made)})


def train_step(
    model: Any, method: Method, optimiser: Any, batch: Drawn, config: TrainConfig, step: int, accelerator: Accelerator
) -> tuple[float, float]:
    """Takes one optimiser step; gives its loss and gradient norm. Raises ValueError where either is not finite.

    The batch goes through the net in parts that fit into memory and are of like length; their losses add up to its own.
    """
    for group in optimiser.param_groups:
        group["lr"] = learning_rate(config, step)
    model.train()
    torch.manual_seed(seed_of(config, step))  # for dropout, which takes no generator
    total = torch.zeros((), device=accelerator.device)
    *others, last = batch.parts(partial(training_rows, accelerator.unwrap_model(model)))
    for rows in (*others, last):
        with nullcontext() if rows is last else accelerator.no_sync(model), autocast(config, accelerator.device):
            part = score(model, method, batch.take(rows))
            accelerator.backward(part)
        total += part.detach()
    norm = accelerator.clip_grad_norm_(model.parameters(), config.clip)
    value, size = total.item(), float(norm)
    if not math.isfinite(value + size):
        raise ValueError(f"loss {value}, gradient norm {size} at step {step}: training diverged; use a lower lr or a longer warmup")
    optimiser.step()
    optimiser.zero_grad()
    return value, size


def training_data(config: TrainConfig, task: Language) -> tuple[Language, dict[Split, Examples]]:
    """(the task, its training and validation examples): of the config's data set, which says more of the task, else made on the spot.

    Raises ValueError where the data set lacks one of the two, or is of another task.
    """
    if config.data is None:
        if not isinstance(task, Task):
            raise ValueError(
                f"task={task.name}: is learned from a data set; make one (latent-tokens data {task.name} --source FILE), name it with --data"
            )
        counts: dict[Split, int] = {"train": config.num_train, "validation": config.num_validation}
        with counting(f"making {task.name}", sum(counts.values())) as count:
            sieve = make_splits(task, counts, config.seed, report=count)
        for split in sieve.open:
            CONSOLE.print(f"{split}: {task.name} has no more than {sieve.kept.get(split, 0):,} different examples", highlight=False)
        return task, sieve.examples()
    found, splits = load_data(config.data, ("train", "validation"))
    if found.name != task.name:
        raise ValueError(f"data={config.data}: holds {found.name}, not {task.name}")
    for split in ("train", "validation"):
        if split not in splits or not len(splits[split].tokens):
            raise ValueError(f"data={config.data}: has no {split} examples, and training takes both splits; make a data set that has them")
    return found, splits


def check_known(method: Method, examples: Examples) -> None:
    """Raises ValueError where the method cannot take what is known in an example."""
    for part in chunks_of(examples, 10_000):
        method.check_known(torch.from_numpy(np.array(part.known)))


def settings(config: TrainConfig) -> dict[str, Any]:
    """What must not change between a run's start and its going on, as JSON holds it."""
    values = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(config).items()}
    return {name: value for name, value in values.items() if name not in ("resume", "out")}


def check_same(folder: Path, started: dict[str, Any], wanted: dict[Any, Any]) -> None:
    """Raises ValueError naming the first value that is not the one the run was started with."""
    for name, value in wanted.items():
        if started.get(name) != value:
            raise ValueError(f"{name}={value}: {folder} was started with {started.get(name)}; go on with that, or start anew in another folder")


def validation_loss(net: Transformer, method: Method, examples: Examples, config: TrainConfig, device: torch.device) -> float:
    """The mean loss over the validation examples, always with the same masks and orders."""
    net.eval()
    total = 0.0
    with torch.no_grad(), autocast(config, device):
        for number, part in enumerate(chunks_of(examples, config.batch_size)):
            batch = draw_examples(part, method, config, net.mask_id, VALIDATION, number * config.batch_size).to(device)
            total += len(part.tokens) * sum(score(net, method, batch.take(rows)).item() for rows in batch.parts(partial(training_rows, net)))
    return total / len(examples.tokens)


def keep_if_best(net: Any, found: float, config: TrainConfig, state: State) -> None:
    """Logs a validation loss; writes the weights where it is the lowest so far."""
    append_line(config.folder / "metrics.jsonl", {"step": state.step, "validation_loss": found})
    if found < state.best:
        state.best = found
        write_whole({config.folder / "model.safetensors": weights_bytes(net)})


def learning_rate(config: TrainConfig, step: int) -> float:
    """Linear warm-up to the peak, then constant or down to zero along a cosine."""
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    if config.schedule == "constant":
        return config.lr
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    return config.lr * 0.5 * (1 + math.cos(math.pi * done))


def ramped_average(decay: float) -> Any:
    """The update of averaged weights with decay min(decay, (1 + n) / (10 + n)) after n steps (decision 7)."""

    def update(averaged: list[Tensor], current: list[Tensor], count: Tensor | int) -> None:
        now = min(decay, (1 + int(count)) / (10 + int(count)))
        torch._foreach_lerp_(averaged, current, 1 - now)

    return update


def autocast(config: TrainConfig, device: torch.device) -> torch.autocast:
    """The context in which the net computes: bf16 where it is asked for, or by auto on an accelerator."""
    bf16 = config.precision == "bf16" or (config.precision == "auto" and device.type != "cpu")
    return torch.autocast(device.type, torch.bfloat16, enabled=bf16)


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, so that a step is never cut in two; a second Ctrl-C interrupts at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: object) -> None:
        event.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)
