"""The page in a browser, as `latent-tokens page` writes it: watch, type and compare decodes."""

import io
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image, ImageColor

from helpers.browser import written
from helpers.page import (
    HOSTILE,
    LAPTOP,
    PHONE,
    SIX,
    at,
    cell,
    count,
    ended,
    fits,
    harmless,
    marks,
    model,
    screen,
    settings,
    sound,
    turn,
    until,
    verdicts,
    watch,
)  # fmt: skip
from latent_tokens import TASKS, TrainConfig, fit
from latent_tokens.checkpoints.files import find
from latent_tokens.cli import main
from latent_tokens.configs import SamplingConfig
from latent_tokens.trace.examples import PAGE_RECORD, examples, measured
from latent_tokens.trace.record import DecodeRequest, trace

pytestmark = pytest.mark.slow
TINY = {"size": "nano", "steps": 2, "num_train": 64, "num_validation": 8, "precision": "fp32"}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The tab Watch of a page with a model whose number of latent tokens is fixed."""
    return f"{written(tmp_path_factory.mktemp('mdm'), 'sudoku-6-scdm', 'sudoku-6-mdm')}#watch"


@pytest.fixture(scope="module")
def left_to_right(tmp_path_factory):
    """The tab Watch of a page with a model that only continues a prefix."""
    return f"{written(tmp_path_factory.mktemp('arm'), 'sudoku-6-scdm', 'sudoku-6-arm')}#watch"


@pytest.fixture(scope="module")
def nine(page_file):
    """The tab Watch of boards of 9x9, whose decodes take longest."""
    return f"{page_file}#tab=watch&model=sudoku-9-scdm"


def frozen():
    """What the page shows of the bundled model."""
    return json.loads(PAGE_RECORD.read_text())


def state(page, where, lane=0):
    """The classes of a cell of a 6x6 board."""
    return cell(page, where // 6 + 1, where % 6 + 1, lane).get_attribute("class").split()


def digit_at(page, where, lane=0):
    """The digit in a cell of a 6x6 board."""
    return int(cell(page, where // 6 + 1, where % 6 + 1, lane).inner_text()[0])


def test_a_decode_is_watched_step_by_step(opened, address):
    page = opened(address)
    watch(page)
    turn(page, 4)
    at(page, 1)
    assert (count(page, "latent"), count(page, "new")) == (4, 1)
    assert page.locator(".lane .story").inner_text().startswith("Step 1: of 4 candidates, the model decodes ")
    steps = int(page.get_by_role("slider", name="Step").get_attribute("max"))
    assert steps == SIX.count(".")
    page.get_by_role("button", name="Next step").click()
    page.get_by_role("button", name="Next step").click()
    assert (count(page, "new"), count(page, "decoded"), count(page, "given")) == (1, 2, len(SIX) - steps)
    page.locator("#said", has_text="Step 3: of 4 candidates").wait_for()
    assert "4 latent tokens were predicted and discarded." in page.locator("#said").inner_text()
    assert page.locator(".cell svg text").count() > 8
    screen(page, "watch-6")
    page.get_by_role("button", name="Last step").click()
    assert count(page, "decoded") + count(page, "new") == steps
    page.get_by_role("button", name="First step").click()
    assert count(page, "given") + count(page, "ready") == 36


def test_the_numbers_are_those_of_the_decode(opened, address):
    made = trace(
        DecodeRequest(
            model("sudoku-6-scdm"),
            model("sudoku-6-scdm").task.encode(SIX),
            SamplingConfig(2, 4, "top_prob", temperature=0.0, seed=3),
        )
    )
    page = opened(address)
    watch(page)
    page.get_by_label("Candidates").first.select_option("4")
    page.get_by_label("Seed").first.fill("3")
    page.get_by_label("Seed").first.blur()
    turn(page, 2)
    at(page, len(made["frames"]))
    assert f"{made['end']['processed']:,} tokens processed" in page.locator(".outcome").inner_text()
    for step in (1, 7, len(made["frames"])):
        at(page, step)
        frame = made["frames"][step - 1]
        ((where, token),) = frame["chosen"]
        assert cell(page, where // 6 + 1, where % 6 + 1).inner_text().split("\n")[0] == str(token + 1)
        assert (
            f"{frame['processed']:,} of {frame['all_processed']:,} with all latent tokens (mark)"
            in page.locator(".sum").inner_text()
        )
        assert (count(page, "latent"), count(page, "candidate")) == (
            len(frame["latents"]),
            len(frame["candidates"]) - 1,
        )


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
    assert page.locator(".lane .story").inner_text() == "34 empty cells."
    screen(page, "conflict")
    page.keyboard.press("Delete")
    assert count(page, "clash") == 0
    page.keyboard.press("ArrowDown")
    page.get_by_role("button", name="Type 5").click()
    assert page.get_by_label("Puzzle", exact=True).input_value() == "3......5" + "." * 28
    page.get_by_text("The puzzle has several solutions").wait_for()
    ended(page)


def test_two_settings_are_compared(opened, nine):
    page = opened(nine)
    page.get_by_role("button", name="Compare two settings").click()
    ended(page, 0)
    ended(page, 1)
    assert page.get_by_role("region", name="Board A").get_by_role("slider").count() == 1
    assert page.get_by_role("region", name="Board B").get_by_role("slider").count() == 1
    until(
        page,
        "[...document.querySelectorAll('.lane h2')].map(h => h.textContent.match(/n = (\\w+)/)?.[1]).join() "
        "=== '0,all'",
    )
    at(page, 14)
    assert count(page, "latent", 0) == 0
    assert count(page, "latent", 1) > 20
    screen(page, "compare-9")
    for _ in range(5):
        page.get_by_role("button", name="Next step").click()
    assert [text.split(":")[0] for text in page.locator(".lane .story").all_inner_texts()] == [
        "Step 19",
        "Step 19",
    ]
    page.get_by_role("button", name="Last step").click()
    assert verdicts(page) == ["n = 0: wrong", "n = all: solved"]
    assert count(page, "clash", 0) > 1
    assert "lacks a digit" in page.locator(".wrong").first.inner_text()
    sound(page)
    screen(page, "compare-9-end")
    page.get_by_role("button", name="Compare two settings").click()
    assert page.locator(".lane").count() == 1


def test_a_comparison_marks_the_first_wrong_digit(opened, address):
    page = opened(address)
    task = model("sudoku-6-scdm").task
    puzzle = measured()["sudoku-6"]["examples"][0]["puzzle"]
    asked = task.encode(puzzle)
    givens = np.where(asked.known[0], asked.tokens[0].astype(np.int64), -1)
    solution = task.grid.solution(givens)
    ended(page)
    page.get_by_role("button", name="Compare two settings").click()
    ended(page, 0)
    ended(page, 1)
    assert page.locator(".mistaken").count() == 0  # no verdict before it was played
    assert page.locator(".mistake").all_inner_texts() == ["", ""]
    page.get_by_role("button", name="Last step").click()
    line = page.locator(".mistake").first.inner_text()
    digit, row, column, step, right = map(int, re.findall(r"\d+", line))
    where = 6 * (row - 1) + column - 1
    assert solution[where] + 1 == right != digit
    assert cell(page, row, column).get_attribute("aria-label").endswith("the first wrong digit")
    page.locator(".mistake").first.get_by_role("button", name=f"step {step}").click()
    assert page.locator("#step").inner_text() == f"Step {step} of {puzzle.count('.')}"
    assert count(page, "new.mistaken") == 1
    at(page, step - 1)
    decoded = [where for where in range(36) if "decoded" in state(page, where) or "new" in state(page, where)]
    assert all(digit_at(page, where) == solution[where] + 1 for where in decoded)
    assert page.locator(".mistake").nth(1).inner_text() == ""
    page.locator("#parting").get_by_role("button").click()
    parting = int(re.search(r"differ in step (\d+)", page.locator("#parting").inner_text())[1])
    assert page.locator("#step").inner_text().startswith(f"Step {parting} of")
    sound(page)


def test_both_boards_show_the_same_state(opened, address):
    page = opened(address)
    ended(page)
    page.get_by_role("button", name="Compare two settings").click()
    ended(page, 0)
    ended(page, 1)
    at(page, 6)
    page.get_by_role("button", name="Same board").click()
    page.locator(".lane").nth(1).and_(page.locator(".instead")).wait_for()
    until(page, "document.querySelectorAll('.lane')[1].querySelectorAll('.latent').length > 0")
    boards = [
        [
            board.locator(f".cell.{kind}").evaluate_all(
                "all => all.map((one) => one.ariaLabel.split(':')[0])"
            )
            for kind in ("given", "decoded")
        ]
        for board in page.locator(".lane .board").all()
    ]
    assert boards[0] == boards[1]
    assert [count(page, "candidate", lane) + count(page, "new", lane) for lane in (0, 1)] == [4, 4]
    assert [count(page, "latent", lane) for lane in (0, 1)] == [0, 13]
    sound(page)
    screen(page, "same-board")
    page.get_by_role("button", name="Same board").click()
    assert page.locator(".instead").count() == 0


def test_a_decode_is_saved_as_a_gif(opened, page_file):
    page = opened(f"{page_file}#watch")
    ended(page)
    page.get_by_role("button", name="Compare two settings").click()
    ended(page, 0)
    ended(page, 1)
    with page.expect_download() as download:
        page.get_by_role("button", name="GIF").click()
    assert download.value.suggested_filename == "latent-tokens-sudoku-6-n0-nall.gif"
    gif = Image.open(io.BytesIO(download.value.path().read_bytes()))
    steps = int(page.get_by_role("slider", name="Step").get_attribute("max"))
    assert (gif.n_frames, gif.size) == (steps + 1, (780, 434))
    assert download.value.path().stat().st_size < 1_000_000
    gif.seek(3)
    shown = {color for _, color in gif.convert("RGB").getcolors(1 << 24)}
    names = ("paper", "faint", "blue", "orange-wash")
    value = "name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`)"
    colors = [page.evaluate(value, name) for name in names]
    assert {ImageColor.getrgb(color) for color in colors} <= shown


@pytest.mark.parametrize("name", ["zebra-3", "countdown-3"])
def test_recorded_zebra_and_countdown_are_watched(opened, tmp_path, name):
    run = fit(TrainConfig(task=name, method="scdm", out=tmp_path / "run", **TINY))
    puzzle = examples(TASKS[name])[0]
    file = tmp_path / "trace.html"
    assert main(["trace", str(run), puzzle, "-o", str(file)]) == 0
    page = opened(file.as_uri())
    page.locator("#clues li").first.wait_for()
    at(page, 5)
    assert count(page, "decoded") == 4
    assert page.locator("#clues li").count() >= (3 if name == "zebra-3" else 1)
    sound(page)
    screen(page, name)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_accessible(opened, address, scheme):
    page = opened(address, scheme=scheme)
    watch(page)
    at(page, 6)
    sound(page)
    screen(page, f"watch-{scheme}")
    for tab in ("One cell", "Race", "Curve"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(250)
        sound(page)
        screen(page, f"{tab.lower().replace(' ', '-')}-{scheme}")
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
    assert page.locator("#race").is_visible()
    press("ArrowLeft", 2)
    tab_to("#cell-board .cell")
    press("ArrowDown", 1)
    press("ArrowRight", 2)
    press("Enter")
    page.locator("#cell[data-right=true]").wait_for()
    page.get_by_role("button", name="Watch the complete puzzle").press("Enter")
    assert page.locator("#watch").is_visible()
    ended(page)
    tab_to("#settings-button")
    press("Enter")
    tab_to("#text")
    press("Control+a")
    page.keyboard.type("." * 35 + "1")
    press("Enter")
    tab_to(".lane .dial input")
    press("Home")
    assert page.locator(".lane .dial-name b").inner_text() == "0"
    press("ArrowRight", 3)
    assert page.locator(".lane .dial-name b").inner_text() == "3"
    tab_to(".lane .cell")
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


STOPS = """() => [...document.querySelectorAll("a[href], button, input, select, [tabindex='0']")].filter(
    (one) => one.checkVisibility({ visibilityProperty: true }) && one.tabIndex === 0 && !one.disabled &&
        !one.closest("[inert]")
).length"""
FOCUS = """() => {
    const one = document.activeElement;
    if (one === document.body) return null;
    const { left, top, width, height } = one.getBoundingClientRect();
    const hit = document.elementFromPoint(left + width / 2, top + height / 2);
    const marked = [one, ...one.querySelectorAll("rect")].map((part) => getComputedStyle(part));
    const ring = ({ outlineStyle, boxShadow, strokeWidth }) =>
        outlineStyle !== "none" || boxShadow !== "none" || strokeWidth === "4px";
    return {
        name: one.id || one.getAttribute("aria-label") || one.textContent,
        isMarked: marked.some(ring),
        isSeen: Boolean(hit) && (one.contains(hit) || hit.contains(one) || hit.closest("label") === one.closest("label")),
    };
}"""  # noqa: E501


def stops(page, key):
    """What Tab or Shift+Tab reaches until it leaves the page. The focus is marked and in the window."""
    names = []
    for _ in range(120):
        page.keyboard.press(key)
        focus = page.evaluate(FOCUS)
        if focus is None:
            return names
        assert focus["isMarked"], f"the focus on {focus['name']} is invisible"
        assert focus["isSeen"], f"{focus['name']} has the focus and is covered"
        names.append(focus["name"])
    return pytest.fail(f"{key} is trapped: {names[-8:]}")


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_tab_reaches_everything_and_is_never_trapped(opened, address, viewport):
    page = opened(address, viewport=viewport)
    ended(page)
    settings(page)
    page.get_by_role("button", name="Compare two settings").click()
    ended(page, 1)
    until(page, "document.querySelectorAll('.lane h2')[1].textContent.includes('n = ')")
    for tab in ("Watch", "One cell", "Race", "Attention", "Curve"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(300)
        page.evaluate("scrollTo(0, 0)")
        page.get_by_role("link", name="Skip to the content").focus()
        forward = ["skip", *stops(page, "Tab")]
        assert len(forward) == page.evaluate(STOPS), (tab, forward)
        assert len(stops(page, "Shift+Tab")) >= len(forward) - 1


def test_page_fits_a_phone(opened, nine):
    page = opened(nine, viewport=PHONE, scheme="dark")
    ended(page)
    at(page, 9)
    fits(page)
    screen(page, "phone")
    board = page.locator(".board").nth(1).bounding_box()
    assert board["y"] + board["height"] <= PHONE["height"], "the board is not on the first screen"
    heights = page.locator(".lane .few text").evaluate_all("all => all.map((text) => text.getBBox().height)")
    scale = board["width"] / 9 / 100  # pixels per unit of a cell's picture
    assert min(heights) * scale > 16
    page.get_by_role("button", name="Compare two settings").click()
    ended(page, 1)
    fits(page)
    page.get_by_role("tab", name="One cell").click()
    page.locator("#cell[data-right=false]").wait_for()
    board = page.locator("#cell-board").bounding_box()
    bars = page.locator("#cell-bars").bounding_box()
    assert board["y"] + board["height"] <= bars["y"] + bars["height"] <= PHONE["height"]
    for tab in ("One cell", "Race", "Attention", "Curve"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(250)
        fits(page)


def test_a_hostile_model_name_is_text_on_the_page(opened, tmp_path):
    run = str(shutil.copytree(find("sudoku-6-scdm"), tmp_path / "a" / HOSTILE.replace("</", "<")))
    shown = run.rpartition("/")[2]
    page = opened(f"{written(tmp_path, run)}#watch")
    ended(page)
    assert page.evaluate("document.querySelector('.models option').textContent") == shown
    assert page.evaluate("document.querySelector('.models').value") == run
    page.get_by_role("button", name="Compare two settings").click()
    ended(page, 1)
    headed = f"(head) => head.textContent.includes({json.dumps(shown)} + ': n = ')"
    until(page, f"[...document.querySelectorAll('.lane h2')].filter({headed}).length === 2")
    harmless(page)
    page.get_by_role("tab", name="Curve").click()
    page.get_by_label("Samples").fill("4")
    page.get_by_role("button", name="Run").click()
    until(page, f"document.querySelector('#points tbody').textContent.includes({json.dumps(shown)})")
    harmless(page)


def test_a_model_that_cannot_infill_is_not_offered_for_a_puzzle(opened, left_to_right):
    page = opened(left_to_right)
    ended(page)
    settings(page)
    arm = page.locator(".models option[value='sudoku-6-arm']")
    assert arm.is_disabled()
    page.get_by_role("button", name="Clear").click()
    assert not arm.is_disabled()
    page.get_by_label("Model").first.select_option("sudoku-6-arm")
    ended(page)
    cell(page, 2, 1).click()
    page.keyboard.type("5")
    assert "sudoku-6-arm cannot infill" in page.locator("#puzzle-words").inner_text()
    assert (
        marks(page),
        page.locator(".reason.bad").count(),
        page.locator(".lane").get_attribute("data-state"),
    ) == ([], 0, "idle")
    page.get_by_role("button", name="Undo").click()
    ended(page)
    assert (
        page.locator("#puzzle-words").inner_text()
        == "The puzzle has several solutions. Any of them is accepted."
    )


def test_one_latent_token_corrects_the_prediction(opened, page_file):
    cell_record = frozen()["cell"]
    page = opened(page_file, viewport=LAPTOP)
    page.locator("#cell[data-right=false]").wait_for()
    assert page.locator("#cell-title").inner_text().endswith("is wrong. Let it guess one more cell.")
    digits = [str(cell_record[name] + 1) for name in ("mistake", "answer")]
    bars = page.locator("#cell-bars li")
    assert bars.first.inner_text().split() == [digits[0], f"{int(100 * cell_record['probability'] + 0.5)}%"]
    cells = page.locator("#cell-board .cell")
    cells.nth(cell_record["latent"]).click()
    page.locator("#cell[data-right=true]").wait_for()
    assert bars.first.inner_text().split() == [
        digits[1],
        f"{int(100 * cell_record['probability_with_one'] + 0.5)}%",
    ]
    assert page.locator("#cell-title").inner_text().endswith("is right. One guess is enough.")
    assert f"the blue cell is not {digits[0]}." in page.locator("#cell-story").inner_text()
    assert page.locator("#cell-rays line").count() == page.locator("#cell-board .latent").count() == 1
    assert (
        page.evaluate("document.documentElement.scrollHeight") <= LAPTOP["height"]
    )  # everything is on the first screen
    page.get_by_role("button", name="Decode the blue cell").click()
    assert "is decoded. The guess in the other cell is discarded." in page.locator("#cell-story").inner_text()
    assert page.locator("#cell-board .latent").count() == 0
    assert cells.nth(cell_record["target"]).inner_text() == digits[1]
    page.locator("#cell-dial").fill("21")
    until(page, "document.querySelectorAll('#cell-board .latent').length === 21")
    page.get_by_role("button", name="Start over").click()
    page.locator("#cell[data-right=false]").wait_for()
    screen(page, "one-cell")


def test_the_race_decodes_as_python_does(opened, address):
    race = frozen()["race"]["solved"]
    page = opened(address.replace("#watch", "#race"))
    assert page.locator(".runner .given").count() == 2 * 14  # its first puzzle
    assert page.locator(".squares i").count() == 200
    screen(page, "race-before")
    page.get_by_role("button", name="Start the race").click()
    page.locator(".runner").nth(1).locator(":is(.solved, .failed)").nth(5).wait_for()
    page.get_by_role("button", name="Stop").click()
    page.locator("#race-words", has_text="Stopped.").wait_for()
    for runner, latents in zip(page.locator(".runner").all(), ("0", "all"), strict=True):
        squares = runner.locator(".squares i[class]").evaluate_all(
            "all => all.map((one) => one.className === 'solved')"
        )
        assert squares == race[latents][: len(squares)]
        assert runner.locator(".tally").inner_text() == f"{sum(squares)} of {len(squares)} solved"
        assert runner.locator(".board .decoded, .board .given").count() == 36  # the last puzzle
    assert page.evaluate("document.activeElement.id") == "race-stop"
    screen(page, "race")


def test_the_attention_pattern_is_drawn_on_the_board(opened, page_file):
    """Skipped cells are drawn, cannot be attended to, and change no prediction of the blue cell."""
    page = opened(f"{page_file}#attention", viewport=LAPTOP)
    story, proof = page.locator("#attention-story"), page.locator("#attention-proof")
    cells, rays = page.locator("#attention-board .cell"), page.locator("#attention-rays line")
    assert story.inner_text() == "The blue cell attends to 14 given cells, 4 latent tokens and itself."
    assert [page.locator(f"#attention-board .{kind}").count() for kind in ("latent", "open")] == [4, 17]
    proof.filter(has_text="without the 17 cells").wait_for()
    without, with_later = re.findall(r"\d \([\d.]+%\)", proof.inner_text())
    assert without == with_later
    page.locator("#attention-dial").fill("21")
    proof.filter(has_text="No empty cell comes after the blue one.").wait_for()
    page.locator("#attention-dial").fill("4")
    page.get_by_label("Skip the cells after the blue one").uncheck()
    assert page.locator("#attention-board .later.ignored").count() == 17
    assert "does not attend to the other 17 cells" in story.inner_text()
    until(page, "location.hash.includes('pattern=scdm.4.kept')")
    again = opened(page.url, viewport=LAPTOP)
    assert again.locator("#attention-board .later").count() == 17
    cells.nth(frozen()["cell"]["puzzle"].index("4")).click()
    assert story.inner_text().startswith("This given cell attends to 13 other given cells and itself.")
    assert page.locator("#attention-board .latent.ignored").count() == 4
    page.keyboard.press("ArrowLeft")
    assert story.inner_text().startswith("Latent token 2 attends to 14 given cells, 1 other latent token")
    assert rays.count() == 15
    page.get_by_role("button", name="MDM", exact=True).click()
    assert story.inner_text() == "The blue cell attends to 14 given cells, 21 latent tokens and itself."
    assert page.locator("#attention-dial").is_disabled()
    assert page.get_by_label("Skip the cells after the blue one").is_disabled()
    page.get_by_role("button", name="SIDM").click()
    assert page.locator("#attention-board .latent").count() == 0
    sound(page)
    screen(page, "attention")


def test_an_address_leads_to_a_comparison(opened, address):
    page = opened(address.replace("#watch", "#tab=watch&n=2&model2=sudoku-6-mdm&step=4&same=1&theme=dark"))
    ended(page, 0)
    ended(page, 1)
    until(page, "location.hash.includes('n=2') && location.hash.includes('same=1')")
    heads = page.locator(".lane h2").all_inner_texts()
    assert [head.split(":")[0] for head in heads] == ["A. sudoku-6-scdm", "B. sudoku-6-mdm"]
    assert heads[1].endswith("on the board of A")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.locator("#step").inner_text().startswith("Step 4 of")
    other = opened(page.url)
    ended(other, 1)
    assert other.locator(".lane h2").all_inner_texts() == heads


def test_a_wrong_address_is_explained(opened, address):
    entries = ["n=many", "k=0", "nn=3", "model=gpt", "step=999", "latents=0.0", "tab=home"]
    page = opened(address.replace("#watch", f"#{'&'.join(entries)}&theme=dark"))
    page.locator("#fault").wait_for()
    fault = page.locator("#fault").inner_text()
    for entry in entries:
        assert f"{entry} in the address: " in fault
    assert "n=many in the address: must be a number of latent tokens or all." in fault
    assert "model=gpt in the address: the page offers sudoku-6-scdm, " in fault
    assert "k=0 in the address: must be a number of candidates from 1, all or growing." in fault
    page.goto(address)
    until(page, "document.querySelector('#fault').hidden")


def test_keys_play_outside_the_board(opened, address):
    page = opened(address)
    ended(page)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    assert page.locator("#step").inner_text().startswith("Step 2 of")
    page.keyboard.press(" ")
    page.get_by_role("button", name="Pause").wait_for()
    page.keyboard.press(" ")
    page.get_by_role("button", name="Play").wait_for()


def test_one_file_decodes_offline(opened, page_file):
    page = opened(page_file)
    page.locator("#cell[data-right=false]").wait_for()
    page.locator("#cell-board .cell").nth(frozen()["cell"]["latent"]).click()
    page.locator("#cell[data-right=true]").wait_for()
    page.get_by_role("tab", name="Watch").click()
    ended(page)
    page.get_by_role("button", name="Last step").click()
    assert verdicts(page) == ["n = all: solved"]
    turn(page, 0)
    assert verdicts(page) == ["n = 0: wrong"]
    assert [tab.inner_text() for tab in page.get_by_role("tab").all() if tab.is_visible()] == [
        "One cell",
        "Watch",
        "Race",
        "Attention",
        "Curve",
    ]
    settings(page)
    page.get_by_label("Puzzle", exact=True).fill("12345." + ".....6" + "." * 24)
    page.get_by_role("button", name="Use").click()
    page.locator("#puzzle-words", has_text="The puzzle has no solution").wait_for()
    sound(page)
    screen(page, "offline")
