"""Language models of transformers as a `Denoiser`, and their KV cache."""

from __future__ import annotations

import inspect
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_mask

from latent_tokens.checks import check_choice
from latent_tokens.core.attention import is_cacheable, visible
from latent_tokens.core.confidence import last_slots
from latent_tokens.core.denoiser import token_logits
from latent_tokens.core.layout import Layout
from latent_tokens.core.method import METHODS, Method
from latent_tokens.core.state import PlannedStep
from latent_tokens.sizes import Dimensions

if TYPE_CHECKING:
    from transformers import PreTrainedModel
    from transformers.cache_utils import Cache


# The values of `config.model_type` that are tested. Others may ignore positions or parts of a mask.
FAMILIES = (
    "bert", "eurobert", "gemma3_text", "gpt2", "gpt_neox", "llama", "mistral", "modernbert", "olmo2",
    "qwen2", "qwen3", "smollm3",
)  # fmt: skip
CACHE_ARGUMENTS = ("cache", "past_key_values")  # that of transformers 5.24, and the one before it
OWN_METHODS = {"in_place": METHODS["mdm"], "left": METHODS["mdm-left"], "shifted": METHODS["arm"]}


def sliding_window(model: PreTrainedModel) -> int | None:
    """Return how far a sliding window does not attend, in positions, or None without one."""
    config = model.config
    if "sliding_attention" not in getattr(config, "layer_types", ["sliding_attention"]):
        return None
    window: int | None = getattr(config, "sliding_window", None)
    # ModernBERT counts to each side, and includes the last position.
    return window + 1 if window is not None and config.model_type == "modernbert" else window


def check_model(model: PreTrainedModel) -> None:
    """Raise ValueError if the model is not a language model that the adapter is tested with."""
    name = type(model).__name__
    family = getattr(getattr(model, "config", None), "model_type", None)
    if family not in FAMILIES or not name.endswith(("ForCausalLM", "ForMaskedLM", "LMHeadModel")):
        fix = f"Use a ForCausalLM or ForMaskedLM of {', '.join(FAMILIES)}"
        raise ValueError(f"model={name}: not a language model that is tested. {fix}.")
    check_choice("attn_implementation", model.config._attn_implementation, ("sdpa", "eager"))


def special_tokens(config: object) -> dict[str, list[int | None]]:
    """Return the ids of BOS, EOS and padding by kind, or None. Several tokens can end a text.

    The config is that of a model, or of its generation.
    """
    ids = {kind: getattr(config, f"{kind}_token_id", None) for kind in ("bos", "eos", "pad")}
    return {kind: token if isinstance(token, list) else [token] for kind, token in ids.items()}


def check_mask_id(
    model: PreTrainedModel,
    mask_id: int,
    name: str = "mask_id",
    fix: str = "Use the id of a reserved one, or None to add a row.",
) -> None:
    """Raise ValueError if an id is not of the vocabulary, or is a token that the model uses.

    `name` is the setting that has the id, and `fix` tells which ids are possible.
    """
    problem = None
    if not 0 <= mask_id < model.config.vocab_size:
        problem = f"the vocabulary has {model.config.vocab_size} tokens"
    for kind, ids in special_tokens(model.config).items():
        if mask_id in ids:
            problem = f"is the {kind} token of the model"
    if problem is not None:
        raise ValueError(f"{name}={mask_id}: {problem}. {fix}")


