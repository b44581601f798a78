"""Result rows: an edited, duplicated or cut one is refused by name. Stored models are those of rows."""

import json
import sys
from typing import get_type_hints

import pytest
import torch

from helpers.documentation import ROOT
from helpers.runs import description, tiny_run
from latent_tokens import TASKS, EvalConfig, evaluate, fit, from_pretrained
from latent_tokens.checkpoints.directory import learned_task
from latent_tokens.checkpoints.files import BUNDLED, read_tensor_file, tensors_sha256
from latent_tokens.evaluation.rows import HASH, SHARES, Row, append_result, read_results, row_hash
from latent_tokens.paper.recipes import recipes
from latent_tokens.paper.run import measured, run

sys.path.append(str(ROOT / "scripts"))

import result_models

ROWS = ROOT / "results" / "cpu" / "rows.jsonl"
INDEXES = sorted(ROOT.glob("results/*/models/models.json")) + sorted(
    ROOT.glob("research/*/models/models.json")
)


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


@pytest.mark.parametrize("path", INDEXES, ids=lambda path: path.parents[1].name)
def test_a_stored_model_is_that_of_rows(path):
    index = json.loads(path.read_text())
    assert {folder.name for folder in path.parent.iterdir() if folder.is_dir()} == set(index)
    rows = read_results(path.parents[1] / "rows.jsonl")
    for name, entry in index.items():
        models = {row["model"] for row in rows if row["weights_sha256"] == entry["weights_sha256"]}
        assert models == {entry["model"]}
        folder = path.parent / name
        weights = from_pretrained(folder).parameters()
        assert all(torch.equal(weight, weight.bfloat16().float()) for weight in weights)
        config = description(folder)
        expected = f"{learned_task(folder).name}-{config['name']}-{config['training']['seed']}"
        assert name == expected
        assert (folder / "model.safetensors").stat().st_size < 2.5e6


def test_a_copy_replaces_the_older_one(tmp_path):
    run = fit(tiny_run(tmp_path / "sudoku-4-scdm-0-abc", steps=1))
    models = tmp_path / "models"
    copied = models / "sudoku-4-scdm-0"
    copied.mkdir(parents=True)
    (copied / "old").touch()
    (models / result_models.INDEX).write_text('{"other": {}}')
    result_models.copy(run, models)

    weights = read_tensor_file(run / "model.safetensors")
    entry = {"model": run.name, "weights_sha256": tensors_sha256(weights)}
    assert json.loads((models / result_models.INDEX).read_text()) == {"other": {}, copied.name: entry}
    assert sorted(path.name for path in copied.iterdir()) == ["config.json", "model.safetensors"]
    assert description(copied)["training"]["steps"] == 1
    stored = read_tensor_file(copied / "model.safetensors")
    assert all(torch.equal(stored[name], weight.bfloat16()) for name, weight in weights.items())
