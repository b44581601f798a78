"""Take the pictures of the page in docs/: page-cell, page-compare, page-phone, card (.png) and hero.gif.

python scripts/screenshots.py [FOLDER]     with chromium on the path; the default folder is docs
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from latent_tokens.cli import main as latent_tokens
from latent_tokens.trace.examples import PAGE_RECORD

STEP = 8  # shown in the pictures
MARGIN = 7  # pixels above the title and below the board, in hero.gif
DURATIONS = (3_000, 4_500, 3_500)  # milliseconds in hero.gif: wrong, right, decoded
NUM_COLORS = 96
CELL = json.loads(PAGE_RECORD.read_text())["cell"]["latent"]  # whose latent token corrects the prediction
Opened = Callable[..., Page]


def take_cell(opened: Opened, folder: Path) -> None:
    """Take the first tab, with the latent token that corrects the prediction."""
    page = opened(1240, 690)
    page.locator("#cell-board .cell").nth(CELL).click()
    page.locator("#cell[data-right=true]").wait_for()
    page.evaluate("document.activeElement.blur()")
    page.screenshot(path=folder / "page-cell.png")


def take_decodes(opened: Opened, folder: Path) -> None:
    """Take two decodes side by side, and one in a small dark window."""
    page = opened(1240, 900, "#watch")
    page.get_by_role("button", name="Compare two settings").click()
    page.locator('.lane[data-state="playing"]').nth(1).wait_for()
    go_to(page, 99)
    go_to(page, STEP)
    page.screenshot(path=folder / "page-compare.png")
    page = opened(390, 844, "#watch", color_scheme="dark")
    go_to(page, STEP)
    page.screenshot(path=folder / "page-phone.png")


def go_to(page: Page, step: int) -> None:
    """Show a step of every decode."""
    page.get_by_role("slider", name="Step").fill(str(step))
    page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")


def take_card(opened: Opened, folder: Path) -> None:
    """Take the picture of links to the page."""
    opened(1200, 630).screenshot(path=folder / "card.png")


def take_hero(opened: Opened, folder: Path) -> None:
    """Record the first tab at work: a wrong prediction, the right one, and the decoded cell."""
    page = opened(840, 760)
    page.locator("#cell-rates").evaluate("element => { element.hidden = true; }")  # it would be cut
    images = [board_of(page)]
    page.locator("#cell-board .cell").nth(CELL).click()
    page.locator("#cell[data-right=true]").wait_for()
    images.append(board_of(page))
    page.get_by_role("button", name="Decode the blue cell").click()
    images.append(board_of(page))
    palette = images[1].quantize(NUM_COLORS)
    frames = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    frames[0].save(
        folder / "hero.gif",
        save_all=True,
        append_images=frames[1:],
        duration=DURATIONS,
        loop=0,
        optimize=True,
    )


def board_of(page: Page) -> Image.Image:
    """Return the page from the title to the end of the board, without focus or pointer."""
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    title, board = (page.locator(name).bounding_box() for name in ("#cell-title", "#cell-board"))
    assert title is not None
    assert board is not None
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    bottom = round(board["y"] + board["height"] + MARGIN)
    return image.crop((0, round(title["y"] - MARGIN), image.width, bottom))


def main(folder: Path) -> None:
    """Take every picture."""
    with tempfile.TemporaryDirectory() as site, sync_playwright() as started:
        file = Path(site) / "page.html"
        latent_tokens(["page", "--out", str(file)])
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

        def opened(width: int, height: int, tab: str = "", **options: str) -> Page:
            size = {"width": width, "height": height}
            page = browser.new_page(viewport=size, reduced_motion="reduce", **options)  # type: ignore[arg-type]
            page.goto(f"{file.as_uri()}{tab}")
            ready = '.lane[data-state="playing"]' if tab else "#cell[data-right=false]"
            page.locator(ready).first.wait_for()
            return page

        for take in (take_cell, take_decodes, take_card, take_hero):
            take(opened, folder)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
