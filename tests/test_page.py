"""The page in a browser, as `latent-tokens page` writes it: its three scenes and the laboratory."""

import json
from pathlib import Path

import pytest

from helpers.browser import written
from helpers.page import (
    HOSTILE,
    LANDSCAPE,
    LAPTOP,
    PHONE,
    SIX,
    SMALL_PHONE,
    cell,
    fits,
    harmless,
    model,
    reads,
    screen,
    sound,
    text,
    until,
    verdicts,
)  # fmt: skip
from latent_tokens import TrainConfig, fit
from latent_tokens.configs import SamplingConfig
from latent_tokens.page.document import page_of
from latent_tokens.trace.examples import PAGE_RECORD
from latent_tokens.trace.record import DecodeRequest, LoadedModel, trace

pytestmark = pytest.mark.slow
RECORD = json.loads(PAGE_RECORD.read_text())
TINY = {"size": "pico", "steps": 1, "batch_size": 4, "num_train": 8, "num_validation": 8, "precision": "fp32"}


def decoded(name, puzzle, **setting):
    """The trace of a puzzle by the package."""
    loaded = model(name)
    return trace(DecodeRequest(loaded, loaded.task.encode(puzzle), SamplingConfig(**setting)))


@pytest.mark.parametrize("viewport", [PHONE, SMALL_PHONE, LAPTOP], ids=["phone", "small", "laptop"])
def test_first_tap_turns_the_prediction(opened, page_file, viewport):
    one = RECORD["corrected"]
    page = opened(page_file, viewport)
    assert text(page, "#one-lead") == "The model must fill the blue square. It says 2. Correct is 6."
    marked = cell(page, "#one-board", one["latent"])
    assert marked.inner_text() == "tap"
    box = marked.bounding_box()
    assert box["y"] + box["height"] < viewport["height"]
    marked.click()
    assert text(page, "#one-title") == "Now it says 6. Right."
    assert text(page, "#one-name") == "That discarded guess is a latent token."
    assert "a row has only one 2. 2 of the 21 squares do this here." in text(page, "#one-why")
    assert [text(page, f"#one-bars li:nth-child({rank})").split("\n") for rank in (1, 2)] == [
        ["6", "96%"],
        ["2", "4%"],
    ]
    screen(page, f"one-{viewport['width']}")
    page.get_by_role("button", name="Forget the guess").click()
    assert text(page, "#one-title").startswith("This AI is about to get one square wrong")
    fits(page)


def test_any_square_can_be_guessed_and_the_mirror_is_one_tap_away(opened, page_file):
    one = RECORD["corrected"]
    page = opened(page_file)
    counts = text(page, "#one-counts")
    assert counts == (
        "Of 400 random boards, the model is right on 321 alone, on 334 with all squares guessed, and on "
        "320 with one random guess. This board was picked."
    )
    turned = 0
    for other in one["others"][:6]:
        cell(page, "#one-board", other).click()
        reads(page, "#one-name", "discarded guess")
        until(page, "!document.querySelector('#one-title').textContent.startsWith('One moment')")
        turned += text(page, "#one-title").startswith("Now")
        cell(page, "#one-board", other).click()
        reads(page, "#one-title", "This AI")
    assert turned <= one["right_with"]
    page.get_by_role("button", name="Guess all squares").click()
    reads(page, "#one-title", "Now it says 6. Right.")
    page.get_by_role("button", name="Show a board that a guess spoils").click()
    assert text(page, "#one-lead") == "The model must fill the blue square. It says 1. That is correct."
    page.get_by_role("button", name="Guess the marked square too").click()
    assert text(page, "#one-title") == "Now it says 6. Wrong."
    assert "no guess on the board explains why. 3 of the 21 squares" in text(page, "#one-why")


