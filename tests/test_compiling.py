"""Compiled blocks equal uncompiled ones, as one graph, in training and decoding."""

import shutil
from copy import deepcopy
from functools import partial

import pytest
import torch

from helpers.refusals import refused
from helpers.runs import rows, tiny_run
from latent_tokens import METHODS, Decoding, Size, TrainConfig, Transformer, fit, generate, loss
from latent_tokens.cli import main
from latent_tokens.hugging_face import LatentTokensForMaskedLM
from latent_tokens.network import kernels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # torch looks at .grad while it compiles
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
]
NOTHING = torch.zeros(3, 9, dtype=torch.bool)


@pytest.fixture
def run_as_traced(monkeypatch):
    """Run the graphs as they are traced. `test_compiled_run_trains_and_samples` generates their code."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    kernels.compiled.cache_clear()
    yield
    kernels.compiled.cache_clear()


@pytest.mark.usefixtures("run_as_traced")
def test_compiled_decoding_is_one_graph_and_gives_equal_samples():
    torch.manual_seed(0)
    net = Transformer(Size(32, 2, 3), 7, 9).eval()
    copy = deepcopy(net)
    kernels.compile_blocks(copy)
    torch._dynamo.utils.counters.clear()
    for name in ("mdm", "esolm", "arm"):
        expected, found = (
            generate(each, METHODS[name], NOTHING.long(), NOTHING, Decoding(1), 0) for each in (net, copy)
        )
        assert torch.equal(found.tokens, expected.tokens)
        assert torch.equal(found.order, expected.order)
    assert sum(torch._dynamo.utils.counters["graph_break"].values()) == 0
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0


def test_compiled_run_trains_and_samples(tmp_path, capsys):
    eager, compiled = (
        rows(fit(tiny_run(tmp_path / name, steps=3, compile=name == "compiled")))[-1]
        for name in ("eager", "compiled")
    )
    assert eager["validation_loss"] == pytest.approx(compiled["validation_loss"], abs=1e-5)
    printed = []
    for options in ([], ["--compile"]):
        assert main(["sample", str(tmp_path / "eager"), *options]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


@pytest.mark.parametrize("wrong", [{"dropout": 0.1}, {"parallel": "fsdp"}])
def test_compile_refuses_what_it_would_change(wrong):
    with refused("compile=True with"):
        TrainConfig("sudoku-4", "scdm", compile=True, **wrong)


@pytest.mark.parametrize(("name", "positions"), [("scdm", "rotary"), ("ar-mtp-window-4", "both")])
def test_compiled_network_trains_as_one_graph(name, positions, caplog):
    """The graph is that of torch.compile. Only the selection of scored slots comes after it."""
    torch.manual_seed(0)
    net = Transformer(Size(16, 2, 2), 7, 9, positions)
    copy = deepcopy(net)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    copy.compile(backend="eager")
    tokens = torch.randint(0, 7, (3, 9))
    for seed in range(8):
        values = []
        for network in (net, copy):
            network.zero_grad()
            values.append(loss(network, METHODS[name], tokens, NOTHING, torch.Generator().manual_seed(seed)))
            values[-1].backward()
        assert torch.allclose(*values)
        gradients = [[weight.grad for weight in network.parameters()] for network in (net, copy)]
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*gradients, strict=True))
    breaks = torch._dynamo.utils.counters["graph_break"]
    assert all("aten.nonzero" in reason for reason in breaks)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3  # of a fixed and of any length
    assert not [record for record in caplog.records if record.name.startswith("torch._dynamo")]
    torch._dynamo.reset()


def test_network_of_transformers_decodes_compiled():
    model = LatentTokensForMaskedLM.from_pretrained("sudoku-6-scdm")
    board = torch.full((1, 36), 6)
    expected = model(board).logits
    samples = model.generate(board, seed=1).sequences
    torch._dynamo.reset()
    model.net.compile(backend="eager")
    assert torch.allclose(model(board).logits, expected, atol=1e-5)
    assert torch.equal(model.generate(board, seed=1).sequences, samples)
    torch._dynamo.reset()
