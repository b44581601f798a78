"""The public names of version 0.2: those to keep resolve, pages teach those only, and their examples run."""

import doctest
import inspect
import re
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import latent_tokens
from helpers.documentation import ROOT, blocks
from latent_tokens.core.attention import semi_causal

sys.path.append(str(ROOT / "scripts"))

from lint_docs import example, public

LINES = (ROOT / "tests" / "data" / "public_names.txt").read_text().splitlines()
NAMES = dict(line.split() for line in LINES if not line.startswith("#"))
TAUGHT = ("README.md", *(f"docs/{page}.md" for page in ("tutorial", "own-task", "own-method", "own-network")))


def test_public_names_to_keep_resolve():
    assert set(NAMES.values()) <= {"keep", "research", "gone"}
    assert set(latent_tokens.__all__) <= set(NAMES)
    kept = [name for name, fate in NAMES.items() if fate == "keep"]
    assert len(kept) > 60
    assert [name for name in kept if not hasattr(latent_tokens, name)] == []


@pytest.mark.parametrize("page", TAUGHT)
def test_names_that_a_page_teaches_are_kept(page):
    code = "".join(blocks((ROOT / page).read_text(), "python"))
    imported = " ".join(re.findall(r"^from latent_tokens import (.+)$", code, re.M))
    names = {*re.findall(r"\w+", imported), *re.findall(r"\blt\.(\w+)", code)}
    assert names
    assert {name for name in names if NAMES[name] != "keep"} == set()


@pytest.mark.slow
def test_examples_of_docstrings_run():
    """Those with a prompt. The others train, or use the Hub. Two use a data set."""
    model = latent_tokens.load("sudoku-6-scdm")
    names = {name: getattr(latent_tokens, name) for name in latent_tokens.__all__}
    names |= {"torch": torch, "np": np, "net": model.net, "model": model, "task": model.task}
    names |= {"semi_causal": semi_causal, "DataLoader": DataLoader}
    run = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    examples = {name: example(inspect.getdoc(thing)) for name, thing in public().items()}
    prompted = [name for name, code in examples.items() if ">>>" in code]
    assert len(prompted) > 40
    for name in set(prompted) - {"load_data", "make_data"}:
        test = doctest.DocTestParser().get_doctest(examples[name] + "\n", dict(names), name, None, None)
        run.run(test)
    assert run.failures == 0
