"""The loss: its gradients, lengths and scored tokens. test_oracle.py checks its expectation."""

from dataclasses import replace

import pytest
import torch

from latent_tokens import METHODS, Decoding, Size, Transformer, generate, loss
from latent_tokens.core.denoiser import supports_slots
from latent_tokens.core.objective import corrupt, weighted_nll
from latent_tokens.network import transformer
from latent_tokens.network.memory import MAX_RATIO, MIN_SLOTS
from latent_tokens.training.step import microbatches


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_every_method_trains(nano, any_method):
    tokens = torch.randint(0, 4, (6, 16), generator=generator())
    value = loss(nano, any_method, tokens, torch.zeros_like(tokens, dtype=torch.bool), generator())
    gradients = torch.autograd.grad(value, list(nano.parameters()))
    assert value.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert sum(float(gradient.abs().sum()) for gradient in gradients) > 0
    assert not generate(nano, any_method, tokens, tokens < 0, Decoding(1), 0).tokens.eq(nano.mask_id).any()


def test_known_tokens_are_clean_and_never_scored(any_method):
    """A recorder of inputs as the network: known tokens are clean in all of them."""
    seen = []

    class Recorder:
        mask_id = 4

        def __call__(self, ids, positions, mask):
            seen.append((ids, positions, mask.sum(-1) > 1))  # padding attends to itself only
            return torch.zeros(*ids.shape, 5)

    tokens = torch.randint(0, 4, (64, 8), generator=generator())
    known = torch.zeros_like(tokens, dtype=torch.bool)
    known[:, :5] = True
    loss(Recorder(), any_method, tokens, known, generator())
    ids, positions, shown = seen[0]
    if any_method.readout == "in_place":
        assert (positions[shown & (ids == 4)] >= 5).all()


def test_positions_past_the_length_change_nothing(nano, any_method):
    tokens = torch.randint(0, 4, (5, 16), generator=generator())
    lengths = torch.tensor([9, 16, 4, 1, 12])
    outside = torch.arange(16) >= lengths[:, None]
    nothing = torch.zeros_like(outside)
    values = [
        loss(nano, any_method, changed, nothing, generator(3), lengths=lengths).item()
        for changed in (tokens, tokens.masked_fill(outside, 0))
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-6)


def test_clean_counts_are_uniform_and_stratified():
    known = torch.zeros(400, 16, dtype=torch.bool)
    layout = METHODS["scdm"].draw(known, torch.full((400,), 16), generator())
    assert torch.bincount(layout.num_clean, minlength=16).tolist() == [25] * 16


@pytest.fixture
def small():
    """Return an untrained network with its initial weights. Large weights magnify rounding in gradients."""
    torch.manual_seed(0)
    return Transformer(Size(32, 2, 3), 4, 16)


def ragged(batch=24):
    """Return rows of different lengths with a known prefix."""
    tokens = torch.randint(0, 4, (batch, 16), generator=generator())
    lengths = torch.randint(7, 17, (batch,), generator=generator(1))
    return tokens, torch.arange(16) < torch.randint(0, 6, (batch, 1), generator=generator(2)), lengths


def gradients_of(net, value):
    return [value.detach(), *torch.autograd.grad(value, list(net.parameters()))]


def assert_equal(found, expected):
    """Assert equality up to 1e-5 of the largest number of each tensor."""
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5 * other.abs().max().item(), rtol=0)


def test_logits_of_scored_slots_alone_give_equal_gradients(small, monkeypatch, any_method):
    monkeypatch.setattr(transformer, "TOKENS_PER_GROUP", 64)
    tokens, known, lengths = ragged()
    found = []
    for reads in (True, False):
        monkeypatch.setattr(small, "supports_slots", reads, raising=False)
        found.append(
            gradients_of(small, loss(small, any_method, tokens, known, generator(3), lengths=lengths))
        )
    assert_equal(*found)


def test_network_that_supports_slots_is_called_with_them(small):
    """On a user's network and on a subclass of Transformer."""
    calls = []

    class Own:
        mask_id = small.mask_id

        def __call__(self, ids, positions, mask, *slots):
            calls.append(len(slots))
            return small(ids, positions, mask, *slots)

    tokens, known, lengths = ragged()
    expected = loss(small, METHODS["scdm"], tokens, known, generator(3), lengths=lengths)
    for supported in (False, True):
        net = Own()
        net.supports_slots = supported
        assert torch.isclose(
            loss(net, METHODS["scdm"], tokens, known, generator(3), lengths=lengths), expected
        )
    assert calls == [0, 1]

    class Subclass(Transformer):
        pass

    net = Subclass(small.size, small.vocab_size, small.max_length)
    assert not supports_slots(net)
    net.supports_slots = True
    assert supports_slots(net)


@pytest.fixture
def long_batch():
    """Return 300 rows of 5 to 64 positions, corrupted as in a training step."""
    lengths = torch.randint(5, 65, (300,), generator=generator())
    tokens = torch.randint(0, 4, (300, 64), generator=generator())
    return corrupt(METHODS["scdm"], tokens, tokens < 0, generator(), mask_id=4, lengths=lengths)


@pytest.mark.parametrize("slots", [1, 500, 4_000, 10**9])
def test_microbatches_hold_every_row_once_bucketed_by_length(long_batch, slots):
    parts = microbatches(long_batch, lambda width: max(1, slots // width))
    assert torch.cat(parts).sort().values.tolist() == list(range(300))
    for rows in parts:
        shown = long_batch.layout.num_shown[rows]
        assert len(rows) <= max(1, slots // int(shown.max()))
        assert shown.max() <= MAX_RATIO * shown.min() or (len(rows) - 1) * shown.max() <= MIN_SLOTS
        assert long_batch.take(rows).layout.positions.shape == (len(rows), shown.max())
    padded = sum(len(rows) * int(long_batch.layout.num_shown[rows].max()) for rows in parts)
    assert padded < 1.2 * long_batch.layout.num_shown.sum()


def test_the_parts_of_a_batch_add_up_to_its_loss_and_gradients(small, any_method):
    tokens, known, lengths = ragged()
    drawn = corrupt(any_method, tokens, known, generator(3), mask_id=4, lengths=lengths)
    parts = microbatches(drawn, lambda width: 5)
    assert len(parts) >= 5
    in_parts = [
        gradients_of(small, weighted_nll(small, any_method, drawn.take(rows).to(torch.device("cpu"))))
        for rows in parts
    ]
    assert_equal(
        [sum(tensors) for tensors in zip(*in_parts, strict=True)],
        gradients_of(small, weighted_nll(small, any_method, drawn)),
    )


@pytest.mark.parametrize("name", ["mdm", "scdm"])
def test_the_target_alone_is_the_next_token_behind_the_latents(name):
    """It comes last, behind none to all other masked tokens if n is free, and behind all otherwise."""
    method = replace(METHODS[name], targets="next")
    known = torch.zeros(4_000, 6, dtype=torch.bool)
    drawn = corrupt(
        method, torch.zeros(4_000, 6, dtype=torch.long), known, torch.Generator().manual_seed(0), mask_id=9
    )
    assert (drawn.scored.sum(1) == 1).all()
    assert torch.equal(drawn.scored.long().argmax(1), drawn.layout.num_shown - 1)
    latents, left = drawn.layout.num_shown - 1 - drawn.layout.num_clean, 6 - drawn.layout.num_clean
    if name == "mdm":
        assert torch.equal(latents, left - 1)
    else:
        counts = torch.bincount(latents[left == 4], minlength=4)
        assert len(counts) == 4
        assert (counts / counts.sum() - 1 / 4).abs().max() < 0.06
