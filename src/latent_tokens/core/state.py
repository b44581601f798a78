"""The state of a batch between two decoding steps, and the checks before the first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latent_tokens.core.blocks import block_of, check_blocks
from latent_tokens.core.decoding import Decoding, blocks_of, order_of
from latent_tokens.core.decoding_checks import check_decoding
from latent_tokens.core.methods import Denoiser, Method
from latent_tokens.core.order import first_order
from latent_tokens.core.partition import sizes_of_steps
from latent_tokens.core.streams import Streams


@dataclass
class State:
    """B rows between two steps. `decode` changes it in place."""

    tokens: Int[Tensor, "B L"]  # MASK where masked
    order: Int[Tensor, "B L"]  # the first num_clean entries are clean, those up to the length are masked
    num_clean: Int[Tensor, " B"]
    lengths: Int[Tensor, " B"]
    sizes: Int[Tensor, "B T"]  # how many tokens each step of a row decodes
    steps: Int[Tensor, " B"]  # steps taken
    processed: Int[Tensor, " B"]  # tokens processed, summed over steps
    streams: Streams

    @property
    def num_masked(self) -> Int[Tensor, " B"]:
        """The number of masked tokens of each row."""
        return self.lengths - self.num_clean

    def update(
        self,
        rows: Int[Tensor, " A"] | None,
        tokens: Int[Tensor, "A L"],
        order: Int[Tensor, "A L"],
        count: Int[Tensor, " A"],
        num_shown: Int[Tensor, " A"],
    ) -> None:
        """Take a step of some rows.

        Args:
            rows: the rows. None is all, whose new tensors replace those of the state without a copy.
            tokens: their tokens after the step.
            order: their order after the step.
            count: how many tokens each of them decoded.
            num_shown: how many slots the network processed of each.
        """
        if rows is None:
            self.tokens = tokens
            self.order = order
            self.num_clean = self.num_clean + count
            self.steps = self.steps + 1
            self.processed = self.processed + num_shown
        else:
            self.tokens[rows] = tokens
            self.order[rows] = order
            self.num_clean[rows] += count
            self.steps[rows] += 1
            self.processed[rows] += num_shown


def start(
    net: Denoiser,
    method: Method,
    tokens: Int[Tensor, "B L"],
    known: Bool[Tensor, "B L"],
    decoding: Decoding,
    seed: int,
    rows: Int[Tensor, " B"] | None,
    lengths: Int[Tensor, " B"] | None,
) -> State:
    """Return the state before the first step, with the first order and the step sizes drawn.

    Raises as `generate`.
    """
    tokens = tokens.long()
    batch, length = tokens.shape
    everyone = torch.arange(batch, device=tokens.device)
    lengths = torch.full_like(everyone, length) if lengths is None else lengths
    rows = everyone if rows is None else rows

    # Check the request.
    check_decoding(method, decoding)
    check_shapes(tokens, known, lengths, rows)
    inside = torch.arange(length, device=tokens.device) < lengths[:, None]
    known = known & inside
    check_known(net, method, tokens, known)

    # Draw the first order, then the step sizes.
    masked = ~known & inside
    streams = Streams(seed, rows)
    draw = partial(streams.uniform, everyone, masked.sum(1))
    order = first_order(order_of(method, decoding), known, lengths, draw)
    sizes = sizes_of_steps(decoding.tokens_per_step, masked, draw)
    if blocks_of(method, decoding) is not None and sizes.numel():
        sizes = sizes[:, :1].expand(-1, length)  # a step ends with its block, so there may be more of them
    block = block_of(method.attention)
    if block is not None:
        check_blocks(order, known.sum(1), lengths, block)

    return State(
        tokens=tokens.masked_fill(masked, net.mask_id),
        order=order,
        num_clean=known.sum(1),
        lengths=lengths,
        sizes=sizes,
        steps=torch.zeros_like(lengths),
        processed=torch.zeros_like(lengths),
        streams=streams,
    )


def check_shapes(tokens: Tensor, known: Tensor, lengths: Tensor, rows: Tensor) -> None:
    """Raise ValueError if the shapes of the rows to decode do not match."""
    batch, length = tokens.shape
    if known.shape != tokens.shape or lengths.shape != (batch,) or rows.shape != (batch,):
        shapes = f"known {tuple(known.shape)}, lengths {tuple(lengths.shape)}, rows {tuple(rows.shape)}"
        raise ValueError(
            f"tokens {(batch, length)} with {shapes}: "
            "known must be of the shape of tokens, lengths and rows of its first"
        )
    if ((lengths < 0) | (lengths > length)).any():
        raise ValueError(f"lengths={lengths.tolist()}: must lie in 0..{length}")


def check_known(net: Denoiser, method: Method, tokens: Tensor, known: Tensor) -> None:
    """Raise ValueError if a known position holds no token, or the method cannot take the known positions."""
    wrong = known & ((tokens < 0) | (tokens == net.mask_id))
    if wrong.any():
        row, position = wrong.nonzero()[0].tolist()
        token = int(tokens[row, position])
        raise ValueError(
            f"row {row}, position {position}: token {token} is not in the vocabulary. "
            "Set known to false there."
        )
    method.check_known(known)
