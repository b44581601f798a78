"""Likelihoods of continuations: probabilities given the context, alone as in a batch, with latent tokens."""

from itertools import product

import pytest
import torch

from helpers.refusals import refused
from latent_tokens import METHODS, Transformer, log_likelihood
from latent_tokens.core.likelihood import score_tokens
from latent_tokens.evaluation.likelihood import Continuation, LikelihoodSettings, batches, score_continuations
from latent_tokens.sizes import Size

LENGTH = 10
WAYS = [  # method, latents, suffix
    *(("mdm", None, None), ("mdm", "all", 3), ("scdm", 2, None), ("scdm", "all", 2)),
    *(("esolm", 0, None), ("esolm", 2, None)),
    *((name, None, None) for name in ("sidm", "arm", "ar-mtp-window-3", "block-mdm-2")),
]


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    network = Transformer(Size(16, 2, 2), 3, LENGTH, "both")
    for weight in network.parameters():
        weight.data += 0.5 * torch.randn_like(weight)
    return network.eval()


def scores(net, name, continuations, batch_size=8, **settings):
    limits = {"device": torch.device("cpu"), "batch_size": batch_size}
    return score_continuations(net, METHODS[name], continuations, LikelihoodSettings(**settings), **limits)


@pytest.mark.parametrize(("name", "latents", "suffix"), WAYS)
def test_continuations_of_a_context_sum_to_one(net, name, latents, suffix):
    every = [Continuation([2, 0, 1], tokens, 5) for tokens in product(range(3), repeat=3)]
    count = 1 if METHODS[name].is_left_to_right else 2
    rows = scores(net, name, every, latents=latents, suffix=suffix, orders=count)
    nats = torch.tensor([row.nats for row in rows], dtype=torch.float64)
    assert nats.shape == (27, count)
    assert nats.exp().sum(0).tolist() == pytest.approx([1] * count, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "latents"), [("scdm", 2), ("esolm", 0), ("mdm", None), ("block-mdm-2", None)]
)
def test_continuation_is_alone_as_in_a_batch(net, name, latents):
    pairs = [([0, 1], [2, 2, 1]), ([1, 1, 0, 2], [0]), ([2], [1, 0, 0, 1, 2, 0])]
    rows = [Continuation(*pair, number) for number, pair in enumerate(pairs)]
    together = scores(net, name, rows, latents=latents, orders=3)
    alone = scores(net, name, rows, batch_size=1, latents=latents, orders=3)
    for row, same in zip(together, alone, strict=True):
        assert row.nats == pytest.approx(same.nats, abs=1e-5)
        assert row.is_greedy == same.is_greedy
    assert len(set(together[2].nats)) == 3


def test_suffix_has_the_latent_tokens_of_the_last_token(net):
    row = [Continuation([0, 1], [2], 0)]
    with_suffix, without, of_all = (
        scores(net, "esolm", row, latents=latents, suffix=suffix)[0].nats[0]
        for latents, suffix in ((2, None), (2, 0), ("all", 2))
    )
    tokens = torch.tensor([[0, 1, 2, 0, 0]])
    order = torch.arange(5)[None]
    expected = log_likelihood(net, METHODS["esolm"], tokens, order, torch.tensor([2]), torch.tensor([5]), 2)
    assert with_suffix == pytest.approx(expected[0, 2].item(), abs=1e-6)
    assert of_all == pytest.approx(with_suffix, abs=1e-6)
    assert abs(with_suffix - without) > 1e-3


def test_greedy_is_the_argmax_of_every_step(net):
    settings = {"order": "left_to_right", "latents": 1}
    greedy = []
    for _ in range(3):
        every = [Continuation([1, 0, *greedy], [token], 0) for token in range(3)]
        step = scores(net, "scdm", every, **settings)
        assert [row.is_greedy for row in step] == [row.nats == max(s.nats for s in step) for row in step]
        greedy.append(next(token for token, row in enumerate(step) if row.is_greedy))
    every = list(product(range(3), repeat=3))
    rows = scores(net, "scdm", [Continuation([1, 0], tokens, 0) for tokens in every], **settings)
    assert [tokens for tokens, row in zip(every, rows, strict=True) if row.is_greedy] == [tuple(greedy)]


@pytest.mark.parametrize("name", ["esolm", "scdm", "arm"])
def test_entries_after_the_end_are_not_scored(net, name):
    tokens = torch.tensor([[2, 1, 0, 1, 1], [0, 2, 1, 0, 2]])
    order = torch.arange(5).expand(2, -1)
    counts = torch.tensor([1, 2]), torch.tensor([5, 5])
    complete = score_tokens(net, METHODS[name], tokens, order, *counts)
    part = score_tokens(net, METHODS[name], tokens, order, *counts, ends=torch.tensor([3, 4]))
    for row, end in enumerate((3, 4)):
        assert part.log_probabilities[row, :end] == pytest.approx(complete.log_probabilities[row, :end])
        assert not part.log_probabilities[row, end:].any()
        assert part.is_argmax[row, :end].equal(complete.is_argmax[row, :end])
    assert complete.log_probabilities[0, 3:].all()


def test_wrong_settings_of_continuations_are_refused(net):
    row = [Continuation([0], [1], 0)]
    for name, settings, message in (
        ("sidm", {"latents": 3}, "latents=3 is not supported by"),
        ("arm", {"order": "uniform"}, "order=uniform: this method decodes from left to right"),
        ("esolm", {"order": "left_to_right", "orders": 2}, "orders=2 with order=left_to_right"),
        ("esolm", {"orders": 0}, "orders=0: must be a whole number from 1"),
    ):
        with refused(message):
            scores(net, name, row, **settings)
    with refused("a continuation needs one token or more"):
        Continuation([0], [], 0)


def test_batch_of_long_continuations_is_smaller():
    rows = [Continuation([0] * length, [1], 0) for length in (2_047, 99, 4_095, 7)]
    assert list(batches(rows, 3)) == [[2], [0, 1], [3]]
    assert list(batches(rows[1::2], 1)) == [[0], [1]]
