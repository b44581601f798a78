"""The optimized path against the reference: equal logits along its trajectory, equal samples in any parts."""

from copy import deepcopy
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.oracle import Oracle, small_joint
from latent_tokens import (
    METHODS,
    Decoding,
    Size,
    Transformer,
    entropy,
    generate,
    given,
    left_to_right,
    loss,
    margin,
    random,
    top_prob,
)
from latent_tokens.core import sampling as reference
from latent_tokens.core.confidence import Candidates, most_confident
from latent_tokens.core.sampling import confidence_of_step, decode, finish, reference_logits, sample_tokens
from latent_tokens.core.state import start
from latent_tokens.network import memory, transformer
from latent_tokens.network.fast import FastCandidateLogits, microbatches, qkv_table

VOCAB, LENGTH = 7, 12
STARTS = torch.tensor([0, 3, 0, 5, 1, 2, 9])
LENGTHS = torch.tensor([12, 12, 8, 12, 4, 12, 10])
ORDER = torch.arange(LENGTH).expand(7, -1)
NEAR = 1e-5  # in probability: rounding may turn a choice that is so close
DECODINGS = {
    "uniform": Decoding(1),
    "left to right": Decoding(1, order=left_to_right),
    "top-prob of 4": Decoding(candidates=4),
    "top-prob of all": Decoding(candidates="all"),
    "as printed of 3": Decoding(candidates=3, refresh=False, temperature=0.7, top_p=0.9),
    "two a step": Decoding(1, tokens_per_step=2),
    "entropy, two a step of 5": Decoding(candidates=5, tokens_per_step=2, confidence=entropy),
    "annealed noise of 4": Decoding(candidates=4, confidence_noise=4.5),
    "random latents": Decoding(1, latent_policy=random),
    "a given order": Decoding(1, order=given([7, 2, 11, 0, 5, 9, 1, 10, 3, 8, 6, 4])),
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
    is_free = method.latent_control == "free"
    return replace(decoding, latents=lambda masked: masked // 2) if is_free else decoding


def follow(net, method, decoding, compare):
    """Decode with the reference, and pass each step's candidate logits and other arguments to `compare`."""
    tokens, known, lengths = problem()
    state = start(net, method, tokens, known, decoding, 3, None, lengths)

    def look(plan, tokens, layout):
        expected = reference_logits(net, method, plan, tokens, layout)
        compare(expected, plan, tokens, layout)
        return expected

    decode(net, method, decoding, state, torch.arange(len(tokens)), look)
    assert (state.num_masked == 0).all()


def test_the_candidates_logits_are_the_references_at_every_step(monkeypatch, any_method, any_decoding):
    assert_equal_logits(monkeypatch, untrained(), any_method, any_decoding)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_candidate_logits_equal_the_reference_per_encoding(monkeypatch, any_method, positions):
    """One decoding is enough: an encoding acts in the first layer and on keys and queries only."""
    decoding = DECODINGS["top-prob of 4" if not any_method.is_left_to_right else "uniform"]
    assert_equal_logits(monkeypatch, untrained(positions), any_method, decoding)


def assert_equal_logits(monkeypatch, net, any_method, decoding):
    monkeypatch.setattr(
        transformer, "TOKENS_PER_GROUP", 3 * LENGTH
    )  # the last layer attends in groups of three rows or more
    decoding = with_latents(any_method, decoding)
    look = FastCandidateLogits(net, any_method, torch.arange(7), ORDER, qkv_table(net, 300, LENGTH))

    def compare(expected, *shown):
        found = look(*shown)
        torch.testing.assert_close(found[..., :VOCAB], expected[..., :VOCAB], atol=1e-5, rtol=0)
        assert (found[..., VOCAB:] == -torch.inf).all()

    follow(net, any_method, decoding, compare)


def close_calls(net, method, decoding, state):
    """Decode with the reference. Return (row, index in its order) of every choice within NEAR of another."""
    found = set()

    num_to_decode = state.num_masked

    def look(plan, tokens, layout):
        logits = reference_logits(net, method, plan, tokens, layout)
        step, streams = plan.on_device, deepcopy(state.streams)
        draw = partial(streams.uniform, step.rows, step.candidates)
        candidates = Candidates(logits, layout, step.candidates, tokens, step.number, draw)
        confidence, tolerance = confidence_of_step(decoding, plan, num_to_decode, draw)
        picks, *others = (
            most_confident(candidates, confidence, step.count, int(step.count.max()), tolerance + shift)
            for shift in (0, -NEAR / 2, NEAR / 2)
        )
        noise = streams.uniform(step.rows, step.count)
        drawn = [sample_tokens(logits, picks, decoding, noise + shift) for shift in (-NEAR, NEAR)]
        differ = (drawn[0] != drawn[1]) | (picks != others[0]) | (picks != others[1])
        for a, (row, clean, chosen) in enumerate(
            zip(step.rows.tolist(), layout.num_clean.tolist(), step.count.tolist(), strict=True)
        ):
            if differ[a, :chosen].any():
                found.update((row, clean + rank) for rank in range(chosen))
        return logits

    decode(net, method, decoding, state, torch.arange(len(state.tokens)), look)
    return found


def rows_that_differ(net, method, decoding, tokens, known, lengths):
    """Return how many rows differ from the reference. Each must first differ at a close choice."""
    fast = generate(net, method, tokens, known, decoding, 3, lengths=lengths)
    state = start(net, method, tokens, known, decoding, 3, None, lengths)
    close, slow = close_calls(net, method, decoding, state), finish(state)
    differs = (fast.order != slow.order) | (fast.tokens != slow.tokens).gather(1, slow.order)
    rows = differs.any(1).nonzero().flatten().tolist()
    print(f"{len(rows)} of {len(tokens)} rows differ, and there were {len(close)} close calls")
    assert all((row, int(differs[row].int().argmax())) in close for row in rows)
    assert fast.processed.tolist() == slow.processed.tolist()
    assert fast.forward_passes == slow.forward_passes
    return len(rows)


def test_samples_equal_the_reference_unless_choices_are_close(any_method, any_decoding):
    assert rows_that_differ(untrained(), any_method, with_latents(any_method, any_decoding), *problem()) <= 1


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


@pytest.mark.parametrize("positions", ["learned", "rotary", "both"])
def test_the_first_layer_looked_up_is_the_first_layer_computed(positions):
    net = untrained(positions)
    table = qkv_table(net, 300, LENGTH)
    assert table.shape == (net.table_rows, 3 * 32)
    assert qkv_table(net, 0, LENGTH) is None
    looks = [
        FastCandidateLogits(net, METHODS["scdm"], torch.arange(7), ORDER, either) for either in (table, None)
    ]

    def compare(expected, *shown):
        torch.testing.assert_close(*(look(*shown) for look in looks), atol=1e-5, rtol=0)

    follow(net, METHODS["scdm"], Decoding(candidates=3, latents=2), compare)


def same(a, b):
    found = [torch.equal(getattr(a, name), getattr(b, name)) for name in ("tokens", "order", "processed")]
    return all(found) and a.forward_passes == b.forward_passes


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("latents", [0, 3, "all"])
@pytest.mark.parametrize("name", ["esolm", "scdm"])
def test_cached_sampling_equals_recomputation(name, latents, count):
    torch.manual_seed(3)
    net = Transformer(Size(64, 4, 3), 50, 40, "rotary").eval()
    nothing = torch.zeros(8, 40, dtype=torch.bool)
    decoding = Decoding(1, latents=latents, tokens_per_step=count, top_p=0.9)
    fast = generate(net, METHODS[name], nothing.long(), nothing, decoding, 5)
    slow = reference.generate(net, METHODS[name], nothing.long(), nothing, decoding, 5)
    assert torch.equal(fast.tokens, slow.tokens)
    assert torch.equal(fast.order, slow.order)
    assert fast.forward_passes == -(-40 // count)


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


def test_a_row_follows_its_own_schedule_in_whichever_part_it_is(monkeypatch):
    monkeypatch.setattr(memory, "DECODING_BYTES", memory.DECODING_BYTES // 200)
    tokens, known, lengths = problem(300)
    schedule = torch.rand(300, LENGTH, generator=torch.Generator().manual_seed(2)).argsort(dim=1)
    made = generate(
        untrained(), METHODS["mdm"], tokens, known, Decoding(1, order=given(schedule)), 3, lengths=lengths
    )
    for row, (begin, length) in enumerate(zip(known.sum(1).tolist(), lengths.tolist(), strict=True)):
        assert made.order[row, begin:length].tolist() == [
            position for position in schedule[row].tolist() if begin <= position < length
        ]


@pytest.mark.parametrize("name", ["scdm", "esolm", "arm"])
@pytest.mark.parametrize("batch", [0, 1])
def test_a_batch_of_one_row_or_none_is_decoded(nano, name, batch):
    nothing, decoding = torch.zeros(batch, 16, dtype=torch.bool), with_latents(METHODS[name], Decoding(1))
    made = [
        module(nano, METHODS[name], nothing.long(), nothing, decoding, 3)
        for module in (generate, reference.generate)
    ]
    assert same(*made)
    assert made[0].tokens.shape == (batch, 16)


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


def test_another_denoiser_gets_the_reference():
    net, known = Oracle(small_joint()), torch.zeros(50, 3, dtype=torch.bool)
    made = [
        module(net, METHODS["scdm"], known.long(), known, Decoding(1, latents=1), 3)
        for module in (generate, reference.generate)
    ]
    assert same(*made)


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


class Loud(Transformer):
    """A subclass with another forward pass, which takes slots."""

    def forward(self, ids, positions, mask, slots=None):
        return super().forward(ids, positions, mask, slots) + torch.eye(8)[3] * 100


def test_subclass_that_takes_slots_is_called_in_generate():
    nothing = torch.zeros(2, 4, dtype=torch.bool)
    net = Loud(Size(32, 2, 3), 7, 4).eval()
    net.supports_slots = True
    assert generate(net, METHODS["scdm"], nothing.long(), nothing).tokens.eq(3).all()


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
@pytest.mark.parametrize("positions", ["both", "rotary"])
def test_a_step_reads_once_from_the_device(name, positions, decoding):
    method = METHODS[name]
    refused = {"latents"} if method.latent_control != "free" else set()
    if refused or method.is_left_to_right:
        refused.add("candidates")
    decoding = {key: value for key, value in decoding.items() if key not in refused}
    net, starts = untrained(positions), torch.tensor([[0], [0], [3 * (method.readout == "in_place")]])
    counts = []
    for steps in (5, 11):
        known = torch.arange(LENGTH) < LENGTH - steps + starts.clamp(max=steps - 1)
        counts.append(host_reads(net, method, known, Decoding(**decoding)))
    assert counts[1] - counts[0] == 6
