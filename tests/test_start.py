"""A run starts from the weights of another model or with another method, and a run is extended."""

import shutil
from dataclasses import replace

import pytest
from safetensors.torch import load_file

from helpers.refusals import refused
from helpers.runs import checkpoints, description, rows, stop_at, tiny_run
from latent_tokens import TrainConfig, fit, from_pretrained
from latent_tokens.checkpoints.files import tensors_sha256
from latent_tokens.cli import main

SHAPE = {"size": "pico", "positions": "both", "gelu": "tanh"}


@pytest.fixture(scope="module")
def mdm(tmp_path_factory):
    """Return a trained model whose shape is not the default."""
    return fit(tiny_run(tmp_path_factory.mktemp("mdm") / "run", "mdm", steps=2, **SHAPE))


def started(out, start, **changes):
    """Return the config of a run that starts from another, with its shape."""
    return tiny_run(out, start=start, size=None, **changes)


def test_run_starts_from_the_weights_of_another_method(mdm, tmp_path):
    weights = load_file(mdm / "model.safetensors")
    run = fit(started(tmp_path / "run", mdm, steps=1, lr=1e-9, ema=0))
    net = from_pretrained(run)
    assert net.method.attention.__name__ == "semi_causal"
    assert max((net.state_dict()[name] - weights[name]).abs().max().item() for name in weights) < 1e-6
    config = description(run)
    assert config["model"] == {**description(mdm)["model"], "dropout": 0.0}
    assert config["start"] == {"from": str(mdm), "weights_sha256": tensors_sha256(weights)}
    assert {name: config["training"][name] for name in ("start", *SHAPE)} == {"start": str(mdm), **SHAPE}


def test_run_resumes_without_the_model_it_started_from(mdm, tmp_path):
    origin = shutil.copytree(mdm, tmp_path / "origin")
    whole = fit(started(tmp_path / "whole", origin, steps=4))
    config = started(tmp_path / "cut", origin, steps=4)
    with pytest.raises(KeyboardInterrupt):
        fit(config, observe=stop_at(2))  # the only checkpoint is that of step 0
    with refused("start=None: "):
        fit(replace(config, start=None, resume="yes", **SHAPE))
    shutil.rmtree(origin)
    resumed = fit(replace(config, resume="yes"))
    assert checkpoints(resumed) == checkpoints(whole)
    assert description(resumed)["start"] == description(whole)["start"]


def test_start_that_does_not_suit_the_run_is_refused(mdm, tmp_path):
    for changes, part in (
        ({"size": "nano"}, "has pico. Leave size out"),
        ({"gelu": "exact"}, "has tanh. Leave gelu out"),
        ({"task": "sudoku-6"}, "sudoku-6 has 36 positions over 6 tokens"),
        ({"start": "sudoku-6-scmd"}, "Did you mean sudoku-6-scdm"),
    ):
        with refused(part):
            fit(tiny_run(tmp_path / "run", **{"start": mdm, "size": None, **changes}))
        assert not (tmp_path / "run").exists()


def test_train_from_a_bundled_model_takes_its_name(tmp_path):
    run = tmp_path / "run"
    options = f"--steps 1 --batch-size 2 --num-train 8 --num-validation 2 --out {run}"
    assert main(["train", "sudoku-6", "mdm", "--from", "sudoku-6-scdm", *options.split()]) == 0
    assert description(run)["start"]["from"] == "sudoku-6-scdm"


def test_config_without_a_start_is_stored_as_before(tmp_path):
    config = TrainConfig("sudoku-4", "scdm")
    assert str(config.folder) == "runs/sudoku-4-scdm-nano-0"
    assert str(replace(config, start="me/model").folder) == "runs/sudoku-4-scdm-from-model-0"
    assert str(replace(config, first="sidm:4").folder) == "runs/sudoku-4-scdm-first-sidm.4-nano-0"
    stored = description(fit(tiny_run(tmp_path / "run", steps=1)))
    assert "start" not in stored
    assert not {"start", "first"} & stored["training"].keys()


def extended(config, steps):
    return fit(replace(config, steps=steps, resume="extend"))


def test_extended_constant_run_equals_a_longer_run(tmp_path):
    whole = fit(tiny_run(tmp_path / "whole", steps=12, schedule="constant"))
    config = tiny_run(tmp_path / "run", steps=6, schedule="constant")
    fit(config)
    run = extended(config, 12)
    assert checkpoints(run)[0] == checkpoints(whole)[0]
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert description(run)["training"] == description(whole)["training"]
    assert description(run)["stretches"] == [{"from": 0, "to": 6}, {"from": 6, "to": 12}]
    assert [row["step"] for row in rows(run) if row.get("extended_to") == 12] == [6]


