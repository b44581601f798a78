"""Calls that a PyTorch user may guess: each works, or its error names the right call."""

from pathlib import Path

import numpy as np
import pytest
import torch

import latent_tokens as lt
from helpers.refusals import refused

TASK = lt.TASKS["sudoku-4"]
SCDM = lt.METHODS["scdm"]
KNOWN = torch.arange(16)[None] < torch.tensor([[3], [5]])
TOKENS = torch.arange(16).expand(2, -1) % 4


@pytest.fixture
def net():
    torch.manual_seed(0)
    net = lt.Transformer("pico", TASK.vocab_size, TASK.length).eval()
    net.method = SCDM
    return net


def test_transformer_takes_a_size_by_name_and_names_what_load_has(net):
    assert lt.Transformer("nano", 4, 16).size == lt.SIZES["nano"]
    assert net.device == torch.device("cpu")
    assert net.to("meta").device.type == "meta"
    for name, fix in (("generate", "generate(net, ...)"), ("task", "load(NAME).task")):
        assert not hasattr(net, name)
        with pytest.raises(AttributeError) as error:
            getattr(net, name)
        assert fix in str(error.value)


def test_generate_has_defaults_and_takes_fields_of_decoding_by_name(net):
    expected = lt.generate(net, SCDM, TOKENS, KNOWN, lt.Decoding(8), 0)
    assert torch.equal(lt.generate(net, net.method, TOKENS, KNOWN).tokens, expected.tokens)
    assert torch.equal(lt.generate(net, tokens=TOKENS, known=KNOWN).tokens, expected.tokens)
    expected = lt.generate(net, SCDM, TOKENS, KNOWN, lt.Decoding(candidates=2, latents=4), 0)
    sample = lt.generate(net, SCDM, TOKENS, KNOWN, lt.Decoding(candidates=2), latents=4)
    assert torch.equal(sample.tokens, expected.tokens)
    assert torch.equal(sample.processed, expected.processed)
    with refused("method=None: the net has no method. Use one of METHODS"):
        lt.generate(lt.Transformer("pico", 4, 16), tokens=TOKENS, known=KNOWN)


def test_loss_without_a_generator_draws_from_that_of_torch(net):
    expected = lt.loss(net, SCDM, TOKENS, KNOWN, torch.Generator().manual_seed(3))
    torch.manual_seed(3)
    assert lt.loss(net, SCDM, TOKENS, KNOWN) == expected
    assert lt.loss(net, SCDM, TOKENS, KNOWN) != expected


def test_evaluate_has_a_default_config_and_takes_its_fields_and_a_task_by_name(net):
    rows = lt.evaluate(net, TASK, latents=(0, 4), num_samples=2)
    assert [row["latents"] for row in rows] == [0, 4]
    by_name = lt.evaluate(net, "sudoku-4", latents=[0, 4], num_samples=2)
    assert [row["valid"] for row in by_name] == [row["valid"] for row in rows]
    assert lt.evaluate(net, TASK, lt.EvalConfig(num_samples=2))[0]["valid"] == rows[0]["valid"]


def test_configs_take_latents_in_every_form_and_paths_as_text():
    for latents, expected in (([0, 4], (0, 4)), (4, (4,)), ("all", ("all",)), ((0, "all"), (0, "all"))):
        assert lt.EvalConfig(latents=latents).latents == expected
    assert lt.TrainConfig("sudoku-4", "scdm", out="runs/x", data="data/x").folder == Path("runs/x")
    assert lt.EvalConfig(data="data/x").data == Path("data/x")
    config = lt.DataConfig("sudoku-4", out="data/x", apart_from=["data/y"])
    assert (config.folder, config.apart_from) == (Path("data/x"), (Path("data/y"),))
    with refused("out=5: must be a path"):
        lt.TrainConfig("sudoku-4", "scdm", out=5)


def test_data_sets_are_taken_by_a_path_and_a_task_as_text(tmp_path):
    counts = {"num_train": 8, "num_validation": 2, "num_test": 2}
    folder = lt.make_data(lt.DataConfig("sudoku-4", out=str(tmp_path / "four"), processes=1, **counts))
    task, splits = lt.load_data(str(folder))
    assert task == TASK
    assert np.array_equal(splits["train"].tokens, lt.load_data(folder)[1]["train"].tokens)
    assert len(lt.dataset("sudoku-4", "train", 8)) == 8
    with refused("Use Text(length=256)"):
        lt.TASKS["text"]


def test_fit_takes_names_and_settings(tmp_path):
    settings = {"steps": 1, "size": "pico", "batch_size": 4, "num_train": 16, "num_validation": 4}
    run = lt.fit("sudoku-4", "scdm", out=str(tmp_path / "run"), **settings)
    assert lt.from_pretrained(run).method == SCDM
    lt.fit(lt.TrainConfig("sudoku-4", "mdm", out=tmp_path / "other", **settings), lt.METHODS["sidm"], seed=1)
    assert lt.from_pretrained(tmp_path / "other").method == lt.METHODS["sidm"]
