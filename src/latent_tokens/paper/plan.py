"""The plan of a reproduction: the models that are missing, the time left, and several models at a time."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from accelerate import Accelerator

from latent_tokens.bench.cases import training_step
from latent_tokens.bench.machine import seconds
from latent_tokens.configs import ReproduceConfig, SizeName
from latent_tokens.evaluation.problems import DEFAULT_SAMPLES
from latent_tokens.paper.recipes import Recipe
from latent_tokens.paper.run import measured, ready
from latent_tokens.progress import CONSOLE
from latent_tokens.training.checkpoint import saved_step
from latent_tokens.training.run import Preempted, interruptible

STEPS = 5  # measured for an estimate
PASS = 3  # a training step computes about three forward passes


@dataclass(frozen=True)
class Work:
    """A model and what is still to do: steps of training, and recipes to measure."""

    name: str
    recipes: tuple[Recipe, ...]
    steps_left: int
    missing: tuple[Recipe, ...]

    @property
    def state(self) -> str:
        """The state: done, trained (but not yet measured), begun, missing or to import."""
        if not self.missing:
            return "done"
        if self.recipes[0].imported and not (self.recipes[0].training.folder / "config.json").is_file():
            return "to import"
        if not self.steps_left:
            return "trained"
        return "begun" if self.steps_left < self.recipes[0].training.steps else "missing"


def plan(recipes: Sequence[Recipe], results: Path) -> list[Work]:
    """Return the models of recipes in their order, with the missing rows and steps of each."""
    rows = measured(results)
    by_model: dict[str, list[Recipe]] = {}
    for recipe in recipes:
        by_model.setdefault(recipe.model, []).append(recipe)
    works = []
    for name, model_recipes in by_model.items():
        missing = tuple(recipe for recipe in model_recipes if recipe.hash not in rows)
        training = model_recipes[0].training
        steps_left = 0
        if missing and not model_recipes[0].imported:
            steps_left = training.steps - saved_step(training.folder)
        works.append(Work(name, tuple(model_recipes), steps_left, missing))
    return works


def estimate(works: Iterable[Work]) -> float:
    """Estimate the seconds that are left.

    The estimate is from training steps, which are timed now, and from the forward passes of decoding.

    Imported models are left out.
    """
    total = 0.0
    for work in works:
        first = work.recipes[0]
        training, length = first.training, first.length
        if not work.missing or first.imported:
            continue
        assert training.size is not None
        rate = step_seconds(training.size, training.batch_size, length)
        total += work.steps_left * rate
        for recipe in work.missing:
            samples = recipe.evaluation.num_samples or recipe.num_held_out or DEFAULT_SAMPLES
            total += samples / training.batch_size * length * rate / PASS
    return total


@cache
def step_seconds(size: SizeName, batch: int, length: int) -> float:
    """Measure the seconds of a training step, once per shape."""
    step, _ = training_step(size, batch, length, "fp32", supports_slots=True)
    return statistics.median(seconds(step, Accelerator().device) for _ in range(STEPS))


NICENESS = 10  # of the processes: so that other work on the machine comes first
POLL_SECONDS = 1.0


@dataclass
class Job:
    """A running process, the model that it trains and measures, and its log."""

    work: Work
    process: subprocess.Popen[bytes]
    log: Path
    file: IO[bytes]
    start_time: float


def run_in_processes(works: Sequence[Work], config: ReproduceConfig) -> None:
    """Train and measure models, `config.workers` at a time, each in a process with one thread.

    SIGINT (Ctrl-C) or SIGTERM stops the processes, which save their checkpoints. The same command resumes.

    Raises:
        ValueError: some models failed. The others are done. The message names their logs.
        Preempted: it was stopped.
    """
    waiting = deque(work for work in works if work.missing)
    failed: list[str] = []
    jobs: list[Job] = []
    with interruptible() as signals, stopped_at_the_end(jobs):
        while (waiting or jobs) and not signals:
            while waiting and len(jobs) < config.workers and not signals:
                work = waiting.popleft()
                try:
                    job = start(work, config)
                except ValueError as error:  # its data cannot be made
                    say(f"{work.name}: failed ({error})")
                    failed.append(f"{work.name} ({error})")
                else:
                    jobs.append(job)  # before anything can fail, so that it is stopped at the end
                    lower_priority(job.process)
            time.sleep(POLL_SECONDS)
            for job in [job for job in jobs if job.process.poll() is not None]:
                jobs.remove(job)
                failed += finish(job)
    if signals:
        raise Preempted(f"stopped with {len(waiting) + len(jobs)} models left", signals)
    if failed:
        raise ValueError(
            f"{len(failed)} of the models failed: {', '.join(failed)}."
            " Correct the cause, and run the same command again."
        )


def start(work: Work, config: ReproduceConfig) -> Job:
    """Make the data of a model, and start the process that trains and measures it."""
    # The data is made here, because processes must not make it at the same time.
    if not work.recipes[0].imported:
        needed = [data for recipe in work.missing for data in (recipe.data, recipe.problems) if data]
        for data in dict.fromkeys(needed):
            ready(data)
    log = config.runs / config.scale / "logs" / f"{work.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    say(f"{work.name}: {work.steps_left:,} steps to train, {len(work.missing)} rows to measure, log in {log}")
    file = log.open("ab")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command(work, config), stdout=file, stderr=file, env=environment)
    return Job(work, process, log, file, time.perf_counter())


def lower_priority(process: subprocess.Popen[bytes]) -> None:
    """Give a process low priority, or this process's own if that is lower: only root may raise one."""
    if hasattr(os, "setpriority"):
        niceness = max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, process.pid, niceness)


def command(work: Work, config: ReproduceConfig) -> list[str]:
    """Return the command of a model's process."""
    flags = {
        "--scale": config.scale,
        "--out": config.out,
        "--runs": config.runs,
        "--seeds": config.seeds,
        "--judge": config.judge,
        "--model": work.name,
    }
    given = [text for flag, value in flags.items() if value is not None for text in (flag, str(value))]
    return [sys.executable, "-m", "latent_tokens", "reproduce", config.experiment, *given]


def finish(job: Job) -> list[str]:
    """Close a process that has ended, and return its name and log if it failed."""
    job.file.close()
    minutes = (time.perf_counter() - job.start_time) / 60
    if job.process.returncode == 0:
        say(f"{job.work.name}: done in {minutes:.1f} minutes")
        return []
    say(f"{job.work.name}: failed, log in {job.log}")
    return [f"{job.work.name} ({job.log})"]


def say(text: str) -> None:
    """Print a line."""
    CONSOLE.print(text, highlight=False, soft_wrap=True, markup=False)


@contextmanager
def stopped_at_the_end(jobs: Sequence[Job]) -> Iterator[None]:
    """Stop the processes that are still running after the block, which save their checkpoints."""
    try:
        yield
    finally:
        for job in jobs:
            job.process.terminate()
        for job in jobs:
            job.process.wait()
            job.file.close()
