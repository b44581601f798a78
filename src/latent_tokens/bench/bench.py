"""The benchmark: speed on the current machine, % of roofline, and speedup over the reference implementation.

All compared cases are measured in turn, in one process, and reported as medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from latent_tokens import processes
from latent_tokens.bench.cases import (
    DTYPES,
    Case,
    Row,
    Setting,
    decoding_case,
    forward_case,
    nets,
    settings,
    training_case,
)
from latent_tokens.bench.machine import Machine, describe_machine, measure_machine, peak_memory, seconds
from latent_tokens.configs import BenchConfig, Precision
from latent_tokens.network.kernels import resolve_precision, warn_if_slow
from latent_tokens.progress import progress


@dataclass
class Timing:
    """The seconds of a case in each round."""

    optimized: list[float] = field(default_factory=list)
    reference: list[float] = field(default_factory=list)


def bench(config: BenchConfig, *, on_row: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """Return the rows of the benchmark.

    rate: samples or tokens per second of the optimized implementation.
    floor_seconds: the roofline time, FLOP / measured speed of a matrix product, or bytes / measured speed of
    a copy, whichever is longer.
    share: the fraction of the roofline, floor_seconds / seconds.
    ratio_to_reference: the speedup, seconds of the reference implementation / seconds.
    reference_share: the fraction of the roofline of the reference implementation, if its FLOP are counted.
    ratio_to_mdm: seconds of the first mdm row of this size, length and batch / seconds.
    token_theory: the same ratio, predicted from tokens.
    process_peak_mb: peak memory of the process so far.

    Args:
        config: the settings.
        on_row: receives each row as soon as the rows it is compared with are measured.

    Raises:
        ValueError: a method is unknown.
    """
    chosen = settings(config)
    return measure_all(
        config, lambda precision, device: groups_of_cases(config, chosen, precision, device), on_row
    )


def groups_of_cases(
    config: BenchConfig, chosen: list[Setting], precision: Precision, device: torch.device
) -> Iterator[list[Case]]:
    """Yield groups of cases that are compared with each other."""
    if chosen:
        for net, size, length, batch in nets(config, precision, device):
            yield [forward_case(net, size, length, batch)]
            yield [decoding_case(net, size, length, batch, *setting, config.top_p) for setting in chosen]
    for shape in config.train:
        yield [training_case(shape, precision)]


def measure_all(
    config: BenchConfig,
    cases_of: Callable[[Precision, torch.device], Iterator[list[Case]]],
    on_row: Callable[[Row], None],
) -> list[Row]:
    """Return the rows of all cases, group by group, for each precision of the config."""
    device = processes.join().device
    rows: list[Row] = []
    for precision in config.precisions or default_precisions(device):
        warn_if_slow(precision, device)
        machine = measure_machine(DTYPES[precision], device)
        for cases in cases_of(precision, device):
            if not config.plain:
                cases = [replace(case, reference=None) for case in cases]  # noqa: PLW2901
            num_runs = sum(1 if case.reference is None else 2 for case in cases)
            title = f"measuring {cases[0].description['what']}, {precision}"
            with progress(title, config.rounds * num_runs) as advance:
                measured = measure(cases, config.rounds, machine, device, advance)
            for row in measured:
                rows.append({**row, "precision": precision, "device": describe_machine(device)})
                on_row(rows[-1])
    return rows


def default_precisions(device: torch.device) -> tuple[Precision, ...]:
    """Return the formats to measure on a device: fp32, and bf16 where auto is bf16."""
    return ("fp32", "bf16") if resolve_precision("auto", device) == "bf16" else ("fp32",)


def measure(
    cases: Sequence[Case],
    rounds: int,
    machine: Machine,
    device: torch.device,
    advance: Callable[[int, str], None],
    clock: Callable[[], float] = time.perf_counter,
) -> list[Row]:
    """Return one row per case: medians over rounds. Each round runs both implementations of every case."""
    timings = [Timing() for _ in cases]
    for _ in range(rounds):
        for case, timing in zip(cases, timings, strict=True):
            for run, times in ((case.optimized, timing.optimized), (case.reference, timing.reference)):
                if run is not None:
                    times.append(seconds(run, device, clock))
                    advance(1, f"{case.description['method']} {times[-1]:.2f} s")
    mdm_seconds = [
        statistics.median(timing.optimized)
        for case, timing in zip(cases, timings, strict=True)
        if case.description["method"] == "mdm"
        and case.description["what"] == "decode"
        and "off_distribution" not in case.description
    ]
    return [
        measured_row(case, timing, mdm_seconds, machine, device)
        for case, timing in zip(cases, timings, strict=True)
    ]


def measured_row(
    case: Case, timing: Timing, mdm_seconds: list[float], machine: Machine, device: torch.device
) -> Row:
    """Return the row of a case. `mdm_seconds` are those of the mdm decodes that it is compared with."""
    took = statistics.median(timing.optimized)
    roofline = machine.roofline_seconds(case.flop, case.num_bytes)
    row = {
        **case.description,
        "rate": case.units / took,
        "seconds": round(took, 5),
        "floor_seconds": round(roofline, 5),
        "share": roofline / took,
        "flop": case.flop,
    }

    # Compare with the reference implementation and with mdm.
    if timing.reference:
        reference_seconds = statistics.median(timing.reference)
        row["ratio_to_reference"] = reference_seconds / took
    if mdm_seconds and case.description["what"] == "decode":
        row["ratio_to_mdm"] = mdm_seconds[0] / took
    if timing.reference and case.reference_flop is not None:
        row["reference_share"] = machine.roofline_seconds(case.reference_flop, 0) / reference_seconds

    row["gemm_gflops"] = machine.flops / 1e9
    row["copy_gbytes"] = machine.bandwidth / 1e9
    row["process_peak_mb"] = peak_memory(device) / 2**20
    for name, value in row.items():
        if isinstance(value, float) and name != "floor_seconds":
            row[name] = round(value, 3)
    row["rounds"] = len(timing.optimized)
    return row
