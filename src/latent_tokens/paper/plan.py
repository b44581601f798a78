"""The plan of a reproduction: the models that are missing, and several of them at a time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from latent_tokens.configs import ReproduceConfig
from latent_tokens.paper.recipes import Recipe
from latent_tokens.paper.run import ready, rows_by_recipe
from latent_tokens.progress import CONSOLE
from latent_tokens.storage import create_directory, kind_of
from latent_tokens.training.checkpoint import saved_step
from latent_tokens.training.run import Preempted, interruptible

POLL_SECONDS = 1.0


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
        recipe = self.recipes[0]
        if recipe.imported and kind_of(recipe.training.folder) != "model":
            return "to import"
        if not self.steps_left:
            return "trained"
        return "begun" if self.steps_left < recipe.training.steps else "missing"


def plan(recipes: Sequence[Recipe], results: Path) -> list[Work]:
    """Return the models of recipes in their order, with the missing rows and steps of each."""
    rows = rows_by_recipe(results)
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


def run_in_processes(works: Sequence[Work], config: ReproduceConfig) -> None:
    """Train and measure models, `config.workers` at a time, each in a process with one thread.

    SIGINT (Ctrl-C) or SIGTERM stops the processes, which save their checkpoints. The same command
    resumes.

    Raises:
        ValueError: some models failed. The others are done. The message names their logs.
        Preempted: it was stopped.
    """
    waiting = deque(work for work in works if work.missing)
    running: dict[subprocess.Popen[bytes], Work] = {}
    failed: list[str] = []
    with interruptible() as signals:
        try:
            while (waiting or running) and not signals:
                while waiting and len(running) < config.workers and not signals:
                    work = waiting.popleft()
                    try:
                        running[start_process(work, config)] = work
                    except ValueError as error:  # its data cannot be made
                        say(f"{work.name}: failed ({error})")
                        failed.append(f"{work.name} ({error})")
                time.sleep(POLL_SECONDS)
                for process in [process for process in running if process.poll() is not None]:
                    work = running.pop(process)
                    log = log_of(work, config)
                    outcome = f"failed, log in {log}" if process.returncode else "done"
                    say(f"{work.name}: {outcome}")
                    failed += [f"{work.name} ({log})"] if process.returncode else []
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()
    if signals:
        raise Preempted(f"stopped with {len(waiting) + len(running)} models left", signals)
    if failed:
        fix = "Correct the cause, and run the same command again"
        raise ValueError(f"{len(failed)} of the models failed: {', '.join(failed)}. {fix}.")


def start_process(work: Work, config: ReproduceConfig) -> subprocess.Popen[bytes]:
    """Make the data of a model, and return the process that trains and measures it."""
    # The data is made here, because processes must not make it at the same time.
    if not work.recipes[0].imported:
        for recipe in work.missing:
            for data in filter(None, (recipe.data, recipe.problems)):
                ready(data)
    log = log_of(work, config)
    create_directory(log.parent)
    to_do = f"{work.steps_left:,} steps to train, {len(work.missing)} rows to measure"
    say(f"{work.name}: {to_do}, log in {log}")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("ab") as file:
        return subprocess.Popen(command(work, config), stdout=file, stderr=file, env=environment)


def log_of(work: Work, config: ReproduceConfig) -> Path:
    """Return the file with what the process of a model prints."""
    return config.runs / config.scale / "logs" / f"{work.name}.log"


def command(work: Work, config: ReproduceConfig) -> list[str]:
    """Return the command of a model's process, at low priority."""
    given = ["--model", work.name]
    for name in ("scale", "out", "runs", "seeds", "evaluator"):
        value = getattr(config, name)
        given += [] if value is None else [f"--{name}", str(value)]
    nice = ["nice"] if shutil.which("nice") else []
    return [*nice, sys.executable, "-m", "latent_tokens", "reproduce", config.experiment, *given]


def say(text: str) -> None:
    """Print a line."""
    CONSOLE.print(text, highlight=False, soft_wrap=True, markup=False)
