"""Bring files of version 0.2 to the format of today: python scripts/convert.py PATH [PATH ...]

A path is a .jsonl file of rows, a model or run directory, or a directory of these. A file of today's format
is not changed, so that a second call changes nothing. Values and recipe hashes of rows stay.

* Rows: `weights_file_sha256` goes, and `row_sha256` is computed again.
* config.json: settings that are gone are removed.
* Checkpoints of a network of this package: the keys averaged.NAME and optimiser.NUMBER become ema.NAME and
  optimizer.PARAMETER. Finish a run that adapts another network with the version that started it.
"""

import json
import sys
from dataclasses import fields
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file, save

from latent_tokens import TrainConfig
from latent_tokens.checkpoints.directory import build
from latent_tokens.configs import MAY_CHANGE_ON_RESUME
from latent_tokens.evaluation.rows import HASH, row_hash, with_hash
from latent_tokens.storage import json_bytes, short_hash, write_atomic
from latent_tokens.training.checkpoint import DIGITS, saved_states


def converted_row(row):
    """Return a row of results in today's format. Others are returned as they are."""
    if "metric" not in row:
        return row
    if HASH in row and row[HASH] != row_hash(row):
        raise ValueError(f"a row of {row.get('method')} was changed after it was measured")
    return with_hash({name: value for name, value in row.items() if name != "weights_file_sha256"})


def converted_config(config):
    """Return the config.json of a model directory in today's format."""
    if "training" not in config:
        return config
    known = {field.name for field in fields(TrainConfig)} - {*MAY_CHANGE_ON_RESUME}
    training = {name: value for name, value in config["training"].items() if name in known}
    return {**config, "training": training}


def convert_checkpoint(path, config):
    """Rewrite a checkpoint whose keys are those of an earlier version."""
    tensors = load_file(path)
    if not any(key.startswith("averaged.") for key in tensors):
        return
    names = [name for name, _ in build(config).named_parameters()]

    def renamed(key):
        part, _, rest = key.partition(".")
        if part == "optimiser":
            number, _, value = rest.partition(".")
            return f"optimizer.{names[int(number)]}.{value}"
        return f"ema.{rest}" if part == "averaged" else key

    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["state"])
    header.pop("tensors_sha256", None)
    content = save(
        dict(sorted((renamed(key), tensor) for key, tensor in tensors.items())), {"state": json.dumps(header)}
    )
    name = f"state-{header['step']:08d}-{short_hash(content, DIGITS)}.safetensors"
    write_atomic({path.with_name(name): content})
    path.unlink()


def convert_rows(path):
    """Rewrite the lines of a file whose rows are of an earlier version."""
    lines = path.read_text().splitlines(keepends=True)
    rows = [json.loads(line) for line in lines]
    new = [converted_row(row) for row in rows]
    text = "".join(
        line if row == other else json.dumps(other) + "\n"
        for line, row, other in zip(lines, rows, new, strict=True)
    )
    if text != "".join(lines):
        write_atomic({path: text.encode()})


def convert_model(folder):
    """Rewrite config.json and the checkpoints of a model directory."""
    config = json.loads((folder / "config.json").read_text())
    if "model" not in config or "format" not in config:
        return
    new = converted_config(config)
    if "size" in new["model"]:
        for path in saved_states(folder):
            convert_checkpoint(path, new)
    if new != config:
        write_atomic({folder / "config.json": json_bytes(new)})


def convert(path):
    """Convert a file, a directory, or all in a directory."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    for file in files:
        if file.suffix == ".jsonl":
            convert_rows(file)
        elif file.name == "config.json":
            convert_model(file.parent)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        convert(Path(name))
