"""Training: one loop for every method, on Accelerate; it can stop at any step and go on as if it had not.

All that is random in step s is drawn from (seed, s), so the state to go on from is tensors and a step number.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from math import ceil, inf, isfinite
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import torch
from accelerate import Accelerator
from torch.optim.swa_utils import AveragedModel

from latent_tokens import processes
from latent_tokens.checkpoints.pretrained import describe, weights_bytes
from latent_tokens.checks import check_out
from latent_tokens.configs import MAY_CHANGE_ON_RESUME, Split, TrainConfig
from latent_tokens.core.methods import METHODS, Method
from latent_tokens.core.objective import TrainingBatch, weighted_nll
from latent_tokens.data.datasets import change_detector, fingerprint, load_data
from latent_tokens.data.splits import chunks_of, make_splits
from latent_tokens.network.memory import training_rows
from latent_tokens.network.transformer import Transformer
from latent_tokens.progress import CONSOLE, counting, progress
from latent_tokens.sizes import SIZES
from latent_tokens.storage import (
    append_line,
    half_written,
    json_bytes,
    provenance,
    read_description,
    restore_files,
    write_atomic,
)
from latent_tokens.tasks import Examples, Language, Task, Text, description, named
from latent_tokens.training.batches import VALIDATION, draw_examples, microbatches, training_batches
from latent_tokens.training.locking import LOCK, LockedError, locked
from latent_tokens.training.sharding import full_tensor, shard, unsharded
from latent_tokens.training.signals import Preempted, interruptible
from latent_tokens.training.state import State, discard_after, load_state, save_state
from latent_tokens.training.step import NotFinite, autocast, ema_update, keep_batch, train_step

LEGACY_DEFAULTS = {"gelu": "tanh"}  # what runs were started with before it was a setting
RESTORE_HINT = "start the same in another folder, and copy its config.json here"
LOG_EVERY = 50  # steps between two lines of metrics.jsonl
MOST_SKIPPED = 10  # steps in a row


@dataclass
class Run:
    """A training run between two steps."""

    config: TrainConfig
    method: Method
    splits: dict[Split, Examples]
    net: Transformer
    averaged: AveragedModel
    optimizer: Any
    model: Any  # the net as the processes share it
    accelerator: Accelerator
    state: State
    unchanged: Callable[[], bool]  # whether the data are still those that it began with

    def save(self) -> None:
        """Writes all that it can be gone on from, once for all processes. Raises ValueError, and writes nothing, where the data changed."""
        self.check_data()
        save_state(self.config.folder, self.net, self.averaged, self.optimizer, self.state, self.config.keep)

    def check_data(self) -> None:
        """Raises ValueError where the data changed."""
        if not self.unchanged():
            raise ValueError(
                f"data={self.config.data}: changed while it was learned from; restore it, then rerun with resume=auto"
            )

    def log(self, row: dict[str, Any]) -> None:
        """Adds a row to the metrics, once for all processes."""
        if processes.is_main():
            append_line(self.config.folder / "metrics.jsonl", {"step": self.state.step, **row})
        if self.config.track is not None:
            self.accelerator.log(row, step=self.state.step)


def fit(config: TrainConfig, *, task: Language | None = None, method: Method | None = None) -> Path:
    """Trains and returns the run folder: config.json, model.safetensors (averaged weights at the lowest validation loss),
    metrics.jsonl and the states to go on from. `task` and `method` stand in for the config's names: bring your own.

    Under torchrun or accelerate launch every process takes its share of each batch, and what is learned does not depend on how many there
    are, but for rounding and dropout.

    SIGINT (Ctrl-C), SIGTERM and SIGUSR1 end the step, save, and raise Preempted; `resume="auto"` goes on. Raises ValueError for a config that is
    not possible or not the one the run was started with, where the loss is not finite, or the data changed; OSError where the disk is full.
    """
    with processes.translate_peer_failure():
        accelerator = joined(config)
        with locked_by_first(config.folder):
            run = setup(config, task, method, accelerator)
            train(run)
            processes.barrier()
            run.accelerator.end_training()
    return config.folder


@contextmanager
def locked_by_first(folder: Path) -> Iterator[None]:
    """Hold the lock of a run directory in the first process; all of them raise its ValueError if another run has it."""
    with ExitStack() as stack:
        problem = ""
        try:
            if processes.is_main():
                if folder.exists() and not folder.is_dir():
                    check_out(folder)
                stack.enter_context(locked(folder))
        except (ValueError, OSError) as error:
            problem = str(error)
        problem = processes.all_gather_object(problem)[0]
        if problem:
            raise LockedError(problem)
        yield


def train(run: Run) -> None:
    """Takes the steps that are left. Raises as `fit` does."""
    config = run.config
    state, batches = (
        run.state,
        training_batches(
            run.splits["train"], run.method, config, run.net.mask_id, run.state.step, run.accelerator.device
        ),
    )
    bar = progress(f"{config.method} on {config.task}", config.steps, state.step)
    with closing(batches), bar as advance, interruptible() as caught, torch.random.fork_rng():
        begun, saved, skipped, tokens = time.perf_counter(), time.perf_counter(), 0, 0.0
        a_step = config.batch_size * float(run.splits["train"].lengths.mean())  # tokens
        for batch in batches:
            try:
                value, norm = train_step(
                    run.model, run.method, run.optimizer, batch, config, state.step, run.accelerator
                )
            except NotFinite as error:
                skipped += 1
                if config.on_nan == "stop" or skipped == MOST_SKIPPED:
                    give_up(run, batch, error)
                run.optimizer.zero_grad()
                state.step += 1
                run.log({"skipped": str(error)})
            else:
                skipped = 0
                run.averaged.update_parameters(run.net)
                state.step += 1
                state.recent.append(value)
                tokens += a_step
                speed = tokens / (time.perf_counter() - begun)
                advance(1, f"loss {value:.3f}  {speed:,.0f} tokens/s")
            last = state.step == config.steps

            if (state.step % LOG_EVERY == 0 or last) and not skipped:
                run.log(
                    {
                        "loss": sum(state.recent) / len(state.recent),
                        "grad_norm": norm,
                        "tokens_per_second": round(speed),
                    }
                )
                state.recent.clear()
            if state.step % config.evaluate_every == 0 or last:
                keep_if_best(run, validation_loss(run))
            late = time.perf_counter() - saved > 60 * config.save_minutes
            stop, due = processes.all_reduce_sum(
                [len(caught), late and processes.is_main()], run.accelerator.device
            )
            if state.step % config.save_every == 0 or last or stop or due:
                run.save()
                saved = time.perf_counter()
            if stop and not last:
                raise Preempted(
                    f"stopped at step {state.step} of {config.steps}, saved in {config.folder}", caught
                )


def setup(config: TrainConfig, task: Language | None, method: Method | None, accelerator: Accelerator) -> Run:
    """A run at its first step, or at the one that its folder says. Raises as `fit` does."""
    method = METHODS[config.method] if method is None else method
    method = replace(
        method,
        **{name: value for name in ("weight", "targets") if (value := getattr(config, name)) is not None},
    )
    going_on = config.resume == "yes" or (
        config.resume == "auto" and (config.folder / "config.json").is_file()
    )
    started = (
        read_description(config.folder, "config.json", "run to resume", hint=RESTORE_HINT)
        if going_on
        else None
    )
    check_start(config) if started is None else check_same(
        config.folder, started.get("training"), settings(config)
    )
    unchanged = change_detector(config.data)
    task, splits = training_data(config, named(config.task) if task is None else task)
    check_known(method, splits["train"])
    if config.batch_size < processes.world_size():
        raise ValueError(
            f"batch_size={config.batch_size}: must be at least the number of processes, {processes.world_size()}"
        )
    data = {split: fingerprint(examples) for split, examples in splits.items()}

    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        net = Transformer(
            SIZES[config.size], task.vocab_size, task.length, config.positions, config.dropout, config.gelu
        )
    net.method = method
    processes.barrier()  # all have seen that the folder is empty before it is written to
    about = {
        "task": description(task),
        "name": config.method,
        "training": settings(config),
        "data_sha256": data,
    }
    made = json.loads(json_bytes({**describe(net), **about}))
    beside = {
        config.folder / name: content
        for name, content in (task.files() if isinstance(task, Text) else {}).items()
    }
    if started is not None:
        check_same(config.folder, started.get("data_sha256"), data)
        check_same(config.folder, started.get("model"), made["model"])
        check_same(config.folder, started, {name: made[name] for name in ("method", "task")})
    elif processes.is_main():
        write_start(config.folder, made, beside)
    averaged = AveragedModel(net, multi_avg_fn=ema_update(config.ema))
    if config.parallel == "fsdp":
        for part in (net, averaged.module):
            shard(part.to(accelerator.device), accelerator.device)
    optimizer = torch.optim.AdamW(net.parameters(), config.lr, weight_decay=config.weight_decay, fused=True)
    state = State() if started is None else load_state(config.folder, net, averaged, optimizer)
    if (
        len(set(processes.all_gather_object(state.step))) > 1
    ):  # it also waits until all have read, before what is of later steps goes
        raise ValueError(
            f"{config.folder}: its processes read states of unlike steps; see that all of them see the same files, then go on again"
        )
    if started is not None and processes.is_main():
        discard_after(config.folder, state.step, config.keep)
        restore_files(beside)
        put_back_best(config.folder, state)
    averaged.to(accelerator.device)
    model, optimizer = (net, optimizer) if config.parallel == "fsdp" else accelerator.prepare(net, optimizer)
    model.mask_id, model.supports_slots = net.mask_id, net.supports_slots
    if config.track is not None:
        accelerator.init_trackers(
            "latent-tokens", {name: value for name, value in settings(config).items() if value is not None}
        )
    return Run(config, method, splits, net, averaged, optimizer, model, accelerator, state, unchanged)


def joined(config: TrainConfig) -> Accelerator:
    """This process among the others, with the config's tracker. Raises ValueError where that is not installed."""
    if config.track is not None and find_spec(config.track) is None:
        raise ValueError(
            f"track={config.track}: is not installed; pip install {config.track}, or leave it out: metrics.jsonl is always written"
        )
    return processes.join(config.track, config.folder)


