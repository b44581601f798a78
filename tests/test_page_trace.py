"""The page that `latent-tokens trace` and the demo write: it decodes with its own model, offline."""

import re
from dataclasses import replace

import pytest

from helpers.browser import DESK
from helpers.page import (
    HOSTILE,
    LAPTOP,
    PHONE,
    SIX,
    at,
    count,
    ended,
    fits,
    harmless,
    model,
    screen,
    settings,
    sound,
    turn,
    until,
    verdicts,
)  # fmt: skip
from latent_tokens import METHODS, SIZES, TASKS, Transformer
from latent_tokens.checkpoints.files import find
from latent_tokens.cli import main
from latent_tokens.configs import SamplingConfig
from latent_tokens.page import models
from latent_tokens.page.document import page_with
from latent_tokens.trace.record import DecodeRequest, LoadedModel, trace

NINE = "003020600900305001001806400008102900700000008006708200002609500800203009005010300"


@pytest.fixture(scope="module")
def six():
    return model("sudoku-6-scdm")


def decoded(model, puzzle, **setting):
    """The trace of a puzzle."""
    return trace(DecodeRequest(model, model.task.encode(puzzle), SamplingConfig(**setting)))


def dial(page):
    return page.get_by_role("slider", name="Latent tokens").first


def test_models_that_do_not_fit_a_page_have_a_reason(six, monkeypatch):
    assert models.why_recorded([six, six]) == ""
    one_model = (find(six.name) / "model.safetensors").stat().st_size
    monkeypatch.setattr(models, "MOST_WEIGHTS", one_model)
    assert models.why_recorded([six, six]) == ""
    monkeypatch.setattr(models, "MOST_WEIGHTS", one_model - 1)
    assert re.fullmatch(
        r"The weights have 1\.6 MB, more than the 2 MB that fit a page\.", models.why_recorded([six])
    )


def test_networks_that_the_page_cannot_compute_have_a_reason(six):
    net = Transformer(SIZES["pico"], TASKS["sudoku-6"].vocab_size, 36)
    net.method = METHODS["scdm"]
    unsaved = LoadedModel("unsaved", net, TASKS["sudoku-6"])
    assert "saved models of the built-in network" in models.why_recorded([unsaved])
    net.folder = find(six.name)
    assert models.why_recorded([unsaved]) == ""
    net.method = replace(METHODS["scdm"], attention=lambda query, key, num_clean: key <= query)
    assert "built-in attention masks" in models.why_recorded([unsaved])
    net = Transformer(SIZES["pico"], TASKS["zebra-3"].vocab_size, TASKS["zebra-3"].length)
    net.method = METHODS["scdm"]
    zebra = LoadedModel("zebra", net, TASKS["zebra-3"])
    assert "models of sudoku-4, sudoku-6, sudoku-9 and sudoku-16 only" in models.why_recorded([zebra])


@pytest.mark.parametrize(
    ("name", "setting", "reason"),
    [
        ("sudoku-6-scdm", {"order": "blockwise:6"}, "A page does not decode in the order blockwise:6."),
        ("sudoku-6-mdm", {"off_distribution": True}, "A page does not decode off-distribution."),
    ],
)
def test_trace_page_is_fixed_if_it_cannot_repeat_the_decode(name, setting, reason):
    own = model(name)
    page = page_with([decoded(own, SIX, latents=4, **setting)], models=[own])
    assert reason in page
    assert '<script type="application/json" id="entries">null</script>' in page


@pytest.mark.slow
def test_trace_page_decodes_with_its_own_model(opened, six, tmp_path):
    file = tmp_path / "trace.html"
    assert main(["trace", six.name, SIX, "--latents", "all", "--candidates", "3", "-o", str(file)]) == 0
    page = opened(file.as_uri(), viewport=LAPTOP)
    ended(page)
    assert page.locator("#step").inner_text() == "Step 1 of 20"
    assert page.get_by_role("tab", name="One cell").is_visible()
    turn(page, 2)
    at(page, 20)
    end = decoded(six, SIX, latents=2, candidates=3)["end"]
    verdict = "solved" if end["right"] else "wrong"
    assert verdicts(page) == [f"n = 2: {verdict}"]
    assert f"{end['processed']:,} tokens processed" in page.locator(".outcome").inner_text()
    sound(page)
    screen(page, "trace-own-model")


