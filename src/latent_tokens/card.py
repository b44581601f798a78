"""Model cards: what a model is, how it was trained and what was measured of it, in Markdown as model hubs show it."""

from __future__ import annotations

import re
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

IN_TRANSFORMERS = """
In `transformers`, where latent-tokens is installed:

```python
from transformers import AutoModelForMaskedLM

model = AutoModelForMaskedLM.from_pretrained("{name}", trust_remote_code=True)
```
"""

CARD = "README.md"
SAID = ("task", "method", "data")  # said apart from the other settings, of which those that are FREE say nothing of the model
OF_MADE_DATA = ("num_train", "num_validation")  # said of no data set that was brought


def write_card(folder: Path, rows: Sequence[Row], *, license: str = "apache-2.0", name: str | None = None) -> None:
    """Writes the card of a saved model into its folder, with those of the rows. Raises ValueError where the folder holds no model."""
    write_whole({folder / CARD: card(folder, rows, license=license, name=name).encode()})


def card(folder: Path, rows: Sequence[Row], *, license: str = "apache-2.0", name: str | None = None) -> str:
    """The card of a saved model: its task, recipe, figures, and how to use it. `rows` are of `evaluate`, all of this model; `name` is where it
    will be got from, by default the folder, or the name of one that comes along.
    """
    if re.fullmatch(r"[A-Za-z0-9.+-]+", license) is None:
        raise ValueError(f"license={license}: must be a licence's short name, like apache-2.0 or mit")
    about = read_description(folder, "config.json", "model")
    net, task = from_pretrained(folder), about.get("task", {}).get("name")
    tags = ["latent-tokens", "diffusion", *(tag for tag in (about.get("name"), task) if tag)]
    count = sum(weight.numel() for weight in net.parameters())
    size = f"{net.size.layers} layers of width {net.size.width}, {net.size.heads} heads, {count / 1e6:.1f} M parameters"
    learned = f"the task `{task}`" if task else "a task of its own"
    name = name or (folder.name if folder.name in shipped_names() else f"path/to/{folder.name}")
    return f"""---
library_name: latent-tokens
pipeline_tag: {"text-generation" if net.method.readout == "shifted" else "fill-mask"}
license: {license}
tags: [{", ".join(tags)}]
---

# {folder.name}

A model of {learned} by the method `{name_of(net.method)}`: {size}; sequences of {net.max_length} over {net.vocab_size} tokens.

```python
from latent_tokens import from_pretrained

net = from_pretrained("{name}")
```
{IN_TRANSFORMERS.format(name=name) if "auto_map" in about else ""}
## Recipe

{recipe(about) if "training" in about else "It is not known how it was trained."}
## Figures

{figures(rows)}
"""


def recipe(about: dict[str, Any]) -> str:
    """How a model was trained: the command, and every setting that says something of it."""
    trained, made = {**EARLIER, **about["training"]}, about.get("made_with", {})
    data, digest = trained.get("data"), about.get("data_sha256", {}).get("train", "")
    settings = [field for field in fields(TrainConfig) if field.name not in (*SAID, *FREE, *(OF_MADE_DATA if data else ()))]
    said = {field.name: trained[field.name] for field in settings if trained.get(field.name) is not None}
    options = [f"--{field.name.replace('_', '-')} {said[field.name]}" for field in settings if said.get(field.name, field.default) != field.default]
    options += [f"--data {Path(data).name}"] if data else []
    command = " ".join(["latent-tokens train", about.get("task", {}).get("name", "TASK"), str(about.get("name")), *options])
    return f"""`{command}`; latent-tokens {made.get("latent_tokens", "")} at {made.get("commit") or "no commit"}, torch {made.get("torch", "")}.
Training examples: SHA-256 `{digest[:16]}`.

{as_markdown([("setting", "value"), *((name, f"{value}") for name, value in said.items())])}"""


def figures(rows: Sequence[Row]) -> str:
    """What was measured, a line a row."""
    if not rows:
        return "None were measured."
    text = rows[0]["metric"] == "perplexity"
    unit, column = ("", "perplexity") if text else (" %", "right")
    headings = ("problems", "order", "k", "latents n", column, "95 % interval", "samples", "tokens")
    lines = [
        (
            str(row.get("problems") or row["task"]), str(ORDER_NAMES.get(row["order"], row["order"])), str(row["candidates"]), str(row["latents"]),
            f"{row[row['metric']]:.1f}{unit}", "" if row["ci95"] is None else f"{row['ci95'][0]:.1f} - {row['ci95'][1]:.1f}",
            f"{row['num_samples']:,}", f"{row['relative_cost']:.2f}x",
        )
        for row in rows
    ]  # fmt: skip
    judged = f"The perplexity is under {rows[0].get('judge')}" if text else f"Right is `{rows[0]['metric']}`"
    return f"{as_markdown([headings, *lines])}\n{judged}; tokens are those processed, relative to showing all that is masked."
