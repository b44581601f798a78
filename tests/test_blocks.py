"""Blocks of positions, decoded from left to right: the order, the rule, and methods with both."""

import pytest
import torch

import latent_tokens as lt
from helpers.refusals import refused
from latent_tokens.configs import SamplingConfig
from latent_tokens.core import sampling as reference
from latent_tokens.core.attention import agree, bidirectional, causal
from latent_tokens.core.decoding import candidates_of
from latent_tokens.core.layout import Layout
from latent_tokens.core.likelihood import score_tokens
from latent_tokens.core.method import name_of
from latent_tokens.evaluation.settings import decoding_for

LENGTH = 16
BLOCKS = lt.METHODS["block-mdm-4"]
NOTHING_KNOWN = torch.zeros(5, LENGTH, dtype=torch.bool)
ANYTHING = torch.zeros(5, LENGTH, dtype=torch.int64)


def arranged(seed=0):
    """Orders of five rows, by block, half of them with gaps that are known."""
    known = torch.rand(5, LENGTH, generator=torch.Generator().manual_seed(seed)) < 0.3
    noise = torch.rand(5, LENGTH, generator=torch.Generator().manual_seed(seed + 1))
    return known, lt.blockwise(4)(known, noise)


def test_blockwise_order_is_by_block_and_any_within_one():
    known, order = arranged()
    assert torch.equal(order.sort(1).values, torch.arange(LENGTH).expand(5, -1))
    for row in range(5):
        clean = int(known[row].sum())
        assert order[row, :clean].tolist() == known[row].nonzero().flatten().tolist()
        blocks = (order[row, clean:] // 4).tolist()
        assert blocks == sorted(blocks)
    firsts = lt.blockwise(2)(torch.zeros(400, 4, dtype=torch.bool), torch.rand(400, 4))[:, [0, 2]]
    assert firsts.float().mean(0).tolist() == pytest.approx([0.5, 2.5], abs=0.15)


def test_block_causal_mask_is_its_definition_slot_by_slot():
    _, order = arranged()
    layout = Layout(order[:, :10], torch.full((5,), 6), torch.full((5,), 9))
    mask = lt.dense_mask(lt.block_causal(4), layout)
    for row, q, k in torch.cartesian_prod(torch.arange(5), torch.arange(10), torch.arange(10)).tolist():
        block_q, block_k = (int(order[row, slot]) // 4 for slot in (q, k))
        expected = block_k <= block_q if q < 9 and k < 9 else q == k
        assert bool(mask[row, q, k]) == expected
    last = torch.tensor([[8, 3]]).expand(5, -1)
    assert torch.equal(lt.dense_mask(lt.block_causal(4), layout, last), mask[:, [8, 3]])


@pytest.mark.parametrize("method", [lt.METHODS["scdm"], BLOCKS], ids=name_of)
def test_generate_decodes_blocks_from_left_to_right(pico, method):
    known, _ = arranged()
    decoding = lt.Decoding(order=lt.blockwise(4), candidates=8, tokens_per_step=3)
    steps = []
    samples = lt.generate(pico, method, ANYTHING, known, decoding, 0, on_step=steps.append)
    for row in range(5):
        blocks = (samples.order[row, int(known[row].sum()) :] // 4).tolist()
        assert blocks == sorted(blocks)
    for step in steps:
        assert all(len({position // 4 for position in row}) == 1 for row in step.candidates)
    assert lt.generate(pico, method, ANYTHING, NOTHING_KNOWN, decoding, 0).forward_passes == 8


def test_input_of_block_mdm_ends_with_the_block(pico):
    assert BLOCKS.latent_control == "fixed"
    made = lt.generate(pico, BLOCKS, ANYTHING, NOTHING_KNOWN, lt.Decoding(candidates=2), 0)
    assert made.tokens_processed.tolist() == [sum(4 * (clean // 4 + 1) for clean in range(LENGTH))] * 5


def test_one_block_is_the_rule_and_the_order_of_mdm():
    one = lt.METHODS[f"block-mdm-{LENGTH}"]
    _, order = arranged()
    layout = Layout(order, torch.full((5,), 6), torch.full((5,), LENGTH))
    assert torch.equal(lt.dense_mask(one.attention, layout), lt.dense_mask(bidirectional, layout))
    noise = torch.rand(5, LENGTH)
    assert torch.equal(one.order(NOTHING_KNOWN, noise), lt.any_order(NOTHING_KNOWN, noise))


def test_blocks_of_one_position_see_given_tokens_of_earlier_positions_only(pico):
    """In the slots a given token comes first. Its block may be the last."""
    method = lt.METHODS["block-mdm-1"]
    assert not any(agree(method.attention, rule, LENGTH) for rule in (causal, bidirectional))
    known, _ = arranged()
    decoding = lt.Decoding(candidates=1)
    tokens = torch.randint(4, (5, LENGTH), generator=torch.Generator().manual_seed(0))
    fast, plain = (module.generate(pico, method, tokens, known, decoding, 0) for module in (lt, reference))
    assert torch.equal(fast.tokens, plain.tokens)
    order = method.order(known, torch.zeros(5, LENGTH))
    arguments = (pico, method, tokens, order, known.sum(1), torch.full((5,), LENGTH))
    assert torch.allclose(
        lt.log_likelihood(*arguments), score_tokens(*arguments).log_probabilities, atol=1e-5
    )


def test_order_of_blocks_has_a_name_in_configs():
    task = lt.TASKS["sudoku-4"]
    decoding = decoding_for(lt.METHODS["mdm"], task, SamplingConfig(order="blockwise:4"))
    assert (decoding.order, candidates_of(lt.METHODS["mdm"], decoding)) == (lt.blockwise(4), 8)
    assert decoding_for(BLOCKS, task, SamplingConfig(order="uniform")).order == lt.blockwise(4)
    decoding_for(lt.METHODS["mdm"], task, SamplingConfig(order="blockwise:4", candidates=4))
    for wrong in ("blockwise", "blockwise:0", "blockwise:x"):
        with refused(f"order={wrong}", "blockwise:N"):
            SamplingConfig(order=wrong)
