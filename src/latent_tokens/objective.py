"""The training loss: one function for every method."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.methods import Denoiser, Method


def loss(
    net: Denoiser,
    method: Method,
    tokens: Int[Tensor, "B L"],
    known: Bool[Tensor, "B L"],
    generator: torch.Generator,
    *,
    lengths: Int[Tensor, " B"] | None = None,
) -> Float[Tensor, ""]:
    """The method's loss on a batch, in nats a token, from one forward pass (appendix B; decisions 4 and 5).

    With weight="elbo" it is, for an any-order method, an unbiased estimate of the negative ELBO per unknown token; with
    "flat" the sum over targets divided by the number of unknown positions. Positions from lengths[b] on take no part.
    Raises ValueError where a row has nothing unknown, a target is MASK, or the method cannot take what is known.
    """
    tokens, (batch, length) = tokens.long(), tokens.shape
    lengths = torch.full((batch,), length, device=tokens.device) if lengths is None else lengths
    inside = torch.arange(length, device=tokens.device) < lengths[:, None]
    known, unknown = known & inside, lengths - (known & inside).sum(1)
    if (unknown < 1).any():
        raise ValueError(f"row {int(unknown.argmin())} has no unknown position: there is nothing to predict in it")
    if (inside & (tokens == net.mask_id)).any():
        raise ValueError(f"token {net.mask_id} is MASK: tokens must be whole sequences, what is masked is drawn here")
    method.check_known(known)
    layout = method.draw(known, lengths, generator)
    logits = method.logits(net, tokens, layout)
    last = layout.num_clean + 1 if method.targets == "next" else layout.num_shown
    scored = ~layout.clean & (layout.slots < last[:, None])  # (B, S)
    nll = F.cross_entropy(logits[scored].float(), tokens.gather(1, layout.positions)[scored], reduction="none")
    weight = 1 / (scored.sum(1) if method.weight == "elbo" else unknown)
    return (nll * weight[:, None].expand_as(scored)[scored]).sum() / batch
