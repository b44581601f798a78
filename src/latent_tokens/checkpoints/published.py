"""Published Eso-LM and MDLM checkpoints: how they are read, their settings, and the fold of adaLN.

torch reads a .ckpt with `weights_only=True`: tensors, plain values, and nothing that runs. Every
other class in it, such as OmegaConf's, becomes an inert stand-in, so that its package need not be
installed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from latent_tokens.checkpoints.files import check_equal_shapes, read_json, read_tensor_file
from latent_tokens.checks import Registry, check_int, first_line
from latent_tokens.core.method import METHODS
from latent_tokens.network.block import ROTARY_BASE
from latent_tokens.network.transformer import Transformer
from latent_tokens.sizes import LONGEST, Size

BACKBONE_PREFIX = "backbone."
ROTARY_BUFFER = "rotary_emb.inv_freq"  # among the weights, but no parameter, so not in the EMA
WRAPPERS = ("_orig_mod", "module")  # what torch.compile and DistributedDataParallel put into names
# Eso-LM's diffusion_attn_mode
BY_ATTENTION = {"causal": "esolm", "mixed2": "scdm", "bidirectional": "mdm"}
METHOD_NAMES = {"esolm": "esolm", "mdlm": "mdm", "subs": "mdm"}  # what other settings call it

WeightsKind = Literal["ema", "raw"]


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint.

    Attributes:
        weights: its weights by name, without the prefix.
        settings: the settings of its model and algorithm.
        kind: whether the weights are averaged or raw.
        left_out: the names of tensors that are not part of the network.
    """

    weights: Mapping[str, Tensor]
    settings: Mapping[str, Any]
    kind: WeightsKind
    left_out: tuple[str, ...] = ()


def import_checkpoint(
    source: Path, weights: WeightsKind | None = None, method: str | None = None
) -> tuple[Transformer, Checkpoint]:
    """Return the network of a published checkpoint with its method, and what was read.

    Args:
        source: a Lightning .ckpt, or a directory with config.json and model.safetensors.
        weights: the EMA weights of a .ckpt, the default, or the raw ones.
        method: the name of its method. None: that of the file's settings.

    Raises:
        ValueError: the checkpoint is corrupt, of another network, or does not name its method.
    """
    if source.is_dir() and weights == "raw":
        fix = "Leave it out, or name the .ckpt."
        raise ValueError(f"weights=raw: {source} is a directory, which has EMA weights only. {fix}")
    is_folder = source.is_dir()
    checkpoint = read_folder(source) if is_folder else read_lightning(source, weights or "ema")
    try:
        name = method or method_name_in(checkpoint.settings)
        net = folded(checkpoint)
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{source}: {first_line(error)}") from None
    net.method = METHODS[name]
    return net.eval(), checkpoint


class Inert:
    """A stand-in for an object of another library. It keeps its state, and does nothing."""

    state: Any = None

    def __new__(cls, *_: Any, **__: Any) -> Inert:
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        self.state = state


def dict_of(*_: Any) -> dict[Any, Any]:
    """Return a dict in place of one with a default: the items that torch sets need a dict."""
    return {}


def stand_in(name: str) -> tuple[Callable[..., Any], str]:
    """Return what replaces a class in a file, and the name of that class."""
    return dict_of if name == "collections.defaultdict" else type("Inert", (Inert,), {}), name


def read_torch(file: Path) -> Any:
    """Return the content of a file of torch.save: plain values, stand-ins and mapped tensors.

    Raise ValueError if it is corrupt, or of the format before PyTorch 1.6.
    """
    try:
        stand_ins = [stand_in(name) for name in get_unsafe_globals_in_checkpoint(file)]
        with warnings.catch_warnings(), safe_globals([*stand_ins]):
            warnings.simplefilter("ignore")  # that another protocol was written with
            return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a corrupt file may raise anything
        # torch hides the cause behind advice to load without weights_only.
        cause = error.__context__ if isinstance(error.__context__, Exception) else error
        problem = f"corrupt, or not written by torch.save ({first_line(cause)})"
        raise ValueError(f"{file}: {problem}. Download it again.") from None


