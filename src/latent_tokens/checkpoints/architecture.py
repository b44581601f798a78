"""The network of a published checkpoint: its settings, and the size that its weights have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from latent_tokens.checkpoints.folding import BUFFER, PREFIX, shapes
from latent_tokens.checkpoints.torchfile import Inert, Saved
from latent_tokens.sizes import Size
from latent_tokens.storage import Json

MOST_HEADS, WIDEST = 1 << 10, 1 << 16
DEEPEST, MOST_SETTINGS = 32, 100_000


@dataclass(frozen=True)
class Stored:
    """A tensor that is not read yet: its type, None if it is not one of FLOATING, and its shape."""

    dtype: torch.dtype | None
    shape: tuple[int, ...]


def plain(value: Saved, source: Path) -> Json:
    """Return settings as dicts, lists and scalars. Raise ValueError if there are too many."""
    num_visited = 0

    def walk(value: Saved, depth: int) -> Json:
        nonlocal num_visited
        num_visited += 1
        if depth > DEEPEST or num_visited > MOST_SETTINGS:
            raise ValueError(
                f"{source}: its settings are nested more than {DEEPEST} deep, "
                f"or more than {MOST_SETTINGS:,}. "
                "Use a published Eso-LM or MDLM checkpoint."
            )
        state = value.state if isinstance(value, Inert) else None
        if isinstance(state, dict):
            return walk(state.get("_content", state.get("_val")), depth + 1)
        if isinstance(value, dict):
            return {key: walk(inner, depth + 1) for key, inner in value.items() if isinstance(key, str)}
        if isinstance(value, (list, tuple)):
            return [walk(inner, depth + 1) for inner in value]
        return value if isinstance(value, (bool, int, float, str)) else None

    return walk(value, 0)


def table(settings: Json) -> dict[str, Json]:
    """Return the settings of the model and of the algorithm in one dict."""
    top: dict[str, Json] = settings if isinstance(settings, dict) else {}
    inner = top.get("config")
    config: dict[str, Json] = inner if isinstance(inner, dict) else top
    parts = [config, *(part for part in (config.get("model"), config.get("algo")) if isinstance(part, dict))]
    return {name: value for part in parts for name, value in part.items() if not isinstance(value, dict)}


def layout_of(source: Path, weights: Mapping[str, Stored], settings: Mapping[str, Json]) -> tuple[Size, int]:
    """Return the size of the network that has these weights, and the rows of its embedding.

    Raise ValueError if a weight is missing, of another shape, or one too many.
    """
    if settings.get("time_conditioning") not in (None, False):
        raise ValueError(
            f"{source}: time_conditioning={settings['time_conditioning']}: "
            "layers that depend on the noise level do not fold into a plain transformer"
        )
    if settings.get("causal_attention") not in (None, False) or "sigma_map.mlp.0.weight" not in weights:
        raise ValueError(
            f"{source}: sigma_map is missing among its weights, "
            "so it is not an Eso-LM or MDLM diffusion model. Use one of these."
        )
    (rows, width), (cond, waves) = (
        matrix(source, weights, name) for name in ("vocab_embed.embedding", "sigma_map.mlp.0.weight")
    )
    layers = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    num_blocks = settings.get("n_blocks")
    if layers < 1 or (isinstance(num_blocks, int) and layers != num_blocks):
        raise ValueError(
            f"{source}: has weights of {layers} blocks, and n_blocks={num_blocks} in its settings"
        )
    expected = shapes(rows, width, layers, cond, waves)
    for what, names in (
        ("is missing", expected.keys() - weights.keys()),
        ("is not a weight of the network of Eso-LM or MDLM", weights.keys() - expected.keys() - {BUFFER}),
    ):
        if names:
            others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise ValueError(f"{source}: {PREFIX}{min(names)[:80]} {what}{others}")
    for name, shape in expected.items():
        if weights[name].shape != shape or weights[name].dtype is None:
            kind = "floating-point numbers" if weights[name].dtype is None else "that shape"
            raise ValueError(
                f"{source}: {PREFIX}{name} is {weights[name].shape}: must be {shape}, and of {kind}"
            )
    heads = setting(source, settings, "n_heads", MOST_HEADS)
    if width % (2 * heads):
        raise ValueError(
            f"{source}: n_heads={heads} in its settings: "
            f"does not divide a width of {width} into heads of a whole, even number of channels"
        )
    if settings.get("mask_index") not in (None, rows - 1):
        raise ValueError(
            f"{source}: mask_index={settings['mask_index']}: "
            f"must be the last of the {rows} rows of the embedding"
        )
    return Size(width, heads, layers), rows


def matrix(source: Path, weights: Mapping[str, Stored], name: str) -> tuple[int, int]:
    """Return the shape of a weight. Raise ValueError if it is not a matrix, or too large or small."""
    shape = weights[name].shape if name in weights else None
    if shape is None or len(shape) != 2 or not all(2 <= count <= WIDEST for count in shape):
        reason = f"is {shape}: must have two dimensions of 2 to {WIDEST:,}"
        if shape is None:
            reason = "is missing"
        raise ValueError(f"{source}: {PREFIX}{name} {reason}")
    return shape[0], shape[1]


def setting(source: Path, settings: Mapping[str, Json], names: str | tuple[str, ...], most: int) -> int:
    """Return the first setting that is set. Raise ValueError if it is not a whole number from 1 to `most`."""
    names = (names,) if isinstance(names, str) else names
    value = next((settings[name] for name in names if settings.get(name) is not None), None)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(
            f"{source}: {' or '.join(names)}={str(value)[:40]} in its settings: "
            f"must be a whole number from 1 to {most:,}"
        )
    return value
