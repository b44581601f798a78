"""The benchmark: speed of decoding and training, % of roofline, and speedup over the reference.

    python benchmarks/bench.py --methods scdm mdm --precisions fp32
    python benchmarks/bench.py --check                       # compare ratios of speeds with stored ones

All compared cases are measured in turn, in one process, and reported as medians.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from typing import Annotated, Any, NamedTuple, cast
from unittest.mock import patch

import numpy as np
import torch
import tyro
from torch.optim.swa_utils import AveragedModel
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from tyro.conf import DisallowNone, FlagCreatePairsOff, arg

from latent_tokens import processes
from latent_tokens.checkpoints.stored_methods import load_method
from latent_tokens.checks import check_int, one_line
from latent_tokens.cli import as_flags, explain_flags
from latent_tokens.commands.shared import Command, keep_freed_memory, print_table
from latent_tokens.configs import Config, PositionName, Precision, SizeName
from latent_tokens.core import method as of_method, sampling as reference
from latent_tokens.core.attention import is_cacheable
from latent_tokens.core.cost import cached_cost, relative_cost
from latent_tokens.core.decoding import DEFAULT_CANDIDATES, Decoding
from latent_tokens.core.method import METHODS
from latent_tokens.devices import device_name, resolve_precision, warn_if_slow
from latent_tokens.evaluation.settings import shown_latents
from latent_tokens.network.fast import generate
from latent_tokens.network.transformer import Transformer
from latent_tokens.progress import progress
from latent_tokens.sizes import SIZES
from latent_tokens.tables import Sheet
from latent_tokens.tasks import Examples
from latent_tokens.training.config import TrainConfig
from latent_tokens.training.step import ema_update, train_step, training_batches

VOCABULARY = 32  # of the networks that train, as the paper's
# Training steps before the first measurement, until the allocator has the memory of a step
WARM_UP = 3
SIDE = 2_048  # of the square matrices whose product is timed
COPIED = 1 << 28  # bytes: far more than caches contain
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
STORED_RATIOS = {
    "mdm, optimized over reference": 1.1,
    "scdm, optimized over reference": 1.05,
    "esolm over mdm": 2.1,
}
"""Ratios of speeds that every CPU reaches. `--check` compares with them."""
CHECKED_LENGTH = 32
CHECKED_BATCH = 4
CHECKED_ROUNDS = 5


@dataclass(frozen=True)
class BenchConfig(Config):
    """Settings to measure, in every combination."""

    methods: Annotated[tuple[str, ...], arg(metavar="METHOD [METHOD ...]")] = (
        "mdm",
        "sidm",
        "scdm",
        "esolm",
        "arm",
    )
    """Methods to decode with. {methods}."""
    sizes: tuple[SizeName, ...] = ("tiny",)
    """Network sizes to decode with."""
    lengths: tuple[int, ...] = (128,)
    """Sequence lengths."""
    batch_sizes: tuple[int, ...] = (16,)
    """Numbers of sequences decoded together."""
    latents: tuple[int, ...] = (0,)
    """Numbers of latent tokens, for methods with latent token control."""
    candidates: tuple[int, ...] | None = None
    """Numbers of candidates. Default: 8, but 1 for a fixed order and for esolm, as published."""
    train: Annotated[tuple[str, ...], arg(metavar="SHAPE [SHAPE ...]")] = ("tiny:64x128", "nano:256x36")
    """Training steps to measure, as SIZE:BATCHxLENGTH."""
    precisions: tuple[Precision, ...] | None = None
    """Floating-point formats of the network. Default: fp32, and bf16 if the hardware has
    instructions for it."""
    vocabulary: int = 32
    """Vocabulary size of a network that decodes, MASK included. 32 is that of the paper's
    parameter counts, 50258 that of GPT-2's tokens."""
    positions: PositionName = "learned"
    """Position encoding of such a network. learned, rotary (as in published text models) or
    both."""
    top_p: float = 1.0
    """Nucleus sampling of decoding. 0.9 for text."""
    plain: bool = True
    """Measure the reference implementation too, for hours if sequences are long. --no-plain leaves
    it out."""
    rounds: int = 3
    """Number of measurements, in turn. Medians are reported."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("vocabulary", self.vocabulary, 2)
        for name in ("lengths", "batch_sizes"):
            for value in getattr(self, name):
                check_int(name, value, 1)
        for value in self.latents:
            check_int("latents", value, 0)


@dataclass(frozen=True, kw_only=True)
class Bench(Command, BenchConfig):
    """Measure the speed of training and decoding on this machine.

    The speed is compared with the roofline of the machine and with the reference implementation.

    Examples:
        python benchmarks/bench.py --methods scdm mdm --precisions fp32
        python benchmarks/bench.py --sizes nano --lengths 16 --train nano:8x16 --rounds 1
    """

    json: bool = False
    """Print the rows as JSON lines instead of a table, and with --check the ratios as one JSON
    object."""
    check: bool = False
    """Compare ratios of speeds of the nano network with stored ones instead.
    Exit code 1 if one fell too far."""
    max_drop: float = 0.4
    """Share of a stored ratio that --check allows to be lost. 0 to 1."""


Row = dict[str, Any]
Setting = tuple[str, int | None, int]


class Machine(NamedTuple):
    """The roofline: FLOP per second of a matrix product, and bytes per second of a copy."""

    flops: float
    bandwidth: float

    def roofline_seconds(self, flop: float, num_bytes: float) -> float:
        """Return the least seconds for the FLOP and the bytes: the longer of both, which can overlap."""
        return max(flop / self.flops, num_bytes / self.bandwidth)


@dataclass
class Case:
    """A measurement: its description, its optimized and reference implementations, and their work."""

    description: Row
    units: float  # samples or tokens per run
    optimized: Callable[[], object]
    reference: Callable[[], object]
    flop: int  # of the optimized implementation
    num_bytes: float  # of the optimized implementation: each weight once per pass
    times: list[float] = field(default_factory=list)  # seconds of each round
    reference_times: list[float] = field(default_factory=list)

    @property
    def is_mdm(self) -> bool:
        """Whether other decodes are compared with this one."""
        return {"method": "mdm", "what": "decode"}.items() <= self.description.items()

    def row(self, machine: Machine, mdm_seconds: float | None) -> Row:
        """Return the row of the measured case, compared with the seconds of a decode by mdm."""
        took = statistics.median(self.times)
        roofline = machine.roofline_seconds(self.flop, self.num_bytes)
        row = {
            **self.description,
            "rate": round(self.units / took, 3),
            "seconds": round(took, 5),
            "floor_seconds": round(roofline, 5),
            "share": round(roofline / took, 3),
            "flop": self.flop,
            "gemm_gflops": round(machine.flops / 1e9, 3),
            "copy_gbytes": round(machine.bandwidth / 1e9, 3),
            "rounds": len(self.times),
        }
        if self.reference_times:
            row["ratio_to_reference"] = round(statistics.median(self.reference_times) / took, 3)
        if mdm_seconds is not None and row["what"] == "decode":
            row["ratio_to_mdm"] = round(mdm_seconds / took, 3)
        return row


def bench(
    config: BenchConfig,
    *,
    on_row: Callable[[Row], None] = lambda row: None,
    device: torch.device | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Row]:
    """Return the rows of the benchmark.

    rate: samples or tokens per second of the optimized implementation.
    floor_seconds: the roofline time, FLOP / measured speed of a matrix product, or bytes / measured
    speed of a copy, whichever is longer.
    share: the fraction of the roofline, floor_seconds / seconds.
    ratio_to_reference: the speedup, seconds of the reference implementation / seconds.
    ratio_to_mdm: seconds of the first mdm row of this size, length and batch / seconds.
    token_theory: the same ratio, predicted from tokens.

    Args:
        config: the settings.
        on_row: receives each row as soon as the rows it is compared with are measured.
        device: where to measure decoding. None is the device of the process.
        clock: returns seconds.

    Raises:
        ValueError: a method is unknown.
    """
    # Refuse an unknown method or shape before anything is measured.
    settings(config)
    for shape in config.train:
        training_shape(shape)
    device = device or processes.join().device
    rows: list[Row] = []
    for precision in config.precisions or default_precisions(device):
        warn_if_slow(precision, device)
        machine = measure_machine(DTYPES[precision], device)
        for cases in groups_of_cases(config, precision, device):
            title = f"measuring {cases[0].description['what']}, {precision}"
            with progress(title, config.rounds * len(cases) * (1 + config.plain)) as advance:
                measured = measure_cases(cases, config, machine, device, advance, clock)
            for row in measured:
                row |= {"precision": precision, "device": describe_machine(device)}
                rows.append(row)
                on_row(row)
    return rows


def default_precisions(device: torch.device) -> tuple[Precision, ...]:
    """Return the formats to measure on a device: fp32, and bf16 where auto is bf16."""
    return ("fp32", "bf16") if resolve_precision("auto", device) == "bf16" else ("fp32",)


# The cases.


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
        if method.is_left_to_right:
            candidates: tuple[int, ...] = (1,)
        elif config.candidates:
            candidates = config.candidates
        else:
            is_cached = is_cacheable(method.attention, max(config.lengths))
            candidates = (1,) if is_cached else (DEFAULT_CANDIDATES,)
        chosen += product((name,), latents, candidates)
    return chosen


def groups_of_cases(config: BenchConfig, precision: Precision, device: torch.device) -> Iterator[list[Case]]:
    """Yield groups of cases that are compared with each other: the decodes by each network, and each step."""
    chosen = settings(config)
    for size, length, batch in product(config.sizes, config.lengths, config.batch_sizes):
        net = untrained(size, length, config.positions, config.vocabulary)
        net.eval().requires_grad_(False).to(device, DTYPES[precision])
        workload = (net, size, length, batch)
        if chosen:
            yield [decoding_case(*workload, *setting, config.top_p) for setting in chosen]
    for shape in config.train:
        yield [training_case(shape, precision)]


def untrained(size: SizeName, length: int, positions: PositionName, vocabulary: int) -> Transformer:
    """Return a network as training starts with it, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Transformer(SIZES[size], vocabulary - 1, length, positions, gelu="exact")


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
    decoding = Decoding(candidates, latents, top_p=top_p)
    known = torch.zeros(batch, length, dtype=torch.bool, device=net.head.weight.device)
    arguments = (net, method, known.long(), known, decoding, 0)
    optimized = partial(generate, *arguments)

    # The number of latent tokens, and the cost in tokens relative to mdm.
    shown = shown_latents(method, decoding)
    num_latents = length if isinstance(shown, str) else shown
    shows_all = num_latents >= length - candidates * (method.latent_control == "fixed")
    if not is_cacheable(method.attention, length):
        cost = relative_cost(length, candidates, num_latents)
    elif method.readout == "shifted":
        cost = 1 / length
    else:
        cost = cached_cost(length, candidates, num_latents)
    description: Row = {
        "what": "decode", "method": name, "size": size, "batch": batch, "length": length,
        "latents": "all" if shows_all else num_latents, "candidates": candidates,
        "unit": "samples/s", "token_theory": round(1 / cost, 3),
    }  # fmt: skip
    plain = partial(reference.generate, *arguments)
    num_bytes = length * weight_bytes(net)
    return Case(description, batch, optimized, plain, count_flop(optimized), num_bytes)


