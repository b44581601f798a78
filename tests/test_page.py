"""The page in a browser: its three scenes, the laboratory, and a recorded decode."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from helpers.documentation import ROOT
from helpers.page import SIX, decoded, model, untrained
from helpers.runs import tiny_run
from latent_tokens import Text, fit
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.cli import main
from latent_tokens.page.document import page_of, page_with
from latent_tokens.storage import sha256_of
from latent_tokens.trace.examples import PAGE_RECORD, SENTENCES
from latent_tokens.trace.record import LoadedModel

pytestmark = pytest.mark.slow
RECORD = json.loads(PAGE_RECORD.read_text())
DESK, PHONE, LANDSCAPE = ({"width": w, "height": h} for w, h in ((1280, 900), (390, 844), (844, 390)))
PATIENCE = 30.0  # seconds
HOSTILE = (
    '<img src=x onerror="window.ran=1">\'&amp;\x1b[31m\u202e\r\n</option><script>window.ran=2<\\script>'
    "</script><script>window.ran=3</script>"
)
RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "rules": {"label-content-name-mismatch": {"enabled": True}},
}
SMALL_PHONES = ({"width": 390, "height": 664}, {"width": 320, "height": 568})  # with the bars of a browser
FINGER = 44  # pixels
SMALLEST_TEXT = 14


@pytest.fixture(scope="session")
def browser():
    """Return Debian's chromium. If there is none, skip the test unless NEEDS_BROWSER is set."""
    program = shutil.which("chromium")
    if program is None:
        give_up = pytest.fail if os.environ.get("NEEDS_BROWSER") else pytest.skip
        give_up("no chromium on the path: apt-get install chromium")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def page_file(tmp_path_factory):
    """Return the address of the file that `latent-tokens page` writes."""
    return written(tmp_path_factory.mktemp("page"))


def written(folder, *runs):
    """Write the page with these models, or the bundled ones, and return its address."""
    file = folder / "latent-tokens.html"
    assert main(["page", *runs, "--out", str(file)]) == 0
    return file.as_uri()


@pytest.fixture
def opened(browser):
    """Return a function that opens a page. At the end, no console has an error or a warning."""
    messages, contexts = [], []

    def listen(message):
        if message.type in ("error", "warning"):
            messages.append(message.text)

    def open_page(url, viewport=DESK):
        settings = {"viewport": viewport, "color_scheme": "light", "reduced_motion": "reduce"}
        contexts.append(browser.new_context(**settings, offline=True))
        page = contexts[-1].new_page()
        page.set_default_timeout(1_000 * PATIENCE)
        page.on("console", listen)
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert messages == []


def until(page, expression):
    """Wait for a JavaScript condition, evaluated from outside because the page's policy forbids eval."""
    begun = time.monotonic()
    while not page.evaluate(expression):
        assert time.monotonic() < begun + PATIENCE, expression
        page.wait_for_timeout(20)


def text(page, selector):
    """Return the text of an element."""
    return page.locator(selector).first.inner_text()


def reads(page, selector, words):
    """Wait until an element has some words."""
    page.locator(selector, has_text=words).first.wait_for()


def press(page, name):
    """Press the button with these words."""
    page.get_by_role("button", name=name).click()


def cell(page, board, index):
    """Return a cell of a board."""
    return page.locator(f"{board} .cell").nth(index)


def go_to_end(page):
    """Show the last step of the laboratory."""
    page.locator("#step").fill(page.locator("#step").get_attribute("max"))


def verdicts(page):
    """Return the verdicts of both settings of the laboratory, once they are decoded."""
    for lane in "ab":
        reads(page, f"#lane-{lane} .cost", "processed")
    go_to_end(page)
    return [text(page, f"#lane-{lane} .verdict") for lane in "ab"]


def fits(page):
    """Nothing is wider than the window."""
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def sound(page):
    """Axe finds nothing against WCAG 2 AA and its best practices."""
    violations = Axe().run(page, options=RULES).response["violations"]
    assert [(each["id"], each["impact"], each["nodes"][0]["html"]) for each in violations] == []


def harmless(page):
    """No script of a name has run, and none of its text has become an element."""
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    assert page.locator("img").count() == 0
    scripts = page.locator("script").evaluate_all("all => all.map((each) => each.text)")
    assert not any(script.startswith("window") for script in scripts)


