"""The training loss: one function for every method. `loss` of examples/minimal.py is its short form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latent_tokens.core.denoiser import (
    Denoiser,
    as_denoiser,
    check_length,
    check_rows,
    check_vocabulary,
)
from latent_tokens.core.layout import Layout
from latent_tokens.core.method import Method, checked_method


@dataclass(frozen=True)
class TrainingBatch:
    """A corrupted batch: the layout of its input, the slots that are scored, and their weight in the loss."""

    tokens: Int[Tensor, "B L"]
    layout: Layout
    scored: Bool[Tensor, "B S"]
    weight: Float[Tensor, " B"]  # of each scored slot of a row

    def take(self, rows: Int[Tensor, " R"]) -> TrainingBatch:
        """Return some rows, without the padding that none of them needs.

        The losses of all rows add up to that of the batch.
        """
        layout = self.layout.take(rows)
        scored = self.scored[rows, : layout.positions.shape[1]]
        return TrainingBatch(self.tokens[rows], layout, scored, self.weight[rows])

    def to(self, device: torch.device) -> TrainingBatch:
        """Return the batch on a device. Copies to an accelerator are asynchronous."""

        def move(x: Tensor | None) -> Any:
            if x is None:
                return None
            x = x.pin_memory() if device.type == "cuda" else x
            return x.to(device, non_blocking=device.type == "cuda")

        layout = Layout(**{name: move(value) for name, value in vars(self.layout).items()})
        return TrainingBatch(move(self.tokens), layout, move(self.scored), move(self.weight))


def loss(
    net: Denoiser | nn.Module,
    method: Method,
    tokens: Int[Tensor, "B L"],
    known: Bool[Tensor, "B L"],
    generator: torch.Generator | None = None,
    *,
    lengths: Int[Tensor, " B"] | None = None,
) -> Float[Tensor, ""]:
    """Return the method's loss on a batch in nats per token, from one forward pass.

    See appendix B, D-4, loss weight, and D-5, AR-MTP normalization. With weight="elbo" it is, for
    an any-order method, an unbiased estimate of the negative ELBO per unknown token. With "flat" it
    is the sum over targets divided by the number of unknown positions.

    Args:
        net: the network, also in a wrapper: DDP, torch.compile or PEFT.
        method: how to train it.
        tokens: complete sequences.
        known: true at given positions, which are never masked.
        generator: draws orders and numbers of clean tokens. None is torch's own, which
            `torch.manual_seed` seeds.
        lengths: the length of each row. Later positions take no part.

    Raises:
        ValueError: the batch is empty, a row has no unknown position, a token is MASK, or the method
            cannot take the known positions.

    Example:
        >>> tokens, known, _ = as_tensors(task.generate(2, seed=0))
        >>> loss(net, net.method, tokens, known, torch.Generator().manual_seed(0)).shape
        torch.Size([])
    """
    method = checked_method(net, method)
    lengths = torch.full_like(tokens[..., 0], tokens.shape[-1]) if lengths is None else lengths
    check_rows(tokens, {"known": known}, lengths=lengths)
    check_length(net, tokens.shape[1])
    net = as_denoiser(net)
    generator = torch.default_generator if generator is None else generator
    batch = corrupt(method, tokens, known, generator, mask_id=net.mask_id, lengths=lengths)
    check_vocabulary(
        net, tokens[torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]]
    )
    return weighted_nll(net, method, batch)


def corrupt(
    method: Method,
    tokens: Int[Tensor, "B L"],
    known: Bool[Tensor, "B L"],
    generator: torch.Generator,
    *,
    mask_id: int,
    lengths: Int[Tensor, " B"] | None = None,
    ends: Int[Tensor, " B"] | None = None,
) -> TrainingBatch:
    """Draw the random part of `loss`: orders, numbers of clean tokens, and so which slots are scored.

    A slot weighs 1 over the number of scored ones of its row, or of unknown ones with weight="flat",
    and over the size of the batch. At most ends - 1 tokens of a row are clean, by default
    lengths - 1. Raises as `loss`.
    """
    tokens = tokens.long()
    batch, length = tokens.shape
    if batch == 0:
        raise ValueError("tokens: has no rows. A loss needs at least one sequence.")
    lengths = torch.full((batch,), length, device=tokens.device) if lengths is None else lengths
    inside = torch.arange(length, device=tokens.device) < lengths[:, None]
    known = known & inside
    num_unknown = lengths - known.sum(1)
    if (num_unknown < 1).any():
        raise ValueError(f"row {int(num_unknown.argmin())} has no unknown position to predict")
    if (inside & (tokens == mask_id)).any():
        raise ValueError(f"token {mask_id} is MASK: tokens must be complete sequences")
    method.check_known(known)
    layout = method.draw(known, lengths, generator, ends)
    scored = layout.shown & ~layout.clean
    if method.targets == "next":
        scored &= layout.slots == layout.num_shown[:, None] - 1
    divisor = scored.sum(1) if method.weight == "elbo" else num_unknown
    return TrainingBatch(tokens, layout, scored, 1 / divisor / batch)


def weighted_nll(net: Denoiser, method: Method, batch: TrainingBatch) -> Float[Tensor, ""]:
    """Return the weighted negative log-likelihood of the scored tokens: the network's part of `loss`."""
    logits = method.logits_at(batch.scored, net, batch.tokens, batch.layout)
    targets = batch.tokens.gather(1, batch.layout.positions)[batch.scored]
    nll = cross_entropy(logits, targets)
    return (nll * batch.weight[:, None].expand_as(batch.scored)[batch.scored]).sum()


def cross_entropy(logits: Float[Tensor, "N V"], targets: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Return the nats of each target, infinite for a token without a column."""
    columns = logits.shape[-1]
    nats = F.cross_entropy(logits.float(), targets.clamp(max=columns - 1), reduction="none")
    return nats.masked_fill(targets >= columns, torch.inf)
