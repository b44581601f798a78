"""Equalities: truncated and full, reordered and not, one method as a special case, alone and in a batch."""

from dataclasses import replace

import pytest
import torch

from latent_tokens import METHODS, SIZES, Decoding, Transformer, generate
from latent_tokens.core.attention import bidirectional, causal, dense_mask, independent, semi_causal
from latent_tokens.core.cost import relative_cost, tokens_processed
from latent_tokens.core.layout import Layout, next_layout

LENGTH = 16
AR_MTP = ("ar-mtp", f"ar-mtp-window-{LENGTH}")
NOTHING_KNOWN = torch.zeros(7, LENGTH, dtype=torch.bool)
ANYTHING = torch.zeros(7, LENGTH, dtype=torch.int64)


def layout_of(order, clean, shown):
    return Layout(order[:, :shown], torch.full((len(order),), clean), torch.full((len(order),), shown))


@pytest.fixture
def order():
    return torch.stack([torch.randperm(LENGTH, generator=torch.Generator().manual_seed(i)) for i in range(3)])


@pytest.fixture
def tokens():
    return torch.randint(0, 4, (3, LENGTH), generator=torch.Generator().manual_seed(9))


def test_permuting_slots_with_their_positions_permutes_logits(pico, order, tokens):
    layout = layout_of(order, 5, LENGTH)
    ids = tokens.gather(1, layout.positions).masked_fill(~layout.clean, pico.mask_id)
    mask = dense_mask(semi_causal, layout)
    turn = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(3))
    straight = pico(ids, layout.positions, mask)
    turned = pico(ids[:, turn], layout.positions[:, turn], mask[:, turn][:, :, turn])
    torch.testing.assert_close(turned, straight[:, turn], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rule", [independent, semi_causal, causal, bidirectional])
def test_leaving_out_what_follows_changes_a_bidirectional_model_only(pico, order, tokens, rule):
    method = replace(METHODS["scdm"], attention=rule)
    full = method.logits(pico, tokens, layout_of(order, 5, LENGTH))
    short = method.logits(pico, tokens, layout_of(order, 5, 8))
    largest = (short - full[:, :8])[..., :4].abs().max()
    assert largest > 1e-2 if rule is bidirectional else largest < 1e-4


def test_latents_change_the_target_under_causal_rules_only(pico, order, tokens):
    clean = torch.full((3,), 5)
    for name, changes in (("scdm", True), ("esolm", True), ("sidm", False)):
        answers = []
        for n in (0, 4):
            layout = next_layout(order, clean, candidates=torch.ones(3).long(), latents=torch.full((3,), n))
            assert (layout.positions[:, -1] == order[:, 5]).all()
            assert (layout.positions[:, 5:-1] == order[:, 6 : 6 + n]).all()
            answers.append(METHODS[name].logits(pico, tokens, layout)[:, -1, :4])
        assert ((answers[0] - answers[1]).abs().max() > 1e-2) == changes


@pytest.mark.parametrize(("names", "decoding"), [(("scdm", "sidm"), Decoding(1, 0)), (AR_MTP, Decoding(1))])
def test_samples_of_a_special_case_are_equal(pico, names, decoding):
    """SCDM without latent tokens is SIDM on the same weights, and a window of all tokens is AR-MTP."""
    one, other = (generate(pico, METHODS[name], ANYTHING, NOTHING_KNOWN, decoding, 4) for name in names)
    for name in ("tokens", "order", "tokens_processed"):
        assert torch.equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize(("k", "n"), [(1, 0), (4, 3), (8, "all"), (1, 40)])
def test_counted_tokens_are_the_cost_formula(pico, k, n):
    made = generate(pico, METHODS["scdm"], ANYTHING, NOTHING_KNOWN, Decoding(candidates=k, latents=n), 1)
    latents = LENGTH if n == "all" else n
    assert made.tokens_processed.tolist() == [tokens_processed(LENGTH, 0, k, latents)] * 7
    assert made.tokens_processed[0] / LENGTH**2 == relative_cost(LENGTH, k, latents)
    assert made.forward_passes == LENGTH


@pytest.mark.parametrize(
    ("length", "k", "n", "paper"),
    [(192, 1, 0, 0.50), (192, 8, 0, 0.54), (384, 8, 0, 0.52), (64, 8, 0, 0.61), (192, 8, 192, 1.0)],
)
def test_the_cost_formula_gives_the_papers_table_1(length, k, n, paper):
    assert relative_cost(length, k, n) == pytest.approx(paper, abs=0.005)


@pytest.mark.parametrize(
    ("name", "ours", "paper"),
    [
        ("tiny", 5_344_160, 6_381_600),
        ("mini", 18_935_840, 21_488_416),
        ("sminy", 42_559_520, 46_363_680),
        ("small", 85_068_320, 92_429_856),
    ],
)
def test_parameters_are_the_papers_less_the_folded_adaln(name, ours, paper):
    size, c, v = SIZES[name], 128, 32
    d, layers = size.width, size.layers
    with torch.device("meta"):
        net = Transformer(size, v - 1, 64, "rotary")
    count = sum(parameter.numel() for parameter in net.parameters())
    assert count == ours
    adaln = 6 * layers * d * (c + 1) + (256 * c + c + c * c + c) + 2 * d * (c + 1)
    assert count - (2 * layers + 1) * d + adaln == paper
