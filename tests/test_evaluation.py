"""Result rows: their entries, and that they are reproducible."""

import pytest

from helpers.refusals import refused
from latent_tokens import METHODS, SIZES, TASKS, DataConfig, Transformer, evaluate, load_data, make_data

TASK = TASKS["sudoku-4"]


def rows_of(net, name, num_samples=4, **settings):
    net.method = METHODS[name]
    return evaluate(net, TASK, num_samples=num_samples, **settings)


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
    ("scdm", {"order": "left_to_right"}, {"order": "left_to_right", "candidates": 1}),
    ("scdm", {"precision": "bf16"}, {"precision": "bf16"}),
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


def test_equal_settings_give_equal_rows_in_any_batch(pico):
    (first,) = rows_of(pico, "scdm", latents=(2,), batch_size=4)
    assert measured(rows_of(pico, "scdm", latents=(2,), batch_size=3)[0]) == measured(first)
    assert rows_of(pico, "scdm", latents=(2,), seed=1)[0]["soft_loss"] != first["soft_loss"]
    # A fixed order has one candidate, and a window has as many latent tokens as it was trained on.
    for name, settings, implied in (
        ("scdm", {"order": "uniform"}, {"candidates": 1}),
        ("ar-mtp-window-4", {}, {"latents": ("all",)}),
    ):
        without, given = (rows_of(pico, name, **settings, **more) for more in ({}, implied))
        assert measured(without[0]) == measured(given[0])


REFUSED = [
    ("arm", {"order": "top_prob"}, "Use"),
    ("sidm", {"latents": (0, "all")}, "Use"),
    ("scdm", {"order": "uniform", "candidates": 8}, "Use candidates=1"),
    ("arm", {"candidates": "growing"}, "Use"),
    ("arm", {"refresh": False}, "order=left_to_right"),
    *(("scdm", {"latents": wrong}, "latents=") for wrong in (-1, [], "some", 1.5, True)),
    ("scdm", {"num_samples": 0}, "num_samples="),
]


@pytest.mark.parametrize(("name", "settings", "fix"), REFUSED)
def test_impossible_evaluation_is_refused_before_sampling(pico, name, settings, fix):
    pico.method = METHODS[name]
    with refused(fix):
        evaluate(pico, TASK, on_row=pytest.fail, **settings)


def test_a_model_of_boards_infills_the_puzzles_of_a_data_set(pico, tmp_path):
    counts = {"num_train": 0, "num_validation": 8, "num_test": 8}
    puzzles = make_data(DataConfig("sudoku-6-puzzle", tmp_path / "puzzles", processes=1, **counts))
    boards = TASKS["sudoku-6"]
    net = Transformer(SIZES["pico"], boards.vocab_size, boards.length).eval()
    net.method = pico.method = METHODS["mdm"]
    (row,) = evaluate(net, boards, data=puzzles)
    task, splits = load_data(puzzles)
    masked = (task.givens(splits["test"].tokens) < 0).sum()
    assert (row["problems"], row["num_samples"], row["metric"]) == ("puzzles", 8, "valid")
    assert row["processed"] == masked * 36 / 8 < 36 * 36  # a clue takes no step
    net.method = METHODS["scdm"]
    (row,) = evaluate(net, boards, data=puzzles, latents=2, latent_policy="relevant")
    assert (row["latent_policy"], row["num_samples"]) == ("relevant", 8)
    with refused("has SudokuPuzzle"):
        evaluate(pico, TASK, data=puzzles)
    with refused("sudoku-9 has 81 positions over 9 tokens, this model learned sequences of 16"):
        evaluate(pico, TASKS["sudoku-9"])
