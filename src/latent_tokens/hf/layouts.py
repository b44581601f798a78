"""The layouts of published masked diffusion models: their settings and weights in ours."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from latent_tokens.checkpoints.files import read_json, read_tensor_file
from latent_tokens.checks import first_line, is_whole
from latent_tokens.core.method import METHODS, Method
from latent_tokens.hf.language_models import OWN_METHODS
from latent_tokens.hf.tokenizer_files import TOKENIZER_CONFIG
from latent_tokens.hub import TOKENIZER_FILES
from latent_tokens.storage import Json, json_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Readout = Literal["in_place", "left"]
# Entries of config.json that tell which code and files a model has. They do not describe the network.
ABOUT_CODE = (
    "model_type", "architectures", "auto_map", "torch_dtype", "dtype", "transformers_version",
    "_name_or_path", "attn_implementation", "_attn_implementation",
)  # fmt: skip
WEIGHTS_FILE, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"
# Constants that old versions stored
BUFFER = re.compile(r"\.attn\.(masked_)?bias$|rotary_emb\.inv_freq$")


def native_settings(layout: PublishedLayout, config: Mapping[str, Json]) -> dict[str, Json]:
    """Return the settings of the native class.

    Raise ValueError if an entry is missing, or has a value that the class does not support.
    """
    for name, allowed in {"quantization_config": (None,), **layout.required}.items():
        if config.get(name, allowed[0]) not in allowed:
            problem = f"{name}={config[name]} is not supported by {layout.native[0]}"
            raise ValueError(f"{problem}, must be {' or '.join(map(str, allowed))}")
    entries = {name: value for name, value in config.items() if value is not None}
    for names in (*layout.needed, *(layout.settings or {}).values()):
        if entries.keys().isdisjoint(names):
            raise ValueError(f"{names[0]} is missing")
    if layout.settings is None:
        return {name: value for name, value in config.items() if name not in ABOUT_CODE}
    return {
        native_name: next(entries[name] for name in names if name in entries)
        for native_name, names in layout.settings.items()
    }


def layout_method(layout: PublishedLayout, config: Mapping[str, Json], readout: Readout) -> Method:
    """Return the method of a published model. Raise ValueError if its blocks are not known."""
    if layout.method == "mdm":
        return OWN_METHODS[readout]
    name = layout.method
    if name == "block-mdm":
        size = config.get("block_size")
        if not is_whole(size, 1):
            fix = "Set it to the number of positions per block in training"
            raise ValueError(f"config.json: block_size={size}. {fix}.")
        name = f"block-mdm-{size}"
    return replace(METHODS[name], readout=readout)


def named_mask(folder: Path, config: Mapping[str, Json]) -> int | str | None:
    """Return MASK as config.json or the tokenizer names it, as an id or a text, or None."""
    number = config.get("mask_token_id")
    if isinstance(number, int):
        return number
    token = tokenizer_config(folder).get("mask_token")
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def added_token_id(folder: Path, text: str) -> int | None:
    """Return the id of a token that tokenizer_config.json adds to the vocabulary, or None."""
    added = tokenizer_config(folder).get("added_tokens_decoder")
    for number, token in added.items() if isinstance(added, dict) else ():
        if isinstance(token, dict) and token.get("content") == text and number.isdecimal():
            return int(number)
    return None


def tokenizer_config(folder: Path) -> dict[str, Json]:
    """Return tokenizer_config.json, empty if it is missing. Raise ValueError if it is corrupt."""
    file = folder / TOKENIZER_CONFIG
    return read_json(file) if file.is_file() else {}


def copied_tokenizer(folder: Path) -> dict[str, bytes]:
    """Return the files of the tokenizer in a directory by name, without references to code.

    Raise ValueError if one is corrupt.
    """
    files = {
        name: (folder / name).read_bytes() for name in TOKENIZER_FILES if (folder / name).is_file()
    }
    if TOKENIZER_CONFIG in files:
        config = tokenizer_config(folder)
        files[TOKENIZER_CONFIG] = json_bytes(
            {name: value for name, value in config.items() if name != "auto_map"}
        )
    return files


def read_native(
    folder: Path, layout: PublishedLayout, config: Mapping[str, Json], dtype: torch.dtype | None
) -> PreTrainedModel:
    """Return the language model of a published checkpoint, as a class of `transformers`.

    A `dtype` of None is that of the files. Raise ValueError if a file is missing or corrupt, or its
    settings or weights are not those of the native class.
    """
    import transformers

    weights = {
        layout.native_name(name): tensor
        for name, tensor in read_weights(folder).items()
        if not BUFFER.search(name)
    }
    class_name, family = layout.native
    native: Any = getattr(transformers, class_name)
    try:
        settings = native_settings(layout, config)
        model: PreTrainedModel
        model, report = native.from_pretrained(
            None,
            config=transformers.AutoConfig.for_model(family, **settings),
            state_dict=weights,
            dtype=dtype or common_dtype(weights.values()),
            output_loading_info=True,
        )
    except Exception as error:  # of values that others wrote: anything
        problem = f"not that of a {class_name} ({first_line(error)})"
        raise ValueError(f"{folder / 'config.json'}: {problem}. Download it again.") from None
    for kind, names in report.items():
        if names:
            problem = f"{kind.replace('_', ' ')} of {class_name}: {min(map(str, names))}"
            raise ValueError(f"{folder}: {problem}. Download it again.")
    model.tie_weights()  # transformers 5.3 leaves weights apart if the file has both names
    return model


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of model.safetensors, or of the shards of its index, by name."""
    shards = {WEIGHTS_FILE}
    if (folder / WEIGHTS_INDEX).is_file():
        shard_of = read_json(folder / WEIGHTS_INDEX).get("weight_map")
        shards = set(map(str, shard_of.values())) if isinstance(shard_of, dict) else set()
    weights = dict[str, Tensor]()
    for name in sorted(shards):
        weights |= read_tensor_file(folder / Path(name).name)
    return weights


