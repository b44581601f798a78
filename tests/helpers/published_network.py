"""The published network, a DiT, written from its description for tests, and its Lightning checkpoints."""

import torch
import torch.nn.functional as F
from torch import nn


def scale_of(width):
    """Return the learned scale of a norm."""
    norm = nn.Module()
    norm.weight = nn.Parameter(torch.randn(width))
    return norm


class Block(nn.Module):
    def __init__(self, width, cond):
        super().__init__()
        self.norm1 = scale_of(width)
        self.norm2 = scale_of(width)
        self.attn_qkv = nn.Linear(width, 3 * width, bias=False)
        self.attn_out = nn.Linear(width, width, bias=False)
        gelu = nn.GELU(approximate="tanh")
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), gelu, nn.Linear(4 * width, width))
        self.adaLN_modulation = nn.Linear(cond, 6 * width)


class Published(nn.Module):
    """Logits of (ids, positions, mask) with adaptive LayerNorms at noise level 0."""

    def __init__(self, width=32, heads=4, layers=2, cond=16, vocab=21, waves=256):
        super().__init__()
        self.heads = heads
        self.vocab_embed = nn.Module()
        self.vocab_embed.embedding = nn.Parameter(torch.randn(vocab, width))
        self.sigma_map = nn.Module()
        self.sigma_map.mlp = nn.Sequential(nn.Linear(waves, cond), nn.SiLU(), nn.Linear(cond, cond))
        self.rotary_emb = nn.Module()
        half = torch.arange(0, width // heads, 2) / (width // heads)
        self.rotary_emb.register_buffer("inv_freq", 1 / 10_000**half)
        self.blocks = nn.ModuleList(Block(width, cond) for _ in range(layers))
        self.output_layer = nn.Module()
        self.output_layer.norm_final = scale_of(width)
        self.output_layer.linear = nn.Linear(width, vocab)
        self.output_layer.adaLN_modulation = nn.Linear(cond, 2 * width)

    def forward(self, ids, positions, mask):
        angles = torch.zeros(self.sigma_map.mlp[0].in_features // 2)  # the noise level times frequencies
        cond = F.silu(self.sigma_map.mlp(torch.cat([angles.cos(), angles.sin()])))
        x = self.vocab_embed.embedding[ids]
        angles = (positions[..., None] * self.rotary_emb.inv_freq).repeat(1, 1, 2)[:, None]

        def turn(y):
            first, second = y.chunk(2, -1)
            return y * angles.cos() + torch.cat([-second, first], -1) * angles.sin()

        def modulated(y, norm, shift, scale):
            return F.layer_norm(y, y.shape[-1:], eps=1e-5) * norm.weight * (1 + scale) + shift

        for block in self.blocks:
            shift1, scale1, gate1, shift2, scale2, gate2 = block.adaLN_modulation(cond).chunk(6)
            qkv = block.attn_qkv(modulated(x, block.norm1, shift1, scale1))
            q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            scores = turn(q) @ turn(k).transpose(-1, -2) / q.shape[-1] ** 0.5
            mixed = scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1) @ v
            x = x + gate1 * block.attn_out(mixed.transpose(1, 2).flatten(2))
            x = x + gate2 * block.mlp(modulated(x, block.norm2, shift2, scale2))
        output = self.output_layer
        return output.linear(modulated(x, output.norm_final, *output.adaLN_modulation(cond).chunk(2)))


def lightning(net, averages, mode="causal", length=64):
    """Return a Lightning checkpoint of the net, with real objects of other libraries next to the weights."""
    from omegaconf import OmegaConf
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    model = {"name": "small", "n_heads": net.heads, "length": length, "hidden_size": 32}
    algo = {"name": "esolm", "diffusion_attn_mode": mode, "time_conditioning": False}
    algo |= {"causal_attention": False, "alpha_0": 1}
    more = {"dropout": 0.1, "betas": [0.9, 0.999]}
    config = {"model": {**model, "dropout": "${more.dropout}"}, "algo": algo, "more": more}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE({"a": 0}, [])))
    optimizer = {"state": {0: {"step": torch.tensor(5.0)}}, "param_groups": [{"betas": (0.9, 0.999)}]}
    return {
        "epoch": 0,
        "global_step": 5,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": {f"backbone.{name}": tensor for name, tensor in net.state_dict().items()},
        "loops": {"fit_loop": {"state_dict": {}}},
        "callbacks": {"ModelCheckpoint": {"best_model_score": torch.tensor(3.0)}},
        "optimizer_states": [optimizer],
        "hyper_parameters": {"config": OmegaConf.create(config), "tokenizer": tokenizer},
        "ema": {"decay": 0.9999, "num_updates": 5, "shadow_params": averages},
        "sampler": {"random_state": None},
    }
