"""How fast the package is on this machine, how far that is from the machine's limit, and what the fast paths gain over the plain ones.

All that is compared is measured in turn, in one process, and reported as medians.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, product
from typing import Any, Literal

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel

from latent_tokens import processes
from latent_tokens.bench.machine import (
    Machine,
    count_flop,
    describe_machine,
    measure_machine,
    peak_memory,
    seconds,
)
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
from latent_tokens.core.decoding import Decoding, Generated
from latent_tokens.core.methods import METHODS
from latent_tokens.core.objective import TrainingBatch
from latent_tokens.network.fast import generate
from latent_tokens.network.transformer import Transformer
from latent_tokens.progress import progress
from latent_tokens.sizes import SIZES
from latent_tokens.tasks import Examples
from latent_tokens.training.batches import training_batches
from latent_tokens.training.step import ema_update, train_step

VOCABULARY = 32  # of the networks that train: the paper's (checkpoints.md)
WARM_UP = 3  # training steps before any is measured: until the allocator holds what a step takes
PASSES = 5  # of the network in one measurement of it
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

Row = dict[str, Any]
Setting = tuple[str, int | None, int]


@dataclass(frozen=True)
class Case:
    """Something to measure: what it is, its fast and its plain way, and what each must compute."""

    about: Row
    units: float  # samples or tokens that one run gives
    fast: Callable[[], Any]
    plain: Callable[[], Any] | None
    flop: int  # of the fast way
    moved: float = 0  # bytes, of the fast way: each weight once a pass
    plain_flop: int | None = None


def bench(config: BenchConfig, *, on_row: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """The rows of the benchmark; `on_row` receives each as soon as those it is compared with are measured.

    rate: samples or tokens a second of the fast way. floor_seconds: FLOP / measured peak of a matrix product, or bytes /
    measured bandwidth of a copy, whichever is more; share = floor_seconds / seconds. ratio_to_reference: seconds of the plain
    way / seconds. reference_share: the share of the plain way, where its FLOP are counted. ratio_to_mdm: seconds of the first
    mdm row of this size, length and batch / seconds; token_theory is what the number of tokens alone makes of it.
    process_peak_mb: the most that the process has held so far.
    Raises ValueError for an unknown method.
    """
    asked = settings(config)
    return measure_all(
        config, lambda precision, device: groups_of_cases(config, asked, precision, device), on_row
    )


def measure_all(
    config: BenchConfig,
    cases_of: Callable[[Precision, torch.device], Iterator[list[Case]]],
    on_row: Callable[[Row], None],
) -> list[Row]:
    """The rows of all cases, a group after the other, for each precision of the config."""
    device, rows = processes.join().device, list[Row]()
    for precision in config.precisions:
        machine = measure_machine(DTYPES[precision], device)
        for all_ways in cases_of(precision, device):
            cases = all_ways if config.plain else [replace(case, plain=None) for case in all_ways]
            ways = sum(2 if case.plain else 1 for case in cases)
            with progress(
                f"measuring {cases[0].about['what']}, {precision}", config.rounds * ways
            ) as advance:
                found = measure(cases, config.rounds, machine, device, advance)
            for row in found:
                rows.append({**row, "precision": precision, "device": describe_machine(device)})
                on_row(rows[-1])
    return rows


def measure(
    cases: Sequence[Case],
    rounds: int,
    machine: Machine,
    device: torch.device,
    advance: Callable[[int, str], None],
) -> list[Row]:
    """A row a case: medians over rounds, in each of which every case has its turn, fast and plain."""
    taken: list[tuple[list[float], list[float]]] = [([], []) for _ in cases]
    for _ in range(rounds):
        for case, ways in zip(cases, taken, strict=True):
            for way, found in zip((case.fast, case.plain), ways, strict=True):
                if way is not None:
                    found.append(seconds(way, device))
                    advance(1, f"{case.about['method']} {found[-1]:.2f} s")
    base = next(
        (
            statistics.median(fast)
            for case, (fast, _) in zip(cases, taken, strict=True)
            if case.about["method"] == "mdm"
        ),
        None,
    )
    rows = []
    for case, ways in zip(cases, taken, strict=True):
        took, plain = statistics.median(ways[0]), statistics.median(ways[1]) if ways[1] else None
        floor = machine.floor(case.flop, case.moved)
        row = {
            **case.about,
            "rate": round(case.units / took, 3),
            "seconds": round(took, 5),
            "floor_seconds": round(floor, 5),
            "share": floor / took,
        }
        row |= {"flop": case.flop} | ({} if plain is None else {"ratio_to_reference": plain / took})
        if base is not None and case.about["what"] == "decode":
            row["ratio_to_mdm"] = base / took
        if case.plain_flop is not None and plain is not None:
            row["reference_share"] = machine.floor(case.plain_flop, 0) / plain
        row |= {
            "gemm_gflops": machine.flops / 1e9,
            "copy_gbytes": machine.bandwidth / 1e9,
            "process_peak_mb": peak_memory(device) / 2**20,
        }
        rows.append(
            {
                name: round(value, 3) if isinstance(value, float) and name != "floor_seconds" else value
                for name, value in row.items()
            }
        )
        rows[-1]["rounds"] = rounds
    return rows


def groups_of_cases(
    config: BenchConfig, asked: list[Setting], precision: Precision, device: torch.device
) -> Iterator[list[Case]]:
    """The cases, those that are compared with one another together."""
    for net, size, length, batch in nets(config, precision, device) if asked else ():
        yield [forward_case(net, size, length, batch)]
        yield [decoding_case(net, size, length, batch, *setting, config.top_p) for setting in asked]
    for shape in config.train:
        yield [training_case(shape, precision)]


def nets(
    config: BenchConfig, precision: Precision, device: torch.device
) -> Iterator[tuple[Transformer, SizeName, int, int]]:
    """(an untrained network, its size, length, batch) for each that the config names."""
    for size, length, batch in product(config.sizes, config.lengths, config.batch_sizes):
        net = (
            untrained(size, length, config.positions, "exact", config.vocabulary)
            .eval()
            .requires_grad_(False)
            .to(device, DTYPES[precision])
        )
        yield net, size, length, batch


def untrained(
    size: SizeName,
    length: int,
    positions: Literal["both", "rotary", "learned"],
    gelu: Literal["exact", "tanh"],
    vocabulary: int,
) -> Transformer:
    """A network as training starts with it; the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Transformer(SIZES[size], vocabulary - 1, length, positions, gelu=gelu)


