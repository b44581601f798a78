"""The paper's evaluation protocol sets candidates and samples, and refuses models that it does not fit."""

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.refusals import refused
from helpers.runs import tiny_run
from latent_tokens import METHODS, TASKS, DataConfig, evaluate, fit, from_pretrained, make_data
from latent_tokens.configs import EvalConfig
from latent_tokens.data.datasets import task_of
from latent_tokens.evaluation.settings import NUM_ZEBRA, decoding_for, is_adaptive, order_for, with_protocol
from latent_tokens.paper.recipes import every_recipe
from latent_tokens.tasks import Text, configured

PAPER = EvalConfig(protocol="paper")


PADDED = configured("sudoku-4", {"padding": "paper"})


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """Return the network of a tiny run on padded boards."""
    config = tiny_run(tmp_path_factory.mktemp("runs") / "run", steps=1)
    return from_pretrained(fit(config, task=PADDED))


@pytest.fixture
def data(tmp_path):
    """Return a data set of padded boards with two test problems."""
    counts = {"num_train": 4, "num_validation": 2, "num_test": 2}
    return make_data(DataConfig("sudoku-4", tmp_path / "data", padding="paper", **counts))


@pytest.mark.parametrize(
    ("name", "method", "order", "k", "count"),
    [
        ("zebra-3", "mdm", None, 8, NUM_ZEBRA),
        ("zebra-3", "mdm", "uniform", None, NUM_ZEBRA),
        ("sudoku-4", "scdm", None, 8, None),
        ("sudoku-4", "arm", None, None, None),
    ],
)
def test_protocol_sets_candidates_and_samples(net, name, method, order, k, count):
    task = configured(name, {"padding": "paper"})
    net.method = METHODS[method]
    config = with_protocol(net, task, replace(PAPER, order=order))
    assert (config.candidates, config.num_samples, config.protocol) == (k and (k,), count, None)


def test_rows_of_the_protocol_are_those_of_its_settings_by_name(net, data):
    net.method = METHODS["scdm"]
    announced = []
    (by_name,) = evaluate(net, PADDED, replace(PAPER, data=data, temperature=0.0), on_row=announced.append)
    (by_hand,) = evaluate(net, PADDED, data=data, candidates=8, temperature=0.0)
    assert by_name["protocol"] == "paper"
    assert announced == [by_name]
    assert by_name.keys() - by_hand.keys() == {"protocol"}
    keys = ("candidates", "num_samples", "problems_sha256", "valid", "processed")
    assert [by_name[key] for key in keys] == [by_hand[key] for key in keys]


def test_models_and_settings_that_do_not_suit_the_protocol_are_refused(net, tmp_path):
    without_ema = from_pretrained(fit(tiny_run(tmp_path / "run", steps=1, ema=0.0), task=PADDED))
    for model, task, message in (
        (net, TASKS["sudoku-4"], "learned sudoku-4 with padding=none"),
        (without_ema, PADDED, "without EMA weights (ema=0)"),
        (net, Text(16), "Leave it out for text"),
    ):
        with refused(message):
            with_protocol(model, task, PAPER)
    for settings, message in (
        ({"candidates": 4}, "candidates=4 with protocol=paper: the protocol sets candidates"),
        ({"num_samples": 10}, "num_samples=10 with protocol=paper: the protocol sets num_samples"),
        ({"protocol": "papers"}, "protocol=papers: must be one of paper"),
    ):
        with refused(message):
            EvalConfig(**{"protocol": "paper", **settings})


def test_recipes_of_the_paper_scale_follow_the_protocol(net):
    for recipe in every_recipe("paper", Path("runs")):
        if recipe.cell.task == "text":
            continue
        if recipe.cell.k is None:
            assert recipe.evaluation.protocol == "paper"
        if recipe.cell.task == "zebra":
            assert recipe.data.num_test == NUM_ZEBRA
        # No recipe is refused after its training, and none has latent tokens that k leaves no room for.
        task = task_of(recipe.data)
        net.method = METHODS[recipe.training.method]
        config = with_protocol(net, task, recipe.evaluation)
        order = order_for(net.method, task, config)
        for sampling in config.samplings:
            decoding_for(net.method, task, sampling)
        if recipe.cell.k is None:
            assert config.candidates == ((8,) if is_adaptive(order) else None)
