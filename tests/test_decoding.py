"""The inputs of `generate` to the network, its reports, and its refusals."""

from dataclasses import replace

import pytest
import torch

from helpers.oracle import Oracle, small_joint
from latent_tokens import (
    METHODS,
    Decoding,
    entropy,
    generate,
    given,
    margin,
    top_prob,
)
from latent_tokens.core.sampling import NUM_RANKED, nucleus

JOINT = small_joint()
KNOWN = torch.zeros(2, 3, dtype=torch.bool)
TOKENS = torch.zeros(2, 3, dtype=torch.int64)


def run(name_or_method, decoding=None, known=KNOWN, tokens=TOKENS, **options):
    method = METHODS[name_or_method] if isinstance(name_or_method, str) else name_or_method
    net = Oracle(JOINT, shifted=method.readout == "shifted")
    return net, generate(
        net, method, tokens, known, decoding or Decoding(1), options.pop("seed", 0), **options
    )


def test_slots_stand_as_clean_latents_candidates():
    net, made = run("scdm", Decoding(latents=1, candidates=1, order=given([2, 0, 1])))
    ids, positions, mask = net.calls[1]
    assert positions.tolist() == [[2, 1, 0]] * 2  # clean, the latent, the candidate
    assert (ids[:, 0] == made.tokens[:, 2]).all()
    assert (ids[:, 1:] == 3).all()
    assert mask[0].tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert mask.dtype == torch.bool
    assert made.order.tolist() == [[2, 0, 1]] * 2
    assert made.processed.tolist() == [2 + 3 + 3] * 2
    assert made.forward_passes == 3


def test_arm_is_fed_its_begin_sign_and_the_tokens_so_far():
    net, made = run("arm")
    for step, (ids, positions, mask) in enumerate(net.calls):
        assert positions.tolist() == [list(range(step + 1))] * 2
        assert (ids[:, 0] == 3).all()
        assert (ids[:, 1:] == made.tokens[:, :step]).all()
        assert (mask == torch.ones(step + 1, step + 1).tril().bool()).all()
    assert made.processed.tolist() == [6, 6]


def test_padding_is_mask_at_position_0_and_sees_itself_alone():
    known = torch.tensor([[False, False, False], [True, True, False]])
    net, made = run("scdm", Decoding(1, latents="all"), known=known)
    ids, positions, mask = net.calls[0]
    assert ids.shape == (2, 3)  # both rows show three slots: no padding
    net, made = run("scdm", Decoding(1, latents=0), known=known)
    ids, positions, mask = net.calls[0]
    assert ids[0].tolist() == [3, 3, 3]
    assert positions[0, 1:].tolist() == [0, 0]
    assert mask[0].tolist() == torch.eye(3).bool().tolist()
    assert made.processed.tolist() == [1 + 2 + 3, 3]
    assert len(net.calls[1][0]) == 1  # the finished row is not shown again
    assert made.tokens[1, :2].tolist() == [0, 0]


def test_windows_show_that_many_masked_tokens():
    net, made = run("ar-mtp-window-2")
    assert [call[0].shape[1] for call in net.calls] == [2, 3, 3]
    assert made.processed.tolist() == [8, 8]
    _, made = run(replace(METHODS["mdm"], window=2), Decoding(candidates="all"))
    assert made.processed.tolist() == [8, 8]


def test_mask_is_never_drawn_and_takes_no_part_in_a_confidence():
    """The oracle's column for MASK has by far the largest logit."""
    for confidence in (top_prob, margin, entropy):
        _, made = run("mdm", Decoding(candidates="all", confidence=confidence, temperature=0))
        assert (made.tokens < 3).all()


@pytest.mark.parametrize("confidence", [top_prob, margin, entropy])
def test_confidence_prefers_the_surer_candidate(confidence):
    joint = torch.einsum("a,b->ab", torch.tensor([0.4, 0.35, 0.25]), torch.tensor([0.05, 0.9, 0.05]))
    for temperature in (0.0, 1.0, 100.0):
        known = torch.zeros(50, 2, dtype=torch.bool)
        made = generate(
            Oracle(joint),
            METHODS["mdm"],
            known.long(),
            known,
            Decoding(2, confidence=confidence, temperature=temperature),
            0,
        )
        assert (made.order[:, 0] == 1).all()


def test_refresh_is_for_any_order_alone():
    """Without refresh the order is the first one except for promotions. With refresh each step draws one."""
    known = torch.zeros(400, 4, dtype=torch.bool)
    net = Oracle(torch.ones(2, 2, 2, 2))
    seen = {}
    for refresh in (True, False):
        shown = []
        generate(
            net,
            METHODS["mdm"],
            known.long(),
            known,
            Decoding(1, refresh=refresh),
            1,
            on_step=lambda step, shown=shown: shown.append(step.layout.positions),
        )
        first, second = (
            shown[0].roll(1, dims=1),
            shown[1],
        )  # the candidate stands last: rolled, the schedule as it was
        seen[refresh] = (first[:, 1].ne(second[:, -1])).double().mean().item()
    assert seen[False] == 0
    assert seen[True] > 0.4
    schedule = given([1, 3, 0, 2])
    made = generate(net, METHODS["mdm"], known.long(), known, Decoding(1, order=schedule), 1)
    assert (made.order == torch.tensor([1, 3, 0, 2])).all()


