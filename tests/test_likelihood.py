"""Likelihoods are probabilities: they sum to one over all sequences, and equal the frequencies of samples.

So do those of continuations given a context.
"""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
import torch

from helpers.refusals import refused
from latent_tokens import METHODS, Decoding, Size, Transformer, any_order, given, log_likelihood
from latent_tokens.core.likelihood import score_tokens
from latent_tokens.core.sampling import generate
from latent_tokens.evaluation.likelihood import (
    Continuation,
    LikelihoodSettings,
    batches_by_length,
    nats_along_orders,
    schedule_for,
    score_continuations,
)
from latent_tokens.tasks import Examples

WAYS = [
    ("mdm", None),
    ("sidm", None),
    ("scdm", 0),
    ("scdm", 1),
    ("scdm", "all"),
    ("esolm", 0),
    ("esolm", 2),
    ("arm", None),
    ("ar-mtp", None),
    ("mdm-depth", 1),
]
OFF = [("mdm", 0), *((name, 1) for name in ("mdm", "ar-mtp", "ar-mtp-window-3", "block-mdm-2"))]


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    network = Transformer(Size(16, 2, 2), 3, 10, "both")
    for weight in network.parameters():
        weight.data += 0.5 * torch.randn_like(weight)
    return network.eval()


def every_sequence():
    """Return all sequences of four of three tokens."""
    return torch.tensor(list(product(range(3), repeat=4)))


def first_examples(count):
    return Examples.of(every_sequence()[:count].numpy().astype(np.uint16), 0)


def order_of(name, count):
    is_fixed = METHODS[name].order is METHODS["arm"].order
    return torch.tensor([[0, 1, 2, 3] if is_fixed else [2, 0, 3, 1]]).repeat(count, 1)


@pytest.mark.parametrize(("name", "latents"), [*WAYS, ("mdm", 0), ("mdm", 1)])
def test_likelihoods_sum_to_one(net, name, latents):
    tokens = every_sequence()
    ends = torch.full((len(tokens),), 4)
    for num_known, num_prefixes in ((0, 1), (2, 9)):
        counts = (torch.full_like(ends, num_known), ends, latents)
        arguments = (net, METHODS[name], tokens, order_of(name, len(tokens)), *counts)
        nats = log_likelihood(*arguments, off_distribution=(name, latents) in OFF)
        assert (nats[:, :num_known] == 0).all()
        assert nats.sum(1).exp().sum().item() == pytest.approx(num_prefixes, abs=1e-6)


@pytest.mark.parametrize(("name", "latents"), [*WAYS, *OFF])
def test_likelihood_is_that_of_decoding(net, name, latents):
    """The log-probabilities of the decoded tokens, step by step, along the order in which they came."""
    method = METHODS[name]
    off = (name, latents) in OFF
    known = torch.arange(4) < torch.tensor([[0], [2], [1]])
    if name != "arm":  # given tokens have gaps, or lie at the end
        known[1:] = torch.tensor([[False, True, False, True], [False, False, True, False]])
    nats = torch.zeros(3, 4, dtype=torch.float64)

    def add(step):
        for a, row in enumerate(step.rows.tolist()):
            target = int(step.layout.num_shown[a]) - 1
            clean = int(step.layout.num_clean[a])
            nats[row, clean] = step.probabilities[a, target, step.tokens[a, 0]].double().log()

    decoding = Decoding(1, latents, off_distribution=off, refresh=False)
    samples = generate(net, method, torch.ones(3, 4).long(), known, decoding, 1, on_step=add)
    counts = (known.sum(1), torch.full((3,), 4))
    arguments = (net, method, samples.tokens, samples.order, *counts, latents)
    found = log_likelihood(*arguments, off_distribution=off)
    torch.testing.assert_close(found, nats, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["mdm", "esolm"])
def test_tokens_have_any_type_of_whole_numbers(net, name):
    wide = (every_sequence()[:3], order_of(name, 3), torch.zeros(3, dtype=torch.long), torch.full((3,), 4))
    narrow = (each.to(torch.int16) for each in wide)
    assert torch.equal(log_likelihood(net, METHODS[name], *narrow), log_likelihood(net, METHODS[name], *wide))


