"""Likelihoods are probabilities: they sum to one over all sequences, and equal the frequencies of samples."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from helpers.refusals import refused
from latent_tokens import METHODS, Decoding, Transformer, log_likelihood
from latent_tokens.core.likelihood import score_tokens
from latent_tokens.core.sampling import generate
from latent_tokens.evaluation.likelihood import nats_along_orders
from latent_tokens.sizes import Size
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
    made = Transformer(Size(16, 2, 2), 3, 4, "both")
    for weight in made.parameters():
        weight.data += 0.5 * torch.randn_like(weight)
    return made.eval()


def every(length=4, vocabulary=3):
    return torch.tensor(list(product(range(vocabulary), repeat=length)))


def order_of(name, count):
    return torch.tensor(
        [[0, 1, 2, 3] if METHODS[name].order is METHODS["arm"].order else [2, 0, 3, 1]]
    ).repeat(count, 1)


@pytest.mark.parametrize(("name", "latents"), [*WAYS, ("mdm", 0), ("mdm", 1)])
def test_likelihoods_sum_to_one(net, name, latents):
    tokens = every()
    count = len(tokens)
    ends = torch.full((count,), 4)
    off = {"off_distribution": (name, latents) in OFF}
    found = log_likelihood(
        net, METHODS[name], tokens, order_of(name, count), torch.zeros_like(ends), ends, latents, **off
    )
    assert found.sum(1).exp().sum().item() == pytest.approx(1, abs=1e-6)
    known = torch.full((count,), 2)
    given_two = log_likelihood(net, METHODS[name], tokens, order_of(name, count), known, ends, latents, **off)
    assert (given_two[:, :2] == 0).all()
    assert given_two.sum(1).exp().sum().item() == pytest.approx(9, abs=1e-6)


@pytest.mark.parametrize(("name", "latents"), [*WAYS, *OFF])
def test_likelihood_is_that_of_decoding(net, name, latents):
    """The log-probabilities of the decoded tokens, step by step, along the order in which they came."""
    method = METHODS[name]
    off = (name, latents) in OFF
    known = torch.arange(4) < torch.tensor([[0], [2], [1]])
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
    tokens, order = every()[:3], order_of(name, 3)
    known, ends = torch.zeros(3, dtype=torch.long), torch.full((3,), 4)
    expected = log_likelihood(net, METHODS[name], tokens, order, known, ends)
    narrow = (each.to(torch.int16) for each in (tokens, order, known, ends))
    assert torch.equal(log_likelihood(net, METHODS[name], *narrow), expected)


@pytest.mark.parametrize(
    ("name", "latents"),
    [("esolm", 0), ("esolm", 1), ("esolm", "all"), ("arm", None), ("scdm", 1), ("scdm", "all")],
)
def test_likelihood_of_rows_is_that_of_the_steps_and_alone(net, name, latents):
    """In one pass, with a cache, or step by step, and with rows of unequal lengths."""
    method = METHODS[name]
    tokens = torch.tensor([[2, 1, 0, 1], [0, 2, 1, 0], [1, 1, 2, 0]])
    order = torch.tensor([[2, 0, 3, 1], [2, 0, 1, 3], [1, 0, 2, 3]])
    if name == "arm":
        order = torch.arange(4).expand(3, 4)
    known = torch.tensor([0, 2, 1])
    for ends in (torch.tensor([4, 3, 2]), torch.tensor([4, 4, 4])):
        arguments = (net, method, tokens, order, known, ends, latents)
        found = log_likelihood(*arguments)
        expected = score_tokens(*arguments).log_probabilities
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        for row, end in enumerate(ends.tolist() if ends[1] == 3 else ()):
            one = slice(row, row + 1)
            cut = (tokens[one, :end], order[one, :end], known[one], ends[one], latents)
            torch.testing.assert_close(found[one, :end], log_likelihood(net, method, *cut), atol=1e-5, rtol=0)
            assert (found[row, end:] == 0).all()


@pytest.mark.parametrize("name", ["scdm", "esolm", "arm"])
def test_a_sequence_has_its_own_orders_whatever_batch_it_is_in(net, monkeypatch, name):
    net.method = METHODS[name]
    examples = Examples.of(every()[:8].numpy().astype(np.uint16), 0)
    whole = nats_along_orders(net, examples, orders=3, seed=7)
    assert whole.shape == ((1, 8) if name == "arm" else (3, 8))
    monkeypatch.setattr("latent_tokens.evaluation.likelihood.ROWS", 1)
    assert nats_along_orders(net, examples, orders=3, seed=7) == pytest.approx(whole, abs=1e-5)
    if name == "arm":
        return
    same = Examples.of(np.repeat(examples.tokens[5:6], 12, 0), 0)
    assert len(set(nats_along_orders(net, same).round(4).flatten())) > 5
    known = torch.zeros(8, dtype=torch.long)
    order = torch.arange(4).expand(8, 4)
    ends = torch.full((8,), 4)
    tokens = torch.from_numpy(examples.tokens.astype(np.int64))
    expected = -log_likelihood(net, net.method, tokens, order, known, ends).sum(1).numpy()
    found = nats_along_orders(net, examples, order="left_to_right")[0]
    assert found == pytest.approx(expected, abs=1e-5)


def test_orders_and_latents_are_never_ignored_silently(net):
    examples = Examples.of(every()[:4].numpy().astype(np.uint16), 0)
    for name, settings, parts in (
        ("arm", {"order": "uniform"}, ("order=uniform", "left to right only")),
        ("arm", {"order": "blockwise:2"}, ("order=blockwise:2", "left to right only")),
        ("mdm", {"latents": 2}, ("latents=2 is not supported by mdm", "latents=all")),
        ("scdm", {"order": "blockwise:0"}, ("order=blockwise:0", "uniform, left_to_right, blockwise:N")),
        ("scdm", {"order": "top_prob"}, ("order=top_prob", "uniform, left_to_right, blockwise:N")),
    ):
        net.method = METHODS[name]
        with refused(*parts):
            nats_along_orders(net, examples, **settings)


def test_given_and_padding_positions_have_no_nats(net):
    net.method = METHODS["scdm"]
    tokens = np.array([[0, 1, 2, 0], [2, 1, 0, 0]], np.uint16)
    known = np.array([[False, True, False, True], [True, False, False, False]])
    examples = Examples(tokens, known, np.array([4, 2], np.uint16))
    done = []
    nats = nats_along_orders(net, examples, orders=8, latents=1, seed=3, report=done.append)
    assert sum(done) == 16
    for row, orders, num_known, end in ((0, ((1, 3, 0, 2), (1, 3, 2, 0)), 2, 4), (1, ((0, 1, 2, 3),), 1, 2)):
        line = torch.tensor(tokens[row : row + 1].astype(int))
        counts = (torch.tensor([num_known]), torch.tensor([end]))
        expected = {
            round(-log_likelihood(net, net.method, line, torch.tensor([order]), *counts, 1).sum().item(), 3)
            for order in orders
        }
        assert expected == set(nats[:, row].round(3).tolist())
    assert (nats_along_orders(net, examples, orders=8, latents=1, seed=4)[:, 0] != nats[:, 0]).any()


@pytest.mark.parametrize("name", ["arm", "esolm", "scdm"])
def test_row_whose_tokens_are_all_given_has_no_nats(net, name):
    tokens = every()[:3]
    order = torch.arange(4).expand(3, -1)
    num_known, lengths = torch.tensor([4, 1, 2]), torch.tensor([4, 4, 2])
    nats = log_likelihood(net, METHODS[name], tokens, order, num_known, lengths)
    alone = log_likelihood(net, METHODS[name], tokens[1:2], order[:1], num_known[1:2], lengths[1:2])
    assert nats[1].tolist() == pytest.approx(alone[0].tolist(), abs=1e-5)
    assert (nats[[0, 2]] == 0).all()
    assert (log_likelihood(net, METHODS[name], tokens, order, lengths, lengths) == 0).all()
    assert (log_likelihood(net, METHODS[name], tokens, order, 0 * lengths, 0 * lengths) == 0).all()


def test_orders_past_the_end_are_free(net):
    tokens, order = every()[:1], torch.tensor([[0, 1, 3, 2]])
    none, two = torch.tensor([0]), torch.tensor([2])
    assert (log_likelihood(net, METHODS["arm"], tokens, order, none, two)[0, :2] < 0).all()


def test_method_of_the_causal_rule_has_its_own_latents(nano):
    """If no number of latents is set, that of the method is used, as in decoding."""
    method = replace(METHODS["esolm"], latents=4)
    tokens = torch.arange(16)[None] % 4
    order = torch.randperm(16, generator=torch.Generator().manual_seed(0))[None]
    arguments = (nano, method, tokens, order, torch.tensor([0]), torch.tensor([16]))
    own, four, none = (log_likelihood(*arguments, latents).sum() for latents in (None, 4, 0))
    assert own == four != none


def test_likelihood_along_blocks_is_that_of_their_orders(net):
    """With blocks of 2, the first two positions come in either order, and then the last two."""
    net.method = METHODS["scdm"]
    examples = Examples.of(every()[:3].numpy().astype(np.uint16), 0)
    nats = nats_along_orders(net, examples, orders=12, order="blockwise:2", seed=1)
    counts = (torch.zeros(3, dtype=torch.int64), torch.full((3,), 4))
    orders = torch.tensor([[0, 1, 2, 3], [0, 1, 3, 2], [1, 0, 2, 3], [1, 0, 3, 2]])
    arguments = (net, net.method, every()[:3])
    each = [-log_likelihood(*arguments, order.expand(3, -1), *counts).sum(1) for order in orders]
    expected = torch.stack(each)
    for row in range(3):
        found = set(nats[:, row].round(3).tolist())
        assert found <= set(expected[:, row].numpy().round(3).tolist())
        assert len(found) > 1
