"""Fingerprints of models: logits that tell whether weights, settings and code belong together."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from latent_tokens.core import attention
from latent_tokens.core.layout import Layout
from latent_tokens.network.transformer import Transformer
from latent_tokens.storage import Json

FINGERPRINT = 16  # positions
CLOSE = 1e-2  # logits of two machines are closer, of two models are not


@torch.inference_mode()
def fingerprint(net: Transformer) -> list[float]:
    """Return sums over the logits of a fixed small problem, with three sets of weights.

    They tell whether weights, settings and code belong together. Raise ValueError if the logits are not
    finite.
    """
    count = min(net.max_length, FINGERPRINT)
    device = net.head.weight.device
    positions = torch.arange(count, device=device)[None]
    tokens = positions * (net.vocab_size // 3 + 1) % net.vocab_size
    layout = Layout(
        positions, torch.tensor([count // 2], device=device), torch.tensor([count], device=device)
    )
    logits = net(
        net.method.input_ids(tokens, layout, net.mask_id),
        layout.positions,
        attention.dense_mask(net.method.attention, layout),
    )
    waves = (
        torch.cos(torch.outer(torch.arange(logits.shape[-1]), torch.arange(1.0, 4))) / logits.shape[-1] ** 0.5
    )
    sums = (logits[0].cpu().double() @ waves.double()).flatten().tolist()
    if not all(map(math.isfinite, sums)):
        raise ValueError("its logits are not finite: the weights have diverged, or are corrupt")
    return [round(value, 4) for value in sums]


def check_fingerprint(net: Transformer, stored: Json, folder: Path, close: float = CLOSE) -> None:
    """Raise ValueError if the model's fingerprint differs from the stored one by `close` or more."""
    if stored is None:
        return
    try:
        apart = (torch.tensor(fingerprint(net)) - torch.tensor(stored)).abs().max().item()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{folder / 'config.json'}: corrupt (fingerprint: {error}). Import the model again."
        ) from None
    if not apart < close:
        raise ValueError(
            f"{folder}: its logits differ by {apart:.2g} from those it was saved with: "
            "its weights or config were changed. Import it again."
        )
