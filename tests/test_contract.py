"""`check_network` catches masks, positions and tokens that a network ignores, and passes correct networks."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import latent_tokens as lt
from helpers.oracle import Oracle, small_joint
from helpers.refusals import refused

VOCAB, LENGTH = 4, 16
SCDM = lt.METHODS["scdm"]
NOTHING = torch.zeros(1, LENGTH, dtype=torch.bool)


def llama(attention="sdpa"):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB + 1, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, attn_implementation=attention,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def masked(ids, positions, mask):
    """Return the inputs of a correct wrapper with sdpa."""
    return {"input_ids": ids, "position_ids": positions, "attention_mask": mask[:, None]}


class Wrapped(nn.Module):
    """A Llama as denoiser. `inputs` is what it receives, and `output` what is returned of it."""

    mask_id = VOCAB
    vocab_size = VOCAB
    max_length = LENGTH
    method = SCDM

    def __init__(self, inputs=masked, attention="sdpa", output=lambda made: made.logits):
        super().__init__()
        self.llama = llama(attention)
        self.inputs, self.output = inputs, output
        self.calls = 0

    def forward(self, ids, positions, mask):
        self.calls += 1
        return self.output(self.llama(**self.inputs(ids, positions, mask), use_cache=False))


def floating(ids, positions, mask):
    return masked(ids, positions, torch.zeros(mask.shape).masked_fill(~mask, -torch.inf))


def inverted(ids, positions, mask):
    return masked(ids, positions, ~mask | torch.eye(mask.shape[1], dtype=torch.bool))


def alone(ids, positions, mask):
    return masked(ids, positions, torch.eye(mask.shape[1], dtype=torch.bool).expand_as(mask))


def only(*names):
    """Return a function of which the model receives some inputs only."""
    return lambda *inputs: {name: value for name, value in masked(*inputs).items() if name in names}


WRONG = {  # the inputs, the attention and the output of a wrapper, and the problem and fix that are named
    "eager bool": ((masked, "eager"), "slots that the mask hides", "float mask of 0 and -inf"),
    "no mask": ((only("input_ids", "position_ids"),), "tokens do not change", "attention_mask=mask[:, None]"),
    "no positions": ((only("input_ids", "attention_mask"),), "positions do not", "position_ids=positions"),
    "neither": ((only("input_ids"),), "positions do not", "position_ids=positions"),
    "inverted": ((inverted,), "slots that the mask hides", "Apply the mask"),
    "no tokens": ((lambda ids, *rest: masked(0 * ids, *rest),), "clean tokens do not", "Embed ids"),
    "no mixing": ((alone,), "no other slot's", "attend where the mask is true"),
    "one mask": ((lambda a, b, m: masked(a, b, m[:1].expand_as(m)),), "the other rows", "its own mask"),
    "own mask": (
        (lambda a, b, m: masked(a, b, m.new_ones(m.shape).tril()),),
        "order of clean slots",
        "Pass mask",
    ),
    "no tensor": ((masked, "sdpa", lambda made: made), "a CausalLMOutputWithPast", "Return its logits"),
    "columns": ((masked, "sdpa", lambda made: made.logits[..., :3]), "logits of shape", "one column more"),
    "infinite": ((masked, "sdpa", lambda made: made.logits / 0), "not finite", "weights have not diverged"),
}


@pytest.mark.parametrize("name", WRONG)
def test_check_network_names_the_mistake_and_the_fix(name):
    arguments, problem, fix = WRONG[name]
    with refused("net=Wrapped: ", problem, fix):
        lt.check_network(Wrapped(*arguments), SCDM, LENGTH, VOCAB)


def test_check_network_passes_correct_networks(any_method):
    lt.check_network(Wrapped(), any_method, LENGTH, VOCAB)
    torch.manual_seed(0)
    net = lt.Transformer(lt.Size(32, 2, 3), VOCAB, LENGTH, dropout=0.1)
    lt.check_network(net, any_method, LENGTH, VOCAB)
    assert all(module.training for module in net.modules())
    for length in (3, 4):
        oracle = Oracle(small_joint(length), shifted=any_method.readout == "shifted")
        lt.check_network(oracle, any_method, length, oracle.mask_id)


def test_check_network_passes_a_float_mask_and_bf16():
    lt.check_network(Wrapped(floating, "eager"), SCDM, LENGTH, VOCAB)
    torch.manual_seed(0)
    lt.check_network(lt.Transformer(lt.Size(32, 2, 3), VOCAB, LENGTH).bfloat16(), SCDM, LENGTH, VOCAB)


def test_check_network_passes_an_untrained_head_of_zeros():
    net = Wrapped()
    nn.init.zeros_(net.llama.lm_head.weight)
    lt.check_network(net, SCDM, LENGTH, VOCAB)


def test_check_network_passes_blocks_that_add_nothing_yet():
    net = Wrapped()
    for name, weight in net.named_parameters():
        if "o_proj" in name or "down_proj" in name:
            nn.init.zeros_(weight)
    net.llama.lm_head.weight.data += torch.randn_like(net.llama.lm_head.weight)
    lt.check_network(net, SCDM, LENGTH, VOCAB)


def test_a_network_with_mask_id_0_states_its_vocabulary():
    net = nn.Linear(1, 1)
    net.mask_id = 0
    with refused("net.mask_id=0", "number of tokens", "net.vocab_size"):
        lt.generate(net, SCDM, NOTHING.long(), NOTHING, seed=0)


def test_generate_checks_a_network_once_per_method():
    net = Wrapped()
    steps = lt.Decoding(1, tokens_per_step=8)
    lt.generate(net, SCDM, NOTHING.long(), NOTHING, steps, 0)
    first = net.calls
    lt.generate(net, SCDM, NOTHING.long(), NOTHING, steps, 0)
    assert net.calls - first == 2 < first
    lt.generate(net, lt.METHODS["sidm"], NOTHING.long(), NOTHING, steps, 0)
    assert net.calls - first > 4


@dataclass
class Holder:
    """A denoiser that is not a module and cannot be hashed."""

    llama: nn.Module
    mask_id: int = VOCAB

    def __call__(self, ids, positions, mask):
        return self.llama(input_ids=ids, position_ids=positions).logits


def test_generate_and_evaluate_refuse_a_network_that_ignores_the_mask():
    for net in (Wrapped(masked, "eager"), Holder(llama())):
        with refused("attention_mask=mask[:, None]"):
            lt.generate(net, SCDM, NOTHING.long(), NOTHING, lt.Decoding(1), 0)
    with refused("slots that the mask hides"):
        lt.evaluate(Wrapped(masked, "eager"), lt.TASKS["sudoku-4"], lt.EvalConfig(num_samples=2))
