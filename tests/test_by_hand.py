"""Values worked out by hand. Two implementations may be wrong in the same way, a literal number is not."""

import math

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn

import latent_tokens as lt
from latent_tokens import processes
from latent_tokens.core import attention
from latent_tokens.core.confidence import annealed
from latent_tokens.core.cost import cached_cost, most_tokens, relative_cost, tokens_processed
from latent_tokens.core.distribution import nucleus, sample_tokens
from latent_tokens.core.layout import Layout, next_layout
from latent_tokens.core.likelihood import score_tokens
from latent_tokens.core.order import first_order, promote
from latent_tokens.core.policies import PolicyInput, rank_by
from latent_tokens.core.sampling import generate as reference_generate
from latent_tokens.data.corpus import PackedFile, split_of
from latent_tokens.data.splits import SplitBuilder
from latent_tokens.evaluation.intervals import half_interval, half_interval_of_ratio, student, wilson
from latent_tokens.evaluation.text import distinct, unigram_entropy as entropy_of_sample
from latent_tokens.hf.layouts import common_dtype
from latent_tokens.network.block import Block
from latent_tokens.storage import read_lines
from latent_tokens.tasks import Countdown, Examples, Text
from latent_tokens.tasks.base import evenly, split_by_key
from latent_tokens.tasks.countdown import holds
from latent_tokens.tasks.rng import next_random
from latent_tokens.tasks.sudoku.grid import Grid
from latent_tokens.tasks.zebra import clues
from latent_tokens.training.checkpoint import discard_after
from latent_tokens.training.run import Stretch
from latent_tokens.training.step import (
    draw_examples,
    ema_update,
    example_indices,
    learning_rate,
    seed_of,
    train_step,
    training_batches,
)

NATS = math.log(2)


class Table:
    """Predicts the same at a position whatever its input: the probabilities of its tokens."""

    def __init__(self, *probabilities):
        table = torch.tensor(probabilities, dtype=torch.float64)
        self.logits = torch.cat([table.log(), torch.zeros(len(table), 1)], 1)  # MASK is excluded later
        self.mask_id = table.shape[1]
        self.masks = []

    def __call__(self, ids, positions, mask):
        self.masks.append(mask)
        return self.logits[positions]


def halves(length):
    """Return a table in which the token 0 has 1/2 at position 0, 1/4 at position 1, and so on."""
    return Table(*((2.0**-i, 1 - 2.0**-i) for i in range(1, length + 1)))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def ints(*values):
    return torch.tensor(values)


# Attention and layouts.


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        (attention.bidirectional, ["11110", "11110", "11110", "11110", "00001"]),
        (attention.independent, ["11000", "11000", "11100", "11010", "00001"]),
        (attention.semi_causal, ["11000", "11000", "11100", "11110", "00001"]),
        (attention.causal, ["10000", "11000", "11100", "11110", "00001"]),
    ],
)
def test_mask_of_two_clean_two_masked_and_padding(rule, rows):
    layout = Layout(torch.arange(5)[None], ints(2), ints(4))
    assert attention.dense_mask(rule, layout)[0].int().tolist() == [[int(bit) for bit in row] for row in rows]


def test_rule_that_reaches_one_slot_beyond_is_noticed():
    def one_ahead(q, k, c):
        return k <= q + 1

    def one_behind(q, k, c):
        return (k < c) | (k == q) | (k == q - 1)

    assert not attention.is_cacheable(one_ahead, 16)
    assert attention.attends_later(one_ahead)
    assert attention.attends_earlier(one_behind)
    assert not attention.attends_later(one_behind)


def test_layout_is_clean_then_latents_then_candidates():
    """Of the order 4 | 1 0 3 5 2 with k = 2 and n = 1: 4, the latent token 3, the candidates 1 and 0."""
    layout = next_layout(ints([4, 1, 0, 3, 5, 2]), ints(1), candidates=ints(2), latents=ints(1))
    assert layout.positions.tolist() == [[4, 3, 1, 0]]
    assert layout.num_shown.tolist() == [4]


