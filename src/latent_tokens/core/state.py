"""The state of a batch between two decoding steps, its random streams, and the plan of its steps.

A fixed number of tokens per step does not depend on what the network predicts, so the loop reads no
count back from an accelerator. Of a rule that decides after the predictions it reads one number per
row and step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latent_tokens.core.decoding import (
    Decoding,
    blocks_of,
    check_decoding,
    num_candidates_and_latents,
    order_of,
)
from latent_tokens.core.denoiser import Denoiser
from latent_tokens.core.layout import Layout, next_layout
from latent_tokens.core.method import Method
from latent_tokens.core.order import block_ends, block_of, check_blocks, first_order
from latent_tokens.core.selection import FixedCount, sizes_of_steps

Array = Tensor | np.ndarray


class Streams:
    """The generators of a batch: row b draws from the one seeded with (seed, rows[b]).

    Args:
        seed: the seed of the batch.
        rows: the number of each row.

    Raises:
        ValueError: the seed or a row number is negative.
    """

    def __init__(self, seed: int, rows: Int[Tensor, " B"]) -> None:
        if seed < 0 or (rows < 0).any():
            raise ValueError(
                f"seed={seed}, smallest row {int(rows.min())}: seeds and row numbers start at 0"
            )
        self.device = rows.device
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
        rows: Int[Tensor, " A"] | None,
        tokens: Int[Tensor, "A L"],
        order: Int[Tensor, "A L"],
        count: Int[Tensor, " A"],
        num_shown: Int[Tensor, " A"],
    ) -> None:
        """Take a step of some rows.

        Args:
            rows: the rows. None is all, whose new tensors replace those of the state without a
                copy.
            tokens: their tokens after the step.
            order: their order after the step.
            count: how many tokens each of them decoded.
            num_shown: how many slots the input had of each.
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
    selection = decoding.selection
    tokens_per_step = selection.tokens if isinstance(selection, FixedCount) else 1
    sizes = sizes_of_steps(tokens_per_step, masked, draw)
    if blocks_of(method, decoding) is not None and sizes.numel():
        # A step ends with its block, so there may be more of them
        sizes = sizes[:, :1].expand(-1, length)
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
        shapes = (
            f"known {tuple(known.shape)}, lengths {tuple(lengths.shape)}, rows {tuple(rows.shape)}"
        )
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


class Counts(NamedTuple):
    """The rows of a step and their counts, each (A,): arrays on the host, or tensors on the device."""

    rows: Any
    number: Any  # the steps that each row took before
    num_clean: Any
    num_masked: Any
    count: Any  # the tokens to decode; until a rule has decided, the most that it may keep
    candidates: Any  # k
    latents: Any  # n
    num_shown: Any  # the slots of the input


@dataclass
class PlannedStep:
    """One step of A rows, on the host as arrays and on the device as tensors."""

    host: Counts
    device: torch.device

    @cached_property
    def on_device(self) -> Counts:
        """The counts as tensors, copied at once."""
        return Counts(
            *torch.from_numpy(np.stack(self.host)).to(self.device, non_blocking=True).unbind()
        )

    def decide(self, count: Int[Tensor, " A"]) -> None:
        """Set how many tokens each row decodes. Reads them from the device."""
        self.on_device = self.on_device._replace(count=count)
        self.host = self.host._replace(count=count.cpu().numpy())

    @cached_property
    def is_even(self) -> bool:
        """Whether the input of every row has as many clean, latent and candidate slots."""
        host = self.host
        counts = np.stack((host.num_clean, host.candidates, host.latents))
        return bool((counts == counts[:, :1]).all())

    @property
    def decodes_evenly(self) -> bool:
        """Whether every row also decodes as many tokens."""
        count = self.host.count
        return self.is_even and bool((count == count[0]).all())

    @property
    def num_clean_after(self) -> int | Tensor:
        """The number of clean tokens after the step: of every row, or of each, (A,)."""
        if self.decodes_evenly:
            return int(self.host.num_clean[0] + self.host.count[0])
        counts = self.on_device
        return cast(Tensor, counts.num_clean + counts.count)

    @property
    def keeps_order(self) -> bool:
        """Whether every row decodes all of its candidates, which keep their order."""
        return bool((self.host.count == self.host.candidates).all())

    def takes_all(self, batch: int) -> bool:
        """Return whether the rows are those of a batch, in its order."""
        return np.array_equal(self.host.rows, np.arange(batch))

    def layout(self, order: Int[Tensor, "A L"]) -> Layout:
        """Return the input of the step: `next_layout`, of slices of the order if the step is even."""
        host, step = self.host, self.on_device
        if not self.is_even:
            num_slots = int(host.num_shown.max())
            return next_layout(order, step.num_clean, step.candidates, step.latents, num_slots)
        clean = int(host.num_clean[0])
        start = clean + int(host.candidates[0])
        stop = int(host.num_shown[0])
        positions = order[:, :start]
        if stop > start:
            positions = torch.cat(
                (order[:, :clean], order[:, start:stop], order[:, clean:start]), dim=1
            )
        return Layout(positions, step.num_clean, step.num_shown)