@pytest.mark.parametrize(
    ("name", "latents"),
    [("esolm", 0), ("esolm", 1), ("esolm", "all"), ("arm", None), ("scdm", 1), ("scdm", "all")],
)
def test_likelihood_of_rows_is_that_of_the_steps_and_alone(net, name, latents):
    """In one pass, with a cache, or step by step. Rows have unequal lengths, and all of the last is given."""
    method = METHODS[name]
    tokens = torch.tensor([[2, 1, 0, 1], [0, 2, 1, 0], [1, 1, 2, 0], [0, 0, 1, 2]])
    order = torch.tensor([[2, 0, 3, 1], [2, 0, 1, 3], [1, 0, 2, 3], [0, 1, 2, 3]])
    if name == "arm":
        order = torch.arange(4).expand(4, 4)
    known = torch.tensor([0, 2, 1, 4])
    for ends in (torch.tensor([4, 3, 2, 4]), torch.full((4,), 4)):
        arguments = (net, method, tokens, order, known, ends, latents)
        found = log_likelihood(*arguments)
        expected = score_tokens(*arguments).log_probabilities
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        for row, end in enumerate(ends.tolist() if ends[1] == 3 else ()):
            one = slice(row, row + 1)
            cut = (tokens[one, :end], order[one, :end], known[one], ends[one], latents)
            torch.testing.assert_close(found[one, :end], log_likelihood(net, method, *cut), atol=1e-5, rtol=0)
            assert (found[row, end:] == 0).all()
    for counts in (known * 0, ends):  # of no row is a token scored
        assert (log_likelihood(net, method, tokens, order, counts, counts, latents) == 0).all()


def test_orders_past_the_end_are_free(net):
    tokens, order = every_sequence()[:1], torch.tensor([[0, 1, 3, 2]])
    none, two = torch.tensor([0]), torch.tensor([2])
    assert (log_likelihood(net, METHODS["arm"], tokens, order, none, two)[0, :2] < 0).all()


@pytest.mark.parametrize("name", ["esolm", "scdm", "mdm", "arm"])
def test_tokens_past_the_end_have_no_meaning(net, name):
    tokens, order, none = every_sequence()[:1, :4], torch.arange(4)[None], torch.tensor([0])
    others = tokens.clone()
    others[:, 2:] = 99
    one, other = (
        log_likelihood(net, METHODS[name], each, order, none, torch.tensor([2])) for each in (tokens, others)
    )
    assert one.equal(other)


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


def test_method_of_the_causal_rule_has_its_own_latents(nano):
    """If no number of latents is set, that of the method is used, as in decoding."""
    method = replace(METHODS["esolm"], latents=4)
    tokens = torch.arange(16)[None] % 4
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))[None]
    arguments = (nano, method, tokens, order, torch.tensor([0]), torch.tensor([16]))
    own, four, none = (log_likelihood(*arguments, latents).sum() for latents in (None, 4, 0))
    assert own == four != none


# Along several orders of each sequence.


@pytest.mark.parametrize("name", ["scdm", "esolm", "arm"])
def test_a_sequence_has_its_own_orders_whatever_batch_it_is_in(net, monkeypatch, name):
    net.method = METHODS[name]
    examples = first_examples(8)
    whole = nats_along_orders(net, examples, orders=3, seed=7)
    assert whole.shape == ((1, 8) if name == "arm" else (3, 8))
    for limit, value in (("MAX_SEQUENCES", 1), ("MAX_POSITIONS", 9)):  # of 4 positions each
        with monkeypatch.context() as patch:
            patch.setattr(f"latent_tokens.evaluation.likelihood.{limit}", value)
            assert nats_along_orders(net, examples, orders=3, seed=7) == pytest.approx(whole, abs=1e-5)
    if name == "arm":
        return
    same = Examples.of(np.repeat(examples.tokens[5:6], 12, 0), 0)
    assert len(set(nats_along_orders(net, same).round(4).flatten())) > 5
    counts = (torch.zeros(8, dtype=torch.long), torch.full((8,), 4))
    order = torch.arange(4).expand(8, 4)
    expected = -log_likelihood(net, net.method, every_sequence()[:8], order, *counts).sum(1).numpy()
    found = nats_along_orders(net, examples, order="left_to_right")[0]
    assert found == pytest.approx(expected, abs=1e-5)


