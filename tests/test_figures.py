"""Figures of the paper, compared with those in the repository, and their captions and candidates."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from latent_tokens.evaluation.report import wrapped
from latent_tokens.paper.figures import curves, hardware, intervals_note, panels_of
from latent_tokens.paper.recipes import recipes
from latent_tokens.paper.reproduce import report_of, write
from latent_tokens.paper.run import measured
from latent_tokens.paper.tables import lines, markdown

ROWS = Path(__file__).parents[1] / "results" / "cpu" / "rows.jsonl"
NAMES = sorted(path.stem for path in ROWS.parent.glob("*.png"))


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_in_the_repository_is_that_of_its_rows(name, tmp_path):
    """The .svg files are snapshots: their bytes have every curve, interval, color, legend and caption."""
    stored = measured(ROWS)
    shown = lines(recipes(name, "cpu", Path("runs/paper")), stored)
    _, draw_figure = report_of(shown)
    draw_figure(shown, name, f"latent-tokens reproduce {name} --scale cpu", tmp_path / name)
    assert (tmp_path / f"{name}.svg").read_bytes() == (ROWS.parent / f"{name}.svg").read_bytes()


def labels_of(axes):
    """Return the labels of a legend."""
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_long_caption_breaks_after_commas():
    line = "1,334 samples per seed, 3 training seeds, k = 8 in top-prob order"
    for width in (45, len(line) - 1):
        assert wrapped(line, width) == "1,334 samples per seed, 3 training seeds,\nk = 8 in top-prob order"
    assert wrapped(line, 100) == line


def test_caption_names_every_version_of_pytorch():
    rows = [{"made_with": {"torch": version}} for version in ("2.13.0+cpu", "2.9.1", "2.13.1")]
    assert hardware(rows) == ["PyTorch 2.13 and 2.9"]
    assert hardware([{"threads": 1, "device": "cpu"}, {"threads": 4, "device": "cpu"}]) == [
        "1-4 threads (cpu)"
    ]


def with_rows(name, scale="cpu", candidates=lambda cell: 8):
    """Return the lines of an experiment with a row for each recipe, whose k is a function of the cell."""
    row = {"metric": "valid", "valid": 40.0, "num_samples": 1_000, "forward_passes": 36}
    row |= {"relative_cost": 1.0, "paper_cost": 1.0, "problems_sha256": "same"}
    listed = recipes(name, scale, Path("runs"))
    rows = {
        recipe.hash: {**row, "candidates": candidates(recipe.cell), "train_seed": recipe.training.seed}
        for recipe in listed
    }
    return lines(listed, rows)


def test_caption_names_intervals_of_few_and_of_three_seeds():
    shown = with_rows("figure-1")
    first_seed = [replace(line, rows=line.rows[:1]) for line in shown]
    assert intervals_note(shown) == ["95% intervals over training seeds"]
    assert intervals_note(first_seed) == ["95% intervals of samples"]
    mixed = "95% intervals over training seeds, with fewer than three of samples"
    assert intervals_note([*shown, *first_seed]) == [mixed]
    assert intervals_note([replace(shown[0], cell=replace(shown[0].cell, task="text"), rows=())]) == []


def unequal(cell):
    return "all" if cell.task == "zebra" and cell.method != "scdm" else 8


def test_table_has_the_candidates_of_lines_that_differ():
    table = markdown(with_rows("figure-latents", "paper", unequal), "figure-latents")
    heading, _, *rows = (line.split(" | ") for line in table.splitlines() if line.startswith("|"))
    assert heading[2:5] == ["order", "k", "n"]
    ks = {(row[1], row[heading.index("k")]) for row in rows if row[0] == "| zebra"}
    assert ks == {("scdm", "8"), ("sidm", "all"), ("mdm", "all")}
    assert "k is the number of candidates" in table
    uniform = markdown(with_rows("table-1-uniform", "paper", unequal), "table-1-uniform")
    assert "| zebra | mdm | uniform |  | " in uniform
    assert "| zebra | mdm | top-prob | all | " in uniform


def test_legend_has_the_candidates_of_curves_that_differ():
    shown = with_rows("figure-latents", "paper", unequal)
    labels = {}
    for title, of_panel in panels_of(shown).items():
        axes = Figure().subplots()
        curves(axes, of_panel)
        labels[title] = set(labels_of(axes))
    assert labels["zebra"] == {"scdm, top-prob, k=8", "sidm, top-prob, k=all 40", "mdm, top-prob, k=all 40"}
    assert labels["countdown"] == {"scdm, top-prob", "sidm, top-prob 40", "mdm, top-prob 40"}


@pytest.mark.parametrize("name", ["table-1", "table-1-uniform"])
def test_table_1_has_the_cost_of_sidm_by_both_conventions(name):
    """(L(L-1)/2 + 8L - 28) / L^2 at L = 192, 384 and 64. 83 of 164 tokens of a puzzle are given."""
    given = sum(83 + step + min(8, 81 - step) for step in range(81)) / (81 * 164)
    table = markdown(lines(recipes(name, "cpu", Path("runs")), {}), name)
    decoded = "sudoku-puzzle 0.538x (paper 0.54x), zebra 0.519x (paper 0.52x), countdown 0.610x (paper 0.60x)"
    assert f"If prompts and pads count as decoded, SIDM at k = 8 costs: {decoded}." in table
    assert f"With the prompt given, and without pads, sudoku-puzzle costs {given:.3f}x." in table
    assert round(given, 3) == 0.797


def test_tables_have_no_figure(tmp_path):
    write(recipes("table-1", "cpu", Path("runs")), "table-1", "cpu", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["table-1.md"]