def training_shape(shape: str) -> tuple[SizeName, int, int]:
    """Return (size, batch, length) of SIZE:BATCHxLENGTH. Raise ValueError for another text."""
    number = "([1-9][0-9]{0,5})"
    parts = re.fullmatch(rf"({'|'.join(SIZES)}):{number}x{number}", shape)
    if parts is None:
        must = "must be SIZE:BATCHxLENGTH, like tiny:64x128"
        raise ValueError(f"train={shape}: {must}. SIZE is one of {', '.join(SIZES)}.")
    size, batch, length = parts.groups()
    return cast(SizeName, size), int(batch), int(length)


def training_case(shape: str, precision: Precision) -> Case:
    """Return an optimizer step of mdm. The reference computes every slot in the last layer."""
    size, batch, length = training_shape(shape)
    optimized, net = training_step(size, batch, length, precision, supports_slots=True)
    plain, _ = training_step(size, batch, length, precision, supports_slots=False)
    description: Row = {
        "what": "train", "method": "mdm", "size": size, "batch": batch, "length": length,
        "unit": "tokens/s",
    }  # fmt: skip
    flop = count_flop(optimized)
    return Case(description, batch * length, optimized, plain, flop, 3 * weight_bytes(net))


def training_step(
    size: SizeName, batch: int, length: int, precision: Precision, supports_slots: bool
) -> tuple[Callable[[], None], Transformer]:
    """Return a function that takes the next step on random tokens, and its network."""
    config = TrainConfig("random tokens", "mdm", size=size, batch_size=batch, precision=precision)
    method = METHODS["mdm"]
    accelerator = processes.join()
    net = untrained(size, length, "learned", VOCABULARY)
    net.supports_slots = supports_slots
    ema = AveragedModel(net, multi_avg_fn=ema_update(config.ema)).to(accelerator.device)
    optimizer = torch.optim.AdamW(net.parameters(), config.lr, fused=True)
    model, optimizer = accelerator.prepare(net, optimizer)

    random = np.random.default_rng(0)
    tokens = random.integers(VOCABULARY - 1, size=(4 * batch, length)).astype(np.uint8)
    examples = Examples.of(tokens, np.zeros(tokens.shape, bool))
    batches = training_batches(examples, lambda step: method, config, net.mask_id, 0, accelerator.device)
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


