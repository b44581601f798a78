"""The page that `latent-tokens trace` and the demo write: it decodes with its own model, offline."""

import re
from dataclasses import replace

import pytest

from helpers.page import HOSTILE, PHONE, SIX, cell, fits, harmless, model, reads, screen, sound, text
from latent_tokens import METHODS, SIZES, TASKS, Text, Transformer
from latent_tokens.checkpoints.files import find
from latent_tokens.cli import main
from latent_tokens.configs import SamplingConfig
from latent_tokens.page import models
from latent_tokens.page.document import page_with
from latent_tokens.trace.examples import examples
from latent_tokens.trace.record import DecodeRequest, LoadedModel, trace


@pytest.fixture(scope="module")
def six():
    return model("sudoku-6-scdm")


def decoded(model, puzzle, **setting):
    """The trace of a puzzle."""
    return trace(DecodeRequest(model, model.task.encode(puzzle), SamplingConfig(**setting)))


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
    assert '"entries":[]' in page


@pytest.mark.slow
def test_trace_page_decodes_with_its_own_model(opened, six, tmp_path):
    file = tmp_path / "trace.html"
    assert main(["trace", six.name, SIX, "--latents", "all", "--candidates", "3", "-o", str(file)]) == 0
    page = opened(file.as_uri(), PHONE)
    assert text(page, "#lane-a .setting") == "sudoku-6-scdm, n = all, k = 3, top-prob"
    assert not page.locator("#lane-b").is_visible()
    page.locator("#lane-a .n").fill("2")
    end = decoded(six, SIX, latents=2, candidates=3)["end"]
    reads(page, "#lane-a .cost", f"{end['processed']:,} tokens processed")
    assert text(page, "#lane-a .verdict").startswith("✓" if end["right"] else "✕")
    page.get_by_role("button", name="Compare two settings").click()
    reads(page, "#lane-b .cost", "processed")
    sound(page)
    screen(page, "trace-own-model")


@pytest.mark.slow
def test_trace_page_opens_on_the_recorded_decodes(opened, six, tmp_path):
    setting = {"candidates": 3, "temperature": 1.0, "seed": 5}
    traces = [decoded(six, SIX, latents=latents, **setting) for latents in (0, "all")]
    file = tmp_path / "trace.html"
    file.write_text(page_with(traces, "Chosen <example>: 40 of 150 & more", [six]))
    page = opened(file.as_uri())
    for name, recorded in zip("ab", traces, strict=True):
        n = recorded["start"]["settings"]["latents"]
        words = f"sudoku-6-scdm, n = {n}, k = 3, top-prob, temperature 1"
        assert text(page, f"#lane-{name} .setting") == words
        assert f"{recorded['end']['processed']:,} tokens processed" in text(page, f"#lane-{name} .cost")
    assert text(page, "#caption") == "Chosen <example>: 40 of 150 & more"
    assert page.get_by_label("Seed").input_value() == "5"
    assert page.locator("#k").input_value() == "3"
    assert page.locator("#puzzle").input_value() == SIX


@pytest.mark.slow
@pytest.mark.parametrize("task", ["zebra-3", "countdown-3", "sudoku-6-puzzle", "text"])
def test_trace_page_of_another_task_shows_its_recorded_steps(opened, tmp_path, task):
    learned = Text(32) if task == "text" else TASKS[task]
    net = Transformer(SIZES["pico"], learned.vocab_size, learned.length).eval()
    net.method = METHODS["scdm"]
    own = LoadedModel(task, net, learned)
    puzzle = "One ____ more" if task == "text" else examples(learned)[0]
    traces = [decoded(own, puzzle, latents=latents, candidates=2, order="top_prob") for latents in (1, "all")]
    file = tmp_path / "trace.html"
    file.write_text(page_with(traces, "A caption.", [own]))
    page = opened(file.as_uri(), PHONE)
    assert text(page, "#reason").startswith(
        "These are recorded steps: their settings are fixed. A page decodes"
    )
    for step in (1, len(traces[0]["frames"])):
        page.locator("#step").fill(str(step))
        for name, recorded in zip("ab", traces, strict=True):
            frame = recorded["frames"][step - 1]
            ((at, token),) = frame["chosen"]
            sign = (recorded["start"]["signs"][token] or "␣").replace("\n", "⏎")
            assert cell(page, f"#lane-{name}", at).text_content() == sign
            assert page.locator(f"#lane-{name} .latent").count() == len(frame["latents"])
    words = traces[0]["start"]["words"]
    assert page.locator("#clues li").all_inner_texts() == words
    assert not page.locator("#lane-a .n").is_visible()
    assert not page.locator(".settings").is_visible()
    sound(page)
    fits(page)
    screen(page, f"trace-{task}")


@pytest.mark.slow
@pytest.mark.parametrize("has_model", [True, False])
def test_hostile_model_name_is_text_in_a_trace(opened, six, tmp_path, has_model):
    name = f"{HOSTILE}</script><script>window.ran=3</script>"
    hostile = LoadedModel(name, six.net, six.task)
    traces = [decoded(hostile, SIX, latents="all", candidates=4)] * 2
    file = tmp_path / "trace.html"
    file.write_text(page_with(traces, name, [hostile] if has_model else []), newline="")
    page = opened(file.as_uri())
    settings = page.locator(".setting").evaluate_all("all => all.map((one) => one.textContent)")
    assert sum(f"{name.rpartition('/')[2]}, n = " in words for words in settings) == 2
    assert page.evaluate("document.querySelector('#caption').textContent") == name
    harmless(page)
