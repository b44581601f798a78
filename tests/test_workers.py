"""Several workers train and measure models, each in a process of its own, and resume."""

import os
import signal
import sys
import threading
from dataclasses import replace

import pytest

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
def test_workers_measure_every_row_once(config, capfd):
    table = reproduce(config)
    works, results = works_of(config)
    assert [work.state for work in works] == ["done"] * 3
    assert "not run" not in table
    rows = results.read_bytes()
    assert reproduce(config) == table
    assert results.read_bytes() == rows

    # The same rows as of one process.
    alone = replace(config, workers=1, out=config.out / "alone", runs=config.runs / "alone")
    assert "not run" not in reproduce(alone)
    values = [
        {recipe: row["perplexity"] for recipe, row in measured(path).items()}
        for path in (results, alone.out / "smoke" / "rows.jsonl")
    ]
    assert values[0] == values[1]
    capfd.readouterr()


def test_failed_models_are_named_with_their_logs(config, monkeypatch):
    script = "import sys; print('the reason'); sys.exit(1)"
    monkeypatch.setattr(workers, "command", lambda work, config: [sys.executable, "-c", script])
    works, _ = works_of(config)
    with pytest.raises(ValueError, match="3 of the models failed") as failure:
        run_in_processes(works, config)
    for work in works:
        log = config.runs / "smoke" / "logs" / f"{work.name}.log"
        assert str(log) in str(failure.value)
        assert log.read_text() == "the reason\n"


def test_stopped_command_stops_its_processes(config, monkeypatch):
    script = "import time; print('begun', flush=True); time.sleep(600)"
    monkeypatch.setattr(workers, "command", lambda work, config: [sys.executable, "-c", script])
    works, _ = works_of(config)
    started = []

    def start(work, config, start=workers.start):
        started.append(start(work, config))
        return started[-1]

    monkeypatch.setattr(workers, "start", start)
    threading.Timer(3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(Preempted, match="stopped with 3 models left") as stopped:
        run_in_processes(works, config)
    assert stopped.value.code == 75
    assert [process.returncode for process in started] == [-signal.SIGTERM] * len(works)


def test_one_model_alone_is_measured(config, tmp_path):
    works, results = works_of(config)
    one = replace(config, workers=1, model=works[0].name)
    assert "| done |" in reproduce(one)
    assert {row["model"] for row in measured(results).values()} == {works[0].name}


def test_unknown_model_is_refused_with_the_closest_one():
    """The line does not list all models."""
    config = ReproduceConfig("all", model="sudoku-6-arm-1-553a7322700", status=True)
    with pytest.raises(ValueError, match="is not one of the models that --status lists") as refusal:
        reproduce(config)
    assert str(refusal.value).endswith(". Did you mean sudoku-6-arm-1-553a7322700e?")
    assert len(str(refusal.value)) < 200
