"""The tab Watch in the page's engine: the slider on a frozen board, the kept order, and what is announced."""

import pytest

from helpers.page import LAPTOP, SIX, at, cell, count, ended, fits, screen, settings, until, verdicts

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


def test_old_verdict_is_not_shown_with_a_new_number(opened, page_file):
    page = opened(page_file + PUZZLE + "&step=20", viewport=LAPTOP)
    ended(page)
    assert "The puzzle is solved." in page.locator(".lane .story").inner_text()
    page.evaluate("""() => {
        window.stale = 0;
        const dial = document.querySelector(".lane .dial input");
        const [story, outcome] = [".lane .story", ".outcome"].map((one) => document.querySelector(one));
        dial.addEventListener("input", () => requestAnimationFrame(() => {
            window.stale += /solved|wrong/.test(story.textContent + outcome.textContent);
            window.looked = true;
        }));
    }""")  # fmt: skip
    dial(page).fill("0")
    until(page, "window.looked === true")
    assert page.evaluate("window.stale") == 0


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


def test_play_is_within_a_few_tabs_of_the_board(opened, page_file):
    page = opened(page_file + PUZZLE, viewport=LAPTOP)
    ended(page)
    cell(page, 1, 1).focus()
    presses = 0
    while page.evaluate("document.activeElement.id") != "play":
        page.keyboard.press("Tab")
        presses += 1
        assert presses <= 5
    screen(page, "keyboard-play")


def test_address_takes_any_k_and_a_long_seed(opened, page_file):
    page = opened(f"{page_file}#tab=watch&k=3&seed=1234567")
    ended(page)
    assert page.locator("#fault").is_hidden()
    settings(page)
    assert page.get_by_label("Candidates").first.input_value() == "3"
    assert page.get_by_label("Seed").first.input_value() == "1234567"


def test_address_names_a_wrong_puzzle(opened, page_file):
    page = opened(f"{page_file}#tab=watch&puzzle=12&constructor=1")
    ended(page)
    page.locator("#puzzle-words", has_text="The puzzle has one solution.").wait_for()
    fault = page.locator("#fault").inner_text()
    assert "puzzle=12 in the address: A puzzle of 2 characters: 6x6 has 36, row by row, " in fault
    assert "constructor=1 in the address: is not a setting of the page." in fault
    assert page.locator("#text").get_attribute("aria-invalid") is None


def test_link_of_a_uniform_order_keeps_k_of_the_others(opened, page_file):
    page = opened(f"{page_file}#tab=watch&k=2")
    ended(page)
    settings(page)
    page.locator(".order").select_option("uniform")
    until(page, "location.hash.includes('order=uniform')")
    assert page.get_by_label("Candidates").first.input_value() == "1"
    other = opened(page.url)
    ended(other)
    settings(other)
    other.locator(".order").select_option("entropy")
    assert other.get_by_label("Candidates").first.input_value() == "2"


def test_arrow_at_an_edge_stays_in_its_column(opened, page_file):
    page = opened(page_file + PUZZLE)
    ended(page)
    cell(page, 1, 4).focus()
    focus = "document.activeElement.getAttribute('aria-label')"
    for key, place in (("ArrowUp", "row 1 column 4"), ("ArrowLeft", "row 1 column 3")):
        page.keyboard.press(key)
        assert page.evaluate(focus).startswith(place)
    cell(page, 6, 2).focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focus).startswith("row 6 column 2")


OVERFULL = """all => all.filter((one) => {
    const copy = one.cloneNode();
    copy.append(new Option(one.selectedOptions[0].text));
    copy.style = "position: absolute; width: max-content; max-width: none";
    one.after(copy);
    const isOverfull = copy.offsetWidth > one.offsetWidth;
    copy.remove();
    return isOverfull;
}).map((one) => one.id || one.className)"""


def test_selects_fit_their_text_in_a_narrow_window(opened, page_file):
    page = opened(page_file + PUZZLE, viewport={"width": 320, "height": 640})
    ended(page)
    settings(page)
    for tab in ("Curve", "Watch"):
        page.get_by_role("tab", name=tab).click()
        selects = page.locator("select:visible")
        assert selects.count() >= 4
        assert selects.evaluate_all(OVERFULL) == []
        assert set(selects.evaluate_all("all => all.map((one) => getComputedStyle(one).textOverflow)")) == {
            "ellipsis"
        }
        fits(page)
