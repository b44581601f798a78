"""Take the pictures of the page in docs/: page-one, page-hundred, page-phone, card (.png) and hero.gif.

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

DURATIONS = (3_000, 5_000)  # milliseconds in hero.gif: wrong, right
NUM_COLORS = 96
MARGIN = 12  # pixels above and below the board, in hero.gif
LATENT = json.loads(PAGE_RECORD.read_text())["corrected"]["latent"]  # whose guess corrects the prediction
Opened = Callable[..., Page]


def guess(page: Page) -> None:
    """Tap the marked square."""
    page.locator("#one-board .cell").nth(LATENT).click()
    page.evaluate("document.activeElement.blur()")


def take_scenes(opened: Opened, folder: Path) -> None:
    """Take the first two scenes, and the laboratory in a small dark window."""
    page = opened(1240, 690)
    guess(page)
    page.screenshot(path=folder / "page-one.png")
    page = opened(1240, 640, "#hundred")
    page.locator("#hundred-dial").fill("12")
    page.evaluate("document.activeElement.blur()")
    page.screenshot(path=folder / "page-hundred.png")
    page = opened(390, 844, "#lab", color_scheme="dark")
    page.locator("#lane-b .cost", has_text="processed").wait_for()
    page.locator("#step").fill("6")
    page.evaluate("document.activeElement.blur()")
    page.screenshot(path=folder / "page-phone.png")


def take_card(opened: Opened, folder: Path) -> None:
    """Take the picture of links to the page."""
    opened(1200, 630).screenshot(path=folder / "card.png")


def take_hero(opened: Opened, folder: Path) -> None:
    """Record the first scene at work: a wrong prediction, then the right one."""
    page = opened(840, 620)
    page.evaluate(
        "for (const e of document.querySelectorAll('#one .soft, #one a, #one .actions')) e.hidden = true"
    )
    images = [picture_of(page)]
    guess(page)
    images.append(picture_of(page))
    first, *rest = [image.quantize(NUM_COLORS, dither=Image.Dither.NONE) for image in images]
    first.save(
        folder / "hero.gif", save_all=True, append_images=rest, duration=DURATIONS, loop=0, optimize=True
    )


def picture_of(page: Page) -> Image.Image:
    """Return the first scene: its board and what is next to it."""
    box = page.locator("#one-board").bounding_box()
    assert box is not None
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return image.crop((0, round(box["y"]) - MARGIN, image.width, round(box["y"] + box["height"]) + MARGIN))


def main(folder: Path) -> None:
    """Take every picture."""
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as started:
        file = Path(temporary) / "page.html"
        latent_tokens(["page", "--out", str(file)])
        chromium = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

        def opened(width: int, height: int, hash_: str = "", color_scheme: str = "light") -> Page:
            """Return the page in a window of this size."""
            page = chromium.new_page(
                viewport={"width": width, "height": height},
                color_scheme=color_scheme,
                reduced_motion="reduce",
            )
            page.goto(f"{file.as_uri()}{hash_}")
            return page

        for take in (take_scenes, take_card, take_hero):
            take(opened, folder)
        chromium.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs")
