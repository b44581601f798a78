"""The examples run, learn as they state, and their task satisfies the interface."""

import importlib.util
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from latent_tokens.core.attention import attends_earlier, attends_later, dense_mask, independent, semi_causal
from latent_tokens.core.layout import next_layout
from latent_tokens.tasks import SPLITS

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("new_*.py"))


def module(name):
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"examples/{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def example():
    return module("new_task")


@pytest.fixture(scope="module")
def task(example):
    return example.PetersenColoring()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_fits_two_screens(path):
    assert len(path.read_text().splitlines()) <= 120


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_learns(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [path.name, str(tmp_path / "run")])
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    learned = [float(share) for share in re.findall(r"^n = .*: ([\d.]+)% valid", printed, re.M)]
    (chance,) = [float(share) for share in re.findall(r"^random .*: ([\d.]+)% valid", printed, re.M)]
    assert len(learned) == 3
    assert min(learned) > chance + 50
    assert (tmp_path / "run/model.safetensors").is_file()


def test_the_lines_are_the_petersen_graph(example):
    """Ten points with three lines each. Joined points share no neighbor, other pairs share one."""
    joined = adjacency(example)
    assert (joined @ joined + joined == np.ones((10, 10)) + 2 * np.eye(10)).all()


def test_new_task_examples_are_valid_and_split_by_coloring(task):
    examples = task.generate(2_000, seed=0)
    assert task.score(examples.tokens)["valid"].all()
    assert (examples.known.sum(1) == 3).all()
    keys, splits = task.keys(examples), task.splits(examples)
    assert len(set(keys.tolist())) == len(np.unique(examples.tokens, axis=0))
    assert set(splits.tolist()) == set(range(len(SPLITS)))
    assert len(set(zip(keys.tolist(), splits.tolist(), strict=True))) == len(set(keys.tolist()))


def test_new_task_verifier_notices_every_wrong_token(example, task):
    """A missing color, or that of a neighbor, is an error. Another color is valid if no neighbor has it."""
    joined = adjacency(example).astype(bool)
    for board in task.generate(100, seed=1).tokens:
        assert task.verify(board) == []
        for point in range(task.length):
            around = set(board[joined[point]].tolist())
            for token in {*range(task.vocab_size + 1), 255} - {board[point]}:
                changed = board.copy()
                changed[point] = token
                wrong = task.verify(changed)
                assert bool(wrong) == (token >= task.vocab_size or token in around)
                assert task.score(changed[None])["valid"][0] == (not wrong)


def test_new_task_problems_are_read_as_written(task):
    problem = task.encode("R.G.. ...Y.")
    assert task.decode(np.where(problem.known, problem.tokens, 255)[0]) == "R.G.....Y."
    board = task.generate(1, seed=2).tokens
    again = task.encode(task.decode(board[0]))
    assert (again.tokens == board).all()
    assert again.known.all()
    for text, message in (("R.G.. ...Y..", "11 tokens"), ("R.G.. ...X.", "'X'")):
        with pytest.raises(ValueError, match=message):
            task.encode(text)


def test_new_rule_is_between_sidm_and_scdm_with_free_latents():
    near = module("new_method").near
    layout = next_layout(torch.arange(9)[None], *(torch.tensor([count]) for count in (3, 6, 0)))
    mask, least, most = (dense_mask(rule, layout)[0] for rule in (near, independent, semi_causal))
    assert (least <= mask).all()
    assert (mask <= most).all()
    assert mask.sum(1).tolist() == [3, 3, 3, 4, 5, 6, 6, 6, 6]
    assert attends_earlier(near)
    assert not attends_later(near)


def adjacency(example):
    """Return the lines of the example as a symmetric matrix of 0 and 1."""
    joined = np.zeros((10, 10), int)
    for a, b in example.LINES:
        joined[a, b] += 1
        joined[b, a] += 1
    return joined
