"""Results worked out by hand, where a plausible mistake gives another number and no error."""

import json
import math

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from torch import nn

import latent_tokens as lt
from latent_tokens import processes
from latent_tokens.core.policies import PolicyInput
from latent_tokens.core.sampling import generate as reference_generate
from latent_tokens.core.selection import select, sizes_of_steps
from latent_tokens.evaluation.answers import read_answers, score_answers
from latent_tokens.evaluation.intervals import student, wilson_difference
from latent_tokens.evaluation.likelihood import (
    Continuation,
    LikelihoodSettings,
    likelihood_of,
    num_bytes,
    num_tokens,
    score_continuations,
    suffix_of,
)
from latent_tokens.evaluation.rows import percent
from latent_tokens.evaluation.text import Trigrams, perplexity
from latent_tokens.harness.text_model import Codec, TextModel
from latent_tokens.tasks import Examples, Text, joined
from latent_tokens.tasks.countdown import agreement
from latent_tokens.training.run import Stretch
from latent_tokens.training.setup import ema_and_optimizer, first_method
from latent_tokens.training.step import draw_examples, learning_rate, train_step

CPU = torch.device("cpu")


def ints(*values):
    return torch.tensor(values)


# Scores and intervals.


def test_answers_are_scored_against_their_own_problems(tmp_path):
    """Of three problems the second alone is answered, and right: one third is exact."""
    task = lt.TASKS["countdown-3"]
    pairs = (("4,5,3,60", "4*5=20,20*3=60"), ("2,3,4,20", "2+3=5,5*4=20"), ("5,6,7,77", "5+6=11,11*7=77"))
    problems = joined([task.example(*pair) for pair in pairs])
    score = score_answers(task, problems, {1: pairs[1][1]})
    assert score.shares == dict.fromkeys(("lenient", "strict", "exact", "cells"), 1 / 3)
    assert score.unanswered == 2
    assert score.interval("exact") == pytest.approx((0.0615, 0.7923), abs=1e-4)
    # A prompt that is twice in the list has its answers in the order of the lines.
    twice = problems.take([1, 1])
    lines = [{"problem": "2,3,4,20", "answer": answer} for answer in ("first", "second")]
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert read_answers(path, task, twice) == [{0: "first", 1: "second"}]


def test_agreement_is_a_share_of_the_stored_answer():
    """By characters and the end: 1 + 2 = 4 has five of six, 1 + 2 three of six, a longer one five of six."""
    for answer, share in (("1+2=4", 5 / 6), ("1+2", 3 / 6), ("1+2=3,3+3=6", 5 / 6), ("1+2=3", 1)):
        assert agreement(answer, "1+2=3") == pytest.approx(share)


def test_quantiles_of_student_for_2_to_41_values():
    """97.5% quantiles for 1 to 40 degrees of freedom, computed by scipy.stats.t.ppf."""
    # fmt: off
    quantiles = (
        12.70620, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.30600, 2.26216, 2.22814,
        2.20099, 2.17881, 2.16037, 2.14479, 2.13145, 2.11991, 2.10982, 2.10092, 2.09302, 2.08596,
        2.07961, 2.07387, 2.06866, 2.06390, 2.05954, 2.05553, 2.05183, 2.04841, 2.04523, 2.04227,
        2.03951, 2.03693, 2.03452, 2.03224, 2.03011, 2.02809, 2.02619, 2.02439, 2.02269, 2.02108,
    )
    # fmt: on
    for degrees, quantile in enumerate(quantiles, start=1):
        rounding = 5.1e-4 if degrees <= 30 else 2e-4
        assert student(degrees + 1) == pytest.approx(quantile, abs=rounding)


def test_difference_of_shares_is_newcombes():
    """His example (a) of method 10: 56 of 70 against 48 of 80. And from 0, where only one side is wide."""
    assert wilson_difference(56 / 70, 70, 48 / 80, 80) == pytest.approx((0.0524, 0.3339), abs=1e-4)
    assert wilson_difference(0, 10, 0, 20) == pytest.approx((-0.1611, 0.2775), abs=1e-4)


def test_percent_has_two_digits():
    assert (percent(2 / 3), percent(1 / 16)) == (66.67, 6.25)


