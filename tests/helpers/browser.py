"""Fixtures of the tests in a browser: Chromium, its windows, and the file of the page."""

import os
import shutil

import pytest

from latent_tokens.cli import main

DESK = {"width": 1280, "height": 900}
PATIENCE = 30.0  # seconds


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium; where there is none, NEEDS_BROWSER makes that a fault."""
    place = shutil.which("chromium")
    if place is None:
        (pytest.fail if os.environ.get("NEEDS_BROWSER") else pytest.skip)(
            "no chromium on the path: apt-get install chromium"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=place, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """The address of the file that `latent-tokens page` writes."""
    return written(tmp_path_factory.mktemp("page"))


def written(folder, *runs):
    """Writes the page with these models, or the bundled ones, and returns its address."""
    file = folder / "latent-tokens.html"
    assert main(["page", *runs, "--out", str(file)]) == 0
    return file.as_uri()


@pytest.fixture
def opened(browser):
    """Opens pages. At the end, the console of each has no error and no warning."""
    said, contexts = [], []

    def open_page(url, viewport=DESK, scheme="light", **settings):
        contexts.append(
            browser.new_context(
                viewport=viewport,
                color_scheme=scheme,
                reduced_motion="reduce",
                **{"offline": True, **settings},
            )
        )
        page = contexts[-1].new_page()
        page.set_default_timeout(1_000 * PATIENCE)
        page.on(
            "console",
            lambda message: said.append(message.text) if message.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
