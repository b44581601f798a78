"""Latent policies: by position, by chance and by influence, in decoding and in the exact likelihood."""

import math
import sys
from dataclasses import replace
from functools import partial
from itertools import combinations

import pytest
import torch

import latent_tokens as lt
from helpers.documentation import ROOT
from helpers.oracle import Oracle
from helpers.refusals import refused
from latent_tokens.configs import SamplingConfig
from latent_tokens.core.likelihood import score_tokens
from latent_tokens.core.policies import PolicyInput, choose_latents
from latent_tokens.core.state import Streams
from latent_tokens.evaluation.settings import check_policy

sys.path.append(str(ROOT / "research" / "worth"))

from policies import adjacent, decaying, distant

LENGTH = 16
TASK = lt.TASKS["sudoku-4"]
CHAIN = torch.tensor([[0.0, 1, 0, 0], [1, 0, 2, 0], [0, 2, 0, 3], [0, 0, 3, 0]])  # 0 - 1 = 2 ≡ 3


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (adjacent, [[5, 2, 3, 1, 0, 4, 6], [5, 2, 4, 3, 1, 0, 6], [5, 0, 4, 3, 1, 2, 6]]),
        (distant, [[5, 2, 0, 4, 3, 1, 6], [5, 2, 4, 0, 3, 1, 6], [5, 0, 4, 2, 3, 1, 6]]),
    ],
)
def test_latents_are_the_closest_or_the_farthest_positions(policy, expected):
    """In each row, 5 is clean and 6 is padding. The candidate is 2, 2 and 4, or 0 and 4."""
    order = torch.tensor([[5, 2, 0, 3, 4, 1, 6], [5, 2, 4, 0, 3, 1, 6], [5, 0, 4, 2, 3, 1, 6]])
    numbers = torch.tensor([[1, 1, 1], [5, 5, 5], [1, 2, 2], [2, 2, 2]])  # clean, masked, candidates, latents
    step = PolicyInput(order, *numbers, torch.zeros_like(order))
    assert choose_latents(policy, step, lambda: None).tolist() == expected


