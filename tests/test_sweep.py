"""One pass for several numbers of latents equals a pass for each."""

import pytest
import torch

from conftest import variants
from latent_tokens import METHODS
from latent_tokens.core.layout import next_layout
from latent_tokens.core.sampling import candidate_logits
from latent_tokens.network.sweep import sweep

LENGTH = 16
NUM_CLEAN = torch.tensor([0, 5, 15, 14, 15, 13])


@pytest.fixture
def state():
    """Return tokens and an order for each row."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 4, (len(NUM_CLEAN), LENGTH), generator=generator)
    return tokens, torch.rand(tokens.shape, generator=generator).argsort(dim=1)


def test_sweep_calls_the_hooks_inside_a_network(nano, state):
    arguments = (nano, METHODS["scdm"], *state, NUM_CLEAN, [0, 4])
    plain = sweep(*arguments)
    doubled = nano.blocks[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    patched = sweep(*arguments)
    doubled.remove()
    assert (patched - plain).nan_to_num().abs().max() > 1e-3


@pytest.mark.parametrize("candidates", [1, 3])
@pytest.mark.parametrize("latents", [[0], [0, 1, 4, 40], [5, 2, 2]])
@pytest.mark.parametrize("name", ["scdm", "esolm", "sidm", "left-to-right scdm"])
def test_sweep_logits_equal_those_of_separate_passes(nano, state, name, latents, candidates):
    (tokens, order), method = state, variants()[name]
    found = sweep(nano, method, tokens, order, NUM_CLEAN, latents, candidates=candidates)
    assert found.shape == (len(latents), len(NUM_CLEAN), candidates, 5)
    k = (LENGTH - NUM_CLEAN).clamp(max=candidates)
    for n, logits in zip(latents, found, strict=True):
        layout = next_layout(order, NUM_CLEAN, k, (LENGTH - NUM_CLEAN - k).clamp(max=n))
        expected = candidate_logits(method.logits(nano, tokens, layout), layout, k)
        torch.testing.assert_close(
            logits[..., :4], expected[..., :4], atol=1e-5 * expected[..., :4].abs().max().item(), rtol=0
        )
        assert (logits[..., 4] == -torch.inf).all()


def test_the_numbers_of_latents_differ_in_what_they_give(nano, state):
    none, some = sweep(nano, METHODS["scdm"], *state, NUM_CLEAN, [0, 4])
    assert (none - some)[0, :, :4].abs().max() > 1e-2


@pytest.mark.parametrize("name", ["mdm", "arm", "ar-mtp", "windowed scdm"])
def test_a_method_that_shares_nothing_is_sent_to_another(nano, state, name):
    with pytest.raises(ValueError, match="Use scdm or esolm"):
        sweep(nano, variants()[name], *state, NUM_CLEAN, [0, 1])


@pytest.mark.parametrize(("latents", "candidates"), [([-1], 1), ([0, 2, -3], 1), ([], 1), ([0], 0)])
def test_numbers_out_of_range_are_refused_with_what_is_allowed(nano, state, latents, candidates):
    with pytest.raises(ValueError, match="numbers of latents start at 0, and of candidates at 1"):
        sweep(nano, METHODS["scdm"], *state, NUM_CLEAN, latents, candidates=candidates)


def test_a_row_with_nothing_masked_is_named(nano, state):
    with pytest.raises(ValueError, match="row 4 has no masked token"):
        sweep(nano, METHODS["scdm"], *state, NUM_CLEAN + (torch.arange(6) == 4), [0])
