"""Result rows: an edited, duplicated or cut one is refused by name. The table of several runs joins them."""

import csv
import json
import subprocess
import sys
from typing import get_type_hints

import pytest

import latent_tokens
from helpers.documentation import ROOT
from helpers.refusals import refused, refused_command
from latent_tokens import TASKS, EvalConfig, evaluate, from_pretrained
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.cli import main
from latent_tokens.commands.evaluate import tracked
from latent_tokens.evaluation.report import FIRST_COLUMNS, measurements
from latent_tokens.evaluation.rows import HASH, SHARES, Row, append_result, read_results, row_hash
from latent_tokens.hf.model_card import figures
from latent_tokens.outputs import ResultTable
from latent_tokens.paper.recipes import recipes
from latent_tokens.paper.run import rows_by_recipe, run

ROWS = ROOT / "results" / "cpu" / "rows.jsonl"


@pytest.fixture
def row():
    return json.loads(ROWS.read_text().splitlines()[0])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "rows.jsonl"


def test_a_row_is_read_as_it_was_written(path, row):
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


def test_rows_of_other_decodings_differ_in_card_table_and_tracker(path, row, capsys):
    varied = [{**row, "order": "top_prob", "relative_cost": 1.0, **values} for values, _ in VARIANTS]
    orders = [f"top-prob, {words}".removesuffix(", ") for _, words in VARIANTS]
    assert [line.split(" | ")[1] for line in figures(varied).splitlines()[2:7]] == orders
    for each in varied:
        append_result(path, each)
    assert main(["results", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert all(words in line for line, (_, words) in zip(lines, VARIANTS, strict=True))
    assert len({frozenset(tracked(each)) for each in varied}) == len(VARIANTS)


def test_a_changed_or_differing_row_is_refused_by_name(path, row):
    append_result(path, row)
    append_result(path, {**row, "seconds": 99.0})  # the same row, measured a second time
    assert rows_by_recipe(path)[row["recipe"]]["seconds"] == row["seconds"]
    append_result(path, {**row, "valid": 90.8})
    with refused("two rows of recipe 072134c54b4c differ in valid (40.8 and 90.8)"):
        rows_by_recipe(path)
    path.write_text(path.read_text().replace('"valid": 40.8', '"valid": 90.8', 1))
    with refused("rows.jsonl, row 1: was changed after it was measured"):
        rows_by_recipe(path)


def test_a_row_without_a_key_is_refused_in_one_line(tmp_path, row):
    for name in ("recipe", "cell", "weights_sha256", "metric"):
        append_result(tmp_path / name, {key: value for key, value in row.items() if key != name})
        with refused("row 1: has no ", name):
            rows_by_recipe(tmp_path / name)


def test_a_row_that_another_process_measured_meanwhile_is_taken(path, tmp_path, row, monkeypatch):
    (recipe, *_) = recipes("figure-1", "smoke", tmp_path / "runs")
    first = {**row, "recipe": recipe.hash, "device": "the first"}

    def measure(_):
        append_result(path, first)
        return {**first, "device": "the second"}

    monkeypatch.setattr("latent_tokens.paper.run.measure_recipe", measure)
    (row,) = run([recipe], path)
    assert row["device"] == "the first"
    assert len(path.read_text().splitlines()) == 1


# The table of several runs.


def make_run(folder, seed, rows, **training):
    """Write a run directory with these rows, whose other entries are those of a stored row."""
    folder.mkdir(parents=True)
    settings = {"task": "sudoku-6", "method": "scdm", "size": "pico", "steps": 60, "seed": seed, "lr": 2e-3}
    description = {"format": 1, "model": {"max_length": 36}, "name": "scdm", "training": settings | training}
    (folder / "config.json").write_text(json.dumps(description))
    first = json.loads(ROWS.read_text().splitlines()[0]) | {"cells": 88.5, "units": 2}
    del first["train_seed"]  # which only rows of the paper have
    for row in rows:
        append_result(folder / "results.jsonl", first | row)
    return folder


@pytest.fixture
def runs(tmp_path):
    make_run(tmp_path / "four-0", 0, [{"latents": 4}, {"latents": "all", "train_steps": 40}])
    make_run(tmp_path / "four-1", 1, [{"latents": 4, "valid": 60.0, "ci95": None}], lr=1e-3)
    return tmp_path


def test_results_have_one_row_per_measurement(runs):
    table = latent_tokens.results(f"{runs}/four-*")
    assert list(table.columns[: len(FIRST_COLUMNS)]) == list(FIRST_COLUMNS)
    assert list(table.run) == ["four-0", "four-0", "four-1"]
    assert list(table.value) == [40.8, 40.8, 60.0]
    assert list(table.train_seed) == [0, 0, 1]
    assert list(table.train_lr) == [2e-3, 2e-3, 1e-3]
    assert list(table.train_steps) == [60, 40, 60]  # config.json of an extended run has the last number
    assert list(table["size"]) == ["pico"] * 3
    assert table.ci_low.iloc[0] == 37.79
    assert table.ci_high.isna().tolist() == [False, False, True]
    means = table.groupby("latents_setting").value.mean()
    assert means.to_dict() == pytest.approx({"4": 50.4, "all": 40.8})


def test_results_have_the_last_row_of_a_repeated_measurement(runs):
    for value, seconds in ((60.0, 9.0), (61.0, 8.0)):
        rows = [{"latents": 4, "valid": value, "ci95": None, "seconds": each} for each in (1.0, seconds)]
        make_run(runs / f"again-{value:.0f}", 1, rows)
    table = latent_tokens.results(f"{runs}/again-*")
    assert list(zip(table.value, table.seconds, strict=True)) == [(60.0, 9.0), (61.0, 8.0)]


def test_speed_has_no_exponent(row):
    rows = [{**row, "samples_per_second": speed} for speed in (2634.2, 12.34, 0.01234)]
    shown = str(ResultTable(rows, "title"))
    assert all(speed in shown for speed in ("2,634", "12.3", "0.0123"))


def test_results_latents_are_whole_numbers_with_all_as_length(runs):
    make_run(runs / "rule", 0, [{"latents": "half", "candidates": "growing"}])
    table = latent_tokens.results(runs / "four-0", str(runs / "rule"))
    assert table.latents.dtype == table.candidates.dtype == "Int64"
    assert list(table.latents[:2]) == [4, 36]
    assert table.latents.isna().tolist() == [False, False, True]
    assert list(table.latents_setting) == ["4", "all", "half"]
    assert list(table.candidates_setting) == ["1", "1", "growing"]


def test_results_accept_rows_without_a_run(path, row):
    append_result(path, row | {"latents": "all"})
    (row,) = measurements([path])
    assert "run" not in row
    assert row["latents"] is None
    assert row["latents_setting"] == "all"
    assert len(measurements([ROWS])) == len(ROWS.read_text().splitlines())


@pytest.mark.parametrize("training", [None, []])
def test_results_of_a_model_without_training_settings_are_read(tmp_path, training):
    """An imported model has no settings, and a config.json may have any content."""
    run = make_run(tmp_path / "imported", 0, [{"latents": "all"}])
    description = json.loads((run / "config.json").read_text()) | {"training": training}
    (run / "config.json").write_text(json.dumps(description))
    (row,) = measurements([run])
    assert (row["run"], row["latents"], row.get("size")) == ("imported", 36, None)


def test_results_of_another_metric_have_no_interval(runs):
    (row, *_) = measurements([runs / "four-1"], metric="cells")
    assert (row["metric"], row["value"], row["ci_low"]) == ("cells", 88.5, None)
    make_run(runs / "few", 0, [{"latents": 4, "off_distribution": True}])
    with refused("metric=off_distribution: no row has it", "Leave it out for valid"):  # it is no number
        measurements([runs / "few"], metric="off_distribution")


def test_results_without_pandas_name_the_package(runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        latent_tokens.results(f"{runs}/*")


def test_results_command_prints_aligned_lines_without_pandas(runs, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pandas", None)
    make_run(runs / "not-evaluated", 2, [])
    assert main(["results", *map(str, sorted(runs.iterdir()))]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    headings = "run task method size seed steps order k n metric value 95% interval samples tokens"
    cells = "four-1 sudoku-6 arm pico 1 60 left to right 1 4 valid % 60.0 1,000 0.51x"
    assert " ".join(lines[0].split()) == headings
    assert " ".join(lines[3].split()) == cells
    assert {line.index("sudoku-6") for line in lines[1:]} == {lines[0].index("task")}
    assert err == f"without results: {runs / 'not-evaluated'}\n"


def test_metric_of_a_task_of_a_user_is_in_percent_and_that_of_a_text_is_not(runs, capsys):
    for metric in ("reward", "perplexity", "nats_per_token"):
        make_run(runs / metric, 0, [{"latents": 4, "metric": metric, metric: 62.5, "ci95": [55.25, 70.0]}])
        assert main(["results", f"{runs}/{metric}"]) == 0
        shown = " ".join(capsys.readouterr().out.splitlines()[1].split())
        assert (f"{metric} % 62.5 55.2 - 70.0" in shown) == (metric == "reward")
        assert f"{metric} 62.5 55.25 - 70 " in shown or metric == "reward"


def test_results_command_names_a_protocol_if_a_row_has_one(runs, capsys):
    make_run(runs / "paper", 0, [{"latents": 4, "protocol": "paper"}])
    assert main(["results", f"{runs}/four-1", f"{runs}/paper"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines] == ["protocol", "0.51x", "paper"]
    assert list(latent_tokens.results(f"{runs}/four-1", f"{runs}/paper").protocol.fillna("")) == ["", "paper"]


def test_results_command_imports_no_torch(runs):
    script = f"import sys; from latent_tokens.cli import main; main(['results', {str(runs / 'four-*')!r}]); "
    done = subprocess.run([sys.executable, "-c", script + "sys.exit('torch' in sys.modules)"], check=False)
    assert done.returncode == 0


def test_results_command_writes_every_column_as_csv(runs, tmp_path, capsys):
    path = tmp_path / "table.csv"
    assert main(["results", f"{runs}/four-*", "--csv", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["latents"], row["ci_high"]) for row in rows] == [
        ("four-0", "4", "43.88"),
        ("four-0", "36", "43.88"),
        ("four-1", "4", ""),
    ]
    assert set(rows[0]) == set(latent_tokens.results(f"{runs}/four-*").columns)


def test_results_command_refuses_a_mistake_in_one_line(runs, capsys):
    for arguments, message in (
        ([f"{runs}"], f"{runs}: is not a run directory. Name one, a .jsonl, or a pattern in quotes"),
        ([f"{runs}/four-0", "--metric", "cell"], "--metric cell: no row has it. Did you mean cells?"),
    ):
        refused_command(capsys, ["results", *arguments], message)
