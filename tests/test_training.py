"""Training learns, is reproducible, and can be interrupted at any step without loss."""

import json
import math
import os
import resource
import signal
from dataclasses import fields, replace
from itertools import count

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from latent_tokens import (
    METHODS,
    TASKS,
    DataConfig,
    EvalConfig,
    TrainConfig,
    evaluate,
    fit,
    from_pretrained,
    make_data,
)
from latent_tokens.core.method import name_of
from latent_tokens.core.objective import weighted_nll
from latent_tokens.keywords import TrainSettings
from latent_tokens.storage import write_atomic
from latent_tokens.training.checkpoint import (
    DIGITS,
    load_optimizer,
    optimizer_tensors,
    saved_states,
    saved_step,
)
from latent_tokens.training.loop import is_finished
from latent_tokens.training.run import Preempted
from latent_tokens.training.step import ema_update, learning_rate, training_batches


def tiny_run(out, **changes):
    settings = {
        "method": "scdm",
        "size": "pico",
        "steps": 12,
        "batch_size": 8,
        "num_train": 50,
        "num_validation": 16,
        "evaluate_every": 5,
        "save_every": 3,
        "warmup": 4,
        "precision": "fp32",
    }
    return TrainConfig("sudoku-4", out=out, **{**settings, **changes})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return an uninterrupted run, trained once."""
    return fit(tiny_run(tmp_path_factory.mktemp("whole") / "run"))


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_4x4_model_learns_in_seconds_and_beats_chance_by_far(tmp_path):
    config = TrainConfig(
        "sudoku-4",
        "scdm",
        tmp_path / "run",
        size="pico",
        steps=600,
        lr=0.02,
        ema=0.98,
        num_train=240,
        num_validation=16,
        evaluate_every=200,
        batch_size=32,
    )
    run = fit(config)
    losses = [row["validation_loss"] for row in rows(run) if "validation_loss" in row]
    net = from_pretrained(run)
    none, every = evaluate(
        net, TASKS["sudoku-4"], EvalConfig(latents=(0, "all"), candidates=4, num_samples=200)
    )
    assert losses[-1] < 0.6 < math.log(4)  # the entropy of the 288 boards is 0.354 a cell
    assert every["valid"] > 30  # one board in 15 million is valid by chance
    assert none["relative_cost"] < every["relative_cost"] == 1


def test_a_run_repeats_itself_bit_for_bit(tmp_path):
    first, second, other = (
        fit(tiny_run(tmp_path / name, seed=seed)) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    weights = [load_file(run / "model.safetensors") for run in (first, second, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not all(torch.equal(weights[0][name], weights[2][name]) for name in weights[0])


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.1, "schedule": "constant"}])
def test_resume_after_interrupt_gives_equal_weights(tmp_path, changes):
    """A run that an error stopped repeats the steps since its last checkpoint."""
    whole = fit(tiny_run(tmp_path / "whole", **changes))
    config = tiny_run(tmp_path / "cut", **changes)
    limit = stop_at(config, step=7)
    with pytest.raises(KeyboardInterrupt):
        fit(config, method=limit)
    resumed = fit(replace(config, resume="yes"))
    assert (resumed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert [path.name for path in saved_states(resumed)] == [
        path.name for path in saved_states(whole)
    ]  # the names have the hashes
    assert timeless(rows(resumed)) == timeless(rows(whole))


def timeless(rows):
    """Return rows of metrics without times."""
    return [
        {name: value for name, value in row.items() if name not in ("tokens_per_second", "seconds")}
        for row in rows
    ]


def stop_at(config, step):
    """Return the config's method with an attention rule that interrupts the process at a step."""
    calls = 0

    def rule(q, k, c):
        nonlocal calls
        calls += 1
        if calls > step + 2:  # the validation of step 5 takes two batches
            raise KeyboardInterrupt
        return METHODS[config.method].attention(q, k, c)

    rule.__name__ = "semi_causal"
    return replace(METHODS[config.method], attention=Named(rule))


class Named:
    """A rule that can be stored as semi_causal."""

    __name__ = "semi_causal"

    def __init__(self, rule):
        self.rule = rule

    def __call__(self, q, k, c):
        return self.rule(q, k, c)

    def __eq__(self, other):
        return other is METHODS["scdm"].attention

    __hash__ = None


