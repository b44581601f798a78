"""Directories as masked diffusion models are published: tiny and random, with their names and settings.

`reference` computes the logits of each in plain PyTorch, from the description of the network.
"""

import json
import math

import torch
from safetensors.torch import save_file
from torch.nn.functional import embedding, gelu, layer_norm, linear, silu

VOCAB, WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 24, 16, 24, 2, 4, 2
HEAD = WIDTH // HEADS
MASK = 20
ROPE = 500.0
LLADA = {
    "model_type": "llada",
    "architectures": ["LLaDAModelLM"],
    "auto_map": {"AutoConfig": "configuration_llada.LLaDAConfig", "AutoModel": "modeling_llada.LLaDAModelLM"},
    "activation_type": "silu",
    "alibi": False,
    "attention_dropout": 0.0,
    "attention_layer_norm": False,
    "bias_for_layer_norm": False,
    "block_group_size": 1,
    "block_type": "llama",
    "d_model": WIDTH,
    "embedding_size": VOCAB,
    "eos_token_id": 1,
    "include_bias": False,
    "include_qkv_bias": False,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "mask_token_id": MASK,
    "max_sequence_length": 64,
    "mlp_hidden_size": INNER,
    "multi_query_attention": None,
    "n_heads": HEADS,
    "n_kv_heads": KV_HEADS,
    "n_layers": LAYERS,
    "pad_token_id": 1,
    "rms_norm_eps": 1e-5,
    "rope": True,
    "rope_theta": ROPE,
    "scale_logits": False,
    "vocab_size": VOCAB - 2,
    "weight_tying": False,
}
QWEN = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "hidden_act": "silu",
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": ROPE,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "sliding_window": None,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "pad_token_id": 1,
    "mask_token_id": MASK,
    "torch_dtype": "bfloat16",
}
QWEN3 = {**QWEN, "head_dim": HEAD, "attention_bias": False}
GPT2 = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": VOCAB,
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": 64,
    "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new",
    "bos_token_id": 1,
    "eos_token_id": 1,
    "mask_token_id": MASK,
}
MODERNBERT = {
    "model_type": "modernbert",
    "architectures": ["ModernBertForMaskedLM"],
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "max_position_embeddings": 64,
    "norm_eps": 1e-5,
    "global_rope_theta": 700.0,
    "local_rope_theta": 50.0,
    "global_attn_every_n_layers": 2,
    "local_attention": 6,
    "hidden_activation": "gelu",
    "classifier_activation": "gelu",
    **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "pad_token_id"), 1),
    "mask_token_id": MASK,
}
CONFIGS = {
    "LLaDA": LLADA,
    "Dream": {**QWEN, "model_type": "Dream", "architectures": ["DreamModel"]},
    "Open-dCoder": {**QWEN, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    "WeDLM-7B": {**QWEN, "model_type": "wedlm", "attention_bias": True, "qk_norm": False},
    "WeDLM-8B": {**QWEN3, "model_type": "wedlm", "qk_norm": True},
    "SDAR": {**QWEN3, "model_type": "sdar", "block_size": 4, "fuse_cross_entropy": True},
    "Tiny-A2D": {**QWEN3, "model_type": "a2d-qwen3", "tie_word_embeddings": True},
    "DiffuGPT": GPT2,
    "ModernBERT-chat": MODERNBERT,
}


TABLE, SQUARE, NORM = (VOCAB, WIDTH), (WIDTH, WIDTH), (WIDTH,)
KV, UP, DOWN = (KV_HEADS * HEAD, WIDTH), (INNER, WIDTH), (WIDTH, INNER)


def layers(start, parts):
    """Return the shape of each weight of all layers. The name of a layer is `start` with its number."""
    return {
        f"{start.format(number)}.{part}": shape for number in range(LAYERS) for part, shape in parts.items()
    }


def llada_shapes():
    parts = {
        "attn_norm": NORM, "q_proj": SQUARE, "k_proj": KV, "v_proj": KV, "attn_out": SQUARE,
        "ff_norm": NORM, "ff_proj": UP, "up_proj": UP, "ff_out": DOWN,
    }  # fmt: skip
    top = {"wte": TABLE, "ln_f": NORM, "ff_out": TABLE}
    return {
        **layers("model.transformer.blocks.{}", {f"{part}.weight": shape for part, shape in parts.items()}),
        **{f"model.transformer.{part}.weight": shape for part, shape in top.items()},
    }


def qwen_shapes(with_head_norms, is_tied):
    parts = {
        "input_layernorm": NORM, "self_attn.q_proj": SQUARE, "self_attn.k_proj": KV, "self_attn.v_proj": KV,
        "self_attn.o_proj": SQUARE, "post_attention_layernorm": NORM,
        "mlp.gate_proj": UP, "mlp.up_proj": UP, "mlp.down_proj": DOWN,
    }  # fmt: skip
    weights = {f"{part}.weight": shape for part, shape in parts.items()}
    if with_head_norms:
        weights |= {"self_attn.q_norm.weight": (HEAD,), "self_attn.k_norm.weight": (HEAD,)}
    else:
        weights |= {f"self_attn.{part}_proj.bias": parts[f"self_attn.{part}_proj"][:1] for part in "qkv"}
    top = {"model.embed_tokens": TABLE, "model.norm": NORM, **({} if is_tied else {"lm_head": TABLE})}
    return {**layers("model.layers.{}", weights), **{f"{part}.weight": top[part] for part in top}}


def gpt2_shapes():
    """Weights are (inputs, outputs)."""
    parts = {
        "ln_1": NORM, "attn.c_attn": (WIDTH, 3 * WIDTH), "attn.c_proj": SQUARE,
        "ln_2": NORM, "mlp.c_fc": (WIDTH, 4 * WIDTH), "mlp.c_proj": (4 * WIDTH, WIDTH),
    }  # fmt: skip
    weights = {f"{part}.weight": shape for part, shape in parts.items()}
    biases = {f"{part}.bias": shape[-1:] for part, shape in parts.items()}
    top = {"wte.weight": TABLE, "wpe.weight": (64, WIDTH), "ln_f.weight": NORM, "ln_f.bias": NORM}
    return {
        **layers("transformer.h.{}", {**weights, **biases}),
        **{f"transformer.{part}": shape for part, shape in top.items()},
    }


def modernbert_shapes():
    parts = {
        "attn_norm": NORM, "attn.Wqkv": (3 * WIDTH, WIDTH), "attn.Wo": SQUARE,
        "mlp_norm": NORM, "mlp.Wi": (2 * INNER, WIDTH), "mlp.Wo": DOWN,
    }  # fmt: skip
    shapes = layers("model.layers.{}", {f"{part}.weight": shape for part, shape in parts.items()})
    del shapes["model.layers.0.attn_norm.weight"]  # the embedding has a norm
    top = {
        "model.embeddings.tok_embeddings": TABLE, "model.embeddings.norm": NORM, "model.final_norm": NORM,
        "head.dense": SQUARE, "head.norm": NORM,
    }  # fmt: skip
    return {**shapes, **{f"{part}.weight": top[part] for part in top}, "decoder.bias": (VOCAB,)}


def random_weights(name):
    """Return the weights of a checkpoint by their published names. Those of norms are near 1."""
    config = CONFIGS[name]
    others = {"LLaDA": llada_shapes, "DiffuGPT": gpt2_shapes, "ModernBERT-chat": modernbert_shapes}
    shapes = (
        others[name]() if name in others else qwen_shapes("head_dim" in config, config["tie_word_embeddings"])
    )
    generator = torch.Generator().manual_seed(0)
    weights = {key: torch.randn(shape, generator=generator) * 0.2 for key, shape in shapes.items()}
    norms = [key for key in weights if ("norm" in key or "ln_" in key) and key.endswith("weight")]
    return weights | {key: weights[key] + 1 for key in norms}


def write(folder, name, weights=None, shards=1, **changes):
    """Write a directory with these weights. A changed setting of None is removed from config.json."""
    folder.mkdir(exist_ok=True)
    weights = random_weights(name) if weights is None else weights
    removed = [key for key, value in changes.items() if value is None]
    config = {key: value for key, value in {**CONFIGS[name], **changes}.items() if key not in removed}
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        save_file(weights, folder / "model.safetensors")
        return weights
    files = [f"model-{number + 1:05}-of-{shards:05}.safetensors" for number in range(shards)]
    for number, file in enumerate(files):
        save_file(dict(list(weights.items())[number::shards]), folder / file)
    shard_of = {key: files[number % shards] for number, key in enumerate(weights)}
    index = {"metadata": {"total_size": 1}, "weight_map": shard_of}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return weights


def rms_norm(x, weight, eps):
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight


def rotate(x, positions, base):
    """Rotate pairs (i, i + half) of the channels of (B, H, S, D)."""
    half = x.shape[-1] // 2
    angles = positions[:, None, :, None] * base ** (-torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    return torch.cat(
        [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1
    )


def attend(query, key, value, mask):
    """Return (B, S, H x D) of (B, H, S, D). Keys and values may have fewer heads."""
    repeats = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(repeats, 1)
    value = value.repeat_interleave(repeats, 1)
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    return (scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1) @ value).transpose(1, 2).flatten(2)


def heads(x):
    return x.unflatten(-1, (-1, HEAD)).transpose(1, 2)


def reference(name, weights, ids, positions, mask):
    """Return the logits (B, S, V) of a published network, by its description."""
    networks = {"LLaDA": llada, "DiffuGPT": gpt2, "ModernBERT-chat": modernbert}
    return networks.get(name, qwen)(weights, ids, positions, mask)


def llada(weights, ids, positions, mask):
    """RMSNorm, rotary positions, and SwiGLU whose gate is ff_proj."""
    top = {key.removeprefix("model.transformer."): value for key, value in weights.items()}
    x = embedding(ids, top["wte.weight"])
    for number in range(LAYERS):
        block = {key: top[f"blocks.{number}.{key}.weight"] for key in (
            "attn_norm", "q_proj", "k_proj", "v_proj", "attn_out", "ff_norm", "ff_proj", "up_proj", "ff_out"
        )}  # fmt: skip
        normed = rms_norm(x, block["attn_norm"], 1e-5)
        query = rotate(heads(linear(normed, block["q_proj"])), positions, ROPE)
        key = rotate(heads(linear(normed, block["k_proj"])), positions, ROPE)
        mixed = attend(query, key, heads(linear(normed, block["v_proj"])), mask)
        x = x + linear(mixed, block["attn_out"])
        normed = rms_norm(x, block["ff_norm"], 1e-5)
        x = x + linear(
            silu(linear(normed, block["ff_proj"])) * linear(normed, block["up_proj"]), block["ff_out"]
        )
    return linear(rms_norm(x, top["ln_f.weight"], 1e-5), top["ff_out.weight"])


def qwen(weights, ids, positions, mask):
    """As Llama, with biases of q, k and v (Qwen2) or with a norm of each head of q and k (Qwen3)."""
    x = embedding(ids, weights["model.embed_tokens.weight"])
    for number in range(LAYERS):
        start = f"model.layers.{number}."
        parts = {key.removeprefix(start): value for key, value in weights.items() if key.startswith(start)}
        normed = rms_norm(x, parts["input_layernorm.weight"], 1e-6)
        projected = {}
        for part in "qkv":
            bias = parts.get(f"self_attn.{part}_proj.bias")
            projected[part] = heads(linear(normed, parts[f"self_attn.{part}_proj.weight"], bias))
            if part != "v" and f"self_attn.{part}_norm.weight" in parts:
                projected[part] = rms_norm(projected[part], parts[f"self_attn.{part}_norm.weight"], 1e-6)
        query = rotate(projected["q"], positions, ROPE)
        mixed = attend(query, rotate(projected["k"], positions, ROPE), projected["v"], mask)
        x = x + linear(mixed, parts["self_attn.o_proj.weight"])
        normed = rms_norm(x, parts["post_attention_layernorm.weight"], 1e-6)
        gated = silu(linear(normed, parts["mlp.gate_proj.weight"])) * linear(
            normed, parts["mlp.up_proj.weight"]
        )
        x = x + linear(gated, parts["mlp.down_proj.weight"])
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    return linear(rms_norm(x, weights["model.norm.weight"], 1e-6), head)


def gpt2(weights, ids, positions, mask):
    """Learned positions, LayerNorm with bias, GELU by tanh, and weights that are (inputs, outputs)."""
    top = {key.removeprefix("transformer."): value for key, value in weights.items()}

    def norm(x, key):
        return layer_norm(x, (WIDTH,), top[f"{key}.weight"], top[f"{key}.bias"], 1e-5)

    def project(x, key):
        return x @ top[f"{key}.weight"] + top[f"{key}.bias"]

    x = embedding(ids, top["wte.weight"]) + embedding(positions, top["wpe.weight"])
    for number in range(LAYERS):
        start = f"h.{number}."
        query, key, value = project(norm(x, f"{start}ln_1"), f"{start}attn.c_attn").chunk(3, -1)
        mixed = attend(heads(query), heads(key), heads(value), mask)
        x = x + project(mixed, f"{start}attn.c_proj")
        inner = gelu(project(norm(x, f"{start}ln_2"), f"{start}mlp.c_fc"), approximate="tanh")
        x = x + project(inner, f"{start}mlp.c_proj")
    return linear(norm(x, "ln_f"), top["wte.weight"])


def modernbert(weights, ids, positions, mask):
    """LayerNorm without bias, GeGLU, and every other layer within 3 positions with its own rotary base."""

    def norm(x, key):
        return layer_norm(x, (WIDTH,), weights[f"{key}.weight"], None, 1e-5)

    table = weights["model.embeddings.tok_embeddings.weight"]
    x = norm(embedding(ids, table), "model.embeddings.norm")
    near = (positions[:, :, None] - positions[:, None, :]).abs() <= 3
    for number in range(LAYERS):
        start = f"model.layers.{number}."
        normed = norm(x, f"{start}attn_norm") if number else x
        query, key, value = linear(normed, weights[f"{start}attn.Wqkv.weight"]).chunk(3, -1)
        base, seen = (50.0, mask & near) if number % 2 else (700.0, mask)
        mixed = attend(
            rotate(heads(query), positions, base), rotate(heads(key), positions, base), heads(value), seen
        )
        x = x + linear(mixed, weights[f"{start}attn.Wo.weight"])
        gate, up = linear(norm(x, f"{start}mlp_norm"), weights[f"{start}mlp.Wi.weight"]).chunk(2, -1)
        x = x + linear(gelu(gate) * up, weights[f"{start}mlp.Wo.weight"])
    x = norm(gelu(linear(norm(x, "model.final_norm"), weights["head.dense.weight"])), "head.norm")
    return linear(x, table, weights["decoder.bias"])