def test_decaying_latents_are_a_draw_without_replacement():
    """The frequency of each pair of latent tokens is that of drawing one after the other."""
    count, n = 20_000, 2
    order = torch.tensor([2, 0, 1, 3, 4, 5]).expand(count, -1)  # 2 is the candidate, 5 is past the length
    numbers = (torch.full((count,), value) for value in (0, 5, 1, n))
    step = PolicyInput(order, *numbers, torch.zeros_like(order))
    noise = torch.rand(count, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    chosen = choose_latents(decaying, step, lambda: noise)[:, 1:3]
    weights = {at: math.exp(-(((at - 2) / n) ** 2) / 2) for at in (0, 1, 3, 4)}
    total = sum(weights.values())
    for (first, one), (second, other) in combinations(weights.items(), 2):
        expected = one * other / total * (1 / (total - one) + 1 / (total - other))
        both = ((chosen == first) | (chosen == second)).all(1).double().mean().item()
        assert both == pytest.approx(expected, abs=4 * (expected / count) ** 0.5)


@pytest.mark.parametrize(
    ("name", "policy"), [("scdm", adjacent), ("esolm", distant), ("scdm", lt.random), ("esolm", decaying)]
)
def test_likelihood_of_a_policy_is_that_of_decoding(nano, name, policy):
    """Each token has the probability that the decoding of the same steps gives it."""
    order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(2))
    logs = []

    def observe(step):
        probabilities = step.probabilities[0, step.layout.num_shown[0] - 1]
        logs.append(probabilities[step.tokens[0, 0]].log().item())

    nothing = torch.zeros(1, LENGTH, dtype=torch.bool)
    decoding = lt.Decoding(1, latents=3, latent_policy=policy, order=lt.given(order.tolist()))
    samples = lt.generate(nano, lt.METHODS[name], nothing.long(), nothing, decoding, seed=5, on_step=observe)
    counts = (torch.tensor([0]), torch.tensor([LENGTH]))
    arguments = (nano, lt.METHODS[name], samples.tokens, order[None], *counts)
    cached = lt.log_likelihood(*arguments, 3, latent_policy=policy, seed=5)
    if policy in (adjacent, distant):
        assert cached[0].tolist() == pytest.approx(logs, abs=1e-4)
    streams = Streams(5, torch.tensor([0]))
    plain = score_tokens(*arguments, 3, latent_policy=policy, streams=streams).log_probabilities
    torch.testing.assert_close(cached, plain, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(plain, lt.log_likelihood(*arguments, 3), atol=1e-4)


def test_orders_of_a_likelihood_are_the_same_for_every_policy(nano):
    nano.method = lt.METHODS["scdm"]
    nats = partial(lt.nats_along_orders, nano, TASK.generate(3, seed=0), orders=2, seed=1)
    assert (nats(latents=0, latent_policy=decaying) == nats(latents=0)).all()
    drawn = nats(latents=2, latent_policy=decaying)
    assert (drawn != nats(latents=2)).all()
    assert (drawn == nats(latents=2, latent_policy=decaying)).all()


@pytest.mark.parametrize("policy", ["random", "relevant"])
def test_policy_is_refused_where_latents_cannot_be_chosen(policy):
    check_policy(lt.METHODS["mdm"], SamplingConfig(latent_policy=policy, off_distribution=True))
    check_policy(lt.METHODS["mdm-depth"], SamplingConfig(latent_policy=policy))
    for name, off_distribution in (("mdm", False), ("sidm", False), ("ar-mtp", False), ("arm", True)):
        config = SamplingConfig(latent_policy=policy, off_distribution=off_distribution)
        with refused(f"latent_policy={policy} is not supported by {name}", "Use a scdm or esolm model"):
            check_policy(lt.METHODS[name], config)


# Influence, and the policy that goes by it.


def twins():
    """Positions 0 and 1 hold the same one of three tokens, and so do 2 and 3. The pairs are independent."""
    same = torch.eye(3, dtype=torch.float64)
    return torch.einsum("ab,cd->abcd", same, same) + 1e-12


def influence_on(method, tokens, known=None, **settings):
    """Return the influence between positions of twins, by default of which no token is given."""
    known = torch.zeros_like(tokens, dtype=torch.bool) if known is None else known
    return lt.influence(Oracle(twins()), method, tokens, known, torch.Generator().manual_seed(0), **settings)


def influence_of_pairs(*pairs):
    expected = torch.zeros(4, 4, dtype=torch.float64)
    for pair in pairs:
        expected[pair] = math.log(3)
    return expected


BOTH_WAYS = ((0, 1), (1, 0), (2, 3), (3, 2))


@pytest.mark.parametrize(
    ("method", "pairs"),
    [
        (lt.METHODS["mdm"], BOTH_WAYS),
        (lt.METHODS["scdm"], BOTH_WAYS),
        (lt.METHODS["ar-mtp"], ((1, 0), (3, 2))),  # no influence on earlier positions
        # The one masked position in the input was not in that of the step before.
        (replace(lt.METHODS["scdm"], window=1), ()),
    ],
)
def test_influence_of_twins_is_all_that_there_is_to_know(method, pairs):
    tokens = torch.tensor([[0, 0, 1, 1], [2, 2, 2, 2], [1, 1, 0, 0]]).repeat(20, 1)
    assert torch.allclose(influence_on(method, tokens), influence_of_pairs(*pairs), atol=1e-5)


def test_influence_aligns_rows_of_several_lengths_at_their_ends():
    """Twins at the end of a short row and of a long one are the same twins."""
    tokens = torch.tensor([[0, 0, 1, 1], [2, 2, 0, 0]]).repeat(30, 1)
    found = influence_on(lt.METHODS["mdm"], tokens, lengths=torch.tensor([4, 2]).repeat(30))
    assert torch.allclose(found, influence_of_pairs(*BOTH_WAYS), atol=1e-5)


def test_given_and_padding_positions_have_no_influence():
    """One twin is given or past the length, so the other has none either."""
    tokens = torch.zeros(8, 4, dtype=torch.long)
    known = torch.tensor([[True, False, False, False]]).expand(8, 4)
    found = influence_on(lt.METHODS["mdm"], tokens, known)
    assert torch.allclose(found, influence_of_pairs((2, 3), (3, 2)), atol=1e-5)
    assert (found[0] == 0).all()
    assert (found[:, 0] == 0).all()
    cut = influence_on(lt.METHODS["mdm"], tokens, known, lengths=torch.full((8,), 3))
    assert (cut.abs() < 1e-5).all()


@pytest.mark.parametrize(
    ("order", "clean", "expected"),
    [
        # 3 is clean and 0 the candidate: 1 influences it, and 2, which is influenced most, does not.
        ([3, 0, 1, 2], 1, [2, 1]),
        # 0 is clean and 2 the candidate: 3 influences it more, but only 1 is influenced.
        ([0, 2, 1, 3], 1, [1]),
        ([2, 0, 1, 3], 0, [3]),  # no token is clean: the largest influence
    ],
)
def test_best_latent_has_the_most_influence_and_is_last(order, clean, expected):
    row = torch.tensor([order])
    numbers = (clean, 4 - clean, 1, len(expected))
    found = lt.relevant(CHAIN)(PolicyInput(row, *(torch.tensor([number]) for number in numbers), row))[0]
    assert found[: clean + 1].tolist() == order[: clean + 1]
    assert found[clean + 1 : clean + 1 + len(expected)].tolist() == expected


def test_evaluation_measures_the_influence_and_names_the_policy(nano):
    nano.method = lt.METHODS["scdm"]
    config = lt.EvalConfig(latents=(0, 3), num_samples=8, latent_policy="relevant")
    rows, again = lt.evaluate(nano, TASK, config), lt.evaluate(nano, TASK, config)
    assert [row["latent_policy"] for row in rows] == ["relevant", "relevant"]
    assert [row["valid"] for row in rows] == [row["valid"] for row in again]
