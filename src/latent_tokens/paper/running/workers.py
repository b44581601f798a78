"""Several models at a time: each is trained and measured by a process of its own, with one thread."""

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

from latent_tokens.configs import ReproduceConfig
from latent_tokens.paper.running.plan import Work
from latent_tokens.paper.running.runs import ready
from latent_tokens.progress import CONSOLE
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
