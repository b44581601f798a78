"""Export of a network of `transformers`: a model directory of its own class, with a card."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from huggingface_hub import ModelCardData

from latent_tokens.checkpoints.native_network import carried_over, save_native
from latent_tokens.checks import one_line
from latent_tokens.core.methods import name_of
from latent_tokens.network.hf import HuggingFaceDenoiser
from latent_tokens.sharing.card import CARD, check_license, escaped
from latent_tokens.storage import read_description


def export_native(net: HuggingFaceDenoiser, folder: Path, *, dtype: torch.dtype, license: str) -> None:
    """Write the model directory of a network that `from_pretrained` opened.

    Args:
        net: the network, which is changed to `dtype`.
        folder: the directory. It must be missing or empty.
        dtype: the precision of the weights.
        license: short name of its license.

    Raises:
        ValueError: the network was not opened from a directory, or the license is not a short name.
    """
    check_license(license)
    if net.folder is None:
        raise ValueError("net.folder is None: the network is not of a model directory. Open it from one.")
    config = read_description(net.folder, "config.json", "model")
    about, beside = carried_over(net.folder, config)
    beside[CARD] = card(net, folder.name, license).encode()
    save_native(net, folder, about=about, beside=beside, dtype=dtype)


def card(net: HuggingFaceDenoiser, name: str, license: str) -> str:
    """Return the card of a network of transformers: its class, its method, and how to open it."""
    pipeline = "text-generation" if net.method.is_left_to_right else "fill-mask"
    tags = ["latent-tokens", "diffusion", name_of(net.method)]
    data = ModelCardData(library_name="latent-tokens", license=license, pipeline_tag=pipeline, tags=tags)
    quoted = json.dumps(one_line(f"path/to/{name}"), ensure_ascii=False)
    return f"""---
{data.to_yaml()}
---

# {escaped(name)}

A `{type(net.model).__name__}` of transformers with the method `{name_of(net.method)}`.
MASK is token {net.mask_id}.

```python
from latent_tokens import from_pretrained

net = from_pretrained({quoted})
```
"""
