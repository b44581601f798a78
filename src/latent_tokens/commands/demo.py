"""latent-tokens demo."""

from __future__ import annotations

import sys

from latent_tokens.commands.shared import keep_freed_memory
from latent_tokens.configs import DemoConfig


def run_demo(config: DemoConfig) -> int:
    """Run `latent-tokens demo`. Print the tables and the paths of the files."""
    from rich.console import Console

    from latent_tokens.demo import demo
    from latent_tokens.evaluation.report import table

    keep_freed_memory()
    rows, references = demo(config)
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(table(rows, f"sudoku-6: latent tokens n, {rows[0]['num_samples']:,} samples per row"))
    if references:
        title = "for comparison: methods without latent token control"
        console.print(table(references, title if config.every_method else f"{title} (stored rows)"))
    print(
        f"{config.out / 'latents.png'} and {config.out / 'summary.json'}. "
        f"Open {config.out / 'trace.html'} in a browser to see the model decode."
    )
    return 0
