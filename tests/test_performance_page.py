"""The tables of docs/performance.md are those of results/performance/rows.jsonl."""

import json
import sys

import pytest
import torch

from helpers.documentation import ROOT
from latent_tokens.configs import BenchConfig

sys.path.append(str(ROOT / "scripts"))

import bf16_accuracy
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
    assert {*performance.names_of(page)} >= {*performance.PARTS}


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


def test_emulated_products_are_those_of_bf16():
    """torch adds in another order, so a few sums round to the neighbor."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(2, 24, 24, generator=generator) for _ in range(2))
    products = [
        lambda x, y: x[0] @ y[0],
        lambda x, y: torch.addmm(y[1, 0], x[0], y[0]),
        lambda x, y: x @ y,
        lambda x, y: torch.baddbmm(x, x, y),
    ]
    for product in products:
        expected = product(x.bfloat16(), y.bfloat16())
        exact = product(x, y)
        with bf16_accuracy.RoundedProducts():
            result = product(x.bfloat16(), y.bfloat16())
            assert torch.equal(product(x, y), exact)
        assert result.dtype == torch.bfloat16
        assert (result == expected).float().mean() > 0.95
        torch.testing.assert_close(result, expected, rtol=2**-7, atol=2**-7)


def test_the_table_of_accuracy_pairs_formats_by_seed():
    losses = [(0.5, 0.501), (0.6, 0.603)]
    rows = [
        {
            "hardware": "a CPU", "torch": "2.13", "method": "scdm", "seed": seed, "size": "nano",
            "steps": 600, "samples": 100, "fp32": {"validation_loss": fp32, "valid": 10.0},
            "bf16": {"validation_loss": bf16, "valid": 12.0},
        }
        for seed, (fp32, bf16) in enumerate(losses)
    ]  # fmt: skip
    line = performance.accuracy_table(rows).splitlines()[-1]
    # The differences 0.001 and 0.003 have the mean 0.002 and the interval 12.706 * 0.001.
    assert line == "| `scdm` | 2 | 0.5500 | 0.5520 | +0.0020 ± 0.0127 | 10.0% | 12.0% | +2.0 ± 0.0 |"


@pytest.mark.slow
def test_accuracy_is_measured_once_per_method_and_seed(tmp_path):
    options = {"steps": 2, "samples": 1, "seeds": 1, "size": "pico", "num-train": 64}
    path = tmp_path / "rows.jsonl"
    arguments = [f"--{name}={value}" for name, value in options.items()] + [f"--out={path}"]
    bf16_accuracy.main(arguments)
    rows = performance.read_lines(path)
    assert [row["method"] for row in rows] == ["scdm", "mdm"]
    for row in rows:
        difference = row["bf16"]["validation_loss"] - row["fp32"]["validation_loss"]
        assert 0 < abs(difference) < 0.01
    bf16_accuracy.main(arguments)
    assert performance.read_lines(path) == rows
