"""The counts of scripts/size.py, on a repository made by hand and on this one."""

import sys

import pytest

from helpers.documentation import ROOT

sys.path.append(str(ROOT / "scripts"))

import size

CORE = '''"""Two lines
of a docstring."""
import latent_tokens.app

# A comment.
TEXT = """two lines
of code"""


def check_it(value):
    """Check it."""
    if value:
        message = "wrong"
        raise ValueError(message)


def late(value):
    assert value
    from latent_tokens import cli, later
    try:
        later.run(value)
    except KeyError:
        raise ValueError from None
    if value:
        raise ValueError
    elif value is None:
        raise TypeError
    else:
        return cli, "latent_tokens.app"


def refuse():
    raise ValueError
'''
LATER = """from latent_tokens import cli
def run(value): return "latent_tokens.core"
"""
FILES = {
    "src/latent_tokens/__init__.py": "",
    "src/latent_tokens/app.py": "if TYPE_CHECKING:\n    from latent_tokens.core import late\n" + "#" * 101,
    "src/latent_tokens/cli.py": "import latent_tokens.core\n",
    "src/latent_tokens/core.py": CORE,
    "src/latent_tokens/later.py": LATER,
    "scripts/one.py": "a = 1\n\n",
    "tests/helpers/two.py": "a = 1\n",
}
EXPECTED = {
    "lines": 39,
    "files": 5,
    "code": 27,
    "docstrings": 100 * 3 / 39,
    "wide": 100 / 39,
    "module": 33,
    "function": 13,
    "small": 4,
    "guards": 100 * 9 / 27,
    "scripts": 2,
    "tests": 1,
    "cycles": 1,
}


def test_counts_of_a_repository_made_by_hand(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert size.count(tmp_path) == pytest.approx(EXPECTED)


def test_every_row_of_the_table_is_counted_or_traced():
    traced = {"training", "reference", "optimized", "cell"}  # tests/test_reading.py
    assert {key for key, *_ in size.ROWS} == {*EXPECTED, *traced}
