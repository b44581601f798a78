"""Checks of a model that transformers loads: its network is ours, its weights are those that were saved."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import cast

import torch
from transformers import PreTrainedModel

from latent_tokens.checkpoints.adapted import is_adapted
from latent_tokens.checkpoints.layout_settings import read_json
from latent_tokens.checkpoints.own_network import check_can_build
from latent_tokens.checkpoints.pretrained import check_fingerprint, check_is_ours
from latent_tokens.checkpoints.tensor_files import read_tensor_file
from latent_tokens.network.transformer import Transformer

FINGERPRINT_TOLERANCE = {torch.float32: 1e-2, torch.float16: 0.1, torch.bfloat16: 0.5}
MAX_NAMES = 200  # characters


def check_directory(folder: Path) -> None:
    """Raise ValueError if a directory has another network than `Transformer`, or corrupt weights."""
    check_is_ours(folder)
    if (folder / "config.json").is_file():
        config = read_json(folder / "config.json")
        check_can_build(config, folder)
        if is_adapted(config):
            problem = "its network is a model of transformers"
            raise ValueError(f"{folder}: {problem}. Open it with load({str(folder)!r}).")
    if (folder / "model.safetensors").is_file():  # checks its hash; transformers reads other files too
        read_tensor_file(folder / "model.safetensors")


def check_loaded(
    model: PreTrainedModel,
    folder: Path,
    loading_info: Mapping[str, Collection[str]],
    is_quantized: bool,
) -> None:
    """Raise ValueError if weights are missing or unexpected, or have other logits."""
    wrong = {kind: sorted(map(str, names)) for kind, names in loading_info.items() if names}
    if wrong:
        raise ValueError(
            f"{folder}: its weights are not those of its config ({str(wrong)[:MAX_NAMES]}). "
            "Save the model again."
        )
    tolerance = FINGERPRINT_TOLERANCE.get(model.dtype)
    has_adapter = getattr(model, "_hf_peft_config_loaded", False)  # transformers loads one of peft, too
    if tolerance is not None and not is_quantized and not has_adapter:
        net = cast(Transformer, model.net)
        check_fingerprint(net, getattr(model.config, "fingerprint", None), folder, tolerance)
