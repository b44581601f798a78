"""Checks of a model that transformers loaded: its weights are those that were saved."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import cast

import torch
from transformers import PreTrainedModel

from latent_tokens.checkpoints.pretrained import check_fingerprint
from latent_tokens.checkpoints.tensor_files import read_tensor_file
from latent_tokens.network.transformer import Transformer

FINGERPRINT_TOLERANCE = {torch.float32: 1e-2, torch.float16: 0.1, torch.bfloat16: 0.5}
MAX_NAMES = 200  # characters


def check_loaded(
    model: PreTrainedModel,
    folder: Path,
    loading_info: Mapping[str, Collection[str]],
    is_quantized: bool,
) -> None:
    """Raise ValueError if weights are missing, unexpected, corrupt, or have other logits."""
    wrong = {kind: sorted(map(str, names)) for kind, names in loading_info.items() if names}
    if wrong:
        raise ValueError(
            f"{folder}: its weights are not those of its config ({str(wrong)[:MAX_NAMES]}). "
            "Save the model again."
        )
    if (folder / "model.safetensors").is_file():  # checks its hash; transformers reads other files too
        read_tensor_file(folder / "model.safetensors")
    tolerance = FINGERPRINT_TOLERANCE.get(model.dtype)
    if tolerance is not None and not is_quantized:
        net = cast(Transformer, model.net)
        check_fingerprint(net, getattr(model.config, "fingerprint", None), folder, tolerance)