def settings(config: BenchConfig) -> list[Setting]:
    """(method, latents, candidates) of what is decoded; by default 8 candidates, but 1 where the order is fixed, and for the causal rule."""
    found = []
    for name in config.methods:
        method = METHODS[name]
        dial = config.latents if method.latent_control == "free" else (None,)
        default = (1,) if is_cacheable(method.attention) else (DEFAULT_CANDIDATES,)
        found += [
            (name, n, k)
            for n in dial
            for k in ((1,) if method.is_left_to_right else config.candidates or default)
        ]
    return found


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
    """Whole sequences, nothing known, one token a step."""
    method, decoding = METHODS[name], Decoding(candidates, latents, top_p=top_p)
    nothing = torch.zeros(batch, length, dtype=torch.bool, device=net.head.weight.device)

    def decode(way: Callable[..., Generated]) -> Generated:
        return way(net, method, nothing.long(), nothing, decoding, 0)

    flop = count_flop(lambda: decode(generate))
    is_fixed = method.latent_control == "fixed"
    n = (method.window or length) - candidates if is_fixed else latents or 0
    if is_cacheable(method.attention):
        cost = 1 / length if method.readout == "shifted" else cached_cost(length, candidates, n)
    else:
        cost = relative_cost(length, candidates, n)
    about = {
        "what": "decode",
        "method": name,
        "size": size,
        "batch": batch,
        "length": length,
        "latents": "all" if n >= length - candidates * is_fixed else n,
    }
    about |= {"candidates": candidates, "unit": "samples/s", "token_theory": round(1 / cost, 3)}
    return Case(
        about,
        batch,
        lambda: decode(generate),
        lambda: decode(reference.generate),
        flop,
        length * weight_bytes(net),
    )


