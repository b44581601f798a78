"""Speculation: drafts change the number of passes, and not the distribution of samples."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from scipy.stats import chi2

import latent_tokens as lt
from helpers.refusals import refused
from latent_tokens.core.attention import dense_mask
from latent_tokens.core.layout import next_layout
from latent_tokens.core.sampling import generate as reference_generate
from latent_tokens.core.speculation import Drafts, StepsInOne, accept

ESOLM, AR_LATENTS = lt.METHODS["esolm"], lt.METHODS["ar-latents"]
VOCAB, LENGTH = 3, 4
LEFT = lt.Decoding(order="left_to_right")


def untrained(vocab=VOCAB, length=LENGTH, seed=3, positions="learned"):
    """Return a network whose predictions depend strongly on every slot that they may attend to."""
    torch.manual_seed(seed)
    net = lt.Transformer(lt.Size(16, 2, 2), vocab, length, positions=positions).eval()
    for parameter in net.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=1.8 / parameter.shape[1] ** 0.5)
    return net


def probabilities(net, method, decoding, schedule):
    """Return the probability of every outcome at one token per step, from the logits of each step."""
    outcomes = torch.cartesian_prod(*[torch.arange(VOCAB)] * LENGTH)
    order, one = torch.tensor(schedule).expand_as(outcomes), torch.ones(len(outcomes), dtype=torch.int64)
    total = torch.ones(len(outcomes), dtype=torch.float64)
    for clean, position in enumerate(schedule):
        masked = LENGTH - clean
        n = masked - 1 if decoding.latents == "all" else min(decoding.latents, masked - 1)
        with torch.no_grad():
            logits = method.logits(net, outcomes, next_layout(order, clean * one, one, n * one))[
                :, -1, :VOCAB
            ]
        p = (logits.double() / decoding.temperature).softmax(-1)
        ranked, ids = p.sort(descending=True)
        outside = (ranked.cumsum(1) - ranked >= decoding.top_p).gather(1, ids.argsort(1))
        p = p.masked_fill(outside, 0)
        total *= (p / p.sum(1, keepdim=True)).gather(1, outcomes[:, position, None])[:, 0]
    return total


def p_value(tokens, expected):
    """Return the p-value of Pearson's test. Outcomes that are expected less than five times are one."""
    code = (tokens * VOCAB ** torch.arange(LENGTH - 1, -1, -1)).sum(1)
    seen, expected = torch.bincount(code, minlength=len(expected)).double(), expected * len(tokens)
    assert not seen[expected == 0].any()
    often = expected >= 5
    seen, expected = (torch.cat([x[often], x[~often].sum()[None]]) for x in (seen, expected))
    cells = expected > 0
    statistic = ((seen - expected)[cells] ** 2 / expected[cells]).sum()
    return chi2.sf(statistic.item(), int(cells.sum()) - 1)


@pytest.mark.parametrize("latents", [0, 1, "all"])
@pytest.mark.parametrize("drafts", [1, 2, 5])
@pytest.mark.parametrize(
    ("method", "schedule", "settings"),
    [
        (ESOLM, [0, 1, 2, 3], {}),
        (ESOLM, [2, 0, 3, 1], {"temperature": 1.5, "top_p": 0.9}),
        (AR_LATENTS, [0, 1, 2, 3], {}),
    ],
)
def test_samples_have_the_distribution_of_one_token_per_step(method, schedule, settings, drafts, latents):
    decoding = lt.Decoding(order=lt.given(schedule), latents=latents, **settings)
    net = untrained()
    known = torch.zeros(4_000, LENGTH, dtype=torch.bool)
    samples = lt.generate(net, method, known.long(), known, decoding, drafts=drafts)
    assert p_value(samples.tokens, probabilities(net, method, decoding, schedule)) > 1e-3
    assert samples.passes.float().mean() < (3.4 if drafts == 1 else 3)


