"""latent-tokens page."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from latent_tokens.commands.shared import check_outputs

BUNDLED = ("sudoku-6-scdm", "sudoku-9-scdm")


@dataclass(frozen=True)
class Page:
    """Write one HTML file in which models decode puzzles in the browser, without a server."""

    runs: Positional[tuple[str, ...]] = ()
    """Sudoku models of at most 4 MB in all. Default: sudoku-6-scdm and sudoku-9-scdm."""
    out: Path = Path("latent-tokens.html")
    """HTML page to write."""
    open: bool = False
    """Open the page in a browser."""
    replace: bool = False
    """Overwrite a file that exists."""


def run_page(command: Page) -> int:
    """Run `latent-tokens page`. Write the file, print its path and size, and open it if asked to."""
    from latent_tokens.checkpoints.directory import from_pretrained, learned_task
    from latent_tokens.checkpoints.files import find
    from latent_tokens.page.document import page_of
    from latent_tokens.storage import write_atomic
    from latent_tokens.trace.record import LoadedModel, solvable

    # Check the name of the file.
    check_outputs({".html": command.out}, command.replace)

    # Load the models, and write the page.
    models = []
    for run in dict.fromkeys(command.runs or BUNDLED):
        task = solvable(run, learned_task(find(run)))
        models.append(LoadedModel(run, from_pretrained(run), task))
    content = page_of(models).encode()
    write_atomic({command.out: content})
    print(f"{command.out}  ({len(content) / 1e6:.1f} MB)")
    if command.open:
        webbrowser.open(command.out.absolute().as_uri())
    return 0
