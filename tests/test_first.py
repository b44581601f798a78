"""A run whose first steps train with another method: `first`."""

import pytest
from safetensors.torch import load_file

from helpers.refusals import refused
from helpers.runs import checkpoints, rows, stop_at, tiny_run
from latent_tokens import fit
from latent_tokens.training.setup import settings

BUDGET = {"steps": 8, "save_every": 1, "keep": 8, "evaluate_every": 8, "warmup": 2}


def config_of(out, method="scdm", first="mdm:4"):
    return tiny_run(out, method, first=first, **BUDGET)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a run of scdm after mdm, and one of each alone."""
    folder = tmp_path_factory.mktemp("runs")
    methods = {"both": ("scdm", "mdm:4"), "mdm": ("mdm", None), "scdm": ("scdm", None)}
    return {name: fit(config_of(folder / name, *values)) for name, values in methods.items()}


def test_first_steps_are_those_of_the_first_method(runs):
    """One schedule and one order of the data: equal checkpoints until the change, different ones after it."""
    both, mdm, scdm = (sorted(checkpoints(runs[name])) for name in ("both", "mdm", "scdm"))
    assert both[:4] == mdm[:4]
    assert len({*both[4:], *mdm[4:], *scdm[4:]}) == 12
    assert [row["method"] for row in rows(runs["both"]) if "loss" in row] == ["scdm"]


def test_validation_is_that_of_the_final_method(tmp_path):
    """At step 4 both have the weights that mdm has learned."""
    losses = {}
    for name, first in (("scdm", "mdm:4"), ("mdm", None)):
        run = fit(config_of(tmp_path / name, name, first), evaluate_every=4)
        losses[name] = next(row["validation_loss"] for row in rows(run) if "validation_loss" in row)
    assert losses["scdm"] != losses["mdm"]


@pytest.mark.parametrize("step", [4, 5, 6])
def test_resume_around_the_change_gives_equal_weights(runs, tmp_path, step):
    """The checkpoints of steps 3, 4 and 5: before, at and after the change."""
    config = config_of(tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        fit(config, observe=stop_at(step))
    assert len(checkpoints(config.folder)) == step - 1
    resumed = fit(config, resume="yes")
    assert checkpoints(resumed) == checkpoints(runs["both"])
    weights = load_file(runs["both"] / "model.safetensors")
    assert all(
        (weights[name] == tensor).all() for name, tensor in load_file(resumed / "model.safetensors").items()
    )


@pytest.mark.parametrize(
    ("first", "named"),
    [
        ("mdm", "METHOD:STEPS, with 1 to 7 steps of steps=8"),
        ("mdm:0", "first=mdm:0"),
        ("mdm:8", "1 to 7"),
        ("mdm:x", "first=mdm:x"),
        ("arm:4", "Use one of mdm, sidm, scdm"),
        ("ar-mtp:4", "order, window or readout is not that of scdm"),
        ("mdx:4", "mdx"),
    ],
)
def test_a_first_method_that_does_not_fit_is_refused(tmp_path, first, named):
    with refused(named):
        fit(config_of(tmp_path / "run", first=first))
    assert not (tmp_path / "run").exists()


def test_resume_with_another_first_method_is_refused(runs):
    with refused("first=None: "):
        fit(config_of(runs["both"], first=None), resume="yes")


def test_a_run_without_it_stores_nothing(tmp_path):
    assert "first" not in settings(config_of(tmp_path, first=None))
    assert settings(config_of(tmp_path))["first"] == "mdm:4"
    assert tiny_run(None, first="sidm:4").folder.name == "sudoku-4-scdm-first-sidm.4-pico-0"