def test_perplexity_of_texts_together():
    """Texts of 1 and 3 tokens with 1 and 5 nats: exp(6/4). Residuals -1/2 and 1/2, mean length 2."""
    value, (low, high) = perplexity(np.array([1.0, 5.0]), np.array([1, 3]))
    assert value == pytest.approx(math.exp(1.5))
    assert math.log(high / low) == pytest.approx(2 * 12.706 * 0.5 / 2, abs=1e-3)


def test_trigrams_score_all_tokens_but_the_first():
    """After 0 1 0 1, each of two tokens: P(1) = (2 + 2/2) / (4 + 2), P(1 | 0) = (2 + P(1)) / (2 + 1)."""
    model = Trigrams([[0, 1, 0, 1]], 2)
    assert model.probability((0,), 1) == pytest.approx((2 + 0.5) / 3)
    nats, counts = model(Text(3), np.array([[0, 1], [1, 1]], np.uint16), lambda done: None)
    # 0 came once after 1, so P(1 | 1) = (0 + P(1)) / (1 + 1).
    assert nats == pytest.approx([-math.log(2.5 / 3), -math.log(0.5 / 2)])
    assert counts.tolist() == [1, 1]


# Rules of selection, partitions and latent policies.


def step_of(rows, in_order=False):
    """Return a step whose candidates have these probabilities."""
    logits = torch.tensor(rows, dtype=torch.float64).log()
    batch, most, _ = logits.shape
    count, zeros = torch.full((batch,), most), torch.zeros(batch, most)
    layout = lt.Layout(torch.arange(most).expand(batch, -1), torch.zeros_like(count), count)
    return lt.Candidates(logits, layout, count, zeros.long(), zeros[:, 0].long(), lambda: zeros, in_order)


@pytest.mark.parametrize(
    ("rule", "likely", "in_order", "kept"),
    [
        (lt.Threshold(1), [1, 0.9, 1], False, [0, 2]),  # a probability of 1 is at least 1
        (lt.EntropyBound(0), [1, 1, 1], False, [0]),  # 0 keeps one, however sure
        (
            lt.EntropyBound(math.log(2)),
            [0.5, 0.5, 0.5],
            False,
            [0, 1],
        ),  # log 2 without the largest is the limit
        (lt.Factor(0), [1, 1, 1], False, [0]),
        (lt.Factor(0.75), [0.75, 0.75, 0.75], False, [0]),  # (2 + 1) 0.25 is not below
        (lt.Factor(0.5), [0.9, 0.6, 0.9], True, [0]),  # from left to right the 0.6 of the second ends it
        (lt.Factor(0.5), [0.9, 0.6, 0.9], False, [0, 2]),  # (2 + 1) 0.1 is below, (3 + 1) 0.4 is not
        (lt.FrechetBound(1), [1, 1, 1], False, [0]),  # 1 - 0 is not above
        (lt.FrechetBound(0.5), [0.75, 0.75, 0.75], False, [0]),  # 0.75 - 0.25 is not above
        (lt.FrechetBound(0.25), [0.75, 0.75, 0.75], False, [0]),  # 0.5 - 0.25 is not above
    ],
    ids=str,
)
def test_rules_at_their_exact_limits(rule, likely, in_order, kept):
    step = step_of([[[p, 1 - p] for p in likely]], in_order)
    picks, count = select(rule, step, lt.top_prob, ints(3))
    assert picks[0, : int(count)].tolist() == kept


def test_sizes_of_the_steps_of_a_partition():
    """Position 2 is known, so its set has one position. Steps without one are left out."""
    masked = torch.tensor([[True, True, False, True]])
    _, sizes = lt.given_partition([[2, 3], [0, 1]])
    assert sizes(masked, torch.zeros(1, 3)).tolist() == [[1, 2]]
    noise = torch.tensor([[0, 0.24, 0.26, 0.6, 0.99]])
    everything = torch.ones(1, 5, dtype=torch.bool)
    assert lt.reverse_process(4)(everything, noise).tolist() == [[2, 1, 1, 1]]
    given = sizes_of_steps(lambda masked, noise: ints([0, 2, 0, 1]), masked, lambda: None)
    assert given.tolist() == [[2, 1, 0, 0]]
    assert sizes_of_steps(2, everything, lambda: None).tolist() == [[2, 2, 2]]


