"""Tables and figures of the paper, compared with those in the repository, and their captions."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from latent_tokens.paper.figures import curves, hardware, intervals_note, panels_of
from latent_tokens.paper.recipes import recipes
from latent_tokens.paper.reproduce import report_of
from latent_tokens.paper.run import check_together, measured
from latent_tokens.paper.tables import lines, markdown

RESULTS = Path(__file__).parents[1] / "results" / "cpu"
NAMES = sorted(path.stem for path in RESULTS.glob("*.md") if path.stem != "claims")  # test_claims.py


@pytest.mark.parametrize("name", NAMES)
def test_table_and_figure_in_the_repository_are_those_of_the_rows(name, tmp_path):
    """The .svg files are snapshots: their bytes have every curve, interval, color, legend and caption."""
    shown = lines(recipes(name, "cpu", Path("runs/paper")), measured(RESULTS / "rows.jsonl"))
    check_together([row for line in shown for row in line.rows], RESULTS)
    make_table, draw_figure = report_of(shown)
    table = make_table(shown, name)
    command = f"latent-tokens reproduce {name} --scale cpu"
    assert (RESULTS / f"{name}.md").read_text() == f"{table}\n`{command}`\n"
    assert not re.search(r"this machine|other work|\| (commit|training s|sampling s) \|", table)
    assert (RESULTS / f"{name}.svg").is_file() == (RESULTS / f"{name}.png").is_file() == ("figure" in name)
    if "figure" in name:
        draw_figure(shown, name, command, tmp_path / name)
        assert (tmp_path / f"{name}.svg").read_bytes() == (RESULTS / f"{name}.svg").read_bytes()


def test_stored_rows_name_no_directory_of_a_machine():
    assert not re.search(r"/(tmp|home|work|root)/", (RESULTS / "rows.jsonl").read_text())


def test_caption_names_every_version_of_pytorch():
    rows = [{"made_with": {"torch": version}} for version in ("2.13.0+cpu", "2.9.1", "2.13.1")]
    assert hardware(rows) == ["PyTorch 2.13 and 2.9"]
    threads = [{"threads": 1, "device": "cpu"}, {"threads": 4, "device": "cpu"}]
    assert hardware(threads) == ["1-4 threads (cpu)"]


@cache
def with_rows(name, scale="paper"):
    """Return the lines of an experiment with a row for each recipe. Zebra has another k, but for scdm."""
    row = {"metric": "valid", "valid": 40.0, "num_samples": 1_000, "forward_passes": 36}
    row |= {"relative_cost": 1.0, "paper_cost": 1.0, "problems_sha256": "same"}
    listed = recipes(name, scale, Path("runs"))
    rows = {}
    for recipe in listed:
        has_all = recipe.cell.task == "zebra" and recipe.cell.method != "scdm"
        of_recipe = {"candidates": "all" if has_all else 8, "train_seed": recipe.training.seed}
        rows[recipe.hash] = {**row, **of_recipe}
    return lines(listed, rows)


def test_caption_names_intervals_of_few_and_of_three_seeds():
    shown = with_rows("figure-1", "cpu")
    first_seed = [replace(line, rows=line.rows[:1]) for line in shown]
    assert intervals_note(shown) == ["95% intervals over training seeds"]
    assert intervals_note(first_seed) == ["95% intervals of samples"]
    mixed = "95% intervals over training seeds, with fewer than three of samples"
    assert intervals_note([*shown, *first_seed]) == [mixed]
    assert intervals_note([replace(shown[0], cell=replace(shown[0].cell, task="text"), rows=())]) == []


def test_table_has_the_candidates_of_lines_that_differ():
    table = markdown(with_rows("figure-latents"), "figure-latents")
    heading, _, *rows = (line.split(" | ") for line in table.splitlines() if line.startswith("|"))
    assert heading[2:5] == ["order", "k", "n"]
    ks = {(row[1], row[heading.index("k")]) for row in rows if row[0] == "| zebra"}
    assert ks == {("scdm", "8"), ("sidm", "all"), ("mdm", "all")}
    assert "k is the number of candidates" in table
    uniform = markdown(with_rows("table-1-uniform"), "table-1-uniform")
    assert "| zebra | mdm | uniform |  | " in uniform
    assert "| zebra | mdm | top-prob | all | " in uniform


def test_legend_has_the_candidates_of_curves_that_differ():
    labels = {}
    for title, of_panel in panels_of(with_rows("figure-latents")).items():
        axes = Figure().subplots()
        curves(axes, of_panel)
        labels[title] = {text.get_text() for text in axes.get_legend().get_texts()}
    assert labels["zebra"] == {"scdm, top-prob, k=8", "sidm, top-prob, k=all 40", "mdm, top-prob, k=all 40"}
    assert labels["countdown"] == {"scdm, top-prob", "sidm, top-prob 40", "mdm, top-prob 40"}


def test_table_1_has_the_cost_of_sidm_by_both_conventions():
    """(L(L-1)/2 + 8L - 28) / L^2 at L = 192, 384 and 64. 83 of 164 tokens of a puzzle are given."""
    given = sum(83 + step + min(8, 81 - step) for step in range(81)) / (81 * 164)
    assert round(given, 3) == 0.797
    decoded = "sudoku-puzzle 0.538x (paper 0.54x), zebra 0.519x (paper 0.52x), countdown 0.610x (paper 0.60x)"
    for name in ("table-1", "table-1-uniform"):
        table = (RESULTS / f"{name}.md").read_text()
        assert f"If prompts and pads count as decoded, SIDM at k = 8 costs: {decoded}." in table
        assert "With the prompt given, and without pads, sudoku-puzzle costs 0.797x." in table
