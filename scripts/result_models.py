"""Copy trained models of a reproduction to results/cpu/models, with their weights in bf16.

    python scripts/result_models.py runs/paper/cpu/models/sudoku-6-mdm-*

A directory there is named after the task, the method and the training seed. models.json has the name of each
model in results, which ends in a hash of its recipe, and the SHA-256 of its weights in fp32, which results
name weights_sha256. Results are measured with the weights in fp32, so those of the copies differ in rounding.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from latent_tokens import from_pretrained, save_pretrained
from latent_tokens.checkpoints.directory import learned_task
from latent_tokens.checkpoints.files import read_tensor_file, tensors_sha256
from latent_tokens.storage import json_bytes, read_description, write_atomic
from latent_tokens.tasks import Text

MODELS = Path(__file__).parents[1] / "results" / "cpu" / "models"
INDEX = "models.json"


def copy(run: Path, models: Path) -> Path:
    """Copy the model of a run directory to `models`, add it to the index, and return the directory.

    An older copy is replaced.
    """
    name, _, _ = run.name.rpartition("-")
    shutil.rmtree(models / name, ignore_errors=True)
    about = read_description(run, "config.json", "run")
    save_pretrained(from_pretrained(run), models / name, dtype=torch.bfloat16, about=about)
    task = learned_task(run)
    for file, content in (task.files() if isinstance(task, Text) else {}).items():
        (models / name / file).write_bytes(content)
    path = models / INDEX
    index = json.loads(path.read_text()) if path.exists() else {}
    weights = tensors_sha256(read_tensor_file(run / "model.safetensors"))
    index[name] = {"model": run.name, "weights_sha256": weights}
    write_atomic({path: json_bytes(dict(sorted(index.items())))})
    return models / name


def main(runs: Sequence[str]) -> None:
    """Copy the model of each run directory."""
    for run in runs:
        print(copy(Path(run), MODELS))


if __name__ == "__main__":
    main(sys.argv[1:])
