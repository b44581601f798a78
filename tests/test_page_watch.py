"""The tab Watch in the page's engine: the slider on a frozen board, the kept order, and what is announced."""

import pytest

from helpers.page import SIX, at, count, ended, fits, settings, until, verdicts

pytestmark = pytest.mark.slow
PUZZLE = f"#tab=watch&model=sudoku-6-scdm&puzzle={SIX}&k=4&n=all"
LATENT = "all => all.flatMap((one, cell) => (one.matches('.latent') ? [cell] : []))"


def dial(page):
    return page.get_by_role("slider", name="Latent tokens")


def turned(page, value):
    """Sets n, and waits for the decode."""
    dial(page).fill(str(value))
    until(page, "document.querySelector('.lane').dataset.state === 'loading'")
    ended(page)


def latent_cells(page):
    return page.locator(".lane .cell").evaluate_all(LATENT)


def decoded(page):
    return page.locator(".lane .cell.decoded").all_inner_texts()


def test_slider_keeps_the_board_of_its_step(opened, page_file):
    page = opened(page_file + PUZZLE + "&step=8")
    ended(page)
    before = decoded(page)
    assert len(before) == 7
    turned(page, 2)
    assert decoded(page) == before
    assert count(page, "latent") == 2
    assert page.locator(".lane .reason").inner_text().startswith("n = all, then 2 from step 8.")
    until(page, "decodeURIComponent(location.hash).includes('n=all,2@8')")
    again = opened(page.url)
    ended(again)
    assert (decoded(again), count(again, "latent")) == (before, 2)
    at(page, 20)
    assert verdicts(page)[0].startswith("n = all")
    assert page.locator(".tried span").count() == 0
    turned(page, 0)
    assert count(page, "latent") == 0
    assert verdicts(page)[0].startswith("n = 0: ")


def test_kept_order_keeps_latent_cells(opened, page_file):
    page = opened(page_file + PUZZLE.replace("n=all", "n=5") + "&keep=1&step=2")
    ended(page)
    cells = latent_cells(page)
    for step in range(3, 9):
        at(page, step)
        after = latent_cells(page)
        assert len(set(after) & set(cells)) >= 4, "one latent cell becomes a candidate in a step"
        cells = after
    settings(page)
    assert page.get_by_label("Keep the order").is_checked()
    page.get_by_label("Keep the order").uncheck()
    until(page, "!location.hash.includes('keep=')")
    fits(page)


@pytest.mark.parametrize(("motion", "animated"), [("no-preference", True), ("reduce", False)])
def test_decoded_digit_grows_unless_motion_is_reduced(opened, page_file, motion, animated):
    page = opened(page_file + PUZZLE + "&step=3")
    page.emulate_media(reduced_motion=motion)
    ended(page)
    name = "getComputedStyle(document.querySelector('.cell.new .grown')).animationName"
    assert (page.evaluate(name) == "grow") is animated
    digit = page.locator(".cell.new .grown")
    assert 0 < float(digit.evaluate("one => one.style.getPropertyValue('--scale')")) <= 1
