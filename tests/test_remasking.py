"""Remasking: what goes back, what it costs, and that it ends."""

from dataclasses import replace
from functools import partial

import pytest
import torch

import latent_tokens as lt
from helpers.refusals import refused
from latent_tokens.core.order import demote, promote
from latent_tokens.core.remasking import tokens_to_mask
from latent_tokens.core.sampling import generate as reference_generate

LENGTH = 16


class Doubter:
    """A network whose clean slots are sure of their token, except that of position `doubted`.

    A masked position has token 1, and its probability rises with the position.
    """

    mask_id = 4

    def __init__(self, doubted=(), until=10**9):
        self.doubted, self.until, self.calls = doubted, until, 0

    def __call__(self, ids, positions, mask):
        self.calls += 1
        logits = torch.zeros(*ids.shape, 5)
        logits[..., 1] = 2 + positions / 8
        clean = ids != self.mask_id
        logits += 20.0 * clean[..., None] * torch.nn.functional.one_hot(ids, 5)
        for position in self.doubted if self.calls <= self.until else ():
            logits[clean & (positions == position)] = torch.tensor([9.0, 0, 0, 0, 0])
        return logits


def decode(net, known=None, length=4, **settings):
    known = torch.zeros(1, length, dtype=torch.bool) if known is None else known
    settings = {"candidates": "all", "temperature": 0, **settings}
    return reference_generate(net, lt.METHODS["mdm"], known.long(), known, lt.Decoding(**settings), 0)


def test_demote_undoes_promote():
    order = torch.tensor([[2, 0, 3, 1, 4]])
    two = torch.tensor([2])
    promoted = promote(order, two, torch.tensor([[3]]), torch.tensor([1]))
    assert promoted.tolist() == [[2, 0, 1, 3, 4]]
    chosen = torch.tensor([[False, False, True, False, True]])
    assert demote(promoted, two + 1, chosen).tolist() == [[2, 0, 1, 3, 4]]
    chosen = torch.tensor([[True, False, False, True, True]])
    assert demote(promoted, two + 1, chosen).tolist() == [[0, 1, 2, 3, 4]]


def test_a_token_below_the_bound_is_decoded_again_until_the_budget_ends():
    # 4 passes decode each token. Position 3 comes first, and is masked after each later pass.
    sure = decode(Doubter(), remask_below=0.5)
    assert (sure.forward_passes, sure.tokens_processed.tolist()) == (4, [16])
    once = decode(Doubter([3], until=4), remask_below=0.5)  # two calls a step: the second to look
    assert once.forward_passes == 5
    # It is masked after positions 2, 1 and 0, as often as passes are left to decode it.
    for extra, used in ((1, 1), (2, 2), (3, 3), (None, 3)):
        samples = decode(Doubter([3]), remask_below=0.5, extra_passes=extra)
        assert samples.forward_passes == 4 + used
        assert samples.tokens.tolist() == [[1, 1, 1, 1]]


def test_a_given_token_is_never_touched():
    known = torch.tensor([[False, False, False, True]])
    net = Doubter([3])
    samples = reference_generate(
        net, lt.METHODS["mdm"], 2 * known.long(), known, lt.Decoding(candidates="all", remask_below=0.9), 0
    )
    assert samples.forward_passes == 3
    assert samples.tokens[0, 3] == 2


@pytest.mark.parametrize("order", [lt.left_to_right, lt.given([4, 0, 5, 1, 3, 2]), lt.blockwise(1)])
def test_what_goes_back_takes_its_place_in_the_order_or_its_block(order):
    known = torch.zeros(1, 6, dtype=torch.bool)
    first = lt.left_to_right(known) if order == lt.blockwise(1) else order(known)

    def remask(step):
        chosen = torch.zeros_like(step.is_decoded)
        chosen[0, {3: [0], 4: [0, 2]}.get(int(step.number), [])] = True
        return chosen

    steps = []
    decoding = lt.Decoding(order=order, candidates=1, remask=remask)
    reference_generate(Doubter(), lt.METHODS["mdm"], known.long(), known, decoding, 0, on_step=steps.append)
    decoded = [0, 1, 2, 0, 0, 1, 3, 4, 5]  # ranks: the last two that went back are decoded in their order
    assert [step.chosen[0, 0].item() for step in steps] == [first[0, rank].item() for rank in decoded]