def test_input_of_shifted_readout_is_the_token_before():
    layout = next_layout(ints([0, 1, 2]), ints(1), candidates=ints(2), latents=ints(0))
    assert lt.METHODS["arm"].input_ids(ints([5, 6, 7]), layout, 9).tolist() == [[9, 5, 6]]


# Orders, policies and counts.


def test_first_order_puts_known_positions_before_the_rule():
    """Position 1 is known and position 3 is past the length, whatever a reversed order says."""
    known = torch.tensor([[False, True, False, False]])
    order = first_order(lambda known: torch.arange(4).flip(0)[None], known, ints(3), lambda: None)
    assert order.tolist() == [[1, 2, 0, 3]]


def test_promote_moves_chosen_entries_in_their_order():
    assert promote(ints([3, 0, 2, 1, 4]), ints(1), ints([3, 1]), ints(2)).tolist() == [[3, 1, 0, 2, 4]]


def test_policy_by_worth():
    """One clean position, 0, and the candidate 4. Of 1 2 3 5 two become latent tokens. 6 is padding."""
    step = PolicyInput(ints([0, 4, 1, 2, 3, 5, 6]), ints(1), ints(5), ints(1), ints(2), ints([7] * 7))
    by_position = rank_by(lambda step: torch.arange(7.0)[None], "by position")
    assert by_position(step).tolist() == [[0, 4, 3, 5, 2, 1, 6]]  # 5 and 3, the best one last


def test_equal_parts_of_five():
    assert lt.equal_parts(2)(torch.ones(1, 5, dtype=torch.bool), torch.zeros(1, 5)).tolist() == [[2, 3]]


