"""What an ablation changes is what its name says, and what is watched is what was predicted."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from latent_tokens import METHODS, TASKS, Decoding, EvalConfig
from latent_tokens.decoding import generate
from latent_tokens.paper.experiments import EXPERIMENTS
from latent_tokens.paper.foresight import Watched, foresight
from latent_tokens.paper.recipes import recipes, settings
from latent_tokens.paper.tables import lines, markdown
from latent_tokens.paper.variants import VARIANTS, a_share, certain, constant, constrained, early, late, of_a_unit, scheduled, sharing
from latent_tokens.tasks import configured
from oracle import Oracle, small_joint

TASK = TASKS["sudoku-4"]
SHAPES = {"constant": constant, "a share": a_share, "early": early, "late": late}


def shown_by(adjust, order, clean, candidates, latents, tokens=None, net=None):
    """The latents that a variant shows, in their order."""
    policy = adjust(net, TASK, Decoding()).latent_policy
    order = torch.tensor([order])
    found = policy(order, torch.tensor([clean]), torch.tensor([candidates]), torch.tensor([latents]), order if tokens is None else tokens)
    return found[0, clean + candidates : clean + candidates + latents].tolist()


def test_cells_share_a_unit_by_row_column_or_box():
    relation = sharing(TASK)
    assert torch.equal(relation, relation.T)
    assert relation[0].nonzero().flatten().tolist() == [1, 2, 3, 4, 5, 8, 12]
    framed = sharing(configured("sudoku-4", {"padding": "paper"}))
    assert torch.equal(framed[1:17, 1:17], relation)
    assert framed.sum() == relation.sum()


def test_a_task_without_units_is_told_so():
    with pytest.raises(ValueError, match="zebra-3: its positions share no units; use relevant"):
        sharing(TASKS["zebra-3"])


def test_latents_of_a_unit_and_constrained_ones():
    order = [15, 14, 13, 0, *range(1, 13)]
    assert set(shown_by(of_a_unit, order, 3, 1, 7)) == {1, 2, 3, 4, 5, 8, 12}
    assert shown_by(constrained, order, 3, 1, 1) == [12]  # in a row with all that is clean
    both = VARIANTS["constrained of a unit"].adjust
    assert shown_by(both, order, 3, 1, 1) == [12]  # the only one that shares units with both sides


def test_certain_latents_are_those_of_an_exact_model():
    """Of three positions the second is all but known."""
    joint = small_joint() * torch.tensor([1.0, 1e-4, 1e-4])[None, :, None]
    net = Oracle(joint)
    net.method = METHODS["sidm"]
    tokens = torch.full((1, 3), 3)
    for sign, wanted in ((1, [1]), (-1, [0])):
        policy = certain(sign, net, TASK, Decoding()).latent_policy
        found = policy(torch.tensor([[2, 0, 1]]), *(torch.tensor([number]) for number in (0, 1, 1)), tokens)
        assert found[0, 1:2].tolist() == wanted


@pytest.mark.parametrize("k", [1, 4])
def test_schedules_show_as_many_latents_in_all(k):
    def total(shape):
        latents = scheduled(shape, None, TASKS["sudoku-6"], Decoding(candidates=k)).latents
        return [min(latents(left), max(0, left - k)) for left in range(1, 37)]

    counts = {name: total(shape) for name, shape in SHAPES.items()}
    assert all(abs(sum(count) - sum(counts["constant"])) <= 0.1 * sum(counts["constant"]) for count in counts.values())
    assert counts["early"][-1] == 36 - k
    assert counts["early"][0] == counts["late"][-1] == 0
    with pytest.raises(ValueError, match="candidates=all"):
        scheduled(constant, None, TASK, Decoding(candidates="all"))


def test_what_is_watched_is_what_was_predicted_when_it_was_a_latent():
    """An exact model of twins: once one is decoded the other is certain, and no latent is anything else."""
    same = torch.eye(3, dtype=torch.float64)
    net, tokens = Oracle(torch.einsum("ab,cd->abcd", same, same) + 1e-12), torch.zeros(64, 4, dtype=torch.long)
    watched, seen = Watched(64, 4), []

    def watch(step):
        watched(step)
        seen.append([len(latents) for latents in step.latents])

    made = generate(net, METHODS["mdm"], tokens, torch.zeros_like(tokens, dtype=torch.bool), Decoding(), 0, on_step=watch)
    agrees, ahead = watched.predictions(made.tokens.numpy().astype(np.uint8))
    assert [(ahead[:, step] > 0).sum() for step in range(4)] == [sum(count) for count in seen]
    assert (ahead <= np.arange(4, 0, -1)[None, :, None] - 1).all()
    order = made.order.numpy()
    for row in range(64):
        for step in range(1, 4):
            for later in range(step + 1, 4):
                position = order[row, later]
                assert ahead[row, step, position] == later - step
                if position ^ 1 in order[row, :step]:
                    assert agrees[row, step, position]


def test_foresight_counts_each_latent_once(nano):
    nano.method = METHODS["scdm"]
    found = foresight(nano, TASK, EvalConfig(latents=("all",), candidates=2, num_samples=6))
    assert [row["steps"] for row in found] == list(range(1, 16))
    assert sum(row["count"] for row in found) == 6 * sum(left - 2 for left in range(2, 17))
    assert all(0 <= row["all"] <= 100 for row in found)


def test_a_setting_that_is_open_changes_no_hash():
    (recipe, *_) = recipes("table-1", "cpu", Path("runs"))
    assert None not in settings(recipe.training).values()
    assert None not in settings(recipe.evaluation).values()
    asked = replace(recipe, training=replace(recipe.training, targets="all"))
    assert asked.hash != recipe.hash


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_cells_of_an_experiment_have_recipes_of_their_own(name):
    asked = recipes(name, "cpu", Path("runs"))
    assert len({recipe.hash for recipe in asked}) == len(asked)
    assert all((recipe.evaluation.num_samples, recipe.evaluation.data is None) == (4_000, True) for recipe in asked if recipe.cell.variant)
    table = markdown(lines(asked, {}), name, "cpu", 12.3)
    assert ("| changed |" in table) == any(recipe.cell.variant for recipe in asked)
    assert table.endswith(f"`latent-tokens reproduce {name} --scale cpu`; what is not run takes about 12 minutes on this machine\n")