def test_first_scene_is_there_before_the_weights(opened, page_file, tmp_path):
    """A slow connection has not brought the weights yet: the file ends before them."""
    content = Path(page_file.removeprefix("file://")).read_text()
    file = tmp_path / "begun.html"
    file.write_text(content[: content.index('<script type="application/json" id="weights-0">')])
    assert len(file.read_text()) < 400_000
    page = opened(file.as_uri(), PHONE)
    page.get_by_role("button", name="Guess the marked square too").click()
    assert text(page, "#one-title") == "Now it says 6. Right."


def test_hundred_puzzles_flip_with_the_dial_and_equal_live_decodes(opened, page_file):
    hundred = RECORD["hundred"]
    page = opened(page_file, PHONE)
    dial = page.locator("#hundred-dial")
    for n in (0, 12, 21):
        dial.fill(str(n))
        solved = hundred["solved"][n].count("1")
        assert text(page, "#hundred-count") == str(solved)
        assert page.locator("#hundred-board .solved").count() == solved
        assert f"{hundred['processed'][n]:,} tokens processed" in text(page, "#hundred-cost")
    assert dial.get_attribute("aria-valuetext") == "n = all, 53 of 100 solved"
    dial.fill("4")
    page.get_by_role("button", name="Check it live").click()
    until(page, "document.querySelector('#hundred-words').textContent.split(' ')[1] >= 12")
    words = text(page, "#hundred-words").split()
    assert words[1] == words[5], words
    page.get_by_role("button", name="Stop").click()
    assert text(page, "#hundred-words") == "Stopped."
    screen(page, "hundred")

    # A square opens its puzzle in the laboratory, and Back returns.
    flipped = next(i for i in range(100) if hundred["solved"][0][i] != hundred["solved"][21][i])
    dial.fill("21")
    cell(page, "#hundred-board", flipped).click()
    results = [verdict.startswith("✓") for verdict in verdicts(page)]
    assert results == [hundred["solved"][n][flipped] == "1" for n in (0, 21)]
    assert page.locator("#puzzle").input_value() == hundred["puzzles"][flipped]
    page.go_back()
    until(page, "location.hash === ''")
    assert page.url.startswith(page_file)


def test_leaving_out_changes_nothing_unless_attention_is_bidirectional(opened, page_file):
    page = opened(page_file, PHONE)
    page.locator("#why").scroll_into_view_if_needed()
    for n in (4, 0, 9):
        page.locator("#why-dial").fill(str(n))
        reads(page, "#why-words", f"With or without the {21 - n} masked squares")
        left, kept = (text(page, f"#why-{side} .said") for side in ("left", "kept"))
        assert left == kept
        assert page.locator("#why-left .latent").count() == n
        assert page.locator("#why-kept .later").count() == 21 - n
    assert page.locator("#why-kept .rays .from-later").count() == 0
    page.get_by_role("button", name="Bidirectional, not trained so").click()
    reads(page, "#why-words", "change the prediction")
    assert text(page, "#why-left .said") != text(page, "#why-kept .said")
    assert page.locator("#why-kept .rays .from-later").count() == 12
    assert "not trained so" in text(page, "#why-rule")
    screen(page, "why")


def test_laboratory_shows_the_decodes_of_the_package(opened, page_file):
    page = opened(f"{page_file}#lab?puzzle={SIX}&n=2,all&k=4&order=margin&seed=3&temperature=1", PHONE)
    verdicts(page)
    expected = [
        decoded("sudoku-6-scdm", SIX, latents=n, candidates=4, order="margin", seed=3, temperature=1.0)
        for n in (2, "all")
    ]
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
    screen(page, "lab")

    # A cell has its probabilities, n changes one side, and the address follows.
    cell(page, "#lane-a", 0).click()
    assert "row 1 column 1" in text(page, "#lane-a .bars-title")
    page.locator("#lane-a .n").fill("0")
    until(page, "location.hash.includes('n=0%2Call') || location.hash.includes('n=0,all')")
    reads(page, "#lane-a .story", "0 latent tokens")


