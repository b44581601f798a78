"""latent-tokens bench."""

from __future__ import annotations

import json
from dataclasses import dataclass

from latent_tokens.commands.shared import Command, keep_freed_memory, print_table
from latent_tokens.configs import BenchConfig


@dataclass(frozen=True, kw_only=True)
class Bench(Command, BenchConfig):
    """Measure the speed of training and decoding on this machine.

    The speed is compared with the roofline of the machine and with the reference implementation.

    Examples:
        latent-tokens bench --methods scdm mdm --precisions fp32
        latent-tokens bench --sizes nano --lengths 16 --train nano:8x16 --rounds 1
    """

    json: bool = False
    """Print the rows as JSON lines instead of a table, and with --check the ratios as one JSON
    object."""
    check: bool = False
    """Compare ratios of speeds of the nano network with stored ones instead.
    Exit code 1 if one fell too far."""
    max_drop: float = 0.4
    """Share of a stored ratio that --check allows to be lost. 0 to 1."""


def run_bench(command: Bench) -> int:
    """Run `latent-tokens bench`. Print a table or JSON lines."""
    from latent_tokens.bench import Row, bench, speed_table

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
    from latent_tokens.bench import STORED_RATIOS, measure_ratios

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
