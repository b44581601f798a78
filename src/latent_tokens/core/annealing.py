"""The annealing of an attention mask in training, from the causal rule to the method's own."""

from __future__ import annotations

import torch
from jaxtyping import Bool
from torch import Tensor

from latent_tokens.core.attention import is_cacheable
from latent_tokens.core.layout import Layout
from latent_tokens.core.rule import Rule


def draw_hidden(layout: Layout, openness: float, generator: torch.Generator) -> Bool[Tensor, "B S S"]:
    """Return which entries of the mask are hidden: those after the query slot, unless they are open.

    Each of them is open with probability `openness`, in each row by itself. At 0 the mask is the causal one,
    at 1 that of the method (DiffuLLaMA, arXiv 2410.17891).
    """
    batch, slots = layout.positions.shape
    noise = torch.rand(batch, slots, slots, generator=generator, device=generator.device)
    later = layout.slots > layout.slots[:, None]  # (S, S)
    return later & (noise >= openness).to(later.device)


def check_anneal(steps: int | None, rule: Rule) -> None:
    """Raise ValueError if a run has steps of annealing, and its rule has no entry after the query slot."""
    if steps is not None and is_cacheable(rule):
        problem = f"the rule {getattr(rule, '__name__', rule)} hides all later slots already"
        raise ValueError(f"anneal={steps}: {problem}. Leave anneal out.")
