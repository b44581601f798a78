"""The teacher-forced order of a sequence is the one in which the model would have decoded it."""

import sys
from functools import partial

import numpy as np
import pytest
import torch

from helpers.documentation import ROOT
from helpers.oracle import Oracle, small_joint
from latent_tokens import METHODS, Decoding
from latent_tokens.core.layout import next_layout
from latent_tokens.core.sampling import generate

sys.path.append(str(ROOT / "research" / "nats"))

from teacher_forcing import teacher_forced_order

torch.set_num_threads(1)
LENGTH = 5


@pytest.fixture(scope="module")
def net():
    return Oracle(small_joint(length=LENGTH))


def by_hand(net, method, row, k, n, seed, number):
    """The order of one row, with a plain loop over steps and candidates."""
    stream = np.random.default_rng((seed, number))
    schedule = np.argsort(stream.random(LENGTH), kind="stable").tolist()
    decoded = []
    while schedule:
        candidates = schedule[:k]
        latents = schedule[k : k + n]
        order = torch.tensor([[*decoded, *candidates, *latents, *schedule[k + n :]]])
        counts = (torch.tensor([count]) for count in (len(decoded), len(candidates), len(latents)))
        shown = torch.full((1, LENGTH), net.mask_id)
        shown[0, decoded] = row[decoded]
        logits = method.logits(net, shown, next_layout(order, *counts))[0, -len(candidates) :]
        confidence = logits.double().softmax(-1).amax(-1)
        decoded.append(schedule.pop(int(confidence.argmax())))
        stream.random(1)  # the sampled token, which is replaced
        schedule = [schedule[i] for i in np.argsort(stream.random(len(schedule)), kind="stable")]
    return decoded


@pytest.mark.parametrize(("name", "k", "n"), [("scdm", 3, LENGTH), ("scdm", 2, 1), ("mdm", 3, None)])
def test_teacher_forced_order_is_that_of_a_plain_loop(net, name, k, n):
    tokens = net.outcomes[[7, 100, 242]]
    decoding = Decoding(candidates=k, latents=n)
    order = teacher_forced_order(net, METHODS[name], tokens, torch.zeros_like(tokens).bool(), decoding, 3)
    plain = partial(by_hand, net, METHODS[name], k=k, n=LENGTH if n is None else n, seed=3)
    assert order.tolist() == [plain(row, number=number) for number, row in enumerate(tokens)]


def test_teacher_forced_order_of_a_sample_is_that_of_its_decoding(net):
    """With the same seed, the sample is what teacher forcing writes. Known positions and lengths count."""
    known = torch.zeros(64, LENGTH, dtype=torch.bool)
    known[::2, 1] = True
    lengths = torch.tensor([5, 4]).repeat(32)
    decoding = Decoding(candidates=2, latents=2)
    given = torch.zeros_like(known).long()
    made = generate(net, METHODS["scdm"], given, known, decoding, 1, lengths=lengths)
    order = teacher_forced_order(net, METHODS["scdm"], made.tokens, known, decoding, 1, lengths=lengths)
    assert torch.equal(order, made.order)
    other = (made.tokens + 1) % 3
    assert not torch.equal(
        teacher_forced_order(net, METHODS["scdm"], other, known, decoding, 1, lengths=lengths), made.order
    )
