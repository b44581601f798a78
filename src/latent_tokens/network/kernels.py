"""The fastest linear layer and attention of a device, and torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeGuard, TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from latent_tokens.core.distribution import above, nucleus
from latent_tokens.devices import bf16_is_fast

FEW_QUERIES = 8  # of a sequence, in `attend_last`
FEWEST_CHANNELS = 16  # of a head in FlexAttention on CUDA. Zeros are added to fewer
MANY_ROWS = 8  # sequences from which cached decoding is worth a form of its own
ALL_OUTPUTS = slice(None)
PackedWeights = dict[tuple[nn.Module, int | None, int | None], Tensor]
"""By layer, first and last output."""
PACKED: ContextVar[PackedWeights | None] = ContextVar("packed weights", default=None)


def linear(
    layer: nn.Module, x: Float[Tensor, "*N C"], outputs: slice = ALL_OUTPUTS
) -> Float[Tensor, "*N D"]:
    """Return layer(x), x W^T + bias: with weights that are packed, if `packed_weights` is on.

    The product is the same. Any layer but torch's own linear one without hooks is called, as is one
    that a tool has put in its place: quantized, or with an adapter.

    Args:
        layer: a linear layer. With `outputs` it is torch's own, without hooks.
        x: its input.
        outputs: the output features to compute.
    """
    if not is_plain_linear(layer):
        return cast(Tensor, layer(x))
    weight: Tensor = layer.weight
    bias: Tensor | None = layer.bias
    if outputs != ALL_OUTPUTS:
        weight, bias = weight[outputs], None if bias is None else bias[outputs]
    if x.device.type != "cpu" or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)

    packed = None if torch.compiler.is_compiling() else PACKED.get()
    if packed is not None and x.dtype == weight.dtype == torch.bfloat16:
        key = (layer, outputs.start, outputs.stop)
        if key not in packed:
            packed[key] = torch.ops.mkldnn._reorder_linear_weight(weight)
        product = torch.ops.mkldnn._linear_pointwise(x, packed[key], bias, "none", [], "")
        return cast(Tensor, product)
    # Other strides can take twenty times as long in bf16.
    return F.linear(x.contiguous(), weight, bias)


def is_plain_linear(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Return whether a layer is torch's own linear one, and its call no more than its forward."""
    return type(layer) is nn.Linear and not (layer._forward_hooks or layer._forward_pre_hooks)


@contextmanager
def packed_weights() -> Iterator[None]:
    """Pack the weights of linear layers once, in bf16 on a CPU with instructions for it.

    oneDNN packs the weights of a product in bf16 at every call, which takes up to half of its time.
    Within the context, `linear` does so at the first call of each layer. Its results are the same,
    bit for bit. The weights must not change within the context.
    """
    has_mkldnn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    can_pack = has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise") and bf16_is_fast()
    before = PACKED.set({} if can_pack else None)
    try:
        yield
    finally:
        PACKED.reset(before)


