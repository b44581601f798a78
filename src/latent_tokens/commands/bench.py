"""latent-tokens bench."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tyro.conf import OmitArgPrefixes

from latent_tokens.checks import check_out
from latent_tokens.commands.shared import keep_freed_memory
from latent_tokens.configs import BenchConfig


@dataclass(frozen=True)
class Bench:
    """Measure training and decoding on this machine, beside the machine's own limits and the plain ways."""

    config: OmitArgPrefixes[BenchConfig] = field(default_factory=BenchConfig)
    growth: Path | None = None
    """Instead, measure how decoding time grows with latents, length and batch, and write growth.png, growth.svg and growth.jsonl to this folder."""
    json: bool = False
    """Print the rows as JSON lines instead of a table."""


def run_bench(command: Bench) -> int:
    """latent-tokens bench: a table, or JSON lines; or the figure of growth."""
    from rich.console import Console

    from latent_tokens.bench import bench
    from latent_tokens.growth import grow
    from latent_tokens.report import speed_table

    keep_freed_memory()
    if command.growth is not None:
        check_out(command.growth)

    def keep(row: dict[str, Any]) -> None:
        if command.json:
            print(json.dumps(row), flush=True)

    rows = bench(command.config, on_row=keep) if command.growth is None else grow(command.config, command.growth, on_row=keep)
    if not command.json:
        Console(width=None if sys.stdout.isatty() else 130).print(speed_table(rows))
    return 0
