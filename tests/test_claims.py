"""The paper's claims and their verdicts over seeds, and its tables and figures."""

import re
import shutil
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from helpers.documentation import ROOT
from latent_tokens.configs import ReproduceConfig
from latent_tokens.paper.claims import claims, claims_table, on_shared_seeds, verdict
from latent_tokens.paper.experiments import Cell
from latent_tokens.paper.figures import (
    curves,
    draw_experiment,
    draw_text,
    hardware,
    intervals_note,
    panels_of,
)
from latent_tokens.paper.recipes import of_cells, recipes
from latent_tokens.paper.reproduce import reproduce
from latent_tokens.paper.run import check_together, rows_by_recipe
from latent_tokens.paper.tables import Line, lines, markdown, text_markdown

sys.path.append(str(ROOT / "scripts"))

import results_page

RUNS = Path("runs/paper")
RESULTS = ROOT / "results" / "cpu"
ROWS = RESULTS / "rows.jsonl"
STORED = rows_by_recipe(ROWS)


def line_of(values, seeds=(0, 1, 2), samples=1_000, task="sudoku-gen", **more):
    """Return a line of a table with a value for each seed."""
    metric = "soft_loss" if task == "sudoku-large" else "valid"
    row = {"metric": metric, "num_samples": samples, **more}
    rows = [{**row, metric: value, "train_seed": seed} for value, seed in zip(values, seeds, strict=True)]
    return Line(Cell(task, "mdm", "top_prob"), (), tuple(rows))


def loss_of(*values):
    return line_of(values, range(len(values)), task="sudoku-large")


LOW = line_of([40.0, 41.0, 42.0])
MANY = line_of([40.0, 41.0, 42.0], samples=20_000)
HIGH = line_of([50.0, 51.5, 51.0], samples=20_000)
LESS = loss_of(4.01, 4.12, 4.05)
VERDICTS = {
    "three seeds agree": (HIGH, MANY, "+9.8 (+7.9 to +11.7)", "t", "yes"),
    "reverse": (LOW, HIGH, "-9.8 (-11.7 to -7.9)", "t", "no, the reverse"),
    "seeds disagree": (line_of([70.0, 41.0, 42.0]), LOW, "+10.0 (-33.0 to +53.0)", "t", "undecided"),
    "no rows": (line_of([], ()), LOW, "", "", "not run"),
    "no seed in common": (line_of([50.0], (3,)), LOW, "", "", "no claim: no seed in common"),
    # Compared to the 42.0 of the same seed.
    "one seed": (line_of([51.0], (2,)), LOW, "+9.0 (+4.6 to +13.3)", "Wilson", "no claim: 1 seed"),
    "two": (line_of([50.0, 51.0], (0, 1)), LOW, "+10.0 (+6.9 to +13.1)", "Wilson", "no claim: 2 seeds"),
    # Equal differences have a t interval of no width, and the noise of 3,000 samples is wider.
    "noise": (line_of([44.0, 45.0, 46.0]), LOW, "+4.0 (+1.5 to +6.5)", "t and Wilson", "yes"),
    "noise alone": (line_of([41.0, 42.0, 43.1]), LOW, "+1.0 (-1.5 to +3.5)", "t and Wilson", "undecided"),
    # Lower is better.
    "loss": (LESS, loss_of(5, 5.11, 5.08), "-1.00 (-1.06 to -0.95)", "t", "yes"),
    "higher loss": (loss_of(5, 5.11, 5.08), LESS, "+1.00 (+0.95 to +1.06)", "t", "no, the reverse"),
    "losses": (loss_of(4, 4.1, 4.2), loss_of(3, 5, 4.1), "+0.07 (-2.29 to +2.43)", "t", "undecided"),
    "loss of one seed": (loss_of(4), LESS, "-0.01", "", "no claim: 1 seed"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdict_is_over_seeds_and_never_more_certain_than_samples(name):
    better, worse, *expected = VERDICTS[name]
    assert verdict(*on_shared_seeds(better, worse)) == tuple(expected)


def test_interval_of_three_seeds_is_over_seeds_and_of_fewer_of_samples():
    apart = line_of([40.0, 50.0, 60.0])
    half = 4.303 * 10 / 3**0.5
    for line, low, high, kind in (
        (apart, 50 - half, 50 + half, "t"),
        (line_of([50.0, 50.0, 50.0]), 48.212, 51.788, "t and Wilson"),
        (apart.of_seeds([1]), 46.907, 53.093, "Wilson"),
    ):
        assert line.interval == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3), kind)
    assert line_of([0.0, 0.0, 3.0]).interval.low == 0
    assert loss_of(4.0, 4.1, 4.2).interval.kind == "t"
    assert loss_of(4.0, 4.1).interval is None
    assert loss_of(4.0).unit == "soft loss"