def test_own_puzzle_is_typed_decoded_and_refused(opened, page_file):
    page = opened(f"{page_file}#lab", LAPTOP)
    verdicts(page)
    page.locator("#puzzle").fill("12")
    page.get_by_role("button", name="Use").click()
    assert "puzzle of 2 characters: 6x6 has 36" in text(page, "#lab-fault")
    page.locator("#puzzle").fill(SIX)
    page.get_by_role("button", name="Use").click()
    reads(page, "#step-words", "of 20")
    assert page.locator("#lab-fault").inner_text() == ""
    cell(page, "#lane-a", 0).click()
    page.keyboard.press("1")
    reads(page, "#lab-fault", "puzzle contradicts itself: 1 twice in row 1")
    page.get_by_role("button", name="Empty").click()
    reads(page, "#step-words", "of 20")
    page.reload()
    verdicts(page)
    assert page.locator("#puzzle").input_value() == SIX


def test_models_with_a_fixed_n_and_other_boards_are_in_the_laboratory(opened, tmp_path):
    fit(TrainConfig(task="sudoku-4", method="scdm", out=tmp_path / "four", **TINY))
    file = written(tmp_path, "sudoku-6-scdm", "sudoku-6-mdm", str(tmp_path / "four"))
    page = opened(f"{file}#lab")
    verdicts(page)
    page.locator("#lane-a .model").select_option("sudoku-6-mdm")
    reads(page, "#lane-a .why", "mdm: n is fixed when it is trained.")
    assert page.locator("#lane-a .n").is_disabled()
    page.get_by_label("Off-distribution").check()
    page.locator("#lane-a .n").fill("3")
    until(page, "location.hash.includes('off=1')")
    page.locator("#lane-b .model").select_option(str(tmp_path / "four"))
    until(page, "document.querySelectorAll('#lane-a .cell').length === 16")
    verdicts(page)
    fits(page)


def test_page_without_the_measured_model_is_a_laboratory(opened, tmp_path):
    page = opened(written(tmp_path, "sudoku-6-mdm"))
    assert not page.locator("#one").is_visible()
    verdicts(page)
    sound(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_is_accessible_and_never_wider_than_its_window(opened, page_file, scheme):
    page = opened(page_file, PHONE, scheme)
    page.locator("#lab").scroll_into_view_if_needed()
    verdicts(page)
    page.locator("#why").scroll_into_view_if_needed()
    reads(page, "#why-words", "With or without")
    page.get_by_text("The numbers", exact=True).click()
    sound(page)
    for width in (240, 320, 360, 560, 640, 780, 844, 1280, 2560):
        page.set_viewport_size({"width": width, "height": 700})
        fits(page)
    page.set_viewport_size(LANDSCAPE)
    page.locator("#one-board").scroll_into_view_if_needed()
    assert page.locator("#one-board").bounding_box()["height"] <= LANDSCAPE["height"]
    screen(page, f"landscape-{scheme}")


def test_page_is_used_by_keyboard_alone_at_a_slow_processor(opened, page_file):
    page = opened(page_file, LAPTOP)
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 4})
    page.locator("#one-board .cell[tabindex='0']").focus()
    for _ in range(RECORD["corrected"]["latent"] // 6):
        page.keyboard.press("ArrowDown")
    for _ in range(RECORD["corrected"]["latent"] % 6):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert text(page, "#one-title") == "Now it says 6. Right."
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "one-guess"
    page.locator("#hundred-dial").focus()
    page.keyboard.press("End")
    assert text(page, "#hundred-count") == "53"
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert "theme" not in page.url


def test_hostile_model_name_is_text_on_the_page(opened, tmp_path):
    six = model("sudoku-6-scdm")
    file = tmp_path / "page.html"
    names = (f"{HOSTILE}</script><script>window.ran=3</script>", "other")
    file.write_text(page_of([LoadedModel(name, six.net, six.task) for name in names]), newline="")
    page = opened(f"{file.as_uri()}#lab")
    verdicts(page)
    harmless(page)
