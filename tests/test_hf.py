"""Networks of transformers behind the Denoiser contract: the same logits in any order, with a cache too."""

from dataclasses import replace

import pytest
import torch
import transformers
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask
from torch.optim.swa_utils import AveragedModel

from helpers.refusals import refused
from helpers.tiny_models import DECODERS, VOCAB, WITH_WINDOW, tiny_model
from latent_tokens import (
    METHODS,
    Decoding,
    HuggingFaceDenoiser,
    generate,
    left_to_right,
    log_likelihood,
    loss,
)
from latent_tokens.core import sampling
from latent_tokens.core.attention import causal, dense_mask
from latent_tokens.core.distribution import nucleus
from latent_tokens.core.layout import Layout
from latent_tokens.core.likelihood import score_tokens
from latent_tokens.core.state import first_state
from latent_tokens.hf.language_models import FAMILIES, HuggingFaceCachedLogits, supports_cache

MASK = VOCAB - 1
LENGTH = 9


@pytest.fixture
def tokens():
    return torch.randint(3, MASK, (2, LENGTH), generator=torch.Generator().manual_seed(1))


def positions():
    return torch.arange(LENGTH).expand(2, -1)


def natural_mask(family):
    full = torch.ones(2, LENGTH, LENGTH, dtype=torch.bool)
    return full.tril() if family in DECODERS else full


def difference(first, second):
    return (first.float() - second.float()).abs().max().item()


@pytest.mark.parametrize(
    ("attention", "dtype", "tolerance"), [("sdpa", torch.float32, 1e-5), ("eager", torch.bfloat16, 2e-2)]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_models_own_forward(family, attention, dtype, tolerance, tokens):
    """Without a mask of ours. A window of 3 positions cuts attention in sliding layers, both ways."""
    for window in ({}, WITH_WINDOW.get(family, {})):
        model = tiny_model(family, attention, dtype, **window)
        own = model(input_ids=tokens).logits
        logits = HuggingFaceDenoiser(model, MASK)(tokens, positions(), natural_mask(family))
        assert logits.dtype == dtype
        assert own.float().std() > 0.5
        assert difference(logits, own) < tolerance


@pytest.mark.parametrize("family", FAMILIES)
def test_slots_may_be_reordered_and_selected(family, tokens):
    net = HuggingFaceDenoiser(tiny_model(family, **WITH_WINDOW.get(family, {})), MASK)
    turn = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(3))
    mask = natural_mask(family)
    straight = net(tokens, positions(), mask)
    turned = net(tokens[:, turn], positions()[:, turn], mask[:, turn][:, :, turn])
    assert difference(turned, straight[:, turn]) < 1e-5
    slots = torch.rand(2, LENGTH, generator=torch.Generator().manual_seed(2)) < 0.4
    selected = net(tokens, positions(), mask, slots)
    assert selected.shape == (int(slots.sum()), VOCAB)
    assert difference(selected, straight[slots]) < 1e-5


def test_jumps_of_positions_do_not_cut_attention(tokens):
    """Without a mask, transformers takes each jump for the start of another text."""
    model = tiny_model("llama")
    jumping = positions()[:, torch.tensor([0, 5, 1, 2, 7, 8, 3, 4, 6])]
    net = HuggingFaceDenoiser(model, MASK)
    answer = net(tokens, jumping, natural_mask("llama"))
    alone = model(input_ids=tokens, position_ids=jumping, use_cache=False).logits
    assert difference(alone[:, 0], answer[:, 0]) < 1e-5
    assert difference(alone[:, 1:], answer[:, 1:]) > 0.1


def test_block_mask_gives_the_logits_of_the_dense_mask(tokens):
    net = HuggingFaceDenoiser(tiny_model("qwen3", **WITH_WINDOW["qwen3"]), MASK)
    layout = Layout(positions(), torch.tensor([3, 5]), torch.tensor([9, 7]))
    every = torch.ones_like(tokens, dtype=torch.bool)
    dense = net(tokens, positions(), dense_mask(causal, layout), every)

    def visible(row, head, q, k):
        """The causal rule without runtime type checks, which FlexAttention cannot trace."""
        shown = layout.num_shown[row]
        return ((k <= q) & (q < shown) & (k < shown)) | (q == k)

    sparse = create_block_mask(visible, *tokens.shape[:1], None, *[tokens.shape[1]] * 2, device="cpu")
    torch.testing.assert_close(net(tokens, positions(), sparse, every), dense)