def test_puzzles_that_every_seed_solves_count_once():
    boards = line_of([40.0, 41.0, 42.0], problems_sha256="same")  # boards start from nothing
    puzzles = line_of([40.0, 41.0, 42.0], task="sudoku-puzzle", problems_sha256="same")
    infilled = replace(boards, cell=replace(boards.cell, problems="sudoku-puzzle"))
    assert [line.num_samples for line in (boards, puzzles, infilled)] == [3_000] * 3
    assert [line.num_independent for line in (boards, puzzles, infilled)] == [3_000, 1_000, 1_000]
    of_two_seeds = [line.of_seeds([0, 1]).interval for line in (boards, puzzles, infilled)]
    assert of_two_seeds[1] == of_two_seeds[2]
    assert of_two_seeds[1].low < of_two_seeds[0].low


def test_sign_of_a_claim_is_that_of_its_metric():
    """A sign that is the same for a loss and an accuracy would be read the wrong way round."""
    signs = {(claim.better.task, " < " in claim.text, " > " in claim.text) for claim in claims("cpu")}
    for task, is_less, is_more in signs:
        (line,) = lines(of_cells([Cell(task, "mdm", "uniform")], "cpu", RUNS, 1), {})
        assert (is_less, is_more) == (line.is_loss, not line.is_loss), task


def test_claim_refuses_a_model_that_was_trained_on_other_data():
    recipe = of_cells([claims("cpu")[0].worse], "cpu", RUNS, 1)[0]
    changed = {**STORED, recipe.hash: {**STORED[recipe.hash], "data_sha256": "0" * 64}}
    with pytest.raises(ValueError, match=r"differ in data_sha256"):
        claims_table("cpu", RUNS, changed)


def test_stored_claims_are_those_of_the_rows(tmp_path):
    (tmp_path / "cpu").mkdir()
    shutil.copy(ROWS, tmp_path / "cpu")
    assert reproduce(ReproduceConfig("claims", out=tmp_path)) == (RESULTS / "claims.md").read_text()
    page = results_page.PAGE.read_text(encoding="utf-8")
    assert results_page.filled(page) == page, "run python scripts/results_page.py"


def test_overview_has_each_claim_once_per_task():
    overview, table, *_ = (RESULTS / "claims.md").read_text().split("\n\n")
    headings, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in overview.splitlines())
    names = [line.split(" | ")[1] for line in table.splitlines()[2:]]
    assert [row[0].removesuffix(" (implied)") for row in rows] == list(dict.fromkeys(names))
    assert sum(len(cell.split("; ")) for row in rows for cell in row[1:] if cell) == len(names)
    cells = {row[0]: dict(zip(headings, row, strict=True)) for row in rows}
    assert cells["mdm top-prob > ar-mtp"]["the reverse"].startswith("sudoku-6 -15.5 (")
    assert "; sudoku-6 +45.3 (" in cells["ar-mtp > arm"]["reproduced"]
    assert "; sudoku-6 +1.1 (" in cells["scdm n=all > sidm (implied)"]["undecided"]


# Tables, figures and their captions.

NAMES = sorted(path.stem for path in RESULTS.glob("*.md") if path.stem != "claims")


@pytest.mark.parametrize("name", NAMES)
def test_table_and_figure_in_the_repository_are_those_of_the_rows(name, tmp_path):
    """The .svg files are snapshots: their bytes have every curve, interval, color, legend and caption."""
    shown = lines(recipes(name, "cpu", RUNS), STORED)
    check_together([row for line in shown for row in line.rows], RESULTS)
    make_table, draw_figure = (text_markdown, draw_text) if "text" in name else (markdown, draw_experiment)
    table = make_table(shown, name)
    command = f"latent-tokens reproduce {name} --scale cpu"
    assert (RESULTS / f"{name}.md").read_text() == f"{table}\n`{command}`\n"
    assert not re.search(r"this machine|other work|\| (commit|training s|sampling s) \|", table)
    assert (RESULTS / f"{name}.svg").is_file() == (RESULTS / f"{name}.png").is_file() == ("figure" in name)
    if "figure" in name:
        draw_figure(shown, name, command, tmp_path / name)
        assert (tmp_path / f"{name}.svg").read_bytes() == (RESULTS / f"{name}.svg").read_bytes()


def test_stored_rows_name_no_directory_of_a_machine():
    assert not re.search(r"/(tmp|home|work|root)/", ROWS.read_text())


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
