"""The requirements on a network of `transformers` that serves as a denoiser, and its row for MASK."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from latent_tokens.checks import check_int

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The values of `config.model_type` that are tested. Others may ignore positions or parts of a mask.
FAMILIES = (
    "bert", "eurobert", "gemma3_text", "gpt2", "gpt_neox", "llama", "mistral", "modernbert", "olmo2",
    "qwen2", "qwen3", "smollm3",
)  # fmt: skip


def sliding_window(model: PreTrainedModel) -> int | None:
    """Return how far a layer with a sliding window does not attend, in positions, or None without one."""
    config = model.config
    if "sliding_attention" not in getattr(config, "layer_types", ["sliding_attention"]):
        return None
    window: int | None = getattr(config, "sliding_window", None)
    # ModernBERT counts to each side, and includes the last position.
    return window + 1 if window is not None and config.model_type == "modernbert" else window


def check_model(model: PreTrainedModel) -> None:
    """Raise ValueError if the model is not a language model that the adapter is tested with."""
    name = type(model).__name__
    config = getattr(model, "config", None)
    family = getattr(config, "model_type", None)
    is_language_model = name.endswith(("ForCausalLM", "ForMaskedLM", "LMHeadModel"))
    if family not in FAMILIES or not is_language_model:
        raise ValueError(
            f"model={name}: not a language model that is tested. Use one of {', '.join(FAMILIES)}, "
            "ForCausalLM or ForMaskedLM."
        )
    attention = model.config._attn_implementation
    if attention not in ("sdpa", "eager"):
        raise ValueError(
            f"attn_implementation={attention}: takes no mask of slots. Load the model with sdpa or eager."
        )


def check_mask_id(
    model: PreTrainedModel,
    mask_id: int,
    name: str = "mask_id",
    fix: str = "Use the id of a reserved one, or None to add a row.",
) -> None:
    """Raise ValueError if an id is not of the vocabulary, or is a token that the model uses.

    `name` is the setting that has the id, and `fix` tells which ids are possible.
    """
    check_int(name, mask_id, 0)
    vocab_size = model.config.vocab_size
    if mask_id >= vocab_size:
        raise ValueError(f"{name}={mask_id}: the vocabulary has {vocab_size} tokens. {fix}")
    for kind in ("bos", "eos", "pad"):
        token = getattr(model.config, f"{kind}_token_id", None)
        if mask_id in (token if isinstance(token, list) else [token]):
            raise ValueError(f"{name}={mask_id}: is the {kind} token of the model. {fix}")


def bos_token(model: PreTrainedModel) -> int:
    """Return the id in front of a text, BOS or else EOS. Raise ValueError if the vocabulary has neither."""
    for kind in ("bos", "eos"):
        token = getattr(model.config, f"{kind}_token_id", None)
        if isinstance(token, list):  # several tokens end a text
            token = next(iter(token), None)
        if isinstance(token, int) and 0 <= token < model.config.vocab_size:
            return token
    raise ValueError("readout=shifted: the model has no BOS token. Set bos_token_id of its config.")


@torch.no_grad()
def add_row(model: PreTrainedModel) -> None:
    """Add a token to the vocabulary. Its embeddings are the mean of the others.

    The model gets a config of its own, as that of the caller may be shared with other models.
    """
    config = model.config
    copied = deepcopy(config)
    for module in model.modules():
        if getattr(module, "config", None) is config:
            cast("PreTrainedModel", module).config = copied
    model.resize_token_embeddings(model.config.vocab_size + 1, mean_resizing=False)
    layers = [model.get_input_embeddings(), model.get_output_embeddings()]  # type: ignore[no-untyped-call]
    for layer in layers:
        weight = cast(Tensor, layer.weight)  # with tied embeddings, the same of both layers
        weight[-1] = weight[:-1].float().mean(0).to(weight.dtype)
