"""The KV cache of a network of transformers: the logits and samples of the pass without one."""

from dataclasses import replace

import pytest
import torch

from helpers.tiny_models import DECODERS, VOCAB, WITH_WINDOW, tiny_model
from latent_tokens import (
    METHODS,
    Decoding,
    HuggingFaceDenoiser,
    entropy,
    generate,
    left_to_right,
    log_likelihood,
    margin,
    top_prob,
)
from latent_tokens.core import sampling
from latent_tokens.core.likelihood import score_tokens
from latent_tokens.core.state import start
from latent_tokens.network.hf import HuggingFaceCachedLogits, supports_cache

LENGTH = 9
DECODINGS = {
    "one": Decoding(1),
    "latents": Decoding(candidates=2, latents=3),
    "all": Decoding(candidates=3, latents="all", refresh=False),
    "two a step": Decoding(candidates=4, tokens_per_step=2, latents=lambda masked: masked // 2),
}


def denoiser(family, method, **changes):
    mask_id = None if method.readout == "shifted" else VOCAB - 1
    return HuggingFaceDenoiser(tiny_model(family, **changes), mask_id, method.readout)


def rows_to_decode(method):
    """Prompts of different lengths, and with gaps if the method takes these."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(3, VOCAB - 1, (4, LENGTH), generator=generator)
    known = torch.arange(LENGTH) < torch.tensor([0, 4, 1, 2])[:, None]
    if method.readout == "in_place":
        known |= torch.rand(4, LENGTH, generator=generator) < 0.2
    return tokens, known, torch.tensor([9, 7, 9, 6])


def check_equal(net, method, decoding):
    """Compare the logits of every step, and the samples, with those of the reference."""
    tokens, known, lengths = rows_to_decode(method)
    everyone = torch.arange(len(tokens))
    cache = HuggingFaceCachedLogits(net, method, everyone)

    def compare(plan, tokens, layout):
        logits = cache(plan, tokens, layout)
        reference = sampling.reference_logits(net, method, plan, tokens, layout)
        torch.testing.assert_close(logits, reference, atol=1e-5, rtol=1e-5)
        fixed = layout.num_shown if method.readout == "shifted" else layout.num_clean
        assert torch.equal((cache.slots >= 0).sum(1), fixed)
        return logits

    state = start(net, method, tokens, known, decoding, 3, None, lengths)
    sampling.decode(net, method, decoding, state, everyone, compare)
    made = generate(net, method, tokens, known, decoding, 3, lengths=lengths)
    plain = sampling.generate(net, method, tokens, known, decoding, 3, lengths=lengths)
    assert torch.equal(made.tokens, plain.tokens)
    assert torch.equal(made.order, plain.order)
    assert torch.equal(made.processed, plain.processed)


ESOLM = METHODS["esolm"]
PAIRS = {
    **{family: (family, ESOLM, DECODINGS["latents"], WITH_WINDOW.get(family, {})) for family in DECODERS},
    **{f"llama, {name}": ("llama", ESOLM, decoding, {}) for name, decoding in DECODINGS.items()},
    **{f"{family}, arm": (family, METHODS["arm"], Decoding(1), {}) for family in ("llama", "gpt2")},
}


@pytest.mark.parametrize(("family", "method", "decoding", "changes"), PAIRS.values(), ids=PAIRS)
def test_cached_logits_and_samples_are_the_references(family, method, decoding, changes):
    check_equal(denoiser(family, method, **changes), method, decoding)


@pytest.mark.parametrize(
    ("family", "name", "confidence"),  # rotary and learned positions
    [("llama", "esolm", top_prob), ("gpt2", "esolm", entropy), ("llama", "scdm", margin)],
)
def test_sample_is_the_same_alone_and_in_a_batch(family, name, confidence):
    """Nothing is given, so that candidates are equal up to rounding."""
    method = METHODS[name]
    net = denoiser(family, method)
    decoding = Decoding(8, confidence=confidence)
    nothing = torch.zeros(6, LENGTH, dtype=torch.bool)
    together = generate(net, method, nothing.long(), nothing, decoding, 3)
    for row in range(6):
        alone = generate(net, method, nothing[:1].long(), nothing[:1], decoding, 3, rows=torch.tensor([row]))
        assert torch.equal(alone.tokens[0], together.tokens[row])
        assert torch.equal(alone.order[0], together.order[row])


def widths_of(net):
    """The number of new slots of each pass from now on."""
    widths = []
    net.model.register_forward_pre_hook(
        lambda model, positional, named: widths.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    return widths


def sequences_to_score():
    """Sequences with their orders, of which a different number of tokens is given."""
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(3, VOCAB - 1, (3, LENGTH), generator=generator)
    order = torch.stack([torch.randperm(6, generator=generator) for _ in tokens])
    order = torch.cat([order, torch.arange(6, LENGTH).expand(3, -1)], dim=1)
    return tokens, order, torch.tensor([0, 4, 1]), torch.tensor([LENGTH, 7, 6])


@pytest.mark.parametrize("latents", [2, "all"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_cached_likelihood_is_that_of_the_steps(family, latents):
    net = denoiser(family, METHODS["esolm"])
    arguments = (net, METHODS["esolm"], *sequences_to_score(), latents)
    expected = score_tokens(*arguments).log_probabilities
    torch.testing.assert_close(log_likelihood(*arguments), expected, atol=1e-5, rtol=1e-5)
    assert (expected != 0).sum() == LENGTH + 3 + 5


def test_cache_computes_new_slots_only():
    net = denoiser("llama", METHODS["esolm"])
    widths = widths_of(net)
    nothing = torch.zeros(2, LENGTH, dtype=torch.bool)
    generate(net, METHODS["esolm"], nothing.long(), nothing, Decoding(1), 0)
    assert widths == [1, *[2] * (LENGTH - 1)]  # the token decoded last, and the candidate
    widths.clear()
    order = torch.arange(LENGTH).expand(2, -1)
    counts = (torch.tensor([4, 4]), torch.tensor([9, 9]))
    log_likelihood(net, METHODS["esolm"], torch.full((2, LENGTH), 3), order, *counts, 1)
    assert widths == [6, 3, 3, 3, 2]  # the clean tokens, the latent token and the target


def test_cache_is_for_decoders_in_eval_mode_under_causal_rules():
    decoder = denoiser("llama", METHODS["esolm"])
    assert supports_cache(decoder, METHODS["esolm"], LENGTH)
    assert not supports_cache(decoder, METHODS["scdm"], LENGTH)
    left = replace(METHODS["esolm"], order=left_to_right, readout="left")
    assert not supports_cache(decoder, left, LENGTH)
    counter = decoder.register_forward_hook(lambda module, inputs, output: None)
    assert not supports_cache(decoder, METHODS["esolm"], LENGTH)
    counter.remove()
    decoder.model.register_forward_hook(lambda module, inputs, output: None)
    assert supports_cache(decoder, METHODS["esolm"], LENGTH)
    assert not supports_cache(decoder.train(), METHODS["esolm"], LENGTH)
    assert not supports_cache(denoiser("modernbert", METHODS["esolm"]), METHODS["esolm"], LENGTH)