def test_interrupted_extension_resumes_with_equal_weights(tmp_path):
    config = tiny_run(tmp_path / "whole", steps=6)
    fit(config)
    shutil.copytree(config.folder, tmp_path / "cut")
    whole = extended(config, 12)
    cut = replace(config, out=tmp_path / "cut", steps=12)
    with pytest.raises(KeyboardInterrupt):
        fit(replace(cut, resume="extend"), observe=stop_at(10))
    for resume in ("extend", "yes"):
        resumed = fit(replace(cut, resume=resume))
        assert checkpoints(resumed) == checkpoints(whole)
        assert description(resumed)["stretches"] == description(whole)["stretches"]


def test_stopped_run_is_extended_from_where_it_stopped(tmp_path):
    config = tiny_run(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        fit(config, observe=stop_at(6, "saved"))
    assert description(extended(config, 14))["stretches"] == [{"from": 0, "to": 12}, {"from": 6, "to": 14}]
    with refused("Use steps=14, or resume=extend"):
        fit(replace(config, steps=20, resume="yes"))
    with refused("has 14, and resume=extend adds steps"):
        extended(config, 8)
    with refused("lr=1: "):
        fit(replace(config, steps=20, lr=1, resume="extend"))
    with refused("no run to resume"):
        fit(replace(config, out=tmp_path / "nowhere", resume="extend"))


def test_line_at_the_start_states_hardware_and_steps(tmp_path, capsys):
    config = tiny_run(tmp_path / "run", steps=2, warmup=1)
    num_parameters = sum(weight.numel() for weight in from_pretrained(fit(config)).parameters())
    line = f"1 process on cpu, fp32, {num_parameters:,} parameters, steps 0-2\n"
    err = capsys.readouterr().err
    assert (err.count(line), err.count("warmup")) == (1, 0)
    fit(replace(config, out=tmp_path / "few", warmup=2))
    assert "warmup of 2 takes every step. Use --warmup 1" in capsys.readouterr().err
    fit(replace(config, resume="auto"))
    assert capsys.readouterr().err.count("already finished at step 2\n") == 1


# A run whose first steps train with another method (latent_tokens.training.run, latent_tokens.training.loop).


def with_first(out, method="scdm", first="mdm-depth:4"):
    budget = {"steps": 8, "save_every": 1, "keep": 8, "evaluate_every": 4, "warmup": 2}
    return tiny_run(out, method, first=first, **budget)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a run of scdm after mdm-depth, whose inputs are its own, and one of mdm-depth alone."""
    folder = tmp_path_factory.mktemp("runs")
    return fit(with_first(folder / "both")), fit(with_first(folder / "alone", "mdm-depth", None))


def test_first_steps_are_those_of_the_first_method(runs):
    """One schedule and one order of the data: equal weights until the change, different ones after it."""
    both, first_alone = (
        [load_file(run / name)["net.head.weight"] for name in sorted(checkpoints(run))] for run in runs
    )
    assert [after.equal(alone) for after, alone in zip(both, first_alone, strict=True)] == [True] * 4 + [
        False
    ] * 4
    # At step 4 the weights are equal, and the validation loss is that of the final method.
    first, second = (
        next(row["validation_loss"] for row in rows(run) if "validation_loss" in row) for run in runs
    )
    assert first != second


@pytest.mark.parametrize("step", [4, 5, 6])
def test_resume_around_a_change_of_method_gives_equal_weights(runs, tmp_path, step):
    """The checkpoints of steps 3, 4 and 5: before, at and after the change."""
    config = with_first(tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        fit(config, observe=stop_at(step))
    assert len(checkpoints(config.folder)) == step - 1
    assert checkpoints(fit(config, resume="yes")) == checkpoints(runs[0])


def test_a_first_method_that_does_not_fit_is_refused(runs, tmp_path):
    for first, part in (
        ("mdm", "METHOD:STEPS, with 1 to 7 steps of steps=8"),
        ("mdm:0", "first=mdm:0"),
        ("mdm:8", "1 to 7"),
        ("mdm:x", "first=mdm:x"),
        ("arm:4", "Use one of mdm, sidm, scdm"),
        ("ar-mtp:4", "order, window or readout is not that of scdm"),
        ("mdx:4", "mdx"),
    ):
        with refused(part):
            fit(with_first(tmp_path / "run", first=first))
        assert not (tmp_path / "run").exists()
    with refused("first=None: "):
        fit(with_first(runs[0], first=None), resume="yes")
