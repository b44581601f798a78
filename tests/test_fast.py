"""The optimized path against the reference: equal logits along its trajectory, equal samples in any parts."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from latent_tokens import (
    METHODS,
    Decoding,
    Size,
    Transformer,
    entropy,
    generate,
    growing,
    left_to_right,
    loss,
    margin,
    random,
    reverse_process,
    top_prob,
)
from latent_tokens.core import sampling as reference
from latent_tokens.core.sampling import decode, finish, reference_logits
from latent_tokens.core.state import start
from latent_tokens.network import memory, transformer
from latent_tokens.network.fast import FastCandidateLogits, microbatches, qkv_table

VOCAB, LENGTH = 7, 12
STARTS = torch.tensor([0, 3, 0, 5, 1, 2, 9])
LENGTHS = torch.tensor([12, 12, 8, 12, 4, 12, 10])
ORDER = torch.arange(LENGTH).expand(7, -1)


def scrambled(known):
    """An order of a user, in which the first positions have the same order in any length."""
    return (torch.arange(known.shape[1]) * 7 % 13).argsort().expand_as(known)


DECODINGS = {
    "uniform": Decoding(1),
    "left to right": Decoding(1, order=left_to_right),
    "top-prob of 4": Decoding(candidates=4),
    "top-prob of all": Decoding(candidates="all"),
    "top-prob of ever more": Decoding(candidates=growing),
    "as printed of 3": Decoding(candidates=3, refresh=False, temperature=0.7, top_p=0.9),
    "two a step": Decoding(1, tokens_per_step=2),
    "entropy, two a step of 5": Decoding(candidates=5, tokens_per_step=2, confidence=entropy),
    "annealed noise, two a step of 5": Decoding(5, tokens_per_step=2, confidence_noise=4.5),
    "random latents": Decoding(1, latent_policy=random),
    "a given order": Decoding(1, order=scrambled),
    "reverse process": Decoding(1, tokens_per_step=reverse_process(5)),
    "off-distribution": Decoding(1, off_distribution=True),
    "threshold": Decoding(candidates="all", threshold=0.25),
    "entropy bound": Decoding(candidates="all", entropy_bound=3.5),
    "factor": Decoding(candidates="all", factor=2.4),
}


def untrained(positions="both", **options):
    torch.manual_seed(1)
    return Transformer(Size(32, 2, 3), VOCAB, LENGTH, positions, **options).eval()


def problem(batch=7):
    """Return rows with a known prefix, of another length in each row."""
    tokens = torch.randint(0, VOCAB, (batch, LENGTH), generator=torch.Generator().manual_seed(5))
    kind = torch.arange(batch) % 7
    return tokens, torch.arange(LENGTH) < STARTS[kind, None], LENGTHS[kind]


def with_latents(method, decoding):
    """Return the decoding with half of the masked tokens as latent tokens, if the method supports it."""
    has_latents = method.latent_control == "free"
    has_latents |= method.latent_control == "fixed" and decoding.off_distribution
    return replace(decoding, latents=lambda masked: masked // 2) if has_latents else decoding


def same(a, b, rows=slice(None)):
    """Return whether the results are equal. `rows` are those of the second in the first."""
    names = ("tokens", "order", "processed", "passes")
    return all(torch.equal(getattr(a, name)[rows], getattr(b, name)) for name in names)


def follow(net, method, decoding, compare, batch=7):
    """Decode with the reference. Pass each step's logits and other arguments to `compare`."""
    tokens, known, lengths = problem(batch)
    state = start(net, method, tokens, known, decoding, 3, None, lengths)

    def look(plan, tokens, layout):
        expected = reference_logits(net, method, plan, tokens, layout)
        compare(expected, plan, tokens, layout)
        return expected

    decode(net, method, decoding, state, torch.arange(batch), look)
    assert (state.num_masked == 0).all()
    return finish(state)


def check_equal(net, method, decoding, batch=9):
    """Compare with the reference: the logits of every step, and samples in a batch, turned and alone.

    Nine rows are enough for the packed weights of a cache, which a row alone does not have.
    """
    decoding = with_latents(method, decoding)
    order = torch.arange(LENGTH).expand(batch, -1)
    look = FastCandidateLogits(net, method, torch.arange(batch), order, qkv_table(net, 300, LENGTH))

    def compare(expected, *shown):
        logits = look(*shown)
        torch.testing.assert_close(logits[..., :VOCAB], expected[..., :VOCAB], atol=1e-5, rtol=0)
        assert (logits[..., VOCAB:] == -torch.inf).all()

    samples = follow(net, method, decoding, compare, batch)
    tokens, known, lengths = problem(batch)
    for rows in (torch.arange(batch), torch.arange(batch).flip(0), *torch.tensor([[1], [2], [6]])):
        longest = int(lengths[rows].max())  # alone, a sequence ends where the row does
        inputs = (tokens[rows, :longest], known[rows, :longest], decoding, 3)
        part = generate(net, method, *inputs, rows=rows, lengths=lengths[rows])
        expected = replace(samples, tokens=samples.tokens[:, :longest], order=samples.order[:, :longest])
        assert same(expected, part, rows)