def forward_case(net: Transformer, size: str, length: int, batch: int) -> Case:
    """Five passes of mdm: eight candidates' logits against every slot's."""
    method, device = METHODS["mdm"], net.head.weight.device
    tokens, known = (
        torch.zeros(batch, length, dtype=torch.int64),
        torch.zeros(batch, length, dtype=torch.bool),
    )
    layout = method.draw(
        known, known.new_full((batch,), length, dtype=torch.int64), torch.Generator().manual_seed(0)
    )
    drawn = TrainingBatch(
        tokens,
        layout,
        layout.slots.expand_as(layout.positions) >= length - DEFAULT_CANDIDATES,
        torch.ones(batch),
    ).to(device)

    @torch.no_grad()
    def fast() -> None:
        for _ in range(PASSES):
            method.logits_at(drawn.scored, net, drawn.tokens, drawn.layout)

    @torch.no_grad()
    def plain() -> None:
        for _ in range(PASSES):
            method.logits(net, drawn.tokens, drawn.layout)

    about = {
        "what": "forward",
        "method": "mdm",
        "size": size,
        "batch": batch,
        "length": length,
        "unit": "tokens/s",
    }
    return Case(
        about,
        PASSES * batch * length,
        fast,
        plain,
        count_flop(fast),
        PASSES * weight_bytes(net),
        count_flop(plain),
    )


def training_case(shape: str, precision: Precision) -> Case:
    """An optimizer step of mdm, clipping and averaged weights included. The plain way takes every slot through the last layer, of sequences
    padded as the shape says.
    """
    size, batch, length, padded = training_shape(shape)
    fast, net = training_step(size, batch, length, precision, supports_slots=True)
    plain, _ = training_step(size, batch, padded, precision, supports_slots=False)
    about = {
        "what": "train",
        "method": "mdm",
        "size": size,
        "batch": batch,
        "length": length,
        "unit": "tokens/s",
    }
    about |= {} if padded == length else {"reference_length": padded}
    return Case(
        about, batch * length, fast, plain, count_flop(fast), 3 * weight_bytes(net), count_flop(plain)
    )


def training_step(
    size: SizeName, batch: int, length: int, precision: Precision, supports_slots: bool
) -> tuple[Callable[[], None], Transformer]:
    """A function that takes the next step on random tokens, and the network that learns."""
    config = TrainConfig(task="random tokens", method="mdm", size=size, batch_size=batch, precision=precision)
    tokens = np.random.default_rng(0).integers(VOCABULARY - 1, size=(4 * batch, length)).astype(np.uint8)
    method, accelerator, numbers = METHODS["mdm"], processes.join(), count()
    net = untrained(size, length, config.positions, config.gelu, VOCABULARY)
    averaged = AveragedModel(net, multi_avg_fn=ema_update(config.ema)).to(accelerator.device)
    model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), config.lr, fused=True))
    model.mask_id, model.supports_slots = net.mask_id, supports_slots
    batches = training_batches(
        Examples.of(tokens, np.zeros(tokens.shape, bool)), method, config, net.mask_id, 0, accelerator.device
    )

    def step() -> None:
        train_step(model, method, optimizer, next(batches), config, next(numbers), accelerator)
        averaged.update_parameters(net)

    for _ in range(WARM_UP):
        step()
    return step, net


def weight_bytes(net: Transformer) -> int:
    """Bytes of the weights of the blocks and the head: what every forward pass must read."""
    return sum(
        parameter.numel() * parameter.element_size()
        for part in (net.blocks, net.head)
        for parameter in part.parameters()
    )
