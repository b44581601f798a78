"""The figures of results/: one order of methods, one place of legends, one meaning of colors and lines."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex

from latent_tokens.evaluation.report import wrapped
from latent_tokens.palette import METHOD_COLORS
from latent_tokens.paper.design.recipes import recipes
from latent_tokens.paper.figures import drawing, nats, texts, worth
from latent_tokens.paper.figures.captions import hardware
from latent_tokens.paper.figures.legends import DASHED, SOLID, by_method, rank
from latent_tokens.paper.reproduce import report_of
from latent_tokens.paper.running.runs import measured
from latent_tokens.paper.tables.lines import lines

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
        for module in (drawing, nats, texts, worth):
            monkeypatch.setattr(module, "save_sheet", lambda *arguments: saved.append(arguments))
        shown = lines_of(name, stored)
        report_of(shown, name)[1](shown, name, "a command", Path(name))
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


def test_candidates_are_told_apart_without_colors_of_methods(drawn):
    for axes in drawn("figure-dead-ends")[0].axes:
        curves = [(color_of(line), line.get_linestyle()) for line in axes.get_lines()]
        assert len({color for color, _ in curves}) == len({style for _, style in curves}) == 4
        assert not {color for color, _ in curves} & set(METHOD_COLORS.values())


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


def test_no_latents_are_dashed_and_all_are_solid(drawn):
    labels = {
        "ablation-candidates": "scdm, top-prob, n={}",
        "ablation-confidence": "scdm, top-prob, n={}",
        "ablation-latents": "n = {}",
    }
    for name, label in labels.items():
        axes = drawn(name)[0].axes[0]
        styles = [style_in(axes, label.format(n)) for n in (0, "all")]
        assert styles == [DASHED, SOLID], name


def test_orders_of_one_method_have_lines_of_their_own(drawn):
    axes = drawn("figure-1-9x9")[0].axes[0]
    for method in ("mdm", "sidm"):
        (of_top_prob,) = [label for label in labels_of(axes) if label.startswith(f"{method}, top-prob")]
        (of_uniform,) = [label for label in labels_of(axes) if label.startswith(f"{method}, uniform")]
        assert style_in(axes, of_top_prob) != style_in(axes, of_uniform)


def labels_of(axes):
    """Return the labels of a legend."""
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize(
    "name", ["ablation-candidates", "ablation-latents", "figure-predictions", "figure-text"]
)
def test_legend_is_below_the_label_of_its_axis(name, drawn):
    sheet, _ = drawn(name)
    sheet.draw_without_rendering()
    for axes in sheet.axes:
        legend = axes.get_legend().get_window_extent()
        label = axes.xaxis.label.get_window_extent()
        assert label.y0 - 30 < legend.y1 < label.y0


def test_dashes_of_a_legend_are_longer_than_its_marker(drawn):
    handles = drawn("figure-depth")[0].axes[0].get_legend()
    assert handles.handlelength > 3


OF_DOTS = (
    *("ablation-growing", "ablation-latents", "ablation-refresh", "ablation-relevant"),
    *("ablation-schedule", "ablation-targets", "ablation-weight"),
)


@pytest.mark.parametrize("name", OF_DOTS)
def test_rows_name_the_default_and_end_inside_the_panel(name, drawn):
    for axes in drawn(name)[0].axes:
        rows = [label.get_text().rpartition("\n")[2] for label in axes.get_yticklabels()]
        assert "default" not in rows
        assert axes.get_xlim() == (0, pytest.approx(1.05 * axes.dataLim.xmax))


def test_first_number_of_latents_of_each_method_is_opaque(drawn):
    """mdm has one number of latents only, so that it is not paler than scdm."""
    for name in ("ablation-targets", "ablation-growing"):
        markers = [curve.lines[0] for curve in drawn(name)[0].axes[0].containers]
        for method, color in METHOD_COLORS.items():
            of_method = [marker for marker in markers if to_hex(marker.get_color()) == color]
            assert max((marker.get_alpha() for marker in of_method), default=1) == 1, method
            if len({marker.get_marker() for marker in of_method}) == 1:
                assert all(marker.get_ydata()[0] % 1 == 0 for marker in of_method)  # the middle of a row


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


def test_markers_of_nats_do_not_overlap(drawn):
    """Policies with one n cost the same."""
    sheet, _ = drawn("ablation-nats")
    sheet.draw_without_rendering()
    for axes in sheet.axes:
        markers = [curve.lines[0] for curve in axes.containers]
        at = np.concatenate([axes.transData.transform(marker.get_xydata()) for marker in markers])
        points = at / sheet.dpi * 72
        distances = np.linalg.norm(points[:, None] - points, axis=-1) + 100 * np.eye(len(points))
        assert distances.min() > 4
