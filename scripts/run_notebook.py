"""Run a notebook and keep its outputs: python scripts/run_notebook.py [examples/tour.ipynb].

Times and progress bars are removed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

TOUR = Path(__file__).parents[1] / "examples" / "tour.ipynb"
KEPT = ("text/plain", "image/png")


def executed(path: Path, folder: Path) -> Any:
    """Return the notebook with its outputs, run in a directory.

    Raises nbclient's CellExecutionError if a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata.clear()  # times
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not is_progress(output)]
            for output in cell.outputs:
                output.pop("metadata", None) if output.output_type == "stream" else output.metadata.clear()
                if "data" in output:
                    output.data = {kind: output.data[kind] for kind in KEPT if kind in output.data}
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def is_progress(output: Any) -> bool:
    """Return whether an output is a progress bar: on stderr, or a display without a picture."""
    return output.get("name") == "stderr" or (
        output.output_type == "display_data" and "image/png" not in output.data
    )


def shown(notebook: Any) -> list[str]:
    """Return the outputs of each code cell. A picture is reduced to its type."""
    return ["".join(map(text_of, cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"]


def text_of(output: Any) -> str:
    """Return one output as text."""
    return str(output.text) if output.output_type == "stream" else " ".join(sorted(output.data))


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else TOUR
    nbformat.write(executed(chosen, chosen.parent), chosen)
    print(chosen)
