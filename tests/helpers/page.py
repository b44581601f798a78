"""What tests press and read on the page."""

import os
import re
import time
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe

from helpers.browser import PATIENCE
from helpers.documentation import ROOT
from latent_tokens import from_pretrained
from latent_tokens.checkpoints.directory import learned_task
from latent_tokens.checkpoints.files import find
from latent_tokens.trace.record import LoadedModel

SCREENS = Path(os.environ.get("SCREENS", ROOT / "runs" / "screens"))
LAPTOP = {"width": 1280, "height": 720}
PHONE = {"width": 360, "height": 740}
SIX = ".....1.1.5..45.162..23....1.2.6.541."
HOSTILE = '<img src=x onerror="window.ran=1">\'&amp;\x1b[31m\u202e\r\n</option><script>window.ran=2<\\script>'
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}


def model(name):
    return LoadedModel(name, from_pretrained(name), learned_task(find(name)))


def settings(page):
    """Opens the panel of the settings."""
    button = page.get_by_role("button", name="Settings", exact=True)
    if button.get_attribute("aria-expanded") == "false":
        button.click()


def watch(page, name="sudoku-6-scdm", puzzle=SIX):
    """Chooses the model and the puzzle, and waits for the verdict."""
    settings(page)
    page.get_by_label("Model").first.select_option(name)
    page.get_by_label("Puzzle", exact=True).fill(puzzle)
    page.get_by_role("button", name="Use").click()
    assert page.get_by_label("Puzzle", exact=True).input_value() == puzzle
    ended(page)


def until(page, expression):
    """Wait for a JavaScript condition, evaluated from outside because the page's policy forbids eval."""
    begun = time.monotonic()
    while not page.evaluate(expression):
        assert time.monotonic() < begun + PATIENCE, expression
        page.wait_for_timeout(20)


def ended(page, lane=0):
    page.locator(".lane").nth(lane).and_(page.locator('[data-state="playing"]')).wait_for()


def turn(page, value, lane=0):
    """Sets the number of latent tokens and waits for the decode."""
    page.get_by_role("slider", name="Latent tokens").nth(lane).fill(str(value))
    ended(page, lane)


def verdicts(page):
    """The outcome line of each lane without the mark before the verdict and the cost."""
    return [re.sub("[^ -~] ", "", text.split(",")[0]) for text in page.locator(".outcome").all_inner_texts()]


def marks(page):
    """The verdicts that are marked at the slider."""
    return page.locator(".tried span").all_inner_texts()


def cell(page, row, column, lane=0):
    return (
        page.locator(".lane")
        .nth(lane)
        .get_by_role("row")
        .nth(row - 1)
        .get_by_role("gridcell")
        .nth(column - 1)
    )


def count(page, kind, lane=0):
    return page.locator(".lane").nth(lane).locator(f".cell.{kind}").count()


def at(page, step):
    page.get_by_role("slider", name="Step").fill(str(step))


def screen(page, name):
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / f"{name}.png")


def fits(page):
    """Nothing is wider than the window."""
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def sound(page):
    """No serious or critical finding of axe against WCAG 2 AA."""
    found = Axe().run(page, options=RULES).response["violations"]
    assert [
        (one["id"], one["impact"], one["nodes"][0]["html"])
        for one in found
        if one["impact"] in ("serious", "critical")
    ] == []


def harmless(page):
    """No script of a name has run, and none of its text has become an element."""
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    assert page.locator("img").count() == 0
    assert (
        page.locator("script").evaluate_all("all => all.filter((one) => one.text.startsWith('window'))") == []
    )
