"""The state of a batch between two decoding steps, its random streams, and the plan of its steps.

Counts are computed on the host. A fixed number of tokens per step does not depend on what the
network predicts, so the loop reads no count back from an accelerator. Of a rule that decides after
the predictions it reads one number per row and step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from latent_tokens.core.decoding import (
    Decoding,
    blocks_of,
    check_decoding,
    num_candidates_and_latents,
    order_of,
)
from latent_tokens.core.denoiser import Denoiser, check_rows, vocab_end
from latent_tokens.core.layout import Layout, next_layout
from latent_tokens.core.method import Method
from latent_tokens.core.order import block_ends, block_of, check_blocks, demote, first_order
from latent_tokens.core.policies import PolicyInput
from latent_tokens.core.selection import AtMost, FixedCount, sizes_of_steps

Array = Tensor | np.ndarray
Stop = Callable[[Int[Tensor, " A"], Int[Tensor, "A L"]], bool]
"""(rows, their tokens after a step, MASK where masked) -> whether the decoding of these rows ends."""


class Streams:
    """The generators of a batch: row b draws from the one seeded with (seed, rows[b]).

    Args:
        seed: the seed of the batch.
        rows: the number of each row.

    Raises:
        ValueError: the seed or a row number is negative.
    """

    def __init__(self, seed: int, rows: Int[Tensor, " B"]) -> None:
        if not isinstance(seed, int | np.integer) or seed < 0 or (rows < 0).any():
            setting = f"seed={seed}, smallest row {int(rows.min())}"
            raise ValueError(f"{setting}: seeds and row numbers are whole numbers that start at 0")
        self.device = rows.device
        # On the host, so that a seed has the same numbers on every device. One generator for each row, so
        # that a sample does not depend on the others of its batch.
        self.generators = [np.random.default_rng((seed, row)) for row in rows.tolist()]

    def uniform(self, which: Int[Array, " A"], counts: Int[Array, " A"]) -> Float[Tensor, "A N"]:
        """Draw numbers in [0, 1), in float64.

        Args:
            which: the rows that draw.
            counts: how many numbers each of them draws.

        Returns:
            One line per row. After its numbers a line is padded with 1.
        """
        lengths = counts.tolist()
        noise = np.ones((len(lengths), max(lengths, default=0)))
        for line, row, length in zip(noise, which.tolist(), lengths, strict=True):
            self.generators[row].random(out=line[:length])
        return torch.from_numpy(noise).to(self.device)


@dataclass
class State:
    """B rows between two steps. `decode` changes it in place."""

    tokens: Int[Tensor, "B L"]  # MASK where masked
    # The first num_clean entries are clean, those up to the length are masked
    order: Int[Tensor, "B L"]
    num_clean: Int[Tensor, " B"]
    lengths: Int[Tensor, " B"]
    sizes: Int[Tensor, "B T"]  # how many tokens each step of a row decodes; 1 if a rule decides
    steps: Int[Tensor, " B"]  # steps taken
    processed: Int[Tensor, " B"]  # slots of the input, cached or not, summed over steps
    streams: Streams

    @property
    def num_masked(self) -> Int[Tensor, " B"]:
        """The number of masked tokens of each row."""
        return self.lengths - self.num_clean

    def update(
        self,
        rows: Int[Tensor, " A"],
        tokens: Int[Tensor, "A L"],
        order: Int[Tensor, "A L"],
        count: Int[Tensor, " A"],
        num_shown: Int[Tensor, " A"],
    ) -> None:
        """Take a step of some rows, which decoded `count` tokens from an input of `num_shown` slots."""
        self.tokens[rows] = tokens
        self.order[rows] = order
        self.num_clean[rows] += count
        self.steps[rows] += 1
        self.processed[rows] += num_shown

    def mask_again(
        self, rows: Int[Tensor, " A"], chosen: Bool[Tensor, "A L"], mask_id: int
    ) -> None:
        """Mask some decoded entries of the order of some rows."""
        order = self.order[rows]
        by_position = torch.zeros_like(chosen).scatter(1, order, chosen)
        self.tokens[rows] = self.tokens[rows].masked_fill(by_position, mask_id)
        self.order[rows] = demote(order, self.num_clean[rows], chosen)
        self.num_clean[rows] -= chosen.sum(1)


def first_state(
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
    every_row = torch.arange(len(tokens), device=tokens.device)
    length = tokens.shape[-1]
    lengths = torch.full_like(every_row, length) if lengths is None else lengths
    rows = every_row if rows is None else rows

    # Check the request.
    check_decoding(method, decoding)
    check_rows(tokens, {"known": known}, lengths=lengths, rows=rows)
    tokens = tokens.long()
    inside = torch.arange(length, device=tokens.device) < lengths[:, None]
    known = known & inside
    check_known(net, method, tokens, known)

    # Draw the first order, then the step sizes: another sequence would give a seed other samples.
    masked = ~known & inside
    streams = Streams(seed, rows)
    draw = partial(streams.uniform, every_row, masked.sum(1))
    order = first_order(order_of(method, decoding), known, lengths, draw)
    select = decoding.select
    tokens_per_step = select.tokens if isinstance(select, FixedCount) else 1
    sizes = sizes_of_steps(tokens_per_step, masked, draw)
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


def check_known(net: Denoiser, method: Method, tokens: Tensor, known: Tensor) -> None:
    """Raise ValueError if a known position holds no token, or the method cannot take the known positions."""
    end = vocab_end(net)
    wrong = known & ((tokens < 0) | (tokens >= end) | (tokens == net.mask_id))
    if wrong.any():
        row, position = wrong.nonzero()[0].tolist()
        setting = f"row {row}, position {position}: token {int(tokens[row, position])}"
        fix = f"Use 0-{end - 1}, or set known to false there."
        raise ValueError(f"{setting} is not in the vocabulary. {fix}")
    method.check_known(known)


def write_tokens(
    tokens: Shaped[Tensor, "A L"],
    positions: Int[Tensor, "A T"],
    drawn: Shaped[Tensor, "A T"],
    is_decoded: Bool[Tensor, "A T"],
) -> Shaped[Tensor, "A L"]:
    """Return the tokens, or their probabilities, with those that are decoded at their positions."""
    # The others go to an extra column, which is cut off.
    length = tokens.shape[1]
    positions = positions.masked_fill(~is_decoded, length)
    return F.pad(tokens, (0, 1)).scatter(1, positions, drawn)[:, :length]


class Counts(NamedTuple):
    """The rows of a step and their counts, each (A,): arrays on the host, or tensors on the device."""

    rows: Any
    number: Any  # the steps that each row took before
    num_clean: Any
    num_masked: Any
    count: Any  # the tokens to decode; until a rule has decided, the most that it may keep
    candidates: Any  # k
    latents: Any  # n

    @property
    def num_shown(self) -> Any:
        """The slots of the input."""
        return self.num_clean + self.candidates + self.latents


@dataclass(frozen=True)
class PlannedStep:
    """One step of A rows, on the host as arrays and on the device as tensors."""

    host: Counts
    on_device: Counts

    @classmethod
    def of(cls, host: Counts, device: torch.device) -> PlannedStep:
        """Return a step with its counts on both, copied at once."""
        # Seven small copies would take seven times as long as this one.
        counts = torch.from_numpy(np.stack(host)).to(device, non_blocking=True)
        return cls(host, Counts(*counts.unbind()))

    def decided(self, count: Int[Tensor, " A"]) -> PlannedStep:
        """Return the step with how many tokens each row decodes. Reads them from the device."""
        host = self.host._replace(count=count.cpu().numpy())
        return PlannedStep(host, self.on_device._replace(count=count))

    @cached_property
    def is_even(self) -> bool:
        """Whether the input of every row has as many clean, latent and candidate slots."""
        host = self.host
        counts = np.stack((host.num_clean, host.candidates, host.latents))
        return bool((counts == counts[:, :1]).all())

    @property
    def keeps_order(self) -> bool:
        """Whether every row decodes all of its candidates, which keep their order."""
        return bool((self.host.count == self.host.candidates).all())

    def policy_input(self, order: Int[Tensor, "A L"], tokens: Int[Tensor, "A L"]) -> PolicyInput:
        """Return what a latent policy reads. The tokens are MASK where masked."""
        step = self.on_device
        counts = (step.num_clean, step.num_masked, step.candidates, step.latents)
        return PolicyInput(order, *counts, tokens)

    def layout(self, order: Int[Tensor, "A L"]) -> Layout:
        """Return the input of the step: `next_layout`, of slices of the order if the step is even."""
        host, step = self.host, self.on_device
        if not self.is_even:
            num_slots = int(host.num_shown.max())
            return next_layout(order, step.num_clean, step.candidates, step.latents, num_slots)
        clean = int(host.num_clean[0])
        start = clean + int(host.candidates[0])
        stop = int(host.num_shown[0])
        parts = (order[:, :clean], order[:, start:stop], order[:, clean:start])
        return Layout(torch.cat(parts, dim=1), step.num_clean, step.num_shown)


class Planner:
    """Plans the next step of some rows until all of them are decoded. A finished row takes part in no step.

    Args:
        method: how the network was trained.
        decoding: the settings.
        state: the rows before the first step.
        rows: the rows to decode.
    """

    def __init__(
        self, method: Method, decoding: Decoding, state: State, rows: Int[Tensor, " R"]
    ) -> None:
        self.method = method
        self.decoding = decoding
        self.device = rows.device
        # Read from the device once. If the number of tokens per step is fixed, all later counts are
        # computed here.
        self.rows = rows.cpu().numpy()
        self.num_clean = state.num_clean[rows].cpu().numpy()
        self.lengths = state.lengths[rows].cpu().numpy()
        self.steps = state.steps[rows].cpu().numpy()  # taken
        self.sizes = state.sizes[rows].cpu().numpy()
        self.ends = ends_of_blocks(method, decoding, state.order[rows]).cpu().numpy()
        self.unfinished = np.arange(len(self.rows))  # indices into the arrays above

    def next_step(self) -> PlannedStep | None:
        """Return the next step, or None if every row is decoded.

        Raises:
            ValueError: k or n of a row is out of range, or a step decodes more tokens than the
                window shows.
        """
        is_unfinished = self.num_clean[self.unfinished] < self.lengths[self.unfinished]
        self.unfinished = rows = self.unfinished[is_unfinished]
        if not len(rows):
            return None
        steps = self.steps[rows]
        num_clean = self.num_clean[rows]
        num_masked = self.lengths[rows] - num_clean
        # A step does not cross the end of a block, which is decoded before the next one begins.
        in_block = np.minimum(num_masked, self.ends[rows, num_clean] - num_clean)
        # Steps that end with a block, and tokens that are decoded again, take more steps than were planned.
        planned = np.minimum(steps, self.sizes.shape[1] - 1)
        count = np.minimum(self.sizes[rows, planned], in_block)
        k, n = num_candidates_and_latents(
            self.method, self.decoding, num_clean, num_masked, count, in_block
        )
        select = self.decoding.select
        if not isinstance(select, FixedCount):
            # The most that a rule may keep. It decides after it has seen the predictions.
            count = np.minimum(select.most, k) if isinstance(select, AtMost) else k
        counts = Counts(
            rows=self.rows[rows],
            number=steps,
            num_clean=num_clean,
            num_masked=num_masked,
            count=count,
            candidates=k,
            latents=n,
        )
        return PlannedStep.of(counts, self.device)

    def advance(self, step: PlannedStep) -> None:
        """Take a step, of which a rule has decided by now how many tokens each row decodes."""
        self.num_clean[self.unfinished] += step.host.count
        self.steps[self.unfinished] += 1


def ends_of_blocks(
    method: Method, decoding: Decoding, order: Int[Tensor, "R L"]
) -> Int[Tensor, "R L"]:
    """Return for each entry of a row's order the index after the last of its block.

    Steps rearrange the order only within a block, so the first order tells. Without blocks it is
    the length.
    """
    block = blocks_of(method, decoding)
    return torch.full_like(order, order.shape[1]) if block is None else block_ends(order, block)