@pytest.fixture(scope="module")
def six():
    return model("sudoku-6-scdm")


def saved(folder, content):
    """Write a page and return its address."""
    file = folder / "page.html"
    file.write_text(content, newline="")
    return file.as_uri()


def test_guess_of_one_square_turns_the_prediction(opened, page_file):
    one = RECORD["corrected"]
    page = opened(page_file, PHONE)
    assert text(page, "#one-lead") == "The model must fill the blue square. It says 1. Correct is 5."
    marked = cell(page, "#one-board", one["latent"])
    for viewport in (PHONE, {"width": 360, "height": 740}, {"width": 1280, "height": 800}):
        page.set_viewport_size(viewport)
        box = marked.bounding_box()
        assert box["y"] + box["height"] < viewport["height"]
        fits(page)
    page.set_viewport_size(PHONE)
    assert marked.inner_text() == "tap"
    marked.click()
    assert text(page, "#one-title") == "Now it says 5. Right."
    bars = [text(page, f"#one-bars li:nth-child({rank})").split("\n") for rank in (1, 2)]
    assert bars == [["5", "97%"], ["1", "2%"]]
    press(page, "Forget the guess")
    reads(page, "#one-title", "This AI is about to get one square wrong")
    press(page, "Guess all squares")
    reads(page, "#one-title", "Now it says 5. Right.")

    # A guess can also spoil a board, and the page states how often.
    assert text(page, "#one-counts").startswith(
        "Of 400 random boards, the model is right on 317 alone, on 340 "
    )
    press(page, "A board that a guess spoils")
    assert text(page, "#one-lead") == "The model must fill the blue square. It says 1. That is correct."
    press(page, "Guess the marked square too")
    assert text(page, "#one-title") == "Now it says 3. Wrong."


@pytest.mark.parametrize("viewport", SMALL_PHONES, ids=["390", "320"])
def test_first_tap_is_answered_and_named_on_a_small_phone(opened, page_file, viewport):
    page = opened(page_file, viewport)
    cell(page, "#one-board", RECORD["corrected"]["latent"]).click()
    page.get_by_role("button", name="Forget the guess").wait_for()
    for selector in ("#one-name", "#one-board", "#one-guess"):
        box = page.locator(selector).bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= viewport["height"], selector
    assert text(page, "#one-name") == "That discarded guess is a latent token."


TEXT_BELOW = """(least) => [...document.querySelectorAll('body *')]
    .filter((each) => each.checkVisibility() && each.innerText)
    .filter((each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()))
    .filter((each) => parseFloat(getComputedStyle(each).fontSize) < least)
    .map((each) => each.outerHTML)"""
TOPS = """Object.fromEntries([...document.querySelectorAll(
    '.scene, .scene button, .scene input, .scene .board, #lab')].map((each) =>
    [each.id || each.textContent, Math.round(each.getBoundingClientRect().top + scrollY)]))"""


@pytest.mark.parametrize("viewport", [*SMALL_PHONES, DESK], ids=["390", "320", "desk"])
def test_every_first_tap_is_answered_at_once_and_nothing_moves(opened, page_file, viewport):
    """A tap without effect leaves a square that works."""
    one = RECORD["corrected"]
    page = opened(page_file, viewport)
    tops = page.evaluate(TOPS)
    titles = []
    for index, digit in enumerate(one["puzzle"]):
        cell(page, "#one-board", index).click()
        titles.append(text(page, "#one-title"))
        answer = "discarded guess" if digit == "." else f"{digit} is given."
        assert answer in text(page, "#one-name")
        assert page.locator("#one-board .marked").count() == (not titles[-1].startswith("Now"))
        assert page.evaluate(TOPS) == tops
        if digit == ".":
            assert titles[-1] in ("Still 1. Wrong.", "Now it says 5. Right.")
            press(page, "Forget the guess")
    # The blue square guesses the marked one.
    assert titles.count("Now it says 5. Right.") == one["right_with"] + 1
    press(page, "A board that a guess spoils")
    assert page.evaluate(TOPS) == tops


