"""Influence is what an exact model says it is, and the policy shows what matters, best last, whatever the batch."""

import math
from dataclasses import replace

import pytest
import torch

from latent_tokens import METHODS, TASKS, Decoding, EvalConfig, evaluate, generate, influence, nearest, relevant
from latent_tokens.decoding import generate as reference
from oracle import Oracle

TASK = TASKS["sudoku-4"]
CHAIN = torch.tensor([[0.0, 1, 0, 0], [1, 0, 2, 0], [0, 2, 0, 3], [0, 0, 3, 0]])  # 0 - 1 = 2 ≡ 3


def twins():
    """Positions 0 and 1 hold the same one of three tokens, so do 2 and 3; the pairs know nothing of each other."""
    same = torch.eye(3, dtype=torch.float64)
    return torch.einsum("ab,cd->abcd", same, same) + 1e-12


@pytest.mark.parametrize("name", ["mdm", "sidm", "scdm", "ar-mtp"])
def test_the_influence_of_twins_is_all_that_there_is_to_know(name):
    net, tokens = Oracle(twins()), torch.tensor([[0, 0, 1, 1], [2, 2, 2, 2], [1, 1, 0, 0]]).repeat(20, 1)
    found = influence(net, METHODS[name], tokens, torch.zeros_like(tokens, dtype=torch.bool), torch.Generator().manual_seed(0))
    for j in range(4):
        for i in range(4):
            comes_up = i < j if name == "ar-mtp" else i != j  # from left to right nothing is learned of what stands before
            assert found[j, i] == pytest.approx(math.log(3) if comes_up and {i, j} in ({0, 1}, {2, 3}) else 0, abs=1e-5)


def test_what_is_known_or_past_the_length_has_no_influence_and_feels_none():
    tokens, known = torch.zeros(8, 4, dtype=torch.long), torch.tensor([[True, False, False, False]]).expand(8, 4)
    found = influence(Oracle(twins()), METHODS["mdm"], tokens, known, torch.Generator().manual_seed(0), lengths=torch.full((8,), 3))
    assert (found[[0, 3]] == 0).all()
    assert (found[:, [0, 3]] == 0).all()


def line(*numbers):
    return torch.tensor(numbers)


def test_the_best_latent_is_told_most_and_tells_most_and_stands_last():
    policy, order = relevant(CHAIN), torch.tensor([[3, 0, 1, 2]])
    # 3 is clean, 0 the candidate: 1 tells of it and 2 does not, though 2 is told most
    assert policy(order, line(1), line(1), line(2), order).tolist() == [[3, 0, 2, 1]]
    # 0 is clean and 2 the candidate: 3 tells more of it, but 1 is told something
    order = torch.tensor([[0, 2, 1, 3]])
    assert policy(order, line(1), line(1), line(1), order).tolist() == [[0, 2, 1, 3]]
    # nothing is clean: what tells most
    order = torch.tensor([[2, 0, 1, 3]])
    assert policy(order, line(0), line(1), line(1), order)[0, 1] == 3


def test_samples_by_relevance_do_not_depend_on_the_batch_and_the_fast_path_is_the_reference(nano):
    relation = torch.rand(16, 16, generator=torch.Generator().manual_seed(0))
    decoding = Decoding(candidates=2, latents=3, latent_policy=relevant(relation))
    tokens, lengths = torch.zeros(5, 16, dtype=torch.long), torch.tensor([16, 12, 7, 16, 3])
    known = torch.rand(5, 16, generator=torch.Generator().manual_seed(1)) < 0.2
    method = METHODS["scdm"]
    whole = generate(nano, method, tokens, known, decoding, 3, lengths=lengths)
    plain = reference(nano, method, tokens, known, decoding, 3, lengths=lengths)
    assert torch.equal(whole.order, plain.order)
    assert torch.equal(whole.tokens, plain.tokens)
    for row in range(5):
        part = slice(row, row + 1)
        alone = generate(nano, method, tokens[part], known[part], decoding, 3, rows=torch.tensor([row]), lengths=lengths[part])
        assert torch.equal(alone.order[0], whole.order[row])
    shown = []
    reference(nano, method, tokens, known, decoding, 3, lengths=lengths, on_step=lambda step: shown.append((step.rows, step.latents)))
    for rows, latents in shown:
        assert all(position < lengths[row] for row, positions in zip(rows, latents, strict=True) for position in positions)
    other = generate(nano, method, tokens, known, replace(decoding, latent_policy=nearest), 3, lengths=lengths)
    assert torch.equal(other.processed, whole.processed)
    assert not torch.equal(other.tokens, whole.tokens)


@pytest.mark.parametrize("relation", [torch.zeros(4, 4), torch.ones(4, 3), -torch.eye(4), torch.full((4, 4), float("nan"))])
def test_what_is_no_relation_is_refused(relation):
    with pytest.raises(ValueError, match="must be square, finite"):
        relevant(relation)


def test_a_relation_of_another_length_is_refused(nano):
    tokens = torch.zeros(1, 16, dtype=torch.long)
    with pytest.raises(ValueError, match="relation of 4 positions for sequences of 16"):
        generate(nano, METHODS["scdm"], tokens, tokens.bool(), Decoding(latents=2, latent_policy=relevant(CHAIN)), 0)


def test_evaluate_measures_the_influence_itself(nano):
    nano.method = METHODS["scdm"]
    config = EvalConfig(latents=(0, 3), num_samples=8, latent_policy="relevant")
    rows, again = evaluate(nano, TASK, config), evaluate(nano, TASK, config)
    assert [row["latent_policy"] for row in rows] == ["relevant", "relevant"]
    assert [row["valid"] for row in rows] == [row["valid"] for row in again]


@pytest.mark.parametrize("name", ["mdm", "sidm", "arm", "ar-mtp"])
def test_a_method_without_a_choice_of_latents_is_told_so(nano, name):
    nano.method = METHODS[name]
    with pytest.raises(ValueError, match="no choice of latents; use scdm or esolm"):
        evaluate(nano, TASK, EvalConfig(num_samples=1, latent_policy="relevant"))
