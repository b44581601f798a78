"""Model cards: the description, the training command and the results of a model, in Markdown."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import cast

from latent_tokens.checkpoints.directory import from_pretrained
from latent_tokens.checkpoints.files import Origin, check_about, shipped_names
from latent_tokens.checks import one_line
from latent_tokens.configs import DEFAULT_NUM_TRAIN, DEFAULT_SHAPE, MAY_CHANGE_ON_RESUME, TrainConfig
from latent_tokens.core.method import name_of
from latent_tokens.evaluation.report import as_markdown, order_in_words
from latent_tokens.evaluation.rows import Row, labeled, metric_of
from latent_tokens.network.hf import HuggingFaceDenoiser
from latent_tokens.network.transformer import Transformer
from latent_tokens.storage import Json, read_description, write_atomic
from latent_tokens.training.resume import LEGACY_DEFAULTS

CARD = "README.md"
TEMPLATE = """---
{metadata}
---

# {title}

A model of the task {task} by the method `{method}`: {size}.

```python
from latent_tokens import from_pretrained

net = from_pretrained({name})
```
{in_transformers}
## Training

{training}

## Results

{results}
"""
IN_TRANSFORMERS = """
In `transformers`, {condition}:

```python
from transformers import {auto_class}

model = {auto_class}.from_pretrained({name}{options})
```
"""
NOTE = """Tokens are the tokens processed, relative to all masked tokens in every step. \
With k > 1, n = 0 leaves k - 1 other candidates in the input."""
HEADINGS = ("problems", "order", "k", "latents n", "metric", "value", "95% interval", "samples", "tokens")
SEPARATE = ("task", "method", *MAY_CHANGE_ON_RESUME)  # settings that the options of the command leave out
VERSIONS = ("latent_tokens", "commit", "torch")
LONGEST_VALUE = 200  # characters


def write_card(
    folder: Path, rows: Sequence[Row], *, license: str | None = None, name: str | None = None
) -> None:
    """Write the card of a saved model. Takes its arguments, and raises, as `card`."""
    write_atomic({folder / CARD: card(folder, rows, license=license, name=name).encode()})


def card(folder: Path, rows: Sequence[Row], *, license: str | None = None, name: str | None = None) -> str:
    """Return the card of a saved model: its task, its training, its results, and how to use it.

    Args:
        folder: the model directory.
        rows: rows of `evaluate` for this model.
        license: short name of its license. None names no license.
        name: the argument of `from_pretrained`. By default a path, or the name of a bundled model.

    Raises:
        ValueError: the directory has no model.
    """
    entries = read_description(folder, "config.json", "model")
    check_about(entries, folder / "config.json")
    origin = cast(Origin, entries)
    net = from_pretrained(folder)
    name = name or (folder.name if folder.name in shipped_names() else f"path/to/{folder.name}")
    quoted = json.dumps(one_line(name), ensure_ascii=False)
    is_for_transformers = "auto_map" in origin or isinstance(net, HuggingFaceDenoiser)
    return TEMPLATE.format(
        metadata=metadata(net, origin, rows, license),
        title=plain(folder.name),
        task=f"`{plain(origin.get('task', {}).get('name', 'unknown'))}`",
        method=name_of(net.method),
        size=f"{size_of(net)}, sequences of {net.max_length} over {net.vocab_size} tokens",
        name=quoted,
        in_transformers=in_transformers(net, quoted) if is_for_transformers else "",
        training=training(origin) if "training" in origin else "It is not known how it was trained.",
        results=figures(rows),
    )


def in_transformers(net: Transformer | HuggingFaceDenoiser, name: str) -> str:
    """Return how transformers opens the model."""
    auto_class = "AutoModelForMaskedLM"
    if isinstance(net, Transformer):
        condition, options = "where latent-tokens is installed", ", trust_remote_code=True"
    else:
        condition, options = "as a model without latent tokens", ""
        if not type(net.model).__name__.endswith("ForMaskedLM"):
            auto_class = "AutoModelForCausalLM"
    return IN_TRANSFORMERS.format(condition=condition, auto_class=auto_class, name=name, options=options)


def plain(value: Json) -> str:
    """Return a value as one line, without the characters that have a meaning in Markdown and HTML."""
    return re.sub(r"[`|<>*\[\]]", " ", one_line(str(value), LONGEST_VALUE))


def size_of(net: Transformer | HuggingFaceDenoiser) -> str:
    """Return layers, width, heads and parameters in words."""
    count = sum(weight.numel() for weight in net.parameters())
    if isinstance(net, Transformer):
        layers, width, heads = net.size.layers, net.size.width, net.size.heads
    else:
        config = net.model.config
        layers, width, heads = config.num_hidden_layers, config.hidden_size, config.num_attention_heads
    return f"{layers} layers of width {width}, {heads} heads, {count / 1e6:.1f} M parameters"


def metadata(
    net: Transformer | HuggingFaceDenoiser, origin: Origin, rows: Sequence[Row], license: str | None
) -> str:
    """Return the YAML that model hubs read, with the result of each row."""
    from huggingface_hub import EvalResult, ModelCardData

    pipeline = "text-generation" if net.method.readout == "shifted" else "fill-mask"
    task = origin.get("task", {}).get("name")
    results = []
    for row in rows:
        metric = plain(row["metric"])
        latents = labeled(row["latents"], row.get("off_distribution", False))
        setting = plain(f"{order_in_words(row)}, k={row['candidates']}, n={latents}")
        problems = plain(row.get("problems") or row["task"])
        value = metric_of(row)
        results.append(
            EvalResult(
                pipeline, plain(row["task"]), problems, metric, value, metric_name=f"{metric}, {setting}"
            )
        )
    data = ModelCardData(
        library_name="latent-tokens",
        license=license,
        pipeline_tag=pipeline,
        tags=["latent-tokens", "diffusion", *(plain(tag) for tag in (origin.get("name"), task) if tag)],
        model_name=plain(task or "model") if results else None,
        eval_results=results or None,
    )
    return str(data.to_yaml())


def training(origin: Origin) -> str:
    """Return how a model was trained: the command, and the versions. config.json has every setting."""
    trained = {**LEGACY_DEFAULTS, **origin["training"]}
    defaults = {field.name: field.default for field in fields(TrainConfig)}
    defaults |= {**DEFAULT_SHAPE, "num_train": DEFAULT_NUM_TRAIN}
    if trained.get("data"):
        trained |= {"data": Path(str(trained["data"])).name, "num_train": None, "num_validation": None}
    options = []
    for name, default in defaults.items():
        value = trained.get(name)
        if name in SEPARATE or value in (None, default):
            continue
        options.append("--from" if name == "start" else f"--{name.replace('_', '-')}")
        if value is not True:
            options.append(str(value))
    task = origin.get("task", {}).get("name", "TASK")
    command = shlex.join(["latent-tokens", "train", str(task), str(origin.get("name")), *options])
    made_with = origin.get("made_with", {})
    versions = ", ".join(f"{key} {plain(made_with.get(key) or 'unknown')}" for key in VERSIONS)
    digest = plain(origin.get("data_sha256", {}).get("train", ""))[:16]
    return f"`{plain(command)}`, with {versions}. Training examples: SHA-256 `{digest}`."


def figures(rows: Sequence[Row]) -> str:
    """Return the results, one line per row."""
    if not rows:
        return "None were measured."
    lines = [
        (
            plain(row.get("problems") or row["task"]),
            plain(order_in_words(row)),
            plain(row["candidates"]),
            plain(labeled(row["latents"], row.get("off_distribution", False))),
            plain(row["metric"]),
            f"{metric_of(row):.1f}" if "judge" in row else f"{metric_of(row):.1f}%",
            "" if row["ci95"] is None else f"{row['ci95'][0]:.1f} - {row['ci95'][1]:.1f}",
            f"{row['num_samples']:,}",
            f"{row['relative_cost']:.2f}x",
        )
        for row in rows
    ]
    evaluator = f"The evaluator of text is {plain(rows[0]['judge'])}. " if "judge" in rows[0] else ""
    return f"{as_markdown([HEADINGS, *lines])}\n{evaluator}{NOTE}"
