"""One-line changes that still compile and that the suite must notice. scripts/break_it.py applies them."""

import sys

from helpers.documentation import ROOT

sys.path.append(str(ROOT / "scripts"))

from break_it import SOURCE, breakages


def test_every_breakage_changes_one_line_that_compiles():
    listed = breakages()
    assert len(set(listed)) == 150
    for path, old, new in listed:
        content = (ROOT / SOURCE / path).read_text()
        if path.endswith(".py"):
            compile(content.replace(old, new), path, "exec")
        assert "\n" not in old
