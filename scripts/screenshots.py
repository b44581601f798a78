"""Take the screenshots of docs/watching.md: docs/page-cell.png, -compare.png and -phone.png.

python scripts/screenshots.py [FOLDER]     with chromium on the path; the default folder is docs
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from latent_tokens.cli import main as latent_tokens
from latent_tokens.trace.frozen import PAGE_RECORD

STEP = 8  # shown in the pictures


def opened(browser: Browser, address: str, width: int, height: int, scheme: str = "light") -> Page:
    """Return the page in a window of that size, after its first puzzle is decoded."""
    page = browser.new_page(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )  # type: ignore[arg-type]
    page.goto(f"{address}#watch")
    page.locator('.lane[data-state="playing"]').first.wait_for()
    return page


def go_to(page: Page, step: int) -> None:
    """Show a step of every decode."""
    page.get_by_role("slider", name="Step").fill(str(step))
    page.evaluate("document.activeElement.blur(), scrollTo(0, 0)")


def main(folder: Path) -> None:
    """Take the three screenshots."""
    cell = json.loads(PAGE_RECORD.read_text())["cell"]
    with tempfile.TemporaryDirectory() as site, sync_playwright() as started:
        file = Path(site) / "page.html"
        latent_tokens(["page", "--out", str(file)])
        address = file.as_uri()
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = opened(browser, address, 1240, 690)
        page.get_by_role("tab", name="One cell").click()
        page.locator("#cell-board .cell").nth(cell["latent"]).click()
        page.locator("#cell[data-right=true]").wait_for()
        page.evaluate("document.activeElement.blur()")
        page.screenshot(path=folder / "page-cell.png")
        page = opened(browser, address, 1240, 900)
        page.get_by_role("button", name="Compare two settings").click()
        page.locator('.lane[data-state="playing"]').nth(1).wait_for()
        go_to(page, 99)
        go_to(page, STEP)
        page.screenshot(path=folder / "page-compare.png")
        page = opened(browser, address, 390, 844, "dark")
        go_to(page, STEP)
        page.screenshot(path=folder / "page-phone.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
