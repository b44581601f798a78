"""The exact nats of held-out sequences along decoding orders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from latent_tokens.checks import check_choice
from latent_tokens.configs.sampling import block_in
from latent_tokens.core.decoding import Count
from latent_tokens.core.method import Method
from latent_tokens.core.order import (
    Order,
    any_order,
    block_of,
    blockwise,
    first_order,
    is_random,
    left_to_right,
)
from latent_tokens.core.policies import LatentPolicy, nearest
from latent_tokens.core.state import Streams
from latent_tokens.data.splits import chunks_of
from latent_tokens.data.tensors import as_tensors
from latent_tokens.evaluation.problems import device_of
from latent_tokens.network.likelihood import token_scores
from latent_tokens.network.transformer import Transformer
from latent_tokens.tasks import Examples, Text

ROWS = 32  # sequences per batch


def nats_along_orders(
    net: Transformer,
    examples: Examples,
    *,
    orders: int = 1,
    order: str | None = None,
    latents: Count | None = None,
    seed: int = 0,
    report: Callable[[int], None] = lambda done: None,
    off_distribution: bool = False,
    latent_policy: LatentPolicy = nearest,
) -> NDArray[np.float64]:
    """Return the negative log-likelihood of N sequences along K orders, in nats (K, N).

    K is 1 from left to right. Sequence i has the random orders of (seed, i) for any number of latents. The
    mean over uniform orders is the bound (ELBO) that masked diffusion models are trained on.

    Args:
        net: the network, with its method.
        examples: N complete sequences.
        orders: the number K of orders. 1 if `order` is left_to_right.
        order: uniform, left_to_right or blockwise:N. None is the method's own.
        latents: n, or a function of the number of masked tokens. None is the method's own number.
        seed: of the random orders, and of a random latent policy.
        report: receives the number of sequences of each batch.
        off_distribution: as for `log_likelihood`.
        latent_policy: which masked tokens are the n.

    Raises:
        ValueError: as `log_likelihood`.

    Example:
        >>> nats_along_orders(net, task.generate(2, seed=0), orders=3, latents=4).shape
        (3, 2)
    """
    # Choose the orders.
    method = net.method
    device = device_of(net)
    if method is None:
        raise ValueError(
            "net.method=None: the net has no method. Set it to the one that it was trained with."
        )
    schedule = schedule_for(method, order)
    count = orders if is_random(schedule) else 1

    # Compute the nats, one batch and one order at a time.
    nats = np.empty((count, len(examples.tokens)))
    for start, part in zip(range(0, len(examples.tokens), ROWS), chunks_of(examples, ROWS), strict=True):
        tokens, known, lengths = as_tensors(part, device)
        rows = torch.arange(start, start + len(tokens), device=device)
        streams = Streams(seed, rows)
        draw = partial(streams.uniform, rows - start, torch.full_like(rows, tokens.shape[1]))
        arranged = [first_order(schedule, known, lengths, draw) for _ in range(count)]
        for number, along in enumerate(arranged):
            scored = token_scores(
                net,
                method,
                tokens,
                along,
                known.sum(1),
                lengths,
                latents,
                latent_policy=latent_policy,
                streams=streams,
                off_distribution=off_distribution,
            )
            nats[number, start : start + len(tokens)] = -scored.log_probabilities.sum(1).cpu()
            report(len(tokens))
    return nats


def schedule_for(method: Method, order: str | None) -> Order:
    """Return the order of a name: uniform, left_to_right or blockwise:N.

    None is uniform, or left_to_right if the method decodes so. Under a rule with blocks, uniform is the order
    of the method.

    Raises:
        ValueError: the name is unknown, or the method decodes from left to right only.
    """
    check_order(order)
    if order not in (None, "left_to_right") and method.is_left_to_right:
        raise ValueError(
            f"order={order}: this method decodes from left to right only. "
            "Use order=left_to_right, or esolm, scdm or mdm."
        )
    block = block_in(order)
    if order == "left_to_right" or method.is_left_to_right:
        return left_to_right
    if block is not None:
        return blockwise(block)
    return any_order if block_of(method.attention) is None else method.order


def check_order(order: str | None) -> None:
    """Raise ValueError if there is no likelihood along an order of this name."""
    if block_in(order) is None:
        check_choice("order", order, (None, "uniform", "left_to_right", "blockwise:N"))


def num_bytes(task: Text, examples: Examples) -> int:
    """Return the bytes of the text of the unknown tokens, without ends of document."""
    is_text = (examples.tokens != task.coder.end) & ~examples.known
    rows = zip(examples.tokens, is_text, strict=True)
    return sum(len(task.inside(tokens[kept].tolist()).encode()) for tokens, kept in rows)
