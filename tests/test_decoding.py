"""The inputs of `generate` to the network, its reports, its choices, and the noise on confidences."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import latent_tokens as lt
from helpers.oracle import Oracle, small_joint
from latent_tokens.core.distribution import nucleus
from latent_tokens.network.kernels import NUM_RANKED, fast_nucleus
from latent_tokens.outputs import ResultTable

JOINT = small_joint()
KNOWN = torch.zeros(2, 3, dtype=torch.bool)
TOKENS = torch.zeros(2, 3, dtype=torch.int64)


def run(name_or_method, decoding=None, known=KNOWN, tokens=TOKENS, **options):
    method = lt.METHODS[name_or_method] if isinstance(name_or_method, str) else name_or_method
    net = Oracle(JOINT, shifted=method.readout == "shifted")
    return net, lt.generate(
        net, method, tokens, known, decoding or lt.Decoding(1), options.pop("seed", 0), **options
    )


@pytest.mark.parametrize(("value", "place"), [(torch.inf, 0), (-torch.inf, 2)])
def test_candidate_of_infinite_confidence_is_decoded_first_or_last(value, place):
    def confidence(step):
        return step.positions.double().masked_fill(step.positions == 1, value)

    _, samples = run("mdm", lt.Decoding(candidates=3, confidence=confidence))
    assert samples.order[:, place].tolist() == [1, 1]


def test_rows_without_a_position_have_no_token_and_no_likelihood(any_method):
    net = lt.Transformer(lt.Size(8, 2, 1), 3, 4).eval()
    for num_rows in (2, 0):
        known = torch.zeros(num_rows, 0, dtype=torch.bool)
        samples = lt.generate(net, any_method, known.long(), known)
        assert (samples.tokens.shape, samples.forward_passes) == ((num_rows, 0), 0)
        none = torch.zeros(num_rows, dtype=torch.int64)
        scores = lt.log_likelihood(net, any_method, samples.tokens, samples.order, none, none)
        assert scores.shape == (num_rows, 0)


def test_slots_stand_as_clean_latents_candidates():
    net, samples = run("scdm", lt.Decoding(latents=1, candidates=1, order=lt.given([2, 0, 1])))
    ids, positions, mask = net.calls[1]
    assert positions.tolist() == [[2, 1, 0]] * 2  # clean, the latent, the candidate
    assert (ids[:, 0] == samples.tokens[:, 2]).all()
    assert (ids[:, 1:] == 3).all()
    assert mask[0].tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert mask.dtype == torch.bool
    assert samples.order.tolist() == [[2, 0, 1]] * 2
    assert samples.tokens_processed.tolist() == [2 + 3 + 3] * 2
    assert samples.forward_passes == 3


def test_padding_is_mask_at_position_0_and_sees_itself_alone():
    known = torch.tensor([[False, False, False], [True, True, False]])
    net, samples = run("scdm", lt.Decoding(1, latents="all"), known=known)
    ids, positions, mask = net.calls[0]
    assert ids.shape == (2, 3)  # both rows show three slots: no padding
    net, samples = run("scdm", lt.Decoding(1, latents=0), known=known)
    ids, positions, mask = net.calls[0]
    assert ids[0].tolist() == [3, 3, 3]
    assert positions[0, 1:].tolist() == [0, 0]
    assert mask[0].tolist() == torch.eye(3).bool().tolist()
    assert samples.tokens_processed.tolist() == [1 + 2 + 3, 3]
    assert len(net.calls[1][0]) == 1  # the finished row is not shown again
    assert samples.tokens[1, :2].tolist() == [0, 0]


def test_windows_show_that_many_masked_tokens():
    net, samples = run("ar-mtp-window-2")
    assert [call[0].shape[1] for call in net.calls] == [2, 3, 3]
    assert samples.tokens_processed.tolist() == [8, 8]
    _, samples = run(replace(lt.METHODS["mdm"], window=2), lt.Decoding(candidates="all"))
    assert samples.tokens_processed.tolist() == [8, 8]


@pytest.mark.parametrize("confidence", [lt.top_prob, lt.margin, lt.entropy])
def test_most_confident_candidate_is_decoded_first(confidence):
    joint = torch.einsum("a,b->ab", torch.tensor([0.4, 0.35, 0.25]), torch.tensor([0.05, 0.9, 0.05]))
    known = torch.zeros(50, 2, dtype=torch.bool)
    for temperature in (0.0, 1.0, 100.0):
        decoding = lt.Decoding(2, confidence=confidence, temperature=temperature)
        samples = lt.generate(Oracle(joint), lt.METHODS["mdm"], known.long(), known, decoding, 0)
        assert (samples.order[:, 0] == 1).all()


def test_refresh_draws_a_new_order_at_each_step():
    """Without it the order is the first one, except for promotions. A given order is never refreshed."""
    known = torch.zeros(400, 4, dtype=torch.bool)
    inputs = (Oracle(torch.ones(2, 2, 2, 2)), lt.METHODS["mdm"], known.long(), known)
    changed = {}
    for refresh in (True, False):
        steps = []
        lt.generate(*inputs, lt.Decoding(1, refresh=refresh), 1, on_step=steps.append)
        # The candidate is the last slot, and the next one of the order is the first latent token.
        second_candidate = steps[0].layout.positions[:, 0]
        changed[refresh] = second_candidate.ne(steps[1].layout.positions[:, -1]).double().mean()
    assert changed[False] == 0
    assert changed[True] > 0.4
    samples = lt.generate(*inputs, lt.Decoding(1, order=lt.given([1, 3, 0, 2])), 1)
    assert (samples.order == torch.tensor([1, 3, 0, 2])).all()


def test_on_step_receives_all_that_a_drawing_of_the_step_needs():
    steps = []
    _, samples = run(
        "scdm", lt.Decoding(candidates=2, latents=1, order=lt.given([2, 1, 0])), on_step=steps.append
    )
    first = steps[0]
    assert first.rows.tolist() == [0, 1]
    assert first.candidates == [[2, 1]] * 2
    assert first.latents == [[0]] * 2
    assert first.probabilities.shape == (2, 3, 4)
    torch.testing.assert_close(first.probabilities.sum(-1), torch.ones(2, 3))
    assert [step.chosen[:, 0].tolist() for step in steps] == samples.order.T.tolist()
    marginals = [(JOINT / JOINT.sum()).sum(others) for others in ((1, 2), (0, 2), (0, 1))]
    for row, position, role in zip(first.table(), (0, 2, 1), ("latent", "decoded", "candidate")):  # noqa: B905
        assert (row["sample"], row["step"], row["position"], row["role"]) == (0, 0, position, role)
        assert row["probability"] == pytest.approx(float(marginals[position][row["token"]]), abs=1e-6)
        expected = samples.tokens[0, 2] if role == "decoded" else marginals[position].argmax()
        assert row["token"] == expected
    assert [row["sample"] for row in first.table()] == [0, 0, 0, 1, 1, 1]
    for step in steps:
        assert (samples.tokens.gather(1, step.chosen) == step.tokens).all()
        step.probabilities.zero_()  # a copy: nothing here can disturb the decoding


@pytest.mark.parametrize(
    ("name", "latents"),
    [("sidm", 0), ("arm", 0), ("ar-mtp-window-2", 1), ("ar-ntp-2", 1)]
    + [(name, "all") for name in ("mdm", "ar-mtp", "ar-mtp-window-2", "ar-ntp-2")],
)
def test_only_number_of_latents_of_a_method_can_be_given(name, latents):
    (_, given_n), (_, own) = (run(name, lt.Decoding(1, latents=n)) for n in (latents, None))
    assert (given_n.tokens == own.tokens).all()
    assert (given_n.tokens_processed == own.tokens_processed).all()


def test_positions_past_the_length_take_no_part_in_the_checks():
    known = torch.tensor([[True, False, True], [False, False, False]])
    tokens = torch.tensor([[0, 0, 3], [0, 0, 0]])  # 3 is MASK
    for name in ("scdm", "arm"):
        _, samples = run(name, known=known, tokens=tokens, lengths=torch.tensor([2, 3]))
        assert samples.tokens[0, 2] == 3


def by_stable_sort(probabilities, top_p):
    """Return the nucleus by its definition, from a full sort."""
    ranked, ids = probabilities.sort(dim=-1, descending=True, stable=True)
    beyond = ranked.cumsum(-1) - ranked >= top_p
    return torch.zeros_like(ranked).scatter(-1, ids, ranked.masked_fill(beyond, 0))


def probabilities_of_a_vocabulary():
    """Return probabilities of which many are equal, and of a large vocabulary, of which some are ranked.

    The nucleus of the latter ends before, at and after these.
    """
    generator = torch.Generator().manual_seed(0)
    many_equal = torch.randint(0, 3, (2, 3, 1_000), generator=generator).double()
    vocabulary = 2 * NUM_RANKED + 1
    equal = torch.full((vocabulary,), 1 / vocabulary).double()
    spike = torch.zeros(vocabulary).double()
    spike[vocabulary // 2] = 1
    boundary = torch.zeros(vocabulary).double()
    boundary[-NUM_RANKED:] = 1 / NUM_RANKED  # equal ones, as many as are ranked first
    more = torch.zeros(vocabulary).double()
    more[1 : NUM_RANKED + 2] = 1 / (NUM_RANKED + 1)  # and one more
    normal = torch.randn(3, vocabulary, generator=generator).double()
    random = (torch.tensor([[0.3], [3], [9]]) * normal).softmax(-1)
    rows = [equal, spike, boundary, more, *random]
    return [many_equal.softmax(-1), *(row[None, None] for row in rows), torch.stack(rows)[:, None]]


@pytest.mark.parametrize("top_p", [1e-9, 0.5, 0.9, NUM_RANKED / (NUM_RANKED + 1), 1 - 1e-12])
def test_nucleus_is_that_of_a_stable_sort_bit_for_bit(top_p):
    for probabilities in probabilities_of_a_vocabulary():
        expected = by_stable_sort(probabilities, top_p)
        assert torch.equal(nucleus(probabilities, top_p), expected)
        assert torch.equal(fast_nucleus(probabilities, top_p), expected)


# Annealed noise on the confidence.

SCALE = 2.0
NUM_KNOWN = 4
NUM_ROWS = 16


def doubt(step):
    """A confidence of one's own, which is negative and no log."""
    return lt.top_prob(step) - 1


