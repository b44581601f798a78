"""The contract of a network, tested: what the logits of a `Denoiser` may depend on, and what they must."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

import torch
from torch import nn

from latent_tokens.checks import check_int, first_line
from latent_tokens.core.methods import Denoiser, Method
from latent_tokens.core.wrappers import as_denoiser, unwrap
from latent_tokens.network.probes import (
    check_hidden_slots,
    check_input_matters,
    check_order,
    check_rows,
    failure,
    probe_of,
)
from latent_tokens.network.transformer import Transformer

FEWEST_POSITIONS = 4  # of a sequence with two clean and two masked tokens
PASSED: WeakValueDictionary[tuple[int, Method], Denoiser] = WeakValueDictionary()
"""Networks that `check_once` has checked, by id and method, as long as they exist."""


def check_network(net: Denoiser, method: Method, length: int, vocab_size: int) -> None:
    """Raise ValueError, naming the fix, if a network breaks the contract of a `Denoiser`.

    About 15 forward passes of 7 slots in eval mode test that

    - logits are finite, one per slot and token,
    - clean tokens and positions change them,
    - slots that the mask hides do not,
    - the order of slots that the mask does not tell apart does not,
    - other rows of the batch do not.

    `generate` and `evaluate` call it once per method for a network other than `Transformer` that is a torch
    module, or has one as an attribute.

    Args:
        net: the network, trained or not.
        method: whose attention rule and readout the inputs have.
        length: the number of positions. Below 4, only the logits' shape and values are tested.
        vocab_size: the number of tokens without MASK.

    Raises:
        ValueError: the network does not pass.

    Example:
        >>> net = Transformer(SIZES["pico"], vocab_size=4, max_length=16)
        >>> check_network(net, METHODS["scdm"], length=16, vocab_size=4)
    """
    check_int("length", length, 1)
    check_int("vocab_size", vocab_size, 1)
    as_denoiser(net)
    weights = [weight for module in modules_of(net) for weight in module.parameters()]
    device = weights[0].device if weights else torch.device("cpu")
    dtypes = {weight.dtype for weight in weights if weight.is_floating_point()} | {torch.float32}
    eps = max(torch.finfo(dtype).eps for dtype in dtypes)
    with eval_mode(net), torch.no_grad():
        probe = probe_of(net, method, length, vocab_size, device)
        try:
            probe.logits()
        except IndexError as error:
            sizes = f"{length} positions, {vocab_size} tokens and MASK, {net.mask_id}"
            raise failure(net, f"fails on {sizes} ({first_line(error)}). Enlarge its embeddings.") from error
        if length < FEWEST_POSITIONS or vocab_size == 1:
            return
        check_input_matters(probe, is_shifted=method.readout == "shifted")
        check_hidden_slots(probe)
        check_order(probe, eps)
        check_rows(probe)


def check_once(net: Denoiser, method: Method, length: int) -> None:
    """Call `check_network` unless the net is ours, has no weights, or has passed with this method before."""
    net = unwrap(net)
    if isinstance(net, Transformer) or not modules_of(net) or (id(net), method) in PASSED:
        return
    check_network(net, method, length, getattr(net, "vocab_size", net.mask_id))
    PASSED[id(net), method] = net


def modules_of(net: Denoiser) -> list[nn.Module]:
    """Return the network if it is a torch module, else those of its attributes that are."""
    parts = [net] if isinstance(net, nn.Module) else getattr(net, "__dict__", {}).values()
    return [part for part in parts if isinstance(part, nn.Module)]


@contextmanager
def eval_mode(net: Denoiser) -> Iterator[None]:
    """Put every module of a network in eval mode, and back in the end."""
    training = [part for module in modules_of(net) for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
