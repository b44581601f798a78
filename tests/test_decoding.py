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
    growing,
    left_to_right,
    margin,
    top_prob,
)
from latent_tokens.core.sampling import NUM_RANKED, largest, nucleus, sample_tokens
from latent_tokens.core.state import check_shapes

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


@pytest.mark.parametrize("name", ["mdm", "scdm"])
def test_candidates_grow_with_what_is_clean(name):
    """k is the number of clean tokens + 1, at most those masked. With all latents each step has one total."""
    steps, known = [], torch.tensor([[False, True, False], [False, False, False]])
    run(
        name,
        Decoding(candidates=growing, latents="all" if name == "scdm" else None),
        known=known,
        on_step=steps.append,
    )
    counts = {row: [] for row in range(2)}
    for step in steps:
        for row, candidates, latents in zip(step.rows.tolist(), step.candidates, step.latents, strict=True):
            counts[row].append((len(candidates), len(latents)))
    assert counts == {0: [(2, 0), (1, 0)], 1: [(1, 2), (2, 0), (1, 0)]}


def test_a_rule_must_give_whole_numbers():
    for rule, message in ((lambda clean: 0, "candidates gives"), (lambda clean: 1.5, "whole numbers from 1")):
        with pytest.raises(ValueError, match=message):
            run("mdm", Decoding(candidates=rule))
    with pytest.raises(ValueError, match="candidates=growing is not supported by"):
        run("ar-mtp", Decoding(candidates=growing))


def test_several_a_step_take_the_most_confident():
    steps = []
    run("mdm", Decoding(candidates="all", tokens_per_step=2), on_step=steps.append)
    assert [step.chosen.shape[1] for step in steps] == [2, 1]
    sure = steps[0].probabilities.amax(-1)
    for row in range(2):
        ranked = sure[row].argsort(descending=True)
        assert steps[0].chosen[row].tolist() == steps[0].layout.positions[row][ranked[:2]].tolist()


def test_tokens_are_ignored_where_unknown():
    _, a = run("scdm", Decoding(candidates=2))
    _, b = run("scdm", Decoding(candidates=2), tokens=torch.full((2, 3), 77))
    assert (a.tokens == b.tokens).all()


def test_a_seed_fixes_the_samples_and_another_changes_them():
    known = torch.zeros(200, 3, dtype=torch.bool)
    samples = [run("scdm", known=known, tokens=known.long(), seed=seed)[1].tokens for seed in (5, 5, 6)]
    assert (samples[0] == samples[1]).all()
    assert (samples[0] != samples[2]).any()


IMPOSSIBLE = [
    ("mdm", Decoding(1, latents=16), "a scdm or esolm model, or train mdm-depth"),
    ("ar-mtp", Decoding(1, latents=16), "a scdm or esolm model, or train ar-mtp-window-17"),
    ("mdm", Decoding(1, latents=lambda masked: 1), "Use latents=all, a scdm or esolm model"),
    ("ar-mtp", Decoding(1, latents=0), "Use latents=all, a scdm or esolm model"),
    ("ar-mtp-window-2", Decoding(1, latents=0), "Use latents=all, a scdm or esolm model"),
    ("ar-ntp-2", Decoding(1, latents=2), "Use latents=all, a scdm or esolm model"),
    ("sidm", Decoding(1, latents=4), "Use latents=0, or a scdm"),
    ("sidm", Decoding(1, latents="all"), "it has no latent tokens"),
    ("arm", Decoding(1, latents="all"), "it has no latent tokens"),
    ("arm", Decoding(candidates=2), "Use candidates=1"),
    ("ar-mtp", Decoding(candidates="all"), "Use candidates=1"),
    ("arm", Decoding(1, order=given([0, 2, 1])), "Use order=left_to_right"),
    ("arm", Decoding(1, tokens_per_step=2), "one token per step"),
    ("ar-mtp-window-2", Decoding(1, tokens_per_step=3), "window of 2"),
    ("scdm", Decoding(1, latent_policy=lambda showing: showing.order.flip(1)), "latent_policy: it moved"),
    ("scdm", Decoding(1, latents=lambda masked: -1), "whole numbers from 0"),
    ("scdm", Decoding(1, order=lambda known: torch.zeros_like(known).long()), "permutation"),
    ("scdm", Decoding(1, order=given([1, 0])), "schedule of shape"),
    ("scdm", Decoding(1, latent_policy=lambda showing: showing.order * 0), "permutation"),
]


@pytest.mark.parametrize(("name", "decoding", "message"), IMPOSSIBLE)
def test_impossible_decoding_is_refused_with_an_alternative(name, decoding, message):
    with pytest.raises(ValueError, match=message):
        run(name, decoding)


