"""The tables of docs/performance.md are those of results/performance/rows.jsonl."""

import json
import sys

import pytest

from helpers.documentation import ROOT
from latent_tokens.configs import BenchConfig

sys.path.append(str(ROOT / "scripts"))

import performance


@pytest.fixture
def copies(monkeypatch, tmp_path):
    """The page and the rows, to be written: a page with the table of one part, and one row of another."""
    page, rows = tmp_path / "page.md", tmp_path / "rows.jsonl"
    page.write_text("before\n\n<!-- table small -->\n<!-- end -->\n\nafter\n")
    rows.write_text(json.dumps({"part": "other", "seconds": 1}) + "\n")
    small = BenchConfig(
        ("mdm",), ("nano",), (6,), (1,), train=("nano:2x6:8",), precisions=("fp32",), rounds=1
    )
    monkeypatch.setattr(performance, "PAGE", page)
    monkeypatch.setattr(performance, "ROWS", rows)
    monkeypatch.setattr(performance, "PARTS", {"small": small})
    return page, rows


def test_the_page_has_the_tables_of_the_stored_rows():
    page = performance.PAGE.read_text()
    assert performance.rendered(page, performance.read_lines(performance.ROWS)) == page
    assert {match[2] for match in performance.TABLE.finditer(page)} >= set(performance.PARTS)


def test_a_row_that_changes_changes_the_page():
    page, rows = performance.PAGE.read_text(), performance.read_lines(performance.ROWS)
    rows[0]["seconds"] *= 2
    assert performance.rendered(page, rows) != page


def test_a_table_without_rows_is_refused(copies):
    with pytest.raises(ValueError, match=r"has the table small, and .* has no row of it"):
        performance.main(["--render"])


@pytest.mark.slow
@pytest.mark.usefixtures("brief_look")
def test_a_measured_part_replaces_its_rows_and_its_table(copies):
    page, rows = copies
    rows.write_text(json.dumps({"part": "small"}) + "\n" + rows.read_text())
    performance.main(["small"])
    stored = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [row["part"] for row in stored] == ["other", "small", "small", "small"]
    assert all(row["hardware"] and row["torch"] and row["rounds"] == 1 for row in stored[1:])
    table = page.read_text()
    assert table.startswith("before\n\n<!-- table small -->\n")
    assert "| decode mdm | nano 1 x 6 fp32 | all | 8 |" in table
    assert "| train mdm | nano 2 x 6 fp32 (reference: padded to 8) |" in table
    assert table.endswith("<!-- end -->\n\nafter\n")


def test_an_unknown_part_is_refused_in_one_line(capsys):
    with pytest.raises(SystemExit):
        performance.main(["foo"])
    assert "foo: is not a part. Use tiny, board, latents, text." in capsys.readouterr().err