def on_scale_of_noise(confidence, probabilities):
    """Return the confidence on the scale that the noise is added to."""
    first, second = probabilities.topk(2, dim=-1).values.unbind(-1)
    if confidence is lt.entropy:
        return -torch.special.entr(probabilities).sum(-1)
    return {lt.top_prob: first.log(), lt.margin: (first - second).log(), doubt: first - 1}[confidence]


@pytest.mark.parametrize("confidence", [lt.top_prob, lt.margin, lt.entropy, doubt])
def test_step_decodes_the_highest_noisy_confidence(pico, confidence):
    """A plain loop over steps and rows, which draws from each row's stream in the order of the sampler."""
    known = (torch.arange(16) < NUM_KNOWN).expand(NUM_ROWS, 16)
    decoding = lt.Decoding(5, confidence=confidence, confidence_noise=SCALE, refresh=False)
    steps = []
    lt.generate(pico, lt.METHODS["mdm"], known.long(), known, decoding, 3, on_step=steps.append)
    streams = [np.random.default_rng((3, row)) for row in range(NUM_ROWS)]
    num_to_decode = 16 - NUM_KNOWN
    for stream in streams:
        stream.random(num_to_decode)  # the order
    for number, step in enumerate(steps):
        share_left = (num_to_decode - number - 1) / num_to_decode
        for row, (stream, candidates) in enumerate(zip(streams, step.candidates, strict=True)):
            gumbel = -np.log(-np.log(stream.random(len(candidates))))
            confidences = on_scale_of_noise(confidence, step.probabilities[row, -len(candidates) :])
            noisy = confidences.numpy() + SCALE * share_left * gumbel
            assert step.chosen[row].tolist() == [candidates[noisy.argmax()]]
            stream.random(1)  # the token
    assert len(steps) == num_to_decode


