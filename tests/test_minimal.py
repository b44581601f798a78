"""The paper in one file: masks, logits, losses and samples of examples/minimal.py equal the package's."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import latent_tokens as lt

PATH = Path(__file__).parents[1] / "examples/minimal.py"
RULES = {"mdm": "bidirectional", "sidm": "independent", "scdm": "semi_causal"}
TASK = lt.TASKS["sudoku-4"]


@pytest.fixture(scope="module")
def minimal():
    spec = importlib.util.spec_from_file_location("minimal", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def net(minimal):
    """An untrained network with large weights, so that its input matters."""
    torch.manual_seed(0)
    net = minimal.Transformer()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(4 if parameter.dim() == 2 else 1)
    return net


@pytest.fixture(scope="module")
def packaged(minimal, net):
    """The same weights in the package's network. Its head has a row for MASK, which is never predicted."""
    size = lt.Size(minimal.WIDTH, minimal.HEADS, minimal.LAYERS)
    packaged = lt.Transformer(size, minimal.V, minimal.L, positions="learned")
    weights = {
        name.replace("position_embedding.", "place."): weight for name, weight in net.state_dict().items()
    }
    weights["head.weight"] = torch.cat([weights["head.weight"], torch.zeros(1, minimal.WIDTH)])
    weights["head.bias"] = torch.cat([weights["head.bias"], torch.zeros(1)])
    packaged.load_state_dict(weights)
    return packaged.eval()


@pytest.fixture(scope="module")
def boards(minimal):
    return torch.from_numpy(minimal.all_boards())


def test_minimal_imports_torch_and_numpy_only():
    lines = PATH.read_text().splitlines()
    modules = {line.split()[1].split(".")[0] for line in lines if re.match(r"\s*(import|from) ", line)}
    assert modules == {"itertools", "numpy", "torch"}
    assert sum(map(bool, lines)) <= 160


def test_minimal_boards_are_all_valid_ones(minimal, boards):
    assert len({tuple(board) for board in boards.tolist()}) == len(boards) == 288
    generated = np.unique(TASK.generate(4_000, seed=0).tokens, axis=0)
    assert sorted(boards.tolist()) == sorted(generated.tolist())
    noise = np.random.default_rng(0)
    changed = boards.numpy().copy()
    changed[np.arange(288), noise.integers(16, size=288)] = noise.integers(4, size=288)
    assert (minimal.is_valid(changed) == TASK.score(changed)["valid"]).all()


@pytest.mark.parametrize("name", RULES)
def test_minimal_mask_and_logits_are_those_of_the_package(minimal, net, packaged, boards, name):
    method = lt.METHODS[name]
    torch.manual_seed(1)
    order = torch.rand(4, 16).argsort(1)
    num_clean = torch.tensor([0, 5, 9, 15])
    masked = 16 - num_clean
    layout = lt.next_layout(
        order, num_clean, candidates=masked.clamp(max=2), latents=(masked - 2).clamp(min=0)
    )
    mask = minimal.attention_mask(getattr(minimal, RULES[name]), num_clean, 16)
    assert torch.equal(mask, lt.dense_mask(method.attention, layout))
    tokens = boards[:4].gather(1, layout.positions)
    ids = tokens.where(torch.arange(16) < num_clean[:, None], minimal.MASK)
    with torch.no_grad():
        logits = net(ids, layout.positions, mask)
        expected = method.logits(packaged, boards[:4], layout)
    torch.testing.assert_close(logits, expected[..., :4])


@pytest.mark.parametrize("name", RULES)
def test_minimal_loss_and_gradient_are_those_of_the_package(minimal, net, packaged, boards, name):
    known = torch.zeros(32, 16, dtype=torch.bool)
    losses = (
        minimal.loss(net, getattr(minimal, RULES[name]), boards[:32], torch.Generator().manual_seed(5)),
        lt.loss(packaged, lt.METHODS[name], boards[:32], known, torch.Generator().manual_seed(5)),
    )
    torch.testing.assert_close(*losses)
    weights = (net.embedding.weight, packaged.embedding.weight)
    gradients = [torch.autograd.grad(*pair)[0] for pair in zip(losses, weights, strict=True)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("k", [1, 4, 16])
@pytest.mark.parametrize(
    ("name", "n"), [("mdm", "all"), ("sidm", 0), ("scdm", 0), ("scdm", 4), ("scdm", "all")]
)
def test_minimal_samples_are_those_of_the_package(minimal, net, packaged, name, n, k):
    known = torch.zeros(40, 16, dtype=torch.bool)
    decoding = lt.Decoding(candidates=k, latents=n)
    expected = lt.generate(packaged, lt.METHODS[name], known.long(), known, decoding, seed=3)
    rule = getattr(minimal, RULES[name])
    tokens, processed = minimal.generate(net, rule, 40, n=16 if n == "all" else n, k=k, seed=3)
    assert torch.equal(tokens, expected.tokens)
    assert (expected.processed == processed).all()


@pytest.mark.slow
def test_minimal_prints_a_line_per_setting_and_learns(minimal, monkeypatch, capsys):
    monkeypatch.setattr(minimal, "STEPS", 400)
    minimal.main()
    shares = re.findall(r"n = (\w+) +k = (\d) +([\d.]+)% valid", capsys.readouterr().out)
    assert [(n, k) for n, k, _ in shares[::2]] == [(n, "1") for n in ("all", "0", "0", "4", "all")]
    assert min(float(share) for *_, share in shares) > 5