def read_lightning(source: Path, kind: WeightsKind) -> Checkpoint:
    """Read a Lightning checkpoint. Raise ValueError if it is corrupt, or has no such weights."""
    content = read_torch(source)
    entries = content if isinstance(content, dict) else {}
    state = entries.get("state_dict")
    if not isinstance(state, dict):
        fix = "Name a Lightning checkpoint, or its directory."
        raise ValueError(f"{source}: has no state_dict of tensors. {fix}")
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    weights, left_out = backbone_of(tensors)
    if kind == "ema":
        average = entries.get("ema")
        shadow = average.get("shadow_params") if isinstance(average, dict) else None
        names = [name for name in weights if name != ROTARY_BUFFER]
        averages = [tensor for tensor in shadow or () if isinstance(tensor, Tensor)]
        if len(averages) != len(names):
            problem = f"has {len(averages) or 'no'} EMA weights for {len(names)} weights"
            raise ValueError(f"{source}: {problem}. Use --weights raw.")
        weights |= dict(zip(names, averages, strict=True))
    return Checkpoint(weights, published_settings(entries.get("hyper_parameters")), kind, left_out)


def read_folder(source: Path) -> Checkpoint:
    """Read a directory of EMA weights, as the authors export them."""
    settings = published_settings(read_json(source / "config.json"))
    weights, left_out = backbone_of(read_tensor_file(source / "model.safetensors"))
    return Checkpoint(weights, settings, "ema", left_out)