def test_nothing_to_decode_takes_no_pass():
    known = torch.ones(2, 4, dtype=torch.bool)
    samples = decode(Doubter(), known, remask_below=0.5)
    assert (samples.forward_passes, samples.tokens.tolist()) == (0, [[1, 1, 1, 1]] * 2)


def test_every_second_step_the_least_sure_token_goes_back():
    steps = []
    known = torch.zeros(1, 4, dtype=torch.bool)
    decoding = lt.Decoding(candidates="all", temperature=0, remask_every=2, extra_passes=2)
    arguments = (known.long(), known, decoding, 0)
    reference_generate(Doubter(), lt.METHODS["mdm"], *arguments, on_step=steps.append)
    # After positions 3 and 2, position 2 is the least sure. After 2 and 1, it is 1.
    assert [step.chosen[0, 0].item() for step in steps] == [3, 2, 2, 1, 1, 0]


def test_rules_read_the_probability_of_their_time():
    """`then` ranks for the least sure token, and `now` has to fall below the bound and below `then`."""
    then = torch.tensor([[0.1, 0.3, 0.2, 0.9, 1.0]])
    now = torch.tensor([[0.0, 0.05, 0.2, 0.4, 1.0]])
    is_decoded = torch.tensor([[False, True, True, True, False]])  # one given, three decoded, one masked
    order = torch.arange(5)[None]
    step = lt.Decoded(order, order, then, torch.tensor([4]), is_decoded, lambda: now)
    assert lt.LeastConfident(2)(step).tolist() == [[False, False, True, False, False]]
    assert not lt.LeastConfident(3)(step).any()
    assert lt.BelowBound(0.25)(step)[0, 1:4].tolist() == [True, False, False]
    assert lt.BelowBound(0.5)(step)[0, 1:4].tolist() == [True, False, True]


def test_probabilities_that_differ_by_rounding_are_equal():
    """Which is smaller would depend on the batch. So the first in the order goes back."""
    then = torch.tensor([[0.9, 0.2 + 1e-7, 0.2, 0.8, 0.3]])
    order, number, is_decoded = torch.arange(5)[None], torch.tensor([2]), torch.ones(1, 5, dtype=torch.bool)
    step = lt.Decoded(order, order, then, number, is_decoded, lambda: then - 1e-7)
    assert lt.LeastConfident(2)(step).tolist() == [[False, True, False, False, False]]
    assert not lt.BelowBound(1)(step).any()
    below = lt.BelowBound(0.2)(replace(step, then=torch.ones(1, 5)))
    assert not below.any()
    rule = lambda step: step.now < 0.5  # noqa: E731
    for most, gone in ((0, []), (1, [1]), (2, [1, 2]), (5, [1, 2, 4])):
        assert tokens_to_mask(rule, step, torch.tensor([most]))[0].nonzero()[:, 0].tolist() == gone


def test_no_remasking_is_decoding_as_it_was(nano):
    known = torch.zeros(8, LENGTH, dtype=torch.bool)
    decoding = lt.Decoding(candidates=4)
    plain = lt.generate(nano, lt.METHODS["mdm"], known.long(), known, decoding)
    never = lt.generate(nano, lt.METHODS["mdm"], known.long(), known, decoding, remask_below=0)
    for field in ("tokens", "order", "passes", "tokens_processed"):
        assert torch.equal(getattr(plain, field), getattr(never, field))


