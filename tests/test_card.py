"""A card agrees with its directory and its rows, and the cards of the bundled models are up to date."""

from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from latent_tokens import METHODS, DataConfig, EvalConfig, evaluate, fit, from_pretrained, make_data
from latent_tokens.checkpoints.pretrained import SHIPPED, shipped_names
from latent_tokens.sharing.card import card, write_card
from latent_tokens.storage import append_line, read_description, read_lines
from latent_tokens.tasks import TASKS
from test_training import tiny_run


def test_a_card_says_task_recipe_and_figures(tmp_path):
    folder = fit(tiny_run(tmp_path / "run", steps=7, size="nano", method="scdm"))
    (row,) = evaluate(from_pretrained(folder), TASKS["sudoku-4"], EvalConfig(latents=(3,), num_samples=5))
    write_card(folder, [row])
    text = (folder / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: latent-tokens\n")
    assert "A model of the task `sudoku-4` by the method `scdm`: 4 layers of width 128" in text
    assert "| steps | 7 |" in text
    assert "latent-tokens train sudoku-4 scdm --steps 7 " in text
    assert " --num-train 50 " in text
    assert f"SHA-256 `{read_description(folder, 'config.json', 'run')['data_sha256']['train'][:16]}`" in text
    assert f"| sudoku-4 | top-prob | 8 | 3 | {row['valid']:.1f} % |" in text
    assert "None were measured" in card(folder, [])


def test_a_card_names_the_data_set_that_was_brought(tmp_path):
    data = make_data(DataConfig("sudoku-4", tmp_path / "boards", num_train=40, num_validation=8, num_test=0))
    text = card(fit(tiny_run(tmp_path / "run", data=data)), [])
    assert " --data boards`" in text
    assert "num-train" not in text


def test_a_folder_without_a_model_has_no_card(tmp_path):
    with pytest.raises(ValueError, match=r"no model \(config.json is missing\)"):
        card(tmp_path, [])


def test_a_model_is_put_into_the_package_with_its_rows(tmp_path, monkeypatch):
    """Its earlier rows make way, those of others stay; a folder with a card is taken as it is."""
    about = spec_from_file_location("ship", Path(__file__).parents[1] / "scripts" / "ship.py")
    script = module_from_spec(about)
    about.loader.exec_module(script)
    monkeypatch.setattr(script, "SHIPPED", tmp_path)
    monkeypatch.setattr(script, "RESULTS", tmp_path / "results.jsonl")
    monkeypatch.setattr(
        script, "EvalConfig", partial(lambda few, **config: EvalConfig(**{**config, "num_samples": few}), 4)
    )
    old = [{"task": "sudoku-4", "method": method} for method in ("mdm", "sidm")]
    for row in old:
        append_line(tmp_path / "results.jsonl", row)
    run = fit(tiny_run(tmp_path / "runs" / "sudoku-4-mdm", method="mdm"))
    rows = script.ship(run, tmp_path / "beside" / "sudoku-4-mdm")
    assert [row["order"] for row in rows] == ["top_prob", "uniform"]
    script.put(tmp_path / "beside" / "sudoku-4-mdm", rows)
    assert read_lines(tmp_path / "results.jsonl") == [old[1], *rows]
    assert (tmp_path / "sudoku-4-mdm" / "README.md").read_text() == card(tmp_path / "sudoku-4-mdm", rows)
    assert from_pretrained(tmp_path / "sudoku-4-mdm").method == METHODS["mdm"]


@pytest.mark.parametrize("name", shipped_names())
def test_a_model_that_comes_along_has_its_card(name):
    about, rows = (
        read_description(SHIPPED / name, "config.json", "model"),
        read_lines(SHIPPED / "results.jsonl"),
    )
    own = [row for row in rows if (row["task"], row["method"]) == (about["task"]["name"], about["name"])]
    assert own
    assert (SHIPPED / name / "README.md").read_text() == card(SHIPPED / name, own)
