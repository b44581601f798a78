"""A run starts from the weights of another model, and a run is extended."""

import shutil
from dataclasses import replace
from functools import partial

import pytest
from safetensors.torch import load_file

from helpers.refusals import refused
from helpers.runs import checkpoints, description, rows, stop_at, tiny_run
from latent_tokens import TrainConfig, fit, from_pretrained
from latent_tokens.checkpoints.files import tensors_sha256
from latent_tokens.cli import main
from latent_tokens.training.run import Stretch
from latent_tokens.training.step import learning_rate

config_of = partial(tiny_run, size=None, evaluate_every=4)


@pytest.fixture(scope="module")
def mdm(tmp_path_factory):
    """Return a trained model whose shape is not the default."""
    shape = {"size": "pico", "positions": "both", "gelu": "tanh"}
    return fit(config_of(tmp_path_factory.mktemp("mdm") / "run", "mdm", steps=2, **shape))


def test_run_starts_from_the_weights_of_another_method(mdm, tmp_path):
    weights = load_file(mdm / "model.safetensors")
    run = fit(config_of(tmp_path / "run", steps=1, lr=1e-9, ema=0, start=mdm))
    net = from_pretrained(run)
    assert net.method.attention.__name__ == "semi_causal"
    assert max((net.state_dict()[name] - weights[name]).abs().max().item() for name in weights) < 1e-6
    about = description(run)
    assert about["model"] == {**description(mdm)["model"], "dropout": 0.0}
    assert about["start"] == {"from": str(mdm), "weights_sha256": tensors_sha256(weights)}
    stored = {name: about["training"][name] for name in ("start", "size", "positions", "gelu")}
    assert stored == {"start": str(mdm), "size": "pico", "positions": "both", "gelu": "tanh"}


def test_run_resumes_without_the_model_it_started_from(mdm, tmp_path):
    origin = shutil.copytree(mdm, tmp_path / "origin")
    whole = fit(config_of(tmp_path / "whole", start=origin))
    config = config_of(tmp_path / "cut", start=origin)
    with pytest.raises(KeyboardInterrupt):
        fit(config, observe=stop_at(2))  # the only checkpoint is that of step 0
    with refused("start=None: "):
        fit(replace(config, start=None, size="pico", positions="both", gelu="tanh", resume="yes"))
    shutil.rmtree(origin)
    resumed = fit(replace(config, resume="yes"))
    assert checkpoints(resumed) == checkpoints(whole)
    assert description(resumed)["start"] == description(whole)["start"]


@pytest.mark.parametrize(
    ("task", "changes", "part"),
    [
        ("sudoku-4", {"size": "nano"}, "has pico. Leave size out"),
        ("sudoku-4", {"gelu": "exact"}, "has tanh. Leave gelu out"),
        ("sudoku-6", {}, "sudoku-6 has 36 positions over 6 tokens"),
        ("sudoku-4", {"start": "sudoku-6-scmd"}, "Did you mean sudoku-6-scdm"),
    ],
)
def test_start_that_does_not_suit_the_run_is_refused(mdm, tmp_path, task, changes, part):
    with refused(part):
        fit(config_of(tmp_path / "run", task=task, **{"start": mdm, **changes}))
    assert not (tmp_path / "run").exists()


def test_train_from_a_bundled_model_takes_its_name(tmp_path, capsys):
    run = tmp_path / "run"
    options = ["--steps", "1", "--batch-size", "2", "--num-train", "8", "--num-validation", "2"]
    assert main(["train", "sudoku-6", "mdm", "--from", "sudoku-6-scdm", *options, "--out", str(run)]) == 0
    assert capsys.readouterr().out == f"{run}\n"
    assert description(run)["start"]["from"] == "sudoku-6-scdm"


