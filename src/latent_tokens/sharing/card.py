"""Model cards: the description, the recipe and the results of a model, in Markdown."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import cast

from huggingface_hub import EvalResult, ModelCardData

from latent_tokens.checkpoints.directory import from_pretrained
from latent_tokens.checkpoints.files import Origin, check_about, shipped_names
from latent_tokens.checkpoints.hugging_face import is_adapted
from latent_tokens.checks import one_line
from latent_tokens.configs import DEFAULT_NUM_TRAIN, DEFAULT_SHAPE, MAY_CHANGE_ON_RESUME, TrainConfig
from latent_tokens.core.method import name_of
from latent_tokens.evaluation.report import as_markdown, order_in_words
from latent_tokens.evaluation.rows import Row, labeled, metric_of
from latent_tokens.network.hf import HuggingFaceDenoiser
from latent_tokens.network.transformer import Transformer
from latent_tokens.storage import Json, read_description, write_atomic
from latent_tokens.training.resume import LEGACY_DEFAULTS

IN_TRANSFORMERS = """
In `transformers`, where latent-tokens is installed:

```python
from transformers import AutoModelForMaskedLM

model = AutoModelForMaskedLM.from_pretrained({name}, trust_remote_code=True)
```
"""

WITHOUT_THIS_PACKAGE = """
In `transformers`, as a model without latent tokens:

```python
from transformers import AutoModelFor{kind}

model = AutoModelFor{kind}.from_pretrained({name})
```
"""

CARD = "README.md"
LONGEST_VALUE = 200  # characters of a value
SEPARATE = ("task", "method", "data")  # settings that are not in the table of settings
GENERATED_DATA_ONLY = ("num_train", "num_validation")  # settings without a meaning for other data


def write_card(
    folder: Path, rows: Sequence[Row], *, license: str | None = None, name: str | None = None
) -> None:
    """Write the card of a saved model. Raise ValueError if the directory has no model."""
    write_atomic({folder / CARD: card(folder, rows, license=license, name=name).encode()})


def card(folder: Path, rows: Sequence[Row], *, license: str | None = None, name: str | None = None) -> str:
    """Return the card of a saved model: its task, recipe, results, and how to use it.

    Args:
        folder: the model directory.
        rows: rows of `evaluate` for this model.
        license: short name of its license. None names no license.
        name: the argument of `from_pretrained`. By default a path, or the name of a bundled model.

    Raises:
        ValueError: the directory has no model.
    """
    check_license(license)
    entries = read_description(folder, "config.json", "model")
    check_about(entries, folder / "config.json")
    origin = cast(Origin, entries)
    net = from_pretrained(folder)
    task = origin.get("task", {}).get("name")
    sequences = f"sequences of {net.max_length} over {net.vocab_size} tokens"
    learned = f"the task {code(task)}" if task else "a task of its own"
    name = name or (folder.name if folder.name in shipped_names() else f"path/to/{folder.name}")
    quoted = json.dumps(one_line(name), ensure_ascii=False)
    return f"""---
{metadata(net, origin, rows, license)}
---

# {escaped(folder.name)}

A model of {learned} by the method `{name_of(net.method)}`: {size_of(net)}; {sequences}.

```python
from latent_tokens import from_pretrained

net = from_pretrained({quoted})
```
{in_transformers(net, quoted) if "auto_map" in origin or is_adapted(entries) else ""}
## Recipe

{recipe(origin) if "training" in origin else "It is not known how it was trained."}
## Results