def test_another_order_replaces_uniform_order_and_its_one_candidate(pico):
    known = torch.zeros(4, 16, dtype=torch.bool)
    uniform = lt.Decoding(order="uniform", latents="all")
    replaced = lt.generate(pico, lt.METHODS["mdm"], known.long(), known, uniform, order="top_prob")
    expected = lt.generate(
        pico, lt.METHODS["mdm"], known.long(), known, lt.Decoding(order="top_prob", latents="all")
    )
    assert torch.equal(replaced.order, expected.order)


def test_noise_of_zero_probability_is_finite(pico):
    """A margin of 0 has a log of minus infinity. Such candidates are decoded last, in their order."""
    known = torch.zeros(1, 16, dtype=torch.bool)
    zero = lt.of_logits(lambda logits: 0 * logits[..., 0], noise_on_log=True)
    decoding = lt.Decoding(4, confidence=zero, confidence_noise=SCALE, refresh=False)
    steps = []
    lt.generate(pico, lt.METHODS["mdm"], known.long(), known, decoding, 0, on_step=steps.append)
    assert [step.chosen.item() for step in steps] == [step.candidates[0][0] for step in steps]


def test_no_latent_policy_is_the_nearest():
    assert lt.Decoding(latent_policy=None) == lt.Decoding(latent_policy="nearest") == lt.Decoding()


def test_row_has_the_noise_only_if_set(nano):
    nano.method = lt.METHODS["mdm"]
    rows = [
        lt.evaluate(nano, lt.TASKS["sudoku-4"], candidates=4, num_samples=4, confidence_noise=noise)[0]
        for noise in (9, None)
    ]
    assert [row.get("confidence_noise") for row in rows] == [9, None]
    table = str(ResultTable(rows, "title"))
    assert str(ResultTable([], "title")) == "title"  # of a rank that measures nothing
    assert "top-prob, noise 9 " in table
    assert "top-prob " in table
