"""scripts/lint_docs.py finds a planted mistake of each rule, and nothing in a good page."""

import sys

import pytest

from helpers.documentation import ROOT

sys.path.append(str(ROOT / "scripts"))

import lint_docs

D7, D8 = (f"D-{number}" for number in (7, 8))  # in parts, since the script reads this file too
TITLES = {D7: "Optimizer settings"}
DECISION = f"See [{D7}, optimizer settings](decisions.md#d-7-optimizer-settings)."
GOOD = "# Files\n\nTrain a model; it\nis `x; y`.\n".replace(";", ",")


def undocumented(count):
    """Return a number."""
    if count < 0:
        raise ValueError(f"count={count}: must be 0 or more")
    return [count]


def no_python(count):
    """Return a number.

    Args:
        count: a number.

    Returns:
        The number.

    Example:
        >>> f(1
    """


PLANTED = {
    "a phrase": (lint_docs.language, ("# Files\n\nA row a\nnumber.",), "3: 'row a number': per"),
    "a phrase of pages": (lint_docs.language, ("It ran beside x.",), "1: 'beside'"),
    "hardware": (lint_docs.language, ("On this machine it is fast.",), "1: 'this machine'"),
    "a semicolon": (lint_docs.language, ("Train; then stop.",), "1: ';': two sentences"),
    "a long sentence": (lint_docs.language, ("a (Ye et al. 2025) " * 8,), "1: 40 words"),
    "long sentences": (lint_docs.language, ("a " * 30,), "1: sentences of more than 25 words"),
    "a dial": (lint_docs.language, ("A dial.\n\nA dial.",), "1: speaks of a dial twice"),
    "a wide line": (lint_docs.wide_lines, ("x" * 111,), "1: more than 110 columns"),
    "a link": (lint_docs.files_linked, ("[x](nowhere.md)", ROOT), "nowhere.md does not exist"),
    "a picture": (lint_docs.files_linked, ('<img src="no.png">', ROOT), "no.png does not exist"),
    "an include": (lint_docs.files_linked, ("```{literalinclude} no.py", ROOT), "no.py does not exist"),
    "a heading": (lint_docs.headings_linked, ("# Files\n[x](#file)", ROOT), "#file is not a heading"),
    "a heading elsewhere": (lint_docs.headings_linked, ("[x](README.md#no)", ROOT), "README.md#no is not"),
    "another title": (
        lint_docs.decisions_named,
        (f"See {D7}, padding.", TITLES, False),
        f"{D7} without its title",
    ),
    "no decision": (lint_docs.decisions_named, (f"See {D8}, x.", TITLES, False), "(no such decision)"),
    "no link": (lint_docs.decisions_named, (f"{D7}, optimizer settings", TITLES, True), "not a link"),
    "a number alone": (lint_docs.decisions_named, ("See decision " + "7.", TITLES, False), "by number alone"),
    "a name left out": (lint_docs.reference, ("", ["Method"]), "lists Method 0 times"),
    "a name too many": (lint_docs.reference, (".. data:: Old", []), "lists Old, which is not public"),
    "a promise": (lint_docs.promises, ("| It is safe | |", ROOT), "1: names no test"),
    "a test": (lint_docs.promises, ("| x | `tests/test_cli.py::test_no` |", ROOT), "test_no does not exist"),
    "words of an error": (lint_docs.errors_raised, ('raise ValueError(f"{x}: it says")',), "1: 'says'"),
    "two errors": (lint_docs.errors_raised, ('raise ValueError(f"{x}: a; b")',), "1: a semicolon"),
    "two lines": (lint_docs.errors_raised, ('raise ValueError(f"{x}\\n")',), "1: a line break"),
    "no value": (lint_docs.errors_raised, ('raise ValueError("cannot")',), "1: names no value"),
    "no example": (lint_docs.docstring_of, (undocumented,), "has no Example"),
    "no arguments": (lint_docs.docstring_of, (undocumented,), "has no Args"),
    "no error": (lint_docs.docstring_of, (undocumented,), "has no Raises"),
    "no Python": (lint_docs.docstring_of, (no_python,), "its Example is not Python"),
}


@pytest.mark.parametrize(("rule", "arguments", "problem"), PLANTED.values(), ids=PLANTED)
def test_lint_finds_a_planted_mistake(rule, arguments, problem):
    assert any(problem in found for found in rule(*arguments))


def test_lint_finds_nothing_in_good_text():
    good = (
        (lint_docs.language, (GOOD + "| `stands` x; | Y; z |\n\n```\nit says\n```\n\n    holds\n",)),
        (lint_docs.wide_lines, (f"[x]({'y' * 200})\n| {'x' * 200}",)),
        (lint_docs.files_linked, ("[x](README.md#a) [y](http://nowhere)", ROOT)),
        (lint_docs.headings_linked, ("# Some files\n[x](#some-files)", ROOT)),
        (lint_docs.decisions_named, (DECISION, TITLES, True)),
        (lint_docs.errors_raised, ('raise ValueError(f"{x}: is one. Use 2.")',)),
        (lint_docs.docstring_of, (lint_docs.public()["generate"],)),
    )
    for rule, arguments in good:
        assert list(rule(*arguments)) == []
