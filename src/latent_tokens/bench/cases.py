"""The benchmark's cases: decoding, forward passes and training steps, with their references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, product
from typing import Any, Literal

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel

from latent_tokens import processes
from latent_tokens.bench.machine import count_flop
from latent_tokens.checkpoints.stored_methods import load_method
from latent_tokens.configs import (
    DEFAULT_CANDIDATES,
    BenchConfig,
    Precision,
    SizeName,
    TrainConfig,
    training_shape,
)
from latent_tokens.core import sampling as reference
from latent_tokens.core.attention import is_cacheable
from latent_tokens.core.cost import cached_cost, relative_cost
from latent_tokens.core.decoding import Decoding, Generated, is_off_distribution
from latent_tokens.core.method import METHODS, Method
from latent_tokens.core.objective import TrainingBatch
from latent_tokens.network.fast import generate
from latent_tokens.network.transformer import Transformer
from latent_tokens.sizes import SIZES
from latent_tokens.tasks import Examples
from latent_tokens.training.step import ema_update, train_step, training_batches

VOCABULARY = 32  # of the networks that train: the paper's (checkpoints.md)
WARM_UP = 3  # training steps before the first measurement, until the allocator has the memory of a step
PASSES = 5  # forward passes per measurement
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

Row = dict[str, Any]
Setting = tuple[str, int | None, int]


@dataclass(frozen=True)
class Case:
    """A measurement: its description, its optimized and reference implementations, and their work."""

    description: Row
    units: float  # samples or tokens per run
    optimized: Callable[[], object]
    reference: Callable[[], object] | None
    flop: int  # of the optimized implementation
    num_bytes: float = 0  # of the optimized implementation: each weight once per pass
    reference_flop: int | None = None


def settings(config: BenchConfig) -> list[Setting]:
    """Return (method, latents, candidates) of each decode.

    The default k is 8, or 1 if the order is fixed or attention is causal.
    """
    chosen: list[Setting] = []
    for name in config.methods:
        method = load_method(name)
        latents: tuple[int | None, ...] = (None,)
        if method.latent_control == "free":
            latents = config.latents
        elif method.latent_control == "fixed" and config.off_distribution:
            latents = (None, *config.latents)
        if method.is_left_to_right:
            candidates: tuple[int, ...] = (1,)
        elif config.candidates:
            candidates = config.candidates
        else:
            candidates = (1,) if is_cacheable(method.attention) else (DEFAULT_CANDIDATES,)
        chosen += product((name,), latents, candidates)
    return chosen


def nets(
    config: BenchConfig, precision: Precision, device: torch.device
) -> Iterator[tuple[Transformer, SizeName, int, int]]:
    """Yield (untrained network, size, length, batch size) for each network of the config."""
    for size, length, batch in product(config.sizes, config.lengths, config.batch_sizes):
        net = untrained(size, length, config.positions, "exact", config.vocabulary)
        net.eval().requires_grad_(False)
        yield net.to(device, DTYPES[precision]), size, length, batch


def untrained(
    size: SizeName,
    length: int,
    positions: Literal["both", "rotary", "learned"],
    gelu: Literal["exact", "tanh"],
    vocabulary: int,
) -> Transformer:
    """Return a network as training starts with it, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Transformer(SIZES[size], vocabulary - 1, length, positions, gelu=gelu)


def decoding_case(
    net: Transformer,
    size: str,
    length: int,
    batch: int,
    name: str,
    latents: int | None,
    candidates: int,
    top_p: float,
) -> Case:
    """Return the decoding of sequences without given tokens, one token per step."""
    method = load_method(name)
    decoding = Decoding(candidates, latents, top_p=top_p, off_distribution=True)  # `settings` decides
    known = torch.zeros(batch, length, dtype=torch.bool, device=net.head.weight.device)
    tokens = known.long()

    def optimized() -> Generated:
        return generate(net, method, tokens, known, decoding, 0)

    def plain() -> Generated:
        return reference.generate(net, method, tokens, known, decoding, 0)

    num_latents = latents or 0
    is_fixed = method.latent_control == "fixed"
    if is_fixed:
        most = (method.window or length) - candidates
        num_latents = most if latents is None else min(latents, most)
    shows_all = num_latents >= length - candidates * is_fixed
    cost = decoding_cost(method, length, candidates, num_latents)
    description: Row = {
        "what": "decode",
        "method": name,
        "size": size,
        "batch": batch,
        "length": length,
        "latents": "all" if shows_all else num_latents,
        "candidates": candidates,
        "unit": "samples/s",
        "token_theory": round(1 / cost, 3),
    }
    if is_off_distribution(method, latents):
        description["off_distribution"] = True
    return Case(description, batch, optimized, plain, count_flop(optimized), length * weight_bytes(net))


