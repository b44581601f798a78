"""How much of a batch a network works on at once, so that any batch fits."""

from __future__ import annotations

import torch

from latent_tokens.network.transformer import Transformer

DECODING_BYTES = 1 << 28  # on a CPU: more does not make it faster
TRAINING_BYTES = 1 << 32  # on a CPU
DEVICE_SHARE = 0.5  # of an accelerator's memory; elsewhere the bytes above


def decoding_rows(net: Transformer, candidates: int, length: int) -> int:
    """Rows of `length` slots to decode at once, at least one: hidden states, mask, cache, and candidates' logits in float64."""
    width, element = net.size.width, net.head.weight.element_size()
    hidden, cache, mask = 16 * width * element, 2 * net.size.layers * width * element, 5 * length
    return max(
        1,
        room(net, DECODING_BYTES)
        // max(1, length * (hidden + cache + mask) + 40 * candidates * net.head.out_features),
    )


def training_rows(net: Transformer, slots: int) -> int:
    """Rows of so many slots to learn from at once, at least one: what every layer keeps for its gradient, in float32, and the logits."""
    layer = 20 * 4 * net.size.width + 4 * net.size.heads * slots
    return max(
        1, room(net, TRAINING_BYTES) // max(1, slots * (net.size.layers * layer + 16 * net.head.out_features))
    )


def room(net: Transformer, on_cpu: int) -> int:
    """Bytes that one part of a batch may take. It depends on the device, never on what else runs there: parts come out again."""
    device = net.head.weight.device
    return (
        int(DEVICE_SHARE * torch.cuda.get_device_properties(device).total_memory)
        if device.type == "cuda"
        else on_cpu
    )
