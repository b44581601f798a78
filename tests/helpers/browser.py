"""Fixtures of the tests in a browser: Chromium, its windows, and the file of the page."""

import os
import shutil

import pytest

from latent_tokens.cli import main

DESK = {"width": 1280, "height": 900}
PATIENCE = 30.0  # seconds


@pytest.fixture(scope="session")
def browser():
    """Return Debian's chromium. If there is none, skip the test unless NEEDS_BROWSER is set."""
    program = shutil.which("chromium")
    if program is None:
        give_up = pytest.fail if os.environ.get("NEEDS_BROWSER") else pytest.skip
        give_up("no chromium on the path: apt-get install chromium")
    from playwright.sync_api import sync_playwright

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