def test_fingers_and_eyes_have_room(opened, page_file):
    """The squares of the hundred and of two boards are smaller than a finger: buttons lead to each."""
    page = opened(page_file, SMALL_PHONES[1])
    page.locator("#why").scroll_into_view_if_needed()
    reads(page, "#why-words", "With or without")
    page.locator("#lab").scroll_into_view_if_needed()
    verdicts(page)
    targets = "a:not(.skip), button, select, summary, .check, input:not([type=checkbox]), #one .cell"
    for target in page.locator(targets).all():
        box = target.bounding_box()
        assert box is None or box["height"] >= FINGER, target.inner_text()
    widths = page.locator("button:visible").evaluate_all("all => all.map(e => e.offsetWidth)")
    assert min(widths) >= FINGER
    assert page.evaluate(TEXT_BELOW, SMALLEST_TEXT) == []
    page.emulate_media(forced_colors="active")
    widths = "getComputedStyle(document.querySelector('#one-board .cell')).borderWidth"
    assert page.evaluate(widths) == "0px 1px 1px 0px"
    assert page.evaluate(widths.replace("#one-board", "#hundred-board")) == "1px"


def test_first_scene_is_there_before_the_weights(opened, page_file, tmp_path):
    """A slow connection has not brought the weights yet: the file ends before them."""
    content = Path(page_file.removeprefix("file://")).read_text()
    begun = content[: content.index('<script type="application/json" id="weights-0">')]
    assert len(begun) < 400_000
    page = opened(saved(tmp_path, begun), PHONE)
    press(page, "Guess the marked square too")
    assert text(page, "#one-title") == "Now it says 5. Right."


def test_hundred_boards_flip_with_n_and_equal_live_decodes(opened, page_file):
    hundred = RECORD["hundred"]
    page = opened(page_file, PHONE)
    dial = page.locator("#hundred-dial")
    for n in (0, 4, 31):
        dial.fill(str(n))
        solved = hundred["solved"][n].count("1")
        assert text(page, "#hundred-count") == str(solved)
        assert page.locator("#hundred-board .solved").count() == solved
        assert f"{hundred['processed'][n]:,} tokens processed" in text(page, "#hundred-cost")
    assert dial.get_attribute("aria-valuetext") == "n = all, 76 of 100 solved"
    orders = "20, 26 and 40 (uniform, k = 1), 75, 78 and 88 (top-prob, k = 4), 69, 80 and 95 (entropy, k = 4)"
    assert text(page, "#hundred-orders") == f"Solved in other orders with n = 0, 4 and all: {orders}."
    dial.fill("4")
    press(page, "Check it live")
    until(page, "document.querySelector('#hundred-words').textContent.split(' ')[1] >= 12")
    words = text(page, "#hundred-words").split()
    assert words[1] == words[5], words
    press(page, "Stop")
    assert text(page, "#hundred-words") == "Stopped."

    # A square and its neighbors are chosen, the button opens one in the laboratory, and Back returns.
    flipped = next(i for i in range(100) if hundred["solved"][0][i] != hundred["solved"][31][i])
    dial.fill("31")
    cell(page, "#hundred-board", flipped).click()
    for name in ("Next board", "Previous board", "Previous board", "Next board"):
        press(page, name)
    assert cell(page, "#hundred-board", flipped).get_attribute("aria-label").endswith("solved, chosen")
    press(page, f"Watch board {flipped + 1}")
    results = [verdict.startswith("✓") for verdict in verdicts(page)]
    assert results == [hundred["solved"][n][flipped] == "1" for n in (0, 31)]
    assert page.locator("#puzzle").input_value() == hundred["puzzles"][flipped]
    page.go_back()
    until(page, "location.hash === ''")
    assert page.url.startswith(page_file)


@pytest.mark.skipif(not SENTENCES.is_file(), reason="no text model is bundled")
def test_sentence_is_decoded_with_both_numbers_of_latent_tokens(opened, page_file):
    record = json.loads(SENTENCES.read_text())
    sentence = record["shown"][0]
    count = len(sentence["masked"])
    page = opened(page_file, PHONE)
    assert record["sha256"] == sha256_of(BUNDLED / record["model"] / "model.safetensors")
    page.locator("#text").scroll_into_view_if_needed()
    reads(page, "#text-some .cost", "tokens processed")
    assert text(page, "#text-step-words") == f"Step 1 of {count}"
    guessed = [page.locator(f"#text-{side} .guessed").count() for side in ("none", "some")]
    assert guessed == [0, count - 1]
    assert page.locator("#text-none .gap").count() == count - 1
    page.locator("#text-dial").fill("1")
    until(page, "document.querySelectorAll('#text-some .guessed').length === 1")
    page.locator("#text-step").fill(str(count))
    assert page.locator("#text-some .gap").count() == 0
    author = [record["words"][token] for token in sentence["tokens"][1:-1]]
    assert text(page, "#text-words").lower() == f"the author: {' '.join(author)}.".replace(" ,", ",").lower()
    press(page, "Another sentence")
    reads(page, "#text-step-words", "Step 1 of")
    sound(page)


