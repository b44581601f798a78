"""Latent policies that go by positions, in decoding and in the exact likelihood."""

import math
import sys
from functools import partial
from itertools import combinations

import pytest
import torch

from helpers.documentation import ROOT
from latent_tokens import (
    METHODS,
    Decoding,
    generate,
    given,
    log_likelihood,
    nats_along_orders,
    random,
)
from latent_tokens.configs import EvalConfig, SamplingConfig
from latent_tokens.core.likelihood import score_tokens
from latent_tokens.core.policies import PolicyInput, choose_latents
from latent_tokens.core.sampling import generate as reference
from latent_tokens.core.state import Streams
from latent_tokens.evaluation.evaluate import evaluate
from latent_tokens.evaluation.settings import check_policy

sys.path.append(str(ROOT / "research" / "worth"))

from policies import adjacent, decaying, distant

from latent_tokens.tasks import TASKS

LENGTH = 16


def steps(latents, batch=6, seed=0):
    """A step of rows with different lengths and numbers of clean tokens and candidates."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.stack([torch.randperm(LENGTH, generator=generator) for _ in range(batch)])
    clean = torch.arange(batch) % 4
    masked = torch.tensor([LENGTH - 4 - row % 3 for row in range(batch)])
    candidates = 1 + torch.arange(batch) % 3
    n = torch.full((batch,), latents).minimum(masked - candidates)
    return PolicyInput(order, clean, masked, candidates, n, torch.zeros_like(order))


def parts_of(step, row, order):
    """The candidates, latent tokens and other masked tokens of a row."""
    start, n = int(step.start[row]), int(step.latents[row])
    end = int(step.num_clean[row] + step.num_masked[row])
    line = order[row].tolist()
    return line[int(step.num_clean[row]) : start], line[start : start + n], line[start + n : end]


@pytest.mark.parametrize(("policy", "sign"), [(adjacent, 1), (distant, -1)])
@pytest.mark.parametrize("latents", [0, 1, 4, 16])
def test_latents_are_the_closest_or_the_farthest_positions(policy, sign, latents):
    step = steps(latents)
    order = choose_latents(policy, step, lambda: None)
    for row in range(len(order)):
        candidates, chosen, others = parts_of(step, row, order)
        masked = parts_of(step, row, step.order)[1] + parts_of(step, row, step.order)[2]
        by_distance = sorted(masked, key=lambda at: sign * min(abs(at - other) for other in candidates))
        closest = set(by_distance[: len(chosen)])
        assert chosen == [at for at in masked if at in closest]
        assert others == [at for at in masked if at not in closest]


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


@pytest.mark.parametrize("policy", [adjacent, distant, decaying])
@pytest.mark.parametrize("name", ["scdm", "esolm"])
def test_samples_of_a_policy_are_equal_in_any_batch_and_path(nano, name, policy):
    decoding = Decoding(candidates=2, latents=3, latent_policy=policy)
    tokens, lengths = torch.zeros(5, LENGTH, dtype=torch.long), torch.tensor([16, 12, 7, 16, 3])
    known = torch.rand(5, LENGTH, generator=torch.Generator().manual_seed(1)) < 0.2
    method = METHODS[name]
    whole = generate(nano, method, tokens, known, decoding, 3, lengths=lengths)
    plain = reference(nano, method, tokens, known, decoding, 3, lengths=lengths)
    assert torch.equal(whole.tokens, plain.tokens)
    assert torch.equal(whole.order, plain.order)
    for row in range(5):
        part, rows = slice(row, row + 1), torch.tensor([row])
        alone = generate(
            nano, method, tokens[part], known[part], decoding, 3, rows=rows, lengths=lengths[part]
        )
        assert torch.equal(alone.tokens, whole.tokens[part])


@pytest.mark.parametrize("policy", [adjacent, distant, random, decaying])
@pytest.mark.parametrize("name", ["scdm", "esolm"])
def test_likelihood_of_a_policy_is_that_of_decoding(nano, name, policy):
    """Each token has the probability that the decoding of the same steps gives it."""
    method = METHODS[name]
    order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(2))
    logs = []

    def look(step):
        probabilities = step.probabilities[0, step.layout.num_shown[0] - 1]
        logs.append(probabilities[step.tokens[0, 0]].log().item())

    nothing = torch.zeros(1, LENGTH, dtype=torch.bool)
    decoding = Decoding(1, latents=3, latent_policy=policy, order=given(order.tolist()))
    made = generate(nano, method, nothing.long(), nothing, decoding, seed=5, on_step=look)
    zero, length = torch.tensor([0]), torch.tensor([LENGTH])
    arguments = (nano, method, made.tokens, order[None], zero, length)
    streams = Streams(5, torch.tensor([0]))
    if policy in (adjacent, distant):
        found = log_likelihood(*arguments, 3, latent_policy=policy)
        assert found[0].tolist() == pytest.approx(logs, abs=1e-4)
    plain = score_tokens(*arguments, 3, latent_policy=policy, streams=streams).log_probabilities
    cached = log_likelihood(*arguments, 3, latent_policy=policy, seed=5)
    torch.testing.assert_close(cached, plain, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(plain, log_likelihood(*arguments, 3), atol=1e-4)
    every = log_likelihood(*arguments, "all", latent_policy=distant)
    last = log_likelihood(*arguments, "all")
    assert every[0, -2:].tolist() == pytest.approx(last[0, -2:].tolist(), abs=1e-5)


def test_orders_of_a_likelihood_are_the_same_for_every_policy(nano):
    nano.method = METHODS["scdm"]
    examples = TASKS["sudoku-4"].generate(3, seed=0)
    nats = partial(nats_along_orders, nano, examples, orders=2, seed=1)
    assert (nats(latents=0, latent_policy=decaying) == nats(latents=0)).all()
    drawn = nats(latents=2, latent_policy=decaying)
    assert (drawn != nats(latents=2)).all()
    assert (drawn == nats(latents=2, latent_policy=decaying)).all()


def test_policies_are_refused_where_latents_cannot_be_chosen():
    check_policy(METHODS["mdm"], SamplingConfig(latent_policy="random", off_distribution=True))
    for name, off_distribution in (("mdm", False), ("arm", True)):
        config = SamplingConfig(latent_policy="random", off_distribution=off_distribution)
        with pytest.raises(ValueError, match=f"latent_policy=random is not supported by {name}"):
            check_policy(METHODS[name], config)


def test_rows_name_the_policy_of_their_latents(nano):
    nano.method = METHODS["scdm"]
    config = EvalConfig(latents=(2,), num_samples=2, latent_policy="random")
    (row,) = evaluate(nano, TASKS["sudoku-4"], config)
    assert row["latent_policy"] == "random"
