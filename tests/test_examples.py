"""The examples run and learn. Masks, losses and samples of examples/minimal.py equal the package's."""

import importlib
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import latent_tokens as lt
from latent_tokens.core.attention import attends_earlier, attends_later, dense_mask, independent, semi_causal
from latent_tokens.core.layout import next_layout
from latent_tokens.tasks import SPLITS

EXAMPLES = Path(__file__).parents[1] / "examples"
RULES = {"mdm": "bidirectional", "sidm": "independent", "scdm": "semi_causal"}


def module(name):
    """Return the names of an example."""
    return SimpleNamespace(**runpy.run_path(str(EXAMPLES / f"{name}.py")))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["new_method", "new_task"])
def test_an_example_runs_and_learns(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [name, str(tmp_path / "run")])
    shorter = tmp_path / f"{name}.py"
    text = (EXAMPLES / f"{name}.py").read_text()
    shorter.write_text(
        text.replace('"steps": 300', '"steps": 150').replace("num_samples=500", "num_samples=200")
    )
    runpy.run_path(str(shorter), run_name="__main__")
    printed = capsys.readouterr().out
    learned = [float(share) for share in re.findall(r"^n = .*: ([\d.]+)% valid", printed, re.M)]
    (chance,) = [float(share) for share in re.findall(r"^random .*: ([\d.]+)% valid", printed, re.M)]
    assert len(learned) == 3
    assert min(learned) > chance + 50
    assert (tmp_path / "run/model.safetensors").is_file()


@pytest.mark.slow
def test_loops_help_a_network_whose_masked_tokens_see_each_other(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["new_network", str(tmp_path)])
    runpy.run_path(str(EXAMPLES / "new_network.py"), run_name="__main__")
    printed = re.findall(r"^(\w+), loops = (\d): ([\d.]+)% valid", capsys.readouterr().out, re.M)
    valid = {(method, int(loops)): float(share) for method, loops, share in printed}
    assert len(valid) == 6
    assert valid["mdm", 4] > valid["mdm", 2] > valid["mdm", 1] + 15
    assert valid["mdm", 4] > valid["sidm", 4] + 15


@pytest.fixture(scope="module")
def example():
    return module("new_task")


@pytest.fixture(scope="module")
def task(example):
    return example.PetersenColoring()


def test_new_task_examples_are_valid_and_split_by_coloring(task):
    examples = task.generate(500, seed=0)
    assert task.score(examples.tokens)["valid"].all()
    keys, splits = task.keys(examples), task.splits(examples)
    assert len(set(keys.tolist())) == len(np.unique(examples.tokens, axis=0))
    assert set(splits.tolist()) == set(range(len(SPLITS)))
    assert len(set(zip(keys.tolist(), splits.tolist(), strict=True))) == len(set(keys.tolist()))


def test_new_task_verifier_notices_every_wrong_token(example, task):
    """A missing color, or that of a neighbor, is an error. Another color is valid if no neighbor has it."""
    joined = np.zeros((10, 10), bool)
    joined[tuple(np.transpose(example.LINES))] = True
    joined |= joined.T
    assert (joined.sum(1) == 3).all()  # as in the Petersen graph
    for board in task.generate(20, seed=1).tokens:
        assert task.verify(board) == []
        for point in range(task.length):
            around = set(board[joined[point]].tolist())
            for token in {*range(task.vocab_size + 1), 255} - {board[point]}:
                changed = board.copy()
                changed[point] = token
                is_wrong = token >= task.vocab_size or token in around
                assert bool(task.verify(changed)) == is_wrong
                assert task.score(changed[None])["valid"][0] == (not is_wrong)


def test_new_rule_is_between_sidm_and_scdm_with_free_latents():
    near = module("new_method").near
    layout = next_layout(torch.arange(9)[None], *(torch.tensor([count]) for count in (3, 6, 0)))
    mask, least, most = (dense_mask(rule, layout)[0] for rule in (near, independent, semi_causal))
    assert (least <= mask).all()
    assert (mask <= most).all()
    assert mask.sum(1).tolist() == [3, 3, 3, 4, 5, 6, 6, 6, 6]
    assert attends_earlier(near)
    assert not attends_later(near)