class Draft(NamedTuple):
    """A step before its numbers of candidates and latent tokens are known: one entry per row."""

    rows: np.ndarray
    number: np.ndarray  # the steps that each row took before
    num_clean: np.ndarray
    num_masked: np.ndarray
    step_size: np.ndarray  # the tokens to decode
    in_block: np.ndarray  # the masked tokens of the current block


def plan_steps(
    method: Method, decoding: Decoding, state: State, rows: Int[Tensor, " R"]
) -> Iterator[PlannedStep]:
    """Yield the steps that decode these rows to their end. A finished row takes no part in later steps.

    All steps are planned at once if their counts are fixed, and one after the other if a rule
    decides them.

    Raises:
        ValueError: k or n of a row is out of range, or a step decodes more tokens than the window
            shows.
    """
    numbers = rows.cpu().numpy()
    clean, lengths, steps, sizes = (
        values[rows].cpu().numpy()
        for values in (state.num_clean, state.lengths, state.steps, state.sizes)
    )
    ends = ends_of_blocks(method, decoding, state, rows)
    clean = clean.copy()
    steps = steps.copy()
    is_fixed = isinstance(decoding.selection, FixedCount)
    most = (
        decoding.tokens_per_step
        if isinstance(decoding.tokens_per_step, int)
        else state.tokens.shape[1]
    )
    drafts = []
    lines = np.arange(len(numbers))
    while len(lines := lines[clean[lines] < lengths[lines]]):
        masked = lengths[lines] - clean[lines]
        here = np.minimum(masked, ends[lines, clean[lines]] - clean[lines])  # in the current block
        count = np.minimum(sizes[lines, steps[lines]], here)
        draft = Draft(numbers[lines], steps[lines], clean[lines], masked, count, here)
        if is_fixed:
            drafts.append(draft)
        else:
            (step,) = planned_steps(method, decoding, [draft], rows.device)
            step.host = step.host._replace(count=np.minimum(most, step.host.candidates))
            yield step
            count = step.host.count  # which the rule has decided
        clean[lines] += count
        steps[lines] += 1
    if drafts:
        yield from planned_steps(method, decoding, drafts, rows.device)


def planned_steps(
    method: Method, decoding: Decoding, drafts: Sequence[Draft], device: torch.device
) -> list[PlannedStep]:
    """Return the steps of drafts, whose k and n are computed at once."""

    def joined(arrays: Iterable[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(list(arrays)))

    k, n = num_candidates_and_latents(
        method,
        decoding,
        joined(draft.num_clean for draft in drafts),
        joined(draft.num_masked for draft in drafts),
        joined(draft.step_size for draft in drafts),
        joined(draft.in_block for draft in drafts),
    )
    ends = np.cumsum([len(draft.rows) for draft in drafts])[:-1]
    counts = zip(drafts, np.split(k.numpy(), ends), np.split(n.numpy(), ends), strict=True)
    return [planned(draft, k_step, n_step, device) for draft, k_step, n_step in counts]


def planned(
    draft: Draft, candidates: np.ndarray, latents: np.ndarray, device: torch.device
) -> PlannedStep:
    """Return the step of a draft with its k and n."""
    rows, number, num_clean, num_masked, step_size, _ = draft
    num_shown = num_clean + candidates + latents
    host = Counts(rows, number, num_clean, num_masked, step_size, candidates, latents, num_shown)
    return PlannedStep(host, device)


def ends_of_blocks(
    method: Method, decoding: Decoding, state: State, rows: Int[Tensor, " R"]
) -> npt.NDArray[np.int64]:
    """Return for each entry of a row's order the index after the last of its block, (R, L).

    Steps rearrange the order only within a block, so the first order tells. Without blocks it is
    the length.
    """
    order = state.order[rows]
    block = blocks_of(method, decoding)
    ends = torch.full_like(order, order.shape[1]) if block is None else block_ends(order, block)
    return ends.cpu().numpy()
