"""latent-tokens page and demo."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from latent_tokens.commands.shared import Command, check_outputs, keep_freed_memory, print_table
from latent_tokens.configs import DemoConfig

PAGE_MODELS = ("sudoku-6-scdm",)


@dataclass(frozen=True)
class Page:
    """Write one HTML file in which models decode puzzles in the browser, without a server.

    Examples:
        latent-tokens page --open
        latent-tokens page runs/four sudoku-6-scdm -o four.html
    """

    runs: Annotated[Positional[tuple[str, ...]], arg(metavar="[RUN ...]")] = ()
    """Sudoku models of at most 4 MB in all. Default: sudoku-6-scdm."""
    out: Annotated[Path, arg(aliases=("-o",), metavar="FILE")] = Path("latent-tokens.html")
    """HTML page to write."""
    open: bool = False
    """Open the page in a browser."""
    replace: bool = False
    """Overwrite a file that exists."""


def run_page(command: Page) -> int:
    """Run `latent-tokens page`. Write the file, print its path and size, and open it if asked to."""
    from latent_tokens.checkpoints.files import find
    from latent_tokens.checkpoints.learned import learned_task
    from latent_tokens.hf.directory import from_pretrained
    from latent_tokens.page.document import page_of
    from latent_tokens.storage import write_atomic
    from latent_tokens.trace.record import LoadedModel

    # Check the name of the file.
    check_outputs({".html": command.out}, command.replace)

    # Load the models, and write the page.
    models = []
    for run in dict.fromkeys(command.runs or PAGE_MODELS):
        folder = find(run)
        task = learned_task(folder)
        models.append(LoadedModel(run, from_pretrained(folder), task))
    content = page_of(models).encode()
    write_atomic({command.out: content})
    print(f"{command.out}  ({len(content) / 1e6:.1f} MB)")
    if command.open:
        webbrowser.open(command.out.absolute().as_uri())
    return 0


@dataclass(frozen=True, kw_only=True)
class Demo(Command, DemoConfig):
    """Train a 6x6 Sudoku model and plot accuracy against the number of latent tokens.

    Examples:
        latent-tokens demo
        latent-tokens demo --scale smoke --out runs/smoke
    """


def run_demo(command: Demo) -> int:
    """Run `latent-tokens demo`. Print the tables and the paths of the files."""
    from latent_tokens.demo import demo
    from latent_tokens.evaluation.report import table

    config = command.config(DemoConfig)
    keep_freed_memory()
    rows, references = demo(config)
    samples = f"{rows[0]['num_samples']:,} samples per row"
    print_table(table(rows, f"sudoku-6: latent tokens n, {samples}"))
    if references:
        title = "for comparison: methods without latent token control"
        print_table(table(references, title if config.every_method else f"{title} (stored rows)"))
    print(
        f"{config.out / 'latents.png'} and {config.out / 'summary.json'}. "
        f"Open {config.out / 'trace.html'} in a browser to see the model decode."
    )
    return 0
