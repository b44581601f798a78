"""The page as a person uses it, in a browser: watched, typed into, turned, compared, measured, and read without a server."""

import os
import re
import shutil
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from latent_tokens import TrainConfig, fit, from_pretrained
from latent_tokens.commands.serve import bound
from latent_tokens.commands.shared import task_of
from latent_tokens.frames import Asked, Model, Setting, trace
from latent_tokens.pretrained import find
from latent_tokens.web.page import page_with
from latent_tokens.web.server import app_for
from latent_tokens.web.shelf import Shelf
from pages import ROOT

SCREENS = Path(os.environ.get("SCREENS", ROOT / "runs" / "screens"))
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
SIX = ".....1.1.5..45.162..23....1.2.6.541."
OTHER = "1.....3............2................"
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
PATIENCE = 30.0  # seconds


def model(name):
    return Model(name, from_pretrained(name), task_of(find(name)))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Models of the two tasks for which none comes along, hardly trained."""
    folder = tmp_path_factory.mktemp("runs")
    tiny = {"size": "nano", "steps": 2, "num_train": 64, "num_validation": 8}
    return [str(fit(TrainConfig(task=task, method="scdm", out=folder / task, **tiny))) for task in ("zebra-3", "countdown-3")]


@contextmanager
def serving(names):
    """The address of a server of these models."""
    server = uvicorn.Server(uvicorn.Config(app_for(Shelf(names, task_of), 4, 60.0), log_level="error", access_log=False, ws="none"))
    with bound("127.0.0.1", 0) as place:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{place.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join(10)


@pytest.fixture(scope="module")
def address(runs):
    with serving(["sudoku-6-scdm", "sudoku-6-mdm", *runs]) as found:
        yield found


@pytest.fixture(scope="module")
def nine():
    """The address of a server of boards of 9x9 alone, whose decodes take longest."""
    with serving(["sudoku-9-scdm"]) as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium; where there is none, NEEDS_BROWSER makes that a fault."""
    place = shutil.which("chromium")
    if place is None:
        (pytest.fail if os.environ.get("NEEDS_BROWSER") else pytest.skip)("no chromium on the path: apt-get install chromium")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=place, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser):
    """Opens pages; at the end none of them has said anything on its console that was not expected."""
    said, contexts, expected = [], [], []

    def open_page(url, viewport=DESK, scheme="light", **settings):
        contexts.append(browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce", **settings))
        page = contexts[-1].new_page()
        page.set_default_timeout(1_000 * PATIENCE)
        page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.expected = expected
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [text for text in said if not any(part in text for part in expected)] == []


def watch(page, name="sudoku-6-scdm", puzzle=SIX):
    """Chooses the model and the puzzle, and waits for the verdict."""
    page.get_by_label("Model").first.select_option(name)
    page.get_by_label("Puzzle", exact=True).fill(puzzle)
    page.get_by_role("button", name="Use").click()
    assert page.get_by_label("Puzzle", exact=True).input_value() == puzzle
    ended(page)


def until(page, expression):
    """Waits for what JavaScript says of the page; the page's own policy forbids it to evaluate text, so it is asked from outside."""
    begun = time.monotonic()
    while not page.evaluate(expression):
        assert time.monotonic() < begun + PATIENCE, expression
        page.wait_for_timeout(20)


def ended(page, lane=0):
    page.locator(".lane").nth(lane).locator(".outcome", has_text="tokens read").wait_for()


def turn(page, value, lane=0):
    """Sets the dial, and waits for what it changes: the number is marked on it."""
    dial = page.get_by_role("slider", name="Latent tokens").nth(lane)
    dial.fill(str(value))
    want = 100 * value / int(dial.get_attribute("max"))
    marks = f"document.querySelectorAll('.lane')[{lane}].querySelectorAll('.tried span')"
    until(page, f"[...{marks}].some(mark => Math.abs(parseFloat(mark.style.left) - {want}) < 0.01)")
    ended(page, lane)


def verdicts(page):
    """How each lane ends, without the sign before the word."""
    return [re.sub("[^ -~] ", "", text.split(";")[0]) for text in page.locator(".outcome").all_inner_texts()]


def cell(page, row, column, lane=0):
    return page.locator(".lane").nth(lane).get_by_role("row").nth(row - 1).get_by_role("gridcell").nth(column - 1)


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
    assert [(one["id"], one["impact"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == []


def test_a_decode_is_watched_step_by_step(opened, address):
    page = opened(address)
    watch(page)
    turn(page, 4)
    at(page, 1)
    assert (count(page, "latent"), count(page, "new")) == (4, 1)
    assert page.locator(".story").inner_text().startswith("Step 1: of 8 candidates it writes ")
    steps = int(page.get_by_role("slider", name="Step").get_attribute("max"))
    assert steps == SIX.count(".")
    page.get_by_role("button", name="One step on").click()
    page.get_by_role("button", name="One step on").click()
    assert (count(page, "new"), count(page, "decoded"), count(page, "given")) == (1, 2, len(SIX) - steps)
    page.locator("#said", has_text="Step 3: of 8 candidates").wait_for()
    assert "4 latent tokens took part" in page.locator("#said").inner_text()
    assert page.locator(".cell svg text").count() > 8
    screen(page, "watch-6")
    page.get_by_role("button", name="To the end").click()
    assert count(page, "decoded") + count(page, "new") == steps
    page.get_by_role("button", name="To the start").click()
    assert count(page, "given") + count(page, "ready") == 36


def test_the_numbers_are_those_of_the_decode(opened, address):
    made = trace(Asked(model("sudoku-6-scdm"), model("sudoku-6-scdm").task.encode(SIX), Setting(2, 4, "top_prob", 0.0, 3)))
    page = opened(address)
    watch(page)
    page.get_by_label("Candidates").first.select_option("4")
    page.get_by_label("Seed").first.fill("3")
    page.get_by_label("Seed").first.blur()
    turn(page, 2)
    assert f"{made['end']['processed']:,} tokens read" in page.locator(".outcome").inner_text()
    for step in (1, 7, len(made["frames"])):
        at(page, step)
        frame = made["frames"][step - 1]
        ((where, token),) = frame["chosen"]
        assert cell(page, where // 6 + 1, where % 6 + 1).inner_text().split("\n")[0] == str(token + 1)
        assert f"{frame['processed']:,} tokens; with all latents, the mark, {frame['all_processed']:,}" in page.locator(".sum").inner_text()
        assert (count(page, "latent"), count(page, "candidate")) == (len(frame["latents"]), len(frame["candidates"]) - 1)


def test_a_puzzle_is_typed_and_contradictions_show_at_once(opened, address):
    page = opened(address)
    watch(page)
    page.get_by_role("button", name="Clear").click()
    assert count(page, "ready") == 36
    cell(page, 1, 1).click()
    page.keyboard.type("3")
    page.keyboard.press("ArrowRight")
    page.keyboard.type("3")
    assert page.locator("#puzzle-words").inner_text().endswith("row 1 holds 3 twice; box 1 holds 3 twice.")
    assert count(page, "clash") == 2
    screen(page, "conflict")
    page.keyboard.press("Delete")
    assert count(page, "clash") == 0
    page.keyboard.press("ArrowDown")
    page.get_by_role("button", name="Type 5").first.click()
    assert page.get_by_label("Puzzle", exact=True).input_value() == "3......5" + "." * 28
    page.get_by_text("It has several solutions").wait_for()
    ended(page)


def test_a_puzzle_is_pasted(opened, address):
    page = opened(address)
    watch(page)
    cell(page, 1, 1).focus()
    page.evaluate("""text => {
        const data = new DataTransfer();
        data.setData("text", text);
        document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
    }""", OTHER)  # fmt: skip
    assert page.get_by_label("Puzzle", exact=True).input_value() == OTHER
    assert count(page, "given") == 3
    page.get_by_label("Puzzle", exact=True).fill("12")
    page.get_by_role("button", name="Use").click()
    assert "A puzzle of 2 characters: 6x6 has 36" in page.locator("#puzzle-words").inner_text()
    page.get_by_label("Puzzle", exact=True).fill("x" * 36)
    page.get_by_role("button", name="Use").click()
    assert '"x" in row 1 column 1: must be 1 to 6' in page.locator("#puzzle-words").inner_text()
    assert count(page, "given") == 3


def test_two_settings_are_compared(opened, nine):
    page = opened(nine)
    page.get_by_role("button", name="Compare two settings").click()
    ended(page, 0)
    ended(page, 1)
    until(page, "[...document.querySelectorAll('h3')].map(h => h.textContent.match(/n = (\\w+)/)?.[1]).join() === '0,all'")
    at(page, 14)
    assert count(page, "latent", 0) == 0
    assert count(page, "latent", 1) > 20
    screen(page, "compare-9")
    for _ in range(5):
        page.get_by_role("button", name="One step on").click()
    assert [text.split(":")[0] for text in page.locator(".story").all_inner_texts()] == ["Step 19", "Step 19"]
    page.get_by_role("button", name="To the end").click()
    assert verdicts(page) == ["With n = 0 it ends wrong", "With n = all it ends right"]
    assert count(page, "clash", 0) > 1
    assert "lacks a digit" in page.locator(".wrong").first.inner_text()
    sound(page)
    screen(page, "compare-9-end")
    page.get_by_role("button", name="Compare two settings").click()
    assert page.locator(".lane").count() == 1


def test_a_method_without_a_dial_says_why(opened, address):
    page = opened(address)
    watch(page)
    page.get_by_label("Model").first.select_option("sudoku-6-mdm")
    page.get_by_text("Not free: this model's masked tokens all see each other").wait_for()
    assert page.get_by_role("slider", name="Latent tokens").is_disabled()
    page.get_by_label("Model").first.select_option("sudoku-6-scdm")
    page.get_by_label("Candidates").first.select_option("all")
    page.get_by_text("All cells are candidates, so none is left to be latent.").wait_for()
    assert page.get_by_role("slider", name="Latent tokens").is_disabled()


def test_zebra_and_countdown_are_watched(opened, address, runs):
    page = opened(address)
    for name, run in zip(("zebra", "countdown"), runs, strict=True):
        page.get_by_label("Model").first.select_option(run)
        page.locator("#clues li").first.wait_for()
        ended(page)
        at(page, 5)
        assert count(page, "decoded") == 4
        assert page.locator("#clues li").count() >= (3 if name == "zebra" else 1)
        sound(page)
        screen(page, name)


def test_it_plays_and_pauses(opened, address):
    page = opened(address)
    watch(page)
    page.get_by_label("Steps a second").select_option("25")
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").wait_for()
    until(page, "document.querySelector('#scrub').value > 3")
    page.get_by_role("button", name="Pause").click()
    stands = page.locator("#step").inner_text()
    page.wait_for_timeout(120)
    assert page.locator("#step").inner_text() == stands
    page.get_by_role("button", name="Play").click()
    until(page, "document.querySelector('#scrub').value === document.querySelector('#scrub').max")
    page.get_by_role("button", name="Play").wait_for()


def test_the_curve_is_measured(opened, address):
    page = opened(address)
    page.get_by_role("tab", name="Curve").click()
    page.locator("#curve-model").select_option("sudoku-6-scdm")
    page.get_by_label("Problems").fill("4")
    page.get_by_role("button", name="Run").click()
    until(page, "document.querySelectorAll('#points tbody tr').length === 4 && !document.querySelector('#curve-run').disabled")
    rows = [row.split("\t") for row in page.locator("#points tbody tr").all_inner_texts()]
    assert [row[1] for row in rows] == ["0", "4", "16", "all"]
    assert rows[0][5:] == ["768", "0.59\u00d7"]
    assert rows[-1][5:] == ["1,296", "1.00\u00d7"]
    sound(page)
    screen(page, "curve")
    page.get_by_label("Problems").fill("1000")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped; what was measured stays.").wait_for()
    page.get_by_role("button", name="Clear").click()
    assert page.locator("#points tbody tr").count() == 0


def test_the_masks_are_those_of_the_rules(opened, address):
    page = opened(f"{address}#masks")
    row = "[...row.querySelectorAll('td')].map(td => +td.classList.contains('sees')).join('')"
    seen = f"[...document.querySelectorAll('#mask tbody tr')].map(row => {row}).join()"
    until(page, f"{seen}.length === 41")
    assert page.evaluate(seen) == "111000,111000,111000,111100,111110,111111"
    sound(page)
    screen(page, "masks")
    page.get_by_role("button", name="Attention: SIDM").click()
    until(page, f"{seen} === '1110,1110,1110,1111'")
    page.get_by_role("button", name="AR-MTP, window").click()
    until(page, f"{seen} === Array(6).fill('111111').join()")
    assert page.get_by_role("slider", name="Latents").is_disabled()
    page.get_by_label("Method").select_option("esolm")
    page.get_by_role("slider", name="Clean").fill("1")
    until(page, f"{seen} === '1000,1100,1110,1111'")
    page.get_by_role("radio", name="latent").first.click()
    assert page.locator("#diagram line").count() == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_of_it_is_accessible(opened, address, scheme):
    page = opened(address, scheme=scheme)
    watch(page)
    at(page, 6)
    sound(page)
    screen(page, f"watch-{scheme}")
    for tab in ("Curve", "Masks"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(250)
        sound(page)
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") != scheme


def test_the_keyboard_is_enough(opened, address):
    page = opened(address)
    ended(page)

    def press(key, times=1):
        for _ in range(times):
            page.keyboard.press(key)

    def tab_to(selector):
        for _ in range(60):
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
            press("Tab")
        pytest.fail(f"{selector} is not reached with Tab")

    tab_to("[role=tab]")
    press("ArrowRight")
    assert page.locator("#curve").is_visible()
    press("ArrowLeft")
    assert page.locator("#watch").is_visible()
    tab_to("#text")
    press("Control+a")
    page.keyboard.type("." * 35 + "1")
    press("Enter")
    tab_to(".dial input")
    press("Home")
    assert page.locator(".dial-name b").inner_text() == "0"
    press("ArrowRight", 3)
    assert page.locator(".dial-name b").inner_text() == "3"
    tab_to(".cell")
    press("ArrowDown", 2)
    page.keyboard.type("6")
    assert page.locator("#text").input_value() == "." * 12 + "6" + "." * 22 + "1"
    tab_to("#play")
    press("Tab")
    ended(page)
    press("Enter", 2)
    assert page.locator("#step").inner_text().startswith("Step 2 of 34")
    tab_to("#scrub")
    press("End")
    assert page.locator("#step").inner_text() == "Step 34 of 34"


def test_it_fits_a_phone(opened, nine):
    page = opened(nine, viewport=PHONE, scheme="dark")
    ended(page)
    at(page, 9)
    fits(page)
    screen(page, "phone")
    page.get_by_role("button", name="Compare two settings").click()
    ended(page, 1)
    fits(page)
    for tab in ("Curve", "Masks"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(250)
        fits(page)
    screen(page, "phone-masks")


def test_a_trace_needs_no_server(opened, tmp_path):
    asked = model("sudoku-9-scdm")
    puzzle = asked.task.encode("003020600900305001001806400008102900700000008006708200002609500800203009005010300")
    file = tmp_path / "trace.html"
    file.write_text(page_with([trace(Asked(asked, puzzle, Setting(latents, 8))) for latents in (0, "all")]))
    page = opened(file.as_uri(), offline=True)
    assert verdicts(page) == ["With n = 0 it ends wrong", "With n = all it ends right"]
    at(page, 20)
    assert count(page, "decoded", 1) == 19
    assert not page.get_by_role("tab").first.is_visible()
    assert not page.get_by_label("Model").first.is_visible()
    sound(page)
    fits(page)
    screen(page, "trace")


def test_it_bears_that_the_server_goes(opened):
    with serving(["sudoku-6-scdm"]) as address:
        page = opened(address)
        ended(page)
    page.expected.append("ERR_CONNECTION_REFUSED")
    page.get_by_role("slider", name="Latent tokens").fill("1")
    page.locator(".reason", has_text="The server does not answer. Start it again with: latent-tokens serve").wait_for()
    page.get_by_role("button", name="To the end").click()
    assert count(page, "open") == 0
    screen(page, "gone")


def test_what_the_server_refuses_is_said(opened, address):
    page = opened(address)
    watch(page)
    page.expected.append("400 (Bad Request)")
    page.get_by_label("Puzzle", exact=True).fill("12345." + ".....6" + "." * 24)
    page.get_by_role("button", name="Use").click()
    page.locator("#puzzle-words", has_text="No answer agrees with what is given").wait_for()
    turn_to = page.get_by_role("slider", name="Latent tokens")
    turn_to.fill("1")
    page.locator(".reason", has_text="puzzle has no solution").wait_for()
