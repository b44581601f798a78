"""A card says what the folder and the rows say, and those that come along are those of what comes along."""

import pytest

from latent_tokens import EvalConfig, evaluate, fit, from_pretrained
from latent_tokens.card import card, write_card
from latent_tokens.pretrained import SHIPPED, shipped_names
from latent_tokens.storage import read_description, read_lines
from latent_tokens.tasks import TASKS
from test_training import tiny_run


def test_a_card_says_task_recipe_and_figures(tmp_path):
    folder = fit(tiny_run(tmp_path / "run", steps=7, method="scdm"))
    (row,) = evaluate(from_pretrained(folder), TASKS["sudoku-4"], EvalConfig(latents=(3,), num_samples=5))
    write_card(folder, [row])
    text = (folder / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: latent-tokens\n")
    assert "A model of the task `sudoku-4` by the method `scdm`: 4 layers of width 128" in text
    assert "| steps | 7 |" in text
    assert "latent-tokens train sudoku-4 scdm --steps 7 " in text
    assert f"| sudoku-4 | top-prob | 8 | 3 | {row['valid']:.1f} % |" in text
    assert "None were measured" in card(folder, [])


def test_a_folder_without_a_model_has_no_card(tmp_path):
    with pytest.raises(ValueError, match=r"no model \(config.json is missing\)"):
        card(tmp_path, [])


@pytest.mark.parametrize("name", shipped_names())
def test_a_model_that_comes_along_has_its_card(name):
    about, rows = read_description(SHIPPED / name, "config.json", "model"), read_lines(SHIPPED / "results.jsonl")
    own = [row for row in rows if (row["task"], row["method"]) == (about["task"]["name"], about["name"])]
    assert own
    assert (SHIPPED / name / "README.md").read_text() == card(SHIPPED / name, own)
