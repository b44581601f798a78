"""The loss beyond its expectation, which test_oracle.py checks: gradients, lengths, what is scored."""

import pytest
import torch

from latent_tokens import METHODS, Decoding, generate, loss


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_every_method_trains(nano, any_method):
    tokens = torch.randint(0, 4, (6, 16), generator=generator())
    value = loss(nano, any_method, tokens, torch.zeros_like(tokens, dtype=torch.bool), generator())
    gradients = torch.autograd.grad(value, list(nano.parameters()))
    assert value.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert sum(float(gradient.abs().sum()) for gradient in gradients) > 0
    assert not generate(nano, any_method, tokens, tokens < 0, Decoding(), 0).tokens.eq(nano.mask_id).any()


def test_known_tokens_are_clean_and_never_scored(any_method):
    """A net that answers with its position: no target may lie among the known, whatever is drawn."""
    seen = []

    class Recorder:
        mask_id = 4

        def __call__(self, ids, positions, mask):
            seen.append((ids, positions, mask.sum(-1) > 1))  # padding sees itself alone
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
    values = [loss(nano, any_method, changed, nothing, generator(3), lengths=lengths).item() for changed in (tokens, tokens.masked_fill(outside, 0))]
    assert values[0] == pytest.approx(values[1], abs=1e-6)


def test_a_row_without_unknown_positions_is_refused(nano):
    tokens = torch.zeros(2, 16, dtype=torch.int64)
    known = torch.tensor([[False], [True]]).expand(2, 16)
    with pytest.raises(ValueError, match="row 1 has no unknown position"):
        loss(nano, METHODS["scdm"], tokens, known, generator())


def test_clean_counts_are_uniform_and_stratified():
    known = torch.zeros(400, 16, dtype=torch.bool)
    layout = METHODS["scdm"].draw(known, torch.full((400,), 16), generator())
    assert torch.bincount(layout.num_clean, minlength=16).tolist() == [25] * 16


def test_what_the_net_cannot_learn_is_refused(nano):
    tokens = torch.zeros(2, 16, dtype=torch.int64)
    with pytest.raises(ValueError, match="token 4 is MASK"):
        loss(nano, METHODS["scdm"], tokens + 4, tokens > 0, generator())
    with pytest.raises(ValueError, match="no prefix"):
        loss(nano, METHODS["arm"], tokens, torch.arange(16).expand(2, 16) == 3, generator())
