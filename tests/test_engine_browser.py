"""The page's engine in a browser: in a worker, under a content security policy, within time limits."""

import json
import os
import shutil
import statistics

import pytest
from playwright.sync_api import sync_playwright

from helpers.engine import Case, bundled, first_difference, puzzle
from latent_tokens.checkpoints.pretrained import SHIPPED
from latent_tokens.configs import SamplingConfig
from latent_tokens.trace.record import trace
from latent_tokens.web.page import hashes, read_asset

pytestmark = pytest.mark.slow
ADDRESS = "http://engine.test/"
DOCUMENT = f"<!DOCTYPE html><title>engine</title><script>{read_asset('engine.js')}</script>"
LOAD = """async ({name, address}) => {
    const [bytes, config] = await Promise.all([
        fetch(address + name + "/model.safetensors").then((response) => response.arrayBuffer()),
        fetch(address + name + "/config.json").then((response) => response.json()),
    ]);
    globalThis.client = latentTokens.startWorker();
    return client.load(name, bytes, config);
}"""
TIME = """async ({name, request}) => {
    const times = [];
    await client.decode(name, request, {onEvent: () => times.push(performance.now())});
    return times.slice(1, -1).map((time, step) => time - times[step]);
}"""
LIMITS = {"sudoku-6-scdm": 30, "sudoku-9-scdm": 90}  # milliseconds per step
STEPS, WARM_UP, ROUNDS = 200, 20, 3


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium. If it is missing, NEEDS_BROWSER makes that an error."""
    program = shutil.which("chromium")
    if program is None:
        (pytest.fail if os.environ.get("NEEDS_BROWSER") else pytest.skip)("no chromium on the path")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def open_page(browser, *sources):
    """A page with the engine, whose policy allows these sources of scripts besides its own."""
    script_sources = " ".join([hashes(DOCUMENT, "script"), *sources])
    policy = f"default-src 'none'; connect-src 'self'; worker-src blob:; script-src {script_sources}"

    def serve(route):
        path = route.request.url.removeprefix(ADDRESS)
        if path:
            return route.fulfill(path=SHIPPED / path)
        return route.fulfill(
            body=DOCUMENT, content_type="text/html", headers={"Content-Security-Policy": policy}
        )

    page = browser.new_page()
    page.route(f"{ADDRESS}**", serve)
    page.goto(ADDRESS)
    return page


@pytest.mark.parametrize(("sources", "kernel"), [(["'wasm-unsafe-eval'"], "wasm"), ([], "plain")])
def test_worker_decodes_in_the_browser_under_a_policy(browser, sources, kernel):
    model, folder = bundled("sudoku-6-scdm")
    case = Case(model, folder, puzzle(model.task, 20, seed=2), SamplingConfig(4, 4, temperature=1.0))
    page = open_page(browser, *sources)
    assert page.evaluate(LOAD, {"name": model.name, "address": ADDRESS}) == kernel
    request = {"tokens": case.tokens, "latents": 4, "candidates": 4, "temperature": 1}
    result = page.evaluate(f"(request) => client.decode({json.dumps(model.name)}, request)", request)
    assert first_difference(trace(case.request), result) is None


@pytest.mark.parametrize("name", LIMITS)
def test_steps_in_the_browser_are_fast(browser, name):
    page = open_page(browser, "'wasm-unsafe-eval'")
    page.evaluate(LOAD, {"name": name, "address": ADDRESS})
    side = int(name[7])
    medians = []
    for _ in range(ROUNDS):  # other work on the machine slows some rounds down
        times = []
        while len(times) < WARM_UP + STEPS:
            request = {"tokens": [None] * side**2, "latents": "all", "candidates": 8, "seed": len(times)}
            times += page.evaluate(TIME, {"name": name, "request": request})
        medians.append(statistics.median(times[WARM_UP : WARM_UP + STEPS]))
        if medians[-1] < LIMITS[name]:
            break
    print(f"{name}: {min(medians):.1f} ms per step in Chromium, median of {STEPS}")
    assert min(medians) < LIMITS[name]
