"""What tests press and read on the page."""

import time

import torch
from axe_playwright_python.sync_playwright import Axe

from helpers.browser import PATIENCE
from latent_tokens import METHODS, SIZES, TASKS, Transformer, from_pretrained
from latent_tokens.checkpoints.directory import learned_task
from latent_tokens.checkpoints.files import find
from latent_tokens.configs import SamplingConfig
from latent_tokens.trace.record import DecodeRequest, LoadedModel, trace

PHONE = {"width": 390, "height": 844}
SIX = ".....1.1.5..45.162..23....1.2.6.541."
HOSTILE = (
    '<img src=x onerror="window.ran=1">\'&amp;\x1b[31m\u202e\r\n</option><script>window.ran=2<\\script>'
    "</script><script>window.ran=3</script>"
)
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}


def model(name):
    """Return a bundled model, or one of a run directory."""
    return LoadedModel(name, from_pretrained(name), learned_task(find(name)))


def untrained(task, method="scdm", gain=4.0, **settings):
    """Return an untrained model with large weights, so that its input matters."""
    torch.manual_seed(0)
    task = TASKS[task] if isinstance(task, str) else task
    net = Transformer(SIZES["nano"], task.vocab_size, task.length, **settings).eval()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(gain if weight.dim() == 2 else 1)
    net.method = METHODS[method] if isinstance(method, str) else method
    return LoadedModel(f"{task.name}-untrained", net, task)


def decoded(loaded, puzzle, **setting):
    """Return the trace of a puzzle by the package."""
    return trace(DecodeRequest(loaded, loaded.task.encode(puzzle), SamplingConfig(**setting)))


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


def verdicts(page):
    """Return the verdicts of both settings of the laboratory, once they are decoded."""
    for lane in "ab":
        reads(page, f"#lane-{lane} .cost", "processed")
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