def test_resume_with_a_changed_config_is_refused(tmp_path):
    config = tiny_run(tmp_path / "run")
    fit(config)
    with pytest.raises(ValueError, match=r"lr=0.5: .* was started with 0.0"):
        fit(replace(config, lr=0.5, resume="yes"))
    with pytest.raises(
        ValueError, match=r"weight=flat: .* was started with None. Leave weight out, or choose"
    ):
        fit(replace(config, weight="flat", resume="yes"))
    with pytest.raises(ValueError, match="exists and is not empty"):
        fit(config)
    with pytest.raises(ValueError, match="no run to resume"):
        fit(replace(config, out=tmp_path / "nowhere", resume="yes"))


def test_corrupt_checkpoint_is_skipped_for_the_previous(whole, tmp_path, capsys):
    config = tiny_run(tmp_path / "run")
    latest, before = saved_states(fit(config))
    flip(latest, 1_000)
    flip(config.folder / "model.safetensors", -1)
    (config.folder / f".{latest.name}.1").write_bytes(b"what a killed process had begun")
    fit(replace(config, resume="auto"))
    assert (
        f"{latest}: corrupt (its bytes are not those that were written). The previous checkpoint is used"
        in capsys.readouterr().err.replace("\n", " ")
    )
    for path in (*saved_states(whole), whole / "model.safetensors"):
        assert (config.folder / path.name).read_bytes() == path.read_bytes()
    assert {path.name for path in config.folder.iterdir()} == {path.name for path in whole.iterdir()}
    for path in saved_states(config.folder):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"no other checkpoint can be read. To start again, remove"):
        fit(replace(config, resume="auto"))
    assert before.name in {path.name for path in config.folder.iterdir()}


def test_start_after_a_killed_start_succeeds(tmp_path):
    config = tiny_run(tmp_path / "run", steps=2)
    config.folder.mkdir()
    left, own = config.folder / ".config.json.123", config.folder / "notes.txt"
    left.write_bytes(b'{"format": 1,')
    own.write_bytes(b"not of a run")
    for resume, removed in (("auto", own), ("no", None)):
        with pytest.raises(ValueError, match="exists and is not empty"):
            fit(replace(config, resume=resume))
        if removed:
            removed.unlink()
    fit(replace(config, resume="auto"))
    assert not left.exists()


def test_checkpoints_that_a_killed_run_left_are_pruned(tmp_path):
    config = tiny_run(tmp_path / "run", keep=3)
    latest = saved_states(fit(config))[0]
    fit(replace(config, keep=1, resume="auto"))
    assert saved_states(config.folder) == [latest]


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("model", {"max_length": 17}, "max_length=16: .* was started with 17"),
        ("method", {"readout": "shifted"}, "method=.* was started with"),
        ("task", {"source": "pattern"}, "task=.* was started with"),
        ("training", None, "config.json: corrupt"),
        ("data_sha256", None, "config.json: corrupt"),
        ("data_sha256", 0.5, "config.json: corrupt"),
    ],
)
def test_resume_with_a_corrupt_config_is_refused(tmp_path, part, changes, message):
    """Every value that affects the model is compared with the command."""
    config = tiny_run(tmp_path / "run", steps=2)
    path = fit(config) / "config.json"
    about = json.loads(path.read_text())
    path.write_text(
        json.dumps({**about, part: {**about[part], **changes} if isinstance(changes, dict) else changes})
    )
    with pytest.raises(ValueError, match=message):
        fit(replace(config, resume="auto"))


def test_lost_config_is_restored_from_an_equal_run(tmp_path):
    config, content = (
        tiny_run(tmp_path / "run", steps=2),
        (fit(tiny_run(tmp_path / "other", steps=2)) / "config.json").read_bytes(),
    )
    path = fit(config) / "config.json"
    path.write_bytes(b"")
    with pytest.raises(
        ValueError,
        match=r"config.json: corrupt .* Start the same run in another directory, and copy its config",
    ):
        fit(replace(config, resume="auto"))
    path.write_bytes(content)
    fit(replace(config, resume="auto"))


