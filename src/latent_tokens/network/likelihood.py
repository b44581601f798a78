"""The optimized source of logits for the likelihood of core, a KV cache, and `log_likelihood` with it."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from latent_tokens.core.decoding import Count
from latent_tokens.core.denoiser import Denoiser, check_rows, unwrap
from latent_tokens.core.likelihood import fits_one_pass, score_tokens
from latent_tokens.core.method import Method, checked_method
from latent_tokens.core.policies import LatentPolicy, nearest
from latent_tokens.core.sampling import CandidateLogits
from latent_tokens.core.state import Streams
from latent_tokens.network.fast import (
    FastCandidateLogits,
    is_plain,
    keeps_keys,
    own_cache,
    qkv_table,
)
from latent_tokens.network.transformer import Transformer
from latent_tokens.progress import Report


def log_likelihood(
    net: Denoiser | nn.Module,
    method: Method | None,
    tokens: Int[Tensor, "B L"],
    order: Int[Tensor, "B L"],
    num_known: Int[Tensor, " B"],
    lengths: Int[Tensor, " B"],
    latents: Count | None = None,
    report: Report = lambda done: None,
    off_distribution: bool = False,
    *,
    latent_policy: LatentPolicy = nearest,
    seed: int = 0,
) -> Float[Tensor, "B L"]:
    """Return the log-probability of each token given those before it in `order`.

    The input of a step has the clean tokens, n latent tokens among the masked tokens after the
    target, and the target.

    Args:
        net: the network, also in a wrapper: DDP, torch.compile or PEFT.
        method: how it was trained. None is `net.method`.
        tokens: complete sequences.
        order: a permutation per row, known positions first.
        num_known: the number of given tokens of each row.
        lengths: the length of each row.
        latents: n, or a function of the number of masked tokens. As in decoding with k = 1 and an
            order that is not reshuffled. None is the method's own number.
        report: called after every step with 1.
        off_distribution: allow any n for a method whose n is fixed in training. The result is exact
            for the decoding with that n.
        latent_policy: which masked tokens are the n. The default is those that are next in the
            order.
        seed: row b of a random latent policy draws from the random stream (seed, b).

    Returns:
        Nats in float64, by entry of the order: 0 for given tokens and past the length. The sum of a
            row is its log-likelihood given its known tokens, and given the latent tokens that were
            drawn.

    Raises:
        ValueError: the order is no permutation or not one of the method, a token is MASK or none of
            the network, shapes are off, or the method does not support the latent tokens.

    Example:
        >>> tokens, known, lengths = as_tensors(task.generate(2, seed=0))
        >>> order = left_to_right(known)
        >>> log_likelihood(net, net.method, tokens, order, known.sum(1), lengths, latents=4).shape
        torch.Size([2, 36])
    """
    method = checked_method(unwrap(net), method)
    check_rows(tokens, {"order": order}, lengths=lengths, num_known=num_known)
    tokens = tokens.long()
    order = order.long()
    scores = score_tokens(
        net,
        method,
        tokens,
        order,
        num_known,
        lengths,
        latents,
        latent_policy=latent_policy,
        streams=Streams(seed, torch.arange(len(tokens), device=tokens.device)),
        candidate_logits=scoring_logits(net, method, tokens, order, latents),
        report=report,
        off_distribution=off_distribution,
    )
    return scores.log_probabilities


@torch.no_grad()
def scoring_logits(
    net: Denoiser | nn.Module,
    method: Method,
    tokens: Int[Tensor, "B L"],
    order: Int[Tensor, "B L"],
    latents: Count | None = None,
) -> CandidateLogits | None:
    """Return what computes a batch's logits with a KV cache, for `score_tokens` along this order.

    None if the cache is not exact for the network, or one pass holds all steps.
    """
    n = method.default_latents if latents is None else latents
    is_exact = keeps_keys(method, tokens.shape[1]) and method.readout != "left"
    if fits_one_pass(method, n, tokens.shape[1]) or not is_exact:
        return None
    inner = unwrap(net)
    rows = torch.arange(len(tokens), device=tokens.device)
    if isinstance(inner, Transformer) and is_plain(inner):
        table = qkv_table(inner, *tokens.shape)
        return FastCandidateLogits(inner, method, rows, order, table)
    return own_cache(inner, method, tokens.shape[1], rows)
