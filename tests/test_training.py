"""Training learns, repeats itself, and can stop anywhere without losing anything."""

import json
import math
import resource
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from latent_tokens import METHODS, TASKS, EvalConfig, TrainConfig, evaluate, fit, from_pretrained
from latent_tokens.batches import training_batches
from latent_tokens.methods import name_of
from latent_tokens.storage import write_whole
from latent_tokens.training import learning_rate, ramped_average


def tiny_run(out, **changes):
    settings = {
        "method": "scdm",
        "steps": 12,
        "batch_size": 8,
        "num_train": 50,
        "num_validation": 16,
        "evaluate_every": 5,
        "save_every": 3,
        "warmup": 4,
    }
    return TrainConfig("sudoku-4", out=out, **{**settings, **changes})


def rows(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_4x4_model_learns_in_seconds_and_beats_chance_by_far(tmp_path):
    config = TrainConfig("sudoku-4", "scdm", tmp_path / "run", steps=400, batch_size=32, num_train=2_000, num_validation=64, evaluate_every=100)
    run = fit(config)
    losses = [row["validation_loss"] for row in rows(run) if "validation_loss" in row]
    net = from_pretrained(run)
    none, every = evaluate(net, TASKS["sudoku-4"], EvalConfig(latents=(0, "all"), candidates=4, num_samples=200))
    assert losses[-1] < 0.6 < math.log(4)  # the entropy of the 288 boards is 0.354 a cell
    assert every["valid"] > 30  # one board in 15 million is valid by chance
    assert none["relative_cost"] < every["relative_cost"] == 1


def test_a_run_repeats_itself_bit_for_bit(tmp_path):
    first, second, other = (fit(tiny_run(tmp_path / name, seed=seed)) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    weights = [load_file(run / "model.safetensors") for run in (first, second, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not all(torch.equal(weights[0][name], weights[2][name]) for name in weights[0])


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.1, "schedule": "constant"}])
def test_a_stopped_run_goes_on_to_the_same_weights(tmp_path, changes):
    """Stopped by an error after its last saving, a run repeats what it had done since."""
    whole = fit(tiny_run(tmp_path / "whole", **changes))
    config = tiny_run(tmp_path / "cut", **changes)
    limit = stop_at(config, step=7)
    with pytest.raises(KeyboardInterrupt):
        fit(config, method=limit)
    resumed = fit(replace(config, resume=True))
    for file in ("model.safetensors", "state.safetensors"):
        expected, found = load_file(whole / file), load_file(resumed / file)
        assert all(torch.equal(expected[name], found[name]) for name in expected)
    steps = [row["step"] for row in rows(resumed)]
    assert steps == [row["step"] for row in rows(whole)]


def stop_at(config, step):
    """The config's method, whose attention rule interrupts the process when it is first used in that step."""
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
    """A rule that may be written down as semi_causal."""

    __name__ = "semi_causal"

    def __init__(self, rule):
        self.rule = rule

    def __call__(self, q, k, c):
        return self.rule(q, k, c)

    def __eq__(self, other):
        return other is METHODS["scdm"].attention

    __hash__ = None


def test_a_changed_config_is_not_gone_on_with(tmp_path):
    config = tiny_run(tmp_path / "run")
    fit(config)
    with pytest.raises(ValueError, match=r"lr=0.5: .* was started with 0.0"):
        fit(replace(config, lr=0.5, resume=True))
    with pytest.raises(ValueError, match="exists and is not empty"):
        fit(config)
    with pytest.raises(ValueError, match="no run to go on with"):
        fit(replace(config, out=tmp_path / "nowhere", resume=True))
    (config.folder / "state.safetensors").write_bytes(b"\x10" * 40)
    with pytest.raises(ValueError, match=r"state\.safetensors: damaged"):
        fit(replace(config, resume=True))


def test_a_run_stopped_early_goes_on_and_a_cut_off_line_is_no_obstacle(tmp_path):
    whole = fit(tiny_run(tmp_path / "whole"))
    config = tiny_run(tmp_path / "cut", save_every=2)
    with pytest.raises(KeyboardInterrupt):
        fit(config, method=stop_at(config, step=2))
    assert not (config.folder / "metrics.jsonl").exists()
    (config.folder / "metrics.jsonl").write_text('{"step": 1, "lo')
    fit(replace(config, resume=True))
    assert rows(config.folder)[-1]["validation_loss"] == rows(whole)[-1]["validation_loss"]


def test_runs_of_another_precision_follow_in_one_process(tmp_path):
    for precision in ("fp32", "bf16"):
        fit(tiny_run(tmp_path / precision, steps=2, precision=precision))
    losses = [rows(tmp_path / precision)[0]["loss"] for precision in ("fp32", "bf16")]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_a_run_folder_says_what_made_it(tmp_path):
    config = json.loads((fit(tiny_run(tmp_path / "run", method="ar-mtp", weight="elbo")) / "config.json").read_text())
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
    write_whole({path: b"old"})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        with pytest.raises(OSError, match="file: cannot be written"):
            write_whole({tmp_path / "beside": b"small", path: b"new" * 1_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_epoch_goes_through_every_example_once():
    examples = TASKS["sudoku-4"].generate(50, 0)
    config = tiny_run(None, batch_size=10, steps=5)
    seen = torch.cat([batch.tokens for batch in training_batches(examples, METHODS["scdm"], config, 4, 0, torch.device("cpu"))])
    assert sorted(seen.tolist()) == sorted(examples.tokens.tolist())


def test_the_learning_rate_warms_up_and_comes_down():
    config = tiny_run(None, steps=104, lr=1.0)
    rates = [learning_rate(config, step) for step in range(105)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[54] == pytest.approx(0.5)
    assert rates[104] == pytest.approx(0)
    assert learning_rate(replace(config, schedule="constant"), 90) == 1.0


def test_targets_that_are_not_the_rows_own_are_kept(tmp_path):
    net = from_pretrained(fit(tiny_run(tmp_path / "run", method="mdm", steps=2, targets="next", weight="flat")))
    assert (net.method.targets, name_of(net.method)) == ("next", "mdm (flat, next)")
    with pytest.raises(ValueError, match="learns every step at once, so its targets are all; use targets=all, or ar-ntp-N"):
        fit(tiny_run(tmp_path / "other", method="arm", targets="next"))


def test_averaged_weights_follow_the_ramp():
    averaged, current = [torch.zeros(1)], [torch.ones(1)]
    ramped_average(0.9999)(averaged, current, 1)
    assert averaged[0].item() == pytest.approx(1 - 2 / 11)
    ramped_average(0.0)(averaged, current, 1)
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