@pytest.mark.parametrize("padding", [0, 2])
def test_relevance_goes_by_the_direction_of_an_influence(padding):
    """0 is clean and 1 the candidate. 2 has 1 x (3 + 1), and 3 twice the influence on 1 but none from 0.

    Entry (j, i) is the influence of i on j, counted from the end. The opposite directions favor 3.
    """
    relation = torch.zeros(4 + padding, 4 + padding)
    for (row, column), value in {(1, 2): 1, (1, 3): 2, (2, 0): 3, (3, 1): 5, (0, 3): 5}.items():
        relation[row + padding, column + padding] = value
    order = ints([0, 1, 3, 2, *range(4, 4 + padding)])
    chosen = lt.relevant(relation)(PolicyInput(order, ints(1), ints(3), ints(1), ints(1), order))
    assert chosen.tolist() == [[0, 1, 2, 3, *range(4, 4 + padding)]]


# Decoding as latent_tokens.network.cached and latent_tokens.network.fast do.


def logits_of_candidates(method, known, rule, **settings):
    """Return the candidates' logits of each step of both implementations, and its numbers of clean slots."""
    torch.manual_seed(0)
    net = lt.Transformer(lt.Size(16, 2, 2), 3, known.shape[1]).eval()
    decodes = []
    for function in (lt.generate, reference_generate):
        steps = []

        def observed(step, steps=steps):
            steps.append((step.logits, step.layout.num_clean.tolist()))
            return rule(step)

        decoding = lt.Decoding(select=observed, temperature=0, candidates=2, **settings)
        function(net, method, known.long(), known, decoding, 0)
        decodes.append(steps)
    return zip(*decodes, strict=True)


def near_past(q, k, c):
    """The last two slots: a cacheable rule that is not causal."""
    return (k <= q) & (k >= q - 1)


@pytest.mark.parametrize("method", [lt.METHODS["esolm"], lt.Method(lt.any_order, near_past)])
def test_cache_of_rows_that_come_from_different_places(method):
    """Of two and one clean tokens, both rows go to three. The first has cached two of them, the other one."""
    known = torch.arange(6) < ints([2], [1])

    def until_three(step):
        return (3 - step.layout.num_clean).clamp(min=1)

    settings = {"latents": 0, "refresh": False, "order": lt.left_to_right}
    steps = list(logits_of_candidates(method, known, until_three, **settings))
    assert [clean for _, (_, clean) in steps][:2] == [[2, 1], [3, 3]]
    for (logits, clean), (expected, same) in steps:
        assert clean == same
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def near_block(q, k, c, query_block, key_block):
    """The slots of the own block and of the one before."""
    return (key_block == query_block) | (key_block == query_block - 1)


near_block.block = 2


def test_mask_of_an_own_rule_with_blocks_is_that_of_each_row():
    """Block 0 is given, or block 2: equal counts. Block 1 attends to the given one, and block 0 does not."""
    known = torch.arange(6) // 2 == ints([0], [2])
    method = lt.Method(lt.blockwise(2), near_block, latents="all")

    def one(step):
        return torch.ones_like(step.num_candidates)

    for (logits, _), (expected, _) in logits_of_candidates(method, known, one):
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


# Likelihoods.


class Turning:
    """Prefers 0 everywhere, but 1 at position 1 as soon as position 2 is clean."""

    mask_id = 2

    def __call__(self, ids, positions, mask):
        is_turned = ((positions == 2) & (ids != self.mask_id)).any(1, keepdim=True) & (positions == 1)
        return torch.where(is_turned[..., None], torch.tensor([0.0, 1, 0]), torch.tensor([1.0, 0, 0]))


