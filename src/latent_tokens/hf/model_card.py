"""Model cards: the description, the training and the results of a model, in Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from latent_tokens.checkpoints.files import Entries
from latent_tokens.core.method import name_of
from latent_tokens.evaluation.report import as_markdown, decoding_in_words
from latent_tokens.evaluation.rows import Row, bounds_of, labeled, metric_of
from latent_tokens.hf.directory import from_pretrained
from latent_tokens.hf.language_models import HuggingFaceDenoiser
from latent_tokens.hf.reading import is_hf_run
from latent_tokens.network.transformer import Transformer
from latent_tokens.sizes import in_millions
from latent_tokens.storage import read_description, write_atomic

CARD = "README.md"
CARD_TEMPLATE = """---
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
CARD_HEADINGS = (
    "problems", "order", "k", "latents n", "metric", "value", "95% interval", "samples", "tokens",
)  # fmt: skip
TRAINING = ("training", "trained_steps", "data_sha256", "made_with")  # entries of config.json
COUNTS = ("num_train", "num_validation")  # settings of examples that are generated


def write_card(
    folder: Path, rows: Sequence[Row], *, license: str | None = None, name: str | None = None
) -> None:
    """Write the card of a saved model. Takes its arguments, and raises, as `card`."""
    write_atomic({folder / CARD: card(folder, rows, license=license, name=name).encode()})


def card(
    folder: Path, rows: Sequence[Row], *, license: str | None = None, name: str | None = None
) -> str:
    """Return the card of a saved model: its task, its training, its results, and how to use it.

    Args:
        folder: the model directory.
        rows: rows of `evaluate` for this model.
        license: short name of its license. None names no license.
        name: the argument of `from_pretrained`. By default a path.

    Raises:
        ValueError: the directory has no model.
    """
    entries = read_description(folder, "config.json", "model")
    net = from_pretrained(folder)
    title = folder.absolute().name
    name = name or f"path/to/{title}"
    quoted = json.dumps(name, ensure_ascii=False)
    is_for_transformers = "auto_map" in entries or is_hf_run(entries)
    trained = {name: entry for name, entry in entries.items() if name in TRAINING}
    settings = trained.get("training")
    if isinstance(settings, dict) and settings.get("data") is not None:
        # A data set has its own number of examples.
        trained["training"] = {
            name: value for name, value in settings.items() if name not in COUNTS
        }
    training = f"```json\n{json.dumps(trained, indent=1)}\n```"
    return CARD_TEMPLATE.format(
        metadata=metadata(net, entries, license),
        title=title,
        task=f"`{entries.get('task', {}).get('name', 'unknown')}`",
        method=name_of(net.method),
        size=f"{size_of(net)}, sequences of {net.max_length} over {net.vocab_size} tokens",
        name=quoted,
        in_transformers=in_transformers(net, quoted) if is_for_transformers else "",
        training=training if "training" in entries else "It is not known how it was trained.",
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
    return IN_TRANSFORMERS.format(
        condition=condition, auto_class=auto_class, name=name, options=options
    )


def size_of(net: Transformer | HuggingFaceDenoiser) -> str:
    """Return layers, width, heads and parameters in words."""
    layers, width, heads, _ = net.dimensions
    count = sum(weight.numel() for weight in net.parameters())
    return f"{layers} layers of width {width}, {heads} heads, {in_millions(count)} parameters"


def metadata(net: Transformer | HuggingFaceDenoiser, entries: Entries, license: str | None) -> str:
    """Return the YAML that model hubs read."""
    from huggingface_hub import ModelCardData

    names = (entries.get("name"), entries.get("task", {}).get("name"))
    data = ModelCardData(
        library_name="latent-tokens",
        license=license,
        pipeline_tag="text-generation" if net.method.readout == "shifted" else "fill-mask",
        tags=["latent-tokens", "diffusion", *(name for name in names if name)],
    )
    return str(data.to_yaml())


def figures(rows: Sequence[Row]) -> str:
    """Return the results, one line per row."""
    if not rows:
        return "None were measured."
    lines = []
    for row in rows:
        line = (
            row.get("problems") or row["task"],
            decoding_in_words(row),
            str(row["candidates"]),
            labeled(row["latents"], row.get("off_distribution", False)),
            row["metric"],
            f"{metric_of(row):.1f}{'' if 'judge' in row else '%'}",
            bounds_of(row["ci95"]),
            f"{row['num_samples']:,}",
            f"{row['relative_cost']:.2f}x",
        )
        lines.append(line)
    judge = rows[0].get("judge")
    evaluator = "" if judge is None else f"The evaluator of text is {judge}. "
    return f"{as_markdown([CARD_HEADINGS, *lines])}\n{evaluator}{NOTE}"
