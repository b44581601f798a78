"""A queue of models: each is trained, and every row that asks for it is measured, by a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from latent_tokens.configs import ReproduceConfig
from latent_tokens.paper.running.plan import Work
from latent_tokens.paper.running.queue_file import in_order, read_queue
from latent_tokens.paper.running.runs import measured, ready
from latent_tokens.progress import CONSOLE
from latent_tokens.training.checkpoint import saved_step
from latent_tokens.training.run import Preempted, interruptible

NICENESS = 10  # of the processes: so that other work on the machine comes first
POLL_SECONDS = 1.0


@dataclass
class Job:
    """A running process, the model that it trains and measures, and its log."""

    work: Work
    process: subprocess.Popen[bytes]
    log: Path
    file: IO[bytes]
    bar: TaskID
    start_time: float


def queued(works: Sequence[Work], path: Path, config: ReproduceConfig) -> list[Work]:
    """Return models in the order of a queue file, and print a line for each entry that none of them fits.

    Raises as `read_queue`.
    """
    entries = read_queue(path, config)
    for number, entry in enumerate(entries, 1):
        if not any(entry.fits(work) for work in works):
            say(f"{path}: models {number} fits no model of {config.experiment} at scale {config.scale}")
    return in_order(works, entries)


def run_queue(works: Sequence[Work], config: ReproduceConfig, results: Path) -> None:
    """Train and measure models, `config.workers` at a time, each in a process with one thread.

    SIGINT (Ctrl-C) or SIGTERM stops the processes, which save their checkpoints. The same command resumes.

    Raises:
        ValueError: some models failed. The others are done. The message names their logs.
        Preempted: it was stopped.
    """
    waiting = deque(work for work in works if work.missing)
    text = TextColumn("{task.description}", markup=False)
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    failed: list[str] = []
    jobs: list[Job] = []
    bars = Progress(*columns, console=CONSOLE, disable=not CONSOLE.is_terminal)
    with interruptible() as signals, bars, stopped_at_the_end(jobs):
        every = bars.add_task("models", total=len(waiting))
        while (waiting or jobs) and not signals:
            while waiting and len(jobs) < config.workers and not signals:
                work = waiting.popleft()
                try:
                    job = start(work, config, bars)
                except ValueError as error:  # its data cannot be made
                    say(f"{work.name}: failed ({error})")
                    failed.append(f"{work.name} ({error})")
                    bars.advance(every)
                else:
                    jobs.append(job)  # before anything can fail, so that it is stopped at the end
                    lower_priority(job.process)
            time.sleep(POLL_SECONDS)
            for job in [job for job in jobs if job.process.poll() is not None]:
                jobs.remove(job)
                failed += finish(job, bars)
                bars.advance(every)
            for job in jobs:
                show(job, bars, results)
    if signals:
        num_unfinished = len(waiting) + len(jobs)
        raise Preempted(f"stopped with {num_unfinished} models left", signals)
    if failed:
        raise ValueError(
            f"{len(failed)} of the models failed: {', '.join(failed)}."
            " Correct the cause, and run the same command again."
        )


def start(work: Work, config: ReproduceConfig, bars: Progress) -> Job:
    """Make the data of a model, and start the process that trains and measures it."""
    # The data is made here, because processes must not make it at the same time.
    if not work.recipes[0].imported:
        needed = [data for recipe in work.missing for data in (recipe.data, recipe.problems) if data]
        for data in dict.fromkeys(needed):
            ready(data)
    log = config.runs / config.scale / "logs" / f"{work.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    say(f"{work.name}: {work.steps_left:,} steps to train, {len(work.missing)} rows to measure, log in {log}")
    bar = bars.add_task(work.name, total=work.recipes[0].training.steps)
    file = log.open("ab")
    process = subprocess.Popen(
        command(work, config), stdout=file, stderr=file, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    return Job(work, process, log, file, bar, time.perf_counter())


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


def finish(job: Job, bars: Progress) -> list[str]:
    """Close a process that has ended, and return its name and log if it failed."""
    job.file.close()
    bars.remove_task(job.bar)
    seconds = time.perf_counter() - job.start_time
    if job.process.returncode == 0:
        say(f"{job.work.name}: done in {seconds / 60:.1f} minutes")
        return []
    say(f"{job.work.name}: failed, log in {job.log}")
    return [f"{job.work.name} ({job.log})"]


def show(job: Job, bars: Progress, results: Path) -> None:
    """Move the bar of a process: steps while it trains, then rows. Without a terminal there is no bar."""
    if bars.disable:
        return
    training = job.work.recipes[0].training
    step = saved_step(training.folder)
    if step < training.steps:
        bars.update(job.bar, description=f"{job.work.name}: steps", completed=step, total=training.steps)
        return
    rows = measured(results)
    done = sum(recipe.hash in rows for recipe in job.work.recipes)
    total = len(job.work.recipes)
    bars.update(job.bar, description=f"{job.work.name}: rows", completed=done, total=total)


@contextmanager
def stopped_at_the_end(jobs: Sequence[Job]) -> Iterator[None]:
    """Stop the processes that still run after the block, and wait until they have saved."""
    try:
        yield
    finally:
        for job in jobs:
            job.process.terminate()
        for job in jobs:
            job.process.wait()
            job.file.close()


def say(line: str) -> None:
    """Print one line."""
    CONSOLE.print(line, highlight=False, soft_wrap=True)
