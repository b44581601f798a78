"""Rules that decide after the predictions how many candidates a step decodes."""

from dataclasses import replace
from inspect import signature

import pytest
import torch

import latent_tokens as lt
from latent_tokens.configs import EvalConfig, SamplingConfig
from latent_tokens.core import sampling
from latent_tokens.core.selection import AtMost, select
from latent_tokens.keywords import DecodingKeywords, EvalKeywords, SamplingKeywords, TrainSettings
from latent_tokens.training.config import TrainConfig


def step_of(rows, *, in_order=False, num_candidates=None):
    """Return a step whose candidates have these probabilities."""
    logits = torch.tensor(rows, dtype=torch.float64).log()
    batch, most, _ = logits.shape
    count = torch.full((batch,), most) if num_candidates is None else torch.tensor(num_candidates)
    layout = lt.Layout(torch.arange(most).expand(batch, -1), torch.zeros_like(count), count)
    zeros = torch.zeros(batch, most)
    return lt.Candidates(logits, layout, count, zeros.long(), zeros[:, 0].long(), lambda: zeros, in_order)


# Largest probabilities 0.7, 0.95, 0.9, 0.5; entropies 0.6109, 0.1985, 0.3251, 0.6931 nats.
FOUR = [[[0.7, 0.3], [0.95, 0.05], [0.9, 0.1], [0.5, 0.5]]]


@pytest.mark.parametrize(
    ("rule", "kept", "prefix"),
    [
        (lt.Threshold(0.9), [1, 2], [0]),
        (lt.Threshold(0.95), [1], [0]),
        (lt.Threshold(0.7), [1, 2, 0], [0, 1, 2]),
        (lt.Threshold(0), [0, 1, 2, 3], [0, 1, 2, 3]),
        (lt.Threshold(1.5), [1], [0]),
        (lt.EntropyBound(0.1984), [1], [0]),
        (lt.EntropyBound(0.1986), [1, 2], [0, 1]),  # the sum without the largest: 0.1985; 0.1985 from 0 and 1
        (lt.EntropyBound(0.53), [1, 2, 0], [0, 1, 2]),  # 0.1985 + 0.3251 = 0.5236
        (lt.EntropyBound(1.2), [0, 1, 2, 3], [0, 1, 2, 3]),  # 0.5236 + 0.6109 = 1.1345
        (lt.EntropyBound(0), [1], [0]),
        (lt.Factor(0.1), [1], [0]),  # (1 + 1) 0.05 = 0.1 is not below
        (lt.Factor(0.25), [1], [0]),  # (2 + 1) 0.1 = 0.3
        (lt.Factor(0.31), [1, 2], [0]),  # in order (1 + 1) 0.3 = 0.6
        (lt.Factor(1.21), [1, 2, 0], [0, 1, 2]),  # (3 + 1) 0.3 = 1.2
        (lt.Factor(2.51), [0, 1, 2, 3], [0, 1, 2, 3]),  # (4 + 1) 0.5 = 2.5
        (lt.Factor(0), [1], [0]),
        # joint - mistake: 0.95 - 0.05, 0.85 - 0.1, 0.55 - 0.3; in order 0.7 - 0.3, 0.65 - 0.3, 0.55 - 0.3
        (lt.FrechetBound(0.8), [1], [0]),
        (lt.FrechetBound(0.74), [1, 2], [0]),
        (lt.FrechetBound(0.34), [1, 2], [0, 1]),
        (lt.FrechetBound(0.24), [1, 2, 0], [0, 1, 2]),
        (lt.FrechetBound(0), [1, 2, 0], [0, 1, 2]),  # of four 0.05 - 0.5
        (lt.FrechetBound(1), [1], [0]),
    ],
    ids=str,
)
def test_rule_keeps_what_its_definition_says(rule, kept, prefix):
    confidence = lt.entropy if isinstance(rule, lt.EntropyBound) else lt.top_prob
    for in_order, expected in ((False, kept), (True, prefix)):
        step = step_of(FOUR, in_order=in_order)
        picks, count = select(rule, step, confidence, torch.tensor([4]))
        assert count.tolist() == [len(expected)]
        assert picks[0].tolist() == expected


def test_most_confident_by_margin_is_kept_besides_those_above_a_threshold():
    step = step_of([[[0.5, 0.45, 0.05], [0.4, 0.3, 0.3], [0.45, 0.1, 0.45]]])
    picks, count = select(lt.Threshold(0.49), step, lt.margin, torch.tensor([3]))
    assert picks[0, : int(count)].tolist() == [1, 0]


def test_padding_is_no_candidate_and_the_limit_holds():
    rows = [[[0.9, 0.1]] * 3, [[0.9, 0.1]] * 3]
    for rule in (lt.Threshold(0.5), lt.EntropyBound(9.0), lt.Factor(9.0), lt.FrechetBound(0.1)):
        _, count = select(rule, step_of(rows, num_candidates=[3, 2]), lt.top_prob, torch.tensor([3, 2]))
        assert count.tolist() == [3, 2]
        _, count = select(rule, step_of(rows, num_candidates=[3, 2]), lt.top_prob, torch.tensor([2, 1]))
        assert count.tolist() == [2, 1]


class Fixed(torch.nn.Module):
    """A network that is sure of every token at an even position."""

    mask_id = 2

    def forward(self, ids, positions, mask):
        sure = torch.tensor([9.0, 0.0, 0.0])
        unsure = torch.zeros(3)
        return torch.where((positions % 2 == 0)[..., None], sure, unsure)