@pytest.mark.slow
def test_trace_page_opens_on_the_recorded_decodes(opened, six, tmp_path):
    setting = {"candidates": 3, "temperature": 1.0, "seed": 5}
    traces = [decoded(six, SIX, latents=latents, **setting) for latents in (0, "all")]
    file = tmp_path / "trace.html"
    file.write_text(page_with(traces, "Chosen <example>: 40 of 150 & more", [six]))
    page = opened(file.as_uri())
    ended(page, 1)
    heads = page.locator(".lane h2").all_inner_texts()
    assert [head.partition(": ")[2] for head in heads] == [
        "n = 0, k = 3, top-prob, temperature 1",
        "n = all, k = 3, top-prob, temperature 1",
    ]
    assert page.locator("#caption").inner_text() == "Chosen <example>: 40 of 150 & more"
    at(page, 20)
    for lane, recorded in enumerate(traces):
        cost = f"{recorded['end']['processed']:,} tokens processed"
        assert cost in page.locator(".outcome").nth(lane).inner_text()
    settings(page)
    assert page.get_by_label("Seed").first.input_value() == "5"
    assert page.get_by_label("Candidates").first.input_value() == "3"
    until(page, "location.hash.includes('step=20')")
    page.reload()
    ended(page, 1)
    assert page.locator(".lane h2").all_inner_texts() == heads
    assert page.locator("#step").inner_text() == "Step 20 of 20"
    page.get_by_role("button", name="Compare two settings").click()
    assert page.locator(".lane h2").inner_text().endswith("temperature 1")


@pytest.mark.slow
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_trace_page_without_a_model_states_why_its_slider_is_fixed(opened, tmp_path, monkeypatch, viewport):
    nine = model("sudoku-9-scdm")
    monkeypatch.setattr(models, "MOST_WEIGHTS", 1_000_000)
    traces = [decoded(nine, NINE, latents=latents, candidates=8) for latents in (0, "all")]
    file = tmp_path / "trace.html"
    caption = "Chosen <example>: 40 of 150 & more"
    file.write_text(page_with(traces, caption, [nine]))
    page = opened(file.as_uri(), viewport=viewport)
    assert page.locator("#caption").inner_text() == caption
    steps = NINE.count("0")
    assert verdicts(page) == [f"Decoded in {steps} steps. Play to the end for the verdict."] * 2
    assert dial(page).is_disabled()
    assert page.locator(".lane .reason").first.inner_text() == (
        "The slider is fixed: these are recorded steps. "
        "The weights have 1.6 MB, more than the 1 MB that fit a page."
    )
    page.get_by_role("button", name="Last step").click()
    assert verdicts(page) == ["n = 0: wrong", "n = all: solved"]
    at(page, 20)
    assert count(page, "decoded", 1) == 19
    assert not page.get_by_role("tab").first.is_visible()
    assert not page.get_by_label("Model").first.is_visible()
    sound(page)
    fits(page)
    screen(page, f"trace-recorded-{viewport['width']}")


@pytest.mark.slow
@pytest.mark.parametrize("has_model", [True, False])
def test_hostile_model_name_is_text_in_a_trace(opened, six, tmp_path, has_model):
    name = f"{HOSTILE}</script><script>window.ran=3</script>"
    hostile = LoadedModel(name, six.net, six.task)
    traces = [decoded(hostile, SIX, latents="all", candidates=4)] * 2
    file = tmp_path / "trace.html"
    file.write_text(page_with(traces, name, [hostile] if has_model else []), newline="")
    page = opened(file.as_uri())
    page.get_by_role("button", name="Last step").click()
    ended(page, 1)
    heads = page.evaluate("[...document.querySelectorAll('.lane h2')].map((head) => head.textContent)")
    assert sum(f"{name.rpartition('/')[2]}: n = " in head for head in heads) == 2
    assert page.evaluate("document.querySelector('#caption').textContent") == name
    harmless(page)