{figures(rows)}
"""


def check_license(license: str | None) -> None:
    """Raise ValueError unless a license is None or a short name."""
    if license is not None and re.fullmatch(r"[A-Za-z0-9.+-]+", license) is None:
        raise ValueError(f"license={license}: must be the short name of a license, like apache-2.0 or mit")


def size_of(net: Transformer | HuggingFaceDenoiser) -> str:
    """Return layers, width, heads and parameters in words."""
    count = sum(weight.numel() for weight in net.parameters())
    if isinstance(net, Transformer):
        numbers = (net.size.layers, net.size.width, net.size.heads)
    else:
        config = net.model.config
        numbers = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads)
    layers, width, heads = numbers
    return f"{layers} layers of width {width}, {heads} heads, {count / 1e6:.1f} M parameters"


def in_transformers(net: Transformer | HuggingFaceDenoiser, name: str) -> str:
    """Return how transformers opens the model."""
    if isinstance(net, Transformer):
        return IN_TRANSFORMERS.format(name=name)
    kind = "MaskedLM" if type(net.model).__name__.endswith("ForMaskedLM") else "CausalLM"
    return WITHOUT_THIS_PACKAGE.format(name=name, kind=kind)


def metadata(
    net: Transformer | HuggingFaceDenoiser, origin: Origin, rows: Sequence[Row], license: str | None
) -> str:
    """Return the YAML that model hubs read, with the result of each row."""
    pipeline = "text-generation" if net.method.readout == "shifted" else "fill-mask"
    task = origin.get("task", {}).get("name")
    tags = ["latent-tokens", "diffusion", *(one_line(str(tag)) for tag in (origin.get("name"), task) if tag)]
    results = []
    for row in rows:
        problems = one_line(str(row.get("problems") or row["task"]))
        latents = labeled(row["latents"], row.get("off_distribution", False))
        setting = f"{order_in_words(row)}, k={row['candidates']}, n={latents}"
        metric = one_line(str(row["metric"]))
        value = metric_of(row)
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
    data = ModelCardData(
        library_name="latent-tokens",
        license=license,
        pipeline_tag=pipeline,
        tags=tags,
        model_name=one_line(str(task or "model")) if results else None,
        eval_results=results or None,
    )
    return str(data.to_yaml())


def escaped(value: Json) -> str:
    """Return a value as one line of plain text in Markdown.

    Markup, HTML and separators of tables are escaped.
    """
    text = html.escape(one_line(str(value), LONGEST_VALUE).replace("`", "'"), quote=False)
    return re.sub(r"([\\*_{}\[\]#|~])", r"\\\1", text)


def code(value: Json) -> str:
    """Return a value in code font, on one line."""
    return f"`{one_line(str(value), LONGEST_VALUE).replace('`', chr(39)).replace('|', '/')}`"


def recipe(origin: Origin) -> str:
    """Return how a model was trained: the command, and every setting that affects the model."""
    trained = {**LEGACY_DEFAULTS, **origin["training"]}
    versions_used = origin.get("made_with", {})
    data = trained.get("data")
    digest = origin.get("data_sha256", {}).get("train", "")
    settings = [
        field
        for field in fields(TrainConfig)
        if field.name not in (*SEPARATE, *MAY_CHANGE_ON_RESUME, *(GENERATED_DATA_ONLY if data else ()))
    ]
    values = {field.name: trained[field.name] for field in settings if trained.get(field.name) is not None}
    late_defaults = {**DEFAULT_SHAPE, "num_train": DEFAULT_NUM_TRAIN}
    usual = {field.name: field.default for field in settings} | late_defaults
    changed = [name for name, value in values.items() if value != usual[name]]
    flags = {name: f"--{name.replace('_', '-')}" for name in changed} | {"start": "--from"}
    options = [part for name in changed for part in (flags[name], str(values[name])) if part != "True"]
    options += ["--data", Path(str(data)).name] if data else []
    task = origin.get("task", {}).get("name", "TASK")
    command = shlex.join(["latent-tokens", "train", str(task), str(origin.get("name")), *options])
    versions = {key: escaped(versions_used.get(key) or "") for key in ("latent_tokens", "commit", "torch")}
    software = f"latent-tokens {versions['latent_tokens']} at {versions['commit'] or 'no commit'}"
    return f"""{code(command)}; {software}, torch {versions["torch"]}.
Training examples: SHA-256 {code(digest[:16])}.

{as_markdown([("setting", "value"), *((name, escaped(value)) for name, value in values.items())])}"""


def figures(rows: Sequence[Row]) -> str:
    """Return the results, one line per row."""
    if not rows:
        return "None were measured."
    text = rows[0]["metric"] == "perplexity"
    unit, column = ("", "perplexity") if text else (" %", "right")
    headings = ("problems", "order", "k", "latents n", column, "95% interval", "samples", "tokens")
    lines = [figures_line(row, unit) for row in rows]
    judged = (
        f"The perplexity is under {escaped(rows[0].get('judge'))}"
        if text
        else f"Right is {code(rows[0]['metric'])}"
    )
    note = (
        "Tokens are the tokens processed, relative to all masked tokens in every step. "
        "With k > 1, n = 0 leaves k - 1 other candidates in the input."
    )
    return f"{as_markdown([headings, *lines])}\n{judged}. {note}"


def figures_line(row: Row, unit: str) -> tuple[str, ...]:
    """Return the cells of a row in the table of results."""
    interval = "" if row["ci95"] is None else f"{row['ci95'][0]:.1f} - {row['ci95'][1]:.1f}"
    return (
        escaped(row.get("problems") or row["task"]),
        escaped(order_in_words(row)),
        escaped(row["candidates"]),
        escaped(labeled(row["latents"], row.get("off_distribution", False))),
        f"{metric_of(row):.1f}{unit}",
        interval,
        f"{row['num_samples']:,}",
        f"{row['relative_cost']:.2f}x",
    )