def test_greedy_is_so_along_every_order():
    """1 before 2 is greedy, 2 before 1 is not. The last order alone does not decide."""
    rows = [Continuation([0], [0, 0], number) for number in range(16)]
    settings = LikelihoodSettings(orders=4, latents=0)
    scores = score_continuations(Turning(), lt.METHODS["scdm"], rows, settings, device=CPU)
    likely, unlikely = -2 * math.log(1 + math.exp(-1)), -2 * math.log(1 + math.exp(-1)) - 1
    for score in scores:
        assert all(min(abs(nats - likely), abs(nats - unlikely)) < 1e-5 for nats in score.nats)
        assert score.is_greedy == (min(score.nats) > likely - 0.5)
    assert {score.nats[-1] > likely - 0.5 for score in scores if not score.is_greedy} == {True, False}


def test_likelihood_of_two_orders():
    """Texts of 1 and 3 tokens: 6 and 10 of 4 tokens are 1.5 and 2.5 nats per token."""
    row = likelihood_of(np.array([[1.0, 5.0], [3.0, 7.0]]), np.array([1, 3]), 2)
    assert row["nats"] == [1.5, 2.5]
    assert row["standard_error"] == pytest.approx(math.sqrt(0.5) / math.sqrt(2))
    assert row["perplexity"] == pytest.approx(math.exp(2))
    assert row["bits_per_byte"] == pytest.approx(8 / math.log(2) / 2)
    assert (row["sequences"], row["tokens"], row["bytes"]) == (2, 4, 2)


def test_tokens_and_bytes_of_a_response():
    """Of the ends that fill a response one counts. A text whose first token is given counts all others."""
    task = Text(8)
    end = task.coder.end
    letters = np.array([[end, *b"ab", *"\u00e9".encode(), end, end, end], [end, *b"abcd", end, end, end]])
    known = np.arange(8) < np.array([[3], [1]])
    examples = Examples(letters.astype(np.uint16), known, np.array([8, 7], np.uint16))
    assert num_tokens(task, examples).tolist() == [2 + 1, 6]
    assert num_bytes(task, examples) == 2 + 4


def test_suffix_is_the_latent_tokens_of_the_last_token():
    for name, latents, suffix in (
        ("ar-mtp-window-4", None, 3),
        ("mdm", None, 0),
        ("scdm", 2, 2),
        ("scdm", "all", 0),
        ("arm", None, 0),
    ):
        assert suffix_of(lt.METHODS[name], LikelihoodSettings(latents=latents)) == suffix


def text_model(max_length, tokenizer):
    """Return a language model of four tokens and an end."""
    torch.manual_seed(0)
    net = lt.Transformer(lt.Size(16, 2, 2), 5, max_length).eval()
    codec = Codec("letters", 4, 4, lambda text, special: [], lambda ids: "", tokenizer)
    return TextModel(net, codec, lt.METHODS["scdm"], max_length)


def test_context_that_is_too_long_loses_its_first_tokens():
    """Four positions and one new token: three are left, and the one in front of a text stays."""
    assert text_model(4, object()).fitted([4, 0, 1, 2, 3], 1) == [1, 2, 3]
    assert text_model(4, None).fitted([4, 0, 1, 2, 3], 1) == [4, 2, 3]
    assert (text_model(8, object()).rolling_length(2), text_model(8, None).rolling_length(2)) == (5, 4)


# Training.


class Uniform(nn.Module):
    """Predicts four tokens from one weight each, whatever the input."""

    mask_id = 4

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(5))

    def forward(self, ids, positions, mask):
        return self.weight.expand(*ids.shape, -1)


def config(**settings):
    values = {"size": "pico", "batch_size": 2, "steps": 12, "warmup": 0, "lr": 1.0, "schedule": "constant"}
    return lt.TrainConfig("sudoku-4", "scdm", **{**values, "precision": "fp32", "clip": 100, **settings})


def stepped(*tokens, stretches=(), step=0, **settings):
    """Return the loss, the gradient norm and the change of the weights of a step on rows of equal tokens."""
    settings = config(**settings)
    method = lt.METHODS["scdm"]
    examples = Examples.of(np.array(tokens, np.uint8)[:, None].repeat(3, 1), 0)
    batch = draw_examples(examples, method, settings, 4, 0, 0)
    net = Uniform()
    optimizer = torch.optim.SGD(net.parameters(), 9.0)
    accelerator = Accelerator(cpu=True)
    loss, norm = train_step(net, method, optimizer, batch, settings, step, accelerator, stretches)
    return loss, norm, net.weight.detach()[:4]


