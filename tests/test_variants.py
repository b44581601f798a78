"""Ablations change the setting that they name, and watchers record the predictions."""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from helpers.oracle import Oracle, small_joint
from latent_tokens import METHODS, TASKS, Decoding, EvalConfig, Showing, evaluate
from latent_tokens.configs import ExperimentName
from latent_tokens.core.sampling import generate
from latent_tokens.data.datasets import task_of
from latent_tokens.paper.design.experiments import EXPERIMENTS
from latent_tokens.paper.design.hashes import evaluation_content, training_content
from latent_tokens.paper.design.recipes import recipes
from latent_tokens.paper.design.scales import SCALES
from latent_tokens.paper.design.variants import (
    VARIANTS,
    a_share,
    certain,
    constant,
    constrained,
    early,
    late,
    of_a_unit,
    scheduled,
    sharing,
)
from latent_tokens.paper.figures import drawing
from latent_tokens.paper.figures.captions import measurement
from latent_tokens.paper.figures.curves import share_limits
from latent_tokens.paper.figures.dots import dots
from latent_tokens.paper.figures.drawing import draw, intervals_note, painter, panel_title, panels_of
from latent_tokens.paper.figures.tokens import token_panels
from latent_tokens.paper.reproduce import write
from latent_tokens.paper.tables.catalogue import CATALOGUE
from latent_tokens.paper.tables.lines import lines
from latent_tokens.paper.tables.results import markdown
from latent_tokens.paper.watchers.dead_ends import DeadEnds
from latent_tokens.paper.watchers.foresight import Foresight
from latent_tokens.tasks import configured

TASK = TASKS["sudoku-4"]
SCDM = SimpleNamespace(method=METHODS["scdm"])
SHAPES = {"constant": constant, "a share": a_share, "early": early, "late": late}


def shown_by(adjust, order, clean, candidates, latents, tokens=None, net=None):
    """Return the latent tokens of a variant in one row, in their order."""
    policy, row = adjust(net, TASK, Decoding(1)).latent_policy, torch.tensor([order])
    numbers = (clean, len(order) - clean, candidates, latents)
    found = policy(
        Showing(row, *(torch.tensor([number]) for number in numbers), row if tokens is None else tokens)
    )
    return found[0, clean + candidates : clean + candidates + latents].tolist()


def test_cells_share_a_unit_by_row_column_or_box():
    relation = sharing(TASK)
    assert torch.equal(relation, relation.T)
    assert relation[0].nonzero().flatten().tolist() == [1, 2, 3, 4, 5, 8, 12]
    framed = sharing(configured("sudoku-4", {"padding": "paper"}))
    assert torch.equal(framed[1:17, 1:17], relation)
    assert framed.sum() == relation.sum()


def test_a_task_without_units_is_told_so():
    with pytest.raises(ValueError, match=r"zebra-3: its positions share no units\. Use the policy relevant"):
        sharing(TASKS["zebra-3"])


def test_latents_of_a_unit_and_constrained_ones():
    order = [15, 14, 13, 0, *range(1, 13)]
    assert set(shown_by(of_a_unit, order, 3, 1, 7)) == {1, 2, 3, 4, 5, 8, 12}
    assert shown_by(constrained, order, 3, 1, 1) == [12]  # in a row with all clean cells
    both = VARIANTS["constrained of a unit"].adjust
    assert shown_by(both, order, 3, 1, 1) == [12]  # the only one that shares units with both sides


def test_constrained_of_a_unit_is_neither_of_the_two():
    """Clean: 5, 9, 13. Candidate: 10. 2 shares its column, 1 a column with all clean cells, 8 row and box."""
    order = [5, 9, 13, 10, 0, 1, 2, 3, 4, 6, 7, 8, 11, 12, 14, 15]
    policies = (of_a_unit, constrained, VARIANTS["constrained of a unit"].adjust)
    assert [shown_by(policy, order, 3, 1, 1) for policy in policies] == [[2], [1], [8]]