# Their measurement.


def measure_cases(
    cases: Sequence[Case],
    config: BenchConfig,
    machine: Machine,
    device: torch.device,
    advance: Callable[[int, str], None],
    clock: Callable[[], float],
) -> list[Row]:
    """Return a row for each case. Each round runs every case, and its reference if asked to."""
    for _, case in product(range(config.rounds), cases):
        case.times.append(seconds(case.optimized, device, clock))
        advance(1, f"{case.description['method']} {case.times[-1]:.2f} s")
        if config.plain:
            case.reference_times.append(seconds(case.reference, device, clock))
            advance(1, f"reference {case.reference_times[-1]:.2f} s")
    mdm = next((statistics.median(case.times) for case in cases if case.is_mdm), None)
    return [case.row(machine, mdm) for case in cases]


def measure_machine(dtype: torch.dtype, device: torch.device) -> Machine:
    """Return the machine's limits for matrix products in `dtype`: medians of 15 rounds."""
    matrix = torch.randn(SIDE, SIDE, device=device).to(dtype)
    source = torch.zeros(COPIED, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    with torch.no_grad():
        products = [seconds(lambda: matrix @ matrix, device) for _ in range(15)]
        copies = [seconds(lambda: target.copy_(source), device) for _ in range(15)]
    return Machine(2 * SIDE**3 / statistics.median(products), 2 * COPIED / statistics.median(copies))


def seconds(
    work: Callable[[], object], device: torch.device, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the seconds of some work by a clock, until the device has finished it."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    wait()
    start_time = clock()
    work()
    wait()
    return clock() - start_time


def count_flop(work: Callable[[], object]) -> int:
    """Return the FLOP of the matrix products and the attention of some work, counted while it runs."""

    def forward(*shapes: Sequence[int], **options: Any) -> int:
        return int(cast(Any, sdpa_flop_count)(*shapes[:3]))  # q, k and v

    def backward(*shapes: Sequence[int], **options: Any) -> int:
        # The output's gradient, q, k and v
        return int(cast(Any, sdpa_backward_flop_count)(*shapes[:4]))

    aten = torch.ops.aten  # torch's counter only knows the kernels of accelerators
    on_cpu = {
        aten._scaled_dot_product_flash_attention_for_cpu: forward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }
    # The counter runs no compiled kernel, so attention is dense.
    dense = patch.object(of_method, "BLOCK_MASK_FROM", sys.maxsize)
    with dense, FlopCounterMode(display=False, custom_mapping=on_cpu) as counter:
        work()
    return int(counter.get_total_flops())


def describe_machine(device: torch.device) -> str:
    """Return the name of the device, and for a CPU its threads and cores."""
    if device.type == "cpu":
        return f"CPU, {torch.get_num_threads()} threads of {os.cpu_count()} cores"
    return device_name(device)


def measure_ratios() -> dict[str, float]:
    """Return ratios of speeds of the nano network by name: medians of five rounds on the CPU.

    A ratio depends far less on the machine than a speed does.
    """
    config = BenchConfig(
        ("mdm", "scdm", "esolm"), ("nano",), (CHECKED_LENGTH,), (CHECKED_BATCH,),
        precisions=("fp32",), train=(), rounds=CHECKED_ROUNDS,
    )  # fmt: skip
    # The CPU seconds of one thread leave out what other processes do.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        mdm, scdm, esolm = bench(config, device=torch.device("cpu"), clock=time.process_time)
    finally:
        torch.set_num_threads(threads)
    return {
        "mdm, optimized over reference": round(mdm["ratio_to_reference"], 2),
        "scdm, optimized over reference": round(scdm["ratio_to_reference"], 2),
        "esolm over mdm": round(esolm["ratio_to_mdm"], 2),
    }


# The table.


def speed_table(rows: Sequence[Mapping[str, Any]]) -> Sheet:
    """Return the benchmark as a table, one line per row: rate, seconds, roofline time and speedups."""
    first = rows[0]
    speeds = {row["precision"]: f"{row['gemm_gflops']:.0f} GFLOP/s" for row in rows}
    products = " and ".join(f"{speed} {precision}" for precision, speed in speeds.items())
    title = f"{first['device']}; matrix product {products}; copy {first['copy_gbytes']:.0f} GB/s"
    cells = [speed_cells(row) for row in rows]
    columns = {name: [each[name] for each in cells] for name in cells[0]}
    return Sheet(columns, f"{title}; medians of {first['rounds']}", texts=("what", "of"))


def speed_cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the cells of a row of the benchmark by their headings."""

    def ratio(name: str) -> str:
        return f"{row[name]:.2f}" if name in row else ""

    rate = f"{row['rate']:,.3g}" if row["rate"] < 100 else f"{row['rate']:,.0f}"
    return {
        "what": f"{row['what']} {row['method']}",
        "of": f"{row['size']} {row['batch']} x {row['length']} {row['precision']}",
        "n": str(row.get("latents", "")),
        "k": str(row.get("candidates", "")),
        "rate": f"{rate} {row['unit']}",
        "seconds": f"{row['seconds']:.3g}",
        "roofline\ntime": f"{row['floor_seconds']:.2g}",
        "% of\nroofline": f"{row['share']:.0%}",
        "speedup": ratio("ratio_to_reference"),
        "x mdm": ratio("ratio_to_mdm"),
        "predicted": ratio("token_theory"),
    }


# The command.


def run_bench(command: Bench) -> int:
    """Measure, and print a table or JSON lines."""
    keep_freed_memory()
    if command.check:
        return compare_ratios(command)

    def on_row(row: Row) -> None:
        if command.json:
            print(json.dumps(row), flush=True)

    rows = bench(command.config(BenchConfig), on_row=on_row)
    if not rows:
        raise ValueError(
            "--methods with --train: there is nothing to measure. Name a method or a training shape."
        )
    if not command.json:
        print_table(speed_table(rows))
    return 0


def compare_ratios(command: Bench) -> int:
    """Measure the ratios, print them with the stored ones, and return 1 if one of them fell too far."""
    if not 0 <= command.max_drop <= 1:
        raise ValueError(f"max_drop={command.max_drop}: must be a number from 0 to 1")
    ratios = measure_ratios()
    fallen = 0
    for name, ratio in ratios.items():
        stored = STORED_RATIOS.get(name, 0)
        least = (1 - command.max_drop) * stored
        fallen += ratio < least
        if not command.json:
            fell = ": fell" if ratio < least else ""
            print(f"{name}: {ratio:.2f} (stored {stored}, least {least:.2f}){fell}")
    if command.json:
        print(json.dumps(ratios, indent=1))
    return int(fallen > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, and return its exit code: 1 if a ratio fell, 2 for a setting that is refused."""
    explain_flags(Bench)
    command = tyro.cli(Bench, prog="bench.py", args=arguments, config=(DisallowNone, FlagCreatePairsOff))
    try:
        return run_bench(command)
    except ValueError as error:
        print(f"bench.py: {one_line(as_flags(str(error), command))}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
