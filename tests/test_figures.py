"""Figures and tables of the paper: one order of methods, one place of legends, one meaning of colors."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from latent_tokens.evaluation.report import wrapped
from latent_tokens.palette import METHOD_COLORS
from latent_tokens.paper import figures
from latent_tokens.paper.figures import (
    by_method,
    curves,
    draw,
    hardware,
    intervals_note,
    measurement,
    panels_of,
    rank,
    share_limits,
)
from latent_tokens.paper.recipes import recipes
from latent_tokens.paper.reproduce import report_of, write
from latent_tokens.paper.run import measured
from latent_tokens.paper.tables import lines, markdown

ROWS = Path(__file__).parents[1] / "results" / "cpu" / "rows.jsonl"
NAMES = sorted(path.stem for path in ROWS.parent.glob("*.png"))


@pytest.fixture(scope="module")
def stored():
    return measured(ROWS)


def lines_of(name, stored):
    """Return the lines of an experiment with the results of the repository."""
    return lines(recipes(name, "cpu", Path("runs/paper")), stored)


@pytest.fixture
def drawn(stored, monkeypatch):
    """Return a function that draws an experiment, and returns the figure and its caption."""

    def draw(name):
        saved = []
        monkeypatch.setattr(figures, "save_sheet", lambda *arguments: saved.append(arguments))
        shown = lines_of(name, stored)
        report_of(shown)[1](shown, name, "a command", Path(name))
        draw.lines = shown
        ((sheet, _, caption, _),) = saved
        return sheet, caption

    return draw


@pytest.mark.parametrize("name", NAMES)
def test_methods_have_one_order_in_every_figure(name, drawn):
    sheet, _ = drawn(name)
    for axes in sheet.axes:
        legend = axes.get_legend()
        entries = [] if legend is None else [text.get_text() for text in legend.get_texts()]
        from_top = [tick.get_text().partition("\n")[0] for tick in reversed(axes.get_yticklabels())]
        panels = [panel.get_title().replace("sudoku-6, ", "") for panel in sheet.axes]
        for names in (entries, from_top, panels):
            ranks = [rank(each) for each in names]
            assert ranks == sorted(ranks), names


def color_of(handle):
    """Return the color of a curve or a line."""
    return to_hex((handle if hasattr(handle, "get_color") else handle.lines[0]).get_color())


def methods_in(*texts):
    """Return the methods that some texts name."""
    return [word for text in texts for word in re.split(r"[ ,\n]+", text) if word in METHOD_COLORS]


@pytest.mark.parametrize("name", NAMES)
def test_color_of_a_method_is_that_of_its_curves_only(name, drawn):
    for axes in drawn(name)[0].axes:
        rows = [label.get_text() for label in axes.get_yticklabels()]
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            methods = methods_in(label)[:1] or methods_in(axes.get_title(), axes.get_ylabel(), *rows)
            is_neutral = color_of(handle) not in METHOD_COLORS.values()
            assert is_neutral != (color_of(handle) in map(METHOD_COLORS.get, methods)), label
            assert not (is_neutral and methods_in(label)), label


def test_every_method_has_a_rank_and_other_names_are_last():
    names = ["mdm, top-prob 36", "sidm", "scdm, n=4", "SmolLM2, esolm", "arm", "ar-mtp-window, ar-mtp"]
    ranks = [rank(name) for name in names]
    assert ranks == sorted(set(ranks))
    assert rank("entropy of the boards") > max(ranks)


def test_lines_in_order_of_methods_keep_their_tasks(stored):
    shown = by_method(lines_of("figure-latents", stored))
    tasks = [(line.cell.task, line.cell.problems) for line in shown]
    given = [(line.cell.task, line.cell.problems) for line in lines_of("figure-latents", stored)]
    assert tasks == given
    assert [line.cell.method for line in shown[:3]] == ["mdm", "sidm", "scdm"]


def style_in(axes, label):
    """Return the line style of a curve or a line by its label."""
    handles, labels = axes.get_legend_handles_labels()
    handle = handles[labels.index(label)]
    return (handle if hasattr(handle, "get_linestyle") else handle.lines[0]).get_linestyle()


def test_orders_of_one_method_have_lines_of_their_own(drawn):
    axes = drawn("figure-1-9x9")[0].axes[0]
    for method in ("mdm", "sidm"):
        (of_top_prob,) = [label for label in labels_of(axes) if label.startswith(f"{method}, top-prob")]
        (of_uniform,) = [label for label in labels_of(axes) if label.startswith(f"{method}, uniform")]
        assert style_in(axes, of_top_prob) != style_in(axes, of_uniform)


def labels_of(axes):
    """Return the labels of a legend."""
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize("name", ["figure-1", "figure-text"])
def test_legend_is_below_the_label_of_its_axis(name, drawn):
    sheet, _ = drawn(name)
    sheet.draw_without_rendering()
    for axes in sheet.axes:
        legend = axes.get_legend().get_window_extent()
        label = axes.xaxis.label.get_window_extent()
        assert label.y0 - 30 < legend.y1 < label.y0


@pytest.mark.parametrize("name", NAMES)
def test_caption_has_samples_seeds_candidates_and_hardware(name, drawn):
    """The number of candidates may be in titles, on an axis or in a legend instead."""
    sheet, caption = drawn(name)
    shown = [axes.get_legend_handles_labels()[1] for axes in sheet.axes]
    labels = [axes.get_title() for axes in sheet.axes] + [axes.get_xlabel() for axes in sheet.axes]
    text = " ".join([caption, *labels, *(label for panel in shown for label in panel)])
    assert re.search(r"\d (samples|texts|held-out boards|held-out sequences)", caption)
    assert re.search(r"(\d|one) training seed", caption)
    assert "PyTorch 2.13" in caption
    assert re.search(r"\d threads? \(cpu\)", caption)
    is_top_prob = any(line.cell.order == "top_prob" for line in drawn.lines)
    assert not is_top_prob or re.search(r"\bk ?= ?\w|candidates k", text)


def test_panels_name_candidates_that_differ(drawn):
    titles = [axes.get_title() for axes in drawn("figure-latents")[0].axes]
    assert titles == [
        "sudoku-6, k = 4",
        "sudoku-6-puzzle, k = 4",
        "zebra-compact-3, top-prob, k = 2",
        "countdown-3, k = 8",
        "sudoku-6, infilling puzzles, k = 4",
    ]


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


@pytest.mark.parametrize("name", NAMES)
def test_panels_fit_a_page_and_name_their_vertical_axis(name, drawn):
    sheet, _ = drawn(name)
    assert sheet.get_figwidth() <= 11
    for axes in sheet.axes:
        alike = axes.get_shared_y_axes().get_siblings(axes)
        assert any(other.get_ylabel() for other in alike) or methods_in(axes.get_yticklabels()[0].get_text())
    assert len({round(axes.get_position().x0, 1) for axes in sheet.axes}) <= 3


def results_of(name):
    """The lines of an experiment with results: 40% at n = 0, 50% otherwise, and tokens by n."""
    asked = recipes(name, "cpu", Path("runs"))
    row = {"metric": "valid", "num_samples": 1_000, "forward_passes": 36}
    rows = {}
    for recipe in asked:
        is_first = recipe.cell.latents == 0
        rows[recipe.hash] = {
            **row,
            "valid": 40.0 if is_first else 50.0,
            "processed": 700.0 if is_first else 1_296.0,
            "train_seed": recipe.training.seed,
        }
    return lines(asked, rows)


def panel_of(lines):
    """Return the first panel of some lines."""
    axes = Figure().subplots()
    curves(axes, next(iter(panels_of(lines).values())))
    return axes


def test_arm_windows_and_ar_mtp_form_one_curve_over_latents():
    axes = panel_of(results_of("figure-1"))
    ticks = [tick.get_text() for tick in axes.get_xticklabels()]
    assert ticks == ["0", "2", "3", "4", "8", "15", "16", "all (35)"]
    assert axes.get_xticks().tolist() == [0, 2, 3, 4, 8, 15, 16, 35]
    assert {
        "arm, left to right 50",
        "ar-mtp-window, ar-mtp, left to right",
        "ar-ntp, left to right",
        "scdm, top-prob",
        "mdm, top-prob 50",
    } <= set(labels_of(axes))


def test_adaptive_candidates_have_a_panel_of_their_own():
    panels = panels_of(results_of("figure-1-9x9"))
    assert list(panels) == ["sudoku-9", "sudoku-9, top-prob, adaptive k"]
    axes = Figure().subplots()
    curves(axes, panels["sudoku-9, top-prob, adaptive k"])
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "all (35)"]


def test_captions_name_samples_seeds_candidates_and_threads(tmp_path):
    row = {"metric": "valid", "valid": 40.0, "num_samples": 1_000, "train_seed": 0, "order": "top_prob"}
    measured = row | {"candidates": 4, "device": "cpu", "threads": 1, "forward_passes": 36}
    asked = recipes("figure-1", "cpu", Path("runs"))
    draw(
        lines(asked, {recipe.hash: measured | {"train_seed": recipe.training.seed} for recipe in asked}),
        "figure-1",
        "a command",
        tmp_path / "a",
    )
    caption = (tmp_path / "a.svg").read_text()  # its texts are in comments
    expected = (
        "1,000 samples per seed, 3 training seeds, k = 4 in top-prob order, 1 thread (cpu),"
        " 95% intervals over training seeds"
    )
    assert all(line in caption for line in (expected, "a command"))


def test_caption_names_intervals_that_count_each_puzzle_once(tmp_path):
    row = {"metric": "valid", "valid": 40.0, "num_samples": 1_000, "train_seed": 0, "order": "top_prob"}
    measured = row | {"candidates": 4, "device": "cpu", "threads": 1, "forward_passes": 36}
    measured |= {"problems_sha256": "same"}
    asked = recipes("figure-latents", "cpu", Path("runs"))
    shown = lines(asked, {recipe.hash: measured for recipe in asked})
    draw(shown, "figure-latents", "a command", tmp_path / "a")
    assert "95% intervals of samples, each puzzle once" in (tmp_path / "a.svg").read_text()


def test_caption_names_intervals_of_few_and_of_three_seeds():
    shown = results_of("figure-1")
    first_seed = [replace(line, rows=line.rows[:1]) for line in shown]
    assert intervals_note(shown) == ["95% intervals over training seeds"]
    assert intervals_note(first_seed) == ["95% intervals of samples"]
    mixed = "95% intervals over training seeds, with fewer than three of samples"
    assert intervals_note([*shown, *first_seed]) == [mixed]
    assert intervals_note([replace(shown[0], cell=replace(shown[0].cell, task="text"), rows=())]) == []


def test_caption_names_the_candidates_of_panels_without_adaptive_ones():
    shown = [
        replace(line, rows=tuple({**row, "order": "top_prob", "candidates": k} for row in line.rows))
        for line in results_of("figure-1-9x9")
        for k in [line.cell.k or 8]
    ]
    assert "k = 8 or adaptive in top-prob order" in measurement(shown)
    assert "k = 8 in top-prob order" in measurement(shown[:3])


def with_candidates(name, scale, candidates):
    """The lines of an experiment with results, whose k is a function of the cell."""
    row = {"metric": "exact", "exact": 40.0, "num_samples": 1_000, "train_seed": 0, "forward_passes": 36}
    row |= {"relative_cost": 1.0, "paper_cost": 1.0, "problems_sha256": "same"}
    asked = recipes(name, scale, Path("runs"))
    rows = {
        recipe.hash: row | {"candidates": candidates(recipe.cell), "train_seed": recipe.training.seed}
        for recipe in asked
    }
    return lines(asked, rows)


def unequal(cell):
    return "all" if cell.task == "zebra" and cell.method != "scdm" else 8


def test_table_has_the_candidates_of_lines_that_differ():
    table = markdown(with_candidates("figure-latents", "paper", unequal), "figure-latents")
    heading, _, *rows = (line.split(" | ") for line in table.splitlines() if line.startswith("|"))
    assert heading[2:5] == ["order", "k", "n"]
    ks = {(row[1], row[heading.index("k")]) for row in rows if row[0] == "| zebra"}
    assert ks == {("scdm", "8"), ("sidm", "all"), ("mdm", "all")}
    assert "k is the number of candidates" in table
    uniform = markdown(with_candidates("table-1-uniform", "paper", unequal), "table-1-uniform")
    assert "| zebra | mdm | uniform |  | " in uniform
    assert "| zebra | mdm | top-prob | all | " in uniform


def test_legend_has_the_candidates_of_curves_that_differ():
    shown = with_candidates("figure-latents", "paper", unequal)
    labels = {}
    for title, of_panel in panels_of(shown).items():
        axes = Figure().subplots()
        curves(axes, of_panel)
        labels[title] = set(labels_of(axes))
    assert labels["zebra"] == {"scdm, top-prob, k=8", "sidm, top-prob, k=all 40", "mdm, top-prob, k=all 40"}
    assert labels["countdown"] == {"scdm, top-prob", "sidm, top-prob 40", "mdm, top-prob 40"}


def test_table_has_no_candidates_that_are_equal():
    equal = with_candidates("figure-latents", "paper", lambda cell: 8)
    assert "| k |" not in markdown(equal, "figure-latents")
    assert "| k |" not in markdown(lines(recipes("table-1", "cpu", Path("runs")), {}), "table-1")
    growing = with_candidates("figure-1-9x9", "cpu", lambda cell: cell.k or 8)
    assert "| top-prob | growing | all | k=growing |" in markdown(growing, "figure-1-9x9")


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


def test_panels_of_the_same_quantity_share_their_limits():
    first, second, other = Figure().subplots(1, 3)
    for axes, quantity, top in ((first, "valid %", 40), (second, "valid %", 90), (other, "nats", 3)):
        axes.set(ylabel=quantity, ylim=(0, top))
    share_limits([first, second, other])
    assert [axes.get_ylim() for axes in (first, second, other)] == [(0, 90), (0, 90), (0, 3)]


def test_highest_interval_of_a_panel_is_below_its_top():
    """A panel of nearly equal shares had hardly any room, so that its markers were cut off."""
    alike = [
        replace(line, rows=tuple({**row, "valid": 94.0} for row in line.rows))
        for line in results_of("figure-1")
    ]
    axes = panel_of(alike)
    highest = max(line.interval[1] for line in alike)
    assert axes.get_ylim() == (0, pytest.approx(1.05 * highest))