def test_data_that_changed_during_training_are_never_saved(tmp_path):
    data = make_data(DataConfig("sudoku-4", tmp_path / "data", num_train=50, num_validation=16, num_test=1))
    config = tiny_run(tmp_path / "run", data=data, steps=6, evaluate_every=4, save_every=6)
    whole = fit(replace(config, out=tmp_path / "whole"))
    tokens = data / "train.tokens.npy"
    content = tokens.read_bytes()

    def rule(q, k, c):
        flip(tokens, -1)
        return METHODS["scdm"].attention(q, k, c)

    with pytest.raises(ValueError, match=r"changed during training\. Restore it"):
        fit(config, method=replace(METHODS["scdm"], attention=Named(rule)))
    assert [path.name for path in config.folder.iterdir()] == ["config.json"]
    flip(tokens, 200)
    with pytest.raises(ValueError, match="train does not match the checksum in its manifest"):
        fit(replace(config, resume="auto"))
    tokens.unlink()
    with pytest.raises(ValueError, match="train cannot be read"):
        fit(replace(config, resume="auto"))
    tokens.write_bytes(content)
    fit(replace(config, resume="auto"))
    assert (config.folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match="no data set"):
        fit(tiny_run(tmp_path / "other", data=tmp_path / "nowhere"))


def test_checkpoint_of_another_network_is_named(tmp_path):
    config = tiny_run(tmp_path / "run", steps=2, keep=1)
    (path,) = saved_states(fit(config))
    (other,) = saved_states(fit(tiny_run(tmp_path / "other", steps=2, keep=1, positions="both", size="nano")))
    path.unlink()
    (config.folder / other.name).write_bytes(other.read_bytes())
    with pytest.raises(ValueError, match="no other checkpoint can be read") as error:
        fit(replace(config, resume="auto"))
    assert other.name in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_weights_are_restored_on_resume(tmp_path):
    config = tiny_run(tmp_path / "run", steps=2)
    path = fit(config) / "model.safetensors"
    content = path.read_bytes()
    path.unlink()
    fit(replace(config, resume="auto"))
    assert path.read_bytes() == content


def test_optimizer_state_before_the_first_step_is_empty(whole):
    """torch would create it with another step, and the checkpoint would have other bytes."""
    net = from_pretrained(whole)
    optimizer = torch.optim.AdamW(net.parameters())
    assert optimizer_tensors(net, optimizer) == {}
    assert not optimizer.state
    load_optimizer(net, optimizer, {})
    assert not optimizer.state


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


def test_resume_ignores_a_cut_off_line_of_metrics(whole, tmp_path):
    config = tiny_run(tmp_path / "cut", save_every=2)
    with pytest.raises(KeyboardInterrupt):
        fit(config, method=stop_at(config, step=2))
    assert not (config.folder / "metrics.jsonl").exists()
    (config.folder / "metrics.jsonl").write_text('{"step": 1, "lo')
    fit(replace(config, resume="yes"))
    assert rows(config.folder)[-1]["validation_loss"] == rows(whole)[-1]["validation_loss"]


def test_runs_of_another_precision_follow_in_one_process(tmp_path):
    for precision in ("fp32", "bf16"):
        fit(tiny_run(tmp_path / precision, steps=2, precision=precision))
    losses = [rows(tmp_path / precision)[0]["loss"] for precision in ("fp32", "bf16")]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_a_run_folder_says_what_made_it(tmp_path):
    config = json.loads(
        (fit(tiny_run(tmp_path / "run", method="ar-mtp", weight="elbo")) / "config.json").read_text()
    )
    assert config["training"]["seed"] == 0
    assert config["task"] == {"name": "sudoku-4", "source": "solver", "padding": "none"}
    assert config["method"]["weight"] == "elbo"
    assert config["method"]["attention"] == "bidirectional"
    assert set(config["data_sha256"]) == {"train", "validation"}
    assert config["made_with"]["torch"] == torch.__version__
    found = rows(tmp_path / "run")
    assert [row["step"] for row in found if "validation_loss" in row] == [5, 10, 12]


def test_every_method_can_be_trained(tmp_path):
    for name in METHODS:
        net = from_pretrained(fit(tiny_run(tmp_path / name, method=name, steps=2)))
        assert net.method == METHODS[name]