def test_optimized_equals_reference_in_any_batch(monkeypatch, any_method, any_decoding):
    monkeypatch.setattr(transformer, "TOKENS_PER_GROUP", 3 * LENGTH)  # groups of three rows or more
    if callable(any_decoding.tokens_per_step) and any_method.window is not None:
        any_method = replace(any_method, window=LENGTH)  # a step may decode as many
    check_equal(untrained(), any_method, any_decoding)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_optimized_equals_reference_per_encoding(any_method, positions):
    """One decoding is enough: an encoding acts in the first layer and on keys and queries only."""
    decoding = DECODINGS["top-prob of 4" if not any_method.is_left_to_right else "uniform"]
    check_equal(untrained(positions), any_method, decoding)


@pytest.mark.parametrize("positions", ["rotary", "learned", "both"])
@pytest.mark.parametrize("confidence", [top_prob, margin, entropy])
@pytest.mark.parametrize("name", ["mdm", "sidm", "scdm", "esolm"])
def test_sample_is_the_same_alone_and_in_any_batch(name, confidence, positions):
    """Nothing is given: with rotary positions, candidates are equal up to rounding, which batches change."""
    net, method = untrained(positions), METHODS[name]
    for decoding in (Decoding(8, confidence=confidence, tokens_per_step=count) for count in (1, 2)):
        made = [
            function(net, method, nothing.long(), nothing, decoding, 5, rows=rows)
            for function in (reference.generate, generate)
            for rows in (torch.arange(12), torch.arange(3), torch.tensor([2]))
            for nothing in [torch.zeros(len(rows), LENGTH, dtype=torch.bool)]
        ]
        for other in made:
            assert torch.equal(other.order[:3][-1], made[0].order[2])
            assert torch.equal(other.tokens[:3][-1], made[0].tokens[2])


@pytest.mark.parametrize(
    ("name", "options", "slots"),
    [
        ("arm", {}, 1),
        ("esolm", {"latents": 0, "candidates": 1}, 2),  # the token just decoded, and the candidate
        ("esolm", {"latents": 3, "candidates": 4}, 1 + 3 + 4),
        ("esolm", {"latents": "all", "candidates": 3, "tokens_per_step": 2}, 2 + LENGTH),
    ],
)
def test_causal_cache_equals_recomputation_without_clean_slots(name, options, slots):
    net, rows = untrained(), torch.arange(7)
    cached, anew = (FastCandidateLogits(net, METHODS[name], rows, ORDER, None) for _ in range(2))
    anew.cache, computed, widths = None, [], []
    counter = net.embedding.register_forward_hook(
        lambda module, inputs, output: computed.append(inputs[0].shape[1])
    )

    def compare(expected, *shown):
        found = cached(*shown)
        widths.append(computed[-1])
        torch.testing.assert_close(found, anew(*shown), atol=1e-5, rtol=0)

    follow(net, METHODS[name], Decoding(**options), compare)
    counter.remove()
    assert max(widths[1:]) <= slots


@pytest.mark.parametrize(
    ("name", "options"), [("scdm", {"candidates": 3, "latents": 2}), ("esolm", {"latents": 2}), ("arm", {})]
)
def test_a_batch_in_parts_gives_the_rows_of_a_whole_one(monkeypatch, name, options):
    net, (tokens, known, lengths), decoding = untrained(), problem(300), Decoding(**options)
    whole = generate(net, METHODS[name], tokens, known, decoding, 3, lengths=lengths)
    monkeypatch.setattr(memory, "DECODING_BYTES", memory.DECODING_BYTES // 200)
    cut = microbatches(
        net, METHODS[name], start(net, METHODS[name], tokens, known, decoding, 3, None, lengths), decoding
    )
    assert len(cut) > 3
    assert torch.cat(cut).sort().values.tolist() == list(range(300))
    assert same(generate(net, METHODS[name], tokens, known, decoding, 3, lengths=lengths), whole)


@pytest.mark.parametrize("name", ["scdm", "esolm", "arm"])
def test_a_batch_without_rows_is_decoded(nano, name):
    nothing = torch.zeros(0, 16, dtype=torch.bool)
    for module in (generate, reference.generate):
        samples = module(nano, METHODS[name], nothing.long(), nothing, Decoding(1), 3)
        assert samples.tokens.shape == (0, 16)
        assert samples.forward_passes == 0


@pytest.mark.parametrize("name", ["scdm", "mdm", "esolm", "arm"])
def test_a_watcher_sees_the_steps_of_the_reference(name, monkeypatch):
    net, (tokens, known, lengths), seen = untrained(), problem(), ({}, {})
    known &= METHODS[name].readout == "in_place"
    monkeypatch.setattr("latent_tokens.network.fast.decoding_rows", lambda net, candidates, width: 2)
    for module, found in zip((generate, reference.generate), seen, strict=True):

        def watch(step, found=found):
            for i, key in enumerate(zip(step.rows.tolist(), step.number.tolist(), strict=True)):
                shown = int(step.layout.num_shown[i])
                found[key] = (
                    step.layout.positions[i, :shown],
                    step.chosen[i],
                    step.tokens[i],
                    step.probabilities[i, :shown],
                )

        decoding = with_latents(METHODS[name], Decoding(1))
        module(net, METHODS[name], tokens, known, decoding, 3, lengths=lengths, on_step=watch)
    assert seen[0].keys() == seen[1].keys()
    for key, (*exact, probabilities) in seen[0].items():
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(exact, seen[1][key], strict=False))
        torch.testing.assert_close(probabilities, seen[1][key][-1])