def common_dtype(tensors: Iterable[Tensor]) -> torch.dtype:
    """Return the precision of all tensors, or float32 if they have several."""
    dtypes = {tensor.dtype for tensor in tensors}
    return dtypes.pop() if len(dtypes) == 1 else torch.float32


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
DIFFUGPT_WEIGHTS = ((r"^denoise_model\.", "transformer."), (r"^embed_tokens\.", "transformer.wte."))
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
        only_with_mask: whether config.json is also that of an autoregressive model, which names no
            MASK.
        only_if: entries of config.json that tell apart two layouts of one `model_type`.
        required: the allowed values of an entry of config.json. A missing entry is allowed.
        needed: entries of config.json, or several of which one is needed. Other classes have other
            defaults.
        settings: for each setting of the native class, the entry of config.json, or several, of
            which the first that is set counts. None: config.json has the names of the native class.
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

    def native_name(self, name: str) -> str:
        """Return the name of a weight in the native class."""
        for pattern, replacement in self.weights:
            name = re.sub(pattern, replacement, name)
        return name


LLAMA = ("LlamaForCausalLM", "llama")
QWEN2 = ("Qwen2ForCausalLM", "qwen2")
QWEN3 = ("Qwen3ForCausalLM", "qwen3")
GPT2 = ("GPT2LMHeadModel", "gpt2")
MODERNBERT = ("ModernBertForMaskedLM", "modernbert")
LAYOUTS = (
    PublishedLayout(
        "LLaDA", "llada", LLAMA, mask_id=126336,
        required=AS_LLAMA, settings=LLADA_SETTINGS, weights=LLADA_WEIGHTS,
    ),
    PublishedLayout(
        "Dream", "dream", QWEN2, readout="left", mask_id=151666,
        required=ONE_WINDOW, needed=QWEN_NEEDED,
    ),
    PublishedLayout("Open-dCoder", "qwen2", QWEN2, readout="left", only_with_mask=True),
    PublishedLayout(
        "WeDLM-8B", "wedlm", QWEN3, method="esolm", only_if={"qk_norm": True},
        required={**ONE_WINDOW, "attention_bias": (False,)}, needed=QWEN_NEEDED,
    ),
    PublishedLayout(
        "WeDLM-7B", "wedlm", QWEN2, method="esolm",
        required={**ONE_WINDOW, "attention_bias": (True,)}, needed=QWEN_NEEDED,
    ),
    PublishedLayout(
        "SDAR", "sdar", QWEN3, method="block-mdm", mask_id=151669,
        required=ONE_WINDOW, needed=QWEN_NEEDED,
    ),
    PublishedLayout(
        "Tiny-A2D", "a2d-qwen3", QWEN3, mask_id=151669, required=ONE_WINDOW, needed=QWEN_NEEDED,
    ),
    PublishedLayout(
        "DiffuGPT", "gpt2", GPT2, readout="left", only_with_mask=True, weights=DIFFUGPT_WEIGHTS,
    ),
    PublishedLayout("ModernBERT-chat", "modernbert", MODERNBERT, only_with_mask=True),
)  # fmt: skip


def layout_of(config: Mapping[str, Json], names_mask: bool) -> PublishedLayout | None:
    """Return the layout that a config.json belongs to, or None if it is not a published one.

    `names_mask` is whether the directory names MASK.
    """
    for layout in LAYOUTS:
        is_alike = all(config.get(name) == value for name, value in layout.only_if.items())
        has_type = model_type_of(config) == layout.model_type
        if has_type and is_alike and (names_mask or not layout.only_with_mask):
            return layout
    return None


def model_type_of(config: Mapping[str, Json]) -> str:
    """Return `model_type` of a config.json."""
    return str(config.get("model_type")).lower()