@pytest.fixture(scope="module")
def minimal():
    return module("minimal")


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
    for name, weight in net.state_dict().items():
        row = [torch.zeros_like(weight[:1])] if name.startswith("head.") else []
        target = packaged.state_dict()[name.replace("position_embedding.", "place.")]
        target.copy_(torch.cat([weight, *row]))
    return packaged.eval()


@pytest.fixture(scope="module")
def boards(minimal):
    return torch.from_numpy(minimal.all_boards())


def test_minimal_imports_torch_and_numpy_only():
    lines = (EXAMPLES / "minimal.py").read_text().splitlines()
    modules = {line.split()[1].split(".")[0] for line in lines if re.match(r"\s*(import|from) ", line)}
    assert modules == {"itertools", "numpy", "torch"}
    assert sum(map(bool, lines)) <= 160


def test_minimal_names_its_counterparts_in_the_package():
    text = re.sub(r"\n\s*#?\s*", " ", (EXAMPLES / "minimal.py").read_text())
    pairs = re.findall(r"((?:`\w+`(?: and )?)+), (\w+)/(\w+)\.py", text)
    assert len(pairs) >= 10
    for names, package, module in pairs:
        members = vars(importlib.import_module(f"latent_tokens.{package}.{module}"))
        assert set(re.findall(r"\w+", names)) - {"and"} <= set(members)


def test_minimal_boards_are_all_valid_ones(minimal, boards):
    assert len(np.unique(boards, axis=0)) == 288
    assert lt.TASKS["sudoku-4"].score(boards.numpy())["valid"].all()
    changed = boards.numpy().copy()
    noise = np.random.default_rng(0)
    changed[np.arange(288), noise.integers(16, size=288)] = noise.integers(4, size=288)
    assert (minimal.is_valid(changed) == lt.TASKS["sudoku-4"].score(changed)["valid"]).all()


@pytest.mark.parametrize("name", RULES)
def test_minimal_mask_and_logits_are_those_of_the_package(minimal, net, packaged, boards, name):
    method = lt.METHODS[name]
    torch.manual_seed(1)
    order = torch.rand(4, 16).argsort(1)
    num_clean = torch.tensor([0, 5, 9, 15])
    masked = 16 - num_clean
    layout = lt.next_layout(order, num_clean, masked.clamp(max=2), (masked - 2).clamp(min=0))
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


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize(("name", "n"), [("mdm", "all"), ("sidm", 0), ("scdm", 4), ("scdm", "all")])
def test_minimal_samples_are_those_of_the_package(minimal, net, packaged, name, n, k):
    known = torch.zeros(10, 16, dtype=torch.bool)
    decoding = lt.Decoding(candidates=k, latents=n)
    expected = lt.generate(packaged, lt.METHODS[name], known.long(), known, decoding, seed=3)
    rule = getattr(minimal, RULES[name])
    tokens, processed = minimal.generate(net, rule, 10, n=16 if n == "all" else n, k=k, seed=3)
    assert torch.equal(tokens, expected.tokens)
    assert (expected.tokens_processed == processed).all()


@pytest.mark.slow
def test_minimal_prints_a_line_per_setting_and_learns(tmp_path, capsys):
    shorter = tmp_path / "minimal.py"
    text = (EXAMPLES / "minimal.py").read_text()
    shorter.write_text(text.replace("= 2_500, 64,", "= 300, 64,").replace(" 1_000,", " 200,"))
    runpy.run_path(str(shorter), run_name="__main__")
    shares = re.findall(r"n = (\w+) +k = (\d) +([\d.]+)% valid", capsys.readouterr().out)
    assert [(n, k) for n, k, _ in shares[::2]] == [(n, "1") for n in ("all", "0", "0", "4", "all")]
    assert min(float(share) for *_, share in shares) > 5
