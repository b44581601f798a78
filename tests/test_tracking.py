"""A tracker receives the metrics and results of a run under one name and id, inside the run directory."""

import json
import os
import signal
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from types import ModuleType
from unittest.mock import Mock

import pytest
from accelerate import tracking as accelerate_tracking

from helpers.refusals import refused, refused_command
from helpers.runs import rows, stop_at, tiny_run
from latent_tokens import fit
from latent_tokens.cli import main
from latent_tokens.training.run import Preempted


def run_of(out, tracker, evaluate_every=3):
    return tiny_run(out, track=tracker, steps=6, evaluate_every=evaluate_every)


@pytest.fixture
def wandb(monkeypatch):
    """Return a fake module wandb whose runs are in `wandb.runs`."""
    module = ModuleType("wandb")
    module.__spec__ = ModuleSpec("wandb", None)
    module.runs = []
    module.config = Mock()

    def init(**settings):
        module.runs.append(Mock(settings=settings))
        return module.runs[-1]

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    available = [*accelerate_tracking._available_trackers, accelerate_tracking.LoggerType.WANDB]
    monkeypatch.setattr(accelerate_tracking, "_available_trackers", available)
    return module


def logged(run):
    """Return the values that a run of wandb received, with their steps."""
    return [{"step": call.kwargs.get("step"), **call.args[0]} for call in run.log.call_args_list]


def test_tracker_follows_a_run_under_its_name_and_id(wandb, tmp_path, capsys):
    config = run_of(tmp_path / "four", "wandb")
    with pytest.raises(KeyboardInterrupt):
        fit(config, observe=stop_at(4, "training"))
    run = fit(replace(config, resume="yes"))
    first, second = wandb.runs
    assert first.settings == second.settings
    assert {"name": "four", "dir": str(run), "resume": "allow"}.items() <= first.settings.items()
    assert second.finish.called
    assert logged(first) + logged(second) == rows(run)

    command = [
        "evaluate",
        str(run),
        "--num-samples",
        "2",
        "--latents",
        "0",
        "all",
        "--json",
        "--track",
        "wandb",
    ]
    assert main(command) == 0
    evaluated = wandb.runs[-1]
    assert evaluated.settings == first.settings
    assert evaluated.finish.called
    expected = []
    for row in map(json.loads, capsys.readouterr().out.splitlines()):
        values = {"valid": row["valid"], "relative_cost": row["relative_cost"]}
        values |= dict(zip(("ci_low", "ci_high"), row["ci95"], strict=True))
        cell = f"evaluate/top_prob-k8-n{row['latents']}"
        expected.append({"step": None, **{f"{cell}/{name}": value for name, value in values.items()}})
    assert logged(evaluated) == expected

    fit(run_of(tmp_path / "other" / "four", "wandb"))
    assert wandb.runs[-1].settings["id"] != first.settings["id"]


def test_tracker_of_a_run_that_a_signal_stops_is_finished(wandb, tmp_path):
    def send(*reported):
        if reported == ("training", 4):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Preempted, match="stopped at step 5 of 6"):
        fit(run_of(tmp_path / "run", "wandb"), observe=send)
    assert wandb.runs[0].finish.called


def test_tensorboard_has_metrics_and_results_of_a_run(tmp_path, capsys):
    """Values that an interrupted run logged after its last checkpoint are hidden."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = run_of(tmp_path / "run", "tensorboard", evaluate_every=2)
    with pytest.raises(KeyboardInterrupt):
        fit(config, observe=stop_at(5, "training"))
    run = fit(replace(config, resume="yes"))
    assert main(["evaluate", str(run), "--num-samples", "2", "--json", "--track", "tensorboard"]) == 0
    row = json.loads(capsys.readouterr().out)
    events = EventAccumulator(str(run / "latent-tokens")).Reload()
    assert [event.step for event in events.Scalars("validation_loss")] == [2, 4, 6]
    losses = [row["validation_loss"] for row in rows(run) if "validation_loss" in row]
    assert [event.value for event in events.Scalars("validation_loss")] == pytest.approx(losses)
    (event,) = events.Scalars("evaluate/top_prob-k8-n0/valid")
    assert (event.step, event.value) == (6, pytest.approx(row["valid"]))


def test_tracker_that_is_not_there_is_refused_in_one_line(wandb, tmp_path, capsys, monkeypatch):
    with refused("track=mlflow: is not installed. Use pip install mlflow"):
        fit(run_of(tmp_path / "other", "mlflow"))
    assert not (tmp_path / "other").exists()

    # One that does not start leaves nothing that blocks the next try.
    def init(**settings):
        raise OSError("no server\nat all")

    monkeypatch.setattr(wandb, "init", init)
    with refused("track=wandb: does not start (OSError: no server). Set it up"):
        fit(run_of(tmp_path / "run", "wandb"))
    assert not (tmp_path / "run").exists()
    run = fit(tiny_run(tmp_path / "run", steps=1))
    command = f"evaluate {run} --track wandb"
    refused_command(capsys, command, "--track wandb: ", "was trained without a tracker")
    (run / "tracker.json").write_text("{}")
    refused_command(capsys, command, "tracker.json: corrupt. Remove it")