def test_leaving_out_changes_nothing_unless_attention_is_bidirectional(opened, page_file):
    page = opened(page_file, PHONE)
    page.locator("#why").scroll_into_view_if_needed()
    for n in (4, 0, 9):
        page.locator("#why-dial").fill(str(n))
        reads(page, "#why-words", f"With or without the {21 - n} masked squares")
        assert text(page, "#why-left .said") == text(page, "#why-kept .said")
        assert page.locator("#why-left .latent").count() == n
        assert page.locator("#why-kept .later").count() == 21 - n
    assert page.locator("#why-kept .rays .from-later").count() == 0
    press(page, "Bidirectional, not trained so")
    reads(page, "#why-words", "change the prediction")
    assert text(page, "#why-left .said") != text(page, "#why-kept .said")
    assert page.locator("#why-kept .rays .from-later").count() == 12
    assert "not trained so" in text(page, "#why-rule")


def test_laboratory_shows_the_decodes_of_the_package(opened, page_file, six):
    page = opened(f"{page_file}#lab?puzzle={SIX}&n=2,all&k=4&order=margin&seed=3&temperature=1", PHONE)

    # It opens at the first step, with guesses on both boards. The verdict and the cost follow the steps.
    reads(page, "#lane-b .cost", "processed so far")
    reads(page, "#lane-a .cost", "processed so far")
    assert text(page, "#step-words") == "Step 1 of 20"
    assert [text(page, f"#lane-{lane} .verdict") for lane in "ab"] == ["Decoding", "Decoding"]
    assert [page.locator(f"#lane-{lane} .latent").count() for lane in "ab"] == [2, 16]
    verdicts(page)
    setting = {"candidates": 4, "order": "margin", "seed": 3, "temperature": 1.0}
    expected = [decoded(six, SIX, latents=n, **setting) for n in (2, "all")]
    for name, recorded in zip("ab", expected, strict=True):
        end = recorded["end"]
        assert text(page, f"#lane-{name} .verdict").startswith("✓" if end["right"] else "✕")
        assert f"{end['processed']:,} tokens processed" in text(page, f"#lane-{name} .cost")
    assert text(page, "#step-words") == "Step 20 of 20"
    for step in (1, 7):
        page.locator("#step").fill(str(step))
        for name, recorded in zip("ab", expected, strict=True):
            frame = recorded["frames"][step - 1]
            ((at, token),) = frame["chosen"]
            assert page.locator(f"#lane-{name} .latent").count() == len(frame["latents"])
            assert cell(page, f"#lane-{name}", at).inner_text() == str(token + 1)
            assert "new" in cell(page, f"#lane-{name}", at).get_attribute("class")

    # Both boards and the player are on the phone's screen at once.
    page.locator("#lane-a .board").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('#lane-a .dial').scrollIntoView()")
    box = page.locator("#step").bounding_box()
    assert box["y"] + box["height"] < PHONE["height"]

    # A cell has its probabilities, n changes one side, and the address follows.
    cell(page, "#lane-a", 0).click()
    assert "row 1 column 1" in text(page, "#lane-a .bars-title")
    page.locator("#lane-a .n").fill("0")
    until(page, "location.hash.includes('n=0%2Call') || location.hash.includes('n=0,all')")
    reads(page, "#lane-a .story", "0 latent tokens")


