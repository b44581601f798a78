"""A decoding step with a KV cache: only the slots that are not cached are computed."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latent_tokens.core.attention import agree, causal, dense_mask
from latent_tokens.core.layout import Layout
from latent_tokens.core.method import Method
from latent_tokens.core.order import block_of
from latent_tokens.core.speculation import StepsInOne
from latent_tokens.core.state import PlannedStep
from latent_tokens.network.block import Block, Rotation, apply_rotary, indices, merge_heads
from latent_tokens.network.kernels import MANY_ROWS, attend, attend_last
from latent_tokens.network.transformer import Transformer


class CachedLogits:
    """Computes the logits of candidates, step after step, and keeps keys and values that never change.

    These are those of clean slots, with a shifted readout those of all slots, and under
    `block_causal` those of the blocks before the current one. The others are written behind them,
    and overwritten by the next.

    Args:
        net: the network.
        method: how it was trained. Its attention is cacheable, or `block_causal`.
        rows: the rows to decode.
        order: the first order of each row.
        table: the first layer's projections, or None.
        num_slots: the largest number of slots of an input, by default the length.
    """

    def __init__(
        self,
        net: Transformer,
        method: Method,
        rows: Int[Tensor, " R"],
        order: Int[Tensor, "R L"],
        table: Float[Tensor, "T W"] | None,
        num_slots: int | None = None,
    ) -> None:
        self.net = net
        self.method = method
        self.length = order.shape[1]
        self.num_slots = self.length if num_slots is None else num_slots
        self.table = table
        block = block_of(method.attention)
        # Steps rearrange an order within its blocks: the first order tells the block of an entry.
        self.blocks = None if block is None else (order // block).cpu().numpy()  # (R, L)
        self.layers = [packed(cast(Block, layer), len(rows)) for layer in net.blocks]
        self.is_causal = agree(method.attention, causal, self.length)
        self.rows = rows.cpu().numpy()
        self.cached = np.zeros(len(self.rows), np.int64)  # the number of slots of each row
        self.cache: Tensor | None = None  # (layers, 2, R, H, L, C)

    def __call__(
        self, plan: PlannedStep, tokens: Int[Tensor, "A L"], layout: Layout
    ) -> Float[Tensor, "N V"]:
        """Return the candidates' logits, row by row. The tokens are MASK where masked."""
        if len(plan.host.rows) < len(self.rows):
            self.keep(plan.host.rows)
        first, host = self.cached, plan.host
        self.cached = self.final_slots(plan)

        # Equal rows: their new slots are a slice, and so are their candidates.
        if self.is_causal and plan.is_even and (first == first[0]).all():
            new = slice(int(first[0]), int(host.num_shown[0]))
            ids = self.new_ids(tokens, layout.positions, new)
            return self.forward(
                ids, layout.positions[:, new], new, new.stop, None, int(host.candidates[0])
            )

        # Otherwise a row with fewer new slots repeats its last, and padding is no candidate.
        ids = self.method.input_ids(tokens, layout, self.net.mask_id)
        count = host.num_shown - first
        rank = np.arange(count.max())
        slots = first[:, None] + np.minimum(rank, count[:, None] - 1)  # (A, Q)
        is_candidate = (rank < count[:, None]) & (rank >= (count - host.candidates)[:, None])
        at = torch.from_numpy(slots).to(ids.device, non_blocking=True)
        mask = dense_mask(self.method.attention, layout, at)[:, None]
        chosen = indices(is_candidate, ids.device)
        stop = int(host.num_shown.max())
        return self.forward(
            ids.gather(1, at), layout.positions.gather(1, at), at, stop, mask, chosen
        )

    def of_steps(
        self, steps: StepsInOne, tokens: Int[Tensor, "A L"], rows: Int[Tensor, " A"]
    ) -> Float[Tensor, "A G W V"]:
        """Return the logits of the masked slots of several steps (a `speculation.StepLogits`).

        The clean slots of the pass before are cached up to the token that it drew last, which
        takes the place of a draft.
        """
        host_rows = rows.cpu().numpy()
        if len(host_rows) < len(self.rows):
            self.keep(host_rows)
        num_masked = int((steps.step >= 0).sum())
        count = (steps.shown & (steps.step < 0)).sum(1).cpu().numpy()  # of clean slots
        num_clean = steps.num_clean[:, -num_masked].cpu().numpy()  # of the first step
        # All clean slots but the last: its token may differ from the draft whose keys are there.
        if self.cache is not None:
            self.cached = num_clean - 1
        new = count - self.cached
        rank = np.minimum(np.arange(new.max()), np.maximum(new - 1, 0)[:, None])
        masked = np.arange(len(steps.step) - num_masked, len(steps.step))
        slots = np.hstack([self.cached[:, None] + rank, np.tile(masked, (len(new), 1))])
        at = torch.from_numpy(slots).to(tokens.device, non_blocking=True)
        is_masked = np.arange(slots.shape[1]) >= rank.shape[1]
        chosen = indices(np.tile(is_masked, (len(new), 1)), tokens.device)
        mask = steps.mask(self.method.attention, at)[:, None]
        ids = steps.ids(tokens, self.net.mask_id).gather(1, at)
        positions = steps.positions.gather(1, at)
        logits = self.forward(ids, positions, at, len(steps.step), mask, chosen).double()
        logits[:, self.net.mask_id :] = -torch.inf
        return logits.view(len(new), steps.num_steps, -1, logits.shape[-1])

    def final_slots(self, plan: PlannedStep) -> Any:
        """Return how many of each row's first slots keep their keys and values after this step."""
        if self.blocks is not None:
            entry = np.minimum(plan.host.num_clean, self.length - 1)
            current = self.blocks[np.arange(len(entry)), entry]
            return (self.blocks >= current[:, None]).argmax(1)
        # A shifted slot receives the token before it, which is clean. So those of candidates are final, too.
        return plan.host.num_shown if self.method.readout == "shifted" else plan.host.num_clean

    def new_ids(
        self, tokens: Int[Tensor, "A L"], positions: Int[Tensor, "A S"], new: slice
    ) -> Int[Tensor, "A Q"]:
        """Return the token id that each new slot receives, as `Method.input_ids`."""
        if self.method.readout != "shifted":
            return tokens.gather(1, positions[:, new])
        before = tokens.gather(1, positions[:, max(new.start - 1, 0) : new.stop - 1])
        # The first slot has no token before it: MASK takes the place of BOS.
        return before if new.start > 0 else F.pad(before, (1, 0), value=self.net.mask_id)

    def forward(
        self,
        ids: Int[Tensor, "A Q"],
        positions: Int[Tensor, "A Q"],
        new: slice | Int[Tensor, "A Q"],
        stop: int,
        mask: Bool[Tensor, "A 1 Q S"] | None,
        candidates: int | Int[Tensor, " N"],
    ) -> Float[Tensor, "N V"]:
        """Return the logits of some of the new slots, row by row.

        Args:
            ids: the token id that each new slot receives.
            positions: their positions.
            new: the slots.
            stop: the number of slots, cached and new.
            mask: which of them each new slot attends to. None is those up to itself.
            candidates: how many of a row's last slots to return, or the index of those to return.
        """
        net = self.net
        x = net.embed(ids, positions)
        rotation = net.rotation(positions, self.length)
        last = len(self.layers) - 1
        for number, layer in enumerate(self.layers):
            # Project, in the first layer by a look-up. Write keys and values behind the cached ones.
            if number == 0 and self.table is not None:
                projected = F.embedding(net.table_index(ids, positions), self.table)
            else:
                projected = layer.project(x)
            projected = projected.view(*ids.shape, 3, net.size.heads, -1).permute(2, 0, 3, 1, 4)
            if rotation is not None:
                # Queries and keys in one call, because they have the same positions.
                turned = apply_rotary(projected[:2].flatten(0, 1), turn_twice(rotation))
                projected = torch.cat((turned.view(2, -1, *turned.shape[1:]), projected[2:]))
            keys, values = self.write(number, new, projected[1:])

            # Attend. In the last layer only the candidates do.
            q = projected[0]
            # Keys and values of all new slots are cached, but no layer reads what the others compute here.
            if isinstance(candidates, int) and number == last:
                q = q[:, :, -candidates:]
            if mask is None:
                mixed = merge_heads(attend_last(q, keys, values, stop))
            else:
                mixed = merge_heads(attend(q, keys[:, :, :stop], values[:, :, :stop], mask))
            if number == last and isinstance(candidates, int):
                x = x[:, -candidates:]
            elif number == last and isinstance(candidates, Tensor):
                x = x.flatten(0, 1).index_select(0, candidates)
                mixed = mixed.flatten(0, 1).index_select(0, candidates)
            x = layer.residual_and_mlp(x, mixed)
        return net.logits(x.flatten(0, -2))

    def write(
        self,
        number: int,
        new: slice | Int[Tensor, "A Q"],
        keys_and_values: Float[Tensor, "2 A H Q C"],
    ) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values, and return those of all its slots, (A, H, L, C) each."""
        if self.cache is None:  # at the first step, when the precision of the network is known
            _, batch, heads, _, channels = keys_and_values.shape
            shape = (len(self.layers), 2, batch, heads, self.num_slots, channels)
            # Zeros: what is not written yet has the weight 0 in a product, and 0 times NaN would be NaN.
            self.cache = keys_and_values.new_zeros(shape)
        layer = self.cache[number]
        if isinstance(new, slice):
            layer[:, :, :, new] = keys_and_values
        else:
            rows = torch.arange(len(new), device=new.device)[:, None]
            # The dimensions of indices that are tensors come first: (A, Q, 2, H, C).
            layer[:, rows, :, new] = keys_and_values.permute(1, 3, 0, 2, 4)
        return layer[0], layer[1]

    def keep(self, rows: np.ndarray) -> None:
        """Drop the rows that are finished."""
        lines = np.flatnonzero(np.isin(self.rows, rows))
        self.rows = rows
        self.cached = self.cached[lines]
        if self.blocks is not None:
            self.blocks = self.blocks[lines]
        if self.cache is not None:
            self.cache = self.cache[:, :, torch.from_numpy(lines).to(self.cache.device)]


def turn_twice(rotation: Rotation) -> Rotation:
    """Return the rotation of queries and keys, one after the other."""
    cos, sin = rotation
    return cos.repeat(2, 1, 1, 1), sin.repeat(2, 1, 1, 1)


class PackedBlock:
    """A block in float32 on a CPU for many rows: transposed weights, and sums within the products."""

    def __init__(self, block: Block) -> None:
        self.block = block
        linears = (block.qkv, block.attention_out, block.mlp_in, block.mlp_out)
        self.qkv, self.attention_out, self.mlp_in, self.mlp_out = (
            linear.weight.t().contiguous() for linear in linears
        )

    def project(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N W"]:
        """Return queries, keys and values, as `Block.project`."""
        rows = normalize(self.block.attention_norm, x.flatten(0, -2))
        return rows.mm(self.qkv).view(*x.shape[:-1], -1)

    def residual_and_mlp(
        self, x: Float[Tensor, "*N D"], mixed: Float[Tensor, "*N D"]
    ) -> Float[Tensor, "*N D"]:
        """Return the output of the block, as `Block.residual_and_mlp`."""
        block = self.block
        rows = torch.addmm(x.flatten(0, -2), mixed.flatten(0, -2), self.attention_out)
        hidden = torch.addmm(block.mlp_in.bias, normalize(block.mlp_norm, rows), self.mlp_in)
        hidden = F.gelu(hidden, approximate=block.approximate)
        return rows.addmm_(hidden, self.mlp_out).add_(block.mlp_out.bias).view(x.shape)


def normalize(norm: nn.LayerNorm, x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Return `norm(x)`, without the cost of a module's call."""
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def packed(block: Block, num_rows: int) -> Block | PackedBlock:
    """Return a block packed if that is exact and faster, otherwise as it is."""
    linears = (block.qkv, block.attention_out, block.mlp_in, block.mlp_out)
    norms = (block.attention_norm, block.mlp_norm)
    is_plain = not block.compiled and all(type(layer) is nn.Linear for layer in linears)
    is_plain &= all(type(norm) is nn.LayerNorm for norm in norms)
    if not is_plain or num_rows < MANY_ROWS or torch.is_autocast_enabled("cpu"):
        return block
    weight = block.qkv.weight
    is_faster = weight.device.type == "cpu" and weight.dtype == torch.float32
    return PackedBlock(block) if is_faster else block