def test_costs_in_tokens():
    assert most_tokens(ints(4, 3), ints(2, 0)).tolist() == [4 * 2, 3 * 3]
    # L = 5, one known, so 4 3 2 1 tokens are masked in turn.
    assert tokens_processed(5, 1, candidates=1, latents=1) == (1 + 2) + (2 + 2) + (3 + 2) + (4 + 1)
    assert tokens_processed(5, 1, candidates=1, latents="all") == 4 * 5
    assert tokens_processed(5, 1, 1, lambda masked: masked // 2) == (1 + 3) + (2 + 2) + (3 + 2) + (4 + 1)
    assert relative_cost(4, candidates=2, latents=1) == (6 + 3 * 4 - 3) / 16
    assert relative_cost(4, candidates=4, latents=4) == (6 + 4 * 4 - 6) / 16
    assert cached_cost(3, candidates=1, latents=1) == (2 + (1 + 2) + (1 + 1)) / 9


# The loss.


def test_flat_loss_divides_by_the_unknown_positions_of_a_row():
    """Lengths 2 and 4: (1 + 2) / 2 and, with the first position known, (2 + 3 + 4) / 3 halvings."""
    known = torch.tensor([[False, False, False, False], [True, False, False, False]])
    tokens = torch.zeros(2, 4, dtype=torch.int64)
    value = lt.loss(halves(4), lt.METHODS["arm"], tokens, known, generator(), lengths=ints(2, 4))
    assert value.item() / NATS == pytest.approx((1.5 + 3) / 2)


def test_elbo_loss_is_a_mean_over_masked_tokens():
    """Two unknown positions, 1 and 2: one row has both masked, (2 + 3) / 2, the other has one, 2 or 3."""
    known = torch.tensor([[True, False, False, True]]).expand(2, 4)
    tokens = torch.zeros(2, 4, dtype=torch.int64)
    for name in ("mdm", "sidm", "scdm"):
        values = {
            round(lt.loss(halves(4), lt.METHODS[name], tokens, known, generator(seed)).item() / NATS, 5)
            for seed in range(12)
        }
        assert values == {(2.5 + 2) / 2, (2.5 + 3) / 2}


# Decoding.

# The most probable tokens are 0 1 0 1, with probabilities 0.6 0.9 0.7 0.8.
FOUR = ((0.6, 0.4), (0.1, 0.9), (0.7, 0.3), (0.2, 0.8))


@pytest.mark.parametrize("function", [lt.generate, reference_generate])
@pytest.mark.parametrize(
    ("settings", "order", "processed"),
    [
        # Of 0 1 it takes 1, of 0 2 it takes 2, of 0 3 it takes 3: inputs of 0+2, 1+2, 2+2 and 3+1 tokens.
        ({"candidates": 2, "latents": 0}, [1, 2, 3, 0], 13),
        ({"candidates": 2, "latents": 1}, [1, 2, 3, 0], 3 + 4 + 4 + 4),
        ({"candidates": "all", "latents": 0}, [1, 3, 2, 0], 16),
        # k = 1 2 3 and 1: of 0 it takes 0, of 1 2 it takes 1, of 2 3 it takes 3.
        ({"candidates": lt.growing, "latents": 0}, [0, 1, 3, 2], 1 + 3 + 4 + 4),
        # n = 2 1 1 0 for 4 3 2 1 masked tokens.
        ({"latents": lambda masked: masked // 2}, [0, 1, 2, 3], 3 + 3 + 4 + 4),
        ({"latents": 0, "tokens_per_step": 3, "candidates": 3}, [0, 1, 2, 3], 3 + 4),
    ],
)
def test_order_and_cost_of_a_decode(function, settings, order, processed):
    net, known = Table(*FOUR), torch.zeros(1, 4, dtype=torch.bool)
    decoding = lt.Decoding(order=lt.given([0, 1, 2, 3]), refresh=False, temperature=0, **settings)
    steps = []
    samples = function(net, lt.METHODS["scdm"], known.long(), known, decoding, 0, on_step=steps.append)
    assert samples.tokens.tolist() == [[0, 1, 0, 1]]
    assert samples.order.tolist() == [order]
    assert samples.tokens_processed.tolist() == [processed]
    assert steps[0].layout.num_clean.tolist() == [0]


@pytest.mark.parametrize("function", [lt.generate, reference_generate])
def test_row_with_fewer_candidates_takes_none_twice(function):
    """Position 0 is known. Of 1 2 3, at 0.6 0.7 0.9, a row of length 4 takes 3 and 2, then 1."""
    net = Table((0.5, 0.5), (0.6, 0.4), (0.7, 0.3), (0.1, 0.9), (0.2, 0.8))
    known = torch.arange(5).expand(2, 5) == 0
    settings = {"candidates": 4, "latents": 0, "tokens_per_step": 2, "temperature": 0, "refresh": False}
    decoding = lt.Decoding(order=lt.given([0, 1, 2, 3, 4]), **settings)
    samples = function(net, lt.METHODS["scdm"], known.long() * 0, known, decoding, 0, lengths=ints(4, 5))
    assert samples.order.tolist() == [[0, 3, 2, 1, 4], [0, 3, 4, 1, 2]]


def drawn(probabilities, noise, **settings):
    """Return the token that each number of the noise draws from the same probabilities."""
    logits = torch.tensor(probabilities, dtype=torch.float64).log().expand(len(noise), 1, -1)
    picks = torch.zeros(len(noise), 1, dtype=torch.int64)
    numbers = torch.tensor(noise, dtype=torch.float64)[:, None]
    decoding = lt.Decoding(**settings)
    return sample_tokens(logits, picks, decoding.temperature, decoding.top_p, numbers)[:, 0].tolist()


def test_tokens_drawn_by_inverse_cdf():
    assert drawn([0.2, 0.5, 0.3], [0.0, 0.19, 0.21, 0.69, 0.71, 0.99]) == [0, 0, 1, 1, 2, 2]
    assert drawn([0.0, 1.0], [0.0]) == [1]  # a token of probability 0 is never drawn
    assert drawn([0.2, 0.8], [0.3, 0.4], temperature=2) == [0, 1]  # the odds 1 : 4 become 1 : 2
    assert drawn([0.2, 0.5, 0.3], [0.6, 0.7], top_p=0.75) == [1, 2]  # 5 : 3 are left
    assert drawn([0.2, 0.5, 0.3], [0.01, 0.99], temperature=0) == [1, 1]


def test_tiny_temperature_is_the_argmax():
    """Logits of 3 and 1 over 1e-308 overflow, and their differences to the largest do not."""
    logits = torch.tensor([[[1.0, 3.0]]], dtype=torch.float64)
    noise = torch.tensor([[0.3]], dtype=torch.float64)
    assert sample_tokens(logits, ints([0]), 1e-308, 1.0, noise).tolist() == [[1]]


def test_nucleus_of_equal_probabilities_takes_the_first():
    assert nucleus(torch.full((1, 1, 4), 0.25), 0.5).tolist() == [[[0.25, 0.25, 0, 0]]]


def test_confidences_of_a_half_and_two_quarters():
    logits = torch.tensor([[[0.5, 0.25, 0.25]]], dtype=torch.float64).log()
    assert lt.top_prob.__wrapped__(logits).item() == pytest.approx(0.5)
    assert lt.margin.__wrapped__(logits).item() == pytest.approx(0.25)
    assert lt.margin.__wrapped__(logits[..., :1]).item() == 1
    assert lt.entropy.__wrapped__(logits).item() == pytest.approx(-1.5 * NATS)
    noise = torch.tensor([[math.exp(-math.exp(-1))]], dtype=torch.float64)  # the Gumbel number 1
    zero, one, zeros = ints(0), ints(1), torch.zeros(1, 1, dtype=torch.long)
    step = lt.Candidates(logits, Layout(zeros, zero, one), one, zeros, zero, lambda: torch.rand(1, 1))
    assert annealed(lt.top_prob, ints(2.0), noise)(step).item() == pytest.approx(2 - NATS)


# Likelihoods.


def test_likelihood_of_a_table():
    """Along the order 3 1 0 2 with 3 known, in halvings: 0, 2, 1 and 3."""
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    for name in ("mdm", "scdm", "esolm"):
        nats = lt.log_likelihood(halves(4), lt.METHODS[name], tokens, ints([3, 1, 0, 2]), ints(1), ints(4))
        assert (-nats / NATS).tolist()[0] == pytest.approx([0, 2, 1, 3])


def test_likelihood_counts_masked_tokens_to_the_length():
    """Two of four unknown tokens are scored. All that are not clean are masked, the last two as well."""
    counts = []
    tokens = torch.zeros(1, 6, dtype=torch.int64)
    arguments = (halves(6), lt.METHODS["scdm"], tokens, torch.arange(6)[None], ints(2), ints(6))
    score_tokens(*arguments, lambda masked: counts.append(masked) or 0, ends=ints(4))
    assert counts == [4, 3]


def test_one_pass_likelihood_hides_the_target_from_its_step():
    """Two clean slots, then the MASK of each step. It attends to the clean ones before it and to itself."""
    net = halves(2)
    tokens = torch.zeros(1, 2, dtype=torch.int64)
    lt.log_likelihood(net, lt.METHODS["esolm"], tokens, ints([0, 1]), ints(0), ints(2), latents=0)
    assert net.masks[-1][0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]]


# The network.


def norm(x, layer):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * array(layer.weight) + array(layer.bias)


def array(tensor):
    return tensor.detach().double().numpy()


def gelu(x, kind):
    if kind == "exact":
        return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def rotated(vector, position):
    """Rotate the pairs (i, i + half) by position / 10000^(i / half)."""
    half = len(vector) // 2
    turned = vector.copy()
    for i in range(half):
        angle = position / 10_000 ** (i / half)
        a, b = vector[i], vector[i + half]
        turned[i] = a * math.cos(angle) - b * math.sin(angle)
        turned[i + half] = a * math.sin(angle) + b * math.cos(angle)
    return turned


def logits_in_numpy(net, ids, positions, mask):
    """Return the logits of one sequence of a network of one block, slot by slot and head by head."""
    block: Block = net.blocks[0]
    width, heads = net.size.width, net.size.heads
    channels = width // heads
    x = array(net.embedding.weight)[ids]
    if net.positions != "rotary":
        x = x + array(net.position_embedding.weight)[positions]
    queries, keys, values = np.split(norm(x, block.attention_norm) @ array(block.qkv.weight).T, 3, axis=1)
    attended = np.zeros_like(x)
    for head in range(heads):
        part = slice(head * channels, (head + 1) * channels)
        turn = rotated if net.positions != "learned" else lambda vector, position: vector
        q = np.array([turn(row, p) for row, p in zip(queries[:, part], positions, strict=True)])
        k = np.array([turn(row, p) for row, p in zip(keys[:, part], positions, strict=True)])
        for slot in range(len(ids)):
            weights = np.where(mask[slot], np.exp(k @ q[slot] / math.sqrt(channels)), 0)
            attended[slot, part] = weights / weights.sum() @ values[:, part]
    x = x + attended @ array(block.attention_out.weight).T
    hidden = norm(x, block.mlp_norm) @ array(block.mlp_in.weight).T + array(block.mlp_in.bias)
    x = x + gelu(hidden, net.gelu) @ array(block.mlp_out.weight).T + array(block.mlp_out.bias)
    return norm(x, net.norm) @ array(net.head.weight).T + array(net.head.bias)


@pytest.mark.parametrize("positions", ["both", "rotary", "learned"])
@pytest.mark.parametrize("kind", ["tanh", "exact"])
def test_network_equals_its_formula_in_numpy(positions, kind):
    torch.manual_seed(0)
    net = lt.Transformer(lt.Size(8, 2, 1), 3, 6, positions, gelu=kind).eval()
    with torch.no_grad():
        for weight in net.parameters():
            weight.normal_(0, 0.7)
    ids, places = [3, 0, 2, 1], [4, 0, 5, 2]
    mask = np.array([[1, 0, 1, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1]], bool)
    inputs = (ints(ids), ints(places), torch.from_numpy(mask)[None])
    expected = torch.from_numpy(logits_in_numpy(net, ids, places, mask)).float()
    slots = torch.tensor([[False, True, False, True]])
    with torch.no_grad():
        torch.testing.assert_close(net(*inputs)[0], expected, atol=2e-5, rtol=1e-5)
        torch.testing.assert_close(net(*inputs, slots), expected[slots[0]], atol=2e-5, rtol=1e-5)


# Training.


def config(**settings):
    values = {"size": "pico", "batch_size": 2, "steps": 12, "warmup": 4, "lr": 1.0, **settings}
    return lt.TrainConfig("sudoku-4", "scdm", **values)


def test_learning_rate_warms_up_and_follows_a_cosine():
    rates = [learning_rate(config(schedule="cosine"), step) for step in (0, 3, 4, 8)]
    assert rates == pytest.approx([0.25, 1, 1, 0.5])
    assert learning_rate(config(schedule="constant"), 8) == 1


def test_learning_rate_of_an_extended_run_starts_again():
    """Step 12 is the first of the second stretch: a quarter of the way through its warmup."""
    stretches = (Stretch(0, 12), Stretch(12, 24))
    rates = [learning_rate(config(schedule="cosine", steps=24), step, stretches) for step in (8, 12, 20)]
    assert rates == pytest.approx([0.5, 0.25, 0.5])


def test_ema_decay_is_ramped_up():
    """After no step 1/10 of the average stays, and after 90 steps 0.9 and not 91/100."""
    for count, expected in ((0, 0.9), (90, 0.1)):
        average = torch.zeros(1)
        ema_update(0.9)([average], [torch.ones(1)], count)
        assert average.item() == pytest.approx(expected)


def test_an_epoch_visits_each_example_once():
    """Three steps of two examples are two epochs of three."""
    visited = np.concatenate([example_indices(3, config(), step) for step in range(3)]).tolist()
    assert sorted(visited[:3]) == [0, 1, 2]
    assert sorted(visited[3:]) == [0, 1, 2]


def test_first_masked_token_of_a_row_is_no_padding():
    """Of 1 2 3 PAD PAD the first is known, so 1 or 2 tokens are clean, and 3 or 4 in any order only."""
    rows = Examples.padded([[1, 2, 3]] * 64, 1, 5, [5] * 64)
    for name, counts in (("ar-mtp", [32, 32]), ("scdm", [16] * 4)):
        batch = draw_examples(rows, lt.METHODS[name], config(), 9, step=0, part=0, pad=0)
        assert torch.bincount(batch.layout.num_clean)[1:].tolist() == counts


def test_metrics_of_later_steps_are_discarded(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(f'{{"step": {step}}}\n' for step in (1, 2, 3)))
    discard_after(tmp_path, 2, keep=1)
    assert [row["step"] for row in read_lines(metrics)] == [1, 2]


class Flat(nn.Module):
    """Predicts each of `vocab_size` tokens with the same probability, and draws noise as dropout does."""

    def __init__(self, vocab_size):
        super().__init__()
        self.mask_id = vocab_size
        self.weight = nn.Parameter(torch.zeros(vocab_size + 1))
        self.mixing = nn.Parameter(torch.zeros(vocab_size + 1), requires_grad=False)  # it could
        self.noise = []

    def forward(self, ids, positions, mask):
        self.noise.append(torch.rand(1).item())
        mixed = mask.float() @ ids.float()[:, :, None]
        return self.weight.expand(*ids.shape, -1) * 0 + mixed * self.mixing


def test_validation_loss_is_a_mean_over_examples(tmp_path):
    """Three examples in batches of two, each of log 4 nats per token."""
    settings = {"num_train": 4, "num_validation": 3, "batch_size": 2, "steps": 1, "lr": 1e-3}
    run = lt.fit("sudoku-4", "scdm", net=Flat(4), out=tmp_path / "run", precision="fp32", **settings)
    rows = read_lines(run / "metrics.jsonl")
    values = [row["validation_loss"] for row in rows if "validation_loss" in row]
    assert values == [pytest.approx(math.log(4), abs=1e-6)]


def test_settings_of_a_launcher_do_not_change_the_gradient(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = processes.join()
    assert (accelerator.mixed_precision, accelerator.gradient_accumulation_steps) == ("no", 1)
    AcceleratorState._reset_state(reset_partial_state=True)


def test_every_rank_draws_its_own_dropout(monkeypatch):
    accelerator = Accelerator(cpu=True)
    net = Flat(4)
    settings = config(lr=1e-3, precision="fp32")
    method = lt.METHODS["scdm"]
    examples = lt.TASKS["sudoku-4"].generate(2, seed=0)
    batch = next(training_batches(examples, lambda step: method, settings, 4, 0, torch.device("cpu")))
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    for rank in ("0", "1"):
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("RANK", rank)
        train_step(net, lt.METHODS["scdm"], optimizer, batch, settings, 0, accelerator)
    assert net.noise[0] != net.noise[-1]
    of_the_orders = torch.rand(1, generator=torch.Generator().manual_seed(seed_of(settings, 0))).item()
    assert of_the_orders not in net.noise


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_thread_that_prepares_batches_uses_the_gpu_of_its_process(monkeypatch, device):
    """The device of a process without ranks has no index, which torch.cuda.set_device refuses."""
    given = []
    monkeypatch.setattr("torch._C._cuda_setDevice", given.append, raising=False)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 1)
    monkeypatch.setattr("latent_tokens.core.objective.TrainingBatch.to", lambda batch, device: batch)
    examples = lt.TASKS["sudoku-4"].generate(2, seed=0)
    method = lt.METHODS["scdm"]
    batches = training_batches(examples, lambda step: method, config(), 4, 0, torch.device(device))
    assert next(batches).tokens.shape == (2, 16)
    assert given == [1]


# Evaluation.


@pytest.mark.parametrize(
    ("latents", "processed", "cost"),
    [
        (0, 136, 0.5312),  # 1 + 2 + ... + 16 of 16 * 16
        (4, 190, 0.7422),  # (0 + 5) + ... + (11 + 5), then four times 16
    ],
)
def test_cost_of_an_evaluated_row(nano, latents, processed, cost):
    nano.method = lt.METHODS["scdm"]
    (row,) = lt.evaluate(nano, "sudoku-4", latents=(latents,), candidates=1, num_samples=2, precision="fp32")
    assert (row["processed"], row["relative_cost"], row["paper_cost"]) == (processed, cost, cost)


def test_intervals():
    assert wilson(0.9, 10) == pytest.approx((0.5958, 0.9821), abs=1e-4)
    assert wilson(0.0, 20) == (0.0, pytest.approx(0.1611, abs=1e-4))
    assert wilson(1.0, 20)[1] == 1.0
    assert half_interval([1.0, 2.0, 3.0]) == pytest.approx(4.303 / math.sqrt(3))
    assert half_interval_of_ratio([2.0, 6.0], [1.0, 2.0]) == pytest.approx(12.706 * 2 / 3 / 1.5, abs=1e-3)
    assert (student(2), student(31)) == (12.706, 2.042)
    assert student(41) == pytest.approx(2.0211, abs=1e-4)  # 40 degrees of freedom, in any table


def test_diversity_of_samples():
    assert entropy_of_sample(np.array([0, 0, 1, 1], np.uint8)) == pytest.approx(NATS)
    samples = np.array([[1, 1, 2, 1]], np.uint8)
    assert (distinct(samples, 1), distinct(samples, 2)) == (2 / 4, 3 / 3)


# Tasks.


def test_units_of_a_cell_in_boxes_of_2_by_3():
    """Row 2 and column 4 of 6 x 6: the box 3 of 0 1 / 2 3 / 4 5."""
    assert Grid(2, 3).unit_of[2 * 6 + 4].tolist() == [2, 6 + 4, 12 + 3]


def test_number_of_boards_of_4_by_4():
    assert Grid(2, 2).count_solutions(np.full(16, -1, np.int16), most=1_000) == 288


def test_split_and_spacing_of_keys():
    keys = np.array([0, 1, 2, 3, 16, 17, 18, 33], np.uint64)
    assert split_by_key(keys).tolist() == [0, 1, 2, 0, 0, 1, 2, 1]
    assert evenly(11, 4).tolist() == [0, 2, 5, 8]


def test_random_numbers_are_those_of_splitmix64():
    """The first two of the seed 0, as its authors publish them."""
    state = np.zeros(1, np.uint64)
    assert [int(next_random(state)) for _ in range(2)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


def test_countdown_division_has_no_remainder_and_all_targets_occur():
    assert holds(6, "/", 2, 3)
    assert not holds(7, "/", 2, 3)
    task = Countdown("narrow", 3, targets=(11, 12))
    targets = {task.decode(row).split()[1] for row in task.generate(40, seed=0).tokens}
    assert targets == {"11", "12"}


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        # Houses are bits, the first on the right.
        (clues.EQUAL, (0b011, 0b110), (0b010, 0b010)),
        (clues.NOT_EQUAL, (0b111, 0b010), (0b101, 0b010)),
        (clues.IMMEDIATE_LEFT, (0b111, 0b111), (0b011, 0b110)),
        (clues.LEFT_OF, (0b111, 0b111), (0b011, 0b110)),
        (clues.LEFT_OF, (0b110, 0b011), (0b000, 0b000)),
        (clues.NEXT_TO, (0b001, 0b111), (0b001, 0b010)),
        (clues.ENDS, (0b111, 0b111), (0b101, 0b111)),
    ],
)
def test_zebra_clue_narrows_the_houses(kind, before, after):
    assert clues.narrowed(kind, *before, 0, 0b111)[:2] == after


# Data and checkpoints.


def test_documents_are_split_by_sha256():
    """The first eight bytes of the hash as a little-endian number, modulo 16: 1 and 2 are held out."""
    splits = {"train": ["a", "b", "c"], "validation": ["y"], "test": ["k", "m"]}
    assert {split: [text for text in "abckmy" if split_of(text) == split] for split in splits} == splits


def test_documents_are_packed_between_ends(tmp_path):
    """Length 5 has 3 tokens between two ends: 1 2 end and 3 4 5, and an end is left over."""
    packed = PackedFile(tmp_path / "x.npy", Text(5), None)
    for document in ([1, 2], [3, 4, 5]):
        packed.add(np.array(document, np.uint16))
    packed.close()
    assert np.load(tmp_path / "x.npy").tolist() == [[256, 1, 2, 256, 256], [256, 3, 4, 5, 256]]
    assert packed.remainder.tolist() == [256]


def test_a_split_takes_each_new_key_once():
    """Of five examples one is a repetition and one is of another split."""
    examples = Examples.of(np.arange(5, dtype=np.uint8)[:, None], 0)
    builder = SplitBuilder({"train": 9})
    keys = np.array([7, 8, 7, 9, 10], np.uint64)
    assert builder.add(5, examples, keys, np.array([0, 0, 0, 2, 0], np.int8)) == 3
    assert builder.examples()["train"].tokens.tolist() == [[0], [1], [4]]
    assert builder.repeated == 1


def test_type_of_weights():
    half = torch.zeros(1, dtype=torch.bfloat16)
    assert common_dtype([half, half]) == torch.bfloat16
    assert common_dtype([half, half.half()]) == torch.float32


def near_past(q, k, c):
    """A rule under which no slot attends to a later one, and which is not causal: the last two slots."""
    return (k <= q) & (k >= q - 1)


def half_of_clean(q, k, c):
    """A rule under which a clean slot attends to more slots, the more of them are clean."""
    return (k == q) | ((k <= q) & (k < c // 2))


def test_clean_slots_are_cached_only_if_they_attend_to_the_same():
    assert attention.is_cacheable(attention.causal, 16)
    assert attention.is_cacheable(near_past, 16)
    assert not attention.is_cacheable(half_of_clean, 16)
    assert not attention.is_cacheable(attention.semi_causal, 16)


def test_likelihood_of_a_cacheable_rule_is_that_of_its_steps():
    """One pass holds all steps of the causal rule only."""
    torch.manual_seed(0)
    net = lt.Transformer(lt.Size(16, 2, 2), 4, 6).eval()
    tokens, order = torch.randint(4, (2, 6)), torch.arange(6).expand(2, -1)
    none, all_of_them = torch.zeros(2, dtype=torch.long), torch.full((2,), 6)
    method = lt.Method(lt.any_order, near_past)
    scores = score_tokens(net, method, tokens, order, none, all_of_them, 0).log_probabilities
    for clean in range(6):
        counts = [torch.full((2,), number) for number in (clean, 1, 0)]
        layout = next_layout(order, *counts)
        nats = method.logits(net, tokens, layout)[:, -1].double().log_softmax(-1)
        expected = nats.gather(1, tokens[:, clean : clean + 1])[:, 0]
        torch.testing.assert_close(scores[:, clean], expected, atol=1e-6, rtol=0)