def test_laboratory_opens_with_the_board_that_four_latent_tokens_solve(opened, page_file):
    """Another example is decoded with the settings of its label, your own puzzle with those before."""
    page = opened(f"{page_file}#lab?")
    assert [verdict[0] for verdict in verdicts(page)] == ["✕", "✓"]
    for lane, n in zip("ab", (0, 4), strict=True):
        assert text(page, f"#lane-{lane} .setting") == f"sudoku-6-scdm, n = {n}, k = 1, left to right"
    assert text(page, "#caption").startswith("Chosen example: solved with 4 latent tokens, wrong with none, ")
    page.locator("#example").select_option(label="solved with all latent tokens, wrong with none")
    reads(page, "#lane-b .setting", "n = all, k = 4, top-prob")
    assert [verdict[0] for verdict in verdicts(page)] == ["✕", "✓"]
    page.locator("#k").select_option("8")
    page.locator("#example").select_option(label="empty board")
    reads(page, "#lane-b .setting", "n = all, k = 8, top-prob")
    reads(page, "#step-words", "of 36")


def test_laboratory_masks_tokens_again(opened, page_file, six):
    page = opened(f"{page_file}#lab?puzzle={SIX}&n=2,all&k=4&seed=3&temperature=1&remask=1")
    recorded = decoded(six, SIX, latents=2, candidates=4, seed=3, temperature=1.0, remask_every=2)
    frames = recorded["frames"]
    reads(page, "#step-words", f"of {len(frames)}")
    step = next(number for number, frame in enumerate(frames, 1) if "again" in frame)
    page.locator("#step").fill(str(step))
    (again,) = frames[step - 1]["again"]
    assert "is masked again" in text(page, "#lane-a .story")
    kinds = cell(page, "#lane-a", again).get_attribute("class").split()
    assert "decoded" not in kinds
    assert "remask every 2" in text(page, "#lane-a .setting")
    end = recorded["end"]
    verdicts(page)
    assert text(page, "#lane-a .verdict").startswith("✓" if end["right"] else "✕")
    assert f"{end['processed']:,} tokens processed" in text(page, "#lane-a .cost")
    page.locator("#remask").uncheck()
    reads(page, "#step-words", "of 20")
    assert "remask" not in page.evaluate("location.hash")


def test_own_puzzle_is_typed_decoded_and_refused(opened, page_file):
    page = opened(f"{page_file}#lab?puzzle=12345")
    verdicts(page)
    assert "puzzle of 5 characters: 6x6 has 36" in text(page, "#lab-fault")
    page.goto(f"{page_file}#lab?model=sudoku-9-none")
    reads(page, "#lab-fault", "model=sudoku-9-none: is not in this page")
    page.locator("#puzzle").fill("12")
    press(page, "Use")
    assert "puzzle of 2 characters: 6x6 has 36" in text(page, "#lab-fault")
    page.locator("#puzzle").fill(SIX)
    press(page, "Use")
    reads(page, "#step-words", "of 20")
    assert text(page, "#lab-fault") == ""
    cell(page, "#lane-a", 0).click()
    page.keyboard.press("1")
    reads(page, "#lab-fault", "puzzle contradicts itself: 1 twice in row 1")
    reads(page, "#lane-a .verdict", "Not decoded.")
    assert cell(page, "#lane-a", 0).inner_text() == "1"
    press(page, "Empty")
    reads(page, "#step-words", "of 20")
    for name, place in (("Left", "row 1 column 1"), ("Down", "row 2 column 1"), ("Right", "row 2 column 2")):
        press(page, name)
        assert place in text(page, "#lane-a .bars-title")

    # What cannot be decoded leaves neither its fault nor its steps behind.
    press(page, "One setting")
    page.locator("#lane-a .n").fill("4")
    page.locator("#order").select_option("top_prob")
    page.locator("#k").select_option("all")
    reads(page, "#lab-fault", "latents=4 with candidates=all")
    reads(page, "#lane-a .verdict", "Not decoded.")
    page.locator("#lane-a .n").fill("0")
    reads(page, "#step-words", "of 20")
    assert text(page, "#lab-fault") == ""
    page.locator("#k").select_option("")
    press(page, "Compare two settings")
    page.reload()
    verdicts(page)
    assert page.locator("#puzzle").input_value() == SIX


