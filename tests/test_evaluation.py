"""Result rows have their settings and are reproducible. The protocol of the paper sets k and the samples."""

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import latent_tokens as lt
from helpers.refusals import refused
from helpers.runs import stop_at, tiny_run
from latent_tokens.data.datasets import task_of
from latent_tokens.evaluation.settings import NUM_ZEBRA, decoding_for, is_adaptive, order_for, with_protocol
from latent_tokens.paper.recipes import every_recipe
from latent_tokens.tasks import Text, configured

TASK = lt.TASKS["sudoku-4"]
PADDED = configured("sudoku-4", {"padding": "paper"})
PAPER = lt.EvalConfig(protocol="paper")


def rows_of(net, name, num_samples=4, **settings):
    net.method = lt.METHODS[name]
    return lt.evaluate(net, TASK, num_samples=num_samples, **settings)


def measured(row):
    return {key: value for key, value in row.items() if not key.startswith(("seconds", "samples_per"))}


@pytest.mark.parametrize("name", ["scdm", "mdm-depth"])
def test_a_row_a_number_of_latents_with_its_cost(pico, name):
    reported = []
    rows = rows_of(pico, name, latents=(0, 3, "all"), candidates=4, on_row=reported.append)
    assert reported == rows
    assert [row["latents"] for row in rows] == [0, 3, "all"]
    assert rows[2]["relative_cost"] == 1
    assert rows[0]["processed"] == sum(clean + min(4, 16 - clean) for clean in range(16))
    for row in rows:
        settings = [row[key] for key in ("task", "method", "order", "candidates")]
        assert settings == ["sudoku-4", name, "top_prob", 4]
        assert row["ci95"][0] <= row["valid"] <= row["ci95"][1]
        assert row["forward_passes"] == 16
        assert row["made_with"]["torch"]


def test_a_method_with_an_order_of_its_own_decodes_by_it(pico):
    order = lt.given(range(15, -1, -1))
    rows = []
    for of_method, settings in ((order, {}), (lt.any_order, {"order": order})):
        pico.method = replace(lt.METHODS["scdm"], order=of_method)
        (row,) = lt.evaluate(pico, TASK, num_samples=4, latents=3, **settings)
        rows.append({**measured(row), "method": None})
    assert rows[0] == rows[1]
    assert (rows[0]["order"], rows[0]["candidates"]) == ("follow_schedule", 1)


def test_row_of_an_unfinished_run_has_the_steps_of_its_weights(tmp_path):
    config = tiny_run(tmp_path / "run")  # 12 steps, validated every 5
    with pytest.raises(KeyboardInterrupt):
        lt.fit(config, observe=stop_at(7))
    (row,) = lt.evaluate(lt.from_pretrained(config.folder), TASK, num_samples=2)
    assert row["train_steps"] == 5
    (row,) = lt.evaluate(lt.from_pretrained(lt.fit(config, resume="auto")), TASK, num_samples=2)
    assert row["train_steps"] == 12


