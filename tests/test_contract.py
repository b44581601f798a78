"""`check_network` catches masks, positions and tokens that a network ignores, and passes correct networks."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from helpers.oracle import Oracle, small_joint
from helpers.refusals import refused
from latent_tokens import (
    METHODS,
    TASKS,
    Decoding,
    EvalConfig,
    Size,
    Transformer,
    check_network,
    evaluate,
    generate,
)

VOCAB, LENGTH = 4, 16
SCDM = METHODS["scdm"]
NOTHING = torch.zeros(1, LENGTH, dtype=torch.bool)


def llama(attention="sdpa"):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB + 1, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, attn_implementation=attention,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


class Wrapped(nn.Module):
    """A Llama as denoiser. A subclass changes what it receives and returns."""

    mask_id = VOCAB
    vocab_size = VOCAB
    max_length = LENGTH
    method = SCDM
    attention = "sdpa"

    def __init__(self):
        super().__init__()
        self.llama = llama(self.attention)
        self.calls = 0

    def inputs(self, ids, positions, mask):
        return {"input_ids": ids, "position_ids": positions, "attention_mask": mask[:, None]}

    def forward(self, ids, positions, mask):
        self.calls += 1
        return self.llama(**self.inputs(ids, positions, mask), use_cache=False).logits


class EagerFloat(Wrapped):
    attention = "eager"

    def inputs(self, ids, positions, mask):
        mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
        return super().inputs(ids, positions, mask)


class EagerBool(Wrapped):
    attention = "eager"


class NoMask(Wrapped):
    def inputs(self, ids, positions, mask):
        return {"input_ids": ids, "position_ids": positions}


class NoPositions(Wrapped):
    def inputs(self, ids, positions, mask):
        return {"input_ids": ids, "attention_mask": mask[:, None]}


class NeitherMaskNorPositions(Wrapped):
    def inputs(self, ids, positions, mask):
        return {"input_ids": ids}


class Inverted(Wrapped):
    def inputs(self, ids, positions, mask):
        return super().inputs(ids, positions, ~mask | torch.eye(mask.shape[1], dtype=torch.bool))


class NoTokens(Wrapped):
    def inputs(self, ids, positions, mask):
        return super().inputs(torch.zeros_like(ids), positions, mask)


class FirstMask(Wrapped):
    def inputs(self, ids, positions, mask):
        return super().inputs(ids, positions, mask[:1].expand_as(mask))


class Causal(Wrapped):
    """A mask of its own, and the positions that it is given."""

    def inputs(self, ids, positions, mask):
        return super().inputs(ids, positions, torch.ones_like(mask).tril())


class Output(Wrapped):
    def forward(self, ids, positions, mask):
        return self.llama(**self.inputs(ids, positions, mask))


class TooFewColumns(Wrapped):
    def forward(self, ids, positions, mask):
        return super().forward(ids, positions, mask)[..., : VOCAB - 1]


class NotFinite(Wrapped):
    def forward(self, ids, positions, mask):
        return super().forward(ids, positions, mask) / 0


WRONG = {
    EagerBool: "slots that the mask hides change its logits",
    NoMask: "clean tokens do not change its logits at masked slots",
    NoPositions: "positions do not change its logits",
    NeitherMaskNorPositions: "positions do not change its logits",
    Inverted: "the mask",
    NoTokens: "clean tokens do not change its logits",
    FirstMask: "depend on the other rows",
    Causal: "the order of clean slots changes its logits",
    Output: "returns a CausalLMOutputWithPast, not a tensor",
    TooFewColumns: "logits of shape",
    NotFinite: "not finite",
}


@pytest.mark.parametrize("network", WRONG)
def test_check_network_names_the_mistake(network):
    with pytest.raises(ValueError, match=f"^net={network.__name__}: .*{WRONG[network]}") as error:
        check_network(network(), SCDM, LENGTH, VOCAB)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("network", [Wrapped, EagerFloat])
def test_check_network_passes_a_correct_wrapper(network, any_method):
    check_network(network(), any_method, LENGTH, VOCAB)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_check_network_passes_our_transformer(dtype, any_method):
    torch.manual_seed(0)
    net = Transformer(Size(32, 2, 3), VOCAB, LENGTH, dropout=0.1).to(dtype)
    check_network(net, any_method, LENGTH, VOCAB)
    assert all(module.training for module in net.modules())


@pytest.mark.parametrize("length", [3, 4])
def test_check_network_passes_an_exact_oracle(length, any_method):
    oracle = Oracle(small_joint(length), shifted=any_method.readout == "shifted")
    check_network(oracle, any_method, length, oracle.mask_id)


def test_check_network_refuses_a_network_without_mask_id():
    with refused("net=Linear: has no mask_id. Set it"):
        check_network(nn.Linear(2, 2), SCDM, 8, 4)


@pytest.mark.parametrize(("length", "vocab_size"), [(16, 4), (8, 9)])
def test_check_network_refuses_embeddings_that_are_too_small(length, vocab_size):
    net = Transformer(Size(32, 2, 1), 4, 8)
    with pytest.raises(
        ValueError, match=f"net=Transformer: fails on {length} positions, {vocab_size} tokens"
    ):
        check_network(net, SCDM, length, vocab_size)


def test_check_network_passes_an_untrained_head_of_zeros():
    net = Wrapped()
    nn.init.zeros_(net.llama.lm_head.weight)
    check_network(net, SCDM, LENGTH, VOCAB)


def test_check_network_passes_blocks_that_add_nothing_yet():
    net = Wrapped()
    for name, weight in net.named_parameters():
        if "o_proj" in name or "down_proj" in name:
            nn.init.zeros_(weight)
    net.llama.lm_head.weight.data += torch.randn_like(net.llama.lm_head.weight)
    check_network(net, SCDM, LENGTH, VOCAB)


def test_generate_checks_a_network_once_per_method():
    net = Wrapped()
    steps = Decoding(1, tokens_per_step=8)
    generate(net, SCDM, NOTHING.long(), NOTHING, steps, 0)
    first = net.calls
    generate(net, SCDM, NOTHING.long(), NOTHING, steps, 0)
    assert net.calls - first == 2 < first
    generate(net, METHODS["sidm"], NOTHING.long(), NOTHING, steps, 0)
    assert net.calls - first > 4


@dataclass
class Holder:
    """A denoiser that is not a module and cannot be hashed."""

    llama: nn.Module
    mask_id: int = VOCAB

    def __call__(self, ids, positions, mask):
        return self.llama(input_ids=ids, position_ids=positions).logits


@pytest.mark.parametrize("net", [EagerBool(), Holder(llama())], ids=["module", "holder"])
def test_generate_refuses_a_network_that_ignores_the_mask(net):
    with pytest.raises(ValueError, match=r"attention_mask=mask\[:, None\]"):
        generate(net, SCDM, NOTHING.long(), NOTHING, Decoding(1), 0)


def test_evaluate_refuses_a_network_that_ignores_the_mask():
    with pytest.raises(ValueError, match="slots that the mask hides"):
        evaluate(EagerBool(), TASKS["sudoku-4"], EvalConfig(num_samples=2))
