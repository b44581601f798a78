"""Directories as masked diffusion models are published: tiny and random, with their names and settings.

`reference` computes the logits of the Llama family in plain PyTorch, from the description of the network.
"""

import json
import math
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from torch.nn.functional import embedding, linear, silu

from latent_tokens import HuggingFaceDenoiser

CONFIGS = json.loads((Path(__file__).parents[1] / "data" / "published_configs.json").read_text())
MASK = 20
# Of the Llama family: the sizes in its configs, and the base of rotary positions.
LAYERS, HEADS, KV_HEADS, HEAD, ROPE = 2, 4, 2, 4, 500.0
NATIVE = {  # the class of transformers that a layout is read into, its model_type, the method and the readout
    "LLaDA": (transformers.LlamaForCausalLM, "llama", "mdm", "in_place"),
    "Dream": (transformers.Qwen2ForCausalLM, "qwen2", "mdm", "left"),
    "Open-dCoder": (transformers.Qwen2ForCausalLM, "qwen2", "mdm", "left"),
    "WeDLM-7B": (transformers.Qwen2ForCausalLM, "qwen2", "esolm", "in_place"),
    "WeDLM-8B": (transformers.Qwen3ForCausalLM, "qwen3", "esolm", "in_place"),
    "SDAR": (transformers.Qwen3ForCausalLM, "qwen3", "block-mdm-4", "in_place"),
    "Tiny-A2D": (transformers.Qwen3ForCausalLM, "qwen3", "mdm", "in_place"),
    "DiffuGPT": (transformers.GPT2LMHeadModel, "gpt2", "mdm", "left"),
    "ModernBERT-chat": (transformers.ModernBertForMaskedLM, "modernbert", "mdm", "in_place"),
}
LLADA_NAMES = {  # of the weights of a layer and around them: in LlamaForCausalLM, and as published
    "self_attn.o_proj": "attn_out",
    "self_attn.": "",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
    "model.layers.": "model.transformer.blocks.",
    "model.embed_tokens": "model.transformer.wte",
    "model.norm": "model.transformer.ln_f",
    "lm_head": "model.transformer.ff_out",
}


def native_model(name):
    """Return a random model of the native class of a layout."""
    native, family, *_ = NATIVE[name]
    config = {**CONFIGS["Dream"], "rms_norm_eps": 1e-5} if name == "LLaDA" else CONFIGS[name]
    about = ("model_type", "architectures", "torch_dtype")
    settings = {key: value for key, value in config.items() if key not in about}
    return native(transformers.AutoConfig.for_model(family, **settings)).eval()


def random_weights(name):
    """Return the weights of a checkpoint by their published names. Those of norms are near 1."""
    model = native_model(name)
    generator = torch.Generator().manual_seed(0)
    weights = {}
    for key, parameter in model.named_parameters():  # without tied ones
        is_norm = ("norm" in key or "ln_" in key) and key.endswith("weight")
        weights[key] = torch.randn(parameter.shape, generator=generator) * 0.2 + is_norm
        if name == "LLaDA":
            weights[published_name(key)] = weights.pop(key)
    return weights


def published_name(key):
    """Return the name of a weight of LLaDA."""
    for native, published in LLADA_NAMES.items():
        key = key.replace(native, published)
    return key


def write(folder, name, weights=None, shards=1, **changes):
    """Write a directory with these weights. A changed setting of None is removed from config.json."""
    folder.mkdir(exist_ok=True)
    weights = random_weights(name) if weights is None else weights
    removed = [key for key, value in changes.items() if value is None]
    config = {key: value for key, value in {**CONFIGS[name], **changes}.items() if key not in removed}
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        save_file(weights, folder / "model.safetensors")
        return
    files = [f"model-{number + 1:05}-of-{shards:05}.safetensors" for number in range(shards)]
    for number, file in enumerate(files):
        save_file(dict(list(weights.items())[number::shards]), folder / file)
    shard_of = {key: files[number % shards] for number, key in enumerate(weights)}
    index = {"metadata": {"total_size": 1}, "weight_map": shard_of}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def rms_norm(x, weight, eps):
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight


def rotate(x, positions):
    """Rotate pairs (i, i + half) of the channels of (B, H, S, D)."""
    half = x.shape[-1] // 2
    angles = positions[:, None, :, None] * ROPE ** (-torch.arange(half) / half)
    first, second = x.chunk(2, -1)
    sin, cos = angles.sin(), angles.cos()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def attend(query, key, value, mask):
    """Return (B, S, H x D) of (B, H, S, D). Keys and values have fewer heads."""
    key = key.repeat_interleave(HEADS // KV_HEADS, 1)
    value = value.repeat_interleave(HEADS // KV_HEADS, 1)
    scores = query @ key.transpose(-1, -2) / math.sqrt(HEAD)
    return (scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1) @ value).transpose(1, 2).flatten(2)


def reference(name, weights, ids, positions, mask):
    """Return the logits (B, S, V) of a published network: of the Llama family by their description."""
    if name in ("DiffuGPT", "ModernBERT-chat"):
        model = native_model(name)
        model.load_state_dict(weights, strict=False)  # without tied ones
        return HuggingFaceDenoiser(model, MASK)(ids, positions, mask)
    if name == "LLaDA":
        weights = {key: weights[published_name(key)] for key, _ in native_model(name).named_parameters()}
    return llama(weights, ids, positions, mask, eps=1e-5 if name == "LLaDA" else 1e-6)


def llama(weights, ids, positions, mask, eps):
    """RMSNorm, rotary positions and SwiGLU. Qwen2 has biases of q, k and v, Qwen3 norms of heads."""
    x = embedding(ids, weights["model.embed_tokens.weight"])
    for number in range(LAYERS):
        start = f"model.layers.{number}."
        parts = {key.removeprefix(start): value for key, value in weights.items() if key.startswith(start)}
        normed = rms_norm(x, parts["input_layernorm.weight"], eps)
        heads = []
        for part in "qkv":
            bias = parts.get(f"self_attn.{part}_proj.bias")
            flat = linear(normed, parts[f"self_attn.{part}_proj.weight"], bias)
            heads.append(flat.unflatten(-1, (-1, HEAD)).transpose(1, 2))
            if f"self_attn.{part}_norm.weight" in parts:
                heads[-1] = rms_norm(heads[-1], parts[f"self_attn.{part}_norm.weight"], eps)
        query, key, value = heads
        mixed = attend(rotate(query, positions), rotate(key, positions), value, mask)
        x = x + linear(mixed, parts["self_attn.o_proj.weight"])
        normed = rms_norm(x, parts["post_attention_layernorm.weight"], eps)
        gate = silu(linear(normed, parts["mlp.gate_proj.weight"]))
        x = x + linear(gate * linear(normed, parts["mlp.up_proj.weight"]), parts["mlp.down_proj.weight"])
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return linear(rms_norm(x, weights["model.norm.weight"], eps), head)
