"""Networks of `transformers` as denoisers: a subset of the positions in any order, under any attention rule.

All of them take position ids, and pass a mask of four dimensions on as it is.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_mask

from latent_tokens.checks import check_choice
from latent_tokens.core.methods import METHODS, Method
from latent_tokens.network.hf_model import add_row, bos_token, check_mask_id, check_model, sliding_window

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.cache_utils import Cache

    from latent_tokens.network.hf_adapter import Adapter

CACHE_ARGUMENTS = ("cache", "past_key_values")  # that of transformers 5.24, and the one before it
OWN_METHODS = {
    "in_place": METHODS["mdm"],
    "left": METHODS["mdm-left"],
    "shifted": METHODS["arm"],
}


class HuggingFaceDenoiser(nn.Module):
    """A denoiser that calls a network of `transformers`, and returns its logits as they are.

    It has `mask_id`, `vocab_size`, the number of tokens without a row that was added for MASK, and
    `max_length`, the number of positions by the config. `method` is `mdm` with this readout, or `arm` if it
    is shifted. Set another for a network that was trained otherwise.

    Args:
        model: a causal or masked language model with sdpa or eager attention. It is not copied.
        mask_id: the id of MASK, a reserved one of the vocabulary. None adds a row to the embeddings, the mean
            of the others.
        readout: "in_place"; "left" for a diffusion model that predicts the next position, as Dream; or
            "shifted" for an autoregressive model as it is. This receives its BOS token where a shifted
            readout has MASK, in front of the first token. `mask_id` is then None, and no row is added.

    Raises:
        ValueError: the architecture or its attention is not supported, or `mask_id` is not free.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> shape = dict(hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
        >>> HuggingFaceDenoiser(LlamaForCausalLM(LlamaConfig(vocab_size=6, **shape)), mask_id=None).mask_id
        6
    """

    supports_slots = True
    mask_row: nn.Parameter | None  # the embedding of MASK, if those of the other tokens are frozen

    def __init__(
        self,
        model: PreTrainedModel,
        mask_id: int | None,
        readout: Literal["in_place", "left", "shifted"] = "in_place",
    ) -> None:
        super().__init__()
        check_model(model)
        check_choice("readout", readout, tuple(OWN_METHODS))
        self.readout = readout
        self.method: Method = OWN_METHODS[readout]
        self.vocab_size: int = model.config.vocab_size
        self.max_length: int = model.config.max_position_embeddings
        self.bos_id = bos_token(model) if readout == "shifted" else None
        if readout == "shifted" and mask_id is not None:
            raise ValueError(f"mask_id={mask_id}: a shifted readout has the BOS token for MASK. Use None.")
        if mask_id is None:
            mask_id = self.vocab_size
            if readout != "shifted":
                add_row(model)
        else:
            check_mask_id(model, mask_id)
        self.mask_id = mask_id
        self.model = model
        self.folder: Path | None = None
        self.adapter: Adapter | None = None  # that of LoRA, by `add_lora`
        self.has_frozen_embeddings = False  # by `freeze_embeddings`
        self.register_parameter("mask_row", None)
        self.train(model.training)
        parameters = inspect.signature(model.forward).parameters
        self.keeps_logits = "logits_to_keep" in parameters
        self.cache_argument = next((name for name in CACHE_ARGUMENTS if name in parameters), None)

    def forward(
        self,
        ids: Int[Tensor, "B S"],
        positions: Int[Tensor, "B S"],
        mask: Bool[Tensor, "B S S"] | BlockMask,
        slots: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "*N V"]:
        """Return the logits of every slot, (B, S, V), or with `slots` of these only, (N, V), row by row.

        A decoder computes those of a slot for all rows or for none.

        Args:
            ids: the token id that each slot receives.
            positions: the position in the sequence of each slot.
            mask: true if slot i attends to slot j.
            slots: the slots whose logits are returned. None is all.

        Raises:
            ValueError: a position is not below `max_length`.
        """
        if isinstance(mask, BlockMask):
            mask = create_mask(mask.mask_mod, len(ids), None, *mask.seq_lengths, device=str(ids.device))[:, 0]
        if slots is None:
            return self.logits_of(ids, positions, mask, positions)
        if not self.keeps_logits:
            return self.logits_of(ids, positions, mask, positions)[slots]
        columns = slots.any(0).nonzero().flatten()
        return self.logits_of(ids, positions, mask, positions, columns)[slots[:, columns]]

    def logits_of(
        self,
        ids: Int[Tensor, "B Q"],
        positions: Int[Tensor, "B Q"],
        mask: Bool[Tensor, "B Q S"],
        key_positions: Int[Tensor, "B S"],
        columns: Int[Tensor, " C"] | None = None,
        cache: Cache | None = None,
    ) -> Float[Tensor, "B C V"]:
        """Return the logits of the new slots, or of some columns of these.

        Args:
            ids: the token id that each new slot receives.
            positions: their positions.
            mask: true if new slot i attends to slot j, cached or new.
            key_positions: the positions of all slots.
            columns: which of the new slots to return, for a model that `keeps_logits`. None is all.
            cache: the keys and values of the cached slots. Those of the new slots are added.
        """
        if positions.numel() and int(positions.max()) >= self.max_length:
            raise ValueError(
                f"position {int(positions.max())}: the model has {self.max_length} positions. "
                "Use shorter sequences."
            )
        if self.bos_id is not None:
            ids = ids.masked_fill(ids == self.mask_id, self.bos_id)
        inputs: dict[str, Any] = {"input_ids": ids}
        if self.mask_row is not None:
            inputs = {"inputs_embeds": self.embed(ids)}
        if cache is not None:
            assert self.cache_argument is not None  # `supports_cache`
            inputs[self.cache_argument] = cache
        if columns is not None:
            inputs["logits_to_keep"] = columns
        return cast(
            Tensor,
            self.model(
                **inputs,
                position_ids=positions,
                attention_mask=self.layer_masks(mask, positions, key_positions),
                use_cache=cache is not None,
            ).logits,
        )

    def embed(self, ids: Int[Tensor, "B Q"]) -> Float[Tensor, "B Q D"]:
        """Return the embeddings of tokens. That of MASK is the trained row."""
        embeddings = self.model.get_input_embeddings()
        scale = getattr(embeddings, "embed_scale", 1.0)  # of Gemma 3
        return torch.where(
            (ids == self.mask_id)[:, :, None], cast(Tensor, self.mask_row) * scale, embeddings(ids)
        )

    def layer_masks(
        self, mask: Bool[Tensor, "B Q S"], positions: Int[Tensor, "B Q"], key_positions: Int[Tensor, "B S"]
    ) -> Tensor | dict[str, Tensor]:
        """Return the mask as the model takes it: one for all layers, or one per type of layer.

        Layers with a sliding window attend to near positions only.
        """
        window = sliding_window(self.model)
        if window is None:
            return self.as_attention_takes(mask)
        distance = positions[:, :, None] - key_positions[:, None, :]
        near = self.as_attention_takes(mask & (distance.abs() < window))
        if not hasattr(self.model.config, "layer_types"):
            return near
        return {"full_attention": self.as_attention_takes(mask), "sliding_attention": near}

    def as_attention_takes(self, mask: Bool[Tensor, "B Q S"]) -> Tensor:
        """Return the mask with a dimension for heads: boolean for sdpa, numbers to add for eager."""
        if self.model.config._attn_implementation == "sdpa":
            return mask[:, None]
        zeros = torch.zeros(mask.shape, dtype=self.model.dtype, device=mask.device)
        return zeros.masked_fill(~mask, -torch.inf)[:, None]
