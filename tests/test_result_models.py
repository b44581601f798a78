"""The models of results/cpu/models: in bf16, with the hash of the weights that results were measured with."""

import json
import sys

import pytest
import torch

from helpers.documentation import ROOT
from latent_tokens import TrainConfig, fit, from_pretrained
from latent_tokens.checkpoints.directory import learned_task
from latent_tokens.checkpoints.files import read_tensor_file, tensors_sha256
from latent_tokens.paper.run import measured

sys.path.append(str(ROOT / "scripts"))

import result_models

INDEX = json.loads((result_models.MODELS / result_models.INDEX).read_text())


@pytest.mark.parametrize("name", INDEX)
def test_a_stored_model_is_that_of_results(name):
    folder = result_models.MODELS / name
    found = [
        row
        for row in measured(ROOT / "results" / "cpu" / "rows.jsonl").values()
        if row["weights_sha256"] == INDEX[name]["weights_sha256"]
    ]
    assert found
    assert {row["model"] for row in found} == {INDEX[name]["model"]}
    net = from_pretrained(folder)
    description = json.loads((folder / "config.json").read_text())
    assert name == f"{learned_task(folder).name}-{description['name']}-{description['training']['seed']}"
    assert all(torch.equal(weight, weight.bfloat16().float()) for weight in net.parameters())
    assert (folder / "model.safetensors").stat().st_size < 2.5e6


def test_every_stored_model_is_in_the_index():
    assert {path.name for path in result_models.MODELS.iterdir() if path.is_dir()} == set(INDEX)


def test_a_copy_replaces_the_older_one(tmp_path):
    run = tmp_path / "sudoku-4-scdm-0-abc"
    fit(TrainConfig("sudoku-4", "scdm", run, "pico", steps=1, num_train=8, num_validation=2))
    models = tmp_path / "models"
    (models / "sudoku-4-scdm-0").mkdir(parents=True)
    (models / "sudoku-4-scdm-0" / "old").touch()
    (models / result_models.INDEX).write_text('{"other": {}}')
    result_models.copy(run, models)

    weights = read_tensor_file(run / "model.safetensors")
    entry = {"model": run.name, "weights_sha256": tensors_sha256(weights)}
    assert json.loads((models / result_models.INDEX).read_text()) == {"other": {}, "sudoku-4-scdm-0": entry}
    copied = models / "sudoku-4-scdm-0"
    assert sorted(path.name for path in copied.iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((copied / "config.json").read_text())["training"]["steps"] == 1
    stored = read_tensor_file(copied / "model.safetensors")
    assert all(torch.equal(stored[name], weight.bfloat16()) for name, weight in weights.items())