def test_on_step_receives_all_that_a_drawing_of_the_step_needs():
    steps = []
    _, made = run("scdm", Decoding(candidates=2, latents=1, order=given([2, 1, 0])), on_step=steps.append)
    first = steps[0]
    assert first.rows.tolist() == [0, 1]
    assert first.candidates == [[2, 1]] * 2
    assert first.latents == [[0]] * 2
    assert first.probabilities.shape == (2, 3, 4)
    torch.testing.assert_close(first.probabilities.sum(-1), torch.ones(2, 3))
    assert [step.chosen[:, 0].tolist() for step in steps] == made.order.T.tolist()
    for step in steps:
        assert (made.tokens.gather(1, step.chosen) == step.tokens).all()
        step.probabilities.zero_()  # a copy: nothing here can disturb the decoding


def test_several_a_step_take_the_most_confident():
    steps = []
    run("mdm", Decoding(candidates="all", tokens_per_step=2), on_step=steps.append)
    assert [step.chosen.shape[1] for step in steps] == [2, 1]
    sure = steps[0].probabilities.amax(-1)
    for row in range(2):
        ranked = sure[row].argsort(descending=True)
        assert steps[0].chosen[row].tolist() == steps[0].layout.positions[row][ranked[:2]].tolist()


@pytest.mark.parametrize(
    ("name", "latents"),
    [("sidm", 0), ("arm", 0), ("ar-mtp-window-2", 1), ("ar-ntp-2", 1)]
    + [(name, "all") for name in ("mdm", "ar-mtp", "ar-mtp-window-2", "ar-ntp-2")],
)
def test_only_number_of_latents_of_a_method_can_be_given(name, latents):
    (_, given_n), (_, own) = (run(name, Decoding(1, latents=n)) for n in (latents, None))
    assert (given_n.tokens == own.tokens).all()
    assert (given_n.processed == own.processed).all()


def test_tokens_are_ignored_where_unknown():
    _, a = run("scdm", Decoding(candidates=2))
    _, b = run("scdm", Decoding(candidates=2), tokens=torch.full((2, 3), 77))
    assert (a.tokens == b.tokens).all()


def test_a_seed_fixes_the_samples_and_another_changes_them():
    known = torch.zeros(200, 3, dtype=torch.bool)
    samples = [run("scdm", known=known, tokens=known.long(), seed=seed)[1].tokens for seed in (5, 5, 6)]
    assert (samples[0] == samples[1]).all()
    assert (samples[0] != samples[2]).any()


def test_arm_continues_prefixes_alone():
    prefix = torch.tensor([[True, False, False], [True, True, False]])
    _, made = run("arm", known=prefix)
    assert made.tokens[1, :2].tolist() == [0, 0]


def test_left_to_right_methods_infill_with_what_is_known_first():
    _, made = run("ar-mtp", known=torch.tensor([[False, True, False], [False, False, True]]))
    assert made.order.tolist() == [[1, 0, 2], [2, 0, 1]]


def test_positions_past_the_length_take_no_part_in_the_checks():
    known = torch.tensor([[True, False, True], [False, False, False]])
    tokens = torch.tensor([[0, 0, 3], [0, 0, 0]])  # 3 is MASK
    for name in ("scdm", "arm"):
        _, made = run(name, known=known, tokens=tokens, lengths=torch.tensor([2, 3]))
        assert made.tokens[0, 2] == 3


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16])
def test_tokens_may_be_of_any_integer_type(dtype):
    _, made = run("scdm", tokens=TOKENS.to(dtype))
    assert made.tokens.dtype == torch.int64


def by_stable_sort(probabilities, top_p):
    """Return the nucleus by its definition, from a full sort."""
    ranked, ids = probabilities.sort(dim=-1, descending=True, stable=True)
    beyond = ranked.cumsum(-1) - ranked >= top_p
    return torch.zeros_like(ranked).scatter(-1, ids, ranked.masked_fill(beyond, 0))


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("kinds", [3, 50, 10_000])
def test_nucleus_is_that_of_a_stable_sort_bit_for_bit(top_p, kinds):
    """With few kinds of logits, many tokens are equally probable."""
    logits = torch.randint(0, kinds, (2, 3, 1_000), generator=torch.Generator().manual_seed(kinds)).double()
    probabilities = (6 * logits / kinds).softmax(-1)
    assert torch.equal(nucleus(probabilities, top_p), by_stable_sort(probabilities, top_p))


def rows_of_a_large_vocabulary():
    """Return probabilities whose nucleus ends before, at and after the tokens that are ranked first."""
    vocabulary = 2 * NUM_RANKED + 1
    generator = torch.Generator().manual_seed(0)
    equal = torch.full((vocabulary,), 1 / vocabulary).double()
    spike = torch.zeros(vocabulary).double()
    spike[vocabulary // 2] = 1
    boundary = torch.zeros(vocabulary).double()
    boundary[-NUM_RANKED:] = 1 / NUM_RANKED  # equal ones, as many as are ranked first
    more = torch.zeros(vocabulary).double()
    more[1 : NUM_RANKED + 2] = 1 / (NUM_RANKED + 1)  # and one more
    random = [
        (scale * torch.randn(vocabulary, generator=generator).double()).softmax(-1) for scale in (0.3, 3, 9)
    ]
    return [equal, spike, boundary, more, *random]


@pytest.mark.parametrize("top_p", [1e-9, 0.5, 0.9, NUM_RANKED / (NUM_RANKED + 1), 1 - 1e-12])
def test_nucleus_of_a_large_vocabulary_is_exact(top_p):
    rows = rows_of_a_large_vocabulary()
    batches = [row[None, None] for row in rows] + [torch.stack(rows)[:, None]]
    for probabilities in batches:
        assert torch.equal(nucleus(probabilities, top_p), by_stable_sort(probabilities, top_p))
