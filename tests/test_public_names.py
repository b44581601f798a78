"""The public names of version 0.2: those to keep resolve, and those that the manual teaches are to keep."""

import re

import pytest

import latent_tokens
from helpers.documentation import ROOT, blocks

LINES = (ROOT / "tests" / "data" / "public_names.txt").read_text().splitlines()
NAMES = dict(line.split() for line in LINES if not line.startswith("#"))
TAUGHT = ("README.md", *(f"docs/{page}.md" for page in ("tutorial", "own-task", "own-method", "own-network")))


def names_of_page(text):
    """Return the names that the Python of a page takes from latent_tokens, or `lt`."""
    code = "".join(blocks(text, "python"))
    imported = re.findall(r"^from latent_tokens import (.+)$", code, re.M)
    return {*re.findall(r"\w+", " ".join(imported)), *re.findall(r"\blt\.(\w+)", code)}


def test_public_names_to_keep_resolve():
    kept = [name for name, fate in NAMES.items() if fate == "keep"]
    assert len(kept) > 60
    assert [name for name in kept if not hasattr(latent_tokens, name)] == []


def test_every_public_name_has_one_of_three_fates():
    assert set(NAMES.values()) <= {"keep", "research", "gone"}
    assert set(latent_tokens.__all__) <= set(NAMES)


@pytest.mark.parametrize("page", TAUGHT)
def test_names_that_a_page_teaches_are_kept(page):
    names = names_of_page((ROOT / page).read_text())
    assert names
    assert {name for name in names if NAMES[name] != "keep"} == set()