def give_up(run: Run, batch: TrainingBatch, error: NotFinite) -> NoReturn:
    """Saves the state before a step that went wrong, and its batch, and raises ValueError."""
    run.save()
    kept = keep_batch(run.config.folder, batch, error, run.state.step)
    raise ValueError(
        f"{error} at step {run.state.step}: training diverged; its batch is {kept}; use a lower lr or a longer warmup"
    )


def check_start(config: TrainConfig) -> None:
    """Raises as `check_out` does, but where all that is there is what a start that was killed had begun, and `resume` says auto."""
    begun = set(half_written(config.folder))
    left = begun if config.resume == "auto" else set()
    in_place = config.folder.resolve() == Path.cwd()
    if in_place or set(config.folder.iterdir()) - left - {config.folder / LOCK}:
        is_run = begun or (config.folder / "config.json").is_file()
        check_out(
            config.folder,
            "Add resume=auto to continue an interrupted run. " if is_run and config.resume == "no" else "",
        )


def write_start(folder: Path, made: dict[str, Any], beside: dict[Path, bytes]) -> None:
    """What a run folder holds from its first moment: config.json, and then the files that its task needs."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in half_written(folder):
        left.unlink()
    write_atomic({folder / "config.json": json_bytes({**made, "made_with": provenance()}), **beside})


def put_back_best(folder: Path, state: State) -> None:
    """Makes model.safetensors what it was when that state was saved: of a later step, or damaged, it may be another."""
    path = folder / "model.safetensors"
    if state.best == inf:
        path.unlink(missing_ok=True)
    elif state.weights:  # a state of version 0.1 has none
        restore_files({path: weights_bytes(state.weights)})


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
            CONSOLE.print(
                f"{split}: {task.name} has no more than {sieve.kept.get(split, 0):,} different examples",
                highlight=False,
            )
        return task, sieve.examples()
    found, splits = load_data(config.data, ("train", "validation"))
    if found.name != task.name:
        raise ValueError(f"data={config.data}: holds {found.name}, not {task.name}")
    for split in ("train", "validation"):
        if split not in splits or not len(splits[split].tokens):
            raise ValueError(
                f"data={config.data}: has no {split} examples, and training takes both splits; make a data set that has them"
            )
    return found, splits


def check_known(method: Method, examples: Examples) -> None:
    """Raises ValueError where the method cannot take what is known in an example."""
    for part in chunks_of(examples, 10_000):
        method.check_known(torch.from_numpy(np.array(part.known)))


def settings(config: TrainConfig) -> dict[str, Any]:
    """What must not change between a run's start and its going on, as JSON holds it."""
    values = {
        name: str(value) if isinstance(value, Path) else value for name, value in asdict(config).items()
    }
    return {name: value for name, value in values.items() if name not in MAY_CHANGE_ON_RESUME}


