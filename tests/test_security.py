"""Each promise of SECURITY.md names existing tests."""

import re

import pytest

from helpers.documentation import ROOT

NAMED = re.findall(r"`(tests/\w+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text())


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_promise_of_the_security_page_has_its_test(file, name):
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.M)


def test_every_promise_names_a_test():
    rows = [
        line
        for line in (ROOT / "SECURITY.md").read_text().splitlines()
        if line.startswith("| ") and "tested by" not in line
    ]
    assert len(rows) >= 18
    assert all("`tests/" in row for row in rows)