def test_the_test_sees_another_number_of_latent_tokens():
    net, known = untrained(), torch.zeros(4_000, LENGTH, dtype=torch.bool)
    samples = lt.generate(net, ESOLM, known.long(), known, LEFT, latents=1, drafts=2)
    expected = probabilities(net, ESOLM, replace(LEFT, latents=0), range(LENGTH))
    assert p_value(samples.tokens, expected) < 1e-6


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("order", ["left_to_right", "uniform"])
@pytest.mark.parametrize("latents", [0, 2, "all"])
def test_fast_and_reference_alone_and_in_a_batch_are_equal(positions, order, latents):
    net = untrained(5, 12, seed=1, positions=positions)
    draw = torch.Generator().manual_seed(0)
    known = torch.rand(12, 12, generator=draw) < 0.2
    known[0] = False
    tokens = torch.randint(5, (12, 12), generator=draw)
    lengths = torch.randint(3, 13, (12,), generator=draw)
    for temperature, drafts in ((0, 3), (1, 1), (1, 7)):
        decoding = lt.Decoding(
            order=order, latents=latents, refresh=False, temperature=temperature, drafts=drafts
        )
        fast = lt.generate(net, ESOLM, tokens, known, decoding, lengths=lengths)
        plain = reference_generate(net, ESOLM, tokens, known, decoding, 0, lengths=lengths)
        for field in ("tokens", "order", "passes", "tokens_processed"):
            assert torch.equal(getattr(fast, field), getattr(plain, field))
        alone = torch.tensor([5])
        one = lt.generate(
            net, ESOLM, tokens[alone], known[alone], decoding, rows=alone, lengths=lengths[alone]
        )
        assert torch.equal(one.tokens, fast.tokens[alone])
        if temperature == 0:
            slow = lt.generate(net, ESOLM, tokens, known, replace(decoding, drafts=0), lengths=lengths)
            assert torch.equal(slow.tokens, fast.tokens)
            assert torch.equal(slow.order, fast.order)


def test_every_slot_attends_as_in_the_input_of_its_step():
    order, n, wanted = torch.randperm(7)[None], torch.tensor([[2, 2, 1]]), torch.tensor([[1, 3, 2]])
    one = torch.ones(1, dtype=torch.int64)
    steps = StepsInOne.of(order, 2 * one, 2 * one, n, wanted)
    mask, clean = steps.mask(ESOLM.attention)[0], 4
    for g in range(3):
        layout = next_layout(order, (2 + g) * one, one, n[:, g])
        mine = [*range(2 + g), *(clean + 4 * g + w for w in range(int(n[0, g]) + 1))]
        assert torch.equal(steps.positions[0, mine], layout.positions[0])
        assert torch.equal(mask[mine][:, mine], dense_mask(ESOLM.attention, layout)[0])
        others = [slot for slot in range(mask.shape[1]) if slot not in mine]
        assert not mask[mine[2 + g :]][:, others].any()
    # The second step has a draft more than latent tokens: it is behind the candidate.
    assert steps.shown[0].tolist() == [True] * 4 + [True, True, True, False] + [True] * 4 + [True] * 3 + [
        False
    ]
    assert steps.positions[0, clean + 4 : clean + 8].tolist() == order[0, [4, 5, 3, 6]].tolist()


def test_a_draft_is_accepted_with_the_ratio_of_its_probabilities():
    p = torch.tensor([[[0.2, 0.8], [0.5, 0.5]]], dtype=torch.float64)
    q = torch.tensor([[[0.8, 0.2]]], dtype=torch.float64)
    drafts = Drafts(torch.tensor([[0]]), q, torch.tensor([1]))
    accepted, rest = accept(p, drafts, torch.tensor([[0.249, 0.0]], dtype=torch.float64))
    assert (accepted.tolist(), rest.tolist()) == ([1], [[0.5, 0.5]])
    accepted, rest = accept(p, drafts, torch.tensor([[0.25, 0.0]], dtype=torch.float64))
    assert accepted.tolist() == [0]
    assert torch.allclose(rest, torch.tensor([[0.0, 0.6]], dtype=torch.float64))


