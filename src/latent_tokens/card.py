"""Model cards: what a model is, how it was trained and what was measured of it, in Markdown as model hubs show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from latent_tokens.configs import TrainConfig
from latent_tokens.pretrained import from_pretrained
from latent_tokens.report import ORDER_NAMES, as_markdown
from latent_tokens.storage import read_description, write_whole

Row = dict[str, Any]

CARD = "README.md"
SPOKEN = ("size", "steps", "batch_size", "lr", "schedule", "warmup", "dropout", "positions", "ema", "num_train", "seed", "data")


def write_card(folder: Path, rows: Sequence[Row]) -> None:
    """Writes the card of a saved model into its folder, with those of the rows. Raises ValueError where the folder holds no model."""
    write_whole({folder / CARD: card(folder, rows).encode()})


def card(folder: Path, rows: Sequence[Row]) -> str:
    """The card of a saved model: its task, recipe, figures, and how to use it. `rows` are of `evaluate`, all of this model."""
    about = read_description(folder, "config.json", "model")
    net, task, trained = from_pretrained(folder), about.get("task", {}).get("name", "a task of its own"), about.get("training", {})
    made = about.get("made_with", {})
    method, count = about.get("name", "a model"), sum(weight.numel() for weight in net.parameters())
    size = f"{net.size.layers} layers of width {net.size.width}, {net.size.heads} heads, {count / 1e6:.1f} M parameters"
    recipe = [("setting", "value"), *((name, f"{trained[name]}") for name in SPOKEN if trained.get(name) is not None)]
    options = [f"--{field.name.replace('_', '-')} {trained[field.name]}" for field in fields(TrainConfig) if differs(field, trained)]
    command, commit = " ".join(["latent-tokens train", task, method, *options]), made.get("commit") or "outside a checkout"
    return f"""---
library_name: latent-tokens
license: apache-2.0
tags: [latent-tokens, {method}, {task}]
---

# {folder.name}

A model of the task `{task}` by the method `{method}`: {size}; sequences of {net.max_length} over {net.vocab_size} tokens.

```python
from latent_tokens import from_pretrained

net = from_pretrained("{folder.name}")
```

## Recipe

`{command}`; latent-tokens {made.get("latent_tokens", "")} at {commit}, torch {made.get("torch", "")}.

{as_markdown(recipe)}
## Figures

{figures(rows)}
"""


def differs(field: Field[Any], trained: Mapping[str, Any]) -> bool:
    """Whether a setting of a training is not its default."""
    return field.name in SPOKEN and trained.get(field.name) not in (None, field.default)


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
