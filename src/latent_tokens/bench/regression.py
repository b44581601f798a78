"""The regression check: ratios of speeds in one process, compared with stored ones.

A ratio depends far less on the machine than a speed does. Each is measured on the nano network, in turn with
the others.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from latent_tokens.bench.bench import measure
from latent_tokens.bench.cases import DTYPES, Case, decoding_case, untrained
from latent_tokens.bench.machine import Machine
from latent_tokens.configs import DEFAULT_CANDIDATES, Precision
from latent_tokens.network.kernels import bf16_is_fast

STORED = Path(__file__).with_name("ratios.json")
LENGTH = 32
BATCH = 4
ROUNDS = 5
UNKNOWN = Machine(math.inf, math.inf)  # a ratio needs no roofline


@dataclass(frozen=True)
class Ratio:
    """A measured speedup, the stored one, and the least that passes."""

    name: str
    measured: float
    stored: float | None  # None: no machine has stored it yet
    least: float

    @property
    def fell(self) -> bool:
        """Whether it lies below the least."""
        return self.measured < self.least


def check_ratios(
    max_drop: float, stored: dict[str, float], advance: Callable[[int, str], None] = lambda steps, text: None
) -> list[Ratio]:
    """Measure the ratios and compare them with stored ones.

    Args:
        max_drop: the share of a stored ratio that may be lost.
        stored: the stored ratios by name.
        advance: called with 1 and a text after each measurement.
    """
    ratios = measure_ratios(advance)
    return [
        Ratio(name, value, stored.get(name), (1 - max_drop) * stored.get(name, 0))
        for name, value in ratios.items()
    ]


def load_ratios() -> dict[str, float]:
    """Return the stored ratios."""
    ratios: dict[str, float] = json.loads(STORED.read_text())
    return ratios


def measure_ratios(advance: Callable[[int, str], None] = lambda steps, text: None) -> dict[str, float]:
    """Return the ratios by name: medians of five rounds, each of which runs every case once."""
    # The CPU seconds of one thread leave out what other processes do.
    device = torch.device("cpu")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        cases = [
            nano_case("mdm", "fp32"),
            nano_case("scdm", "fp32"),
            replace(nano_case("esolm", "fp32"), reference=None),
        ]
        if bf16_is_fast():
            cases.append(replace(nano_case("mdm", "bf16"), reference=None))
        mdm, scdm, esolm, *in_bf16 = measure(cases, ROUNDS, UNKNOWN, device, advance, time.process_time)
    finally:
        torch.set_num_threads(threads)
    ratios = {
        "mdm, optimized over reference": mdm["ratio_to_reference"],
        "scdm, optimized over reference": scdm["ratio_to_reference"],
        "esolm over mdm": esolm["ratio_to_mdm"],
    }
    if in_bf16:
        ratios["mdm, bf16 over fp32"] = in_bf16[0]["ratio_to_mdm"]
    return {name: round(ratio, 2) for name, ratio in ratios.items()}


def nano_case(name: str, precision: Precision) -> Case:
    """Return the decoding of a few short sequences by an untrained nano network."""
    net = untrained("nano", LENGTH, "learned", "exact", 32).eval().requires_grad_(False)
    candidates = 1 if name == "esolm" else DEFAULT_CANDIDATES
    latents = None if name == "mdm" else 0
    return decoding_case(net.to(DTYPES[precision]), "nano", LENGTH, BATCH, name, latents, candidates, 1.0)
