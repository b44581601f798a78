"""A queue trains and measures models in its order, each in a process of its own, and resumes."""

import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from latent_tokens.cli import main
from latent_tokens.configs import ReproduceConfig
from latent_tokens.configs.reproduce import RUN_NOTHING
from latent_tokens.paper.design.experiments import EXPERIMENTS
from latent_tokens.paper.design.recipes import recipes
from latent_tokens.paper.design.scales import SCALES
from latent_tokens.paper.reproduce import reproduce
from latent_tokens.paper.running import queue
from latent_tokens.paper.running.plan import plan
from latent_tokens.paper.running.queue import NICENESS, queued, run_queue
from latent_tokens.paper.running.queue_file import Entry, in_order, read_queue
from latent_tokens.paper.running.runs import measured
from latent_tokens.paper.tables.catalogue import CATALOGUE
from latent_tokens.training.run import Preempted

QUEUE = Path(__file__).parents[1] / "results" / "queue.toml"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "queue.toml"
    path.write_text('[[models]]\ntask = "text"\nmethods = ["esolm"]\n')
    return ReproduceConfig(
        "table-text", "smoke", tmp_path / "results", tmp_path / "runs", queue=path, workers=3
    )


def works_of(config):
    results = config.out / config.scale / "rows.jsonl"
    return plan(recipes(config.experiment, config.scale, config.runs, judge="trigrams"), results), results


def test_order_of_a_queue_is_that_of_its_entries():
    every = [recipe for name in EXPERIMENTS for recipe in recipes(name, "cpu", Path("runs"))]
    works = plan(every, Path("missing"))
    entries = [Entry("countdown", ("mdm",)), Entry("sudoku-gen", seeds=(1,), steps=3_400)]
    recipes_of_models = [work.recipes[0] for work in in_order(works, entries)]
    models = [(recipe.cell.task, recipe.training) for recipe in recipes_of_models]
    first = [
        place for place, (task, model) in enumerate(models) if (task, model.method) == ("countdown", "mdm")
    ]
    second = [
        place
        for place, (task, model) in enumerate(models)
        if (task, model.seed, model.steps) == ("sudoku-gen", 1, 3_400)
    ]
    assert (len(first), len(second)) > (0, 0)
    assert first + second == list(range(len(first + second)))
    assert len(models) == len(works)