def decode(method, known, **settings):
    """Return the samples of `Fixed`, and the positions that each step decodes."""
    known = torch.tensor([known], dtype=torch.bool)
    steps = []
    samples = sampling.generate(
        Fixed(), lt.METHODS[method], known.long() * 0, known, lt.Decoding(**settings), 0, on_step=steps.append
    )
    return samples, [step.chosen[0].tolist() for step in steps]


@pytest.mark.parametrize(
    ("rule", "first", "passes"),
    [
        ({"threshold": 0.9}, 4, 5),  # the four sure tokens, then one of the others a pass
        ({"factor": 0.1}, 4, 5),
        ({"entropy_bound": 0.1}, 5, 4),  # the entropy of the fifth is the largest, which does not count
    ],
)
def test_cost_of_a_worked_case(rule, first, passes):
    samples, chosen = decode("mdm", [0] * 8, candidates="all", **rule)
    assert len(chosen[0]) == first
    assert sorted(chosen[0][:4]) == [0, 2, 4, 6]
    assert samples.passes.tolist() == [passes]
    assert samples.tokens_processed.tolist() == [8 * passes]  # all slots are in the input of mdm


def test_a_step_stays_in_its_block():
    _, chosen = decode("mdm", [0] * 8, candidates="all", order=lt.blockwise(4), threshold=0)
    assert [sorted(positions) for positions in chosen] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_from_left_to_right_the_longest_prefix_is_kept():
    assert decode("ar-mtp", [0] * 6, threshold=0.9)[1] == [[0], [1], [2], [3], [4], [5]]
    assert decode("mdm", [0, 1, 0, 1, 0, 0], order=lt.left_to_right, threshold=0.9)[1] == [[0, 2, 4], [5]]
    assert decode("ar-mtp", [0] * 4, threshold=0.3, tokens_per_step=3)[1] == [[0, 1, 2], [3]]


def test_own_rule_says_how_many_or_which():
    def passes(rule):
        confidence = lt.of_logits(lambda logits: logits.amax(-1))
        return decode("mdm", [0] * 8, candidates="all", select=rule, confidence=confidence)[0].passes.tolist()

    assert passes(lambda step: torch.full((len(step.logits),), 2)) == [4]
    assert passes(lambda step: step.positions < 4) == [5]  # 0 to 3, then one a pass


def test_evaluation_sweeps_rules_and_names_them():
    model = lt.load("sudoku-6-scdm")
    rows = model.evaluate(candidates=("all", 4), threshold=(0.5, 2), num_samples=4).rows
    assert [(row["candidates"], row["threshold"]) for row in rows] == [
        ("all", 0.5), ("all", 2), (4, 0.5), (4, 2),
    ]  # fmt: skip
    assert rows[0]["forward_passes_mean"] < rows[1]["forward_passes_mean"] == 36
    (bound,) = model.evaluate(candidates="all", entropy_bound=1, num_samples=4).rows
    assert (bound["order"], bound["entropy_bound"], bound["paper_cost"]) == ("entropy", 1, None)


def test_own_functions_are_measured_and_named():
    def rightmost(step):
        return step.positions.double()

    def two(step):
        return torch.full((len(step.logits),), 2)

    def some(clean):
        return 3

    model = lt.load("sudoku-6-scdm")
    own = {"confidence": rightmost, "select": two, "candidates": some, "latent_policy": nearest_last}
    (row,) = model.evaluate(num_samples=2, latents=2, **own).rows
    names = ("order", "select", "candidates", "latent_policy", "forward_passes_mean")
    assert [row[name] for name in names] == ["rightmost", "two", "some", "nearest_last", 18]
    assert model.generate(seed=0, latents=2, **own).forward_passes == 18


def nearest_last(step):
    return step.order


@pytest.mark.parametrize(
    ("named", "functions"),
    [
        ({"confidence": "margin"}, {"confidence": lt.margin}),
        ({"order": "entropy"}, {"confidence": lt.entropy}),
        ({"order": "uniform"}, {"order": lt.any_order, "candidates": 1}),
        ({"order": "blockwise:2"}, {"order": lt.blockwise(2)}),
        ({"latent_policy": "random"}, {"latent_policy": lt.random}),
    ],
)
def test_decoding_takes_the_names_of_functions(named, functions):
    assert lt.Decoding(**named) == lt.Decoding(**functions)
    assert replace(lt.Decoding(**named), latents=2) == lt.Decoding(**functions, latents=2)


def test_decoding_stores_one_rule_of_its_short_forms():
    decoding = lt.Decoding(threshold=0.9, tokens_per_step=4)
    assert decoding.select == AtMost(lt.Threshold(0.9), 4)
    assert replace(decoding, tokens_per_step=2).select == AtMost(lt.Threshold(0.9), 2)
    assert replace(decoding, latents=2).select == decoding.select
    assert lt.Decoding(tokens_per_step=1) == lt.Decoding()


OWN_FUNCTIONS = {"select", "remask"}


@pytest.mark.parametrize(
    ("keywords", "config", "others"),
    [
        (DecodingKeywords, lt.Decoding, set()),
        (SamplingKeywords, SamplingConfig, OWN_FUNCTIONS),
        (EvalKeywords, EvalConfig, OWN_FUNCTIONS),
        (TrainSettings, TrainConfig, set()),
    ],
)
def test_keywords_are_the_arguments_of_a_config(keywords, config, others):
    names = {*keywords.__required_keys__, *keywords.__optional_keys__}
    arguments = {"task", "method"}  # which `fit` has by position
    assert names == (others | signature(config).parameters.keys()) - arguments