@pytest.mark.parametrize("tied", [True, False])
def test_new_mask_token_has_the_mean_embedding(tied, tokens):
    model = tiny_model("llama", tie_word_embeddings=tied)
    own = model(input_ids=tokens).logits
    net = HuggingFaceDenoiser(model, None)
    assert (net.mask_id, net.vocab_size) == (VOCAB, VOCAB)
    weight = model.get_input_embeddings().weight
    assert len(weight) == VOCAB + 1
    torch.testing.assert_close(weight[VOCAB], weight[:VOCAB].mean(0))
    assert difference(net(tokens, positions(), natural_mask("llama"))[..., :VOCAB], own) < 1e-5
    layout = Layout(positions(), torch.tensor([3, 3]), torch.tensor([9, 9]))
    logits = METHODS["scdm"].logits(net, tokens, layout)
    assert (logits[..., VOCAB] == -torch.inf).all()
    assert logits[..., :VOCAB].isfinite().all()


@pytest.mark.parametrize("tied", [True, False])
def test_new_mask_token_is_saved_with_its_bias(tied, tokens, tmp_path):
    model = HuggingFaceDenoiser(tiny_model("bert", tie_word_embeddings=tied), None).model
    nn.init.normal_(model.get_output_embeddings().bias)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)


@pytest.mark.parametrize("method", ["mdm", "esolm"])
@pytest.mark.parametrize("wrap", [lambda net: net, AveragedModel], ids=["plain", "wrapped"])
def test_columns_from_vocab_size_on_are_no_tokens(method, wrap):
    """The logits of a vocabulary that is padded to a round number, as that of Qwen."""
    inner = HuggingFaceDenoiser(tiny_model("llama"), None)
    inner.vocab_size, inner.method = 5, METHODS[method]
    padding = torch.where(torch.arange(VOCAB + 1) < 5, 0.0, 9.0)
    inner.model.lm_head.register_forward_hook(lambda head, inputs, logits: logits + padding)
    net = wrap(inner).eval()
    known, order = torch.zeros(4, 6, dtype=torch.bool), torch.arange(6).expand(4, -1)
    drafts = 2 if method == "esolm" else 0
    for setting in ({}, {"drafts": drafts, "order": "left_to_right"}):
        tokens = generate(net, None, known.long(), known, seed=0, **setting).tokens
        assert tokens.max() < 5
    counts = torch.zeros(4, dtype=torch.long), torch.full((4,), 6)
    padded = log_likelihood(net, METHODS[method], tokens, order, *counts)
    padding[5:] = -torch.inf
    torch.testing.assert_close(log_likelihood(net, METHODS[method], tokens, order, *counts), padded)


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "bert"])
def test_new_mask_token_keeps_the_config_of_the_caller(family):
    model = tiny_model(family)
    config = model.config
    net = HuggingFaceDenoiser(model, None)
    assert (config.vocab_size, net.model.config.vocab_size) == (VOCAB, VOCAB + 1)
    configs = {id(module.config) for module in model.modules() if hasattr(module, "config")}
    assert configs == {id(model.config)}


@pytest.mark.parametrize("family", DECODERS)
def test_shifted_readout_is_the_autoregressive_model_itself(family, tokens):
    """It reads BOS and all tokens but the last, at positions from 0, as GPT-2's learned embedding needs."""
    model = tiny_model(family)
    text = torch.cat([torch.full((2, 1), model.config.bos_token_id), tokens[:, :-1]], 1)
    own = model(input_ids=text).logits.double().log_softmax(-1).gather(2, tokens[:, :, None])[:, :, 0]
    net = HuggingFaceDenoiser(model, None, "shifted")
    assert model.get_input_embeddings().num_embeddings == VOCAB
    lengths = torch.full((2,), LENGTH)
    ours = log_likelihood(net, net.method, tokens, positions(), torch.zeros_like(lengths), lengths)
    assert difference(ours, own) < 1e-5


@pytest.mark.parametrize("family", ["qwen2", "gpt2"])
def test_left_readout_reads_the_slot_before(family, tokens):
    """As Dream and DiffuGPT: every slot attends to every other, and position i is read at i - 1."""
    net = HuggingFaceDenoiser(tiny_model(family), MASK, "left")
    layout = Layout(positions(), torch.tensor([4, 6]), torch.tensor([9, 9]))
    ids = net.method.input_ids(tokens, layout, MASK)
    in_place = net(ids, positions(), torch.ones(2, LENGTH, LENGTH, dtype=torch.bool))
    logits = net.method.logits(net, tokens, layout)
    assert difference(logits[:, 1:, :MASK], in_place[:, :-1, :MASK]) < 1e-5
    targets = layout.shown & ~layout.clean
    assert difference(net.method.logits_at(targets, net, tokens, layout).exp(), logits[targets].exp()) < 1e-5