def test_a_full_disk_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    write_atomic({path: b"old"})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        with pytest.raises(OSError, match="file: cannot be written"):
            write_atomic({tmp_path / "beside": b"small", path: b"new" * 1_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_loss_that_is_not_finite_stops_at_the_last_good_state(whole, tmp_path, monkeypatch):
    config = tiny_run(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("latent_tokens.training.step.weighted_nll", infinite_at(8))
        with pytest.raises(
            ValueError,
            match=r"loss inf, .* at step 7: training diverged",
        ):
            fit(config)
    assert saved_states(config.folder)[0].name.startswith("state-00000007-")
    fit(replace(config, resume="auto"))  # without the fault, no step is lost
    assert (config.folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_step_that_is_not_finite_may_be_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("latent_tokens.training.step.weighted_nll", infinite_at(3))
    run = fit(tiny_run(tmp_path / "run", on_nan="skip"))
    lines = capsys.readouterr().err.splitlines()
    assert "scdm on sudoku-4: 3/12 loss inf, gradient norm nan" in lines
    assert any(line.startswith("scdm on sudoku-4: 12/12 loss") for line in lines)
    assert [row for row in timeless(rows(run)) if "skipped" in row] == [
        {"step": 3, "skipped": "loss inf, gradient norm nan"}
    ]
    assert all(weight.isfinite().all() for weight in load_file(run / "model.safetensors").values())
    monkeypatch.setattr("latent_tokens.training.step.weighted_nll", infinite_at(*range(1, 100)))
    with pytest.raises(ValueError, match="at step 9: training diverged"):
        fit(tiny_run(tmp_path / "every", on_nan="skip"))


def infinite_at(*numbers):
    """Return a loss that is infinite in the steps of these numbers, from 1, and in no validation."""
    calls = count(1)

    def loss(*arguments):
        is_step = torch.is_grad_enabled()
        return weighted_nll(*arguments) * (math.inf if is_step and next(calls) in numbers else 1)

    return loss


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)]
)
def test_a_signal_ends_the_step_and_saves(whole, tmp_path, number, code, monkeypatch):
    config = tiny_run(tmp_path / "run", save_every=100)
    calls = []

    def signalled(*arguments):
        calls.append(None)
        if len(calls) == 5:
            os.kill(os.getpid(), number)
        return weighted_nll(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("latent_tokens.training.step.weighted_nll", signalled)
        with pytest.raises(Preempted, match="stopped at step 5 of 12") as stopped:
            fit(config)
    assert stopped.value.code == code
    assert signal.getsignal(number) is not None
    fit(replace(config, resume="auto"))
    assert (config.folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_finished_run_needs_no_setting_at_its_default(tmp_path, monkeypatch):
    monkeypatch.setattr("latent_tokens.training.data.DEFAULT_NUM_TRAIN", 16)
    settings = {"size": "pico", "steps": 1, "batch_size": 2, "num_validation": 4, "resume": "auto"}
    config = TrainConfig("sudoku-4", "scdm", tmp_path / "run", **settings)
    assert not is_finished(config)
    fit(config)
    assert is_finished(config)
    assert not is_finished(replace(config, steps=2, resume="extend"))
    with pytest.raises(ValueError, match=r"num_train=8: .* was started with 16"):
        is_finished(replace(config, num_train=8))


def test_checkpoints_are_also_saved_by_the_clock(tmp_path):
    run = fit(tiny_run(tmp_path / "run", save_every=100, save_minutes=1e-9, keep=20))
    assert [int(path.name.split("-")[1]) for path in saved_states(run)] == list(range(12, 0, -1))


def test_data_that_change_during_training_are_detected(tmp_path, monkeypatch):
    data = make_data(DataConfig("sudoku-4", tmp_path / "data", num_train=50, num_validation=16, num_test=4))
    config, calls = tiny_run(tmp_path / "run", data=data), []

    def changed(*arguments):
        calls.append(None)
        if len(calls) == 5:
            flip(data / "train.tokens.npy", -1)
        return weighted_nll(*arguments)

    monkeypatch.setattr("latent_tokens.training.step.weighted_nll", changed)
    with pytest.raises(
        ValueError, match=r"changed during training\. Restore it, then rerun with resume=auto"
    ):
        fit(config)
    assert saved_states(config.folder)[0].name.startswith("state-00000003-")
    with pytest.raises(ValueError, match="train does not match the checksum in its manifest"):
        fit(replace(config, resume="auto"))


def test_metrics_have_the_learning_rate_and_seconds(whole):
    measured = [row for row in rows(whole) if "loss" in row]
    assert [row["lr"] for row in measured] == [learning_rate(tiny_run(whole), 11)]
    seconds = [row["seconds"] for row in rows(whole)]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0


def test_an_epoch_goes_through_every_example_once():
    examples = TASKS["sudoku-4"].generate(50, 0)
    config = tiny_run(None, batch_size=10, steps=5)
    seen = torch.cat(
        [
            batch.tokens
            for batch in training_batches(examples, METHODS["scdm"], config, 4, 0, torch.device("cpu"))
        ]
    )
    assert sorted(seen.tolist()) == sorted(examples.tokens.tolist())


def test_the_learning_rate_warms_up_and_comes_down():
    config = tiny_run(None, steps=104, lr=1.0)
    rates = [learning_rate(config, step) for step in range(105)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[54] == pytest.approx(0.5)
    assert rates[104] == pytest.approx(0)
    assert learning_rate(replace(config, schedule="constant"), 90) == 1.0


def test_targets_that_are_not_the_rows_own_are_kept(tmp_path):
    net = from_pretrained(
        fit(tiny_run(tmp_path / "run", method="mdm", steps=2, targets="next", weight="flat"))
    )
    assert (net.method.targets, name_of(net.method)) == ("next", "mdm (flat, next)")
    with pytest.raises(
        ValueError, match=r"one pass trains every step, so its targets are all\. Use targets=all, or ar-ntp-N"
    ):
        fit(tiny_run(tmp_path / "other", method="arm", targets="next"))


def test_averaged_weights_follow_the_ramp():
    averaged, current = [torch.zeros(1)], [torch.ones(1)]
    ema_update(0.9999)(averaged, current, 1)
    assert averaged[0].item() == pytest.approx(1 - 2 / 11)
    ema_update(0.0)(averaged, current, 1)
    assert averaged[0].item() == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"steps": 2.5},
        {"schedule": "linear"},
        {"weight": "none"},
        {"size": "huge"},
        {"seed": 2**63},
        {"batch_size": -1},
        {"lr": 0.0},
        {"clip": -1.0},
        {"ema": 1.0},
        {"dropout": 1.5},
        {"seed": -1},
        {"gelu": "erf"},
    ],
)
def test_a_config_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        tiny_run(None, **wrong)


def test_settings_of_fit_are_the_fields_of_the_config():
    names = [field.name for field in fields(TrainConfig)]
    assert [*TrainSettings.__annotations__] == names[2:]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": "1e-3"}, "lr='1e-3': must be a number above 0"),  # as YAML reads 1e-3
        ({"clip": None}, "clip=None: must be a number above 0"),
        ({"lr": np.float32(0.1)}, r"lr=np.float32\(0.1\): must be a number above 0"),
        ({"weight_decay": "0.1"}, "weight_decay='0.1': must be a number from 0"),
        ({"task": TASKS["sudoku-4"]}, r"task=Sudoku: must be a name. Use fit\(config, task=...\)"),
        ({"method": METHODS["mdm"]}, r"method=Method: must be a name. Use fit\(config, method=...\)"),
    ],
)
def test_setting_of_another_type_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(TrainConfig("sudoku-4", "scdm"), **changes)


def test_divergence_at_the_last_step_is_noticed(tmp_path):
    config = tiny_run(tmp_path / "run", steps=1, lr=1e38, warmup=0)
    with pytest.raises(ValueError, match=r"validation loss nan at step 1: training diverged. Use a lower lr"):
        fit(config)
    assert not saved_states(config.folder)


def test_checkpoints_are_ordered_by_their_step_as_a_number(tmp_path):
    names = [
        f"state-{step:08d}-{'0' * DIGITS}.safetensors" for step in (99_999_999, 100_000_000, 1_000_000_000, 9)
    ]
    for name in names:
        (tmp_path / name).touch()
    assert saved_step(tmp_path) == 1_000_000_000
    assert [path.name for path in saved_states(tmp_path)] == [names[i] for i in (2, 1, 0, 3)]
