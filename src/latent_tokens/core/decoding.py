"""The settings of sampling, what it returns, and how many tokens the input of a step holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latent_tokens.checks import is_whole
from latent_tokens.core.blocks import block_of
from latent_tokens.core.confidence import Confidence, top_prob
from latent_tokens.core.layout import Layout
from latent_tokens.core.methods import Method
from latent_tokens.core.order import Order
from latent_tokens.core.partition import Partition
from latent_tokens.core.policies import LatentPolicy, nearest

Count = int | Literal["all"] | Callable[[int], int]


def growing(clean: int) -> int:
    """Return the number of clean tokens + 1: few candidates early, many late (D-33, adaptive candidates).

    Args:
        clean: the number of clean tokens.

    Example:
        >>> Decoding(candidates=growing).candidates(3)
        4
    """
    return clean + 1


@dataclass(frozen=True)
class Decoding:
    """Settings of sampling. Raises ValueError for a value out of range.

    Example:
        >>> Decoding(candidates=4, latents=8).latents
        8
    """

    candidates: Count = 1  # k, or number of clean tokens -> k: decode the most confident of the next k
    latents: Count | None = None  # n, or number of masked tokens -> n; None = the method's own
    tokens_per_step: int | Partition = 1  # or the number of each step, as equal_parts(T) (appendix C)
    order: Order | None = None  # None = the method's own
    confidence: Confidence = top_prob  # of the raw logits, before temperature (D-16, confidence)
    latent_policy: LatentPolicy = nearest  # which masked tokens are the n, and in what order
    refresh: bool = True  # reshuffle after each step (D-14, schedule refresh); False is Algorithm 5
    temperature: float | int = 1.0  # 0 = argmax
    top_p: float | int = 1.0  # sample from the smallest set of tokens with this much probability
    off_distribution: bool = False  # allow any n for a method whose n is fixed in training
    confidence_noise: float | int = 0  # scale of the Gumbel noise (D-41, annealed confidence noise)

    def __post_init__(self) -> None:
        if self.candidates != "all" and not callable(self.candidates) and not is_whole(self.candidates, 1):
            allowed = "must be a whole number from 1, 'all', or a function of the number of clean tokens"
            raise ValueError(f"candidates={self.candidates}: {allowed}")
        n = self.latents
        if n is not None and n != "all" and not callable(n) and not is_whole(n, 0):
            allowed = "must be a whole number from 0, 'all', a function of the number masked, or None"
            raise ValueError(f"latents={n!r}: {allowed}")
        if not callable(self.tokens_per_step) and not is_whole(self.tokens_per_step, 1):
            raise ValueError(
                f"tokens_per_step={self.tokens_per_step}: must be a whole number from 1, or a partition"
            )
        if self.order is not None and not callable(self.order):
            raise ValueError(f"order={self.order}: must be a function of known. Use given(schedule).")
        if not 0 <= self.confidence_noise < float("inf"):
            raise ValueError(f"confidence_noise={self.confidence_noise}: must be 0 or more, and finite")
        if self.confidence_noise and self.candidates == 1:
            raise ValueError(
                f"confidence_noise={self.confidence_noise} with candidates=1: one candidate leaves no "
                "choice. Use candidates=8, or leave confidence_noise out."
            )
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature={self.temperature}: must be 0 (argmax) or more, and finite")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p}: must be above 0 and at most 1")


@dataclass(frozen=True)
class Generated:
    """The samples that `generate` returns: B rows of L positions.

    Example:
        >>> known = torch.zeros(1, 36, dtype=torch.bool)
        >>> generate(net, net.method, known.long(), known).forward_passes
        36
    """

    tokens: Int[Tensor, "B L"]
    order: Int[Tensor, "B L"]  # known positions first, then the others as decoded, then those past the length
    processed: Int[Tensor, " B"]  # tokens processed, summed over steps
    forward_passes: int  # the largest number of steps of a row


@dataclass(frozen=True)
class Step:
    """One decoding step, as `on_step` receives it: all that is needed to draw it.

    A is the number of unfinished rows.

    Example:
        >>> known = torch.zeros(1, 36, dtype=torch.bool)
        >>> steps = []
        >>> generate(net, net.method, known.long(), known, latents=4, on_step=steps.append).forward_passes
        36
        >>> len(steps[0].latents[0])
        4
    """

    rows: Int[Tensor, " A"]  # which rows of the batch
    number: Int[Tensor, " A"]  # steps that each row has taken before
    layout: Layout  # the input: layout.positions, num_clean, num_shown
    num_candidates: Int[Tensor, " A"]
    chosen: Int[Tensor, "A T"]  # positions decoded, the most confident first; -1 if a row decodes fewer
    tokens: Int[Tensor, "A T"]  # the tokens decoded there; -1 likewise
    look: Callable[[], Float[Tensor, "A S V"]]  # computes the logits of every slot

    @cached_property
    def probabilities(self) -> Float[Tensor, "A S V"]:
        """Predicted probabilities at every masked slot, before temperature and top-p.

        Computed on first use.
        """
        with torch.no_grad():
            return self.look().softmax(-1)

    @property
    def candidates(self) -> list[list[int]]:
        """The candidate positions of each row, in the order of their slots."""
        return self._slots(self.layout.num_shown - self.num_candidates, self.layout.num_shown)

    @property
    def latents(self) -> list[list[int]]:
        """The latent positions of each row, in the order of their slots."""
        return self._slots(self.layout.num_clean, self.layout.num_shown - self.num_candidates)

    def _slots(self, start: Int[Tensor, " A"], stop: Int[Tensor, " A"]) -> list[list[int]]:
        rows = zip(self.layout.positions.tolist(), start.tolist(), stop.tolist(), strict=True)
        return [positions[a:b] for positions, a, b in rows]


def order_of(method: Method, decoding: Decoding) -> Order:
    """Return the decoding order: the decoding's, else the method's own."""
    return method.order if decoding.order is None else decoding.order


def blocks_of(method: Method, decoding: Decoding) -> int | None:
    """Return the size of the blocks that are decoded from left to right: the order's, else the rule's."""
    block = block_of(order_of(method, decoding))
    return block_of(method.attention) if block is None else block


def num_candidates_and_latents(
    method: Method,
    decoding: Decoding,
    num_clean: Int[Tensor, " A"],
    num_masked: Int[Tensor, " A"],
    step_size: Int[Tensor, " A"],
    in_block: Int[Tensor, " A"] | None = None,
) -> tuple[Int[Tensor, " A"], Int[Tensor, " A"]]:
    """Return k and n of each row, together at most the method's window.

    If fewer than n + k masked tokens are left, the candidates stay and the latent tokens shrink (D-13, last
    decoding steps). Of an order with blocks, candidates are among the masked tokens `in_block`. Under a rule
    with blocks, latent tokens are, too.
    """
    visible = method.max_visible(num_masked)
    in_block = visible if in_block is None else in_block.minimum(visible)
    if block_of(method.attention) is not None:
        visible = in_block
    if (step_size > visible).any():
        raise ValueError(
            f"tokens_per_step={int(step_size.max())} with a window of {method.window}: "
            f"the input has at most {method.window} masked tokens. Use tokens_per_step={method.window}."
        )
    k = resolve_count(decoding.candidates, in_block, num_clean, "candidates", least=1).maximum(step_size)
    latents = method.default_latents if decoding.latents is None else decoding.latents
    n = resolve_count(latents, visible - k, num_masked, "latents", least=0)
    return k, n


def resolve_count(
    number: Count, limit: Int[Tensor, " A"], counts: Int[Tensor, " A"], name: str, least: int
) -> Int[Tensor, " A"]:
    """Return a number of tokens per row, at most `limit`: all, fixed, or a function of the row's count.

    Raises:
        ValueError: the function does not return a whole number from `least`.
    """
    if not callable(number):
        return limit if number == "all" else limit.clamp(max=number)
    numbers = torch.tensor([number(count) for count in counts.tolist()], device=counts.device)
    if numbers.is_floating_point() or (numbers < least).any():
        raise ValueError(
            f"{name} gives {numbers.tolist()} for {counts.tolist()} tokens: "
            f"must be whole numbers from {least}"
        )
    return numbers.minimum(limit)
