"""The layouts of published masked diffusion models: the class of `transformers` of each, and its method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from latent_tokens.storage import Json

Readout = Literal["in_place", "left"]

# What LLaDA may be configured to, and LlamaForCausalLM is.
AS_LLAMA: Mapping[str, tuple[Json, ...]] = {
    "architectures": (["LLaDAModelLM"],),
    "block_type": ("llama",),
    "block_group_size": (1,),
    "activation_type": ("silu",),
    "rope": (True,),
    "alibi": (False,),
    "layer_norm_type": ("rms",),
    "layer_norm_with_affine": (True,),
    "attention_layer_norm": (False,),
    "input_emb_norm": (False,),
    "include_bias": (False,),
    "include_qkv_bias": (False, None),
    "bias_for_layer_norm": (False, None),
    "multi_query_attention": (False, None),
    "scale_logits": (False,),
}
LLADA_SETTINGS = {
    "vocab_size": ("embedding_size", "vocab_size"),
    "hidden_size": ("d_model",),
    "intermediate_size": ("mlp_hidden_size",),
    "num_hidden_layers": ("n_layers",),
    "num_attention_heads": ("n_heads",),
    "num_key_value_heads": ("n_kv_heads", "n_heads"),
    "max_position_embeddings": ("max_sequence_length",),
    "rms_norm_eps": ("rms_norm_eps",),
    "rope_theta": ("rope_theta",),
    "tie_word_embeddings": ("weight_tying",),
    "eos_token_id": ("eos_token_id",),
    "pad_token_id": ("pad_token_id",),
}
LLADA_BLOCK = r"^model\.transformer\.blocks\.(\d+)\."
LLADA_WEIGHTS = (
    (r"^model\.transformer\.wte\.", "model.embed_tokens."),
    (LLADA_BLOCK + r"attn_norm\.", r"model.layers.\1.input_layernorm."),
    (LLADA_BLOCK + r"([qkv]_proj)\.", r"model.layers.\1.self_attn.\2."),
    (LLADA_BLOCK + r"attn_out\.", r"model.layers.\1.self_attn.o_proj."),
    (LLADA_BLOCK + r"ff_norm\.", r"model.layers.\1.post_attention_layernorm."),
    (LLADA_BLOCK + r"ff_proj\.", r"model.layers.\1.mlp.gate_proj."),
    (LLADA_BLOCK + r"up_proj\.", r"model.layers.\1.mlp.up_proj."),
    (LLADA_BLOCK + r"ff_out\.", r"model.layers.\1.mlp.down_proj."),
    (r"^model\.transformer\.ln_f\.", "model.norm."),
    (r"^model\.transformer\.ff_out\.", "lm_head."),
)
# DiffuGPT is saved as GPT-2, or inside the module that its authors train.
DIFFUGPT_WEIGHTS = (
    (r"^denoise_model\.", "transformer."),
    (r"^embed_tokens\.", "transformer.wte."),
)
ONE_WINDOW: Mapping[str, tuple[Json, ...]] = {"use_sliding_window": (False, None)}
QWEN_NEEDED = (("rms_norm_eps",), ("rope_theta", "rope_parameters"))


@dataclass(frozen=True)
class PublishedLayout:
    """How the files of a published checkpoint become a language model of `transformers`.

    Attributes:
        name: the checkpoints.
        model_type: their `model_type` in config.json.
        native: the class of `transformers`, and its `model_type`.
        method: the entry of METHODS. "block-mdm" has the block size of config.json.
        readout: as of `HuggingFaceDenoiser`.
        mask_id: MASK, if neither config.json nor the tokenizer names it.
        only_with_mask: whether config.json is also that of an autoregressive model, which names no MASK.
        only_if: entries of config.json that tell apart two layouts of one `model_type`.
        required: the allowed values of an entry of config.json. A missing entry is allowed.
        needed: entries of config.json, or several of which one is needed. Other classes have other defaults.
        settings: for each setting of the native class, the entry of config.json, or several, of which the
            first that is set counts. None: config.json has the names of the native class.
        weights: patterns of names of weights, and the native names.
    """

    name: str
    model_type: str
    native: tuple[str, str]
    method: str = "mdm"
    readout: Readout = "in_place"
    mask_id: int | None = None
    only_with_mask: bool = False
    only_if: Mapping[str, Json] = field(default_factory=dict)
    required: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    needed: tuple[tuple[str, ...], ...] = ()
    settings: Mapping[str, tuple[str, ...]] | None = None
    weights: tuple[tuple[str, str], ...] = ()


LLAMA = ("LlamaForCausalLM", "llama")
QWEN2 = ("Qwen2ForCausalLM", "qwen2")
QWEN3 = ("Qwen3ForCausalLM", "qwen3")
GPT2 = ("GPT2LMHeadModel", "gpt2")
MODERNBERT = ("ModernBertForMaskedLM", "modernbert")
LAYOUTS = (
    PublishedLayout(
        "LLaDA",
        "llada",
        LLAMA,
        mask_id=126336,
        required=AS_LLAMA,
        settings=LLADA_SETTINGS,
        weights=LLADA_WEIGHTS,
    ),
    PublishedLayout(
        "Dream",
        "dream",
        QWEN2,
        readout="left",
        mask_id=151666,
        required=ONE_WINDOW,
        needed=QWEN_NEEDED,
    ),
    PublishedLayout("Open-dCoder", "qwen2", QWEN2, readout="left", only_with_mask=True),
    PublishedLayout(
        "WeDLM-8B",
        "wedlm",
        QWEN3,
        method="esolm",
        only_if={"qk_norm": True},
        required={**ONE_WINDOW, "attention_bias": (False,)},
        needed=QWEN_NEEDED,
    ),
    PublishedLayout(
        "WeDLM-7B",
        "wedlm",
        QWEN2,
        method="esolm",
        required={**ONE_WINDOW, "attention_bias": (True,)},
        needed=QWEN_NEEDED,
    ),
    PublishedLayout(
        "SDAR",
        "sdar",
        QWEN3,
        method="block-mdm",
        mask_id=151669,
        required=ONE_WINDOW,
        needed=QWEN_NEEDED,
    ),
    PublishedLayout(
        "Tiny-A2D",
        "a2d-qwen3",
        QWEN3,
        mask_id=151669,
        required=ONE_WINDOW,
        needed=QWEN_NEEDED,
    ),
    PublishedLayout("DiffuGPT", "gpt2", GPT2, readout="left", only_with_mask=True, weights=DIFFUGPT_WEIGHTS),
    PublishedLayout("ModernBERT-chat", "modernbert", MODERNBERT, only_with_mask=True),
)


def layout_of(config: Mapping[str, Json], names_mask: bool) -> PublishedLayout | None:
    """Return the layout that a config.json belongs to, or None if it is not a published one.

    Args:
        config: the entries of config.json.
        names_mask: whether the directory names MASK.
    """
    kind = str(config.get("model_type")).lower()
    for layout in LAYOUTS:
        is_alike = all(config.get(name) == value for name, value in layout.only_if.items())
        if kind == layout.model_type and is_alike and (names_mask or not layout.only_with_mask):
            return layout
    return None
