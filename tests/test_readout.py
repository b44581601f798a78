"""The readout "left": the prediction for a position is read at the slot of the position to its left."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import latent_tokens as lt
from helpers.oracle import Oracle, frequencies, small_joint, total_variation
from helpers.refusals import refused
from latent_tokens.core.layout import Layout
from latent_tokens.core.likelihood import in_one_pass
from latent_tokens.core.method import left_slots, name_of
from latent_tokens.training.data import check_examples

LENGTH = 16
ALL_SHOWN = lt.METHODS["mdm-left"]
CAUSAL = replace(lt.METHODS["esolm"], order=lt.left_to_right, readout="left")
WINDOWED = replace(lt.METHODS["ar-mtp-window-16"], window=4, readout="left")
READ_LEFT = {"mdm": ALL_SHOWN, "causal": CAUSAL, "window": WINDOWED}
JOINT = small_joint()


def test_mdm_left_is_an_mdm_that_reads_to_the_left():
    assert replace(lt.METHODS["mdm"], readout="left") == ALL_SHOWN
    assert name_of(ALL_SHOWN) == name_of(replace(ALL_SHOWN, name="another")) == "mdm-left"
    controls = {name: method.latent_control for name, method in READ_LEFT.items()}
    assert controls == {"mdm": "fixed", "causal": "none", "window": "fixed"}


def test_slot_to_the_left_is_that_of_the_position_before():
    """The last slot of row 1 is padding."""
    positions = torch.tensor([[0, 2, 3, 1], [2, 0, 1, 0]])
    layout = Layout(positions, num_clean=torch.tensor([2, 2]), num_shown=torch.tensor([4, 3]))
    assert left_slots(layout).tolist() == [[0, 3, 1, 0], [2, 1, 1, 3]]


@pytest.mark.parametrize("name", READ_LEFT)
def test_generate_draws_the_joint_given_the_first(name):
    known = torch.tensor([True, False, False]).expand(4_000, 3)
    tokens = torch.full(known.shape, 2)
    samples = lt.generate(Oracle(JOINT, left=True), READ_LEFT[name], tokens, known, lt.Decoding(1), 0).tokens
    conditional = torch.zeros_like(JOINT)
    conditional[2] = JOINT[2] / JOINT[2].sum()
    assert total_variation(frequencies(samples), conditional) < 0.05


def test_loss_is_the_entropy_given_the_first():
    probabilities = JOINT / JOINT.sum()
    entropy = torch.special.entr(probabilities).sum() - torch.special.entr(probabilities.sum((1, 2))).sum()
    net = Oracle(JOINT, left=True)
    rows = torch.multinomial(
        JOINT.reshape(-1), 30_000, replacement=True, generator=torch.Generator().manual_seed(1)
    )
    tokens = net.outcomes[rows]
    known = torch.arange(3).expand_as(tokens) == 0
    for method in (ALL_SHOWN, replace(ALL_SHOWN, targets="next")):
        value = lt.loss(net, method, tokens, known, torch.Generator().manual_seed(2))
        assert value.item() == pytest.approx(entropy.item() / 2, abs=0.01)


def batch():
    """Three rows of different lengths, their first token and some others known."""
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(0, 4, (3, LENGTH), generator=generator)
    known = torch.rand(3, LENGTH, generator=generator) < 0.2
    known[:, 0] = True
    return tokens, known, torch.tensor([16, 12, 14])


@pytest.mark.parametrize("name", READ_LEFT)
def test_logits_of_some_slots_equal_those_of_all(pico, name):
    method = READ_LEFT[name]
    tokens, known, lengths = batch()
    layout = method.draw(known, lengths, torch.Generator().manual_seed(0))
    targets = layout.shown & ~layout.clean
    every = method.logits(pico, tokens, layout)
    torch.testing.assert_close(method.logits_at(targets, pico, tokens, layout), every[targets])
    in_place = replace(lt.METHODS["mdm"], attention=method.attention).logits(pico, tokens, layout)
    row, slot = targets.nonzero()[0].tolist()
    left = (layout.positions[row] == layout.positions[row, slot] - 1).nonzero()[0].item()
    torch.testing.assert_close(every[row, slot], in_place[row, left])


def test_likelihood_of_left_readout_in_one_pass_is_that_of_the_steps(pico):
    tokens, _, lengths = batch()
    order = torch.arange(LENGTH).expand(3, -1)
    first = torch.ones(3, dtype=torch.int64)
    one = in_one_pass(pico, CAUSAL, tokens, order, first, lengths).log_probabilities
    torch.testing.assert_close(one, lt.log_likelihood(pico, CAUSAL, tokens, order, first, lengths))
    for step in (1, 7):
        layout = Layout(order[:, : step + 1], torch.full((3,), step), torch.full((3,), step + 1))
        logits = CAUSAL.logits(pico, tokens, layout)[:, -1].double().log_softmax(-1)
        expected = logits.gather(1, tokens[:, step : step + 1])[:, 0]
        torch.testing.assert_close(one[:, step], expected, atol=1e-5, rtol=1e-5)


def test_noise_that_masks_the_first_position_is_refused():
    examples = lt.Examples.of(np.zeros((2, LENGTH), np.uint8), 1)
    config = lt.TrainConfig("countdown-3", "mdm-left")
    check_examples(config, ALL_SHOWN, lt.TASKS["countdown-3"], {"train": examples})
    with refused("noise=all is not supported by mdm-left", "noise=answer"):
        check_examples(replace(config, noise="all"), ALL_SHOWN, lt.TASKS["countdown-3"], {"train": examples})
    check_examples(
        replace(config, noise="all"), lt.METHODS["mdm"], lt.TASKS["countdown-3"], {"train": examples}
    )
