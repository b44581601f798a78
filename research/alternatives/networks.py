"""Networks that spend their compute on something else than latent tokens.

Each is a Transformer with another forward pass, an own network for `fit`, `generate` and `evaluate`.
"""

from typing import Any

import torch
from torch import Tensor, nn

import latent_tokens as lt

QUIET = 4  # latent tokens without a loss


class Looped(lt.Transformer):
    """Applies its blocks `loops` times, and adds the embeddings again before each time.

    In training the number is drawn from 1 to `most_loops`, by torch's generator, which `fit` seeds at each
    step. Only the last loop has a loss.
    """

    most_loops = 4
    loops = most_loops

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.supports_slots = True

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor, slots: Tensor | None = None) -> Tensor:
        embedded = self.embed(ids, positions)
        rotation = self.rotation(positions)
        loops = int(torch.randint(1, self.most_loops + 1, ())) if self.training else self.loops
        x = torch.zeros_like(embedded)
        for _ in range(loops):
            x = x + embedded
            for block in self.blocks:
                x = block(x, rotation, mask[:, None])
        return self.logits(x if slots is None else x[slots])


class Registers(lt.Transformer):
    """Has slots that show no token and have no position, which predict nothing.

    Registers attend to clean tokens and to each other. Masked tokens attend to all registers, as to latent
    tokens.
    """

    def __init__(self, number: int, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.registers = nn.Embedding(number, self.size.width)

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        number = len(self.registers.weight)
        masked = (ids == self.mask_id)[..., None]  # (B, S, 1)
        x = torch.cat([self.registers.weight.expand(len(ids), -1, -1), self.embed(ids, positions)], 1)
        above = torch.cat([mask.new_ones(len(ids), number, number), ~masked.mT.expand(-1, number, -1)], 2)
        below = torch.cat([masked.expand(-1, -1, number), mask], 2)
        with_registers = torch.cat([above, below], 1)[:, None]
        for block in self.blocks:
            x = block(x, None, with_registers)
        return self.logits(x[:, number:])


class Quiet(lt.Transformer):
    """Learns nothing from its predictions of the first masked tokens: latent tokens without a loss."""

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        logits = super().forward(ids, positions, mask)
        masked = ids == self.mask_id  # after clean tokens; 6x6 boards have no padding
        number = masked.cumsum(1)
        is_quiet = masked & (number <= QUIET) & (number < masked.sum(1, keepdim=True))
        return torch.where(is_quiet[..., None], logits.detach(), logits)


def attends_to_quiet(q: int | Tensor, k: int | Tensor, c: int | Tensor) -> bool | Tensor:
    """Return true for clean slots, the first masked ones up to the slot itself, and itself."""
    return (k < c) | (k == q) | ((k < c + QUIET) & (k <= q))


quiet = lt.Method(lt.any_order, attends_to_quiet, name="quiet")


def flops(net: lt.Transformer, slots: int, loops: int = 1, registers: int = 0) -> int:
    """Return the floating-point operations of a forward pass of one row, two for each multiply-add.

    They are those of matrix products, as torch's FlopCounterMode counts them.

    Args:
        net: the network.
        slots: clean and masked tokens.
        loops: how often the blocks are applied.
        registers: further slots.
    """
    width, attending = net.size.width, slots + registers
    projections = 2 * 12 * width**2 * attending  # queries, keys, values and output: 4; MLP: 8
    attention = 2 * 2 * width * attending**2
    head = 2 * width * net.head.out_features * slots
    return loops * net.size.layers * (projections + attention) + head