def backbone_of(weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return (the backbone's weights by name, the names of all others). All may omit the prefix."""
    names = {
        name: ".".join(part for part in name.split(".") if part not in WRAPPERS) for name in weights
    }
    kept = [name for name, plain_name in names.items() if plain_name.startswith(BACKBONE_PREFIX)]
    kept = kept or list(names)
    backbone = {names[name].removeprefix(BACKBONE_PREFIX): weights[name] for name in kept}
    return backbone, tuple(name for name in names if name not in set(kept))


def content_of(value: Any) -> Any:
    """Return what a stand-in of OmegaConf's dict, list or scalar contains, or the value itself."""
    if isinstance(value, Inert) and isinstance(value.state, dict):
        return value.state.get("_content", value.state.get("_val"))
    return value


def entries_of(value: Any) -> dict[str, Any]:
    """Return the entries of a dict, also of OmegaConf's. Other values have none."""
    entries = content_of(value)
    if not isinstance(entries, dict):
        return {}
    return {name: content_of(entry) for name, entry in entries.items() if isinstance(name, str)}


def published_settings(settings: Any) -> dict[str, Any]:
    """Return the settings of the model and of the algorithm in one dict, without dicts in it."""
    top = entries_of(settings)
    config = entries_of(top["config"]) if isinstance(top.get("config"), dict) else top
    parts = (config, entries_of(config.get("model")), entries_of(config.get("algo")))
    return {
        name: value
        for part in parts
        for name, value in part.items()
        if not isinstance(value, dict | Inert)
    }


def method_name_in(settings: Mapping[str, Any]) -> str:
    """Return the method of the settings. Raise ValueError if they name none, or an unknown one."""
    attention = settings.get("diffusion_attn_mode")
    if attention is not None:
        return Registry("diffusion_attn_mode", BY_ATTENTION)[str(attention)]
    for key in ("name", "model_type", "parameterization", "architectures"):
        value = settings.get(key)
        for name in value if isinstance(value, list) else [value]:
            letters = re.sub(r"[-_ ]", "", str(name).lower())
            known = letters.removesuffix("config").removesuffix("formaskedlm")
            if known in METHOD_NAMES:
                return METHOD_NAMES[known]
            if known == "bd3lm":
                fix = f"name it with --method block-mdm-{settings.get('block_size', 'N')}"
                raise ValueError(
                    f"its settings name bd3lm, a model of blocks. To import it, {fix}."
                )
    fix = "To import it, name it with --method mdm, scdm or esolm."
    raise ValueError(f"its settings do not name its attention. {fix}")


def folded(checkpoint: Checkpoint) -> Transformer:
    """Return the plain transformer that computes the same as a published network.

    Raise ValueError if it is another network, or is conditioned on time.
    """
    # Its settings: nothing may depend on the noise level, and MASK is the last token.
    settings = checkpoint.settings
    weights = dict(checkpoint.weights)
    try:
        rows, width = weights["vocab_embed.embedding"].shape
        heads = settings["n_heads"]
        length = settings.get("model_length") or settings["length"]
    except KeyError as error:
        raise ValueError(f"has no {error}: is not an Eso-LM or MDLM diffusion model") from None
    layers = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    size = Size(width, heads, layers)
    check_int("length", length, 1, LONGEST)
    expected = {
        "time_conditioning": (False, None),
        "causal_attention": (False, None),
        "mask_index": (rows - 1, None),
        "n_blocks": (layers, None),
    }
    for name, allowed in expected.items():
        if settings.get(name) not in allowed:
            problem = f"{name}={settings[name]} in its settings: must be {allowed[0]}"
            raise ValueError(f"{problem}. It is not an Eso-LM or MDLM diffusion model that folds.")
    frequencies = weights.pop(ROTARY_BUFFER, None)
    half = width // heads // 2
    ours = ROTARY_BASE ** (-torch.arange(half, dtype=torch.float64, device="cpu") / half)
    if frequencies is not None and not torch.allclose(frequencies.double(), ours, rtol=0.01):
        problem = f"{BACKBONE_PREFIX}{ROTARY_BUFFER} is not that of base {ROTARY_BASE:,}"
        raise ValueError(f"{problem}, and no other is supported")

    # Its weights.
    with torch.device("meta"):
        net = Transformer(size, rows - 1, length, positions="rotary", gelu="tanh")
    try:
        folded_weights = {name: tensor.float() for name, tensor in folding(weights, size)}
    except KeyError as error:
        raise ValueError(
            f"{BACKBONE_PREFIX}{error.args[0]} is missing. Download it again."
        ) from None
    check_equal_shapes(folded_weights | weights, net, "its weights")
    net.load_state_dict(folded_weights, assign=True)
    return net.requires_grad_(True)


def folding(weights: dict[str, Tensor], size: Size) -> Iterable[tuple[str, Tensor]]:
    """Yield our weights from theirs in float64, with norms and gates folded."""

    def take(name: str) -> Tensor:
        return weights.pop(name).double()

    inner = take("sigma_map.mlp.0.weight")  # (c, f)
    waves = inner.shape[1]
    # Cosines and sines of a noise level of 0.
    wave = (torch.arange(waves, device="cpu") < waves // 2).double()
    hidden = F.silu(inner @ wave + take("sigma_map.mlp.0.bias"))
    condition = F.silu(take("sigma_map.mlp.2.weight") @ hidden + take("sigma_map.mlp.2.bias"))

    def constants(name: str, parts: int) -> Sequence[Tensor]:
        return (take(f"{name}.weight") @ condition + take(f"{name}.bias")).chunk(parts)

    yield "embedding.weight", take("vocab_embed.embedding")
    for number in range(size.layers):
        block = f"blocks.{number}"
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = constants(
            f"{block}.adaLN_modulation", 6
        )
        yield f"{block}.attention_norm.weight", take(f"{block}.norm1.weight") * (1 + scale)
        yield f"{block}.attention_norm.bias", shift
        yield f"{block}.qkv.weight", take(f"{block}.attn_qkv.weight")
        yield f"{block}.attention_out.weight", gate[:, None] * take(f"{block}.attn_out.weight")
        yield f"{block}.mlp_norm.weight", take(f"{block}.norm2.weight") * (1 + mlp_scale)
        yield f"{block}.mlp_norm.bias", mlp_shift
        yield f"{block}.mlp_in.weight", take(f"{block}.mlp.0.weight")
        yield f"{block}.mlp_in.bias", take(f"{block}.mlp.0.bias")
        yield f"{block}.mlp_out.weight", mlp_gate[:, None] * take(f"{block}.mlp.2.weight")
        yield f"{block}.mlp_out.bias", mlp_gate * take(f"{block}.mlp.2.bias")
    shift, scale = constants("output_layer.adaLN_modulation", 2)
    yield "norm.weight", take("output_layer.norm_final.weight") * (1 + scale)
    yield "norm.bias", shift
    yield "head.weight", take("output_layer.linear.weight")
    yield "head.bias", take("output_layer.linear.bias")
