"""The contract of a network, (ids, positions, mask) -> logits, and networks in their wrappers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from latent_tokens.checks import refuse


@runtime_checkable
class Denoiser(Protocol):
    """Any callable (ids, positions, mask) -> logits with an integer `mask_id`.

    ids, positions: Int[B, S]; mask: Bool[B, S, S]; logits: Float[B, S, V]. A column `mask_id` of
    the logits is never chosen, and a token without a column is never predicted. What logits may
    depend on, the mask and the positions, is tested by `check_network`. If `supports_slots` is
    true, it takes a fourth argument, slots Bool[B, S], and returns the logits of these slots only,
    (N, V), row by row. On an accelerator its mask may then be a FlexAttention BlockMask. If it has
    `num_positions`, a number and not None, longer rows are refused. If it has `vocab_size`, columns
    from it on are never chosen: some networks pad their logits. `check_network` asks for a column
    of each token, or for as many as its `num_logits`.

    Example:
        >>> isinstance(net, Denoiser)
        True
    """

    mask_id: int

    def __call__(self, ids: Tensor, positions: Tensor, mask: Tensor, /) -> Tensor: ...


def supports_slots(net: Denoiser) -> bool:
    """Return whether a denoiser takes slots as its fourth argument."""
    return bool(getattr(net, "supports_slots", False))


class HasMask(Protocol):
    """What has the `mask_id` of a network, and perhaps its `vocab_size`."""

    mask_id: int


def vocab_end(net: HasMask) -> int:
    """Return the first id that is no token: `vocab_size`, or 2^63 - 1 of a network that lacks it."""
    return getattr(net, "vocab_size", None) or torch.iinfo(torch.int64).max


def check_vocabulary(net: HasMask, tokens: Tensor) -> None:
    """Raise ValueError with the first of some tokens that a network lacks."""
    end = vocab_end(net)
    wrong = tokens[(tokens < 0) | (tokens >= end)]
    if len(wrong):
        problem = f"the network has {end:,} tokens"
        refuse(f"token {int(wrong[0])}", problem, f"0-{end - 1}, or a larger network")


def token_logits(net: HasMask, logits: Float[Tensor, "*N V"]) -> Float[Tensor, "*N V"]:
    """Return the logits with the columns of MASK, and from `vocab_size` on, at minus infinity."""
    columns = logits.shape[-1]
    excluded = [at for at in {net.mask_id, *range(vocab_end(net), columns)} if at < columns]
    if not excluded:
        return logits
    return logits.index_fill(-1, torch.tensor(excluded, device=logits.device), -torch.inf)


def check_length(net: Denoiser | nn.Module, length: int) -> None:
    """Raise ValueError if a network has `num_positions`, and they are fewer than those of a row."""
    longest = getattr(unwrap(net), "num_positions", None)
    if longest is not None and length > longest:
        refuse(f"tokens of {length} positions", f"the net has {longest}", "shorter rows")


def check_rows(
    tokens: Tensor, by_position: Mapping[str, object], *, lengths: object, **by_row: object
) -> None:
    """Raise ValueError unless tokens are whole numbers (B, L), and others of their shape, or of B numbers."""
    if tokens.dim() != 2:
        raise ValueError(f"tokens {tuple(tokens.shape)}: must be (B, L). Use tokens[None] for one.")
    if tokens.is_floating_point():
        raise ValueError(f"tokens of {tokens.dtype}: must be whole numbers. Use tokens.long().")
    by_row = {"lengths": lengths, **by_row}
    shapes = {}
    for name, values in {**by_position, **by_row}.items():
        if not isinstance(values, Tensor) or values.is_floating_point():
            kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
            refuse(f"{name} of {kind}", "must be a tensor of whole numbers", "torch.tensor(...)")
        shapes[name] = values.shape
    batch, length = tokens.shape
    if shapes != dict.fromkeys(by_position, tokens.shape) | dict.fromkeys(by_row, (batch,)):
        like, rows = " and ".join(by_position), " and ".join(by_row)
        given = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        must = f"{like} must be of the shape of tokens, {rows} of its first"
        raise ValueError(f"tokens {(batch, length)} with {given}: {must}")
    of_rows = cast(Tensor, lengths)
    if ((of_rows < 0) | (of_rows > length)).any():
        raise ValueError(f"lengths={of_rows.tolist()}: must lie in 0..{length}")


HOLD_MODULE = (DistributedDataParallel, DataParallel, AveragedModel)


@dataclass
class Wrapped:
    """A wrapper as a `Denoiser`: the wrapper is called, and the network inside it has the attributes."""

    wrapper: Callable[..., Tensor]
    mask_id: int
    supports_slots: bool
    vocab_size: int | None

    def __call__(self, *inputs: Any) -> Tensor:
        return self.wrapper(*inputs)


def unwrap(net: Denoiser | nn.Module) -> Denoiser:
    """Return the network inside all of its wrappers, or the network if it has none.

    Example:
        >>> unwrap(torch.compile(net)) is net
        True
    """
    # PEFT and torch.compile are not imported, because each takes seconds.
    if isinstance(net, HOLD_MODULE):
        return unwrap(cast(nn.Module, net.module))
    if isinstance(net, nn.Module) and "_orig_mod" in net._modules:  # torch.compile
        return unwrap(cast(nn.Module, net._orig_mod))
    get_base_model: Any = getattr(net, "get_base_model", None)
    if get_base_model is not None and type(net).__module__.startswith("peft."):
        return unwrap(get_base_model())
    return cast(Denoiser, net)


def as_denoiser(net: Denoiser | nn.Module) -> Denoiser:
    """Return a network with its attributes, which a wrapper may lack. It is called as it is.

    Raises:
        ValueError: the network has no `mask_id`.
    """
    inner = unwrap(net)
    if not hasattr(inner, "mask_id"):
        fix = "Set it to the id that masked slots receive, such as the vocabulary size"
        if hasattr(inner, "get_output_embeddings"):  # a model of transformers
            fix = "Train from its directory with start=, or wrap it: docs/own-network.md has a wrapper"
        raise ValueError(f"net={type(inner).__name__}: has no mask_id. {fix}.")
    if inner is net:
        return inner
    vocab_size = getattr(inner, "vocab_size", None)
    return Wrapped(net, inner.mask_id, supports_slots(inner), vocab_size)
