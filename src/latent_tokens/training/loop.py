"""The training loop: the steps from the first or the latest checkpoint to the last."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, Unpack

import torch
from torch import nn

from latent_tokens import processes
from latent_tokens.checks import changed, check_settings
from latent_tokens.core.denoiser import Denoiser
from latent_tokens.core.method import Method, name_of
from latent_tokens.devices import limit_threads
from latent_tokens.keywords import TrainSettings
from latent_tokens.progress import CONSOLE, progress
from latent_tokens.sizes import in_millions
from latent_tokens.tasks import Language
from latent_tokens.training.config import TrainConfig
from latent_tokens.training.network import trainable_parameters
from latent_tokens.training.run import Preempted, Run, interruptible, locked
from latent_tokens.training.setup import setup
from latent_tokens.training.step import (
    NotFinite,
    learning_rate,
    take_step,
    training_batches,
    validation_loss,
)
from latent_tokens.training.tracking import check_installed, finish_trackers

LOG_EVERY = 50  # steps between two lines of metrics.jsonl
Stage = Literal["begun", "training", "done", "validation", "keeping", "kept", "saving", "saved"]
Observer = Callable[[Stage, int], None]


def fit(
    config: TrainConfig | str,
    method: Method | str | None = None,
    *,
    net: Denoiser | nn.Module | None = None,
    task: Language | None = None,
    observe: Observer | None = None,
    **settings: Unpack[TrainSettings],
) -> Path:
    """Train a model and return its run directory.

    The directory contains config.json, model.safetensors (EMA weights at the lowest validation
    loss), metrics.jsonl and the checkpoints. Under torchrun or accelerate launch each rank takes
    its share of every batch. Results do not depend on the world size, except for rounding and
    dropout.

    Args:
        config: the settings, or the name of a task.
        method: the method, instead of the one that the config names.
        net: the network to train, from the weights that it has, instead of a `Transformer` of the
            config's size. It is a `torch.nn.Module` that is a `Denoiser`, also compiled by
            torch.compile. It is trained in place and gets `method`, `vocab_size` and `max_length`.
            Load the EMA weights with `from_pretrained(run, net=net)`.
        task: the task, instead of the one that the config names.
        observe: is called with each stage and the number of steps taken: "begun" at the first step
            or the one that it resumes at, "training" and "done" around a step, "validation",
            "keeping" and "kept" around the best weights, "saving" and "saved" around a checkpoint.
            An error in it ends training.
        **settings: fields of `TrainConfig`, instead of those of the config.

    Raises:
        ValueError: the config is not possible or differs from that of the run to resume, the loss
            is not finite, or the data changed.
        OSError: a file cannot be written, for example on a full disk.
        Preempted: SIGINT (Ctrl-C), SIGTERM or SIGUSR1 stopped training after a step, which is
            saved. `resume="auto"` continues.

    Example:
        run = fit("sudoku-4", "scdm", out="runs/four", size="pico", steps=20)
        net = from_pretrained(run)
    """
    config = config_of(config, method, settings)
    own_method = None if isinstance(method, str) else method
    with processes.translate_peer_failure():
        check_installed(config.track)
        accelerator = processes.join(config.track, config.folder)
        with locked(config.folder), limit_threads(config.threads):
            run = setup(config, net, task, own_method, accelerator)
            print_plan(run)
            try:
                train_steps(run, observe or (lambda stage, step: None))
            except Preempted:
                finish_trackers(accelerator)
                raise
            # Rank 0 has written its files before another rank returns and reads them.
            processes.barrier()
            finish_trackers(accelerator)
    return config.folder


def config_of(
    config: TrainConfig | str, method: Method | str | None, settings: Mapping[str, Any]
) -> TrainConfig:
    """Return a config with other settings, or that of a task and a method. Raises as `fit`."""
    if isinstance(config, TrainConfig):
        if isinstance(method, str):
            fix = f"Use METHODS[{method!r}]"
            raise ValueError(f"method={method}: the config names {config.method}. {fix}.")
        name = {} if method is None else {"method": name_of(method)}
        return changed(config, {**settings, **name})
    if method is None:
        raise ValueError(f"config={config}: names a task only. Use fit({config!r}, METHOD).")
    check_settings(TrainConfig, settings)
    return TrainConfig(config, method if isinstance(method, str) else name_of(method), **settings)


def print_plan(run: Run) -> None:
    """Print a line with the hardware, the size of the network and the steps to take."""
    config = run.config
    ranks = processes.world_size()
    num_parameters = sum(weight.numel() for weight in run.net.parameters())
    num_trained = sum(weight.numel() for weight in trainable_parameters(run.net))
    device = f"{ranks} process{'es' if ranks > 1 else ''} on {run.accelerator.device.type}"
    trained = "" if num_trained == num_parameters else f" ({in_millions(num_trained)} trained)"
    size = f"{in_millions(num_parameters)} parameters{trained}"
    line = f"{device}, {config.precision}, {size}, steps {run.state.step}-{config.steps}"
    if run.state.step == config.steps:
        line = f"already finished at step {config.steps}"
    elif config.steps <= config.warmup:
        few = max(1, config.steps // 10)
        fix = f"Use --warmup {few}, in Python warmup={few}"
        line += f"\nthe warmup of {config.warmup} takes every step. {fix}"
    CONSOLE.print(line)


def train_steps(run: Run, observe: Observer) -> None:
    """Take the remaining optimizer steps. Raises as `fit`."""
    config = run.config
    state = run.state
    observe("begun", state.step)
    examples = run.splits["train"]
    device = run.accelerator.device
    batches = training_batches(
        examples, run.method_at, config, run.mask_id, state.step, device, run.pad
    )
    bar = progress(f"{config.method} on {config.task}", config.steps, state.step)
    # After an error, too, the thread that draws batches ends, signals get their handlers back, and the
    # generator of torch, which each step seeds, is as the caller left it.
    with closing(batches), bar as advance, interruptible() as signals, torch.random.fork_rng():
        # An average: the tokens of a batch are on the device, and to count them would wait for it.
        tokens_per_batch = config.batch_size * float(examples.lengths.mean())
        num_tokens = 0.0
        begin = state.step
        start_time = save_time = time.perf_counter()
        for batch in batches:
            # One optimizer step, which is skipped if it is not finite and the config says so.
            observe("training", state.step)
            outcome = take_step(run, batch)
            observe("done", state.step)
            is_last = state.step == config.steps

            # Progress and metrics.
            if isinstance(outcome, NotFinite):
                advance(1, str(outcome))
            else:
                num_tokens += tokens_per_batch
                speed = num_tokens / (time.perf_counter() - start_time)
                if config.compile and state.step == begin + 1:  # it took the time to compile
                    num_tokens = 0.0
                    start_time = time.perf_counter()
                advance(1, f"{run.part}loss {outcome.loss:.3f}  {speed:,.0f} tokens/s")
                if state.step % LOG_EVERY == 0 or is_last:
                    log_losses(run, outcome.grad_norm, speed)

            # The validation loss, and the best weights.
            if state.step % config.evaluate_every == 0 or is_last:
                observe("validation", state.step)
                loss = validation_loss(run)
                observe("keeping", state.step)
                run.keep_if_best(loss)
                observe("kept", state.step)

            # A checkpoint. One signal stops all ranks, and the clock is that of rank 0.
            is_late = time.perf_counter() - save_time > 60 * config.save_minutes
            is_late = is_late and processes.is_main()
            num_signals, num_late = processes.all_reduce_sum([len(signals), is_late], device)
            if state.step % config.save_every == 0 or is_last or num_signals or num_late:
                observe("saving", state.step)
                run.save()
                observe("saved", state.step)
                save_time = time.perf_counter()
            if num_signals:
                progress_made = f"stopped at step {state.step} of {config.steps}"
                raise Preempted(f"{progress_made}, saved in {config.folder}", signals)


def log_losses(run: Run, grad_norm: float, speed: float) -> None:
    """Log the mean loss since the last line, with the last gradient norm and learning rate."""
    state = run.state
    row: dict[str, float | str] = {
        "loss": sum(state.recent) / len(state.recent),
        "grad_norm": grad_norm,
        # Of the step that was taken: the counter is that of the next one.
        "lr": learning_rate(run.config, state.step - 1, run.stretches),
        "tokens_per_second": round(speed),
    }
    if run.first is not None:
        row["method"] = name_of(run.method_at(state.step - 1))
    run.log(row)
    state.recent.clear()
