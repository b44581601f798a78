"""Annealed noise on the confidence: the formula, its streams, its refusals, and the rows that name it."""

from dataclasses import fields

import numpy as np
import pytest
import torch

from helpers.refusals import refused
from latent_tokens import (
    METHODS,
    TASKS,
    Decoding,
    EvalConfig,
    entropy,
    evaluate,
    generate,
    margin,
    of_logits,
    top_prob,
)
from latent_tokens.commands import COMMANDS
from latent_tokens.commands.results import cells
from latent_tokens.configs import SamplingConfig
from latent_tokens.evaluation.report import measurement
from latent_tokens.evaluation.settings import decoding_for
from latent_tokens.model import ResultTable
from latent_tokens.paper.recipes import evaluation_content

TASK = TASKS["sudoku-4"]
SCALE = 2.0
NUM_KNOWN = 4
NUM_ROWS = 16


def doubt(step):
    """A confidence of one's own, which is negative and no log."""
    return top_prob(step) - 1


def on_scale_of_noise(confidence, probabilities):
    """Return the confidence on the scale that the noise is added to."""
    first, second = probabilities.topk(2, dim=-1).values.unbind(-1)
    if confidence is entropy:
        return -torch.special.entr(probabilities).sum(-1)
    return {top_prob: first.log(), margin: (first - second).log(), doubt: first - 1}[confidence]


@pytest.mark.parametrize("confidence", [top_prob, margin, entropy, doubt])
def test_step_decodes_the_highest_noisy_confidence(pico, confidence):
    """A plain loop over steps and rows, which draws from each row's stream in the order of the sampler."""
    known = (torch.arange(16) < NUM_KNOWN).expand(NUM_ROWS, 16)
    decoding = Decoding(5, confidence=confidence, confidence_noise=SCALE, refresh=False)
    steps = []
    generate(pico, METHODS["mdm"], known.long(), known, decoding, 3, on_step=steps.append)
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


def test_noise_of_zero_probability_is_finite(pico):
    """A margin of 0 has a log of minus infinity. Such candidates are decoded last, in their order."""
    known = torch.zeros(1, 16, dtype=torch.bool)
    zero = of_logits(lambda logits: 0 * logits[..., 0], noise_on_log=True)
    decoding = Decoding(4, confidence=zero, confidence_noise=SCALE, refresh=False)
    steps = []
    generate(pico, METHODS["mdm"], known.long(), known, decoding, 0, on_step=steps.append)
    assert [step.chosen.item() for step in steps] == [step.candidates[0][0] for step in steps]


def test_row_and_hash_have_the_noise_only_if_set(nano):
    nano.method = METHODS["mdm"]
    rows = [
        evaluate(nano, TASK, candidates=4, num_samples=4, confidence_noise=noise)[0] for noise in (9, None)
    ]
    assert [row.get("confidence_noise") for row in rows] == [9, None]
    shown = str(ResultTable(rows, "title"))
    assert "top-prob, noise 9 " in shown
    assert "top-prob " in shown
    assert cells(measurement({**rows[0], "run": "a"}))[6] == "top_prob, noise 9"
    assert cells(measurement({**rows[1], "run": "a"}))[6] == "top_prob"
    assert evaluation_content(EvalConfig(confidence_noise=0)) == evaluation_content(EvalConfig())
    assert evaluation_content(EvalConfig(confidence_noise=4.5))["confidence_noise"] == 4.5


def test_commands_that_sample_have_the_noise():
    for command in ("sample", "evaluate"):
        assert "confidence_noise" in {field.name for field in fields(COMMANDS[command])}


def test_noise_without_a_choice_is_refused():
    for method, order in (("mdm", "uniform"), ("arm", "left_to_right")):
        with refused("confidence_noise=1 with candidates=1", "candidates=8"):
            decoding_for(METHODS[method], TASK, SamplingConfig(order=order, confidence_noise=1))
    assert decoding_for(METHODS["mdm"], TASK, SamplingConfig(order="blockwise:4", confidence_noise=1))
