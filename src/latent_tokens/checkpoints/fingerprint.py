"""Fingerprints of models: logits that tell whether weights, settings and code belong together."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from latent_tokens.core import attention
from latent_tokens.core.layout import Layout
from latent_tokens.network.transformer import Transformer

FINGERPRINT = 16  # positions
CLOSE = 1e-2  # logits of two machines are closer, of two models are not


@torch.inference_mode()
def fingerprint(net: Transformer) -> list[float]:
    """Return sums over the logits of a fixed small problem, with three sets of weights.

    They tell whether weights, settings and
    code belong together. Raises ValueError where the logits are not finite.
    """
    count, device = min(net.max_length, FINGERPRINT), net.head.weight.device
    places = torch.arange(count, device=device)[None]
    tokens = places * (net.vocab_size // 3 + 1) % net.vocab_size
    layout = Layout(places, torch.tensor([count // 2], device=device), torch.tensor([count], device=device))
    logits = net(
        net.method.input_ids(tokens, layout, net.mask_id),
        layout.positions,
        attention.dense_mask(net.method.attention, layout),
    )
    waves = (
        torch.cos(torch.outer(torch.arange(logits.shape[-1]), torch.arange(1.0, 4))) / logits.shape[-1] ** 0.5
    )
    found = (logits[0].cpu().double() @ waves.double()).flatten().tolist()
    if not all(map(math.isfinite, found)):
        raise ValueError("its logits are not finite: the weights have diverged, or are damaged")
    return [round(value, 4) for value in found]


def check_fingerprint(net: Transformer, wanted: Any, folder: Path, close: float = CLOSE) -> None:
    """Raises ValueError where a folder has a fingerprint and its model's is further from it than `close`."""
    if wanted is None:
        return
    try:
        apart = (torch.tensor(fingerprint(net)) - torch.tensor(wanted)).abs().max().item()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{folder / 'config.json'}: damaged (fingerprint: {error}); import the model again"
        ) from None
    if not apart < close:
        raise ValueError(
            f"{folder}: its logits differ by {apart:.2g} from those it was saved with; "
            "weights or config were changed, import it again"
        )