def test_samples_can_be_trained_on(nano):
    nothing = torch.zeros(2, 16, dtype=torch.bool)
    sample = generate(nano, METHODS["esolm"], nothing.long(), nothing, Decoding(1), 0)
    assert not any(getattr(sample, name).is_inference() for name in ("tokens", "order", "processed"))


def test_training_mode_uses_the_reference_with_dropout():
    net, (tokens, known, lengths), made = untrained(dropout=0.5).train(), problem(), []
    for module in (generate, reference.generate):
        torch.manual_seed(0)
        made.append(module(net, METHODS["scdm"], tokens, known, Decoding(1), 3, lengths=lengths))
    assert same(*made)
    assert not same(
        made[0], generate(net.eval(), METHODS["scdm"], tokens, known, Decoding(1), 3, lengths=lengths)
    )


@pytest.mark.parametrize("name", ["mdm", "scdm", "esolm", "arm"])
def test_bf16_logits_are_as_near_to_the_reference_as_it_to_fp32(name):
    exact, found, decoding = untrained(), [], with_latents(METHODS[name], Decoding(1))
    net = deepcopy(exact).bfloat16()
    look = FastCandidateLogits(net, METHODS[name], torch.arange(7), ORDER, qkv_table(net, 300, LENGTH))

    def compare(expected, *shown):
        true = reference_logits(exact, METHODS[name], *shown)
        found.append(torch.stack([look(*shown) - expected, expected - true])[..., :VOCAB].flatten(1))

    follow(net, METHODS[name], decoding, compare)
    fast, rounding = torch.cat(found, dim=1).square().mean(1).sqrt()
    assert fast <= rounding
    assert 0 < rounding < 0.02


@pytest.mark.parametrize("name", ["scdm", "esolm", "arm"])
def test_cache_has_the_precision_of_autocast(name):
    torch.manual_seed(0)
    net, nothing = Transformer(Size(32, 2, 3), 7, 12).eval(), torch.zeros(8, 12, dtype=torch.bool)
    with torch.autocast("cpu", torch.bfloat16):
        made = [
            way(net, METHODS[name], nothing.long(), nothing, Decoding(1), 0)
            for way in (generate, reference.generate)
        ]
    assert made[0].processed.equal(made[1].processed)
    assert (made[0].tokens == made[1].tokens).double().mean() > 0.9