@pytest.mark.parametrize("name", ["sidm", "arm"])
def test_zero_latents_are_accepted_by_methods_without_latents(name):
    run(name, Decoding(1, latents=0))


@pytest.mark.parametrize("name", ["ar-mtp-window-2", "ar-ntp-2"])
def test_latents_of_a_window_can_be_given_as_a_number(name):
    """Rows and traces report it as the number."""
    (_, of_all), (_, of_one) = (run(name, Decoding(1, latents=n)) for n in ("all", 1))
    assert (of_all.tokens == of_one.tokens).all()


@pytest.mark.parametrize("name", ["mdm", "ar-mtp", "ar-mtp-window-2", "ar-ntp-2"])
def test_all_latents_are_accepted_by_methods_with_all_latents(name):
    run(name, Decoding(1, latents="all"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"candidates": 0}, {"candidates": -1}, {"candidates": "some"}, {"latents": -1}, {"latents": "none"},
        {"latents": 1.5}, {"tokens_per_step": 0},
        {"temperature": -0.1}, {"temperature": float("nan")}, {"temperature": float("inf")},
        {"top_p": 0}, {"top_p": 1.1}, {"order": [0, 1]},
    ],
)  # fmt: skip
def test_a_decoding_out_of_range_is_refused(wrong):
    with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
        Decoding(**wrong)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": torch.tensor([3, 4])}, "lengths"),
        ({"rows": torch.tensor([0])}, "rows"),
        ({"rows": torch.tensor([0, -1])}, "start at 0"),
        ({"seed": -1}, "seed=-1"),
        ({"known": ~KNOWN, "tokens": TOKENS + 3}, "row 0, position 0: token 3"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        run("scdm", **change)


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"tokens \(2, 3\) with known \(2, 4\)"):
        check_shapes(TOKENS, torch.zeros(2, 4, dtype=torch.bool), torch.tensor([3, 3]), torch.arange(2))


def test_arm_continues_prefixes_alone():
    prefix = torch.tensor([[True, False, False], [True, True, False]])
    _, made = run("arm", known=prefix)
    assert made.tokens[1, :2].tolist() == [0, 0]
    with pytest.raises(ValueError, match="row 1: its known positions are not a prefix"):
        run("arm", known=torch.tensor([[True, False, False], [False, True, False]]))


def test_left_to_right_methods_infill_with_what_is_known_first():
    _, made = run("ar-mtp", known=torch.tensor([[False, True, False], [False, False, True]]))
    assert made.order.tolist() == [[1, 0, 2], [2, 0, 1]]


def test_a_left_to_right_scdm_has_a_dial():
    method = replace(METHODS["scdm"], order=left_to_right)
    _, made = run(method, Decoding(1, latents=1))
    assert made.order.tolist() == [[0, 1, 2]] * 2
    assert made.processed.tolist() == [8, 8]


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


def test_an_empty_batch_is_nothing_to_do():
    _, made = run("scdm", known=KNOWN[:0], tokens=TOKENS[:0])
    assert made.tokens.shape == (0, 3)
    assert made.forward_passes == 0


def test_logits_that_are_not_finite_are_refused():
    net = Oracle(JOINT)
    net.joint = JOINT * torch.nan
    with pytest.raises(ValueError, match="not finite"):
        generate(net, METHODS["mdm"], TOKENS, KNOWN, Decoding(1), 0)


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


def test_nucleus_of_a_large_vocabulary_ranks_a_part_only():
    rows = rows_of_a_large_vocabulary()
    equal, spike = rows[0][None, None], rows[1][None, None]
    assert largest(spike, 0.9).shape[-1] == NUM_RANKED
    assert largest(equal, 0.9).shape[-1] == equal.shape[-1]


@pytest.mark.parametrize("vocabulary", [2, 32, 5_000])
def test_a_token_is_sampled_by_inverse_cdf(vocabulary):
    """A noise equal to a value of the CDF belongs to the next token, and one of probability 0 is skipped."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(4, 1, vocabulary, generator=generator).double()
    logits[:, :, vocabulary // 2] = -torch.inf
    cdf = logits.softmax(-1).cumsum(-1)
    shares = cdf / cdf[..., -1:]
    for noise in (torch.zeros(4, 1).double(), shares[..., vocabulary // 2 - 1].clamp(max=0.99)):
        tokens = sample_tokens(logits, torch.zeros(4, 1).long(), Decoding(1), noise)
        assert torch.equal(tokens, (shares <= noise[..., None]).sum(-1))
        assert (tokens != vocabulary // 2).all()
