"""The published network, a DiT, written from its description for tests, and its Lightning checkpoints."""

import torch
import torch.nn.functional as F
from torch import nn


class Published(nn.Module):
    """Logits of (ids, positions, mask) with adaptive LayerNorms at noise level 0."""

    def __init__(self, width=32, heads=4, layers=2, cond=16, vocab=21, waves=256):
        super().__init__()
        self.heads = heads
        linear = nn.Linear
        self.vocab_embed = nn.Module()
        self.vocab_embed.embedding = nn.Parameter(torch.randn(vocab, width))
        self.sigma_map = nn.Module()
        self.sigma_map.mlp = nn.Sequential(linear(waves, cond), nn.SiLU(), linear(cond, cond))
        self.rotary_emb = nn.Module()
        self.rotary_emb.register_buffer(
            "inv_freq", 1 / 10_000 ** (torch.arange(0, width // heads, 2) / (width // heads))
        )
        self.blocks = nn.ModuleList()
        for _ in range(layers):
            block = nn.Module()
            block.norm1, block.norm2 = nn.Module(), nn.Module()
            block.norm1.weight, block.norm2.weight = (
                nn.Parameter(torch.randn(width)),
                nn.Parameter(torch.randn(width)),
            )
            block.attn_qkv, block.attn_out = (
                linear(width, 3 * width, bias=False),
                linear(width, width, bias=False),
            )
            block.mlp = nn.Sequential(
                linear(width, 4 * width), nn.GELU(approximate="tanh"), linear(4 * width, width)
            )
            block.adaLN_modulation = linear(cond, 6 * width)
            self.blocks.append(block)
        self.output_layer = nn.Module()
        self.output_layer.norm_final = nn.Module()
        self.output_layer.norm_final.weight = nn.Parameter(torch.randn(width))
        self.output_layer.linear = linear(width, vocab)
        self.output_layer.adaLN_modulation = linear(cond, 2 * width)

    def forward(self, ids, positions, mask):
        angles = torch.zeros(self.sigma_map.mlp[0].in_features // 2)  # the noise level times frequencies
        cond = F.silu(self.sigma_map.mlp(torch.cat([angles.cos(), angles.sin()])))
        x = self.vocab_embed.embedding[ids]
        angles = positions[..., None] * self.rotary_emb.inv_freq
        cos, sin = (
            torch.cat([angles, angles], -1).cos()[:, None],
            torch.cat([angles, angles], -1).sin()[:, None],
        )

        def turn(y):
            first, second = y.chunk(2, -1)
            return y * cos + torch.cat([-second, first], -1) * sin

        def norm(y, weight):
            return F.layer_norm(y, y.shape[-1:], eps=1e-5) * weight

        for block in self.blocks:
            shift1, scale1, gate1, shift2, scale2, gate2 = block.adaLN_modulation(cond).chunk(6)
            q, k, v = (
                block.attn_qkv(norm(x, block.norm1.weight) * (1 + scale1) + shift1)
                .unflatten(-1, (3, self.heads, -1))
                .permute(2, 0, 3, 1, 4)
            )
            scores = turn(q) @ turn(k).transpose(-1, -2) / q.shape[-1] ** 0.5
            mixed = scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1) @ v
            x = x + gate1 * block.attn_out(mixed.transpose(1, 2).flatten(2))
            x = x + gate2 * block.mlp(norm(x, block.norm2.weight) * (1 + scale2) + shift2)
        shift, scale = self.output_layer.adaLN_modulation(cond).chunk(2)
        return self.output_layer.linear(norm(x, self.output_layer.norm_final.weight) * (1 + scale) + shift)


def lightning(net, averages, mode="causal", length=64, **more):
    """Return a Lightning checkpoint of the net, with real objects of other libraries next to the weights."""
    from omegaconf import OmegaConf
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    model = {
        "name": "small",
        "n_heads": net.heads,
        "length": length,
        "hidden_size": 32,
        "dropout": "${more.dropout}",
    }
    algo = {
        "name": "esolm",
        "diffusion_attn_mode": mode,
        "time_conditioning": False,
        "causal_attention": False,
        "alpha_0": 1,
    }
    config = OmegaConf.create(
        {"model": model, "algo": {**algo, **more}, "more": {"dropout": 0.1, "betas": [0.9, 0.999]}}
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE({"a": 0}, [])))
    state = {f"backbone.{name}": tensor for name, tensor in net.state_dict().items()}
    return {
        "epoch": 0,
        "global_step": 5,
        "pytorch-lightning_version": "2.5.0",
        "state_dict": state,
        "loops": {"fit_loop": {"state_dict": {}}},
        "callbacks": {
            "ModelCheckpoint": {"best_model_path": "x.ckpt", "best_model_score": torch.tensor(3.0)}
        },
        "optimizer_states": [
            {"state": {0: {"step": torch.tensor(5.0)}}, "param_groups": [{"lr": 3e-4, "betas": (0.9, 0.999)}]}
        ],
        "lr_schedulers": [],
        "hparams_name": "kwargs",
        "hyper_parameters": {"config": config, "tokenizer": tokenizer},
        "ema": {"decay": 0.9999, "num_updates": 5, "shadow_params": averages},
        "sampler": {"random_state": None},
    }
