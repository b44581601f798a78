"""Puts trained models of 9x9 boards into the package: weights in bf16, what they generate, a card each.

    python scripts/ship.py runs/ship/sudoku-9-scdm runs/ship/sudoku-9-mdm

A model that is there already is replaced, and so are its rows in results.jsonl. The models of 6x6 boards come from `make demo-all ship`.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from latent_tokens import EvalConfig, evaluate, from_pretrained, save_pretrained
from latent_tokens.card import write_card
from latent_tokens.pretrained import SHIPPED
from latent_tokens.storage import read_description, read_lines, write_whole
from latent_tokens.tasks import described

DIAL = (0, 4, 16, "all")


def ship(run: Path) -> None:
    """One model: its folder in the package, and its rows, measured on the weights as they are shipped."""
    about, folder, results = read_description(run, "config.json", "run"), SHIPPED / run.name, SHIPPED / "results.jsonl"
    shutil.rmtree(folder, ignore_errors=True)
    save_pretrained(from_pretrained(run), folder, dtype=torch.bfloat16, about=about)
    net, task = from_pretrained(folder), described(about["task"])
    rows: list[dict[str, Any]] = []
    for order in ("top_prob", "uniform"):
        config = EvalConfig(latents=DIAL if about["name"] == "scdm" else None, order=order, num_samples=1_000, precision="bf16")
        rows += evaluate(net, task, config)
    others = [row for row in read_lines(results) if (row["task"], row["method"]) != (task.name, about["name"])]
    write_whole({results: "".join(f"{json.dumps(row)}\n" for row in [*others, *rows]).encode()})
    write_card(folder, rows)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        ship(Path(name))
