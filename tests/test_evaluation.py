"""Result rows: their entries, and that they are reproducible."""

from dataclasses import replace

import pytest

from helpers.refusals import refused
from latent_tokens import METHODS, SIZES, TASKS, DataConfig, Transformer, evaluate, load_data, make_data
from latent_tokens.evaluation.intervals import wilson

TASK = TASKS["sudoku-4"]


def rows_of(net, name, **settings):
    net.method = METHODS[name]
    return evaluate(net, TASK, num_samples=20, **settings)


def measured(row):
    return {key: value for key, value in row.items() if not key.startswith(("seconds", "samples_per"))}


@pytest.mark.parametrize("name", ["scdm", "mdm-depth"])
def test_a_row_a_number_of_latents_with_its_cost(nano, name):
    heard = []
    found = rows_of(nano, name, latents=(0, 3, "all"), candidates=4, on_row=heard.append)
    assert heard == found
    assert [row["latents"] for row in found] == [0, 3, "all"]
    assert [row["paper_cost"] for row in found] == [row["relative_cost"] for row in found]
    assert found[2]["relative_cost"] == 1
    assert found[0]["processed"] == sum(clean + min(4, 16 - clean) for clean in range(16))
    for row in found:
        settings = [row[key] for key in ("task", "method", "order", "candidates")]
        assert settings == ["sudoku-4", name, "top_prob", 4]
        assert row["ci95"][0] <= row["valid"] <= row["ci95"][1]
        assert row["forward_passes"] == 16
        assert row["made_with"]["torch"]


@pytest.mark.parametrize(
    ("name", "order", "latents", "candidates"),
    [
        ("mdm", "top_prob", "all", 8), ("sidm", "top_prob", 0, 8), ("scdm", "top_prob", 0, 8),
        ("esolm", "top_prob", 0, 8),
        ("arm", "left_to_right", 0, 1), ("ar-mtp", "left_to_right", "all", 1),
        ("ar-mtp-window-4", "left_to_right", 3, 1),
        ("ar-ntp-4", "left_to_right", 3, 1),
    ],
)  # fmt: skip
def test_defaults_are_the_papers(nano, name, order, latents, candidates):
    (row,) = rows_of(nano, name)
    expected = {"method": name, "order": order, "latents": latents, "candidates": candidates}
    assert expected.items() <= row.items()


def test_results_come_out_again_and_do_not_depend_on_the_batch(nano):
    (first,), (second,) = (rows_of(nano, "scdm", latents=(2,), batch_size=size) for size in (20, 7))
    assert measured(first) == measured(second)
    assert measured(rows_of(nano, "scdm", latents=(2,), seed=1)[0]) != measured(first)


@pytest.mark.parametrize("order", ["margin", "entropy", "uniform", "left_to_right"])
def test_other_orders(nano, order):
    (row,) = rows_of(nano, "scdm", order=order)
    assert row["order"] == order
    assert row["candidates"] == (8 if order in ("margin", "entropy") else 1)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("scdm", {"tokens_per_step": 2}),
        ("scdm", {"order": "blockwise:4"}),
        ("block-mdm-4", {"order": "uniform"}),
    ],
    ids=["tokens per step", "order", "rule"],
)
def test_papers_formula_has_no_blocks_and_one_token_per_step(nano, name, settings):
    (row,) = rows_of(nano, name, **settings)
    assert row["relative_cost"] < 1
    assert row["paper_cost"] is None


def test_bf16(nano):
    (row,) = rows_of(nano, "scdm", precision="bf16")
    assert row["precision"] == "bf16"
    assert next(nano.parameters()).dtype.itemsize == 4


@pytest.mark.parametrize(
    ("name", "settings", "fix"),
    [
        ("mdm", {"latents": (4,)}, "Use"),
        ("arm", {"order": "top_prob"}, "Use"),
        ("sidm", {"latents": (0, "all")}, "Use"),
        ("scdm", {"order": "uniform", "candidates": 8}, "Use candidates=1"),
        ("arm", {"candidates": "growing"}, "Use"),
        ("arm", {"refresh": False}, "order=left_to_right"),
        *(("scdm", {"latents": wrong}, "latents=") for wrong in (-1, [], "some", 1.5, True)),
        ("scdm", {"num_samples": 0}, "num_samples="),
        ("scdm", {"order": "left-to-right"}, "order="),
        ("scdm", {"protocol": "paper"}, "padding=none"),
    ],
)
def test_impossible_evaluation_is_refused_before_sampling(nano, name, settings, fix):
    nano.method = METHODS[name]
    with refused(fix):
        evaluate(nano, TASK, on_row=pytest.fail, **settings)


def test_a_net_of_another_task_is_refused(nano):
    nano.method = METHODS["scdm"]
    with refused("sudoku-9 has 81 positions over 9 tokens, this model learned sequences of 16"):
        evaluate(nano, TASKS["sudoku-9"])


def test_a_window_reports_the_latents_it_shows(nano):
    own, everything = (rows_of(nano, "ar-mtp-window-4", latents=latents)[0] for latents in (None, ("all",)))
    assert measured(own) == measured(everything)
    assert own["paper_cost"] == own["relative_cost"]


def test_fixed_order_has_one_candidate(nano):
    (row,) = rows_of(nano, "scdm", order="uniform", candidates=1)
    assert measured(row) == measured(rows_of(nano, "scdm", order="uniform")[0])


def test_wilsons_interval_is_of_a_share():
    assert wilson(0.0, 20) == (0.0, pytest.approx(0.1611, abs=1e-4))
    assert wilson(1.0, 20)[1] == 1.0


def test_a_weight_that_is_not_the_rows_own_shows_in_the_name(nano):
    nano.method = replace(METHODS["ar-mtp"], weight="elbo")
    assert evaluate(nano, TASK, num_samples=1)[0]["method"] == "ar-mtp (elbo)"


@pytest.fixture
def puzzles(tmp_path):
    """Return a data set of eight 6x6 puzzles."""
    counts = {"num_train": 0, "num_validation": 0, "num_test": 8}
    return make_data(DataConfig("sudoku-6-puzzle", tmp_path / "puzzles", processes=1, **counts))


def test_a_model_of_boards_infills_the_puzzles_of_a_data_set(puzzles):
    boards = TASKS["sudoku-6"]
    net = Transformer(SIZES["nano"], boards.vocab_size, boards.length).eval()
    net.method = METHODS["mdm"]
    (row,) = evaluate(net, boards, data=puzzles)
    task, splits = load_data(puzzles)
    masked = (task.givens(splits["test"].tokens) < 0).sum()
    assert (row["problems"], row["num_samples"], row["metric"]) == ("puzzles", 8, "valid")
    assert row["processed"] == masked * 36 / 8 < 36 * 36  # a clue takes no step


def test_a_model_of_other_boards_does_not(puzzles, nano):
    nano.method = METHODS["mdm"]
    with refused("has SudokuPuzzle"):
        evaluate(nano, TASK, data=puzzles)