def test_gradient_is_clipped_to_the_norm_of_the_config():
    """The gradient of 0 0 0 is p - (1 0 0 0), of the norm sqrt(9/16 + 3/16)."""
    for clip, length in ((100, math.sqrt(0.75)), (0.25, 0.25), (0.5, 0.5)):
        loss, norm, change = stepped(0, 0, clip=clip)
        assert (loss, norm) == pytest.approx((math.log(4), math.sqrt(0.75)), abs=1e-4)
        assert change.norm().item() == pytest.approx(length, abs=1e-4)


def test_parts_of_a_batch_add_up(monkeypatch):
    """In one part, a part per row, and on two ranks, whose gradients are averaged."""
    loss, _, whole = stepped(0, 1)
    assert loss == pytest.approx(math.log(4))
    assert whole.tolist() == pytest.approx([0.25, 0.25, -0.25, -0.25])
    with monkeypatch.context() as patch:
        patch.setattr("latent_tokens.training.step.training_rows", lambda net, slots: 1)
        loss, _, change = stepped(0, 1)
        assert loss == pytest.approx(math.log(4))
        assert change.tolist() == pytest.approx(whole.tolist())
    monkeypatch.setattr("latent_tokens.processes.world_size", lambda: 2)
    monkeypatch.setattr(processes, "all_reduce_sum", lambda values, device: values)
    of_ranks = []
    for rank in (0, 1):
        monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
        loss, _, change = stepped(0, 1)
        assert loss == pytest.approx(math.log(4) / 2)
        of_ranks.append(change)
    assert (sum(of_ranks) / 2).tolist() == pytest.approx(whole.tolist())


def test_shares_of_ranks_are_put_together_in_order(monkeypatch):
    monkeypatch.setattr("latent_tokens.processes.world_size", lambda: 2)
    monkeypatch.setattr(processes, "rank", lambda: 1)
    assert processes.shard_indices(5).tolist() == [1, 3]
    monkeypatch.setattr(processes, "all_gather_object", lambda rows: [np.array([0, 2, 4]), rows])
    assert processes.gather_rows(np.array([1, 3])).tolist() == [0, 1, 2, 3, 4]


def test_rate_of_a_step_is_that_of_its_stretch():
    """Step 18 of 12 + 12 is half of the second cosine, and three quarters of one over 24."""
    settings = {"steps": 24, "schedule": "cosine"}
    stretches = (Stretch(0, 12), Stretch(12, 24))
    *_, change = stepped(0, 0, step=18, stretches=stretches, **settings)
    assert change[1].item() == pytest.approx(-0.25 * 0.5)
    assert learning_rate(config(**settings), 18) == pytest.approx((1 - math.sqrt(0.5)) / 2)


def test_decay_of_weights_and_of_their_average_are_those_of_the_config():
    """Without a gradient AdamW takes lr x decay of a weight. After a copy, 0.05 of the average stays."""
    net = Uniform()
    ema, optimizer = ema_and_optimizer(net, config(weight_decay=0.25, ema=0.05, lr=0.5), CPU)
    with torch.no_grad():
        net.weight.fill_(1)
    net.weight.grad = torch.zeros(5)
    ema.update_parameters(net)
    optimizer.step()
    assert net.weight.tolist() == pytest.approx([1 - 0.5 * 0.25] * 5)
    ema.update_parameters(net)
    assert ema.module.weight.tolist() == pytest.approx([0.05 + 0.95 * 0.875] * 5)


def test_given_tokens_stay_clean_if_all_others_are_padding():
    """Two given tokens that are PAD, and an answer of PAD: its first masked position is the first."""
    rows = Examples.padded([[0, 0, 0]] * 16, 2, 5, [5] * 16)
    batch = draw_examples(rows, lt.METHODS["ar-mtp"], config(), 9, step=0, part=0, pad=0)
    assert batch.layout.num_clean.tolist() == [2] * 16


def test_first_method_has_the_weight_and_the_targets_of_the_run():
    settings = config(first="mdm:4", weight="flat", targets="next")
    first = first_method(settings, lt.METHODS["scdm"])
    assert (first.attention.__name__, first.weight, first.targets) == ("bidirectional", "flat", "next")
