"""latent-tokens bench."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latent_tokens.checks import check_out
from latent_tokens.commands.shared import keep_freed_memory
from latent_tokens.configs import BenchConfig


@dataclass(frozen=True)
class Bench:
    """Measure the speed of training and decoding.

    The speed is compared with the roofline of the machine and with the reference implementation.
    """

    config: BenchConfig = field(default_factory=BenchConfig)
    growth: Path | None = None
    """Directory for growth.png, growth.svg and growth.jsonl: measure how decoding time grows with latent
    tokens, length and batch instead."""
    json: bool = False
    """Print the rows as JSON lines instead of a table, and with --check the ratios as one JSON object."""
    check: bool = False
    """Compare ratios of speeds of the nano network with stored ones instead.
    Exit code 1 if one fell too far."""
    max_drop: float = 0.4
    """Share of a stored ratio that --check allows to be lost. 0 to 1."""


def run_bench(command: Bench) -> int:
    """Run `latent-tokens bench`. Print a table or JSON lines. With --growth, also draw a figure."""
    from rich.console import Console

    from latent_tokens.bench.bench import bench
    from latent_tokens.bench.growth import grow
    from latent_tokens.bench.report import speed_table

    keep_freed_memory()
    if not 0 < command.max_drop < 1:
        raise ValueError(f"max_drop={command.max_drop}: must lie between 0 and 1. Use 0.4.")
    if command.check:
        return print_check(command)
    if command.growth is not None:
        check_out(command.growth, name="growth")
        for name in ("sizes", "precisions"):
            values = getattr(command.config, name) or ()
            if len(values) > 1:
                raise ValueError(
                    f"{name}={values} with --growth: growth measures one of them. Leave the others out."
                )
        if command.config.off_distribution:
            raise ValueError(
                "off_distribution=True with --growth: growth measures each method as it is trained. "
                "Leave one of the two out."
            )
        if command.config.train not in ((), BenchConfig.train):
            raise ValueError(
                "--train with --growth: growth measures decoding only. Leave one of the two out."
            )

    def keep(row: dict[str, Any]) -> None:
        if command.json:
            print(json.dumps(row), flush=True)

    rows = (
        bench(command.config, on_row=keep)
        if command.growth is None
        else grow(command.config, command.growth, on_row=keep)
    )
    if not command.json:
        Console(width=None if sys.stdout.isatty() else 130).print(speed_table(rows))
    return 0


def print_check(command: Bench) -> int:
    """Measure the ratios, print them beside the stored ones, and return 1 if one of them fell too far."""
    from latent_tokens.bench.regression import check_ratios, load_ratios

    if command.growth is not None or command.config != BenchConfig():
        raise ValueError(
            "--check with other settings: it measures its own cases. Leave out all but --max-drop and --json."
        )
    ratios = check_ratios(command.max_drop, load_ratios())
    if command.json:
        print(json.dumps({ratio.name: ratio.measured for ratio in ratios}, indent=1))
    else:
        for ratio in ratios:
            limit = f"stored {ratio.stored:.2f}, least {ratio.least:.2f}" if ratio.stored else "not stored"
            print(f"{ratio.name}: {ratio.measured:.2f} ({limit}){': fell' if ratio.fell else ''}")
    return int(any(ratio.fell for ratio in ratios))
