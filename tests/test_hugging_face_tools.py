"""The keywords and switches of transformers that tools use work, or are refused in one line."""

import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("transformers")

from transformers.dynamic_module_utils import get_imports

from latent_tokens import Size, Transformer, from_pretrained, loss
from latent_tokens.sharing.hub import CODE
from latent_tokens.sharing.hugging_face import LatentTokensForMaskedLM

MASK = 6


@pytest.fixture
def model():
    return LatentTokensForMaskedLM.from_pretrained("sudoku-6-scdm")


def boards(rows=2):
    """Return boards of 36 cells, of which the first thirty are given."""
    tokens = torch.randint(0, MASK, (rows, 36), generator=torch.Generator().manual_seed(0))
    return tokens.masked_fill(torch.arange(36) >= 30, MASK)


def test_save_takes_the_keywords_that_tools_pass(model, tmp_path):
    model.save_pretrained(
        tmp_path / "model",
        is_main_process=True,
        state_dict=model.state_dict(),
        safe_serialization=True,
        max_shard_size="5GB",
        save_function=torch.save,
        save_peft_format=True,
        token=None,
    )
    assert torch.equal(from_pretrained(tmp_path / "model").head.weight, model.net.head.weight)


def saved_bytes(step):
    """Return the bytes that autograd keeps for the backward pass of a step, and the loss."""
    sizes = []

    def keep(tensor):
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value = step()
    return sum(sizes), value


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["labels", "loss"])
@pytest.mark.filterwarnings("ignore::FutureWarning")  # newer versions of transformers have another name
def test_gradient_checkpointing_saves_memory_alone(model, kind, dropout):
    net = Transformer(Size(width=32, heads=2, layers=6), MASK, 36, dropout=dropout)
    net.method = model.net.method
    model.net = net
    model.train()
    known = boards() != MASK

    def step():
        torch.manual_seed(1)
        if kind == "labels":
            return model(boards(), labels=torch.zeros(2, 36, dtype=torch.long)).loss
        return loss(net, net.method, boards() % MASK, known, torch.Generator().manual_seed(1))

    def measure():
        num_bytes, value = saved_bytes(step)
        model.zero_grad()
        value.backward()
        return num_bytes, value.detach(), [weight.grad.clone() for weight in net.parameters()]

    plain_bytes, plain_loss, plain_gradients = measure()
    model.gradient_checkpointing_enable()
    num_bytes, value, gradients = measure()
    assert num_bytes < plain_bytes / 3
    assert torch.equal(value, plain_loss)
    assert all(map(torch.equal, gradients, plain_gradients))
    model.eval()
    assert torch.equal(model.generate(boards(), seed=1), model.generate(boards(), seed=1))


def test_directory_without_the_package_names_its_address(tmp_path):
    (tmp_path / "modeling_latent_tokens.py").write_text(CODE)
    assert get_imports(tmp_path / "modeling_latent_tokens.py") == []  # else transformers raises its own error
    environment = {name: os.environ[name] for name in os.environ.keys() - {"PYTHONPATH"}}
    command = [sys.executable, "-S", "-c", "import modeling_latent_tokens"]
    settings = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run(command, **settings, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "ImportError: this model needs the package latent-tokens: pip install git+https://"
    )
