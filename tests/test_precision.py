"""The effect of the network's precision on decoding, step by step along the trajectory of float64."""

from copy import deepcopy

import pytest
import torch

from latent_tokens import TASKS, Decoding, from_pretrained
from latent_tokens.core.sampling import generate

TASK = TASKS["sudoku-6"]
# Total variation at the worst slot of all. Measured: 3e-6 to 1e-5, and 0.04 to 0.1.
BOUND = {torch.float32: 2e-5, torch.bfloat16: 0.2}


class Beside:
    """Return a network in float64, and the distance of another precision from it at each slot."""

    supports_slots = None

    def __init__(self, net, dtype):
        self.exact = deepcopy(net).double()
        self.rough = deepcopy(net).to(dtype)
        self.mask_id = net.mask_id
        self.found = []

    def __call__(self, ids, positions, mask):
        exact = self.exact(ids, positions, mask)
        apart = (exact.softmax(-1) - self.rough(ids, positions, mask).double().softmax(-1)).abs().sum(-1) / 2
        self.found.append(apart[ids == self.mask_id])
        return exact


@pytest.mark.parametrize("name", ["mdm", "sidm", "scdm", "ar-mtp"])
@pytest.mark.parametrize("dtype", BOUND)
def test_predictions_drift_no_further_than_the_precision(name, dtype):
    net = from_pretrained(f"sudoku-6-{name}")
    beside, nothing = Beside(net, dtype), torch.zeros(4, TASK.length, dtype=torch.bool)
    made = generate(beside, net.method, nothing.long(), nothing, Decoding(1 if name == "ar-mtp" else 4), 0)
    assert made.forward_passes == len(beside.found) == TASK.length
    worst = torch.cat(beside.found).max().item()
    assert 0 < worst < BOUND[dtype]


@pytest.mark.parametrize("name", ["mdm", "sidm", "scdm", "arm", "ar-mtp"])
def test_float32_draws_what_float64_draws(name):
    net, nothing = from_pretrained(f"sudoku-6-{name}"), torch.zeros(8, TASK.length, dtype=torch.bool)
    decoding = Decoding(1 if "ar" in name else 4)
    made = [
        generate(one, net.method, nothing.long(), nothing, decoding, 0)
        for one in (net, deepcopy(net).double())
    ]
    assert made[0].tokens.equal(made[1].tokens)
    assert made[0].order.equal(made[1].order)
