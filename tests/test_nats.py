"""Boards in exact nats: the rows, the table, the figure and the claims."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from latent_tokens import METHODS, TASKS, Decoding, log_likelihood
from latent_tokens.core.cost import tokens_processed
from latent_tokens.evaluation.problems import Batch
from latent_tokens.evaluation.settings import POLICIES
from latent_tokens.paper.design.nats import boards_in_nats, questions_in_nats
from latent_tokens.paper.design.recipes import of_cells
from latent_tokens.paper.design.scales import SCALES
from latent_tokens.paper.figures.entropy import NATS_PER_CELL, entropy_per_cell
from latent_tokens.paper.figures.nats import draw_nats, nats_markdown
from latent_tokens.paper.running.held_out_boards import random_order, row_of_boards, top_prob_order
from latent_tokens.paper.tables.claims import difference_of, verdict
from latent_tokens.paper.tables.lines import lines

torch.set_num_threads(1)
NAME = "ablation-nats"
TASK = TASKS["sudoku-4"]
BOARDS = TASK.generate(3, 0)


def recipe_of(order, n, variant):
    cells = boards_in_nats(SCALES["smoke"])
    cell = next(cell for cell in cells if (cell.order, cell.latents, cell.variant) == (order, n, variant))
    return of_cells([cell], "smoke", Path("runs"))[0]


@pytest.fixture
def scdm(pico):
    pico.method = METHODS["scdm"]
    return pico


@pytest.mark.parametrize("order", ["uniform", "top_prob"])
def test_row_of_boards_has_the_nats_along_its_order(scdm, order):
    batch = Batch.of(BOARDS, "cpu")
    row = row_of_boards(scdm, TASK, recipe_of(order, 4, "nearest, nats"), BOARDS)
    if order == "uniform":
        along = random_order(batch, 0)
    else:
        along = top_prob_order(scdm, batch, Decoding(candidates=4), 0)
    nats = -log_likelihood(scdm, scdm.method, batch.tokens, along, batch.known.sum(1), batch.lengths, 4)
    assert row["held_out_nats"] == pytest.approx(nats.sum(1).tolist(), abs=1e-4)
    assert row["nats_per_token"] == pytest.approx(nats.mean().item(), abs=1e-4)
    assert (row["order"], row["candidates"]) == (order, 1 if order == "uniform" else 4)
    assert (row["latents"], row["latent_policy"], row["seed"], row["precision"]) == (4, "nearest", 0, "fp32")
    assert row["relative_cost"] == pytest.approx(tokens_processed(16, 0, 1, 4) / 16**2, abs=1e-4)


def test_timing_changes_the_nats_and_its_cost_is_of_its_rule(scdm):
    rows = {
        name: row_of_boards(scdm, TASK, recipe_of("uniform", None, f"{name}, nats"), BOARDS)
        for name in ("late", "early")
    }
    assert rows["late"]["held_out_nats"] != rows["early"]["held_out_nats"]
    for name, row in rows.items():
        assert (row["latents"], row["latent_policy"], row["paper_cost"]) == (name, "random", None)
        assert 0.6 < row["relative_cost"] < 0.8


@pytest.mark.parametrize(("latents", "shown"), [("all", 4), (lambda masked: masked // 2, 2)])
def test_tokens_processed_takes_all_or_a_rule(latents, shown):
    assert tokens_processed(4, 3, 1, latents) == 4
    assert tokens_processed(4, 0, 1, latents) - tokens_processed(4, 1, 1, latents) == min(1 + shown, 4)


def test_recipes_of_boards_share_boards_and_orders_across_seeds():
    asked = of_cells(boards_in_nats(SCALES["cpu"]), "cpu", Path("runs"))
    assert len({recipe.hash for recipe in asked}) == len(asked) == 3 * 36
    assert {(recipe.num_held_out, recipe.evaluation.seed) for recipe in asked} == {(64, 0)}
    assert {recipe.evaluation.data for recipe in asked} == {asked[0].data.folder}
    assert {recipe.training.seed for recipe in asked} == {0, 1, 2}
    assert {recipe.evaluation.latent_policy for recipe in asked} <= {*POLICIES, "relevant", None}


def test_entropy_of_small_boards_is_below_that_of_equal_ones():
    entropy = entropy_per_cell(TASK, 20_000, 0)
    assert math.log(288) / 16 - 0.01 < entropy < math.log(288) / 16


@pytest.mark.slow
def test_entropy_of_boards_is_the_stored_one():
    assert entropy_per_cell(TASKS["sudoku-6"], 200_000, 1) == pytest.approx(
        NATS_PER_CELL["sudoku-6"], abs=2e-3
    )


def row_at(recipe):
    """A row with 36 nats per board at n = 0, less n / 10 in every seed, and one nat more in board 0."""
    nats = 36 - (recipe.cell.latents if isinstance(recipe.cell.latents, int) else 9) / 10
    return {
        "metric": "nats_per_token",
        "nats_per_token": nats / 36,
        "train_seed": recipe.training.seed,
        "held_out_nats": [nats + 1, nats - 1],
        "held_out_tokens": 72,
        "num_samples": 2,
        "relative_cost": 0.5,
    }


@pytest.fixture(scope="module")
def shown():
    asked = of_cells(boards_in_nats(SCALES["cpu"]), "cpu", Path("runs"))
    return lines(asked, {recipe.hash: row_at(recipe) for recipe in asked})


def test_table_of_nats_has_paired_differences_and_the_entropy(shown):
    table = nats_markdown(shown, NAME)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:-2]]
    assert len(cells) == 36
    for _, method, kind, n, policy, nats, seeds, less, over_boards, above, cost, boards in cells:
        taken = (int(n) if n.isdigit() else 9) / 360
        assert kind in ("uniform", "top-prob")
        assert (policy == "") == (method != "scdm")
        assert nats == f"{1 - taken:.4f}"
        assert seeds == " ".join([nats] * 3)
        assert (less, over_boards) == (("", "") if n == "0" else (f"{-taken:+.4f} ± 0.0000", "± 0.0000"))
        assert above == f"{1 - taken - NATS_PER_CELL['sudoku-6']:+.4f}"
        assert (cost, boards) == ("0.50x", "2")
    assert nats_markdown([replace(line, rows=()) for line in shown], NAME).count("not run") == 36


def test_figure_of_nats_has_a_panel_per_kind_of_order(shown, tmp_path):
    drawn = draw_nats(shown, NAME, "a command", tmp_path / NAME)[1].read_text()
    for text in ("sudoku-6, uniform order", "sudoku-6, top-prob order", "scdm, relevant", "mdm", "a command"):
        assert f"<!-- {text} -->" in drawn
    assert draw_nats([replace(line, rows=()) for line in shown], NAME, "", tmp_path / "none") == []
    # Models of other training seeds have no difference to n = 0.
    seeds = [line.of_seeds([0] if line.cell.method == "scdm" else [1]) for line in shown]
    assert draw_nats(seeds, NAME, "", tmp_path / "seeds")


def test_verdict_is_of_the_nats_and_not_of_their_rounding():
    """Means of 0.50004 and 0.49996 are both 0.5 in four digits, so rounding would leave no difference."""
    claim = questions_in_nats(SCALES["cpu"])[0]
    sides = lines(of_cells((claim.better, claim.worse), "cpu", Path("runs")), {})

    def measured(line, values):
        rows = []
        for seed, value in enumerate(values):
            nats = {
                "held_out_nats": [36 * value] * 2,
                "held_out_tokens": 72,
                "nats_per_token": round(value, 4),
            }
            rows.append({"metric": "nats_per_token", "train_seed": seed, "num_samples": 2, **nats})
        return replace(line, rows=tuple(rows))

    less = measured(sides[0], [0.49996, 0.50996, 0.51996])
    more = measured(sides[1], [0.50004, 0.51004, 0.52004])
    difference = difference_of(less, more)
    assert difference.mean == pytest.approx(-8e-5)
    assert verdict(less, more)[2] == "yes"