SETTINGS = [  # the method, the settings, and entries of the row
    # The defaults are those of the paper.
    ("mdm", {}, {"order": "top_prob", "latents": "all", "candidates": 8}),
    ("sidm", {}, {"order": "top_prob", "latents": 0, "candidates": 8}),
    ("scdm", {}, {"order": "top_prob", "latents": 0, "candidates": 8, "precision": "fp32"}),
    ("esolm", {}, {"order": "top_prob", "latents": 0, "candidates": 8}),
    ("arm", {}, {"order": "left_to_right", "latents": 0, "candidates": 1}),
    ("ar-mtp", {}, {"order": "left_to_right", "latents": "all", "candidates": 1}),
    ("ar-mtp-window-4", {}, {"order": "left_to_right", "latents": 3, "candidates": 1}),
    ("ar-ntp-4", {}, {"order": "left_to_right", "latents": 3, "candidates": 1}),
    ("scdm", {"order": "margin"}, {"order": "margin", "candidates": 8}),
    ("scdm", {"order": "entropy"}, {"order": "entropy", "candidates": 8}),
    ("scdm", {"order": "uniform"}, {"order": "uniform", "candidates": 1}),
    ("scdm", {"order": "uniform", "candidates": 1}, {"order": "uniform", "candidates": 1}),
    ("ar-mtp-window-4", {"latents": "all"}, {"latents": 3}),
    ("scdm", {"order": "left_to_right"}, {"order": "left_to_right", "candidates": 1}),
    ("scdm", {"precision": "bf16"}, {"precision": "bf16"}),
    # Functions are named as what they do.
    ("scdm", {"confidence": lt.margin}, {"order": "margin", "candidates": 8}),
    ("scdm", {"order": lt.any_order}, {"order": "top_prob", "candidates": 8}),
    ("scdm", {"order": lt.any_order, "candidates": 1}, {"order": "uniform"}),
    ("scdm", {"order": lt.left_to_right}, {"order": "left_to_right", "candidates": 1}),
    ("scdm", {"select": lt.Threshold(0.9)}, {"threshold": 0.9, "paper_cost": None}),
    (
        "scdm",
        {"order": lt.blockwise(4), "confidence": lt.margin},
        {"order": "blockwise:4 margin", "paper_cost": None},
    ),
    (
        "scdm",
        {"order": "blockwise:4", "confidence": "entropy"},
        {"order": "blockwise:4 entropy", "paper_cost": None},
    ),
    # The default of blocks is not named.
    (
        "scdm",
        {"order": "blockwise:4", "confidence": lt.top_prob},
        {"order": "blockwise:4", "paper_cost": None},
    ),
    (
        "scdm",
        {"order": "blockwise:4", "confidence": "top_prob"},
        {"order": "blockwise:4", "paper_cost": None},
    ),
    # The confidence of an entropy bound is, and the blocks of a method are.
    (
        "scdm",
        {"order": "blockwise:4", "entropy_bound": 0.1},
        {"order": "blockwise:4 entropy", "paper_cost": None},
    ),
    ("block-mdm-4", {}, {"order": "blockwise:4", "paper_cost": None}),
    ("scdm", {"latents": lambda masked: 2, "latent_policy": "random"}, {"paper_cost": None}),
    ("ar-mtp-window-8", {"tokens_per_step": 4}, {"latents": 4, "paper_cost": None}),
    # The paper's formula has no blocks, and one token per step.
    ("scdm", {"tokens_per_step": 2}, {"paper_cost": None}),
    ("scdm", {"order": "blockwise:4"}, {"paper_cost": None}),
    ("block-mdm-4", {"order": "uniform"}, {"paper_cost": None}),
]


@pytest.mark.parametrize(("name", "settings", "expected"), SETTINGS)
def test_row_has_the_settings_and_both_costs(pico, name, settings, expected):
    (row,) = rows_of(pico, name, **settings)
    assert {"method": name, "paper_cost": row["relative_cost"], **expected}.items() <= row.items()
    assert row["relative_cost"] < 1 or row["latents"] == "all"
    assert next(pico.parameters()).dtype.itemsize == 4


def test_row_has_the_precision_of_a_network_that_was_converted(pico):
    converted = deepcopy(pico).bfloat16()
    (row,) = rows_of(converted, "scdm", num_samples=2)
    assert row["precision"] == "bf16"


def test_row_of_remasking_is_json(pico):
    (row,) = rows_of(pico, "scdm", remask_every=4)
    assert json.loads(json.dumps(row))["remask_every"] == 4
    assert "remask" not in row


def test_equal_settings_give_equal_rows_in_any_batch(pico):
    (first,) = rows_of(pico, "scdm", latents=(2,), batch_size=4)
    assert measured(rows_of(pico, "scdm", latents=(2,), batch_size=3)[0]) == measured(first)
    assert rows_of(pico, "scdm", latents=(2,), seed=1)[0]["soft_loss"] != first["soft_loss"]


@pytest.mark.parametrize("numbers", [range(0, 4, 2), np.array([0, 2]), [0, 2], (0, 2)])
def test_values_of_a_setting_may_be_a_range_or_an_array(numbers):
    assert lt.EvalConfig(latents=numbers) == lt.EvalConfig(latents=(0, 2))
    assert lt.EvalConfig(threshold=np.linspace(0.5, 1, 2)).threshold == (0.5, 1.0)
    assert lt.EvalConfig(latents=np.int64(4), candidates=np.array(2)).latents == (4,)
    with refused("candidates=(): must have a value, or be left out"):
        lt.EvalConfig(latents=numbers, candidates=np.array([]))


