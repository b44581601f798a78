"""One-line changes that still compile and that the suite must notice. scripts/break_it.py applies them."""

import sys

from helpers.documentation import ROOT

sys.path.append(str(ROOT / "scripts"))

import break_it
from break_it import SOURCE, breakages


def test_every_breakage_changes_one_line_that_compiles():
    listed = breakages()
    assert len(set(listed)) == 265
    for path, old, new in listed:
        content = (ROOT / SOURCE / path).read_text()
        if path.endswith(".py"):
            compile(content.replace(old, new), path, "exec")
        assert "\n" not in old


def test_selected_breakages_decide_and_missed_ones_run_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(break_it, "OUTCOMES", tmp_path / "breakages.jsonl")
    monkeypatch.setattr(break_it, "copy_repository", lambda: None)
    monkeypatch.setattr(sys, "argv", ["break_it.py", "--only", "3", "5"])
    (number_3, number_5) = (breakages()[number][::2] for number in (3, 5))
    # Those that run in each command, and whether each is caught.
    for expected in ({number_3: True, number_5: False}, {number_5: True}, {}):
        left = dict(expected)

        def outcome(path, _, new, left=left):
            return {"path": path, "new": new, "caught": left.pop((path, new)), "by": "", "seconds": 0}

        monkeypatch.setattr(break_it, "outcome", outcome)
        assert break_it.main() == (not all(expected.values()))
        assert left == {}
    assert capsys.readouterr().out.count("1 of 2 breakages are caught") == 1