def test_certain_latents_are_those_of_an_exact_model():
    """Of three positions, the second is almost certain."""
    joint = small_joint() * torch.tensor([1.0, 1e-4, 1e-4])[None, :, None]
    net = Oracle(joint)
    net.method = METHODS["sidm"]
    masked = torch.full((1, 3), 3)
    for sign, wanted in ((1, [1]), (-1, [0])):
        assert shown_by(partial(certain, sign), [2, 0, 1], 0, 1, 1, masked, net) == wanted


@pytest.mark.parametrize("k", [1, 4])
def test_schedules_show_as_many_latents_in_all(k):
    def total(shape):
        latents = scheduled(shape, SCDM, TASKS["sudoku-6"], Decoding(candidates=k)).latents
        return [
            min(latents(left) if callable(latents) else latents, max(0, left - k)) for left in range(1, 37)
        ]

    counts = {name: total(shape) for name, shape in SHAPES.items()}
    assert all(
        abs(sum(count) - sum(counts["constant"])) <= 0.03 * sum(counts["constant"])
        for count in counts.values()
    )
    assert counts["early"][-1] == 36 - k
    assert counts["early"][0] == counts["late"][-1] == 0
    assert [a_share(36, 9)(left) for left in (4, 16, 36)] == [1, 4, 9]
    with pytest.raises(ValueError, match="candidates=all"):
        scheduled(constant, SCDM, TASK, Decoding(candidates="all"))


def test_trace_shows_predictions_of_tokens_while_latent():
    """An exact model of twins: once one is decoded, the other is certain, and no other latent is."""
    same = torch.eye(3, dtype=torch.float64)
    net, tokens = (
        Oracle(torch.einsum("ab,cd->abcd", same, same) + 1e-12),
        torch.zeros(64, 4, dtype=torch.long),
    )
    watched, seen = Foresight(), []
    watched.begin(64, 4)

    def watch(step):
        watched(step)
        seen.append([len(latents) for latents in step.latents])

    made = generate(
        net, METHODS["mdm"], tokens, torch.zeros_like(tokens, dtype=torch.bool), Decoding(1), 0, on_step=watch
    )
    agrees, ahead = watched.predictions(made.tokens.numpy().astype(np.uint8))
    assert [(ahead[:, step] > 0).sum() for step in range(4)] == [sum(count) for count in seen]
    assert (ahead <= np.arange(4, 0, -1)[None, :, None] - 1).all()
    order = made.order.numpy()
    for row in range(64):
        for step in range(1, 4):
            for later in range(step + 1, 4):
                position = order[row, later]
                assert ahead[row, step, position] == later - step
                if position ^ 1 in order[row, :step]:
                    assert agrees[row, step, position]


def test_a_board_dies_where_its_last_solution_is_lost(nano):
    """The counts are computed again board by board: a sample is valid if it never lost its last answer."""
    nano.method = METHODS["mdm"]
    config = EvalConfig(candidates=3, num_samples=12, batch_size=5)
    (row,) = evaluate(nano, TASK, config, watcher=partial(DeadEnds, TASK))
    found = row["dead_ends"]
    assert found[0]["alive"] == 12
    assert found[0]["died"] == 0  # a single cell never contradicts
    assert all(after["alive"] == before["alive"] - before["died"] for before, after in pairwise(found))
    assert 12 - sum(record["died"] for record in found) == row["valid"] / 100 * 12
    assert all(1 / 4 <= record["sure"] <= 1 for record in found)


def test_foresight_counts_each_latent_once(nano):
    nano.method = METHODS["scdm"]
    config = EvalConfig(latents=("all",), candidates=2, num_samples=6, batch_size=4)
    (row,), (plain,) = evaluate(nano, TASK, config, watcher=Foresight), evaluate(nano, TASK, config)
    found = row["foresight"]
    assert [record["steps"] for record in found] == list(range(1, 16))
    assert sum(record["seen"] for record in found) == 6 * sum(left - 2 for left in range(2, 17))
    assert all(
        record["hit"] <= record["seen"] and record["hit_right"] <= record["seen_right"] <= record["seen"]
        for record in found
    )
    assert sum(record["seen_right"] for record in found) == row["valid"] / 100 * sum(
        record["seen"] for record in found
    )
    assert row["valid"] == plain["valid"]


