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
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from latent_tokens.cli import main as latent_tokens
from latent_tokens.page.document import read_asset
from latent_tokens.trace.examples import PAGE_RECORD

NUM_COLORS = 96
NUM_MOVES = 8  # of the pointer
MARGIN = 12  # pixels above the title and below the board, in hero.gif
LATENT = json.loads(PAGE_RECORD.read_text())["corrected"]["latent"]  # whose guess corrects the prediction
POINTER = """
<svg id="pointer" width="52" height="60" viewBox="-20 -20 52 60">
<circle r="17" fill="none" stroke="#c96a00" stroke-width="4" opacity="0"/>
<path d="M0 0v27l6.5-6 4.5 10.5 5.5-2.4L12 18.8h9z" fill="#1d2430" stroke="#fff" stroke-width="2.5"/></svg>
<style>#pointer { position: fixed; margin: -20px; pointer-events: none; }</style>"""
CARD = """<style>{style}
body {{ display: grid; grid-template-columns: 34rem 1fr; gap: 3rem; align-items: center; height: 630px; }}
body {{ padding: 0 4rem; }}
h1 {{ font-size: 3.5rem; line-height: 1.2; letter-spacing: -.02em; margin: 1.5rem 0; white-space: normal; }}
h1 b {{ display: block; color: var(--green); }}
.said {{ font-size: 1.75rem; line-height: 1.35; font-weight: 400; text-align: left; color: var(--soft); }}
.said {{ text-wrap: balance; }}
.name {{ font-size: 1.6rem; color: var(--orange); font-weight: 700; }}
.grid {{ --columns: 6; --cell: 83px; font-size: 44px; }}
.grid + p {{ text-align: center; font-size: 2.6rem; line-height: 1.3; color: var(--soft); }}
.grid .cell.latent {{ font-size: 36px; outline-width: 4px; outline-offset: -5px; }}
</style><div><p class="name">Latent tokens</p><h1>Alone it says {wrong}. <b>With a guess, {right}.</b></h1>
<p class="said">A language model guesses one more square, and throws the guess away.</p></div>
<div>{strips}</div>{pointer}"""
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
    page.locator("#hundred-dial").fill("4")
    page.evaluate("document.activeElement.blur()")
    page.screenshot(path=folder / "page-hundred.png")
    page = opened(390, 844, "#lab", color_scheme="dark")
    page.locator("#lane-b .cost", has_text="processed").wait_for()
    page.locator("#step").fill("6")
    page.evaluate("document.activeElement.blur()")
    page.screenshot(path=folder / "page-phone.png")


def take_card(opened: Opened, folder: Path) -> None:
    """Draw the picture of links to the page: two rows of its board, before and after the guess."""
    page = opened(1200, 630)
    one = json.loads(PAGE_RECORD.read_text())["corrected"]
    predictions, at = one["predictions"], one["others"].index(LATENT)
    wrong = predictions["without"][0][0]
    right, guess = (predictions[name][at][0][0] for name in ("with_one", "guesses"))
    alone = {one["target"]: ("target bad", wrong), LATENT: ("latent", None)}
    guessed = {one["target"]: ("target good", right), LATENT: ("latent", guess)}
    first = one["target"] // 6 // 2 * 12  # the cells of the two rows of its boxes
    rows = range(first, first + 12)
    strips = "<p>↓</p>".join(strip(one["puzzle"], rows, shown) for shown in (alone, guessed))
    page.set_content(
        CARD.format(
            style=read_asset("page.css"), wrong=wrong + 1, right=right + 1, strips=strips, pointer=POINTER
        )
    )
    place_pointer(page, ".latent")
    page.screenshot(path=folder / "card.png")


def strip(puzzle: str, cells: range, shown: dict[int, tuple[str, int | None]]) -> str:
    """Return some rows of a board with the predictions of some cells."""
    drawn = []
    for cell in cells:
        kind, token = shown.get(cell, ("given" if puzzle[cell] != "." else "", None))
        sign = str(token + 1) if token is not None else puzzle[cell].replace(".", "")
        edge = " right-edge" if cell % 6 == 2 else ""
        drawn.append(f'<div class="cell {kind}{edge}">{sign}</div>')
    return f'<div class="grid"><div class="row">{"".join(drawn)}</div></div>'


def take_hero(opened: Opened, folder: Path) -> None:
    """Record the first scene on a phone: a wrong prediction, a pointer that taps, the right prediction."""
    page = opened(400, 900, device_scale_factor=2)
    page.evaluate("pointer => document.body.insertAdjacentHTML('beforeend', pointer)", POINTER)
    shots = []
    for step in range(NUM_MOVES + 1):
        place_pointer(page, ".marked", 1 - (1 - step / NUM_MOVES) ** 2)  # it slows down
        shots.append(picture_of(page))
    page.locator("#pointer circle").evaluate("ring => ring.setAttribute('opacity', '1')")
    shots.append(picture_of(page))
    guess(page)
    shots.append(picture_of(page))
    page.locator("#pointer").evaluate("pointer => pointer.remove()")
    shots.append(picture_of(page))
    first, *rest = [shot.quantize(NUM_COLORS, dither=Image.Dither.NONE) for shot in shots]
    durations = [2_500, *[60] * (NUM_MOVES - 1), 700, 250, 600, 5_000]
    first.save(
        folder / "hero.gif", save_all=True, append_images=rest, duration=durations, loop=0, optimize=True
    )


def place_pointer(page: Page, selector: str, share: float = 1.0) -> None:
    """Put the pointer on an element, or on the way to it from below."""
    box = page.locator(selector).first.bounding_box()
    assert box is not None
    x = box["x"] + box["width"] * (0.62 + 1.6 * (1 - share))
    y = box["y"] + box["height"] * (0.6 + 3.5 * (1 - share))
    move = "(pointer, [x, y]) => { pointer.style.left = `${x}px`; pointer.style.top = `${y}px`; }"
    page.locator("#pointer").evaluate(move, [x, y])


def picture_of(page: Page) -> Image.Image:
    """Return the first scene from its title to the end of its board."""
    top, board = page.locator("#one-title").bounding_box(), page.locator("#one-board").bounding_box()
    assert top is not None
    assert board is not None
    height = board["y"] + board["height"] - top["y"] + 2 * MARGIN
    clip = {"x": 0, "y": top["y"] - MARGIN, "width": 400, "height": height}
    return Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")


def main(folder: Path) -> None:
    """Take every picture."""
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as started:
        file = Path(temporary) / "page.html"
        latent_tokens(["page", "--out", str(file)])
        chromium = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])

        def opened(width: int, height: int, hash_: str = "", **settings: Any) -> Page:
            """Return the page in a window of this size. Its policy would refuse the style of the pointer."""
            page = chromium.new_page(
                viewport={"width": width, "height": height},
                **{"color_scheme": "light", "reduced_motion": "reduce", "bypass_csp": True, **settings},
            )
            page.goto(f"{file.as_uri()}{hash_}")
            return page

        for take in (take_scenes, take_card, take_hero):
            take(opened, folder)
        chromium.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs")