def test_passes_and_slots_where_every_draft_is_right():
    """A step of c clean tokens and J drafts has c + J clean slots, and J + 1 masked ones per step."""
    net = untrained(1, 8)  # one token: every draft is accepted
    known = torch.zeros(1, 8, dtype=torch.bool)
    samples = lt.generate(net, ESOLM, known.long(), known, LEFT, drafts=3)
    # 8 tokens: 1 + 4 + 3. The last two passes have 3 and 2 drafts, and each step those left to make.
    first, second = 1 + 3, 1 + 3 + (4 + 4 + 4 + 3)
    third = 5 + 2 + (2 + 1 + 1)
    assert (samples.forward_passes, samples.tokens_processed.tolist()) == (3, [first + second + third])


class ByPosition:
    """A network that is sure of token p % 4 at position p."""

    mask_id = 4

    def __call__(self, ids, positions, mask):
        return 99.0 * torch.nn.functional.one_hot(positions % 4, 5)


@pytest.mark.parametrize("latents", [0, 1, 2, 5])
def test_a_draft_is_the_prediction_of_its_own_position(latents):
    """Then each is accepted: 8 tokens in passes of 1, 4 and 3, whether drafts are latent tokens or not."""
    known = torch.zeros(1, 8, dtype=torch.bool)
    decoding = replace(LEFT, latents=latents, drafts=3)
    samples = reference_generate(ByPosition(), ESOLM, known.long(), known, decoding, 0)
    assert samples.tokens.tolist() == [[0, 1, 2, 3] * 2]
    assert samples.forward_passes == 3


def refused_decode(method, **settings):
    known = torch.zeros(1, 4, dtype=torch.bool)
    return partial(lt.generate, untrained(), lt.METHODS[method], known.long(), known, **settings)


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (refused_decode("mdm", order="left_to_right", drafts=2), ("drafts=2", "mdm", "esolm or ar-latents")),
        (refused_decode("scdm", order="left_to_right", drafts=2), ("drafts=2", "scdm", "one step")),
        (refused_decode("ar-mtp", drafts=2), ("drafts=2", "ar-mtp", "drafts=0")),
        (refused_decode("arm", drafts=2), ("drafts=2", "arm", "no latent predictions")),
        (refused_decode("esolm", drafts=2), ("drafts=2", "order that is fixed", "order=left_to_right")),
        (refused_decode("esolm", drafts=2, order="uniform"), ("drafts=2", "refresh=False")),
        (
            refused_decode("esolm", drafts=2, order="left_to_right", threshold=0.9),
            ("drafts=2", "order that is fixed"),
        ),
        (
            refused_decode("esolm", drafts=2, order="left_to_right", tokens_per_step=2),
            ("drafts=2 with", "drafts=0"),
        ),
        (
            refused_decode("esolm", drafts=2, order="left_to_right", latents=1, latent_policy="random"),
            ("latent_policy=random", "latent_policy=nearest"),
        ),
        (
            refused_decode("esolm", drafts=2, order="left_to_right", on_step=print),
            ("on_step with drafts=2", "drafts=0"),
        ),
        (refused_decode("esolm", drafts=-1, order="left_to_right"), ("drafts=-1", "from 0")),
    ],
)
def test_refused(call, parts):
    with refused(*parts):
        call()


def test_a_row_names_its_drafts(nano):
    for drafts in (None, 4):
        net = lt.Transformer(nano.size, nano.vocab_size, 16).eval()
        net.method = ESOLM
        settings = {"order": "left_to_right", "num_samples": 4, "drafts": drafts}
        (row,) = lt.evaluate(net, lt.TASKS["sudoku-4"], **settings)
        assert row.get("drafts") == drafts
        assert (row["forward_passes"] < 16) == bool(drafts)


def test_decoding_stops_with_the_undecoded_masked():
    net, known = untrained(5, 12), torch.zeros(2, 12, dtype=torch.bool)
    samples = lt.generate(net, ESOLM, known.long(), known, LEFT, drafts=3, stop=lambda rows, tokens: True)
    assert (samples.tokens == net.mask_id).sum(1).tolist() == [11, 11]
    assert samples.passes.tolist() == [1, 1]
