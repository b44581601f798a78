"""Write the page as a web site: index.html with one model in it, and the weights of the others next to it.

python scripts/site.py FOLDER     all bundled models, for any static hosting
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from latent_tokens.checkpoints.files import BUNDLED, find
from latent_tokens.checkpoints.learned import learned_task
from latent_tokens.hf.directory import from_pretrained
from latent_tokens.page.document import site_of
from latent_tokens.storage import write_atomic
from latent_tokens.trace.record import LoadedModel

FIRST = "sudoku-6-scdm"
CARD = Path(__file__).parents[1] / "docs" / "card.png"


def main(folder: Path) -> None:
    """Write the files of the site, and the picture that other sites show for a link to it."""
    names = sorted(path.name for path in BUNDLED.glob("sudoku-*") if path.name != FIRST)
    models = [LoadedModel(name, from_pretrained(name), learned_task(find(name))) for name in (FIRST, *names)]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic({folder / name: content.encode() for name, content in site_of(models).items()})
    shutil.copy(CARD, folder)


if __name__ == "__main__":
    main(Path(*sys.argv[1:]) if len(sys.argv) == 2 else sys.exit(__doc__))
