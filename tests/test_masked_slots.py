"""masked_slots="shuffled": the masked tokens of a left-to-right training input in a random order."""

from collections import Counter
from dataclasses import replace

import torch

from latent_tokens import METHODS
from latent_tokens.checkpoints.stored_methods import method_from, method_to
from latent_tokens.core.method import name_of

LENGTH = 7
AR_LATENTS = METHODS["ar-latents"]
IN_ORDER = replace(AR_LATENTS, masked_slots="in_order")


def drawn(method, batch=6, prompt=2, seed=1):
    known = torch.arange(LENGTH).expand(batch, -1) < prompt
    lengths = torch.full((batch,), LENGTH)
    return method.draw(known, lengths, torch.Generator().manual_seed(seed))


def test_only_the_masked_slots_are_shuffled():
    shuffled, plain = drawn(AR_LATENTS, batch=64), drawn(IN_ORDER, batch=64)
    assert torch.equal(shuffled.num_clean, plain.num_clean)
    assert torch.equal(plain.positions, torch.arange(LENGTH).expand(64, -1))
    assert torch.equal(shuffled.positions.sort(dim=1).values, plain.positions)
    clean = plain.clean
    assert torch.equal(shuffled.positions[clean], plain.positions[clean])
    assert not torch.equal(shuffled.positions, plain.positions)


def test_each_order_of_the_masked_slots_is_as_likely():
    layout = drawn(AR_LATENTS, batch=12_000, prompt=4)
    rows = layout.positions[layout.num_clean == 4, 4:].tolist()
    counts = Counter(map(tuple, rows))
    assert len(counts) == 6
    assert all(abs(count / len(rows) - 1 / 6) < 0.03 for count in counts.values())


def test_a_window_shuffles_the_tokens_inside_it():
    layout = drawn(replace(AR_LATENTS, window=3), batch=64)
    for positions, clean, shown in zip(layout.positions, layout.num_clean, layout.num_shown, strict=True):
        assert sorted(positions[clean:shown].tolist()) == list(range(clean, shown))
    assert (layout.num_shown - layout.num_clean).max() == 3


def test_padding_stays_behind_the_shuffled_slots():
    known = torch.zeros(32, LENGTH, dtype=torch.bool)
    layout = AR_LATENTS.draw(known, torch.full((32,), 4), torch.Generator().manual_seed(0))
    assert (layout.num_shown == 4).all()
    assert (layout.positions[:, :4] < 4).all()


def test_shuffled_slots_are_stored_and_named():
    assert AR_LATENTS.latent_control == "free"
    assert method_to(AR_LATENTS)["masked_slots"] == "shuffled"
    assert "masked_slots" not in method_to(IN_ORDER)
    assert all(method_from(method_to(method)) == method for method in (AR_LATENTS, IN_ORDER))
    assert name_of(replace(AR_LATENTS, weight="elbo")) == "ar-latents (elbo)"
    assert name_of(IN_ORDER) == "custom"
