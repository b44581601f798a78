"""Copy trained models into the package, and write the pages that show their results.

    make release-models                                           # trains the 6x6 models first
    python scripts/release_models.py runs/release/bundled/*
    python scripts/release_models.py runs/sudoku-9-scdm runs/sudoku-9-mdm

The models of run directories are measured here, with their weights in bf16 as they are bundled. Directories
with a model card are taken as they are, with the rows of results.jsonl next to them.

A bundled model of the same name is replaced, and so are its rows in results.jsonl. Then the table of
README.md and docs/latents.png are written from results.jsonl. Run scripts/page_examples.py afterwards: the
page's examples depend on the weights.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from latent_tokens import EvalConfig, Text, evaluate, from_pretrained, save_pretrained
from latent_tokens.checkpoints.files import BUNDLED, network_fingerprint
from latent_tokens.demo import draw_bundled_figure
from latent_tokens.evaluation.settings import default_order
from latent_tokens.hf.model_card import CARD, write_card
from latent_tokens.storage import read_description, read_lines, write_atomic
from latent_tokens.tasks import described

Row = dict[str, Any]

ROOT = Path(__file__).parents[1]
RESULTS = BUNDLED / "results.jsonl"
LATENTS = (0, 16, "all")
README_SETTING = {"task": "sudoku-6", "candidates": 4}
README_ROW = re.compile(
    r"^\| `(\w+)` \| (\S+) \| (top-prob|entropy) \| [\d.]+% \| [\d.]+-[\d.]+ \| [\d.]+x \|$", re.M
)


def bundle(run: Path, folder: Path) -> list[Row]:
    """Write a run's weights to a directory as they are bundled, and return the rows measured with them."""
    description = read_description(run, "config.json", "run")
    bundled = from_pretrained(run).bfloat16().float()
    description["fingerprint"] = network_fingerprint(bundled)
    task = described(description["task"], run)
    data = description["training"]["data"]
    if data is not None:  # a path of the computer that trained it
        description["training"]["data"] = Path(data).name
    save_pretrained(bundled, folder, dtype=torch.bfloat16, about=description)
    if isinstance(task, Text):
        write_atomic({folder / name: content for name, content in task.files().items()})
    net = from_pretrained(folder)
    orders = [default_order(net.method, task)]
    if not net.method.is_left_to_right:
        orders.append("uniform")
    rows = []
    for order in dict.fromkeys(orders):
        latents = LATENTS if description["name"] == "scdm" else None
        config = EvalConfig(
            latents=latents, order=order, num_samples=1_000, data=data if isinstance(task, Text) else None
        )
        rows += evaluate(net, task, config)
    return rows


def put(folder: Path, rows: list[Row]) -> None:
    """Copy a directory, its rows and its card into the package. Those of the same name are replaced."""
    shutil.rmtree(BUNDLED / folder.name, ignore_errors=True)
    shutil.copytree(folder, BUNDLED / folder.name)
    replaced = {(row["task"], row["method"]) for row in rows}
    # Stored rows are written again as they are, in their own units.
    others = [row for row in read_lines(RESULTS) if (row["task"], row["method"]) not in replaced]
    write_atomic({RESULTS: "".join(f"{json.dumps(row)}\n" for row in [*others, *rows]).encode()})
    write_card(BUNDLED / folder.name, rows, license="apache-2.0", name=folder.name)


def with_results(readme: str, rows: Sequence[Row]) -> str:
    """Return README.md with the numbers of its table from the rows. Raise ValueError if a row is missing."""
    table = {
        (row["method"], str(row["latents"]), row["order"].replace("_", "-")): row
        for row in rows
        if README_SETTING.items() <= row.items()
    }

    def line(match: re.Match[str]) -> str:
        if match.groups() not in table:
            raise ValueError(f"README.md has {', '.join(match.groups())}, and {RESULTS} has no such row")
        row = table[match.groups()]
        low, high = row["ci95"]
        setting = f"| `{match[1]}` | {match[2]} | {match[3]} "
        values = f"| {row['valid']:.1f}% | {low:.1f}-{high:.1f} | {row['relative_cost']:.2f}x |"
        return setting + values

    return README_ROW.sub(line, readme)


def rows_next_to(folder: Path) -> list[Row]:
    """Return the rows of a model directory from the results.jsonl next to it."""
    description = read_description(folder, "config.json", "model")
    names = (description["task"]["name"], description["name"])
    path = folder.parent / "results.jsonl"
    rows = [row for row in read_lines(path) if (row["task"], row["method"]) == names]
    if not rows:
        raise ValueError(f"{path}: has no row of {' '.join(names)}. Name the run, which is measured here.")
    return rows


def main(folders: Sequence[Path]) -> None:
    """Copy each model into the package, then write the table of README.md and the figure."""
    for folder in folders:
        if folder.resolve().parent == BUNDLED.resolve():
            raise ValueError(f"{folder}: is a bundled model. Name run or model directories.")
        with TemporaryDirectory() as temporary:
            if (folder / CARD).is_file():
                put(folder, rows_next_to(folder))
            elif folder.is_dir():
                bundled = Path(temporary, folder.name)
                put(bundled, bundle(folder, bundled))
            else:
                raise ValueError(f"{folder}: is not a directory. Name run or model directories.")
    readme = ROOT / "README.md"
    write_atomic({readme: with_results(readme.read_text(encoding="utf-8"), read_lines(RESULTS)).encode()})
    for path in (readme, *draw_bundled_figure(ROOT / "docs" / "latents.png")):
        print(path)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
