"""Write docs/hero.gif, the first tab of the page at work, and docs/card.png, the picture of links to it.

python scripts/hero.py [FOLDER]     with chromium on the path; the default folder is docs
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw
from playwright.sync_api import FloatRect, Locator, Page, sync_playwright

from latent_tokens.cli import main as latent_tokens
from latent_tokens.trace.frozen import PAGE_RECORD

WINDOW = {"width": 840, "height": 760}
CARD = {"width": 1200, "height": 630}
MARGIN = 7  # pixels above the title and below the board
DURATIONS = (3_000, 900, 4_500, 3_500)  # milliseconds: wrong, tapping, right, decoded
NUM_COLORS = 96
MOST_BYTES = 1_000_000
FINGER = (154, 77, 0, 110)
RADIUS = 22


def box_of(element: Locator) -> FloatRect:
    """Return the box of an element that is shown."""
    box = element.bounding_box()
    assert box is not None
    return box


def picture(page: Page) -> Image.Image:
    """Return what the page shows from the title to the end of the board, without focus or pointer."""
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    board = box_of(page.locator("#cell-board"))
    top = box_of(page.locator("#cell-title"))["y"] - MARGIN
    bottom = board["y"] + board["height"] + MARGIN
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return image.crop((0, round(top), image.width, round(bottom)))


def tapped(image: Image.Image, page: Page, cell: Locator) -> Image.Image:
    """Return a picture of the page with a finger on a cell."""
    top = box_of(page.locator("#cell-title"))["y"] - MARGIN
    box = box_of(cell)
    x = box["x"] + box["width"] / 2
    y = box["y"] + box["height"] / 2 - top
    layer = Image.new("RGBA", image.size)
    ImageDraw.Draw(layer).ellipse((x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS), fill=FINGER)
    return Image.alpha_composite(image.convert("RGBA"), layer).convert("RGB")


def scene(page: Page) -> list[Image.Image]:
    """Tap the cell that corrects the prediction, decode, and return the pictures."""
    cell = page.locator("#cell-board .cell").nth(json.loads(PAGE_RECORD.read_text())["cell"]["latent"])
    page.locator("#cell[data-right=false]").wait_for()
    page.locator("#cell-rates").evaluate("element => { element.hidden = true; }")  # it would be cut
    wrong = picture(page)
    finger = tapped(wrong, page, cell)
    cell.click()
    page.locator("#cell[data-right=true]").wait_for()
    right = picture(page)
    page.get_by_role("button", name="Decode the blue cell").click()
    return [wrong, finger, right, picture(page)]


def animation(images: list[Image.Image]) -> bytes:
    """Return pictures as a GIF with one palette. Raise ValueError if it exceeds MOST_BYTES."""
    column = Image.new("RGB", (images[0].width, images[0].height * len(images)))
    for number, image in enumerate(images):
        column.paste(image, (0, number * image.height))
    palette = column.quantize(NUM_COLORS)
    frames = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    buffer = io.BytesIO()
    frames[0].save(
        buffer, "GIF", save_all=True, append_images=frames[1:], duration=DURATIONS, loop=0, optimize=True
    )
    if buffer.tell() > MOST_BYTES:
        raise ValueError(f"hero.gif has {buffer.tell():,} bytes, more than {MOST_BYTES:,}")
    return buffer.getvalue()


def main(folder: Path) -> None:
    """Write the two pictures."""
    with tempfile.TemporaryDirectory() as site, sync_playwright() as started:
        file = Path(site) / "page.html"
        latent_tokens(["page", "--out", str(file)])
        address = file.as_uri()
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=WINDOW, reduced_motion="reduce")
        page.goto(address)
        (folder / "hero.gif").write_bytes(animation(scene(page)))
        page = browser.new_page(viewport=CARD, reduced_motion="reduce")
        page.goto(address)
        page.locator("#cell[data-right=false]").wait_for()
        page.screenshot(path=folder / "card.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