def test_a_schedule_has_no_cost_by_formula_and_says_its_name(nano):
    nano.method = METHODS["scdm"]
    rows = [
        evaluate(nano, TASK, EvalConfig(candidates=2, num_samples=2), adjust=partial(scheduled, shape))[0]
        for shape in (constant, early)
    ]
    assert [row["latents"] for row in rows] == [4, "early"]
    assert [row["paper_cost"] is None for row in rows] == [False, True]
    assert rows[0]["paper_cost"] == rows[0]["relative_cost"]


@pytest.mark.parametrize(
    "name",
    [
        "random",
        "of a unit",
        "constrained",
        "constrained of a unit",
        "most certain",
        "least certain",
        "relevant",
    ],
)
def test_a_row_says_which_latents_were_shown(nano, name):
    nano.method = METHODS["scdm"]
    variant = VARIANTS[name]
    (row,) = evaluate(
        nano, TASK, EvalConfig(latents=(2,), num_samples=2, **variant.evaluation), adjust=variant.adjust
    )
    assert row["latent_policy"] == name


def test_every_experiment_has_a_name_that_can_be_asked_for():
    assert set(get_args(ExperimentName)) == {
        *EXPERIMENTS,
        *CATALOGUE,
        "claims",
        "missing",
        "training-times",
        "all",
    }


def test_puzzle_to_infill_has_the_length_of_the_models_boards():
    asked = [
        recipe
        for scale in ("cpu", "paper")
        for recipe in recipes("figure-latents", scale, Path("runs"))
        if recipe.problems
    ]
    assert asked
    for recipe in asked:
        puzzles, boards = task_of(recipe.problems), task_of(recipe.data)
        examples = puzzles.generate(2, 0)
        infilled = puzzles.to_infill(examples, boards)
        assert infilled.tokens.shape == infilled.known.shape == (2, boards.length)
        assert boards.score(infilled.tokens)["valid"].all()
        assert infilled.known.sum() == (puzzles.givens(examples.tokens) >= 0).sum()


def test_a_setting_that_is_open_changes_no_hash():
    (recipe, *_) = recipes("table-1", "cpu", Path("runs"))
    assert None not in training_content(recipe.training).values()
    assert None not in evaluation_content(recipe.evaluation).values()
    asked = replace(recipe, training=replace(recipe.training, targets="all"))
    assert asked.hash != recipe.hash


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_cells_of_an_experiment_have_recipes_of_their_own(name):
    asked = recipes(name, "cpu", Path("runs"))
    assert len({recipe.hash for recipe in asked}) == len(asked)
    samples = Counter()
    for recipe in (
        one for one in asked if one.cell.variant and not one.cell.problems and not one.num_held_out
    ):
        assert recipe.evaluation.data is None
        samples[recipe.cell] += recipe.evaluation.num_samples
    watched = {cell for cell in samples if cell.variant.startswith("dead ends")}
    assert all(count >= (600 if cell in watched else 4_000) for cell, count in samples.items())
    table = markdown(lines(asked, {}), name)
    assert ("| variant |" in table) == any(recipe.cell.variant for recipe in asked)


def drawn(name, value):
    """Return the first panel of an experiment whose rows have equal values, and its lines."""
    asked = recipes(name, "cpu", Path("runs"))
    row = {"metric": "valid", "valid": value, "num_samples": 1_000, "train_seed": 0, "forward_passes": 36}
    shown = lines(asked, {recipe.hash: row for recipe in asked})
    own = [line for line in shown if panel_title(line) == panel_title(shown[0])]
    axes = Figure().subplots()
    painter(shown)(axes, own)
    return axes


