"""Put trained models into the package: weights in bf16, results and a model card each.

    python scripts/ship.py runs/ship/sudoku-9-scdm runs/ship/sudoku-9-mdm
    python scripts/ship.py runs/demo-all/shipped/*

    The models of run directories are measured here, with the weights as they are bundled. Directories with a
    model card are taken as they are, with their rows.

A model that is there already is replaced, and so are its rows in results.jsonl.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from latent_tokens import EvalConfig, evaluate, from_pretrained, save_pretrained
from latent_tokens.checkpoints.pretrained import SHIPPED, fingerprint
from latent_tokens.evaluation.settings import default_order
from latent_tokens.sharing.card import CARD, write_card
from latent_tokens.storage import read_description, read_lines, write_atomic
from latent_tokens.tasks import described

DIAL = (0, 16, "all")
RESULTS = SHIPPED / "results.jsonl"


def ship(run: Path, folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's model, whose weights are written to the folder."""
    about = read_description(run, "config.json", "run")
    kept = from_pretrained(run).bfloat16().float()
    save_pretrained(kept, folder, dtype=torch.bfloat16, about={**about, "fingerprint": fingerprint(kept)})
    net, task, rows = from_pretrained(folder), described(about["task"]), []
    orders = dict.fromkeys(
        (default_order(net.method, task), *([] if net.method.is_left_to_right else ["uniform"]))
    )
    for order in orders:
        config = EvalConfig(
            latents=DIAL if about["name"] == "scdm" else None,
            order=order,
            num_samples=1_000,
            precision="bf16",
        )
        rows += evaluate(net, task, config)
    return rows


def put(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Put a directory, its rows and its card into the package, in place of those of the same name."""
    shutil.rmtree(SHIPPED / folder.name, ignore_errors=True)
    shutil.copytree(folder, SHIPPED / folder.name)
    own = {(row["task"], row["method"]) for row in rows}
    # Stored rows are written again as they are, in their own units.
    others = [row for row in read_lines(RESULTS) if (row["task"], row["method"]) not in own]
    write_atomic({RESULTS: "".join(f"{json.dumps(row)}\n" for row in [*others, *rows]).encode()})
    write_card(SHIPPED / folder.name, rows)


if __name__ == "__main__":
    for place in map(Path, sys.argv[1:]):
        with TemporaryDirectory() as beside:
            if (place / CARD).is_file():
                about = read_description(place, "config.json", "model")
                kept = read_lines(place.parent / "results.jsonl")
                put(
                    place,
                    [
                        row
                        for row in kept
                        if (row["task"], row["method"]) == (about["task"]["name"], about["name"])
                    ],
                )
            elif place.is_dir():
                put(Path(beside, place.name), ship(place, Path(beside, place.name)))