def has_hooks(module: nn.Module) -> bool:
    """Return whether a call of a module, or of one inside it, does more than its forward."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(part, kind) for part in module.modules() for kind in kinds)


def attend(
    q: Float[Tensor, "B H Q C"],
    k: Float[Tensor, "B H S C"],
    v: Float[Tensor, "B H S C"],
    mask: Bool[Tensor, "#B 1 Q S"] | BlockMask | None,
) -> Float[Tensor, "B H Q C"]:
    """Return softmax(q k^T / sqrt(C)) v over the keys that the mask admits. None admits all.

    Training on a CPU in bf16 uses two matrix products: the backward pass of the fused kernel takes
    four times as long there (docs/performance.md).
    """
    if isinstance(mask, BlockMask):
        channels = q.shape[-1]
        if channels < FEWEST_CHANNELS:
            q, k, v = (F.pad(x, (0, FEWEST_CHANNELS - channels)) for x in (q, k, v))
        on_cpu = q.device.type == "cpu"  # uncompiled there, for tests
        flex: Any = flex_attention if on_cpu else compiled(flex_attention, one_graph=False)
        return cast(Tensor, flex(q, k, v, block_mask=mask, scale=channels**-0.5)[..., :channels])
    if q.device.type == "cpu" and q.dtype == torch.bfloat16 and torch.is_grad_enabled():
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        if mask is not None:
            scores = scores + torch.zeros(mask.shape, dtype=q.dtype).masked_fill_(~mask, -torch.inf)
        return cast(Tensor, scores.softmax(-1) @ v)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attend_last(
    q: Float[Tensor, "B H Q C"], k: Float[Tensor, "B H L C"], v: Float[Tensor, "B H L C"], stop: int
) -> Float[Tensor, "B H Q C"]:
    """Return `attend` of queries that are the last of `stop` slots, each up to itself.

    The caches of keys and values have L slots. A few queries in float32 on a CPU take two batched
    matrix products, which are faster.
    """
    num_queries, channels = q.shape[2:]
    is_plain = q.device.type != "cpu" or q.dtype != torch.float32 or num_queries > FEW_QUERIES
    if is_plain or len(q) < MANY_ROWS or torch.is_autocast_enabled("cpu"):
        mask = None
        if num_queries > 1:
            every = torch.ones(1, 1, num_queries, stop, dtype=torch.bool, device=q.device)
            mask = every.tril(stop - num_queries)
        return attend(q, k[:, :, :stop], v[:, :, :stop], mask)
    keys, values = (x.flatten(0, 1)[:, :stop] for x in (k, v))
    queries = q.reshape(-1, num_queries, channels)
    scores = q.new_empty(len(queries), num_queries, stop)
    torch.baddbmm(scores, queries, keys.transpose(1, 2), beta=0, alpha=channels**-0.5, out=scores)
    for query in range(num_queries - 1):
        scores[:, query, stop - num_queries + query + 1 :] = -torch.inf
    return scores.softmax(-1).bmm(values).view(q.shape)


R = TypeVar("R")
MOST_COMPILATIONS = 64  # of a function: each width, precision and gradient mode takes one


@cache
def compiled(function: Callable[..., R], one_graph: bool = True) -> Callable[..., R]:
    """Return a function compiled, with `one_graph` as one graph for any number of rows.

    It is the same compiled function for every block.
    """
    limits: Any = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, MOST_COMPILATIONS)
    return torch.compile(function, dynamic=one_graph or None, fullgraph=one_graph)


def compile_blocks(net: nn.Module) -> None:
    """Let the blocks of a network run compiled, in training and decoding.

    Attention runs as before. The results differ by rounding. The first call takes seconds, and on a
    CPU a C++ compiler.

    Raises:
        ValueError: the network has no blocks of ours.

    Example:
        >>> compile_blocks(net)
    """
    blocks: list[Any] = [module for module in net.modules() if hasattr(module, "compiled")]
    if not blocks:
        raise ValueError(f"net={type(net).__name__}: has no blocks to compile. Use a Transformer.")
    for block in blocks:
        block.compiled = True


NUM_RANKED = 4_096  # tokens of a large vocabulary that are ranked first: a nucleus rarely has more
SUM_ROUNDING = 1e-9  # more than that of a sum of probabilities


def fast_nucleus(probabilities: Float[Tensor, "A T V"], top_p: float) -> Float[Tensor, "A T V"]:
    """Return what `nucleus` does. On a CPU, the largest of a large vocabulary are ranked first."""
    vocabulary = probabilities.shape[-1]
    if probabilities.device.type != "cpu" or vocabulary <= 2 * NUM_RANKED:
        return nucleus(probabilities, top_p)
    # numpy selects five times as fast as it sorts, and sorts ten times as fast as torch.
    values = np.partition(probabilities.numpy(), -NUM_RANKED)[..., -NUM_RANKED:]
    if not (values.sum(-1) > top_p + SUM_ROUNDING).all():
        values = probabilities.numpy()
    ranked = torch.from_numpy(np.sort(values, axis=-1)).flip(-1)
    beyond = ranked.cumsum(-1) - ranked >= top_p
    size = (~beyond).sum(-1, keepdim=True)
    least = ranked.gather(-1, size - 1)
    inside = probabilities >= least
    # Most often all ties belong to the set.
    if inside.sum(-1, keepdim=True).equal(size):
        return torch.where(inside, probabilities, 0.0)
    return above(probabilities, least, size - (ranked > least).sum(-1, keepdim=True))
