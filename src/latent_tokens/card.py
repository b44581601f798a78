"""Model cards: what a model is, how it was trained and what was measured of it, in Markdown as model hubs show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from latent_tokens.configs import FREE, TrainConfig
from latent_tokens.methods import name_of
from latent_tokens.pretrained import from_pretrained, shipped_names
from latent_tokens.report import ORDER_NAMES, as_markdown
from latent_tokens.storage import read_description, write_whole
from latent_tokens.training import EARLIER

Row = dict[str, Any]

CARD = "README.md"
SAID = ("task", "method", "data")  # said apart from the other settings
OF_MADE_DATA = ("num_train", "num_validation")  # said of no data set that was brought


def write_card(folder: Path, rows: Sequence[Row]) -> None:
    """Writes the card of a saved model into its folder, with those of the rows. Raises ValueError where the folder holds no model."""
    write_whole({folder / CARD: card(folder, rows).encode()})


def card(folder: Path, rows: Sequence[Row]) -> str:
    """The card of a saved model: its task, recipe, figures, and how to use it. `rows` are of `evaluate`, all of this model."""
    about = read_description(folder, "config.json", "model")
    net, task, made = from_pretrained(folder), about.get("task", {}).get("name", "a task of its own"), about.get("made_with", {})
    trained = {**EARLIER, **about.get("training", {})}
    data, digest = trained.get("data"), about.get("data_sha256", {}).get("train", "")
    settings = [field for field in fields(TrainConfig) if field.name not in (*SAID, *FREE, *(OF_MADE_DATA if data else ()))]
    said = {field.name: trained[field.name] for field in settings if trained.get(field.name) is not None}
    options = [f"--{field.name.replace('_', '-')} {said[field.name]}" for field in settings if said.get(field.name, field.default) != field.default]
    options += [f"--data {Path(data).name}"] if data else []
    command, commit = " ".join(["latent-tokens train", task, str(about.get("name")), *options]), made.get("commit") or "no commit"
    count = sum(weight.numel() for weight in net.parameters())
    size = f"{net.size.layers} layers of width {net.size.width}, {net.size.heads} heads, {count / 1e6:.1f} M parameters"
    name = folder.name if folder.name in shipped_names() else f"path/to/{folder.name}"
    return f"""---
library_name: latent-tokens
license: apache-2.0
tags: [latent-tokens, {about.get("name")}, {task}]
---

# {folder.name}

A model of the task `{task}` by the method `{name_of(net.method)}`: {size}; sequences of {net.max_length} over {net.vocab_size} tokens.

```python
from latent_tokens import from_pretrained

net = from_pretrained("{name}")
```

## Recipe

`{command}`; latent-tokens {made.get("latent_tokens", "")} at {commit}, torch {made.get("torch", "")}.
Training examples: SHA-256 `{digest[:16]}`.

{as_markdown([("setting", "value"), *((name, f"{value}") for name, value in said.items())])}
## Figures

{figures(rows)}
"""


def figures(rows: Sequence[Row]) -> str:
    """What was measured, a line a row."""
    if not rows:
        return "None were measured."
    headings = ("problems", "order", "k", "latents n", "right", "95 % interval", "samples", "tokens")
    lines = [
        (
            str(row.get("problems") or row["task"]), str(ORDER_NAMES.get(row["order"], row["order"])), str(row["candidates"]), str(row["latents"]),
            f"{row[row['metric']]:.1f} %", f"{row['ci95'][0]:.1f} - {row['ci95'][1]:.1f}", f"{row['num_samples']:,}", f"{row['relative_cost']:.2f}x",
        )
        for row in rows
    ]  # fmt: skip
    return f"{as_markdown([headings, *lines])}\nRight is `{rows[0]['metric']}`; tokens are those processed, relative to showing all that is masked."
