"""The examples in the docstrings of public names run. scripts/lint_docs.py checks their sections."""

import doctest
import inspect
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import latent_tokens
from helpers.documentation import ROOT
from latent_tokens import from_pretrained, load
from latent_tokens.core.attention import semi_causal

sys.path.append(str(ROOT / "scripts"))

from lint_docs import example, public

torch.set_num_threads(1)


@pytest.mark.slow
def test_examples_of_docstrings_run():
    """Those with a prompt. The others train, or use the Hub. Two use a data set."""
    net = from_pretrained("sudoku-6-scdm")
    model = load("sudoku-6-scdm")
    names = {name: getattr(latent_tokens, name) for name in latent_tokens.__all__}
    names |= {"torch": torch, "np": np, "net": net, "model": model, "task": model.task}
    names |= {"semi_causal": semi_causal, "DataLoader": DataLoader}
    run = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    parser = doctest.DocTestParser()
    examples = {name: example(inspect.getdoc(thing)) for name, thing in public().items()}
    prompted = [
        name for name, code in examples.items() if ">>>" in code and name not in ("load_data", "make_data")
    ]
    assert len(prompted) > 40
    for name in prompted:
        run.run(parser.get_doctest(examples[name] + "\n", dict(names), name, None, None))
    assert run.failures == 0
