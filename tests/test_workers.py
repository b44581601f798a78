"""Several workers train and measure models, each in a process of its own, and resume."""

import os
import signal
import sys
import threading
from dataclasses import replace

import pytest

from helpers.refusals import refused
from latent_tokens.configs import ReproduceConfig
from latent_tokens.paper import plan as workers
from latent_tokens.paper.plan import plan, run_in_processes
from latent_tokens.paper.recipes import recipes
from latent_tokens.paper.reproduce import reproduce
from latent_tokens.paper.run import measured
from latent_tokens.training.run import Preempted


@pytest.fixture
def config(tmp_path):
    return ReproduceConfig("table-text", "smoke", tmp_path / "results", tmp_path / "runs", workers=3)


def works_of(config):
    results = config.out / config.scale / "rows.jsonl"
    return plan(recipes(config.experiment, config.scale, config.runs, evaluator="trigrams"), results), results


@pytest.mark.slow
def test_workers_measure_every_row_once(config):
    works, results = works_of(config)
    name = works[0].name
    assert "| done |" in reproduce(replace(config, workers=1, model=name))
    assert {row["model"] for row in measured(results).values()} == {name}
    table = reproduce(config)
    works, results = works_of(config)
    assert [work.state for work in works] == ["done"] * 3
    assert "not run" not in table
    content = results.read_bytes()
    assert reproduce(config) == table
    assert results.read_bytes() == content

    # The same rows as of one process.
    alone = replace(config, workers=1, out=config.out / "alone", runs=config.runs / "alone")
    assert "not run" not in reproduce(alone)
    values, expected = (
        {recipe: row["perplexity"] for recipe, row in measured(path).items()}
        for path in (results, alone.out / "smoke" / "rows.jsonl")
    )
    assert values == expected


@pytest.fixture
def runs(config, monkeypatch):
    """Return a function that runs a script for each model, and the processes."""
    started = []

    def start(work, config, start=workers.start):
        started.append(start(work, config))
        return started[-1]

    def run(script):
        monkeypatch.setattr(workers, "command", lambda work, config: [sys.executable, "-c", script])
        monkeypatch.setattr(workers, "start", start)
        run_in_processes(works_of(config)[0], config)

    return run, started


def test_failed_models_are_named_with_their_logs(config, runs):
    with pytest.raises(ValueError, match="3 of the models failed") as failure:
        runs[0]("import sys; print('the reason'); sys.exit(1)")
    for work in works_of(config)[0]:
        log = config.runs / "smoke" / "logs" / f"{work.name}.log"
        assert str(log) in str(failure.value)
        assert log.read_text() == "the reason\n"


def test_stopped_command_stops_its_processes(runs):
    run, started = runs
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(Preempted, match="stopped with 3 models left") as stopped:
        run("import time; time.sleep(600)")
    assert stopped.value.code == 75
    assert [process.returncode for process in started] == [-signal.SIGTERM] * 3


def test_name_of_another_model_is_refused(config):
    name = works_of(config)[0][0].name
    with refused("is not one of the models that --status lists", f". Did you mean {name}?"):
        reproduce(replace(config, workers=1, model=name[:-1], status=True))