@pytest.mark.parametrize("method", ["mdm", "scdm", "ar-mtp"])
@pytest.mark.parametrize(
    "settings",
    [{"remask_below": 0.3}, {"remask_every": 3, "refresh": False}, {"remask_every": 2, "threshold": 0.9}],
    ids=str,
)
def test_fast_and_reference_alone_and_in_a_batch_are_equal(nano, method, settings):
    draw = torch.Generator().manual_seed(0)
    known = torch.rand(8, LENGTH, generator=draw) < 0.3
    tokens = torch.randint(4, (8, LENGTH), generator=draw)
    lengths = torch.randint(5, LENGTH + 1, (8,), generator=draw)
    k = None if method == "ar-mtp" else 4
    decoding = lt.Decoding(candidates=k, temperature=2.0, **settings)
    fast = lt.generate(nano, lt.METHODS[method], tokens, known, decoding, 1, lengths=lengths)
    plain = reference_generate(nano, lt.METHODS[method], tokens, known, decoding, 1, lengths=lengths)
    for field in ("tokens", "order", "passes", "tokens_processed"):
        assert torch.equal(getattr(fast, field), getattr(plain, field))
    inside = torch.arange(LENGTH) < lengths[:, None]
    num_masked = (~known & inside).sum(1)
    assert (fast.passes <= 2 * num_masked).all()
    if "threshold" not in settings:  # which decodes several tokens in a step
        assert (fast.passes >= num_masked).all()
        assert (fast.passes > num_masked).any()
    assert (fast.tokens[known & inside] == tokens[known & inside]).all()
    assert (fast.tokens[inside] < 4).all()
    alone = torch.tensor([5])
    one = lt.generate(
        nano,
        lt.METHODS[method],
        tokens[alone],
        known[alone],
        decoding,
        1,
        rows=alone,
        lengths=lengths[alone],
    )
    assert torch.equal(one.tokens, fast.tokens[alone])


def test_a_rule_of_your_own_reads_what_it_needs(nano):
    seen = []

    def after_half(step):
        seen.append(step)
        return step.is_decoded & (step.number == 8)[:, None]

    known = torch.zeros(2, LENGTH, dtype=torch.bool)
    samples = lt.generate(
        nano, lt.METHODS["mdm"], known.long(), known, candidates=1, remask=after_half, extra_passes=3
    )
    assert samples.passes.tolist() == [LENGTH + 3] * 2
    assert seen[0].is_decoded.sum(1).tolist() == [1, 1]
    first = seen[0].is_decoded
    torch.testing.assert_close(seen[0].now[first], seen[0].then[first], rtol=1e-5, atol=0)
    (row,) = lt.evaluate(
        replace_method(nano, "mdm"), lt.TASKS["sudoku-4"], num_samples=2, candidates=1, remask=after_half
    )
    assert (row["remask"], row["forward_passes"]) == ("after_half", LENGTH + 8)
    model = lt.load("sudoku-6-mdm")
    boards = model.generate(num_samples=2, candidates=1, remask=after_half, extra_passes=3)
    assert boards.forward_passes == 36 + 3
    with refused("remask=0.1: must be a function. Use remask_below=0.2"):
        model.generate(remask=0.1)


def replace_method(net, name):
    copy = lt.Transformer(net.size, net.vocab_size, net.max_length).eval()
    copy.load_state_dict(net.state_dict())
    copy.method = lt.METHODS[name]
    return copy


def refused_decode(method, **settings):
    known = torch.zeros(1, 4, dtype=torch.bool)
    net = lt.Transformer(lt.Size(16, 2, 1), 4, 4).eval()
    return partial(lt.generate, net, lt.METHODS[method], known.long(), known, **settings)


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        *(
            (refused_decode(method, remask_below=0.1), ("remask", method, "mdm or scdm"))
            for method in ("esolm", "arm", "block-mdm-2")
        ),
        (refused_decode("mdm", remask_below=-1), ("remask_below=-1", "from 0")),
        (refused_decode("mdm", remask_every=1), ("remask_every=1", "from 2")),
        (refused_decode("mdm", remask_every=2, remask_below=0.1), ("remask_below=0.1", "one of them")),
        (refused_decode("mdm", extra_passes=3), ("extra_passes=3", "remask_below=0.1")),
        (refused_decode("mdm", remask=0.1), ("remask=0.1", "function")),
        (refused_decode("mdm", remask=lambda step: step.now), ("remask=", "bool")),
        (refused_decode("mdm", remask=lambda step: None), ("remask=", "bool")),
        (
            refused_decode("mdm", remask_below=0.1, confidence_noise=1),
            ("confidence_noise=1", "one of the two"),
        ),
        (refused_decode("mdm", remask_below=0.1, t_max=1, t_min=0), ("t_max=1", "one of the two")),
        (
            refused_decode("mdm", remask_below=0.1, tokens_per_step=lt.equal_parts(2)),
            ("tokens_per_step", "one of the two"),
        ),
    ],
)
def test_refused(call, parts):
    with refused(*parts):
        call()


def test_settings_replace_each_other():
    decoding = lt.Decoding(remask_below=0.1)
    assert decoding.remask == lt.BelowBound(0.1)
    assert replace(decoding, latents=2).remask == lt.BelowBound(0.1)
