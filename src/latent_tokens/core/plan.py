"""The steps of a decode, planned before the first: which rows take each of them, and their counts.

How many tokens a step decodes does not depend on what the network predicts, so the loop reads no count back
from an accelerator.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from latent_tokens.core.blocks import block_ends
from latent_tokens.core.decoding import Decoding, blocks_of, num_candidates_and_latents
from latent_tokens.core.layout import Layout, next_layout
from latent_tokens.core.methods import Method
from latent_tokens.core.state import State


@dataclass(frozen=True)
class PlannedStep:
    """One step of A rows, on the host as arrays and on the device as tensors."""

    rows: np.ndarray  # (A,), as the other arrays
    number: np.ndarray  # the steps that each row took before
    num_clean: np.ndarray
    num_masked: np.ndarray
    count: np.ndarray  # the tokens to decode
    candidates: np.ndarray  # k
    latents: np.ndarray  # n
    device: torch.device

    @cached_property
    def num_shown(self) -> np.ndarray:
        """The number of slots of each row's input."""
        num_shown: np.ndarray = self.num_clean + self.candidates + self.latents
        return num_shown

    @cached_property
    def on_device(self) -> tuple[Int[Tensor, " A"], ...]:
        """The arrays in the order of the fields, then `num_shown`, copied at once."""
        counts = (self.num_clean, self.num_masked, self.count, self.candidates, self.latents)
        arrays = np.stack((self.rows, self.number, *counts, self.num_shown))
        return torch.from_numpy(arrays).to(self.device, non_blocking=True).unbind()

    @cached_property
    def is_even(self) -> bool:
        """Whether the input of every row has as many clean, latent and candidate slots, to decode as many."""
        counts = np.stack((self.num_clean, self.count, self.candidates, self.latents))
        return bool((counts == counts[:, :1]).all())

    @property
    def keeps_order(self) -> bool:
        """Whether every row decodes all of its candidates, which keep their order."""
        return bool((self.count == self.candidates).all())

    def takes_all(self, batch: int) -> bool:
        """Return whether the rows are those of a batch, in its order."""
        return np.array_equal(self.rows, np.arange(batch))

    def layout(self, order: Int[Tensor, "A L"]) -> Layout:
        """Return the input of the step: `next_layout`, of slices of the order if the step is even."""
        _, _, num_clean, _, _, candidates, latents, num_shown = self.on_device
        if not self.is_even:
            return next_layout(order, num_clean, candidates, latents, int(self.num_shown.max()))
        clean = int(self.num_clean[0])
        start = clean + int(self.candidates[0])
        stop = int(self.num_shown[0])
        positions = order[:, :start]
        if stop > start:
            positions = torch.cat((order[:, :clean], order[:, start:stop], order[:, clean:start]), dim=1)
        return Layout(positions, num_clean, num_shown)


def plan_steps(
    method: Method, decoding: Decoding, state: State, rows: Int[Tensor, " R"]
) -> list[PlannedStep]:
    """Return the steps that decode these rows to their end. A finished row takes no part in later steps.

    Raises:
        ValueError: k or n of a row is out of range, or a step decodes more tokens than the window shows.
    """
    # The rows, clean tokens and step size of each step.
    numbers = rows.cpu().numpy()
    clean, lengths, steps, sizes = (
        values[rows].cpu().numpy() for values in (state.num_clean, state.lengths, state.steps, state.sizes)
    )
    ends = ends_of_blocks(method, decoding, state, rows)
    clean = clean.copy()
    steps = steps.copy()
    drafts = []
    lines = np.arange(len(numbers))
    while len(lines := lines[clean[lines] < lengths[lines]]):
        masked = lengths[lines] - clean[lines]
        here = np.minimum(masked, ends[lines, clean[lines]] - clean[lines])  # in the current block
        count = np.minimum(sizes[lines, steps[lines]], here)
        drafts.append((numbers[lines], steps[lines], clean[lines], masked, count, here))
        clean[lines] += count
        steps[lines] += 1
    if not drafts:
        return []

    # The numbers of candidates and latent tokens of all steps at once.
    num_clean, num_masked, count, here = (
        torch.from_numpy(np.concatenate(arrays)) for arrays in list(zip(*drafts, strict=True))[2:]
    )
    k, n = num_candidates_and_latents(method, decoding, num_clean, num_masked, count, here)
    ends = np.cumsum([len(draft[0]) for draft in drafts])[:-1]
    counts = zip(drafts, np.split(k.numpy(), ends), np.split(n.numpy(), ends), strict=True)
    return [PlannedStep(*draft[:5], k_step, n_step, rows.device) for draft, k_step, n_step in counts]


def ends_of_blocks(
    method: Method, decoding: Decoding, state: State, rows: Int[Tensor, " R"]
) -> npt.NDArray[np.int64]:
    """Return for each entry of a row's order the index after the last of its block, (R, L).

    Steps rearrange the order only within a block, so the first order tells. Without blocks it is the length.
    """
    order = state.order[rows]
    block = blocks_of(method, decoding)
    ends = torch.full_like(order, order.shape[1]) if block is None else block_ends(order, block)
    return ends.cpu().numpy()