def test_config_without_a_start_is_stored_as_before(tmp_path):
    config = TrainConfig("sudoku-4", "scdm")
    assert (config.size, config.positions, config.gelu) == ("nano", "learned", "exact")
    assert str(config.folder) == "runs/sudoku-4-scdm-nano-0"
    assert str(replace(config, start="me/model").folder) == "runs/sudoku-4-scdm-from-model-0"
    about = description(fit(config_of(tmp_path / "run", steps=1, size="pico")))
    assert "start" not in about
    assert "start" not in about["training"]


def extended(config, steps):
    return fit(replace(config, steps=steps, resume="extend"))


def test_extended_constant_run_equals_a_longer_run(tmp_path):
    settings = {"schedule": "constant", "size": "pico"}
    whole = fit(config_of(tmp_path / "whole", steps=24, **settings))
    config = config_of(tmp_path / "run", **settings)
    fit(config)
    run = extended(config, 24)
    assert checkpoints(run)[0] == checkpoints(whole)[0]
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert description(run)["training"] == description(whole)["training"]
    assert description(run)["stretches"] == [{"from": 0, "to": 12}, {"from": 12, "to": 24}]
    assert [row["step"] for row in rows(run) if row.get("extended_to") == 24] == [12]


def test_extended_cosine_run_warms_up_again(tmp_path):
    config = config_of(tmp_path / "run", size="pico")
    fit(config)
    run = extended(config, 20)
    stretches = (Stretch(0, 12), Stretch(12, 20))
    longer = replace(config, steps=20)
    first = [learning_rate(longer, step, stretches) for step in range(12)]
    assert first == [learning_rate(config, step) for step in range(12)]
    second = [learning_rate(longer, step, stretches) for step in range(12, 20)]
    assert second == [learning_rate(replace(config, steps=8), step) for step in range(8)]
    assert description(run)["stretches"][1] == {"from": 12, "to": 20}


def test_interrupted_extension_resumes_with_equal_weights(tmp_path):
    config = config_of(tmp_path / "whole", size="pico")
    fit(config)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    whole = extended(config, 20)
    cut = replace(config, out=tmp_path / "cut", steps=20)
    with pytest.raises(KeyboardInterrupt):
        fit(replace(cut, resume="extend"), observe=stop_at(17))
    resumed = fit(replace(cut, resume="extend"))
    assert checkpoints(resumed) == checkpoints(whole)
    assert description(resumed)["stretches"] == description(whole)["stretches"]
    assert checkpoints(fit(replace(cut, resume="yes"))) == checkpoints(whole)


def test_stopped_run_is_extended_from_where_it_stopped(tmp_path):
    config = config_of(tmp_path / "run", size="pico")
    with pytest.raises(KeyboardInterrupt):
        fit(config, observe=stop_at(6, "saved"))
    assert description(extended(config, 20))["stretches"] == [{"from": 0, "to": 12}, {"from": 6, "to": 20}]


def test_other_steps_without_extend_are_refused(tmp_path):
    config = config_of(tmp_path / "run", size="pico")
    fit(config)
    with refused("Use steps=12, or resume=extend"):
        fit(replace(config, steps=20, resume="yes"))
    with refused("has 12, and resume=extend adds steps"):
        extended(config, 8)
    with refused("lr=1: "):
        fit(replace(config, steps=20, lr=1, resume="extend"))
    with refused("no run to resume"):
        fit(replace(config, out=tmp_path / "nowhere", resume="extend"))


def test_line_at_the_start_states_hardware_and_steps(tmp_path, capsys):
    config = config_of(tmp_path / "run", size="pico", steps=2)
    num_parameters = sum(weight.numel() for weight in from_pretrained(fit(config)).parameters())
    line = f"1 process on cpu, fp32, {num_parameters:,} parameters, steps 0-2\n"
    assert capsys.readouterr().err.count(line) == 1
    fit(replace(config, resume="auto"))
    err = capsys.readouterr().err
    assert err.count("already finished at step 2\n") == 1
    assert "process on" not in err