@pytest.mark.parametrize("family", ["qwen2", "bert"])
def test_loss_with_and_without_slots_is_equal(family, tokens):
    net = HuggingFaceDenoiser(tiny_model(family), MASK)
    known = torch.zeros_like(tokens, dtype=torch.bool)
    values = []
    for supports_slots in (True, False):
        net.supports_slots = supports_slots
        values.append(loss(net, METHODS["scdm"], tokens, known, torch.Generator().manual_seed(0)))
    assert difference(*values) < 1e-5


def adapter(*arguments, **changes):
    return lambda: HuggingFaceDenoiser(tiny_model("llama", **changes), *arguments)


def bloom():
    config = transformers.BloomConfig(n_head=2, hidden_size=8, num_hidden_layers=1, vocab_size=VOCAB)
    return HuggingFaceDenoiser(transformers.BloomForCausalLM(config), 0)


def with_flash_attention():
    model = tiny_model("llama")
    model.config._attn_implementation = "flash_attention_2"
    return HuggingFaceDenoiser(model, MASK)


def past_the_end():
    net = HuggingFaceDenoiser(tiny_model("gpt2", max_position_embeddings=LENGTH - 1), MASK)
    net(torch.full((2, LENGTH), 3), positions(), natural_mask("gpt2"))


REFUSED = [  # the call, the value and the problem or fix that are named
    (adapter(VOCAB), "mask_id=12: the vocabulary has 12 tokens", "Use the id of a reserved one, or None"),
    (adapter(-1), "mask_id=-1", "the vocabulary has 12 tokens"),
    (adapter(1), "mask_id=1", "is the bos token"),
    (adapter(2, eos_token_id=[2, 5]), "mask_id=2", "is the eos token"),
    (adapter(MASK, "shifted"), "mask_id=11", "Use None"),
    (adapter(MASK, "left_of"), "readout=left_of", "in_place"),
    # GPT-2 sets 50256 by default, also for a smaller vocabulary
    (adapter(None, "shifted", bos_token_id=VOCAB, eos_token_id=None), "BOS", "Set bos_token_id"),
    (bloom, "model=BloomForCausalLM", "Use a ForCausalLM"),
    (lambda: HuggingFaceDenoiser(tiny_model("llama").model, MASK), "model=LlamaModel", "Use a ForCausalLM"),
    (with_flash_attention, "attn_implementation=flash_attention_2", "sdpa, eager"),
    (past_the_end, "position 8", "Use shorter sequences"),
]


@pytest.mark.parametrize(("call", "value", "fix"), REFUSED)
def test_model_that_is_not_supported_is_refused(call, value, fix):
    with refused(value, fix):
        call()


def test_first_of_several_ends_stands_for_bos():
    several_ends = tiny_model("llama", bos_token_id=None, eos_token_id=[2, 3])
    assert HuggingFaceDenoiser(several_ends, None, "shifted").bos_id == 2


# The KV cache: the logits and samples of the pass without one.

