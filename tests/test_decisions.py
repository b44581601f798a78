"""References to docs/decisions.md name its headings, and every link to a heading has a target."""

import inspect
import re
from pathlib import Path

import pytest

from latent_tokens import METHODS, TASKS, Decoding, TrainConfig, Transformer
from latent_tokens.configs import DEFAULT_CANDIDATES, SamplingConfig
from latent_tokens.evaluation.settings import decoding_for
from latent_tokens.paper.design.scales import SCALES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "decisions.md"
TITLES = dict(re.findall(r"^### (D-\d+) (.+)$", PAGE.read_text(), re.M))
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/*.md"),
        *ROOT.glob("results/*/*.md"),
        *ROOT.glob("space/*.md"),
    ]
)
FOLDERS = ("src", "tests", "examples", "scripts", "space")
SOURCES = sorted(
    path
    for folder in FOLDERS
    for kind in ("py", "ipynb", "js", "html")
    for path in (ROOT / folder).rglob(f"*.{kind}")
)


def slug(heading):
    """Return the anchor of a heading on GitHub and in the built manual."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def anchors(page):
    """Return the anchors of a page: its headings, and its HTML anchors."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.M)} | set(
        re.findall(r'<a id="([^"]+)">', text)
    )


def test_decisions_have_one_heading_each():
    headings = re.findall(r"^### D-(\d+) ", PAGE.read_text(), re.M)
    assert sorted(map(int, headings)) == list(range(1, 42))
    assert anchors(PAGE) >= {f"d-{number}" for number in headings}
    assert all(len(title.split()) <= 6 for title in TITLES.values())


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=lambda path: str(path.relative_to(ROOT)))
def test_decision_references_name_their_heading(path):
    text = " ".join(re.sub(r"^### D-\d+ .*$", "", path.read_text(), flags=re.M).split())
    for found in re.finditer(r"\b(D-\d+)\b(?!\\d)", text):
        expected = f"{found[1]}, {TITLES[found[1]]}"
        assert text[found.start() :][: len(expected)].lower() == expected.lower()
        if path.suffix == ".md":
            link = re.match(r"\[([^]]+)\]\([^)#]*#([^)]+)\)", text[found.start() - 1 :])
            assert link, f"{expected}: not a link to a heading"
            assert link[1].lower() == expected.lower()
            assert link[2] == slug(expected)
    assert not re.search(r"\bdecisions? \(?[0-9]", text, re.I)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_to_headings_lead_to_one(path):
    for place, anchor in re.findall(r"\]\(([^)\s#]*)#([^)\s]+)\)", path.read_text()):
        if not place.startswith("http"):
            assert anchor in anchors(path.parent / place if place else path), f"{place}#{anchor}"


def test_table_of_defaults_states_the_defaults():
    table = {
        row.split(" | ")[0].strip("| "): row for row in PAGE.read_text().splitlines() if row.startswith("| ")
    }
    training = vars(TrainConfig("sudoku-4", "scdm"))
    network = {
        name: given.default for name, given in inspect.signature(Transformer.__init__).parameters.items()
    }
    for row, found in (("`TrainConfig`, `latent-tokens train`", training), ("`Transformer(...)`", network)):
        assert f'`gelu="{found["gelu"]}"` | `positions="{found["positions"]}"`' in table[row]
    assert f"| {Decoding(1).candidates} | the method's own |" in table["`Decoding(...)` in Python"]
    adaptive = decoding_for(METHODS["scdm"], TASKS["sudoku-6"], SamplingConfig())
    fixed = decoding_for(METHODS["scdm"], TASKS["sudoku-6"], SamplingConfig(order="uniform"))
    assert (adaptive.candidates, fixed.candidates, adaptive.latents) == (DEFAULT_CANDIDATES, 1, None)
    assert (
        f"| {DEFAULT_CANDIDATES}, or {fixed.candidates} if"
        in table["`latent-tokens evaluate` and `sample`, `EvalConfig`"]
    )
    budgets = SCALES["cpu"].budgets
    assert [
        budgets[task].candidates
        for task in ("sudoku-gen", "sudoku-puzzle", "zebra", "countdown", "sudoku-large", "sudoku-gen-9x9")
    ] == [4, 4, 2, 8, 8, 8]
    assert {name: METHODS[name].latents for name in ("sidm", "scdm", "esolm", "arm")} == dict.fromkeys(
        ("sidm", "scdm", "esolm", "arm"), 0
    )
    assert all(METHODS[name].latents is None for name in ("mdm", "ar-mtp", "ar-mtp-window-4", "ar-ntp-4"))
