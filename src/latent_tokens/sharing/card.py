"""Model cards: what a model is, how it was trained and what was measured of it, in Markdown as model hubs show it."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from latent_tokens.checkpoints.pretrained import check_about, from_pretrained, shipped_names
from latent_tokens.checks import one_line
from latent_tokens.configs import MAY_CHANGE_ON_RESUME, TrainConfig
from latent_tokens.core.methods import name_of
from latent_tokens.evaluation.report import ORDER_NAMES, as_markdown
from latent_tokens.network.transformer import Transformer
from latent_tokens.storage import read_description, write_atomic
from latent_tokens.training.resume import LEGACY_DEFAULTS

Row = dict[str, Any]

IN_TRANSFORMERS = """
In `transformers`, where latent-tokens is installed:

```python
from transformers import AutoModelForMaskedLM

model = AutoModelForMaskedLM.from_pretrained({name}, trust_remote_code=True)
```
"""

CARD = "README.md"
LONGEST_VALUE = 200  # characters of a value
SAID = (
    "task",
    "method",
    "data",
)  # said apart from the other settings, of which those that are MAY_CHANGE_ON_RESUME say nothing of the model
OF_MADE_DATA = ("num_train", "num_validation")  # said of no data set that was brought


def write_card(
    folder: Path, rows: Sequence[Row], *, license: str = "apache-2.0", name: str | None = None
) -> None:
    """Writes the card of a saved model into its folder, with those of the rows. Raises ValueError where the folder holds no model."""
    write_atomic({folder / CARD: card(folder, rows, license=license, name=name).encode()})


def card(folder: Path, rows: Sequence[Row], *, license: str = "apache-2.0", name: str | None = None) -> str:
    """The card of a saved model: its task, recipe, figures, and how to use it. `rows` are of `evaluate`, all of this model; `name` is where it
    will be got from, by default the folder, or the name of one that comes along.
    """
    if re.fullmatch(r"[A-Za-z0-9.+-]+", license) is None:
        raise ValueError(f"license={license}: must be a licence's short name, like apache-2.0 or mit")
    about = read_description(folder, "config.json", "model")
    check_about(about, folder / "config.json")
    net = from_pretrained(folder)
    task = about.get("task", {}).get("name")
    count = sum(weight.numel() for weight in net.parameters())
    size = f"{net.size.layers} layers of width {net.size.width}, {net.size.heads} heads, {count / 1e6:.1f} M parameters"
    learned = f"the task {code(task)}" if task else "a task of its own"
    name = name or (folder.name if folder.name in shipped_names() else f"path/to/{folder.name}")
    quoted = json.dumps(one_line(name), ensure_ascii=False)
    return f"""---
{metadata(net, about, rows, license)}
---

# {escaped(folder.name)}

A model of {learned} by the method `{name_of(net.method)}`: {size}; sequences of {net.max_length} over {net.vocab_size} tokens.

```python
from latent_tokens import from_pretrained

net = from_pretrained({quoted})
```
{IN_TRANSFORMERS.format(name=quoted) if "auto_map" in about else ""}
## Recipe

{recipe(about) if "training" in about else "It is not known how it was trained."}
## Figures

{figures(rows)}
"""


def metadata(net: Transformer, about: dict[str, Any], rows: Sequence[Row], license: str) -> str:
    """The YAML that model hubs read, with one result of each row."""
    pipeline = "text-generation" if net.method.readout == "shifted" else "fill-mask"
    task = about.get("task", {}).get("name")
    tags = ["latent-tokens", "diffusion", *(one_line(tag) for tag in (about.get("name"), task) if tag)]
    results = []
    for row in rows:
        problems = one_line(str(row.get("problems") or row["task"]))
        setting = f"{ORDER_NAMES.get(str(row['order']), str(row['order']))}, k={row['candidates']}, n={row['latents']}"
        metric = one_line(str(row["metric"]))
        value = row[row["metric"]]
        results.append(
            EvalResult(
                pipeline,
                one_line(str(row["task"])),
                problems,
                metric,
                value,
                metric_name=one_line(f"{metric}, {setting}"),
            )
        )
    known: dict[str, Any] = {
        "library_name": "latent-tokens",
        "license": license,
        "pipeline_tag": pipeline,
        "tags": tags,
    }
    if results:
        known |= {"model_name": one_line(task or "model"), "eval_results": results}
    return str(ModelCardData(**known).to_yaml())


def escaped(value: Any) -> str:
    """A value as plain text in Markdown, on one line: what could be markup, HTML or a cell of a table is escaped."""
    text = html.escape(one_line(str(value), LONGEST_VALUE).replace("`", "'"), quote=False)
    return re.sub(r"([\\*_{}\[\]#|~])", r"\\\1", text)


def code(value: Any) -> str:
    """A value in code font, on one line."""
    return f"`{one_line(str(value), LONGEST_VALUE).replace('`', chr(39)).replace('|', '/')}`"


def recipe(about: dict[str, Any]) -> str:
    """How a model was trained: the command, and every setting that says something of it."""
    trained, made = {**LEGACY_DEFAULTS, **about["training"]}, about.get("made_with", {})
    data, digest = trained.get("data"), about.get("data_sha256", {}).get("train", "")
    settings = [
        field
        for field in fields(TrainConfig)
        if field.name not in (*SAID, *MAY_CHANGE_ON_RESUME, *(OF_MADE_DATA if data else ()))
    ]
    said = {field.name: trained[field.name] for field in settings if trained.get(field.name) is not None}
    changed = [field.name for field in settings if said.get(field.name, field.default) != field.default]
    options = [part for name in changed for part in (f"--{name.replace('_', '-')}", str(said[name]))]
    options += ["--data", Path(str(data)).name] if data else []
    task = about.get("task", {}).get("name", "TASK")
    command = shlex.join(["latent-tokens", "train", task, str(about.get("name")), *options])
    versions = {key: escaped(made.get(key) or "") for key in ("latent_tokens", "commit", "torch")}
    return f"""{code(command)}; latent-tokens {versions["latent_tokens"]} at {versions["commit"] or "no commit"}, torch {versions["torch"]}.
Training examples: SHA-256 {code(digest[:16])}.

{as_markdown([("setting", "value"), *((name, escaped(value)) for name, value in said.items())])}"""


def figures(rows: Sequence[Row]) -> str:
    """What was measured, a line a row."""
    if not rows:
        return "None were measured."
    text = rows[0]["metric"] == "perplexity"
    unit, column = ("", "perplexity") if text else (" %", "right")
    headings = ("problems", "order", "k", "latents n", column, "95 % interval", "samples", "tokens")
    lines = [
        (
            escaped(row.get("problems") or row["task"]), escaped(ORDER_NAMES.get(str(row["order"]), row["order"])),
            escaped(row["candidates"]), escaped(row["latents"]),
            f"{row[row['metric']]:.1f}{unit}", "" if row["ci95"] is None else f"{row['ci95'][0]:.1f} - {row['ci95'][1]:.1f}",
            f"{row['num_samples']:,}", f"{row['relative_cost']:.2f}x",
        )
        for row in rows
    ]  # fmt: skip
    judged = (
        f"The perplexity is under {escaped(rows[0].get('judge'))}"
        if text
        else f"Right is {code(rows[0]['metric'])}"
    )
    return f"{as_markdown([headings, *lines])}\n{judged}; tokens are those processed, relative to showing all that is masked."