def test_curves_have_a_true_axis():
    """arm, windows and ar-mtp form one curve over latents. k and the training share have logarithmic axes."""
    axes = drawn("figure-1", 40.0)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [
        "0",
        "2",
        "3",
        "4",
        "8",
        "15",
        "16",
        "all (35)",
    ]
    assert axes.get_xticks().tolist() == [0, 2, 3, 4, 8, 15, 16, 35]
    labels = axes.get_legend_handles_labels()[1]
    assert {
        "arm, left to right 40",
        "ar-mtp-window, ar-mtp, left to right",
        "ar-ntp, left to right",
        "scdm, top-prob",
        "mdm, top-prob 40",
    } <= set(labels)
    axes = drawn("ablation-candidates", 40.0)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [
        "1",
        "2",
        "4",
        "8",
        "16",
        "all (36)",
        "growing\n(clean + 1)",
    ]
    assert axes.get_xticks()[:5].tolist() == [0, 1, 2, 3, 4]
    ends = {
        curve.get_label(): curve.lines[0].get_xdata()[-1]
        for curve in axes.containers
        if not curve.get_label().startswith("_")
    }
    assert set(ends.values()) == {np.log2(36)}  # scdm n=0 too: k = all leaves no latent tokens
    assert {"scdm, top-prob, n=0", "scdm, top-prob, n=all", "sidm, top-prob", "mdm, top-prob"} == set(
        axes.get_legend_handles_labels()[1]
    )
    axes = drawn("figure-compute", 40.0)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["12.5", "25", "50", "100"]
    axes = drawn("ablation-refresh", 40.0)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["not reshuffled", "reshuffled (default)"]
    assert axes.get_legend_handles_labels()[1] == ["n = 4", "n = 8", "n = all"]


def test_adaptive_candidates_have_a_panel_of_their_own():
    panels = panels_of(results_of("figure-1-9x9"))
    assert [panel.title for panel in panels] == ["sudoku-9", "sudoku-9, top-prob, adaptive k"]
    axes = Figure().subplots()
    panels[1].paint(axes, panels[1].lines)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "all (35)"]


def test_numbers_of_one_policy_only_are_dashed_lines():
    axes = drawn("ablation-latents", 40.0)
    assert axes.get_legend_handles_labels()[1] == ["n = 4", "n = 8", "n = 0", "n = all"]
    assert [tick.get_text() for tick in axes.get_yticklabels()][-2:] == ["random", "nearest (default)"]


def test_the_legend_says_so_if_a_method_has_no_choice_of_n():
    assert drawn("ablation-targets", 40.0).get_legend_handles_labels()[1][-1] == "fixed n"