def test_the_default_order_is_that_of_the_method():
    backwards = replace(METHODS["scdm"], order=given(range(3, -1, -1)))
    assert schedule_for(backwards, None) is backwards.order
    assert schedule_for(backwards, "uniform") is any_order
    for method in METHODS.values():
        assert schedule_for(method, None) is method.order


@pytest.mark.parametrize(
    ("order", "orders"),
    [
        ("uniform", [[(1, 3, 0, 2), (1, 3, 2, 0)], [(0, 1, 2, 3)], list(permutations(range(4)))]),
        (
            "blockwise:2",
            [[(1, 3, 0, 2)], [(0, 1, 2, 3)], [(0, 1, 2, 3), (0, 1, 3, 2), (1, 0, 2, 3), (1, 0, 3, 2)]],
        ),
    ],
)
def test_nats_are_those_of_the_orders_of_each_row(net, order, orders):
    """Given and padding positions have none. Of the last row no token is given."""
    net.method = METHODS["scdm"]
    tokens = np.array([[0, 1, 2, 0], [2, 1, 0, 0], [0, 2, 1, 1]], np.uint16)
    known = np.array([[False, True, False, True], [True, False, False, False], [False] * 4])
    examples = Examples(tokens, known, np.array([4, 2, 4], np.uint16))
    done = []
    settings = {"orders": 16, "order": order, "latents": 1}
    nats = nats_along_orders(net, examples, **settings, seed=3, report=done.append)
    assert sum(done) == 16 * 3
    for row, (num_known, end) in enumerate(((2, 4), (1, 2), (0, 4))):
        line = torch.tensor(tokens[row : row + 1].astype(int)).expand(len(orders[row]), -1)
        counts = (torch.full((len(line),), count) for count in (num_known, end))
        of_orders = -log_likelihood(net, net.method, line, torch.tensor(orders[row]), *counts, 1).sum(1)
        expected = set(of_orders.numpy().round(3).tolist())
        found = set(nats[:, row].round(3).tolist())
        assert found <= expected
        assert len(found) >= min(len(expected), 3)
    assert (nats_along_orders(net, examples, **settings, seed=4)[:, 2] != nats[:, 2]).any()


def test_orders_are_never_ignored_silently(net):
    examples = first_examples(4)
    for name, settings, parts in (
        ("arm", {"order": "uniform"}, ("order=uniform", "left to right only")),
        ("arm", {"order": "blockwise:2"}, ("order=blockwise:2", "left to right only")),
        ("scdm", {"order": "blockwise:0"}, ("order=blockwise:0", "uniform, left_to_right, blockwise:N")),
        ("scdm", {"order": "top_prob"}, ("order=top_prob", "uniform, left_to_right, blockwise:N")),
    ):
        net.method = METHODS[name]
        with refused(*parts):
            nats_along_orders(net, examples, **settings)


# Continuations of a context.


def scores(net, name, continuations, batch_size=8, **settings):
    limits = {"device": torch.device("cpu"), "batch_size": batch_size}
    return score_continuations(net, METHODS[name], continuations, LikelihoodSettings(**settings), **limits)


@pytest.mark.parametrize(
    ("name", "latents", "suffix"),
    [
        *(("mdm", None, None), ("mdm", "all", 3), ("scdm", 2, None), ("scdm", "all", 2)),
        *(("esolm", 0, None), ("esolm", 2, None)),
        *((name, None, None) for name in ("sidm", "arm", "ar-mtp-window-3", "block-mdm-2")),
    ],
)
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


def test_wrong_settings_of_continuations_are_refused(net):
    row = [Continuation([0], [1], 0)]
    for settings, message in (
        ({"order": "left_to_right", "orders": 2}, "orders=2 with order=left_to_right"),
        ({"orders": 0}, "orders=0: must be a whole number from 1"),
    ):
        with refused(message):
            scores(net, "esolm", row, **settings)
    with refused("a continuation needs one token or more"):
        Continuation([0], [], 0)


def test_batch_of_long_continuations_is_smaller():
    rows = [Continuation([0] * length, [1], 0) for length in (2_047, 99, 4_095, 7)]
    assert list(batches_by_length(rows, 3)) == [[2], [0, 1], [3]]
    assert list(batches_by_length(rows[1::2], 1)) == [[0], [1]]
