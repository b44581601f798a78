"""The training loss: one function for every method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.layout import Layout, of_like_length
from latent_tokens.methods import Denoiser, Method


@dataclass(frozen=True)
class Drawn:
    """A batch as training asks about it: what is shown, which slots are scored, and what each of them weighs in the loss."""

    tokens: Int[Tensor, "B L"]
    layout: Layout
    scored: Bool[Tensor, "B S"]
    weight: Float[Tensor, " B"]  # of each scored slot of a row

    def take(self, rows: Int[Tensor, " R"]) -> Drawn:
        """These rows of it, without the padding that none of them needs: their losses add up to that of the whole."""
        shown = self.layout.num_shown[rows]
        width = int(shown.max())
        layout = Layout(self.layout.positions[rows, :width], self.layout.num_clean[rows], shown)
        return Drawn(self.tokens[rows], layout, self.scored[rows, :width], self.weight[rows])

    def parts(self, rows_a_part: Callable[[int], int]) -> list[Int[Tensor, " R"]]:
        """Its rows in parts of like length, so that few slots are padding, none of more rows than `rows_a_part` (slots) says."""
        device = self.layout.num_shown.device
        return [torch.tensor(part, device=device) for part in of_like_length(self.layout.num_shown.tolist(), rows_a_part)]

    def to(self, device: torch.device) -> Drawn:
        """The same on a device; to an accelerator, without waiting for the copies."""

        def move(x: Tensor) -> Tensor:
            return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)

        layout = Layout(move(self.layout.positions), move(self.layout.num_clean), move(self.layout.num_shown))
        return Drawn(move(self.tokens), layout, move(self.scored), move(self.weight))


def loss(
    net: Denoiser,
    method: Method,
    tokens: Int[Tensor, "B L"],
    known: Bool[Tensor, "B L"],
    generator: torch.Generator,
    *,
    lengths: Int[Tensor, " B"] | None = None,
) -> Float[Tensor, ""]:
    """The method's loss on a batch, in nats a token, from one forward pass (appendix B; D-4, loss weight; D-5, AR-MTP normalization).

    With weight="elbo" it is, for an any-order method, an unbiased estimate of the negative ELBO per unknown token; with
    "flat" the sum over targets divided by the number of unknown positions. Positions from lengths[b] on take no part.
    Raises ValueError where a row has nothing unknown, a target is MASK, or the method cannot take what is known.
    """
    return score(net, method, draw(method, tokens, known, generator, mask_id=net.mask_id, lengths=lengths))


def draw(
    method: Method,
    tokens: Int[Tensor, "B L"],
    known: Bool[Tensor, "B L"],
    generator: torch.Generator,
    *,
    mask_id: int,
    lengths: Int[Tensor, " B"] | None = None,
) -> Drawn:
    """The random half of `loss`: orders and numbers of clean tokens. Raises as it does."""
    tokens, (batch, length) = tokens.long(), tokens.shape
    lengths = torch.full((batch,), length, device=tokens.device) if lengths is None else lengths
    inside = torch.arange(length, device=tokens.device) < lengths[:, None]
    known, unknown = known & inside, lengths - (known & inside).sum(1)
    if (unknown < 1).any():
        raise ValueError(f"row {int(unknown.argmin())} has no unknown position: there is nothing to predict in it")
    if (inside & (tokens == mask_id)).any():
        raise ValueError(f"token {mask_id} is MASK: tokens must be whole sequences, what is masked is drawn here")
    method.check_known(known)
    layout = method.draw(known, lengths, generator)
    scored = layout.shown & ~layout.clean
    if method.targets == "next":
        scored &= layout.slots == layout.num_shown[:, None] - 1
    return Drawn(tokens, layout, scored, 1 / (scored.sum(1) if method.weight == "elbo" else unknown) / batch)


def score(net: Denoiser, method: Method, drawn: Drawn) -> Float[Tensor, ""]:
    """The other half of `loss`: what the net predicts at the scored slots against what stands there."""
    logits = method.logits_at(drawn.scored, net, drawn.tokens, drawn.layout)
    nll = F.cross_entropy(logits.float(), drawn.tokens.gather(1, drawn.layout.positions)[drawn.scored], reduction="none")
    return (nll * drawn.weight[:, None].expand_as(drawn.scored)[drawn.scored]).sum()