DECODINGS = {
    "one": Decoding(1),
    "latents": Decoding(candidates=2, latents=3),
    "all": Decoding(candidates=3, latents="all", refresh=False),
    "two a step": Decoding(candidates=4, tokens_per_step=2, latents=lambda masked: masked // 2),
}


def denoiser(family, method, **changes):
    mask_id = None if method.readout == "shifted" else MASK
    return HuggingFaceDenoiser(tiny_model(family, **changes), mask_id, method.readout)


def rows_to_decode(method):
    """Prompts of different lengths, and with gaps if the method takes these."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(3, MASK, (4, LENGTH), generator=generator)
    known = torch.arange(LENGTH) < torch.tensor([0, 4, 1, 2])[:, None]
    if method.readout == "in_place":
        known |= torch.rand(4, LENGTH, generator=generator) < 0.2
    return tokens, known, torch.tensor([9, 7, 9, 6])


ESOLM = METHODS["esolm"]
PAIRS = {
    **{family: (family, ESOLM, DECODINGS["latents"], WITH_WINDOW.get(family, {})) for family in DECODERS},
    **{f"llama, {name}": ("llama", ESOLM, decoding, {}) for name, decoding in DECODINGS.items()},
    **{f"{family}, arm": (family, METHODS["arm"], Decoding(1), {}) for family in ("llama", "gpt2")},
}


@pytest.mark.parametrize(("family", "method", "decoding", "changes"), PAIRS.values(), ids=PAIRS)
def test_cached_logits_and_samples_are_the_references_in_any_batch(family, method, decoding, changes):
    net = denoiser(family, method, **changes)
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

    state = first_state(net, method, tokens, known, decoding, 3, None, lengths)
    sampling.decode(net, method, decoding, state, everyone, compare, nucleus)
    made = generate(net, method, tokens, known, decoding, 3, lengths=lengths)
    plain = sampling.generate(net, method, tokens, known, decoding, 3, lengths=lengths)
    row = torch.tensor([2])
    alone = generate(net, method, tokens[row], known[row], decoding, 3, rows=row)
    for name in ("tokens", "order", "tokens_processed"):
        assert torch.equal(getattr(made, name), getattr(plain, name))
        assert torch.equal(getattr(made, name)[row], getattr(alone, name))


@pytest.mark.parametrize("latents", [2, "all"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_cached_likelihood_is_that_of_the_steps(family, latents):
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(3, MASK, (3, LENGTH), generator=generator)
    order = torch.stack([torch.randperm(6, generator=generator) for _ in tokens])
    order = torch.cat([order, torch.arange(6, LENGTH).expand(3, -1)], dim=1)
    counts = torch.tensor([0, 4, 1]), torch.tensor([LENGTH, 7, 6])
    arguments = (denoiser(family, ESOLM), ESOLM, tokens, order, *counts, latents)
    expected = score_tokens(*arguments).log_probabilities
    torch.testing.assert_close(log_likelihood(*arguments), expected, atol=1e-5, rtol=1e-5)
    assert (expected != 0).sum() == LENGTH + 3 + 5


def test_cache_computes_new_slots_only():
    net = denoiser("llama", ESOLM)
    widths = []
    net.model.register_forward_pre_hook(
        lambda model, positional, named: widths.append(named["input_ids"].shape[1]), with_kwargs=True
    )
    nothing = torch.zeros(2, LENGTH, dtype=torch.bool)
    generate(net, ESOLM, nothing.long(), nothing, Decoding(1), 0)
    assert widths == [1, *[2] * (LENGTH - 1)]  # the token decoded last, and the candidate
    widths.clear()
    order = torch.arange(LENGTH).expand(2, -1)
    counts = (torch.tensor([4, 4]), torch.tensor([9, 9]))
    log_likelihood(net, ESOLM, torch.full((2, LENGTH), 3), order, *counts, 1)
    assert widths == [6, 3, 3, 3, 2]  # the clean tokens, the latent token and the target


def test_cache_is_for_decoders_in_eval_mode_under_causal_rules():
    decoder = denoiser("llama", ESOLM)
    assert supports_cache(decoder, ESOLM, LENGTH)
    assert not supports_cache(decoder, METHODS["scdm"], LENGTH)
    assert not supports_cache(decoder, replace(ESOLM, order=left_to_right, readout="left"), LENGTH)
    counter = decoder.register_forward_hook(lambda module, inputs, output: None)
    assert not supports_cache(decoder, ESOLM, LENGTH)
    counter.remove()
    decoder.model.register_forward_hook(lambda module, inputs, output: None)
    assert supports_cache(decoder, ESOLM, LENGTH)
    assert not supports_cache(decoder.train(), ESOLM, LENGTH)
    assert not supports_cache(denoiser("modernbert", ESOLM), ESOLM, LENGTH)


@pytest.mark.parametrize("method", ["esolm", "ar-latents"])
def test_drafts_of_a_language_model_take_fewer_passes_and_change_no_token(method, tokens):
    net = HuggingFaceDenoiser(tiny_model("llama"), MASK)
    known = positions() < 2
    for latents in (0, 2, "all"):
        decoding = Decoding(order=left_to_right, latents=latents, temperature=0)
        plain = generate(net, METHODS[method], tokens, known, decoding)
        drafted = generate(net, METHODS[method], tokens, known, replace(decoding, drafts=3))
        assert drafted.tokens.equal(plain.tokens)
        assert (drafted.passes < plain.passes).any()
