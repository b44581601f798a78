"""The exact nats of held-out boards, along a random order or along the order in which the model decodes."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from latent_tokens.core.decoding import Count, Decoding
from latent_tokens.core.likelihood import teacher_forced_order
from latent_tokens.core.order import any_order, first_order
from latent_tokens.core.state import Streams
from latent_tokens.data.datasets import task_of
from latent_tokens.evaluation.evaluate import checked_decodings
from latent_tokens.evaluation.problems import Batch, device_of, policy_for
from latent_tokens.evaluation.rows import Row
from latent_tokens.network.likelihood import token_scores
from latent_tokens.network.transformer import Transformer
from latent_tokens.paper.design.recipes import Recipe
from latent_tokens.paper.running.held_out import entries_of, held_out_examples, likelihood_row
from latent_tokens.tasks import Examples, Task


def measure_nats(net: Transformer, recipe: Recipe) -> Row:
    """Return the row of the nats of held-out boards along one order per board."""
    task = task_of(recipe.data)
    return row_of_boards(net, task, recipe, held_out_examples(task, recipe))


def row_of_boards(net: Transformer, task: Task, recipe: Recipe, examples: Examples) -> Row:
    """Return the row of the nats of these boards.

    Each step scores one token. The row has the order's number of candidates.
    """
    # The settings of the order, and those of scoring along it.
    (decoding,) = checked_decodings(net, task, recipe.evaluation)
    scoring = replace(decoding, candidates=1, latent_policy=policy_for(net, task, recipe.evaluation))
    if recipe.variant.adjust is not None:
        scoring = recipe.variant.adjust(net, task, scoring)

    # The nats of each board.
    batch = Batch.of(examples, device_of(net))
    seed = recipe.evaluation.seed
    begun = time.perf_counter()
    if recipe.evaluation.order == "uniform":
        order = random_order(batch, seed)
    else:
        order = top_prob_order(net, batch, decoding, seed)
    nats = nats_along(net, batch, order, scoring, seed)
    seconds = time.perf_counter() - begun

    shown = replace(scoring, candidates=decoding.candidates)
    return likelihood_row(net, task, recipe, shown, examples, entries_of(examples, nats, recipe), seconds)


def random_order(batch: Batch, seed: int) -> Int[Tensor, "B L"]:
    """Return one random order per board, the same for every model."""
    streams = Streams(seed, batch.rows)
    draw = partial(streams.uniform, batch.rows, batch.lengths)
    return first_order(any_order, batch.known, batch.lengths, draw)


def top_prob_order(net: Transformer, batch: Batch, decoding: Decoding, seed: int) -> Int[Tensor, "B L"]:
    """Return the order in which the model decodes each board by teacher forcing, at n = all if n is free."""
    latents: Count | None = "all" if net.method.latent_control == "free" else None
    with_latents = replace(decoding, latents=latents)
    return teacher_forced_order(
        net, net.method, batch.tokens, batch.known, with_latents, seed, lengths=batch.lengths
    )


def nats_along(
    net: Transformer, batch: Batch, order: Int[Tensor, "B L"], decoding: Decoding, seed: int
) -> NDArray[np.float64]:
    """Return the negative log-likelihood of each board along its order, in nats (B)."""
    scores = token_scores(
        net,
        net.method,
        batch.tokens,
        order,
        batch.known.sum(1),
        batch.lengths,
        decoding.latents,
        latent_policy=decoding.latent_policy,
        streams=Streams(seed + 1, batch.rows),  # others than those of the order
    )
    nats: NDArray[np.float64] = -scores.log_probabilities.sum(1).cpu().numpy()
    return nats
