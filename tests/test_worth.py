"""What masked tokens in the input are worth: the likelihood rows, their table and their figure."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from latent_tokens import from_pretrained
from latent_tokens.core.policies import decaying
from latent_tokens.evaluation.likelihood import nats_along_orders
from latent_tokens.evaluation.problems import read_split
from latent_tokens.evaluation.report import save_sheet
from latent_tokens.paper.design.recipes import recipes
from latent_tokens.paper.figures import worth
from latent_tokens.paper.figures.worth import draw_worth, points_of, worth_markdown
from latent_tokens.paper.running.held_out import measure_likelihood, text_of_model
from latent_tokens.paper.running.runs import ready_model
from latent_tokens.paper.tables.lines import lines
from latent_tokens.tasks.base import evenly

NAME = "figure-worth"
ADAPTED = Path(__file__).parents[1] / "results" / "adapting" / "smollm2-ar-latents"


def row_of(recipe):
    """A row whose nats are 4 per token, less n / 100, and less a tenth in blocks."""
    n, variant = recipe.cell.latents, recipe.cell.variant or ""
    each = 100 * (4 - n / 100 - 0.1 * variant.startswith("blocks"))
    return {
        "train_seed": 0,
        "held_out_nats": [each - 1, each, each + 1],
        "held_out_tokens": 300,
        "relative_cost": 0.5,
    }


@pytest.fixture(scope="module")
def shown():
    asked = recipes(NAME, "cpu", Path("runs"))
    return lines(asked, {recipe.hash: row_of(recipe) for recipe in asked})


def test_table_has_each_difference_to_no_latents_in_the_same_blocks(shown):
    table = worth_markdown(shown, NAME)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:-2]]
    assert len(cells) == len(shown)
    for model, order, n, _, seed, nats, less, _, count in cells:
        assert float(nats) == pytest.approx(4 - int(n) / 100 - 0.1 * order.startswith("blocks"), abs=1e-3)
        assert less == ("" if n == "0" else f"{-int(n) / 100:+.4f} ± 0.0000"), (model, order)
        assert (seed, count) == ("0", "3")
    assert {row[3] for row in cells} == {"nearest", "adjacent", "decaying", "random", "distant"}


def test_table_names_what_was_not_run(shown):
    without = [replace(line, rows=()) if line.cell.task == "smollm2" else line for line in shown]
    table = worth_markdown(without, NAME).splitlines()
    assert sum("not run" in line for line in table) == sum(line.cell.task == "smollm2" for line in shown)
    assert all("SmolLM2" in line for line in table if "not run" in line)


def test_differences_are_of_one_training_seed(shown):
    """Models of two seeds differ. While the first seed is missing at n = 0, its lines have no difference."""
    (first, second, *_) = [line for line in shown if (line.cell.task, line.cell.method) == ("text", "scdm")]
    other = replace(first, rows=({**first.rows[0], "train_seed": 1},))
    assert "±" in worth_markdown([first, second], NAME)
    assert "±" not in worth_markdown([other, second], NAME)
    both = replace(first, rows=(*other.rows, *first.rows))
    assert worth_markdown([both, second], NAME).count("| -0.0100 ± 0.0000 |") == 1
    seeds = [line.split(" | ")[4] for line in worth_markdown([both, second], NAME).splitlines()[2:5]]
    assert seeds == ["1", "0", "0"]


def test_curve_of_a_policy_begins_without_latents(shown):
    of_scdm = [line for line in shown if (line.cell.task, line.cell.method) == ("text", "scdm")]
    assert points_of(of_scdm, "nearest")[:3] == [(0, 0, 0), (1, pytest.approx(-0.01), 0), (2, -0.02, 0)]
    assert [n for n, *_ in points_of(of_scdm, "distant")] == [0, 2, 8, 32]
    assert points_of(of_scdm, "random") == [(0, 0, 0)]  # in a random order it is the nearest


def test_figure_has_a_panel_per_model_and_one_of_blocks(shown, tmp_path, monkeypatch):
    sheets = []

    def save(sheet, *arguments):
        sheets.append(sheet)
        return save_sheet(sheet, *arguments)

    monkeypatch.setattr(worth, "save_sheet", save)
    paths = draw_worth(shown, NAME, "latent-tokens reproduce figure-worth", tmp_path / NAME)
    assert [path.suffix for path in paths] == [".png", ".svg"]
    drawn = paths[1].read_text()
    for title in ("esolm", "scdm", "SmolLM2, ar-latents", "SmolLM2, esolm", "n = 8, by block length"):
        assert f"<!-- {title} -->" in drawn
    assert "3 held-out sequences of 100 tokens" in drawn
    (sheet,) = sheets
    limits = [axes.get_ylim() for axes in sheet.axes]
    assert len(set(limits[:4])) == 1  # one for each model
    assert limits[4] != limits[0]


def test_figure_without_rows_of_n_0_has_no_panel_of_it(shown, tmp_path):
    assert draw_worth([replace(line, rows=()) for line in shown], NAME, "", tmp_path / "none") == []
    compared = [line if line.cell.latents else replace(line, rows=()) for line in shown]
    assert draw_worth(compared, NAME, "", tmp_path / "none") == []
    in_order = [
        replace(line, rows=()) if line.cell.task == "smollm2" and not line.cell.latents else line
        for line in shown
    ]
    drawn = draw_worth(in_order, NAME, "", tmp_path / NAME)[1].read_text()
    assert "<!-- scdm -->" in drawn
    assert "SmolLM2" not in drawn


def test_adapted_model_of_the_recipe_is_the_stored_one():
    """The stored adapter was trained with the settings of the recipe."""
    stored = json.loads((ADAPTED / "config.json").read_text())["training"]
    (recipe, *_) = (one for one in recipes(NAME, "cpu", Path("runs")) if one.cell.method == "ar-latents")
    settings = ("start", "lora", "steps", "batch_size", "lr", "warmup", "precision", "evaluate_every", "seed")
    for name in settings:
        value = getattr(recipe.training, name)
        assert stored[name] == (str(value) if name == "start" else value), name
    assert recipe.data.tokenizer == str(recipe.training.start)


@pytest.mark.slow
def test_row_has_the_nats_of_its_policy_and_their_cost(tmp_path):
    asked = recipes(NAME, "smoke", tmp_path)
    recipe = next(one for one in asked if one.cell.variant == "decaying")
    net = from_pretrained(ready_model(recipe))
    row = measure_likelihood(net, recipe)
    task = text_of_model(recipe.training.folder)
    test = read_split(task, recipe.evaluation.data, "test")
    examples = test.take(evenly(len(test.tokens), 2))
    nats = nats_along_orders(net, examples, order="uniform", latents=4, latent_policy=decaying)
    assert row["held_out_nats"] == pytest.approx(nats[0].tolist(), abs=1e-4)
    assert row["nats_per_token"] == pytest.approx(nats.sum() / 32, abs=1e-4)
    length = 16
    processed = sum(min(clean + 5, length) for clean in range(length))
    assert row["relative_cost"] == pytest.approx(processed / length**2, abs=1e-4)
    assert (row["latent_policy"], row["candidates"], row["latents"]) == ("decaying", 1, 4)
    blocks = next(one for one in asked if one.cell.variant == "blocks of 4" and one.cell.latents)
    row = measure_likelihood(net, blocks)
    in_blocks = nats_along_orders(net, examples, order="blockwise:4", latents=4)
    assert row["held_out_nats"] == pytest.approx(in_blocks[0].tolist(), abs=1e-4)
    assert (row["order"], row["candidates"], row["latent_policy"]) == ("blockwise:4", 1, "nearest")