def test_other_models_and_hostile_names_are_in_the_laboratory(opened, six, tmp_path):
    """A name is text on the page. The n of mdm is fixed. A model has its own board and default k."""
    four = str(fit(tiny_run(tmp_path / "four", steps=1)))
    mdm = model("sudoku-6-mdm")
    models = [LoadedModel(HOSTILE, six.net, six.task), mdm, model(four)]
    page = opened(f"{saved(tmp_path, page_of(models))}#lab")
    verdicts(page)
    harmless(page)
    page.locator("#lane-a .model").select_option(mdm.name)
    reads(page, "#lane-a .why", "mdm: n is fixed when it is trained.")
    assert page.locator("#lane-a .n").is_disabled()
    page.get_by_label("Off-distribution").check()
    page.locator("#lane-a .n").fill("3")
    until(page, "location.hash.includes('off=1')")
    assert "k = 1, left to right" in text(page, "#lane-b .setting")
    cell(page, "#lane-b", 30).click()
    assert "row 6 column 1" in text(page, "#lane-b .bars-title")
    page.locator("#lane-b .model").select_option(four)
    until(page, "document.querySelectorAll('#lane-a .cell').length === 16")
    verdicts(page)
    until(page, "document.querySelector('#lane-b .setting').textContent.includes('k = 8')")
    assert text(page, "#lane-b .bars-title") == ""
    page.goto(f"{page.url.partition('#')[0]}#lab?model={mdm.name},{model(four).name}")
    reads(page, "#lab-fault", "four: has no boards of 6x6. Choose another model.")
    assert page.locator("#lane-b .model").input_value() == mdm.name
    verdicts(page)
    fits(page)


def test_page_without_the_measured_model_is_a_laboratory(opened, tmp_path):
    page = opened(written(tmp_path, "sudoku-6-mdm"))
    assert not page.locator("#one").is_visible()
    verdicts(page)
    sound(page)


def test_page_without_javascript_has_two_boards_and_their_meaning(browser, page_file):
    context = browser.new_context(viewport=SMALL_PHONES[0], java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file)
    boards = page.locator(".still-boards .board")
    assert [boards.nth(i).locator(".target").inner_text() for i in (0, 1)] == ["1", "5"]
    assert boards.locator(".latent").all_inner_texts() == ["1"]
    assert page.locator(".still-boards p").inner_text().count(".") == 4
    box = boards.nth(1).bounding_box()
    assert box["width"] > 4 * FINGER - 20
    assert box["x"] + box["width"] <= SMALL_PHONES[0]["width"]
    assert page.locator("button:visible, h2:visible").count() == 0
    context.close()


def test_page_is_accessible_and_never_wider_than_its_window(opened, page_file):
    page = opened(page_file, PHONE)
    page.locator("#lab").scroll_into_view_if_needed()
    verdicts(page)
    page.locator("#why").scroll_into_view_if_needed()
    reads(page, "#why-words", "With or without")
    page.get_by_text("The numbers", exact=True).click()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        sound(page)
    for width in (240, 320, 360, 560, 640, 780, 844, 1280, 2560):
        page.set_viewport_size({"width": width, "height": 700})
        fits(page)
    page.set_viewport_size(LANDSCAPE)
    page.locator("#one-board").scroll_into_view_if_needed()
    assert page.locator("#one-board").bounding_box()["height"] <= LANDSCAPE["height"]


def test_page_is_used_by_keyboard_alone_at_a_slow_processor(opened, page_file):
    page = opened(page_file, DESK)
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 4})
    page.locator("#one-board .cell[tabindex='0']").focus()
    down, right = divmod(RECORD["corrected"]["latent"], 6)
    for key in ["ArrowDown"] * down + ["ArrowRight"] * right + ["Enter"]:
        page.keyboard.press(key)
    assert text(page, "#one-title") == "Now it says 5. Right."
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "one-guess"
    page.locator("#hundred-dial").focus()
    page.keyboard.press("End")
    assert text(page, "#hundred-count") == "76"
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    for _ in range(2):
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.reload()
    assert "theme" not in page.url


# The page of a recorded decode.