REFUSED = [
    ("arm", {"order": "top_prob"}, "Use"),
    ("sidm", {"latents": (0, "all")}, "Use"),
    ("scdm", {"order": "uniform", "candidates": 8}, "Use candidates=1"),
    ("arm", {"candidates": "growing"}, "Use"),
    ("scdm", {"order": "uniform", "confidence": lt.margin}, "confidence=margin with order=uniform"),
    ("scdm", {"order": "margin", "confidence": "entropy"}, "order=margin with confidence=entropy"),
    ("scdm", {"protocol": "paper", "confidence": "entropy"}, "protocol=paper with confidence"),
    ("arm", {"refresh": False}, "order=left_to_right"),
    ("scdm", {"order": "uniform", "candidates": lt.growing}, "candidates=growing with order=uniform"),
    ("scdm", {"latents": lambda masked: 4, "candidates": "all"}, "with candidates=all"),
    ("scdm", {"protocol": "paper", "candidates": lt.growing}, "protocol=paper with candidates"),
    ("scdm", {"protocol": "paper"}, "with padding=none"),
    ("scdm", {"order": "uniform", "threshold": 0.9}, "threshold=0.9 with order=uniform"),
    ("mdm", {"select": "half"}, "select=half: must be a function. Use threshold=0.9"),
    *(("scdm", {"latents": wrong}, "latents=") for wrong in (-1, [], "some", 1.5, True)),
    ("scdm", {"num_samples": 0}, "num_samples="),
]


@pytest.mark.parametrize(("name", "settings", "fix"), REFUSED)
def test_impossible_evaluation_is_refused_before_sampling(pico, name, settings, fix):
    pico.method = lt.METHODS[name]
    with refused(fix):
        lt.evaluate(pico, TASK, on_row=pytest.fail, **settings)


class Outside(nn.Module):
    """A network whose weights are none of its parameters."""

    vocab_size = 4
    max_length = 16
    mask_id = 4

    def __init__(self, net):
        super().__init__()
        self.method = net.method
        self.logits = net.forward

    def forward(self, ids, positions, mask):
        return self.logits(ids, positions, mask)


class Full(lt.TaskBase):
    """A task whose prompts are complete."""

    length = 16
    vocab = "abcd"

    def generate(self, count, seed, first=0):
        streams = [np.random.default_rng((seed, number, 1)) for number in range(first, first + count)]
        rows = [stream.integers(4, size=16).tolist() for stream in streams]
        return lt.Examples.padded(rows, 16, 16)

    def verify(self, tokens):
        return []


def test_a_network_without_weights_is_evaluated_and_a_function_is_refused(pico):
    pico.method = lt.METHODS["sidm"]
    (row,) = lt.evaluate(Outside(pico), TASK, num_samples=2)
    assert row["forward_passes"] == 16
    with refused("net=function: must be a torch.nn.Module"):
        lt.evaluate(lambda ids, positions, mask: None, TASK, num_samples=2)
    with refused("2 problems of Full: nothing is left to decode"):
        lt.evaluate(pico, Full(), num_samples=2)


def test_a_model_of_boards_infills_the_puzzles_of_a_data_set(pico, tmp_path):
    counts = {"num_train": 0, "num_validation": 8, "num_test": 8}
    puzzles = lt.make_data(lt.DataConfig("sudoku-6-puzzle", tmp_path / "puzzles", processes=1, **counts))
    boards = lt.TASKS["sudoku-6"]
    net = lt.Transformer(lt.SIZES["pico"], boards.vocab_size, boards.length).eval()
    net.method = pico.method = lt.METHODS["mdm"]
    (row,) = lt.evaluate(net, boards, data=puzzles)
    task, splits = lt.load_data(puzzles)
    masked = (task.givens(splits["test"].tokens) < 0).sum()
    assert (row["problems"], row["num_samples"], row["metric"]) == ("puzzles", 8, "valid")
    assert row["processed"] == masked * 36 / 8 < 36 * 36  # a clue takes no step
    net.method = lt.METHODS["scdm"]
    (row,) = lt.evaluate(net, boards, data=puzzles, latents=2, latent_policy="relevant")
    assert (row["latent_policy"], row["num_samples"]) == ("relevant", 8)
    with refused("has SudokuPuzzle"):
        lt.evaluate(pico, TASK, data=puzzles)
    with refused("sudoku-9 has 81 positions over 9 tokens, this model learned sequences of 16"):
        lt.evaluate(pico, lt.TASKS["sudoku-9"])


