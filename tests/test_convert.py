"""Files of an earlier version are converted once: a run resumes, and rows keep their values."""

import json
import shutil
import sys
from pathlib import Path

import torch

from latent_tokens import TrainConfig, fit, from_pretrained
from latent_tokens.evaluation.rows import read_results, with_hash
from latent_tokens.training.checkpoint import saved_states

ROOT = Path(__file__).parents[1]
RUN = ROOT / "tests" / "data" / "programme-1"  # trained to step 8 at the tag programme-1, with the state of 4
sys.path.append(str(ROOT / "scripts"))

from convert import convert, converted_config, converted_row  # noqa: E402


def test_run_of_an_earlier_commit_is_converted_once_and_resumes(tmp_path):
    run = shutil.copytree(RUN, tmp_path / "run")
    convert(tmp_path)
    first = {path.name: path.read_bytes() for path in run.iterdir()}
    convert(run)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == first
    for name in ("config.json", "model.safetensors", "results.jsonl"):
        assert first[name] == (RUN / name).read_bytes()  # of today's format already
    assert len(read_results(run / "results.jsonl")) == 1

    stored = from_pretrained(run)
    training = json.loads((run / "config.json").read_text())["training"]
    fit(TrainConfig(**training, out=run, resume="auto"))
    assert [path.name[:14] for path in saved_states(run)] == ["state-00000008", "state-00000004"]
    for ours, theirs in zip(from_pretrained(run).parameters(), stored.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_row_of_an_earlier_version_loses_the_hash_of_its_file():
    row = with_hash({"metric": "valid", "valid": 40.8, "recipe": "072134c54b4c"})
    assert converted_row(with_hash({**row, "weights_file_sha256": "f1bd"})) == row
    assert converted_row(row) == row


def test_config_loses_settings_that_are_gone():
    training = {"seed": 0, "precision": "fp32"}
    old = {"model": {"size": {}}, "training": {**training, "accumulate": 1, "save_every": 500}}
    assert converted_config(old) == {"model": {"size": {}}, "training": training}
