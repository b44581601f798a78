"""The optimized path against the reference: equal logits at every step, equal samples in any batch."""

from copy import deepcopy
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import latent_tokens as lt
from conftest import variants
from latent_tokens.core import sampling as reference
from latent_tokens.core.distribution import nucleus
from latent_tokens.core.sampling import decode, finish, reference_logits
from latent_tokens.core.state import first_state
from latent_tokens.network import block, memory
from latent_tokens.network.fast import FastCandidateLogits, decoding_microbatches, qkv_table
from latent_tokens.sizes import Size

VOCAB, LENGTH = 7, 12
STARTS = torch.tensor([0, 3, 0, 5, 1, 2, 9])
LENGTHS = torch.tensor([12, 12, 8, 12, 4, 12, 10])
ORDER = torch.arange(LENGTH).expand(7, -1)


def scrambled(known):
    """An order of a user, in which the first positions have the same order in any length."""
    return (torch.arange(known.shape[1]) * 7 % 13).argsort().expand_as(known)


def dilated(q, k, c):
    """A rule of a user. Two slots next to each other do not show that slots attend to later ones."""
    return (q - k) % 2 == 0


def dilated_causal(q, k, c):
    return (k <= q) & dilated(q, k, c)


RELATION = torch.rand(LENGTH, LENGTH, generator=torch.Generator().manual_seed(0))
RELATION[-1, -1] = 1  # the largest of any part, so that parts have its scale


def relevant_to_length(step):
    """Return the order by the relation of a sequence's positions, which are counted from the end."""
    length = step.order.shape[1]
    return lt.relevant(RELATION[-length:, -length:])(step)


TOP_PROB = lt.Decoding(candidates=4)
DECODINGS = {
    "uniform": lt.Decoding(1),
    "left to right": lt.Decoding(1, order=lt.left_to_right),
    "top-prob of all": lt.Decoding(candidates="all"),
    "top-prob of ever more": lt.Decoding(candidates=lt.growing),
    "as printed of 3": lt.Decoding(candidates=3, refresh=False, temperature=0.7, top_p=0.9),
    "entropy, two a step of 5": lt.Decoding(candidates=5, tokens_per_step=2, confidence=lt.entropy),
    "annealed noise, two a step of 5": lt.Decoding(5, tokens_per_step=2, confidence_noise=4.5),
    "random latents": lt.Decoding(1, latent_policy=lt.random),
    "relevant latents": lt.Decoding(candidates=2, latent_policy=relevant_to_length),
    "a given order": lt.Decoding(1, order=scrambled),
    "reverse process": lt.Decoding(1, tokens_per_step=lt.reverse_process(5)),
    "threshold": lt.Decoding(candidates="all", threshold=0.25),
    "entropy bound": lt.Decoding(candidates="all", entropy_bound=3.5),
    "factor": lt.Decoding(candidates="all", factor=2.4),
}
OWN_METHODS = {
    "dilated": lt.Method(lt.any_order, dilated),
    "dilated causal": lt.Method(lt.any_order, dilated_causal),
    "mdm-left": lt.METHODS["mdm-left"],
    "esolm, left": replace(lt.METHODS["esolm"], order=lt.left_to_right, readout="left"),
    "window, left": replace(lt.METHODS["ar-mtp-window-4"], readout="left"),
}
OFF = lt.Decoding(1, off_distribution=True)
WITHOUT_CACHE = ("top-prob of all", "as printed of 3", "random latents", "threshold")
# Every method with one decoding, every decoding with a cache, and pairs with code of their own.
PAIRS = {
    **{
        name: (method, lt.Decoding(1) if method.is_left_to_right else TOP_PROB)
        for name, method in (variants() | OWN_METHODS).items()
    },
    **{f"esolm, {label}": (lt.METHODS["esolm"], decoding) for label, decoding in DECODINGS.items()},
    **{f"scdm, {label}": (lt.METHODS["scdm"], DECODINGS[label]) for label in WITHOUT_CACHE},
    "mdm, off-distribution": (lt.METHODS["mdm"], OFF),
    "ar-mtp, off-distribution": (lt.METHODS["ar-mtp"], OFF),
    "ar-mtp, threshold": (lt.METHODS["ar-mtp"], DECODINGS["threshold"]),
    "window, two a step": (lt.METHODS["ar-mtp-window-4"], lt.Decoding(1, tokens_per_step=2)),
    "blocks, threshold": (lt.METHODS["block-mdm-4"], DECODINGS["threshold"]),
    "blocks, off-distribution": (lt.METHODS["block-mdm-4"], OFF),
}