def test_rows_of_unlike_length_are_not_decoded_together():
    known = torch.arange(128) < torch.tensor([100, 20, 21, 101, 22, 100] * 20)[:, None]
    net, decoding = Transformer(Size(32, 2, 3), 7, 128).eval(), Decoding(candidates=8, latents=0)
    state = start(net, METHODS["scdm"], known.long(), known, decoding, 0, None, None)
    cut = microbatches(net, METHODS["scdm"], state, decoding)
    assert sorted(row for part in cut for row in part.tolist()) == list(range(120))
    assert [len({int(known[row].sum()) // 50 for row in part}) for part in cut] == [1] * len(cut)
    assert len(cut) == 2


class Favourite(Transformer):
    """A subclass with another forward pass."""

    def forward(self, ids, positions, mask):
        logits = super().forward(ids, positions, mask).clone()
        logits[..., 3] += 100
        return logits


def test_a_subclass_or_a_hook_is_asked_as_it_is():
    nothing = torch.zeros(2, 4, dtype=torch.bool)
    net = Favourite(Size(32, 2, 3), 7, 4).eval()
    assert generate(net, METHODS["mdm"], nothing.long(), nothing, Decoding(1), 0).tokens.eq(3).all()
    assert loss(net, METHODS["mdm"], nothing.long(), nothing, torch.Generator().manual_seed(0)) > 20
    net, calls = Transformer(Size(32, 2, 3), 7, 4).eval(), []
    net.register_forward_hook(lambda *call: calls.append(call))
    generate(net, METHODS["mdm"], nothing.long(), nothing, Decoding(1), 0)
    assert len(calls) == 4


@pytest.mark.parametrize("part", ["blocks.1", "blocks.2.qkv", "embedding", "norm"])
@pytest.mark.parametrize("name", ["scdm", "esolm"])
def test_hooks_inside_a_network_act_as_in_the_reference(part, name):
    net, method = untrained(), METHODS[name]
    nothing = torch.zeros(8, LENGTH, dtype=torch.bool)
    arguments = (nothing.long(), nothing, Decoding(candidates=4), 0)
    plain = generate(net, method, *arguments)
    patched = net.get_submodule(part).register_forward_hook(lambda module, inputs, output: 2 * output)
    samples = generate(net, method, *arguments)
    assert torch.equal(samples.tokens, reference.generate(net, method, *arguments).tokens)
    assert not torch.equal(samples.tokens, plain.tokens)

    slots = torch.arange(LENGTH) > torch.arange(8)[:, None]
    inputs = (plain.tokens, plain.order, torch.ones(8, LENGTH, LENGTH, dtype=torch.bool))
    torch.testing.assert_close(net(*inputs, slots), net(*inputs)[slots], atol=1e-4, rtol=1e-4)
    patched.remove()


def test_a_replaced_projection_is_used():
    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    torch.manual_seed(0)
    net, ids = Transformer(Size(32, 2, 3), 7, 12).eval(), torch.randint(0, 7, (4, 12))
    net.blocks[-1].qkv = Doubled(32, 96, bias=False)
    mask, wanted = torch.ones(4, 12, 12, dtype=torch.bool), torch.arange(12).expand(4, 12) > 5
    places = torch.arange(12).expand(4, 12)
    torch.testing.assert_close(
        net(ids, places, mask)[wanted], net(ids, places, mask, wanted), atol=1e-5, rtol=1e-5
    )


def test_rotary_positions_reach_past_the_length_learned():
    torch.manual_seed(0)
    net, nothing = Transformer(Size(32, 2, 3), 7, 4, "rotary").eval(), torch.zeros(2, 9, dtype=torch.bool)
    made = [
        way(net, METHODS["arm"], nothing.long(), nothing, Decoding(1), 0)
        for way in (generate, reference.generate)
    ]
    assert same(*made)


def test_an_empty_sequence_is_what_it_is():
    empty = torch.zeros(2, 0, dtype=torch.bool)
    assert generate(
        Transformer(Size(32, 2, 3), 7, 4).eval(), METHODS["scdm"], empty.long(), empty, Decoding(1), 0
    ).tokens.shape == (2, 0)


class HostReads(TorchFunctionMode):
    """Count the calls that read the values of a tensor, for which the host waits on an accelerator."""

    NAMES = ("item", "tolist", "nonzero", "cpu", "equal", "__bool__", "__int__", "__float__", "__index__")

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += getattr(function, "__name__", "") in self.NAMES
        return function(*args, **(kwargs or {}))


class DataDependentShapes(TorchDispatchMode):
    """Count the operations whose result has a shape that depends on values, for which the host waits."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in ("index", "index_put", "index_put_"):
            self.count += any(index is not None and index.dtype == torch.bool for index in args[1])
        self.count += name in ("masked_select", "nonzero", "unique")
        return function(*args, **(kwargs or {}))


def host_reads(net, method, known, decoding):
    reads, shapes = HostReads(), DataDependentShapes()
    with reads, shapes:
        generate(net, method, torch.zeros_like(known, dtype=torch.int64), known, decoding, 0)
    return reads.count + shapes.count


@pytest.mark.parametrize(
    "decoding", [{}, {"latents": 2, "candidates": 3}, {"temperature": 0.8, "top_p": 0.9}]
)
@pytest.mark.parametrize("name", METHODS)
def test_a_step_reads_once_from_the_device(name, decoding):
    method = METHODS[name]
    refused = {"latents"} if method.latent_control != "free" else set()
    if refused or method.is_left_to_right:
        refused.add("candidates")
    decoding = {key: value for key, value in decoding.items() if key not in refused}
    net, starts = untrained(), torch.tensor([[0], [0], [3 * (method.readout == "in_place")]])
    counts = []
    for steps in (5, 11):
        known = torch.arange(LENGTH) < LENGTH - steps + starts.clamp(max=steps - 1)
        counts.append(host_reads(net, method, known, Decoding(**decoding)))
    assert counts[1] - counts[0] == 6
