"""The script that measures which candidate to decode, and its table and figure in docs/results.md."""

import json
import sys

import pytest

from helpers.documentation import ROOT
from latent_tokens.palette import METHOD_COLORS

sys.path.append(str(ROOT / "scripts"))

import confidence
from confidence import Setting

FEW = [
    Setting("sudoku-6-mdm", "top_prob", "all", "all"),
    Setting("sudoku-6-mdm", "entropy", "all", "all"),
    Setting("sudoku-6-scdm", "entropy", 8, "all"),
]


def test_settings_are_different_and_of_both_sizes():
    listed = confidence.settings()
    assert len(set(listed)) == len(listed)
    assert {each.model for each in listed} == {
        f"sudoku-{side}-{m}" for side in (6, 9) for m in ("mdm", "scdm")
    }


@pytest.mark.slow
def test_each_row_is_measured_once_and_rendered(tmp_path, monkeypatch):
    page = tmp_path / "results.md"
    tables = "".join(f"<!-- table {name} -->\n<!-- end -->\n\n" for name in ("confidence", "dead-ends"))
    page.write_text(f"Before.\n\n{tables}After.\n")
    folder = tmp_path / "confidence"
    values = {
        "PAGE": page,
        "ROWS": folder / "rows.jsonl",
        "DEAD_ENDS": folder / "dead-ends.jsonl",
        "SAMPLES": 4,
        "settings": lambda: FEW,
    }
    for name, value in values.items():
        monkeypatch.setattr(confidence, name, value)
    for arguments in ([], [], ["--render"]):
        monkeypatch.setattr(sys, "argv", ["confidence.py", *arguments])
        confidence.main()

    stored, with_dead_ends = (
        [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("rows.jsonl", "dead-ends.jsonl")
    )
    assert [(row["run"], row["order"], row["candidates"], row["latents"]) for row in stored] == FEW
    assert all(row["num_samples"] == 4 and "intercalates" in row for row in stored if row["valid"])
    assert [row["valid"] for row in with_dead_ends] == [row["valid"] for row in stored[:2]]
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("Before.", "After.")
    of_entropy, lost = (line for line in lines if "| entropy |" in line and "mdm" in line)
    assert f"{stored[1]['valid']:.1f} (" in of_entropy
    assert sum(map(float, lost.split("|")[4:7])) == pytest.approx(100 - stored[1]["valid"])
    assert all((folder / f"confidence.{suffix}").stat().st_size > 5_000 for suffix in ("png", "svg"))


def test_tables_of_the_page_are_those_of_the_rows():
    page = confidence.PAGE.read_text(encoding="utf-8")
    stored, with_dead_ends = map(confidence.rows, (confidence.ROWS, confidence.DEAD_ENDS))
    assert len(stored) == len(confidence.settings())
    assert len(with_dead_ends) == len(confidence.settings_of_dead_ends())
    assert confidence.table(stored) in page
    assert confidence.dead_ends_table(with_dead_ends) in page


def test_intercalates_on_the_page_are_those_of_the_rows():
    page = " ".join(confidence.PAGE.read_text(encoding="utf-8").split())
    rises = [
        100 * (row["intercalates"] / row["reference_intercalates"] - 1)
        for row in confidence.rows(confidence.ROWS)
        if (row["order"], row["candidates"]) == ("entropy", "all")
    ]
    assert len(rises) == 4
    assert f"are {min(rises):.0f} to {max(rises):.0f}% more frequent than in boards of the solver" in page
    assert "Their intercalates at k = all (2x2 Latin squares inside a board)" in page


def test_adaptive_candidates_are_joined_to_no_number(tmp_path, monkeypatch):
    """A line of scdm crossed adaptive candidates, which it was not measured with."""
    saved = []
    monkeypatch.setattr(confidence, "save_sheet", lambda *arguments: saved.append(arguments))
    confidence.draw(confidence.rows(confidence.ROWS), tmp_path / "confidence")
    ((sheet, _, caption, _),) = saved
    for axes in sheet.axes:
        joined = [curve.lines[0] for curve in axes.containers if curve.lines[0].get_linestyle() != "None"]
        assert [line.get_xdata().tolist() for line in joined] == [[0, 1]] * len(joined)
        methods = [text.get_text().split(",")[0] for text in axes.get_legend().get_texts()]
        assert methods == sorted(methods, key=list(METHOD_COLORS).index)
        assert len(methods) == len(joined) >= 4
    for note in ("500 samples", "1 training seed", "1 thread (cpu)", "PyTorch 2.13", "scripts/confidence.py"):
        assert note in caption