def untrained(positions="both", **options):
    torch.manual_seed(1)
    return lt.Transformer(lt.Size(32, 2, 3), VOCAB, LENGTH, positions, **options).eval()


def problem(batch=7):
    """Return rows with a known prefix, of another length in each row."""
    tokens = torch.randint(0, VOCAB, (batch, LENGTH), generator=torch.Generator().manual_seed(5))
    kind = torch.arange(batch) % 7
    return tokens, torch.arange(LENGTH) < STARTS[kind, None], LENGTHS[kind]


def nothing(batch, length=LENGTH):
    """Return tokens and known positions of rows of which no token is given."""
    known = torch.zeros(batch, length, dtype=torch.bool)
    return known.long(), known


def with_latents(method, decoding):
    """Return the decoding with half of the masked tokens as latent tokens, if the method supports it."""
    has_latents = method.latent_control == "free" or decoding.off_distribution
    return replace(decoding, latents=lambda masked: masked // 2) if has_latents else decoding


def same(a, b, rows=slice(None)):
    """Return whether the results are equal. `rows` are those of the second in the first."""
    names = ("tokens", "order", "tokens_processed", "passes")
    return all(torch.equal(getattr(a, name)[rows], getattr(b, name)) for name in names)


def follow(net, method, decoding, compare, rows=None):
    """Decode with the reference. Pass each step's logits and other arguments to `compare`."""
    tokens, known, lengths = rows or problem()
    state = first_state(net, method, tokens, known, decoding, 3, None, lengths)

    def look(plan, tokens, layout):
        expected = reference_logits(net, method, plan, tokens, layout)
        compare(expected, plan, tokens, layout)
        return expected

    decode(net, method, decoding, state, torch.arange(len(tokens)), look, nucleus)
    assert (state.num_masked == 0).all()
    return finish(state)


def check_equal(net, method, decoding):
    """Compare with the reference: the logits of every step, and samples in a batch, turned and alone.

    Nine rows are enough for the packed weights of a cache, which a row alone does not have.
    """
    decoding = with_latents(method, decoding)
    tokens, known, lengths = problem(9)
    known[:, 0] |= method.readout == "left"
    order = torch.arange(LENGTH).expand(9, -1)
    look = FastCandidateLogits(net, method, torch.arange(9), order, qkv_table(net, 300, LENGTH))

    def compare(expected, *shown):
        if method.readout != "left":  # which runs the reference
            logits = look(*shown)
            torch.testing.assert_close(logits[..., :VOCAB], expected[..., :VOCAB], atol=1e-5, rtol=0)
            assert (logits[..., VOCAB:] == -torch.inf).all()

    samples = follow(net, method, decoding, compare, (tokens, known, lengths))
    for rows in (torch.arange(9), torch.arange(9).flip(0), torch.tensor([2])):
        longest = int(lengths[rows].max())  # alone, a sequence ends where the row does
        inputs = (tokens[rows, :longest], known[rows, :longest], decoding, 3)
        part = lt.generate(net, method, *inputs, rows=rows, lengths=lengths[rows])
        expected = replace(samples, tokens=samples.tokens[:, :longest], order=samples.order[:, :longest])
        assert same(expected, part, rows)


@pytest.mark.parametrize(("method", "decoding"), PAIRS.values(), ids=PAIRS)
def test_optimized_equals_reference_in_any_batch(monkeypatch, method, decoding):
    monkeypatch.setattr(block, "TOKENS_PER_GROUP", 3 * LENGTH)  # groups of three rows or more
    check_equal(untrained(), method, decoding)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("name", ["scdm", "esolm"])
def test_optimized_equals_reference_per_encoding(name, positions):
    check_equal(untrained(positions), lt.METHODS[name], TOP_PROB)


@pytest.mark.parametrize(
    ("name", "confidence"),
    [("mdm", lt.top_prob), ("esolm", lt.top_prob), ("esolm", lt.margin), ("esolm", lt.entropy)],
)
def test_equal_candidates_are_chosen_alike_in_any_batch(name, confidence):
    """Nothing is given: with rotary positions, candidates are equal up to rounding, which batches change."""
    net = untrained("rotary")
    for decoding in (lt.Decoding(8, confidence=confidence, tokens_per_step=count) for count in (1, 2)):
        samples = [
            function(net, lt.METHODS[name], *nothing(len(rows)), decoding, 5, rows=rows)
            for function in (reference.generate, lt.generate)
            for rows in (torch.arange(9), torch.arange(3), torch.tensor([2]))
        ]
        for other in samples:
            assert torch.equal(other.order[:3][-1], samples[0].order[2])
            assert torch.equal(other.tokens[:3][-1], samples[0].tokens[2])


@pytest.mark.parametrize("confidence", ["top_prob", "margin", "entropy"])
def test_first_of_equal_candidates_is_decoded_by_any_network(confidence):
    """Large weights round more than default ones: 7 of 60 such networks had margins that a batch ordered."""
    decoding = lt.Decoding(candidates="all", confidence=confidence)
    for seed in range(40):
        torch.manual_seed(seed)
        net = lt.Transformer(Size(64, 4, 4), 6, 36, "rotary").eval().requires_grad_(False)
        for weights in net.parameters():
            if weights.ndim > 1:
                weights.normal_(0, 0.3)
        first = []
        for rows in (torch.arange(5), torch.arange(2, 3)):
            given = nothing(len(rows), 36)
            with pytest.raises(StopIteration):
                lt.generate(
                    net, lt.METHODS["mdm"], *given, decoding, 1, rows=rows, on_step=partial(stop_at, first)
                )
        assert torch.equal(first[0].chosen[2], first[1].chosen[0]), seed


def stop_at(steps, step):
    """Keep the first step, and end decoding."""
    steps.append(step)
    raise StopIteration


@pytest.mark.parametrize(
    ("name", "options", "slots"),
    [
        ("arm", {}, 1),
        ("esolm", {"latents": 0, "candidates": 1}, 2),  # the token just decoded, and the candidate
        ("esolm", {"latents": 3, "candidates": 4}, 1 + 3 + 4),
        ("esolm", {"latents": "all", "candidates": 3, "tokens_per_step": 2}, 2 + LENGTH),
        ("block-mdm-4", {"candidates": 2}, 2 * 4),  # the block just finished, and the next
    ],
)
def test_cache_computes_new_slots_only(name, options, slots):
    net = untrained()
    widths = []
    net.embedding.register_forward_hook(lambda module, inputs, output: widths.append(inputs[0].shape[1]))
    look = FastCandidateLogits(net, lt.METHODS[name], torch.arange(7), ORDER, None)
    computed = []

    def compare(expected, *shown):
        look(*shown)
        computed.append(widths[-1])

    follow(net, lt.METHODS[name], lt.Decoding(**options), compare)
    assert max(computed[1:]) <= slots


@pytest.mark.parametrize(
    ("name", "options"), [("mdm", {}), ("scdm", {"candidates": 3, "latents": 2}), ("esolm", {"latents": 2})]
)
def test_batch_decoded_in_parts_gives_equal_samples(monkeypatch, name, options):
    net = untrained()
    decoding = lt.Decoding(**options)
    tokens, known, lengths = problem(40)
    inputs = (net, lt.METHODS[name], tokens, known, decoding, 3)
    expected = lt.generate(*inputs, lengths=lengths)
    monkeypatch.setattr(memory, "DECODING_BYTES", memory.DECODING_BYTES // 2_000)
    parts = decoding_microbatches(net, lt.METHODS[name], first_state(*inputs, None, lengths), decoding)
    assert len(parts) > 3
    assert torch.cat(parts).sort().values.tolist() == list(range(40))
    assert same(lt.generate(*inputs, lengths=lengths), expected)


@pytest.mark.parametrize("shape", [(0, LENGTH), (2, 0)])
@pytest.mark.parametrize("name", ["scdm", "esolm", "arm"])
def test_batch_without_rows_or_positions_is_decoded(name, shape):
    for function in (lt.generate, reference.generate):
        samples = function(untrained(), lt.METHODS[name], *nothing(*shape), lt.Decoding(1), 3)
        assert samples.tokens.shape == shape
        assert samples.forward_passes == 0


@pytest.mark.parametrize("name", ["scdm", "esolm", "arm"])
def test_observer_receives_the_steps_of_the_reference(name):
    tokens, known, lengths = problem()
    decoding = with_latents(lt.METHODS[name], lt.Decoding(1))
    observed = []
    for function in (lt.generate, reference.generate):
        steps = {}

        def watch(step, steps=steps):
            for i, key in enumerate(zip(step.rows.tolist(), step.number.tolist(), strict=True)):
                shown = int(step.layout.num_shown[i])
                positions = step.layout.positions[i, :shown].tolist()
                chosen = (step.chosen[i].tolist(), step.tokens[i].tolist())
                steps[key] = (positions, *chosen, step.probabilities[i, :shown])

        function(untrained(), lt.METHODS[name], tokens, known, decoding, 3, lengths=lengths, on_step=watch)
        observed.append(steps)
    assert observed[0].keys() == observed[1].keys()
    for key, (*exact, probabilities) in observed[0].items():
        assert exact == list(observed[1][key][:-1])
        torch.testing.assert_close(probabilities, observed[1][key][-1])


def test_samples_can_be_trained_on():
    samples = lt.generate(untrained(), lt.METHODS["esolm"], *nothing(2), lt.Decoding(1), 0)
    assert not any(getattr(samples, name).is_inference() for name in ("tokens", "order", "tokens_processed"))


def test_training_mode_uses_the_reference_with_dropout():
    net = untrained(dropout=0.5).train()
    samples = []
    for function in (lt.generate, reference.generate):
        torch.manual_seed(0)
        samples.append(function(net, lt.METHODS["scdm"], *nothing(4), lt.Decoding(1), 3))
    assert same(*samples)
    assert not same(samples[0], lt.generate(net.eval(), lt.METHODS["scdm"], *nothing(4), lt.Decoding(1), 3))


@pytest.mark.parametrize("name", ["mdm", "esolm"])
def test_bf16_logits_are_as_near_to_the_reference_as_it_to_fp32(name):
    exact = untrained()
    net = deepcopy(exact).bfloat16()
    look = FastCandidateLogits(net, lt.METHODS[name], torch.arange(7), ORDER, qkv_table(net, 300, LENGTH))
    differences = []

    def compare(expected, *shown):
        true = reference_logits(exact, lt.METHODS[name], *shown)
        differences.append(torch.stack([look(*shown) - expected, expected - true])[..., :VOCAB].flatten(1))

    follow(net, lt.METHODS[name], with_latents(lt.METHODS[name], lt.Decoding(1)), compare)
    fast, rounding = torch.cat(differences, dim=1).square().mean(1).sqrt()
    assert fast <= rounding
    assert 0 < rounding < 0.02


@pytest.mark.parametrize("name", ["scdm", "esolm"])
def test_cache_has_the_precision_of_autocast(name):
    net = untrained()
    with torch.autocast("cpu", torch.bfloat16):
        fast, plain = (
            function(net, lt.METHODS[name], *nothing(8), lt.Decoding(1), 0)
            for function in (lt.generate, reference.generate)
        )
    assert fast.tokens_processed.equal(plain.tokens_processed)
    assert (fast.tokens == plain.tokens).double().mean() > 0.9


class Favourite(lt.Transformer):
    """A subclass with another forward pass."""

    def forward(self, ids, positions, mask):
        logits = super().forward(ids, positions, mask).clone()
        logits[..., 3] += 100
        return logits


def test_forward_of_a_subclass_and_hooks_are_called():
    tokens, known = nothing(2, 4)
    net = Favourite(lt.Size(32, 2, 3), 7, 4).eval()
    assert lt.generate(net, lt.METHODS["mdm"], tokens, known, lt.Decoding(1), 0).tokens.eq(3).all()
    assert lt.loss(net, lt.METHODS["mdm"], tokens, known, torch.Generator().manual_seed(0)) > 20
    net = lt.Transformer(lt.Size(32, 2, 3), 7, 4).eval()
    calls = []
    net.register_forward_hook(lambda *call: calls.append(call))
    lt.generate(net, lt.METHODS["mdm"], tokens, known, lt.Decoding(1), 0)
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("part", "name"),
    [("blocks.1", "scdm"), ("blocks.2.qkv", "esolm"), ("embedding", "esolm"), ("norm", "scdm")],
)
def test_hooks_inside_a_network_act_as_in_the_reference(part, name):
    net = untrained()
    arguments = (lt.METHODS[name], *nothing(8), lt.Decoding(candidates=4), 0)
    plain = lt.generate(net, *arguments)
    net.get_submodule(part).register_forward_hook(lambda module, inputs, output: 2 * output)
    samples = lt.generate(net, *arguments)
    assert torch.equal(samples.tokens, reference.generate(net, *arguments).tokens)
    assert not torch.equal(samples.tokens, plain.tokens)

    slots = torch.arange(LENGTH) > torch.arange(8)[:, None]
    inputs = (plain.tokens, plain.order, torch.ones(8, LENGTH, LENGTH, dtype=torch.bool))
    torch.testing.assert_close(net(*inputs, slots), net(*inputs)[slots], atol=1e-4, rtol=1e-4)


def test_replaced_projection_is_used():
    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    net = untrained()
    net.blocks[-1].qkv = Doubled(32, 96, bias=False)
    inputs = (torch.arange(LENGTH).expand(4, LENGTH) % 7, torch.arange(LENGTH).expand(4, LENGTH))
    mask = torch.ones(4, LENGTH, LENGTH, dtype=torch.bool)
    slots = torch.arange(LENGTH).expand(4, LENGTH) > 5
    torch.testing.assert_close(net(*inputs, mask)[slots], net(*inputs, mask, slots), atol=1e-5, rtol=1e-5)


def test_rotary_positions_reach_past_the_length_of_training():
    net = lt.Transformer(lt.Size(32, 2, 3), 7, 4, "rotary").eval()
    inputs = (net, lt.METHODS["arm"], *nothing(2, 9), lt.Decoding(1), 0)
    assert same(lt.generate(*inputs), reference.generate(*inputs))


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
        lt.generate(net, method, torch.zeros_like(known, dtype=torch.int64), known, decoding, 0)
    return reads.count + shapes.count


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mdm", {"candidates": 3}),
        ("scdm", {"latents": 2, "candidates": 3}),
        ("esolm", {"latents": 2, "candidates": 3, "temperature": 0.8, "top_p": 0.9}),
        ("arm", {}),
        ("ar-mtp", {}),
        ("ar-latents", {"latents": 2}),
    ],
)
def test_step_reads_once_from_the_device(name, settings):
    method = lt.METHODS[name]
    starts = torch.tensor([[0], [0], [3 * (method.readout == "in_place")]])
    counts = []
    for steps in (5, 5, 8):  # the first decode of a process reads once more
        known = torch.arange(LENGTH) < LENGTH - steps + starts.clamp(max=steps - 1)
        counts.append(host_reads(untrained(), method, known, lt.Decoding(**settings)))
    assert counts[2] - counts[1] == 3
