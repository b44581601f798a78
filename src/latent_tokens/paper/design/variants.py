"""Changes of ablations: in the training of a model, or in its decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latent_tokens.checks import Registry
from latent_tokens.core.decoding import Decoding, candidates_of
from latent_tokens.core.layout import next_layout
from latent_tokens.core.policies import (
    PolicyInput,
    quantize,
    rank_by,
    relevant,
    support_from_clean,
    support_of_candidates,
)
from latent_tokens.evaluation.evaluate import Adjust, Watcher
from latent_tokens.network.transformer import Transformer
from latent_tokens.paper.watchers.dead_ends import DeadEnds
from latent_tokens.paper.watchers.diversity import Diversity
from latent_tokens.paper.watchers.foresight import Foresight
from latent_tokens.tasks import Solvable, Sudoku, Task

DIVERSITY = ", diversity"
"""The end of the names of variants that measure the diversity of boards. Tables and figures leave it out."""
FP32 = {"precision": "fp32"}
IN_FP32 = ", fp32"  # ends the names of variants that differ from others in their precision only
OFF_DISTRIBUTION = "off-distribution"
Schedule = Callable[[int, int], int | Callable[[int], int]]
"""(L, size) -> the number of latents, or number masked -> number of latents."""


@dataclass(frozen=True)
class Variant:
    """One change: settings of the training or evaluation, a share of steps or samples, or the decoding.

    A watcher changes nothing, and writes down what it sees. A variant `in_nats` measures the exact likelihood
    of held-out boards instead of samples.
    """

    training: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1  # of the training steps
    samples: float = 1  # of those that a variant is measured on
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    adjust: Adjust | None = None
    watcher: Callable[[Solvable], Watcher] | None = None
    in_nats: bool = False


def sharing(task: Task) -> Tensor:
    """Return 1 for two cells of a Sudoku that share a row, column or box, Float[L, L].

    Raises ValueError for a task without units.
    """
    if not isinstance(task, Sudoku):
        raise ValueError(
            f"{task.name}: its positions share no units."
            " Use the policy relevant, which takes the model's own influence."
        )
    units = torch.full((task.length, 3), -1)
    units[task.boards(np.arange(task.length)[None])[0]] = torch.from_numpy(task.grid.unit_of)
    return (
        (units[:, None] == units).any(-1) & (units >= 0).all(-1) & ~torch.eye(task.length, dtype=torch.bool)
    ).double()


def of_a_unit(net: Transformer, task: Task, decoding: Decoding) -> Decoding:
    """Choose latents that share the most units with the candidates."""
    relation = quantize(sharing(task))
    return replace(
        decoding, latent_policy=rank_by(lambda step: support_of_candidates(relation, step), "of a unit")
    )


def constrained(net: Transformer, task: Task, decoding: Decoding) -> Decoding:
    """Choose latents that share units with the most clean cells."""
    relation = quantize(sharing(task))
    return replace(
        decoding, latent_policy=rank_by(lambda step: support_from_clean(relation, step), "constrained")
    )


def constrained_of_a_unit(net: Transformer, task: Task, decoding: Decoding) -> Decoding:
    """Choose latents by the product of the two: the policy relevant, with the relation of the rules."""
    return replace(decoding, latent_policy=relevant(sharing(task), "constrained of a unit"))


def certain(sign: int, net: Transformer, task: Task, decoding: Decoding) -> Decoding:
    """Choose latents that the model is most (1) or least (-1) certain of.

    Its forward pass on all masked tokens is not counted as a cost.
    """

    def certainty(step: PolicyInput) -> Float[Tensor, "A L"]:
        layout = next_layout(step.order, step.num_clean, step.num_masked, torch.zeros_like(step.num_clean))
        logits = net.method.logits(net, step.tokens, layout).double()
        certainties = sign * logits.softmax(-1).amax(-1)  # (A, S), by entry of the order
        by_position = torch.zeros_like(step.order, dtype=certainties.dtype)
        return by_position.scatter(1, step.order[:, : certainties.shape[1]], certainties)

    return replace(
        decoding, latent_policy=rank_by(certainty, "most certain" if sign > 0 else "least certain")
    )


def scheduled(shape: Schedule, net: Transformer, task: Task, decoding: Decoding) -> Decoding:
    """Schedule about as many latents in all as n = L / 4, at other steps, with the closest size."""
    length, k = task.length, candidates_of(net.method, decoding)
    if not isinstance(k, int):
        raise ValueError("candidates=all: leaves no latent tokens to schedule. Use a number.")

    def total(latents: int | Callable[[int], int]) -> int:
        return sum(
            min(latents(num_masked) if callable(latents) else latents, max(0, num_masked - k))
            for num_masked in range(1, length + 1)
        )

    goal = total(length // 4)
    best = min(range(1, length + 1), key=lambda size: abs(total(shape(length, size)) - goal))
    return replace(decoding, latents=shape(length, best))


def constant(length: int, size: int) -> int:
    """Return the same n for every step."""
    return size


def a_share(length: int, size: int) -> Callable[[int], int]:
    """Return the n of each step as a share of the masked tokens."""

    def share(num_masked: int) -> int:
        return num_masked * size // length

    return share


def early(length: int, size: int) -> Callable[[int], int]:
    """Return n = all in the first steps, then 0."""

    def early(num_masked: int) -> int:
        return num_masked if num_masked > length - size else 0

    return early


def late(length: int, size: int) -> Callable[[int], int]:
    """Return n = 0 at first, then n = all in the last steps."""

    def late(num_masked: int) -> int:
        return num_masked if num_masked <= size else 0

    return late


TIMINGS = {
    "constant": Variant(adjust=partial(scheduled, constant)),
    "a share": Variant(adjust=partial(scheduled, a_share)),
    "early": Variant(adjust=partial(scheduled, early)),
    "late": Variant(adjust=partial(scheduled, late)),
}
OF_UNITS = Variant(adjust=constrained_of_a_unit)
IN_NATS = {
    **{name: Variant(evaluation={"latent_policy": name}) for name in ("nearest", "random", "relevant")},
    "constrained of a unit": OF_UNITS,
    **{name: replace(timing, evaluation={"latent_policy": "random"}) for name, timing in TIMINGS.items()},
}
NATS = ", nats"  # ends the name of a variant that is measured in nats

VARIANTS: Registry[Variant] = Registry(
    "variant",
    {
        "plain": Variant(),
        "as printed": Variant(evaluation={"refresh": False}),
        **{f"{100 * share:g} % of the steps": Variant(share=share) for share in (0.125, 0.25, 0.5, 3)},
        **{
            f"300 % of the steps, k={k}": Variant(share=3, evaluation={"candidates": k})
            for k in (8, "growing")
        },
        "elbo": Variant(training={"weight": "elbo"}),
        "target only": Variant(training={"targets": "next"}),
        **{f"k={k}": Variant(evaluation={"candidates": k}) for k in (1, 2, 4, 8, 16, "all", "growing")},
        **TIMINGS,
        **{
            name: Variant(evaluation={"latent_policy": name})
            for name in ("random", "adjacent", "decaying", "distant")
        },
        "likelihood": Variant(),
        "blocks of 1": Variant(evaluation={"order": "left_to_right"}),
        **{
            f"blocks of {size}": Variant(evaluation={"order": f"blockwise:{size}", "candidates": 1})
            for size in (4, 16, 64)
        },
        "of a unit": Variant(adjust=of_a_unit),
        "constrained": Variant(adjust=constrained),
        "constrained of a unit": OF_UNITS,
        "most certain": Variant(adjust=partial(certain, 1)),
        "least certain": Variant(adjust=partial(certain, -1)),
        "relevant": Variant(evaluation={"latent_policy": "relevant"}),
        **{f"{name}{NATS}": replace(variant, in_nats=True) for name, variant in IN_NATS.items()},
        "watched": Variant(evaluation=FP32, watcher=lambda task: Foresight()),
        "fp32": Variant(evaluation=FP32),
        **{f"k={k}{IN_FP32}": Variant(evaluation={"candidates": k, **FP32}) for k in (4, 8)},
        f"k=8, {OFF_DISTRIBUTION}": Variant(evaluation={"candidates": 8, "off_distribution": True, **FP32}),
        **{
            f"dead ends, k={k}": Variant(evaluation={"candidates": k}, samples=0.15, watcher=DeadEnds)
            for k in (1, 8, "all", "growing")
        },
        **{
            f"k={k}{DIVERSITY}": Variant(evaluation={"candidates": k, **FP32}, watcher=Diversity)
            for k in (8, "all", "growing")
        },
        **{
            f"k={k}, noise {noise:g}{DIVERSITY}": Variant(
                evaluation={"candidates": k, "confidence_noise": noise, **FP32},
                watcher=Diversity,
            )
            for k in (8, "all", "growing")
            for noise in (1.0, 4.5)
        },
    },
)

LABELS = {
    "plain": "default",
    "fp32": "default",
    "as printed": "not reshuffled",
    "a share": "proportional",
    "early": "all early, then none",
    "late": "none early, then all",
    "of a unit": "shared unit",
    "constrained of a unit": "constrained, shared unit",
    "elbo": "elbo weight",
}  # names that are part of a recipe's hash stay


def label(variant: str | None) -> str:
    """Return the name of a variant in tables and figures."""
    if variant is None:
        return ""
    name = variant.removesuffix(NATS).removesuffix(DIVERSITY).removesuffix(IN_FP32)
    return LABELS.get(name, name).replace(" %", "%")