def bos_token(model: PreTrainedModel) -> int:
    """Return the id in front of a text, BOS or else EOS. Raise ValueError without either."""
    special = special_tokens(model.config)
    for token in (*special["bos"][:1], *special["eos"][:1]):
        if token is not None and 0 <= token < model.config.vocab_size:
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
    bias = getattr(layers[1], "bias", None)
    if bias is not None and not copied.tie_word_embeddings:
        # A resized BERT shares its bias under two names, saves one of them and reads the other.
        layers[1].bias = nn.Parameter(bias.clone())


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter, and the model that it belongs to."""

    rank: int
    targets: str  # attention, all, or names of modules with commas between them
    base: str  # the directory or the name of the model
    base_sha256: str  # of its weights
    alpha: float | None = None  # its output is scaled by alpha / rank; None: by 1


class HuggingFaceDenoiser(nn.Module):
    """A denoiser that calls a network of `transformers`, and returns its logits as they are.

    It has `mask_id`, `vocab_size`, the number of tokens without a row that was added for MASK, and
    `max_length`, the number of positions by the config. `method` is `mdm` with this readout, or
    `arm` if it is shifted. Set another for a network that was trained otherwise.

    Args:
        model: a causal or masked language model with sdpa or eager attention. It is not copied.
        mask_id: the id of MASK, a reserved one of the vocabulary. None adds a row to the
            embeddings, the mean of the others.
        readout: "in_place"; "left" for a diffusion model that predicts the next position, as Dream;
            or "shifted" for an autoregressive model as it is. This receives its BOS token where a
            shifted readout has MASK, in front of the first token. `mask_id` is then None, and no
            row is added.

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
            problem = "a shifted readout has the BOS token for MASK"
            raise ValueError(f"mask_id={mask_id}: {problem}. Use None.")
        if mask_id is None:
            mask_id = self.vocab_size
            if readout != "shifted":
                add_row(model)
        else:
            check_mask_id(model, mask_id)
        self.mask_id = mask_id
        self.model = model
        self.folder: Path | None = None
        self.adapter: Adapter | None = None  # by `adapting.add_lora`
        self.has_frozen_embeddings = False  # by `adapting.freeze_embeddings`
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
        """Return the logits of every slot, (B, S, V), or of `slots` only, (N, V), row by row.

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
            shape = (len(ids), None, *mask.seq_lengths)
            mask = create_mask(mask.mask_mod, *shape, device=str(ids.device))[:, 0]
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
            problem = f"the model has {self.max_length} positions"
            raise ValueError(f"position {int(positions.max())}: {problem}. Use shorter sequences.")
        if self.bos_id is not None:
            ids = ids.masked_fill(ids == self.mask_id, self.bos_id)
        inputs: dict[str, Any] = {"input_ids": ids}
        if self.mask_row is not None:
            inputs = {"inputs_embeds": self.embed(ids)}
        if cache is not None:
            inputs[str(self.cache_argument)] = cache
        if columns is not None:
            inputs["logits_to_keep"] = columns
        inputs["attention_mask"] = self.layer_masks(mask, positions, key_positions)
        output = self.model(**inputs, position_ids=positions, use_cache=cache is not None)
        return cast(Tensor, output.logits)

    @property
    def dimensions(self) -> Dimensions:
        """The numbers that the memory of training depends on."""
        config = self.model.config
        return Dimensions(
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            heads=config.num_attention_heads,
            columns=config.vocab_size,
        )

    def cached_logits(
        self, method: Method, length: int, rows: Int[Tensor, " R"]
    ) -> HuggingFaceCachedLogits | None:
        """Return what computes the candidates' logits of some rows with a KV cache, if it is exact."""
        is_exact = supports_cache(self, method, length)
        return HuggingFaceCachedLogits(self, method, rows) if is_exact else None

    def embed(self, ids: Int[Tensor, "B Q"]) -> Float[Tensor, "B Q D"]:
        """Return the embeddings of tokens. That of MASK is the trained row."""
        embeddings = self.model.get_input_embeddings()
        scale = getattr(embeddings, "embed_scale", 1.0)  # of Gemma 3
        mask_row = cast(Tensor, self.mask_row) * scale
        return torch.where((ids == self.mask_id)[:, :, None], mask_row, embeddings(ids))

    def layer_masks(
        self,
        mask: Bool[Tensor, "B Q S"],
        positions: Int[Tensor, "B Q"],
        key_positions: Int[Tensor, "B S"],
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


def supports_cache(net: HuggingFaceDenoiser, method: Method, length: int) -> bool:
    """Return whether the cache is exact for a network: a decoder in eval mode, under a causal rule.

    The readout "left" reads slots that it would have dropped. Hooks on the network, and the forward
    of a subclass, would not be called. Those of `net.model` are.
    """
    is_exact = is_cacheable(method.attention, length) and method.readout != "left"
    is_plain = type(net) is HuggingFaceDenoiser and not (
        net._forward_hooks or net._forward_pre_hooks
    )
    return net.cache_argument is not None and not net.training and is_exact and is_plain


class HuggingFaceCachedLogits:
    """Computes the candidates' logits of some rows, step after step (a `sampling.CandidateLogits`).

    It keeps keys and values that never change: those of clean slots, and with a shifted readout
    those of all slots. Rows may have different numbers of them. In a row with fewer, no slot
    attends to the padding.

    Args:
        net: the network, a decoder.
        method: how it was trained. Its attention is cacheable.
        rows: the rows to decode.
    """

    def __init__(self, net: HuggingFaceDenoiser, method: Method, rows: Int[Tensor, " R"]) -> None:
        from transformers import DynamicCache

        self.net = net
        self.method = method
        self.rows = rows
        self.cache = DynamicCache()
        self.num_cached = torch.zeros_like(rows)
        self.slots = rows.new_empty(len(rows), 0)  # (R, P): of each cached key, -1 for none
        self.positions = rows.new_empty(len(rows), 0)  # (R, P): its position

    def __call__(
        self, plan: PlannedStep, tokens: Int[Tensor, "A L"], layout: Layout
    ) -> Float[Tensor, "A K V"]:
        rows, num_candidates = plan.on_device.rows, plan.on_device.candidates
        if len(rows) < len(self.rows):
            self.take(torch.isin(self.rows, rows))

        # The new slots. A row with fewer repeats its last.
        num_new = layout.num_shown - self.num_cached
        rank = torch.arange(int(num_new.max()), device=rows.device)
        new = self.num_cached[:, None] + rank.minimum(num_new[:, None] - 1)  # (A, Q)
        ids = self.method.input_ids(tokens, layout, self.net.mask_id).gather(1, new)
        positions = layout.positions.gather(1, new)

        # They attend by the rule to cached and new slots, (A, P + Q).
        keys = torch.cat([self.slots, new.masked_fill(rank >= num_new[:, None], -1)], dim=1)
        key_positions = torch.cat([self.positions, positions], dim=1)
        num_clean = layout.num_clean[:, None, None]
        num_shown = layout.num_shown[:, None, None]
        slots = (new[:, :, None], keys[:, None, :])
        mask = visible(self.method.attention, *slots, num_clean, num_shown) & (slots[1] >= 0)

        # The candidates are the last slots. A row with fewer candidates repeats its last.
        at = last_slots(layout, num_candidates, int(plan.host.candidates.max()))  # (A, K)
        columns, column_of = torch.unique(at - self.num_cached[:, None], return_inverse=True)
        # (A, C, V)
        logits = self.net.logits_of(ids, positions, mask, key_positions, columns, self.cache)
        logits = logits.gather(1, column_of[:, :, None].expand(-1, -1, logits.shape[-1]))

        # Of the cache, keep what never changes.
        num_fixed = layout.num_shown if self.method.readout == "shifted" else layout.num_clean
        num_kept = self.slots.shape[1] + int((num_fixed - self.num_cached).max())
        self.slots = keys[:, :num_kept].masked_fill(keys[:, :num_kept] >= num_fixed[:, None], -1)
        self.positions = key_positions[:, :num_kept]
        self.num_cached = num_fixed
        self.index_cache((slice(None), slice(None), slice(num_kept)))
        return token_logits(self.net, logits).double()

    def take(self, lines: Bool[Tensor, " R"]) -> None:
        """Keep some rows only."""
        self.rows = self.rows[lines]
        self.num_cached = self.num_cached[lines]
        self.slots = self.slots[lines]
        self.positions = self.positions[lines]
        self.index_cache((lines,))

    def index_cache(self, index: tuple[slice | Tensor, ...]) -> None:
        """Keep a part of the keys and values, (R, H, P, C), of every layer."""
        layer: Any  # the type of `transformers` allows layers without keys
        for layer in self.cache.layers:
            layer.keys = layer.keys[index]
            layer.values = layer.values[index]
