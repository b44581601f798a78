"""Training learns, is reproducible, and can be interrupted at any step without loss."""

import errno
import json
import math
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import latent_tokens as lt
from helpers.refusals import refused
from helpers.runs import checkpoints, description, flip, rows, stop_at, timeless, tiny_run
from latent_tokens.cli import parse
from latent_tokens.commands.train import run_train
from latent_tokens.core.method import name_of
from latent_tokens.training.checkpoint import CHECKPOINT_HASH_DIGITS, saved_states, saved_step
from latent_tokens.training.run import Preempted
from latent_tokens.training.setup import is_finished
from latent_tokens.training.step import learning_rate


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return an uninterrupted run, trained once."""
    return lt.fit(tiny_run(tmp_path_factory.mktemp("whole") / "run"))


def check_equal(run, other):
    """Compare the bytes of checkpoints and weights, and the metrics."""
    assert checkpoints(run) == checkpoints(other)
    for name in (*checkpoints(run), "model.safetensors"):
        assert (run / name).read_bytes() == (other / name).read_bytes()
    assert timeless(run) == timeless(other)


@pytest.mark.parametrize(
    ("method", "losses"),  # validation at step 30, training to 50 and to 60, validation at 60
    [
        ("scdm", [1.37961, 1.36215, 1.29228, 1.36698]),
        ("ar-mtp", [0.74178, 0.73643, 0.71925, 0.74325]),
    ],
)
def test_losses_of_a_short_run_are_those_stored(method, losses, tmp_path):
    """Other rounding changes them by 1e-6, another seed or other draws by 1e-2."""
    settings = {"steps": 60, "batch_size": 32, "lr": 0.01, "warmup": 10, "ema": 0.9, "seed": 1}
    run = lt.fit(tiny_run(tmp_path / "run", method, evaluate_every=30, **settings))
    found = [row[key] for row in rows(run) for key in ("loss", "validation_loss") if key in row]
    assert found == pytest.approx(losses, abs=2e-5)


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.1, "schedule": "constant"}])
def test_resume_after_interrupt_gives_equal_weights(tmp_path, changes):
    """A run that was killed twice: before its first row of metrics was complete, and after a checkpoint."""
    whole = lt.fit(tiny_run(tmp_path / "whole", **changes))
    config = tiny_run(tmp_path / "cut", **changes)
    with pytest.raises(KeyboardInterrupt):
        lt.fit(config, observe=stop_at(2))
    assert not (config.folder / "metrics.jsonl").exists()
    (config.folder / "metrics.jsonl").write_text('{"step": 1, "lo')
    with pytest.raises(KeyboardInterrupt):
        lt.fit(replace(config, resume="yes"), observe=stop_at(7))
    check_equal(lt.fit(replace(config, resume="yes")), whole)


def test_corrupt_checkpoint_is_skipped_for_the_previous(whole, tmp_path, capsys):
    config = tiny_run(shutil.copytree(whole, tmp_path / "run"), resume="auto")
    latest = saved_states(config.folder)[0]
    flip(latest, 1_000)
    flip(config.folder / "model.safetensors", -1)
    (config.folder / f".{latest.name}.1").write_bytes(b"what a killed process had begun")
    lt.fit(config)
    problem = "corrupt (its bytes are not those that were written). The previous checkpoint is used"
    assert f"{latest}: {problem}" in capsys.readouterr().err.replace("\n", " ")
    check_equal(config.folder, whole)
    assert {path.name for path in config.folder.iterdir()} == {path.name for path in whole.iterdir()}
    for path in saved_states(config.folder):
        path.write_bytes(b"")
    with refused("no other checkpoint can be read. To start again, remove"):
        lt.fit(config)
    assert len(checkpoints(config.folder)) == 2


def test_start_after_a_killed_start_succeeds(tmp_path):
    config = tiny_run(tmp_path / "run", steps=1)
    config.folder.mkdir()
    begun = config.folder / ".config.json.123"
    begun.write_bytes(b'{"format": 1,')
    with refused("exists and is not empty"):
        lt.fit(config)
    lt.fit(replace(config, resume="auto"))
    assert not begun.exists()


def test_checkpoints_that_a_killed_run_left_are_pruned(whole, tmp_path):
    config = tiny_run(shutil.copytree(whole, tmp_path / "run"), keep=1, resume="auto")
    latest, _ = checkpoints(whole)
    assert checkpoints(lt.fit(config)) == [latest]


def test_resume_with_a_changed_or_corrupt_config_is_refused(whole, tmp_path):
    """Every value that affects the model is compared with the command."""
    path = shutil.copytree(whole, tmp_path / "run") / "config.json"
    with refused("was started with None. Leave weight out, or choose"):
        lt.fit(tiny_run(tmp_path / "run", weight="flat", resume="auto"))
    entries = description(whole)
    for part, changes, problem in (
        ("model", {"max_length": 17}, "max_length=16: "),
        ("method", {"readout": "shifted"}, "method="),
        ("task", {"source": "pattern"}, "task="),
        ("training", None, "config.json: corrupt"),
        ("training", {"precision": "fp64"}, "config.json: corrupt"),
        ("data_sha256", 0.5, "config.json: corrupt"),
        (
            "data_sha256",
            {"train": "0"},
            "run was started with other train examples. Restore the data set",
        ),
    ):
        value = {**entries[part], **changes} if isinstance(changes, dict) else changes
        path.write_text(json.dumps({**entries, part: value}))
        with refused(problem):
            lt.fit(tiny_run(tmp_path / "run", resume="auto"))


def test_lost_files_of_a_run_are_restored(whole, tmp_path):
    """config.json from an equal run, the weights from the checkpoint."""
    config = tiny_run(shutil.copytree(whole, tmp_path / "run"), resume="auto")
    (config.folder / "model.safetensors").unlink()
    (config.folder / "config.json").write_bytes(b"")
    with refused("Start the same run in another directory, and copy its config"):
        lt.fit(config)
    shutil.copy(whole / "config.json", config.folder)
    lt.fit(config)
    check_equal(config.folder, whole)


def test_data_that_change_during_training_are_never_saved(tmp_path):
    counts = {"num_train": 50, "num_validation": 16, "num_test": 1, "processes": 1}
    data = lt.make_data(lt.DataConfig("sudoku-4", tmp_path / "data", **counts))
    config = tiny_run(tmp_path / "run", data=data, num_train=None)
    tokens = data / "train.tokens.npy"
    content = tokens.read_bytes()

    def change(stage, step):
        (data / "notes.txt").write_text("no file of the data set")
        if (stage, step) == ("done", 4):
            time.sleep(0.01)  # a clock of files may advance in steps of 4 ms
            flip(tokens, -1)

    with refused("changed during training. Restore it, then rerun with resume=auto"):
        lt.fit(config, observe=change)
    assert saved_step(config.folder) == 3
    with refused("train does not match the checksum in its manifest"):
        lt.fit(replace(config, resume="auto"))
    tokens.write_bytes(content)
    moved = data.rename(tmp_path / "moved")
    resumed = lt.fit(replace(config, resume="auto", data=moved))
    assert checkpoints(resumed) == checkpoints(lt.fit(replace(config, data=moved, out=tmp_path / "whole")))
    with refused("num_train=7 with data=", "the data set has its own examples"):
        lt.fit(tiny_run(tmp_path / "other", data=moved, num_train=7))


def test_error_of_a_disk_or_of_memory_is_not_taken_for_a_corrupt_file(whole, tmp_path, monkeypatch):
    config = tiny_run(shutil.copytree(whole, tmp_path / "run"), resume="auto")
    latest = saved_states(config.folder)[0]
    read_bytes = Path.read_bytes

    def read(path):
        if path == latest:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return read_bytes(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", read)
        with pytest.raises(OSError, match="Stale"):
            lt.fit(config)
    assert checkpoints(config.folder) == checkpoints(whole)

    def too_large(*arguments):
        raise torch.OutOfMemoryError

    monkeypatch.setattr("latent_tokens.training.network.untrained", too_large)
    for name in ("run", "new"):
        with pytest.raises(torch.OutOfMemoryError):
            lt.fit(tiny_run(tmp_path / name, resume="auto"))


def test_runs_of_another_precision_follow_in_one_process(tmp_path):
    runs = [lt.fit(tiny_run(tmp_path / name, steps=2, precision=name)) for name in ("fp32", "bf16")]
    losses = [rows(run)[0]["loss"] for run in runs]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_config_of_a_run_states_task_method_data_and_versions(tmp_path):
    run = lt.fit(tiny_run(tmp_path / "run", "mdm", steps=2, targets="next", weight="flat"))
    config = description(run)
    assert config["training"]["seed"] == 0
    assert config["task"] == {"name": "sudoku-4", "source": "solver", "padding": "none"}
    assert (config["method"]["weight"], config["method"]["attention"]) == ("flat", "bidirectional")
    assert set(config["data_sha256"]) == {"train", "validation"}
    assert config["made_with"]["torch"] == torch.__version__
    assert name_of(lt.from_pretrained(run).method) == "mdm (flat, next)"
    with refused("targets=next with readout=shifted", "targets=all"):
        lt.fit(tiny_run(tmp_path / "other", "arm", targets="next"))


def test_metrics_have_the_learning_rate_and_seconds(whole):
    found = rows(whole)
    assert [row["step"] for row in found if "validation_loss" in row] == [5, 10, 12]
    assert [row["lr"] for row in found if "loss" in row] == [learning_rate(tiny_run(whole), 11)]
    seconds = [row["seconds"] for row in found]
    assert seconds[0] > 0
    assert seconds == sorted(seconds)


def faulty(*steps):
    """Return a network whose loss is not finite in these steps, and the observer that counts them."""
    torch.manual_seed(0)
    net = lt.Transformer("pico", 4, 16)
    taken = []
    net.register_forward_hook(
        lambda net, inputs, logits: logits * math.nan if net.training and taken[-1] in steps else logits
    )
    return {"net": net, "observe": lambda stage, step: taken.append(step)}


def test_a_loss_that_is_not_finite_stops_at_the_last_good_state(tmp_path):
    whole = lt.fit(tiny_run(tmp_path / "whole", size=None), **faulty())
    config = tiny_run(tmp_path / "run", size=None)
    with refused("at step 7: training diverged. Use a lower lr"):
        lt.fit(config, **faulty(7))
    assert saved_step(config.folder) == 7
    check_equal(lt.fit(replace(config, resume="auto"), **faulty()), whole)  # no step is lost


def test_a_step_that_is_not_finite_may_be_left_out(tmp_path, capsys):
    run = lt.fit(tiny_run(tmp_path / "run", size=None, on_nan="skip"), **faulty(2))
    assert "scdm on sudoku-4: 3/12 loss nan, gradient norm nan" in capsys.readouterr().err
    (skipped,) = [row for row in timeless(run) if "skipped" in row]
    assert skipped == {"step": 3, "skipped": "loss nan, gradient norm nan"}
    assert all(weight.isfinite().all() for weight in load_file(run / "model.safetensors").values())
    with refused("at step 9: training diverged"):
        lt.fit(tiny_run(tmp_path / "every", size=None, on_nan="skip"), **faulty(*range(12)))


def test_divergence_at_the_last_step_is_noticed(tmp_path):
    config = tiny_run(tmp_path / "run", steps=1, lr=1e38, warmup=0)
    with refused("validation loss nan at step 1: training diverged. Use a lower lr"):
        lt.fit(config)
    assert not checkpoints(config.folder)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), (signal.SIGUSR1, 75), (signal.SIGINT, 130)]
)
def test_a_signal_ends_the_step_and_saves(whole, tmp_path, number, code):
    config = tiny_run(tmp_path / "run", save_every=100)

    def send(*reported):
        if reported == ("training", 4):
            os.kill(os.getpid(), number)

    with pytest.raises(Preempted, match="stopped at step 5 of 12") as stopped:
        lt.fit(config, observe=send)
    assert stopped.value.code == code
    assert saved_step(config.folder) == 5
    if number is signal.SIGTERM:
        run = lt.fit(replace(config, resume="auto"))
        assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_signal_in_the_last_step_ends_the_runs_after_it(tmp_path, monkeypatch, capsys):
    """Training of this run is complete, and another seed would start."""

    def send(*reported):
        if reported == ("validation", 2):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.chdir(tmp_path)
    words = "train sudoku-4 scdm --size pico --steps 2 --batch-size 4 --num-train 8 --num-validation 4"
    with pytest.raises(Preempted, match="stopped at step 2 of 2"):
        run_train(parse(f"{words} --seed 0 1 --out runs/{{seed}}".split()), observe=send)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["0"]
    assert run_train(parse(f"{words} --out one".split()), observe=send) == 0
    assert "validation loss" in capsys.readouterr().err


def test_finished_run_needs_no_setting_at_its_default(tmp_path):
    config = tiny_run(tmp_path / "run", steps=1, resume="auto")
    assert not is_finished(config)
    lt.fit(config)
    assert is_finished(config)
    assert not is_finished(replace(config, steps=2, resume="extend"))
    with refused("num_train=8: "):
        is_finished(replace(config, num_train=8))


def test_checkpoints_are_also_saved_by_the_clock(tmp_path):
    run = lt.fit(tiny_run(tmp_path / "run", steps=3, save_every=100, save_minutes=1e-9, keep=20))
    assert [int(name.split("-")[1]) for name in checkpoints(run)] == [3, 2, 1]


def test_a_setting_out_of_range_is_refused():
    for name, value in (
        ("steps", 2.5),
        *(("seed", seed) for seed in (-1, 2**63)),
        ("schedule", "linear"),
        ("weight", "none"),
        ("batch_size", -1),
        ("lr", "1e-3"),  # as YAML reads 1e-3
        ("clip", None),
        ("weight_decay", "0.1"),
        ("ema", 1.0),
        ("dropout", 1.5),
        ("gelu", "erf"),
        ("task", lt.TASKS["sudoku-4"]),
        ("method", lt.METHODS["mdm"]),
    ):
        with refused(name):
            replace(lt.TrainConfig("sudoku-4", "scdm"), **{name: value})


def test_checkpoints_are_ordered_by_their_step_as_a_number(tmp_path):
    steps = (99_999_999, 100_000_000, 1_000_000_000, 9)
    names = [f"state-{step:08d}-{'0' * CHECKPOINT_HASH_DIGITS}.safetensors" for step in steps]
    for name in names:
        (tmp_path / name).touch()
    assert saved_step(tmp_path) == 1_000_000_000
    assert checkpoints(tmp_path) == [names[i] for i in (2, 1, 0, 3)]