def test_every_task_is_in_the_stored_queue():
    entries = read_queue(QUEUE, ReproduceConfig("all", "cpu"))
    assert {entry.task for entry in entries} == set(SCALES["cpu"].budgets)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("models = 3", "must have tables [[models]]"),
        ("models = [3]", "must have tables [[models]]"),
        ("models = []", "must have tables [[models]]"),
        ("[[models]", "is not TOML (Expected ']]'"),
        ("[[models]]\nsteps = 5", 'models 1: has no task. Add a line like task = "sudoku-gen".'),
        ("[[models]]\ntask = 'sudoku'", "models 1: task=sudoku: must be one of sudoku-gen"),
        ("[[models]]\ntask = 'zebra'\nmethod = ['mdm']", "models 1: key=method: must be one of "),
        ("[[models]]\ntask = 'zebra'\nmethods = 'mdm'", 'methods = "mdm": must be a list like ["mdm"]'),
        ("[[models]]\ntask = 'zebra'\nmethods = []", "models 1: methods = []: is empty. Remove the line"),
        ("[[models]]\ntask = 'zebra'\nmethods = ['scdn']", "models 1: method=scdn: must be one of mdm, "),
        ("[[models]]\ntask = 'zebra'\nseeds = ['0']", 'seeds = ["0"]: must be a list like [0, 1]'),
        ("[[models]]\ntask = 'zebra'\nseeds = []", "models 1: seeds = []: is empty. Remove the line"),
        ("[[models]]\ntask = 'zebra'\nseeds = [true]", "seeds = [true]: must be a list like [0, 1]"),
        ("[[models]]\ntask = 'zebra'\nseeds = [-1]", "seeds = [-1]: must be a list like [0, 1]"),
        ("[[models]]\ntask = 'zebra'\nseeds = 2020-01-01", 'seeds = "2020-01-01": must be a list'),
        ("[[models]]\ntask = 'zebra'\nsteps = 0", "models 1: steps=0: must be a whole number from 1"),
        ("[[models]]\ntask = 'zebra'\nsteps = true", "steps=True: must be a whole number from 1"),
    ],
)
def test_wrong_queue_is_refused_in_one_line(tmp_path, content, problem, capsys):
    path = tmp_path / "queue.toml"
    path.write_text(content)
    assert main(["reproduce", "all", "--queue", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"latent-tokens: --queue {path}: ")
    assert problem in line


def test_missing_queue_is_named_once(tmp_path, capsys):
    path = tmp_path / "none.toml"
    assert main(["reproduce", "all", "--queue", str(path)]) == 2
    error = f"--queue {path}: cannot be read (No such file or directory). Name a TOML file."
    assert capsys.readouterr().err == f"latent-tokens: {error}\n"


def test_entry_that_no_model_fits_is_named(tmp_path, capsys):
    path = tmp_path / "queue.toml"
    tables = ["steps = 3400", "steps = 3401", "seeds = [7]", "seeds = [2, 7]"]
    path.write_text("".join(f"[[models]]\ntask = 'sudoku-gen'\n{line}\n" for line in tables))
    works = plan(recipes("figure-1", "cpu", Path("runs")), Path("missing"))
    models = queued(works, path, ReproduceConfig("figure-1", "cpu"))
    assert {work.name for work in models} == {work.name for work in works}
    assert capsys.readouterr().err.splitlines() == [
        f"{path}: models {number} fits no model of figure-1 at scale cpu" for number in (2, 3)
    ]


@pytest.mark.slow
def test_queue_measures_every_row_once(config, capfd):
    table = reproduce(config)
    works, results = works_of(config)
    assert [work.state for work in works] == ["done"] * 3
    assert "not run" not in table
    rows = results.read_bytes()
    assert reproduce(config) == table
    assert results.read_bytes() == rows

    # The same rows as without a queue.
    alone = replace(config, queue=None, workers=1, out=config.out / "alone", runs=config.runs / "alone")
    assert "not run" not in reproduce(alone)
    values = [
        {recipe: row["perplexity"] for recipe, row in measured(path).items()}
        for path in (results, alone.out / "smoke" / "rows.jsonl")
    ]
    assert values[0] == values[1]
    capfd.readouterr()


def test_failed_models_are_named_with_their_logs(config, monkeypatch):
    script = "import sys; print('the reason'); sys.exit(1)"
    monkeypatch.setattr(queue, "command", lambda work, config: [sys.executable, "-c", script])
    works, results = works_of(config)
    with pytest.raises(ValueError, match="3 of the models failed") as failure:
        run_queue(works, config, results)
    for work in works:
        log = config.runs / "smoke" / "logs" / f"{work.name}.log"
        assert str(log) in str(failure.value)
        assert log.read_text() == "the reason\n"


def test_stopped_queue_stops_its_processes(config, monkeypatch):
    script = "import time; print('begun', flush=True); time.sleep(600)"
    monkeypatch.setattr(queue, "command", lambda work, config: [sys.executable, "-c", script])
    works, results = works_of(config)
    started = []
    monkeypatch.setattr(queue, "show", lambda job, bars, results: started.append(job))
    threading.Timer(3, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(Preempted, match="stopped with 3 models left") as stopped:
        run_queue(works, config, results)
    assert stopped.value.code == 75
    assert {job.work.name for job in started} == {work.name for work in works}
    assert all(job.process.returncode == -signal.SIGTERM for job in started)


def test_failed_queue_stops_its_processes(config, monkeypatch):
    """An error of the queue itself, such as a row that was changed, leaves no process behind."""
    script = "import time; time.sleep(600)"
    monkeypatch.setattr(queue, "command", lambda work, config: [sys.executable, "-c", script])
    works, results = works_of(config)
    started = []

    def fail(job, bars, results):
        started.append(job)
        raise ValueError("row 1: was changed")

    monkeypatch.setattr(queue, "show", fail)
    with pytest.raises(ValueError, match="row 1"):
        run_queue(works, config, results)
    assert [job.process.poll() for job in started] == [-signal.SIGTERM]


def test_data_that_cannot_be_made_is_reported_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # which has no texts/english
    config = ReproduceConfig("figure-text", "cpu", tmp_path / "results", tmp_path / "runs")
    works, results = works_of(config)
    with pytest.raises(ValueError, match=f"{len(works)} of the models failed") as failure:
        run_queue(works, config, results)
    assert str(failure.value).endswith(". Correct the cause, and run the same command again.")
    for line, work in zip(capsys.readouterr().err.splitlines(), works, strict=True):
        assert line.startswith(f"{work.name}: failed (source=texts/english: is missing.")


@pytest.mark.parametrize(("niceness", "of_process"), [(0, NICENESS), (NICENESS, NICENESS), (15, 15)])
def test_niceness_is_never_lower_than_that_of_the_queue(config, monkeypatch, niceness, of_process):
    """Only root may lower it: for others it raises PermissionError."""
    monkeypatch.setattr(queue, "command", lambda work, config: [sys.executable, "-c", ""])
    priorities = []
    monkeypatch.setattr(os, "getpriority", lambda which, who: niceness)
    monkeypatch.setattr(os, "setpriority", lambda which, who, priority: priorities.append(priority))
    works, results = works_of(config)
    run_queue(works, config, results)
    assert priorities == [of_process] * len(works)


def test_process_is_stopped_if_its_start_fails(config, monkeypatch):
    script = "import time; time.sleep(60)"
    monkeypatch.setattr(queue, "command", lambda work, config: [sys.executable, "-c", script])
    started = []

    def fail(which, process, priority):
        started.append(process)
        raise PermissionError("setpriority")

    monkeypatch.setattr(os, "setpriority", fail)
    works, results = works_of(config)
    with pytest.raises(PermissionError):
        run_queue(works, config, results)
    (process,) = started
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_one_model_alone_is_measured(config, tmp_path):
    works, results = works_of(config)
    one = replace(config, queue=None, workers=1, model=works[0].name)
    assert "| done |" in reproduce(one)
    assert {row["model"] for row in measured(results).values()} == {works[0].name}


def test_unknown_model_is_refused_with_the_closest_one():
    """The line does not list all models."""
    config = ReproduceConfig("all", model="sudoku-6-arm-1-553a7322700", status=True)
    with pytest.raises(ValueError, match="is not one of the models that --status lists") as refusal:
        reproduce(config)
    assert str(refusal.value).endswith(". Did you mean sudoku-6-arm-1-553a7322700e?")
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["table-1", "--workers", "2"],
            "--workers 2: is only for a queue, which names the models. Add --queue FILE.",
        ),
        (["claims", "--status"], "--status: claims runs nothing. Leave it out."),
        (["claims", "--queue", "q.toml"], "--queue q.toml: claims runs nothing. Leave it out."),
        (["table-models", "--model", "a"], "--model a: table-models runs nothing. Leave it out."),
        (["table-training", "--seeds", "2"], "--seeds 2: table-training has no results. Leave it out."),
        (["table-models", "--evaluator", "a"], "--evaluator a: table-models has no results. Leave it out."),
        (["table-models", "--judge", "a"], "--judge a: table-models has no results. Leave it out."),
        (
            ["all", "--model", "m", "--queue", "q.toml"],
            "--model m with --queue q.toml: a queue names the models. Leave one out.",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_settings_without_effect_are_refused_as_typed(arguments, message, capsys):
    assert main(["reproduce", *arguments]) == 2
    assert capsys.readouterr().err == f"latent-tokens: {message}\n"


def test_experiments_that_run_nothing_are_named():
    assert set(RUN_NOTHING) == {*CATALOGUE, "claims"}