def test_trace_page_opens_on_the_recorded_decodes_and_decodes_itself(opened, six, tmp_path):
    setting = {"candidates": 3, "temperature": 1.0, "seed": 5}
    traces = [decoded(six, SIX, latents=latents, **setting) for latents in (0, "all")]
    page = opened(saved(tmp_path, page_with(traces, "Chosen <example>: 40 of 150 & more", [six])), PHONE)
    go_to_end(page)
    for name, n, recorded in zip("ab", (0, "all"), traces, strict=True):
        words = f"sudoku-6-scdm, n = {n}, k = 3, top-prob, temperature 1"
        assert text(page, f"#lane-{name} .setting") == words
        assert f"{recorded['end']['processed']:,} tokens processed" in text(page, f"#lane-{name} .cost")
    assert text(page, "#caption") == "Chosen <example>: 40 of 150 & more"
    assert page.get_by_label("Seed").input_value() == "5"
    assert page.locator("#k").input_value() == "3"
    assert page.locator("#puzzle").input_value() == SIX
    page.locator("#lane-a .n").fill("2")
    end = decoded(six, SIX, latents=2, **setting)["end"]
    reads(page, "#lane-a .cost", f"{end['processed']:,} tokens processed")
    assert text(page, "#lane-a .verdict").startswith("✓" if end["right"] else "✕")


@pytest.mark.parametrize("is_compared", [False, True])
@pytest.mark.parametrize(
    "task", ["sudoku-6", "sudoku-6-puzzle", "zebra-3", "zebra-compact-3", "countdown-3", "text"]
)
def test_trace_page_of_any_task_shows_its_recorded_steps(opened, tmp_path, task, is_compared):
    own = untrained(Text(32) if task == "text" else task)
    puzzles = {"text": "One ____ more", "sudoku-6": SIX}
    puzzle = puzzles.get(task) or own.task.prompt(own.task.generate(1, seed=0))
    settings = (1, "all") if is_compared else (1,)
    traces = [decoded(own, puzzle, latents=n, candidates=2, order="top_prob") for n in settings]
    page = opened(saved(tmp_path, page_with(traces, "A caption.", [own])), PHONE)
    assert page.locator("#lane-b").is_visible() == is_compared
    assert text(page, "#step-words") == "Step {0} of {0}".format(len(traces[0]["frames"]))
    assert text(page, "#reason").startswith("These are recorded steps: their settings are fixed.")
    for step in (1, len(traces[0]["frames"])):
        page.locator("#step").fill(str(step))
        for name, recorded in zip("ab", traces, strict=False):
            frame = recorded["frames"][step - 1]
            ((at, token),) = frame["chosen"]
            sign = (recorded["start"]["signs"][token] or "␣").replace("\n", "⏎")
            assert cell(page, f"#lane-{name}", at).text_content() == sign
            assert page.locator(f"#lane-{name} .latent").count() == len(frame["latents"])
    assert page.locator("#clues li").all_inner_texts() == traces[0]["start"]["words"]
    assert not page.locator("#lane-a .n").is_visible()
    assert not page.locator(".settings").is_visible()
    sound(page)
    fits(page)


@pytest.mark.parametrize("has_model", [True, False])
def test_hostile_model_name_is_text_in_a_trace(opened, six, tmp_path, has_model):
    """With its model, the page of one decode compares it with another."""
    net = six.net if has_model else untrained("sudoku-6").net  # which is not saved
    hostile = LoadedModel(HOSTILE, net, six.task)
    traces = [decoded(hostile, SIX, latents="all", candidates=4)] * (1 if has_model else 2)
    page = opened(saved(tmp_path, page_with(traces, HOSTILE, [hostile])), PHONE)
    assert page.locator("#lane-b").is_visible() != has_model
    if has_model:
        press(page, "Compare two settings")
        reads(page, "#lane-b .cost", "processed")
        sound(page)
    settings = page.locator(".setting").evaluate_all("all => all.map((each) => each.textContent)")
    assert sum(f"{HOSTILE.rpartition('/')[2]}, n = " in words for words in settings) == 2
    assert page.evaluate("document.querySelector('#caption').textContent") == HOSTILE
    harmless(page)


def test_code_of_the_manual_is_reached_by_keyboard_and_copied(opened, tmp_path):
    script, style = ((ROOT / "docs" / "static" / f"code.{kind}").read_text() for kind in ("js", "css"))
    block = "<div class='highlight'><pre>latent-tokens demo\n</pre></div>"
    head = f"<html lang='en'><title>Code</title><style>{style}</style><script>{script}</script>"
    page = opened(saved(tmp_path, f"{head}<main><h1>Code</h1>{block}</main></html>"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "PRE"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    reads(page, "button.copy", "Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "latent-tokens demo\n"
    sound(page)
