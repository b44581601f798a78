"""The teacher-forced order of a sequence: the one in which a model would have decoded it."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latent_tokens import Decoding, Denoiser, Method, Step
from latent_tokens.core.distribution import nucleus
from latent_tokens.core.sampling import decode, reference_logits
from latent_tokens.core.state import first_state


def teacher_forced_order(
    net: Denoiser,
    method: Method,
    tokens: Int[Tensor, "B L"],
    known: Bool[Tensor, "B L"],
    decoding: Decoding,
    seed: int,
    *,
    lengths: Int[Tensor, " B"] | None = None,
) -> Int[Tensor, "B L"]:
    """Return the order in which `generate` decodes if each token that it decodes is the given one.

    Every step takes the most confident of the next k masked tokens of its schedule, as decoding
    does (Algorithms 4 and 5), and then sets it to the token of the sequence.

    Args:
        net: the network.
        method: how it was trained.
        tokens: complete sequences.
        known: true at given positions.
        decoding: the settings.
        seed: row b draws its schedule from the random stream (seed, b).
        lengths: the length of each row. Later positions take no part.

    Returns:
        A permutation per row: known positions first, then the others as decoded, then those past
            the length.

    Raises:
        ValueError: as `generate`.
    """
    state = first_state(net, method, tokens, known, decoding, seed, None, lengths)
    tokens = tokens.long()

    def set_tokens(step: Step) -> None:
        """Replace the tokens that the step has decoded, before the next step reads them."""
        state.tokens = tokens.masked_fill(state.tokens == net.mask_id, net.mask_id)

    every_row = torch.arange(len(tokens), device=tokens.device)
    every_slot = partial(reference_logits, net, method)
    decode(net, method, decoding, state, every_row, every_slot, nucleus, set_tokens)
    return state.order