def check_same(folder: Path, started: Any, wanted: dict[Any, Any]) -> None:
    """Raises ValueError naming the first value that is not the one the run was started with."""
    if not isinstance(started, dict):
        raise ValueError(f"{folder / 'config.json'}: damaged; {RESTORE_HINT}")
    started = LEGACY_DEFAULTS | started
    for name, value in wanted.items():
        if started.get(name) != value:
            before = str(started.get(name))[:99]
            raise ValueError(
                f"{name}={value}: {folder} was started with {before}. Use {name}={before}, or choose another directory."
            )


def validation_loss(run: Run) -> float:
    """The mean loss over the validation examples, always with the same masks and orders; each process takes its share of the batches."""
    config, examples, net = run.config, run.splits["validation"], cast(Transformer, run.averaged.module)
    net.eval()
    loss, count, device = 0.0, len(examples.tokens), run.accelerator.device
    with torch.no_grad(), unsharded(net), autocast(config, device):
        for start in (config.batch_size * processes.shard_indices(ceil(count / config.batch_size))).tolist():
            part = examples.take(slice(start, start + config.batch_size))
            batch = draw_examples(part, run.method, config, net.mask_id, VALIDATION, start).to(device)
            loss += len(part.tokens) * sum(
                weighted_nll(net, run.method, batch.take(rows)).item()
                for rows in microbatches(batch, partial(training_rows, net))
            )
    (whole,) = processes.all_reduce_sum([loss], device)
    return whole / count


def keep_if_best(run: Run, found: float) -> None:
    """Logs a validation loss; keeps and writes the weights where it is the lowest so far. Raises ValueError where it is not finite."""
    if not isfinite(found):
        raise ValueError(
            f"validation loss {found} at step {run.state.step}: training diverged; use a lower lr or a longer warmup"
        )
    run.check_data()
    run.log({"validation_loss": found})
    if found < run.state.best:
        run.state.best = found
        run.state.weights = {
            name: full_tensor(tensor).detach().cpu().clone()
            for name, tensor in run.averaged.module.state_dict().items()
        }
        if processes.is_main():
            write_atomic({run.config.folder / "model.safetensors": weights_bytes(run.state.weights)})
