"""The tab Curve: stored curves, curves measured in the page and by the server, and how they are drawn."""

import re
import shutil

import pytest

from helpers.browser import DESK
from helpers.page import PHONE, fits, model, screen, serving, sound, until
from latent_tokens.checkpoints.files import find
from latent_tokens.configs import SamplingConfig
from latent_tokens.trace.boards import measured
from latent_tokens.web.curve import Curve, measure
from latent_tokens.web.curves import curves

pytestmark = pytest.mark.slow
RUNNING = "document.querySelector('#curve-run').ariaDisabled === 'true'"
LONGEST_CHOICE = """select => {
  select.style.cssText = "width: max-content; max-width: none";
  const width = select.offsetWidth;
  select.style.cssText = "";
  return width;
}"""


@pytest.fixture(scope="module")
def file(static_pages):
    """The address of the page as one file."""
    return f"{(static_pages / 'latent-tokens.html').as_uri()}#curve"


def rows(page):
    return [row.split("\t") for row in page.locator("#points tbody tr").all_inner_texts()]


def looks(page):
    """The entries of the legend, with their colors and marks."""
    return page.locator("#curve-legend li").evaluate_all(
        "all => all.map((one) => [one.textContent, one.querySelector('path').outerHTML])"
    )


def run(page, samples):
    """Measures a curve to its end."""
    page.get_by_label("Samples").fill(str(samples))
    page.get_by_role("button", name="Run").click()
    page.locator("#curve-words", has_text=" correct, n = ").wait_for()
    until(page, f"!({RUNNING}) || document.querySelector('#curve-full').textContent !== ''")


def told(curve):
    """The complete points of a curve that Python measures."""
    points = []
    measure(
        curve, lambda kind, payload: points.append(payload) if kind == "point" else None, lambda step: None
    )
    return [
        [str(point["latents"]), f"{point['right']} of {point['done']}"]
        for point in points
        if point["done"] == point["of"]
    ]


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_curve_opens_with_the_stored_rows(opened, file, viewport):
    page = opened(file, viewport=viewport, offline=True)
    page.locator("#points tbody tr").first.wait_for()
    assert "decodes from an empty grid at temperature 1" in page.locator("#curve-about").inner_text()
    shown = {(row[0], row[1]): row[2] for row in rows(page)}
    (stored,) = (
        curve
        for curve in curves()["stored"]
        if (curve["model"], curve["order"], curve["candidates"]) == ("sudoku-6-scdm", "top_prob", 4)
        and curve["measure"] == "sampled"
    )
    name = "sudoku-6-scdm, top-prob, k = 4 (stored)"
    for point in stored["points"]:
        assert shown[name, str(point["latents"])] == f"{point['right']} of 1,000"
    page.get_by_label("Measure").select_option("solved")
    assert "generated puzzle with one solution" in page.locator("#curve-about").inner_text()
    record = measured()["sudoku-6"]
    assert [row[1:3] for row in rows(page)] == [
        [latents, f"{right} of {record['puzzles']}"] for latents, right in record["solved"].items()
    ]
    page.locator("#plot .point").first.hover()
    tip = page.locator("#curve-tip").inner_text()
    assert re.fullmatch(r".* n = 0: 77% \(72% to 81%\), 307 of 400, cost 0\.78.", tip)
    frame = page.locator("#plot svg").bounding_box()
    for text in page.locator("#plot svg text").all():
        box = text.bounding_box()
        assert frame["x"] - 1 <= box["x"], text.inner_html()
        assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 1, text.inner_html()
        assert frame["y"] - 1 <= box["y"], text.inner_html()
    table = page.locator("#points").bounding_box()
    assert table["width"] <= viewport["width"] or page.locator(".scroll").first.evaluate(
        "box => box.scrollWidth > box.clientWidth"
    )
    kind = page.get_by_label("Measure")
    assert kind.evaluate(LONGEST_CHOICE) <= kind.bounding_box()["width"], "a choice is cut"
    fits(page)
    sound(page)
    screen(page, f"curve-{viewport['width']}")


def test_curve_in_the_page_is_that_of_python(opened, file):
    page = opened(file, offline=True)
    run(page, 3)
    sampled = Curve(model("sudoku-6-scdm"), 3, SamplingConfig(candidates=4, order="top_prob", seed=0))
    assert [row[1:3] for row in rows(page) if "stored" not in row[0]] == told(sampled)
    words = page.locator("#curve-words").inner_text()
    assert words.startswith("Measured sudoku-6-scdm, top-prob, k = 4. n = 0: ")


def test_curve_keeps_colors_and_refuses_more_than_fit(opened, file):
    page = opened(file, offline=True)
    before = looks(page)
    for seed in range(5):
        page.locator("#curve-seed").fill(str(seed))
        run(page, 1)
        assert looks(page)[: len(before)] == before
        before = looks(page)
    assert page.get_by_role("button", name="Run").get_attribute("aria-disabled") == "true"
    assert "10 curves are shown. Remove one" in page.locator("#curve-full").inner_text()
    page.get_by_role("button", name="Remove sudoku-6-mdm").click()
    assert looks(page) == [entry for entry in before if "mdm" not in entry[0]]
    assert page.get_by_role("button", name="Run").get_attribute("aria-disabled") == "false"
    page.get_by_label("Measure").select_option("solved")
    page.get_by_label("Measure").select_option("sampled")
    assert len(looks(page)) == 9
    page.get_by_role("button", name="Clear").click()
    assert rows(page) == []


def test_curve_of_another_model_is_measured_by_the_server(opened, tmp_path):
    own = str(shutil.copytree(find("sudoku-6-scdm"), tmp_path / "own"))
    with serving([own]) as address:
        page = opened(f"{address}#curve")
        run(page, 4)
        assert [row[1] for row in rows(page) if row[0].startswith("own")] == ["0", "4", "16", "all"]
        page.get_by_label("Samples").fill("1000")
        page.get_by_role("button", name="Run").click()
        page.get_by_role("button", name="Stop").click()
        page.get_by_text("Stopped. The points measured so far remain.").wait_for()
