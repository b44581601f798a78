"""Write the page for a disk or a web server without Python: `make page`.

    python scripts/static_page.py [FOLDER]

FOLDER/page is a site with every bundled Sudoku model. FOLDER/latent-tokens.html is one file with the model
sudoku-6-scdm in it, which opens without a network. The default folder is dist.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from latent_tokens.checkpoints.directory import from_pretrained, learned_task
from latent_tokens.checkpoints.files import SHIPPED, shipped_names
from latent_tokens.storage import write_atomic
from latent_tokens.trace.record import LoadedModel, solvable
from latent_tokens.web.inlined import inlined
from latent_tokens.web.model_cache import ModelCache
from latent_tokens.web.page import MODEL_FILES, static_page

MODEL = "sudoku-6-scdm"  # in the single file
MOST_BYTES = 2_500_000  # of the single file
CARD = Path(__file__).parents[1] / "docs" / "card.png"  # the picture of links to the site


def bundled(name: str) -> LoadedModel:
    """Return a bundled model."""
    task = learned_task(SHIPPED / name)
    return LoadedModel(name, from_pretrained(name), solvable(name, task))


def write_pages(folder: Path) -> None:
    """Write the site and the single file. Raise ValueError if the file exceeds MOST_BYTES."""
    entries = ModelCache(shipped_names(), learned_task).entries
    single = [entry for entry in entries if entry["name"] == MODEL]
    document = static_page(single, {MODEL: inlined(bundled(MODEL))}).encode()
    if len(document) > MOST_BYTES:
        raise ValueError(f"latent-tokens.html has {len(document):,} bytes, more than {MOST_BYTES:,}")

    site = folder / "page"
    shutil.rmtree(site, ignore_errors=True)
    for entry in entries:
        (site / "models" / entry["name"]).mkdir(parents=True)
        for file in MODEL_FILES:
            shutil.copyfile(SHIPPED / entry["name"] / file, site / "models" / entry["name"] / file)
    shutil.copyfile(CARD, site / CARD.name)
    write_atomic(
        {site / "index.html": static_page(entries).encode(), folder / "latent-tokens.html": document}
    )
    print(f"{site}/  {folder / 'latent-tokens.html'}  ({len(document) / 1e6:.2f} MB)")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