def decoding_cost(method: Method, length: int, candidates: int, latents: int) -> float:
    """Return the cost of a decode relative to mdm, from tokens, or from computed tokens with a KV cache."""
    if not is_cacheable(method.attention):
        return relative_cost(length, candidates, latents)
    if method.readout == "shifted":
        return 1 / length
    return cached_cost(length, candidates, latents)


def forward_case(net: Transformer, size: str, length: int, batch: int) -> Case:
    """Return forward passes of mdm: the logits of eight candidates, in the reference of every slot."""
    # The input: the last candidates of fully masked sequences.
    method = METHODS["mdm"]
    tokens = torch.zeros(batch, length, dtype=torch.int64)
    known = torch.zeros(batch, length, dtype=torch.bool)
    lengths = torch.full((batch,), length, dtype=torch.int64)
    layout = method.draw(known, lengths, torch.Generator().manual_seed(0))
    is_candidate = layout.slots.expand_as(layout.positions) >= length - DEFAULT_CANDIDATES
    inputs = TrainingBatch(tokens, layout, is_candidate, torch.ones(batch)).to(net.head.weight.device)

    @torch.no_grad()
    def optimized() -> None:
        for _ in range(PASSES):
            method.logits_at(inputs.scored, net, inputs.tokens, inputs.layout)

    @torch.no_grad()
    def plain() -> None:
        for _ in range(PASSES):
            method.logits(net, inputs.tokens, inputs.layout)

    dimensions: Row = {"size": size, "batch": batch, "length": length}
    description = {"what": "forward", "method": "mdm", **dimensions, "unit": "tokens/s"}
    return Case(
        description,
        PASSES * batch * length,
        optimized,
        plain,
        count_flop(optimized),
        PASSES * weight_bytes(net),
        count_flop(plain),
    )


def training_case(shape: str, precision: Precision) -> Case:
    """Return an optimizer step of mdm. The reference computes every slot in the last layer, with padding."""
    size, batch, length, padded = training_shape(shape)
    optimized, net = training_step(size, batch, length, precision, supports_slots=True)
    plain, _ = training_step(size, batch, padded, precision, supports_slots=False)
    dimensions: Row = {"size": size, "batch": batch, "length": length}
    description: Row = {"what": "train", "method": "mdm", **dimensions, "unit": "tokens/s"}
    if padded != length:
        description["reference_length"] = padded
    return Case(
        description,
        batch * length,
        optimized,
        plain,
        count_flop(optimized),
        3 * weight_bytes(net),
        count_flop(plain),
    )


def training_step(
    size: SizeName, batch: int, length: int, precision: Precision, supports_slots: bool
) -> tuple[Callable[[], None], Transformer]:
    """Return a function that takes the next step on random tokens, and its network."""
    # The network, its optimizer and its EMA weights.
    config = TrainConfig(task="random tokens", method="mdm", size=size, batch_size=batch, precision=precision)
    method = METHODS["mdm"]
    accelerator = processes.join()
    net = untrained(size, length, "learned", "exact", VOCABULARY)
    ema = AveragedModel(net, multi_avg_fn=ema_update(config.ema)).to(accelerator.device)
    model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), config.lr, fused=True))
    net.supports_slots = supports_slots

    # Random tokens.
    tokens = np.random.default_rng(0).integers(VOCABULARY - 1, size=(4 * batch, length)).astype(np.uint8)
    examples = Examples.of(tokens, np.zeros(tokens.shape, bool))
    batches = training_batches(examples, method, config, net.mask_id, 0, accelerator.device)
    numbers = count()

    def step() -> None:
        train_step(model, method, optimizer, next(batches), config, next(numbers), accelerator)
        ema.update_parameters(net)

    for _ in range(WARM_UP):
        step()
    return step, net


def weight_bytes(net: Transformer) -> int:
    """Return the bytes of the weights of the blocks and the head, which every forward pass reads."""
    parameters = [*net.blocks.parameters(), *net.head.parameters()]
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)
