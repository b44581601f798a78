"""Random networks of `transformers` of every tested family, of a few thousand weights."""

import torch
import transformers

VOCAB = 12
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "initializer_range": 0.3,  # so that logits differ
}
GROUPED = {**SHAPE, "num_key_value_heads": 1}
SLIDING = {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}
# The family, with the class of its config, and what this has beyond the shape.
DECODERS = {
    "llama": ("Llama", GROUPED),
    "mistral": ("Mistral", {**GROUPED, "sliding_window": None}),
    "olmo2": ("Olmo2", GROUPED),
    "qwen2": ("Qwen2", GROUPED),
    "qwen3": ("Qwen3", {**GROUPED, "head_dim": 8}),
    "smollm3": ("SmolLM3", {**GROUPED, "no_rope_layers": [1, 0]}),
    "gemma3_text": ("Gemma3", {**GROUPED, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 64}),
    "gpt2": ("GPT2", SHAPE),
    "gpt_neox": ("GPTNeoX", SHAPE),
}
ENCODERS = {
    "bert": ("Bert", SHAPE),
    "modernbert": ("ModernBert", {**SHAPE, "local_attention": 64}),
    "eurobert": ("EuroBert", GROUPED),
}
WITH_WINDOW = {
    "mistral": {"sliding_window": 3},
    "qwen2": {**SLIDING, "use_sliding_window": True},
    "qwen3": {**SLIDING, "use_sliding_window": True},
    "smollm3": {**SLIDING, "use_sliding_window": True},
    "gemma3_text": SLIDING,
    "modernbert": {"local_attention": 6, "layer_types": SLIDING["layer_types"]},
}


def tiny_model(family, attention="sdpa", dtype=torch.float32, **changes):
    """Return a random model in eval mode. The weights depend on nothing but the family and the config."""
    name, settings = {**DECODERS, **ENCODERS}[family]
    config_name = "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config"
    config = getattr(transformers, config_name)(**{**settings, **changes}, attn_implementation=attention)
    suffix = {"gpt2": "LMHeadModel"}.get(family, "ForMaskedLM" if family in ENCODERS else "ForCausalLM")
    torch.manual_seed(0)
    return getattr(transformers, name + suffix)(config).eval().to(dtype)
