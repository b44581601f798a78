"""The tab Curve: stored curves, curves measured in the page, and how they are drawn."""

import re

import pytest

from helpers.browser import DESK
from helpers.page import PHONE, fits, screen, sound, until
from latent_tokens import TASKS, EvalConfig, evaluate, from_pretrained
from latent_tokens.page.curves import curves
from latent_tokens.trace.examples import measured

pytestmark = pytest.mark.slow
RUNNING = "document.querySelector('#curve-run').ariaDisabled === 'true'"
LONGEST_CHOICE = """select => {
  select.style.cssText = "width: max-content; max-width: none";
  const width = select.offsetWidth;
  select.style.cssText = "";
  return width;
}"""


def rows(page):
    return [row.split("\t") for row in page.locator("#points tbody tr").all_inner_texts()]


def run(page, samples):
    """Measures a curve to its end."""
    page.get_by_label("Samples").fill(str(samples))
    page.get_by_role("button", name="Run").click()
    page.locator("#curve-words", has_text=" correct, n = ").wait_for()
    until(page, f"!({RUNNING}) || document.querySelector('#curve-full').textContent !== ''")


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_curve_opens_with_the_stored_rows(opened, page_file, viewport):
    page = opened(f"{page_file}#curve", viewport=viewport)
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


def test_curve_in_the_page_is_that_of_python(opened, page_file):
    page = opened(f"{page_file}#curve")
    run(page, 3)
    config = EvalConfig(latents=(0, 4, 16, "all"), num_samples=3, candidates=4, order="top_prob")
    evaluated = evaluate(from_pretrained("sudoku-6-scdm"), TASKS["sudoku-6"], config)
    counts = {str(row["latents"]): f"{round(3 * row['valid'] / 100)} of 3" for row in evaluated}
    assert dict(row[1:3] for row in rows(page) if "stored" not in row[0]) == counts
    words = page.locator("#curve-words").inner_text()
    assert words.startswith("Measured sudoku-6-scdm, top-prob, k = 4. n = 0: ")
