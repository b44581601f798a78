"""The docstring of every public name: Args, Returns and Raises where they apply, and an example that runs."""

import ast
import doctest
import inspect
import re
from textwrap import dedent

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import latent_tokens
from latent_tokens import from_pretrained, load
from latent_tokens.core.attention import semi_causal

torch.set_num_threads(1)
METHODS_OF = {
    "Model": ("generate", "evaluate", "save_pretrained", "push_to_hub"),
    "Transformer": ("from_pretrained", "save_pretrained", "push_to_hub"),
    "ResultTable": ("to_pandas",),
    "DiffusionCollator": ("loss",),
}
PUBLIC = {
    name: getattr(latent_tokens, name)
    for name in sorted(latent_tokens.__all__)
    if callable(getattr(latent_tokens, name))
} | {
    f"{name}.{method}": getattr(getattr(latent_tokens, name), method)
    for name, methods in METHODS_OF.items()
    for method in methods
}


def sections(name):
    """Return the headings of a docstring."""
    return set(re.findall(r"^(Args|Returns|Yields|Raises|Example):", inspect.getdoc(PUBLIC[name]), re.M))


@pytest.mark.parametrize("name", PUBLIC)
def test_docstring_has_the_sections_that_apply(name):
    thing, found = PUBLIC[name], sections(name)
    assert "Example" in found
    if inspect.isclass(thing):
        return
    signature = inspect.signature(thing)
    if set(signature.parameters) - {"self"}:
        assert "Args" in found
    summary = inspect.getdoc(thing).split("\n\n")[0]
    if signature.return_annotation not in (None, "None") and "eturn" not in summary:
        assert "Returns" in found
    if re.search(r"^ +raise \w+Error", inspect.getsource(thing), re.M):
        assert "Raises" in found


def example(name):
    """Return the example of a docstring."""
    text = re.split(r"^Example::?\n", inspect.getdoc(PUBLIC[name]), flags=re.M)[1]
    return dedent(re.split(r"^\S", text, flags=re.M)[0]).strip()


@pytest.mark.parametrize("name", PUBLIC)
def test_example_is_python(name):
    code = example(name)
    assert code
    if ">>>" in code:
        code = "".join(each.source for each in doctest.DocTestParser().get_examples(code))
    ast.parse(code)


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
    prompted = [name for name in PUBLIC if ">>>" in example(name) and name not in ("load_data", "make_data")]
    assert len(prompted) > 40
    for name in prompted:
        run.run(parser.get_doctest(example(name) + "\n", dict(names), name, None, None))
    assert run.failures == 0
