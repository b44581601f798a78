"""Result rows: an edited, duplicated or cut one is refused by name."""

import json
from typing import get_type_hints

import pytest

from helpers.documentation import ROOT
from latent_tokens import TASKS, EvalConfig, evaluate, from_pretrained
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.cli import main
from latent_tokens.commands.evaluate import tracked
from latent_tokens.evaluation.rows import HASH, SHARES, Row, append_result, read_results, row_hash
from latent_tokens.paper.recipes import recipes
from latent_tokens.paper.run import measured, run
from latent_tokens.sharing.card import figures

ROWS = ROOT / "results" / "cpu" / "rows.jsonl"


@pytest.fixture
def row():
    return json.loads(ROWS.read_text().splitlines()[0])


def test_a_row_is_read_as_it_was_written(tmp_path, row):
    path = tmp_path / "rows.jsonl"
    append_result(path, {**row, "by_step": {2: 0.5, 10: 1.0}, "of": (1, 2)})
    (stored,) = read_results(path)
    assert stored == {**row, "by_step": {"2": 0.5, "10": 1.0}, "of": [1, 2], HASH: row_hash(stored)}


def test_row_type_has_every_stored_key_and_every_share():
    rows = [row for path in (ROWS, BUNDLED / "results.jsonl") for row in read_results(path)]
    assert {key for row in rows for key in row} <= set(get_type_hints(Row))
    assert set(SHARES) < set(get_type_hints(Row))
    assert all(row["units"] == 2 for row in rows)


def test_new_rows_name_the_training_run_of_their_model():
    """A network that was not read from a directory has no run, and its rows have none of the keys."""
    net = from_pretrained("sudoku-6-scdm")
    config = EvalConfig(num_samples=1)
    (row,) = evaluate(net, TASKS["sudoku-6"], config)
    trained = {"run": "sudoku-6-scdm", "method_name": "scdm", "size": "nano", "length": 36}
    trained |= {"train_seed": 0, "train_steps": 5500}
    assert trained.items() <= row.items()
    net.folder = None
    (without,) = evaluate(net, TASKS["sudoku-6"], config)
    assert row.keys() - without.keys() == trained.keys()


VARIANTS = [
    ({}, ""),
    ({"threshold": 0.5, "tokens_per_step": 4}, "threshold 0.5, at most 4"),
    ({"threshold": 0.9}, "threshold 0.9"),
    ({"temperature": 0.0, "top_p": 0.9}, "temperature 0, top-p 0.9"),
    ({"latent_policy": "random", "refresh": False}, "random latents, not reshuffled"),
]


def test_rows_of_other_decodings_differ_in_card_table_and_tracker(tmp_path, row, capsys):
    varied = [{**row, "order": "top_prob", "relative_cost": 1.0, **values} for values, _ in VARIANTS]
    orders = [f"top-prob, {words}".removesuffix(", ") for _, words in VARIANTS]
    assert [line.split(" | ")[1] for line in figures(varied).splitlines()[2:7]] == orders
    for each in varied:
        append_result(tmp_path / "rows.jsonl", each)
    assert main(["results", str(tmp_path / "rows.jsonl")]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert all(words in line for line, (_, words) in zip(lines, VARIANTS, strict=True))
    assert len({frozenset(tracked(each)) for each in varied}) == len(VARIANTS)


def test_an_edited_value_is_refused(tmp_path, row):
    path = tmp_path / "rows.jsonl"
    append_result(path, row)
    append_result(path, {**row, "recipe": "0" * 12})
    path.write_text(path.read_text().replace('"valid": 40.8', '"valid": 90.8', 1))
    with pytest.raises(ValueError, match=r"rows.jsonl, row 1: was changed after it was measured"):
        measured(path)


def test_two_differing_rows_of_one_recipe_are_refused_by_name(tmp_path, row):
    path = tmp_path / "rows.jsonl"
    append_result(path, row)
    append_result(path, {**row, "seconds": 99.0})  # the same row, measured a second time
    assert measured(path)[row["recipe"]]["seconds"] == row["seconds"]
    append_result(path, {**row, "valid": 90.8})
    problem = r"two rows of recipe 072134c54b4c differ in valid \(40.8 and 90.8\)"
    with pytest.raises(ValueError, match=problem):
        measured(path)


def test_a_row_without_a_key_is_refused_in_one_line(tmp_path, row):
    for name in ("recipe", "cell", "weights_sha256", "metric"):
        append_result(tmp_path / name, {key: value for key, value in row.items() if key != name})
        with pytest.raises(ValueError, match=rf"row 1: has no .*{name}"):
            measured(tmp_path / name)


def test_a_row_that_another_process_measured_meanwhile_is_taken(tmp_path, row, monkeypatch):
    (recipe, *_) = recipes("figure-1", "smoke", tmp_path / "runs")
    results = tmp_path / "rows.jsonl"
    first = {**row, "recipe": recipe.hash, "device": "the first"}

    def measure(_):
        append_result(results, first)
        return {**first, "device": "the second"}

    monkeypatch.setattr("latent_tokens.paper.run.measure", measure)
    (row,) = run([recipe], results)
    assert row["device"] == "the first"
    assert len(results.read_text().splitlines()) == 1
