"""Calls that a PyTorch user may guess: each works, or its error names the right call."""

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.refusals import refused
from latent_tokens import (
    METHODS,
    SIZES,
    TASKS,
    DataConfig,
    Decoding,
    EvalConfig,
    TrainConfig,
    Transformer,
    dataset,
    evaluate,
    fit,
    from_pretrained,
    generate,
    load_data,
    loss,
    make_data,
)

TASK = TASKS["sudoku-4"]
SCDM = METHODS["scdm"]
KNOWN = torch.arange(16)[None] < torch.tensor([[3], [5]])
TOKENS = torch.arange(16).expand(2, -1) % 4


@pytest.fixture
def net():
    torch.manual_seed(0)
    net = Transformer("pico", TASK.vocab_size, TASK.length).eval()
    net.method = SCDM
    return net


def test_transformer_takes_a_size_by_name_and_names_what_load_has(net):
    assert Transformer("nano", 4, 16).size == SIZES["nano"]
    with refused("Did you mean nano"):
        Transformer("nanno", 4, 16)
    assert net.device == torch.device("cpu")
    assert net.to("meta").device.type == "meta"
    for name, fix in (("generate", "generate(net, ...)"), ("task", "load(NAME).task")):
        assert not hasattr(net, name)
        with pytest.raises(AttributeError) as error:
            getattr(net, name)
        assert fix in str(error.value)


def test_generate_has_defaults_and_takes_fields_of_decoding_by_name(net):
    expected = generate(net, SCDM, TOKENS, KNOWN, Decoding(8), 0)
    assert torch.equal(generate(net, net.method, TOKENS, KNOWN).tokens, expected.tokens)
    assert torch.equal(generate(net, tokens=TOKENS, known=KNOWN).tokens, expected.tokens)
    expected = generate(net, SCDM, TOKENS, KNOWN, Decoding(candidates=2, latents=4), 0)
    sample = generate(net, SCDM, TOKENS, KNOWN, Decoding(candidates=2), latents=4)
    assert torch.equal(sample.tokens, expected.tokens)
    assert torch.equal(sample.processed, expected.processed)
    with refused("setting=latent: ", "Did you mean latents"):
        generate(net, SCDM, TOKENS, KNOWN, latent=4)
    with refused("method=None: the net has no method. Use one of METHODS"):
        generate(Transformer("pico", 4, 16), tokens=TOKENS, known=KNOWN)


def test_loss_without_a_generator_draws_from_that_of_torch(net):
    expected = loss(net, SCDM, TOKENS, KNOWN, torch.Generator().manual_seed(3))
    torch.manual_seed(3)
    assert loss(net, SCDM, TOKENS, KNOWN) == expected
    assert loss(net, SCDM, TOKENS, KNOWN) != expected


def test_evaluate_has_a_default_config_and_takes_its_fields_and_a_task_by_name(net):
    rows = evaluate(net, TASK, latents=(0, 4), num_samples=2)
    assert [row["latents"] for row in rows] == [0, 4]
    by_name = evaluate(net, "sudoku-4", latents=[0, 4], num_samples=2)
    assert [row["valid"] for row in by_name] == [row["valid"] for row in rows]
    assert evaluate(net, TASK, EvalConfig(num_samples=2))[0]["valid"] == rows[0]["valid"]
    with refused("setting=samples: must be one of"):
        evaluate(net, TASK, samples=2)


def test_configs_take_latents_in_every_form_and_paths_as_text():
    for latents, expected in (([0, 4], (0, 4)), (4, (4,)), ("all", ("all",)), ((0, "all"), (0, "all"))):
        assert EvalConfig(latents=latents).latents == expected
    assert TrainConfig("sudoku-4", "scdm", out="runs/x", data="data/x").folder == Path("runs/x")
    assert EvalConfig(data="data/x").data == Path("data/x")
    config = DataConfig("sudoku-4", out="data/x", apart_from=["data/y"])
    assert (config.folder, config.apart_from) == (Path("data/x"), (Path("data/y"),))
    with refused("out=5: must be a path"):
        TrainConfig("sudoku-4", "scdm", out=5)


def test_data_sets_are_taken_by_a_path_and_a_task_as_text(tmp_path):
    counts = {"num_train": 8, "num_validation": 2, "num_test": 2}
    folder = make_data(DataConfig("sudoku-4", out=str(tmp_path / "four"), processes=1, **counts))
    task, splits = load_data(str(folder))
    assert task == TASK
    assert np.array_equal(splits["train"].tokens, load_data(folder)[1]["train"].tokens)
    assert len(dataset("sudoku-4", "train", 8)) == 8
    for name, fix in (("sudoku-44", "Did you mean sudoku-4"), ("text", "Use Text(length=256)")):
        with refused(fix):
            TASKS[name]
    with refused("Did you mean sudoku-4"):
        dataset("sudoku-44", "train", 8)


def test_fit_takes_names_and_settings(tmp_path):
    settings = {"steps": 1, "size": "pico", "batch_size": 4, "num_train": 16, "num_validation": 4}
    run = fit("sudoku-4", "scdm", out=str(tmp_path / "run"), **settings)
    assert from_pretrained(run).method == SCDM
    fit(TrainConfig("sudoku-4", "mdm", out=tmp_path / "other", **settings), METHODS["sidm"], seed=1)
    assert from_pretrained(tmp_path / "other").method == METHODS["sidm"]
