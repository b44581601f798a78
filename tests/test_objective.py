"""The loss: its gradients, lengths and scored tokens, and its parts. test_oracle.py has its expectation."""

import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from helpers.documentation import ROOT
from helpers.runs import rows, tiny_run
from latent_tokens import METHODS, SIZES, TASKS, Size, Transformer, fit, loss
from latent_tokens.core.objective import corrupt, weighted_nll
from latent_tokens.network import block, memory
from latent_tokens.network.memory import (
    MAX_RATIO,
    MIN_SLOTS,
    training_row_bytes,
    training_rows,
)
from latent_tokens.training.step import microbatches


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_known_tokens_are_clean_and_never_scored(any_method):
    tokens = torch.randint(0, 4, (64, 8), generator=generator())
    known = torch.arange(8).expand_as(tokens) < 5
    batch = corrupt(any_method, tokens, known, generator(), mask_id=4)
    assert batch.scored.any(1).all()
    assert (batch.layout.positions[batch.scored] >= 5).all()
    assert (batch.layout.num_clean >= 5).all()


def test_positions_past_the_length_change_nothing(nano, any_method):
    tokens = torch.randint(0, 4, (5, 16), generator=generator())
    lengths = torch.tensor([9, 16, 4, 1, 12])
    outside = torch.arange(16) >= lengths[:, None]
    nothing = torch.zeros_like(outside)
    one, other = (
        loss(nano, any_method, changed, nothing, generator(3), lengths=lengths).item()
        for changed in (tokens, tokens.masked_fill(outside, 0))
    )
    assert one == pytest.approx(other, abs=1e-6)


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


def gradients_of(net, method, batch):
    value = weighted_nll(net, method, batch)
    return [value.detach(), *torch.autograd.grad(value, list(net.parameters()))]


def assert_equal(found, expected):
    """Assert equality up to 1e-5 of the largest number of each tensor."""
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5 * other.abs().max().item(), rtol=0)


def test_parts_and_scored_slots_alone_give_equal_gradients(small, monkeypatch, any_method):
    """In parts of five rows, and from the logits of all slots."""
    monkeypatch.setattr(block, "TOKENS_PER_GROUP", 64)
    tokens, known, lengths = ragged()
    batch = corrupt(any_method, tokens, known, generator(3), mask_id=4, lengths=lengths)
    expected = gradients_of(small, any_method, batch)
    assert all(0 < gradient.abs().sum() < torch.inf for gradient in expected)

    parts = microbatches(batch, lambda width: 5)
    assert len(parts) >= 5
    by_part = [gradients_of(small, any_method, batch.take(rows).to(torch.device("cpu"))) for rows in parts]
    assert_equal([sum(tensors) for tensors in zip(*by_part, strict=True)], expected)

    small.supports_slots = False
    assert_equal(gradients_of(small, any_method, batch), expected)


def test_network_that_supports_slots_is_called_with_them(small):
    calls = []

    class Own:
        mask_id = small.mask_id

        def __call__(self, ids, positions, mask, *slots):
            calls.append(len(slots))
            return small(ids, positions, mask, *slots)

    tokens, known, lengths = ragged()
    arguments = (METHODS["scdm"], tokens, known)
    expected = loss(small, *arguments, generator(3), lengths=lengths)
    for supported in (False, True):
        net = Own()
        net.supports_slots = supported
        assert torch.isclose(loss(net, *arguments, generator(3), lengths=lengths), expected)
    assert calls == [0, 1]


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
    for part in parts:
        shown = long_batch.layout.num_shown[part]
        assert len(part) <= max(1, slots // int(shown.max()))
        assert shown.max() <= MAX_RATIO * shown.min() or (len(part) - 1) * shown.max() <= MIN_SLOTS
        assert long_batch.take(part).layout.positions.shape == (len(part), shown.max())
    padded = sum(len(part) * int(long_batch.layout.num_shown[part].max()) for part in parts)
    assert padded < 1.2 * long_batch.layout.num_shown.sum()


@pytest.mark.parametrize("name", ["mdm", "scdm"])
def test_next_target_is_behind_the_latents(name):
    """It comes last, behind none to all other masked tokens if n is free, and behind all otherwise."""
    method = replace(METHODS[name], targets="next")
    tokens = torch.zeros(4_000, 6, dtype=torch.long)
    batch = corrupt(method, tokens, tokens > 0, generator(), mask_id=9)
    assert (batch.scored.sum(1) == 1).all()
    assert torch.equal(batch.scored.long().argmax(1), batch.layout.num_shown - 1)
    latents = batch.layout.num_shown - 1 - batch.layout.num_clean
    num_masked = 6 - batch.layout.num_clean
    if name == "mdm":
        assert torch.equal(latents, num_masked - 1)
    else:
        counts = torch.bincount(latents[num_masked == 4], minlength=4)
        assert len(counts) == 4
        assert (counts / counts.sum() - 1 / 4).abs().max() < 0.06


# Parts that fit into memory.

BYTES_TRAINED = 4 * 5  # weight, EMA weight, gradient and two moments of AdamW, in float32


def test_memory_table_of_the_page_is_computed():
    task = TASKS["sudoku-9"]
    page = (ROOT / "docs" / "scaling.md").read_text()
    lines = re.findall(r"^\| `(\w+)` \| (\S+)M \| (\S+) GB \| (\S+) GB \| (\S+) GB \|$", page, re.M)
    assert [name for name, *_ in lines] == ["nano", "tiny", "mini", "sminy", "small"]
    for name, *shown in lines:
        with torch.device("meta"):
            net = Transformer(SIZES[name], task.vocab_size, task.length, positions="learned")
        count = sum(weight.numel() for weight in net.parameters())
        fixed = BYTES_TRAINED * count / 1e9
        board = training_row_bytes(net.dimensions, task.length) / 1e9
        computed = [f"{count / 1e6:.1f}", f"{fixed:.2f}", f"{board:.3f}", f"{fixed + 32 * board:.2f}"]
        assert computed == shown


def test_microbatches_give_the_weights_of_the_full_batch(tmp_path, monkeypatch):
    """A learning rate of a hundred times the tolerance: Adam magnifies the rounding of small gradients."""
    settings = {"steps": 2, "lr": 1e-4}
    expected = fit(tiny_run(tmp_path / "whole", **settings))
    net = Transformer(SIZES["pico"], 4, 16)
    assert training_rows(net, 16) >= 8
    monkeypatch.setattr(memory, "TRAINING_BYTES", 3 * training_row_bytes(net.dimensions, 16))
    assert 1 < training_rows(net, 16) < 8 / 2
    run = fit(tiny_run(tmp_path / "parts", **settings))
    weights = load_file(run / "model.safetensors")
    for name, weight in load_file(expected / "model.safetensors").items():
        torch.testing.assert_close(weights[name], weight, atol=1e-6, rtol=0, msg=name)
    losses = [rows(each)[-1]["validation_loss"] for each in (run, expected)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