def test_captions_name_samples_seeds_candidates_and_threads(tmp_path):
    row = {"metric": "valid", "valid": 40.0, "num_samples": 1_000, "train_seed": 0, "order": "top_prob"}
    measured = row | {"candidates": 4, "device": "cpu", "threads": 1, "forward_passes": 36}
    asked = recipes("ablation-refresh", "cpu", Path("runs"))
    draw(
        lines(asked, {recipe.hash: measured | {"train_seed": recipe.training.seed} for recipe in asked}),
        "ablation-refresh",
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
    asked = recipes("ablation-infilling", "cpu", Path("runs"))
    shown = lines(asked, {recipe.hash: measured for recipe in asked})
    draw(shown, "ablation-infilling", "a command", tmp_path / "a")
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
        for k in ["growing" if line.cell.variant else 8]
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
    for panel in panels_of(shown):
        axes = Figure().subplots()
        panel.paint(axes, panel.lines)
        labels[panel.title] = set(axes.get_legend_handles_labels()[1])
    assert labels["zebra"] == {"scdm, top-prob, k=8", "sidm, top-prob, k=all 40", "mdm, top-prob, k=all 40"}
    assert labels["countdown"] == {"scdm, top-prob", "sidm, top-prob 40", "mdm, top-prob 40"}


def test_table_has_no_candidates_that_are_equal_or_named_by_variants():
    equal = with_candidates("figure-latents", "paper", lambda cell: 8)
    named = with_candidates("ablation-candidates", "cpu", lambda cell: cell.variant.removeprefix("k="))
    assert "| k |" not in markdown(equal, "figure-latents")
    assert "| k |" not in markdown(named, "ablation-candidates")
    assert "| k |" not in markdown(lines(recipes("table-1", "cpu", Path("runs")), {}), "table-1")
    growing = with_candidates(
        "ablation-growing", "cpu", lambda cell: "growing" if "k=" in cell.variant else 4
    )
    assert "| top-prob | 4 | all | default |" in markdown(growing, "ablation-growing")


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


def test_confidences_have_a_panel_each_over_candidates():
    panels = panels_of(results_of("ablation-confidence"))
    names = ("top-prob", "margin", "entropy", "top-prob, noise 1", "top-prob, noise 4.5")
    assert [panel.title for panel in panels] == [f"sudoku-6, {name}" for name in names]
    for panel, name in zip(panels, names, strict=True):
        axes = Figure().subplots()
        panel.paint(axes, panel.lines)
        ticks = [tick.get_text() for tick in axes.get_xticklabels()]
        assert ticks == ["8", "all (36)", "growing\n(clean + 1)"]
        order = name.split(",")[0]
        methods = {"scdm, {}, n=0", "scdm, {}, n=all", "sidm, {}", "mdm, {}"}
        assert {label.format(order) for label in methods} == set(axes.get_legend_handles_labels()[1])
        ends = [curve.lines[0].get_xdata()[-1] for curve in axes.containers[::2]]
        assert ends == [np.log2(36)] * 4  # scdm n=0 too: k = all leaves no latent tokens


def test_panels_of_the_same_quantity_share_their_limits():
    first, second, other = Figure().subplots(1, 3)
    for axes, quantity, top in ((first, "valid %", 40), (second, "valid %", 90), (other, "nats", 3)):
        axes.set(ylabel=quantity, ylim=(0, top))
    share_limits([first, second, other])
    assert [axes.get_ylim() for axes in (first, second, other)] == [(0, 90), (0, 90), (0, 3)]


@pytest.mark.parametrize(("name", "shared"), [("ablation-confidence", True), ("ablation-refresh", False)])
def test_curves_of_one_task_share_their_limits(name, shared, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(drawing, "share_limits", shown.append)
    monkeypatch.setattr(drawing, "save_sheet", lambda *args: [])
    draw(results_of(name), name, "a command", tmp_path / name)
    assert bool(shown) == shared


def test_table_has_the_diversity_of_rows_that_have_it():
    shown = results_of("ablation-confidence")[:2]
    measured = {"distinct_share": 99.5, "intercalates": 8.5, "reference_intercalates": 9.25}
    costs = {"relative_cost": 1.0, "paper_cost": None}
    with_diversity, without = (
        replace(line, rows=tuple({**row, **costs, **extra} for row in line.rows))
        for line, extra in zip(shown, (measured, {}), strict=True)
    )
    table = markdown([with_diversity, without], "ablation-confidence")
    heading, _, first, second, *_ = table.splitlines()
    assert "| distinct % | intercalates (reference) |" in heading
    assert "| k=8 |" in first
    assert "| 99.5 | 8.50 (9.25) |" in first
    assert "| k=growing |" in second
    assert "|  |  | 1.00x |" in second
    assert "intercalates" not in markdown([without], "ablation-confidence").lower()


def test_highest_interval_of_a_panel_is_below_its_top():
    """A panel of nearly equal shares had hardly any room, so that its markers were cut off."""
    alike = [
        replace(line, rows=tuple({**row, "valid": 94.0} for row in line.rows))
        for line in results_of("figure-1")
    ]
    (panel,) = panels_of(alike)
    axes = Figure().subplots()
    panel.paint(axes, panel.lines)
    highest = max(line.interval[1] for line in alike)
    assert axes.get_ylim() == (0, pytest.approx(1.05 * highest))


def curves_of(panel):
    """Return the points of each curve of a panel, and the notes at them and above."""
    axes = Figure().subplots()
    panel.paint(axes, panel.lines)
    points = {
        curve.get_label(): list(zip(*(data.tolist() for data in curve.lines[0].get_data()), strict=True))
        for curve in axes.containers
    }
    above = {f"n={label.get_text()}" for top in axes.child_axes for label in top.get_xticklabels()}
    return points, {text.get_text() for text in axes.texts} | above


def test_frontier_has_tokens_per_sample_on_its_axis():
    """A panel for each way of decoding, a curve for each method, and n above."""
    panels = token_panels(results_of("figure-depth"), EXPERIMENTS["figure-depth"].over)
    assert [panel.title for panel in panels] == [
        "sudoku-6, top-prob, k = 8",
        "sudoku-6, top-prob, k = 4",
        "sudoku-6, uniform",
    ]
    every = SCALES["cpu"].dial
    for panel, dial in zip(panels, (every, (0, "all"), (0, "all")), strict=True):
        points, notes = curves_of(panel)
        expected = [(700, 40), *[(1_296, 50)] * (len(dial) - 1)]
        assert points == {
            "sidm": [(1_296, 50)],
            "mdm": [(1_296, 50)],
            **dict.fromkeys(("scdm", "scdm-depth", "mdm-depth"), expected),
            **({"mdm, off-distribution": expected[:-1]} if dial is every else {}),
        }
        assert {"", "n=0"} < notes <= {"", *(f"n={n}" for n in dial)}  # here most n share a place


def test_equal_compute_has_tokens_of_training_and_of_inference():
    trained, decoded = token_panels(
        results_of("figure-equal-compute"), EXPERIMENTS["figure-equal-compute"].over
    )
    tokens = 3_400 * 32 * 36
    points, _ = curves_of(trained)
    assert set(points) == {"scdm, n=0", "scdm, n=all", "sidm", "mdm", "ar-mtp", "arm"}
    for curve in points.values():  # each is beside its place, or they would hide each other
        assert [place for place, _ in curve] == pytest.approx([tokens, 3 * tokens], rel=0.07)
    assert len({curve[0][0] for curve in points.values()}) == len(points)
    assert [accuracy for _, accuracy in points["scdm, n=0"]] == [40, 40]
    assert [accuracy for _, accuracy in points["arm"]] == [50, 50]
    points, notes = curves_of(decoded)
    assert points["scdm, n=0"] == [(700, 40), (700, 40)]
    assert notes == {"", "3x"}
    axes = Figure().subplots()
    decoded.paint(axes, decoded.lines)
    styles = {curve.get_label(): curve.lines[0].get_linestyle() for curve in axes.containers}
    assert (styles["scdm, n=0"], styles["scdm, n=all"]) == ("--", "-")


@pytest.mark.parametrize("name", ["figure-depth", "figure-equal-compute"])
def test_figures_over_tokens_are_written(name, tmp_path):
    paths = draw(results_of(name), name, "a command", tmp_path / name)
    assert [path.suffix for path in paths] == [".png", ".svg"]
    assert all(path.stat().st_size > 10_000 for path in paths)
    assert draw(lines(recipes(name, "cpu", Path("runs")), {}), name, "a command", tmp_path / "none") == []


def test_lines_of_equal_steps_are_not_a_curve_over_steps():
    assert painter(results_of("ablation-steps")) is dots


def test_models_of_more_steps_train_three_times_as_long():
    plain, more = (
        {
            recipe.cell.method: recipe.training
            for recipe in recipes("figure-equal-compute", "cpu", Path("runs"))
            if recipe.cell.variant == name
        }
        for name in ("plain", "300 % of the steps")
    )
    assert plain.keys() == more.keys() == {"scdm", "sidm", "mdm", "ar-mtp", "arm"}
    for method, training in more.items():
        assert (training.steps, training.warmup) == (3 * plain[method].steps, 3 * plain[method].warmup)
