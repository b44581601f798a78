"""A network in a wrapper computes the same as the network inside it."""

import warnings

import pytest
import torch
from safetensors.torch import load_file
from torch.optim.swa_utils import AveragedModel

from conftest import untrained
from helpers.own_network import Tied
from latent_tokens import (
    METHODS,
    TASKS,
    Decoding,
    EvalConfig,
    as_tensors,
    evaluate,
    generate,
    log_likelihood,
    loss,
    save_pretrained,
)
from latent_tokens.core.denoiser import as_denoiser, unwrap

TASK = TASKS["sudoku-4"]
METHOD = METHODS["scdm"]


class WithoutAttributes(torch.nn.parallel.DistributedDataParallel):
    """DDP without a process group. Like the real one, it has no attribute of its network."""

    def __init__(self, net):
        torch.nn.Module.__init__(self)
        self.module = net

    def forward(self, *inputs):
        return self.module(*inputs)


def in_peft(net):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from peft import LoraConfig, get_peft_model
    config = LoraConfig(target_modules=["head"], init_lora_weights=False)
    return get_peft_model(net, config).eval()


WRAPPERS = {
    "ddp": WithoutAttributes,
    "ema": AveragedModel,
    "compile": lambda net: torch.compile(net, backend="eager"),
    "compile, ddp": lambda net: WithoutAttributes(torch.compile(net, backend="eager")),
}


def ours():
    net = untrained("pico", 4)
    net.method = METHOD
    return net


def own():
    torch.manual_seed(0)
    net = Tied().eval()
    net.method = METHOD
    net.vocab_size = 4
    net.max_length = 16
    return net


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "compile" in name else ()) for name in WRAPPERS]
)
def test_wrapped_network_computes_as_the_network_inside(name, tmp_path):
    net = own() if "compile" in name else ours()
    wrapped = WRAPPERS[name](net).eval()
    tokens, known, lengths = as_tensors(TASK.generate(3, seed=0))
    order = torch.arange(16).expand(3, -1)

    def results(any_net):
        config = EvalConfig(latents=(2,), candidates=4, num_samples=4)
        (row,) = evaluate(any_net, TASK, config)
        return (
            generate(any_net, METHOD, tokens, known, Decoding(candidates=4), seed=0).tokens.tolist(),
            {name: row[name] for name in ("valid", "processed", "latents", "method")},
        )

    def figures(any_net):
        nats = log_likelihood(any_net, METHOD, tokens, order, torch.zeros_like(lengths), lengths)
        value = loss(any_net, METHOD, tokens, known, torch.Generator().manual_seed(0))
        return [value.item(), *nats.sum(1).tolist()]

    assert results(wrapped) == results(net)
    assert figures(wrapped) == pytest.approx(figures(net), rel=1e-5)
    save_pretrained(wrapped, tmp_path / "model")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert all(torch.equal(stored[name], tensor) for name, tensor in unwrap(wrapped).state_dict().items())


@pytest.mark.slow
def test_peft_network_samples_as_the_reference():
    from latent_tokens.core.sampling import generate as reference

    tokens, known, _ = as_tensors(TASK.generate(3, seed=0))
    net = ours()
    wrapped = in_peft(net)
    assert unwrap(wrapped) is net
    inputs = (METHOD, tokens, known, Decoding(candidates=4, latents=2))
    assert torch.equal(
        generate(wrapped, *inputs, seed=0).tokens, reference(as_denoiser(wrapped), *inputs, seed=0).tokens
    )


def test_network_without_mask_id_is_refused_in_one_line():
    with pytest.raises(ValueError, match="net=Linear: has no mask_id"):
        as_denoiser(torch.nn.Linear(2, 2))