# The protocol of the paper.


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    """Return the network of a tiny run on padded boards."""
    config = tiny_run(tmp_path_factory.mktemp("runs") / "run", steps=1)
    return lt.from_pretrained(lt.fit(config, task=PADDED))


@pytest.mark.parametrize(
    ("name", "method", "order", "k", "count"),
    [
        ("zebra-3", "mdm", None, 8, NUM_ZEBRA),
        ("zebra-3", "mdm", "uniform", None, NUM_ZEBRA),
        ("sudoku-4", "scdm", None, 8, None),
        ("sudoku-4", "arm", None, None, None),
        ("sudoku-36", "mdm", None, None, None),
        ("sudoku-36", "mdm", "top_prob", 8, None),
    ],
)
def test_protocol_sets_candidates_and_samples(padded, name, method, order, k, count):
    task = configured(name, {"padding": "paper"})
    padded.method = lt.METHODS[method]
    config = with_protocol(padded, task, replace(PAPER, order=order))
    assert (config.candidates, config.num_samples, config.protocol) == (k and (k,), count, None)


def test_rows_of_the_protocol_are_those_of_its_settings_by_name(padded, tmp_path):
    counts = {"num_train": 4, "num_validation": 2, "num_test": 2}
    data = lt.make_data(lt.DataConfig("sudoku-4", tmp_path / "data", padding="paper", **counts))
    padded.method = lt.METHODS["scdm"]
    announced = []
    (by_name,) = lt.evaluate(
        padded, PADDED, replace(PAPER, data=data, temperature=0.0), on_row=announced.append
    )
    (by_hand,) = lt.evaluate(padded, PADDED, data=data, candidates=8, temperature=0.0)
    assert by_name["protocol"] == "paper"
    assert announced == [by_name]
    assert by_name.keys() - by_hand.keys() == {"protocol"}
    keys = ("candidates", "num_samples", "problems_sha256", "valid", "processed")
    assert [by_name[key] for key in keys] == [by_hand[key] for key in keys]


def test_models_and_settings_that_do_not_suit_the_protocol_are_refused(padded, tmp_path):
    without_ema = lt.from_pretrained(lt.fit(tiny_run(tmp_path / "run", steps=1, ema=0.0), task=PADDED))
    for model, task, message in (
        (padded, lt.TASKS["sudoku-4"], "learned sudoku-4 with padding=none"),
        (without_ema, PADDED, "without EMA weights (ema=0)"),
        (padded, Text(16), "Leave it out for text"),
    ):
        with refused(message):
            with_protocol(model, task, PAPER)
    for settings, message in (
        ({"candidates": 4}, "candidates=4 with protocol=paper: the protocol sets candidates"),
        ({"num_samples": 10}, "num_samples=10 with protocol=paper: the protocol sets num_samples"),
        ({"protocol": "papers"}, "protocol=papers: must be one of paper"),
    ):
        with refused(message):
            lt.EvalConfig(**{"protocol": "paper", **settings})


def test_recipes_of_the_paper_scale_follow_the_protocol(padded):
    for recipe in every_recipe("paper", Path("runs")):
        if recipe.cell.task == "text":
            continue
        if recipe.cell.k is None:
            assert recipe.evaluation.protocol == "paper"
        if recipe.cell.task == "zebra":
            assert recipe.data.num_test == NUM_ZEBRA
        # No recipe is refused after its training, and none has latent tokens that k leaves no room for.
        task = task_of(recipe.data)
        padded.method = lt.METHODS[recipe.training.method]
        config = with_protocol(padded, task, recipe.evaluation)
        order = order_for(padded.method, task, config)
        for sampling in config.samplings:
            decoding_for(padded.method, task, sampling)
        if recipe.cell.k is None:
            assert config.candidates == ((8,) if is_adaptive(order) else None)
