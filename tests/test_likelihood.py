"""Likelihoods are probabilities: they sum to one over all sequences, and equal the frequencies of samples."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from latent_tokens import METHODS, Decoding, Transformer, log_likelihood
from latent_tokens.core.layout import next_layout
from latent_tokens.core.likelihood import in_one_pass, score_tokens
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
OFF = [(name, n) for name in ("mdm", "ar-mtp", "ar-mtp-window-3", "ar-ntp-3", "block-mdm-2") for n in (0, 1)]


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


@pytest.mark.parametrize("name", ["mdm", "esolm", "arm"])
def test_tokens_have_any_type_of_whole_numbers(net, name):
    tokens, order = every()[:3], order_of(name, 3)
    known, ends = torch.zeros(3, dtype=torch.long), torch.full((3,), 4)
    expected = log_likelihood(net, METHODS[name], tokens, order, known, ends)
    narrow = (each.to(torch.int16) for each in (tokens, order, known, ends))
    assert torch.equal(log_likelihood(net, METHODS[name], *narrow), expected)


@pytest.mark.parametrize("name", ["esolm", "arm"])
def test_one_pass_gives_what_every_step_gives(net, name):
    method, tokens = METHODS[name], every()[:40]
    order = torch.stack([torch.randperm(4) for _ in tokens]) if name == "esolm" else order_of("arm", 40)
    known, ends = torch.randint(0, 3, (40,)), torch.randint(3, 5, (40,))
    found = in_one_pass(net, method, tokens, order, known, ends).log_probabilities
    for row, step in product(range(40), range(4)):
        wanted = 0.0
        if known[row] <= step < ends[row]:
            layout = next_layout(
                order[row : row + 1], torch.tensor([step]), torch.tensor([1]), torch.tensor([0])
            )
            logits = method.logits(net, tokens[row : row + 1], layout)[0, -1].double()
            wanted = logits.log_softmax(-1)[tokens[row, order[row, step]]].item()
        assert found[row, step].item() == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("name", ["scdm", "esolm", "arm"])
def test_a_sequence_has_its_own_orders_whatever_batch_it_is_in(net, monkeypatch, name):
    net.method = METHODS[name]
    examples = Examples.of(every()[:40].numpy().astype(np.uint16), 0)
    whole = nats_along_orders(net, examples, orders=3, seed=7)
    assert whole.shape == ((1, 40) if name == "arm" else (3, 40))
    monkeypatch.setattr("latent_tokens.evaluation.likelihood.ROWS", 1)
    assert nats_along_orders(net, examples, orders=3, seed=7) == pytest.approx(whole, abs=1e-5)
    if name == "arm":
        return
    same = Examples.of(np.repeat(examples.tokens[5:6], 40, 0), 0)
    assert len(set(nats_along_orders(net, same).round(4).flatten())) > 5
    known = torch.zeros(40, dtype=torch.long)
    order, ends = torch.arange(4).expand(40, 4), torch.full((40,), 4)
    straight = -log_likelihood(
        net, net.method, torch.from_numpy(examples.tokens.astype(np.int64)), order, known, ends
    ).sum(1)
    assert nats_along_orders(net, examples, order="left_to_right")[0] == pytest.approx(
        straight.numpy(), abs=1e-5
    )


def test_orders_and_latents_are_never_ignored_silently(net):
    examples = Examples.of(every()[:4].numpy().astype(np.uint16), 0)
    net.method = METHODS["arm"]
    with pytest.raises(ValueError, match="order=uniform: this method decodes from left to right only"):
        nats_along_orders(net, examples, order="uniform")
    net.method = METHODS["mdm"]
    with pytest.raises(ValueError, match="latents=2 is not supported by mdm: its number of latent tokens is"):
        nats_along_orders(net, examples, latents=2)


def test_rows_of_unequal_lengths_are_each_as_alone(net):
    method, tokens = METHODS["scdm"], torch.tensor([[2, 1, 0, 1], [0, 2, 1, 0], [1, 1, 2, 0]])
    order = torch.tensor([[2, 0, 3, 1], [2, 0, 1, 3], [1, 0, 2, 3]])
    known, ends, done = torch.tensor([0, 2, 1]), torch.tensor([4, 3, 2]), []
    found = log_likelihood(net, method, tokens, order, known, ends, 1, done.append)
    assert done == [1, 1, 1, 1]
    for row, end in enumerate(ends.tolist()):
        one = slice(row, row + 1)
        alone = log_likelihood(net, method, tokens[one, :end], order[one, :end], known[one], ends[one], 1)
        assert found[row, :end] == pytest.approx(alone[0], abs=1e-5)
        assert (found[row, end:] == 0).all()
    layout = next_layout(
        order[:1], torch.tensor([1]), torch.tensor([1]), torch.tensor([1])
    )  # position 2 is clean, 3 a latent, 0 predicted
    wanted = method.logits(net, tokens[:1], layout)[0, -1].double().log_softmax(-1)[tokens[0, 0]]
    assert found[0, 1].item() == pytest.approx(wanted.item(), abs=1e-5)
    every_latent = log_likelihood(net, method, tokens, order, known, ends, "all")
    assert every_latent[0].tolist() == pytest.approx(
        log_likelihood(net, method, tokens, order, known, ends, 3)[0].tolist(), abs=1e-5
    )
    assert abs(every_latent[0, 0] - found[0, 0]) > 1e-3


def test_given_and_padding_positions_have_no_nats(net):
    net.method = METHODS["scdm"]
    tokens, known = (
        np.array([[0, 1, 2, 0], [2, 1, 0, 0]], np.uint16),
        np.array([[False, True, False, True], [True, False, False, False]]),
    )
    examples, done = Examples(tokens, known, np.array([4, 2], np.uint16)), []
    nats = nats_along_orders(net, examples, orders=8, latents=1, seed=3, report=done.append)
    assert sum(done) == 16
    for row, (orders, seen, end) in enumerate(
        [(((1, 3, 0, 2), (1, 3, 2, 0)), 2, 4), (((0, 1, 2, 3),), 1, 2)]
    ):
        both = [
            log_likelihood(
                net,
                net.method,
                torch.tensor(tokens[row : row + 1].astype(int)),
                torch.tensor([order]),
                *map(torch.tensor, ([seen], [end])),
                1,
            )
            for order in orders
        ]
        assert {round(-one.sum().item(), 3) for one in both} == set(nats[:, row].round(3).tolist())
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


def test_a_method_of_the_causal_rule_shows_its_own_latents(nano):
    """If no number of latents is set, that of the method is used, as in decoding."""
    method = replace(METHODS["esolm"], latents=4)
    tokens, order = (
        torch.arange(16)[None] % 4,
        torch.randperm(16, generator=torch.Generator().manual_seed(0))[None],
    )
    known, lengths = torch.tensor([0]), torch.tensor([16])
    own, asked, none = (
        log_likelihood(nano, method, tokens, order, known, lengths, latents).sum() for latents in (None, 4, 0)
    )
    assert own == asked != none


def test_likelihood_along_blocks_is_that_of_their_orders(net):
    """With blocks of 2, the first two positions come in either order, and then the last two."""
    net.method = METHODS["scdm"]
    examples = Examples.of(every()[:3].numpy().astype(np.uint16), 0)
    nats = nats_along_orders(net, examples, orders=12, order="blockwise:2", seed=1)
    counts = (torch.zeros(3, dtype=torch.int64), torch.full((3,), 4))
    orders = torch.tensor([[0, 1, 2, 3], [0, 1, 3, 2], [1, 0, 2, 3], [1, 0, 3, 2]])
    expected = torch.stack(
        [
            -log_likelihood(net, net.method, every()[:3], order.expand(3, -1), *counts).sum(1)
            for order in orders
        ]
    )
    for row in range(3):
        found = set(nats[:, row].round(3).tolist())
        assert found <= set(expected[:, row].numpy().round(3).tolist())
        assert len(found) > 1
    for wrong in ("blockwise:0", "top_prob"):
        with pytest.raises(ValueError, match=r"order=.*: must be one of uniform, left_to_right, blockwise:N"):
            nats_along_orders(net, examples, order=wrong)
    net.method = METHODS["arm"]
    with pytest.raises(ValueError, match="order=blockwise:2: this method decodes from left to right only"):
        nats_along_orders(net, examples, order="blockwise:2")


@pytest.mark.parametrize("latents", [1, "all"])
def test_cached_likelihood_of_our_network_is_that_of_the_steps(net, latents):
    tokens = torch.tensor([[2, 1, 0, 1], [0, 2, 1, 0], [1, 1, 2, 0]])
    order = torch.tensor([[2, 0, 3, 1], [2, 0, 1, 3], [1, 0, 2, 3]])
    known = torch.tensor([0, 2, 1])
    for ends in (torch.tensor([4, 3, 2]), torch.tensor([4, 4, 4])):
        arguments = (net, METHODS["esolm"], tokens, order, known, ends, latents)
        expected = score_tokens(*arguments).log_probabilities
        torch.testing.assert_close(log_likelihood(*arguments), expected, atol=1e-5, rtol=1e-5)
