"""latent-tokens demo."""

from __future__ import annotations

import sys

from latent_tokens.commands.shared import keep_freed_memory
from latent_tokens.configs import DemoConfig


def run_demo(config: DemoConfig) -> int:
    """latent-tokens demo: the tables and where the figure is."""
    from rich.console import Console

    from latent_tokens.demo import demo
    from latent_tokens.report import table

    keep_freed_memory()
    rows, references = demo(config)
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(table(rows, f"sudoku-6: latent tokens n, {rows[0]['num_samples']:,} samples a row"))
    if references:
        console.print(table(references, "for comparison: models without a dial" + ("" if config.every_method else ", as they come with the package")))
    print(f"{config.out / 'latents.png'} and summary.json beside it; open {config.out / 'trace.html'} to watch the model decode")
    return 0
