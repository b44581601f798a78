"""Missing results: the models to train with their seeds and hours, of claims and of every experiment."""

import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from helpers.documentation import ROOT
from latent_tokens.cli import main
from latent_tokens.configs import ReproduceConfig
from latent_tokens.paper.design.cells import Cell
from latent_tokens.paper.design.experiments import EXPERIMENTS
from latent_tokens.paper.design.recipes import of_cells, recipes
from latent_tokens.paper.reproduce import reproduce
from latent_tokens.paper.running.runs import measured
from latent_tokens.paper.tables.claims import claims_table, decided, overview
from latent_tokens.paper.tables.missing import Rates, missing_table, models_of, rates_of
from latent_tokens.paper.tables.seed_variance import seed_variance
from latent_tokens.paper.tables.training_times import training_times

sys.path.append(str(ROOT / "scripts"))

import page_tables
import results_page

RUNS = Path("runs/paper")
ROWS = ROOT / "results" / "cpu" / "rows.jsonl"
STORED = measured(ROWS)


def test_every_missing_model_is_in_one_line():
    _, *table, total = missing_table("cpu", RUNS, STORED)
    every = {recipe.hash: recipe for name in EXPERIMENTS for recipe in recipes(name, "cpu", RUNS)}
    missing = [recipe for recipe in every.values() if recipe.hash not in STORED]
    models = {recipe.model for recipe in missing}
    counted = [number for *_, listed, _, _ in table for number in re.findall(r"\d+(?=[,)])", listed)]
    assert total[2:4] == (f"{len(models)} models", f"{len(missing):,}")
    assert sum(int(line[3]) for line in table) == len(missing)
    assert len(counted) >= len(table)
    hours = sum(float(line[4]) for line in table)
    assert float(total[4]) == pytest.approx(hours, abs=0.05 * len(table))


def test_a_line_names_the_experiments_that_need_its_models():
    results = {recipe.hash: {} for name in EXPERIMENTS for recipe in recipes(name, "cpu", RUNS)}
    of_arm = of_cells([Cell("zebra", "arm", "left_to_right")], "cpu", RUNS)
    for recipe in of_arm[1:]:
        del results[recipe.hash]
    timed = {"train_seconds": 0.0, "evaluate_seconds": 36.0}
    (line,) = missing_table("cpu", RUNS, dict.fromkeys(results, timed))[1:]
    assert line == ("zebra-compact-3", "table-ar-mtp", "arm (1, 2)", "2", "")


def test_hours_count_a_model_once_and_every_result():
    both = of_cells([Cell("zebra", "mdm", order) for order in ("uniform", "top_prob")], "cpu", RUNS, 1)
    assert len({recipe.model for recipe in both}) == 1
    assert both[0].trained_tokens == 8_000 * 64 * 19
    assert both[0].data.task == "zebra-compact-3"
    tokens = 8_000 * 64 * 19
    of_all = {(None, "bf16"): 1e-4, (None, "fp32"): 1.0}
    assert Rates(of_all, {None: 18}).hours(both) == pytest.approx(tokens * 1e-4 / 3600 + 0.01)
    of_task = of_all | {
        ("zebra-compact-3", "bf16"): 2e-4,
        ("zebra-compact-3", "fp32"): 5.0,
        ("text", "bf16"): 7.0,
    }
    rates = Rates(of_task, {None: 18, "zebra-compact-3": 36, "text": 7})
    assert rates.hours(both) == pytest.approx(tokens * 2e-4 / 3600 + 0.02)
    assert Rates({(None, "fp32"): 1e-3}, {None: 0}).hours(both) == pytest.approx(tokens * 1e-3 / 3600)


def test_rates_are_medians_of_models_and_of_results():
    """Two results of one model are one time of training."""
    first, second, other = (
        recipe
        for order, seeds in (("uniform", 1), ("top_prob", 2))
        for recipe in of_cells([Cell("zebra", "mdm", order)], "cpu", RUNS, seeds)
    )
    tokens = first.trained_tokens
    times = {first: (tokens, 10), second: (tokens, 20), other: (3 * tokens, 60)}
    results = {
        recipe.hash: {"train_seconds": trained, "evaluate_seconds": seconds}
        for recipe, (trained, seconds) in times.items()
    }
    assert rates_of(times, results) == Rates(
        {("zebra-compact-3", "bf16"): 2, (None, "bf16"): 2}, {"zebra-compact-3": 20, None: 20}
    )
    assert rates_of(times, {}) is None


def test_models_are_grouped_by_their_seeds_and_named_by_what_their_training_changes():
    cells = [
        Cell("sudoku-gen", "mdm", "uniform"),
        Cell("sudoku-gen", "sidm", "uniform"),
        Cell("sudoku-gen", "ar-mtp", "left_to_right", variant="elbo"),
        Cell("sudoku-gen", "arm", "left_to_right", variant="elbo"),
        Cell("sudoku-gen", "mdm", "top_prob", variant="k=8"),
    ]
    listed = of_cells(cells, "cpu", RUNS, 2)
    assert models_of(listed) == "mdm, sidm (0, 1); ar-mtp, arm [elbo weight] (0, 1)"
    assert models_of(listed[1:8]) == "mdm (1); sidm (0, 1); ar-mtp, arm [elbo weight] (0, 1)"


def test_an_open_claim_names_its_models_hours_and_command():
    without = {name: row for name, row in STORED.items() if not row["model"].startswith("sudoku-6-arm-2-")}
    table = claims_table("cpu", RUNS, without).splitlines()
    (of_claim,) = (line for line in table if line.startswith("| sudoku-6 | ar-mtp > arm |"))
    assert re.search(r"\| no claim: 2 seeds \| arm \(2\), 0\.\d h: `figure-1` \|$", of_claim)
    (decided_one,) = (line for line in table if line.startswith("| sudoku-6 | mdm > sidm, top-prob |"))
    assert decided_one.endswith(" | yes |  |")
    (of_text,) = (line for line in table if line.startswith("| text | mdm < esolm n=0 |"))
    assert "mdm, esolm (1, 2), " in of_text
    assert of_text.endswith(" h: `figure-text --seeds 3` |")


def test_claims_and_missing_results_have_the_same_hours():
    table = claims_table("cpu", RUNS, STORED).splitlines()
    (of_claim,) = (
        line for line in table if line.startswith("| zebra-compact-3 | mdm top-prob > mdm uniform |")
    )
    (of_experiments,) = (
        line
        for line in missing_table("cpu", RUNS, STORED)
        if line[0] == "zebra-compact-3" and line[2] == "mdm (0, 1, 2)"
    )
    hours = float(re.search(r"mdm \(0, 1, 2\), ([\d.]+) h", of_claim)[1])
    assert 0.7 * float(of_experiments[4]) < hours <= float(of_experiments[4])  # of fewer results


def test_claims_on_fewer_seeds_than_they_need_ask_for_the_missing_ones_only():
    table = claims_table("cpu", RUNS, STORED, seeds=2)
    assert "no claim: 2 seeds" in table
    assert ", 0.0 h: " not in table


def test_adapted_models_have_no_hours():
    """Their training is in no rate."""
    results = {recipe.hash: STORED.get(recipe.hash) or {} for recipe in recipes("figure-worth", "cpu", RUNS)}
    of_worth = {name for name, row in results.items() if row.get("cell", {}).get("task") == "smollm2"}
    without = {name: row for name, row in STORED.items() if name not in of_worth}
    (of_adapted,) = (line for line in missing_table("cpu", RUNS, without) if "ar-latents" in line[2])
    assert of_adapted[3:] == (str(len(of_worth)), "")


def test_claims_without_any_result_have_no_hours():
    table = claims_table("cpu", RUNS, {})
    assert "| not run | mdm, sidm (0, 1, 2): `table-1` |" in table
    assert " h: " not in table


def test_the_overview_has_each_claim_of_the_paper_once_per_task():
    listed = decided("cpu", RUNS, STORED, None, ROWS)
    headings, *table = overview(listed)
    of_paper = [each for each in listed if not each.claim.source.startswith("ours")]
    texts = list(dict.fromkeys(each.claim.text for each in of_paper))
    assert [row[0].removesuffix(" (implied)") for row in table] == texts
    assert sum(len(cell.split("; ")) for row in table for cell in row[1:] if cell) == len(of_paper)
    cells = {row[0]: dict(zip(headings, row, strict=True)) for row in table}
    assert cells["mdm top-prob > ar-mtp"]["the reverse"].startswith("sudoku-6 -15.5 (")
    assert cells["ar-mtp > arm"]["reproduced"].startswith("sudoku-6 +45.3 (")
    assert cells["scdm n=all > sidm (implied)"]["undecided"].startswith("sudoku-6 +1.1 (")


def test_the_command_prints_the_table_and_runs_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["reproduce", "missing", "--scale", "smoke"])
    printed = capsys.readouterr().out
    assert "| zebra-compact-3 | table-ar-mtp | arm, ar-mtp (0) | 2 |  |" in printed
    assert re.search(r"^\| all \|  \| \d+ models \| \d+ \|  \|$", printed, re.M)
    assert not list(tmp_path.iterdir())


def test_the_page_has_the_tables_of_the_stored_results():
    page = results_page.PAGE.read_text(encoding="utf-8")
    assert page_tables.filled(page, results_page.tables()) == page


def test_tables_of_a_page_are_replaced_by_name():
    page = "a\n<!-- table x -->\nold\n<!-- end -->\nb\n<!-- table y -->\nstays\n<!-- end -->\n"
    assert page_tables.names_of(page) == ["x", "y"]
    assert page_tables.filled(page, {"x": r"new \1" + "\n"}) == page.replace("old", r"new \1")
    with pytest.raises(ValueError, match="the page has no <!-- table z -->"):
        page_tables.filled(page, {"z": ""})


def test_the_variance_between_seeds_is_over_that_of_the_samples():
    """40, 50 and 60 of 100 have the variance 100, and their samples 24, 25 and 24."""
    listed = of_cells([Cell("sudoku-gen", "mdm", "uniform")], "cpu", RUNS)

    def table(*percent: float) -> list[tuple[str, ...]]:
        rows = (
            {"train_seed": seed, "metric": "valid", "valid": value, "num_samples": 100}
            for seed, value in enumerate(percent)
        )
        return seed_variance("cpu", RUNS, dict(zip([each.hash for each in listed], rows, strict=False)))[1:]

    assert table(40.0, 50.0, 60.0) == [("sudoku-6", "1", f"{100 / (73 / 3):.1f}")]
    assert table(40.0, 50.0) == []  # fewer than three seeds
    assert table(0.0, 0.0, 0.0) == []  # no variance of samples


def test_every_interval_of_the_page_is_one_of_the_claims():
    """A difference may be written the other way round, which turns its signs."""
    of_claims = {interval for _, interval in intervals_in(claims_table("cpu", RUNS, STORED))}
    page = (ROOT / "docs" / "results.md").read_text()
    listed = intervals_in(page)
    assert len(listed) > 90
    assert [text for text, interval in listed if interval not in of_claims] == []


def intervals_in(text: str) -> list[tuple[str, tuple[bool, frozenset[str]]]]:
    """Return every "(LOW to HIGH)" of a text, whether it has zero inside, and its bounds without signs."""
    found = re.findall(r"(?<=[( ])([+-]?[\d.]+) to ([+-]?[\d.]+)(?=\))", text)
    return [
        (
            f"{low} to {high}",
            (float(low) < 0 < float(high), frozenset((low.lstrip("+-"), high.lstrip("+-")))),
        )
        for low, high in found
    ]


def test_infilling_puzzles_are_a_task_of_their_own():
    rows = Counter(str(row["cell"]) for row in STORED.values() if row["cell"].get("problems"))
    settings = sum(number >= 3 for number in rows.values())
    by_task = {task: number for task, number, _ in seed_variance("cpu", RUNS, STORED)[1:]}
    assert by_task["sudoku-6, infilling puzzles"] == str(settings)


def test_training_times_have_every_training_of_the_results():
    headings, *table = training_times("cpu", RUNS, STORED)
    trained = {(row["model"], row["weights_sha256"]) for row in STORED.values() if row["train_seconds"]}
    by_seed = headings.index("seconds by seed")
    assert sum(line[by_seed].count(": ") for line in table) == len(trained)
    hours = sum(
        {key: row["train_seconds"] for row in STORED.values() for key in [row["weights_sha256"]]}.values()
    )
    assert table[-1][by_seed] == f"{len(trained)} trainings, {hours / 3600:.1f} hours"
    (of_arm,) = (line for line in table if line[:3] == ("sudoku-6", "arm", "3,400"))
    assert re.fullmatch(r"0: \d+, 0: \d+, 1: \d+, 1: \d+, 2: \d+, 2: \d+", of_arm[by_seed])


def test_reports_without_results_name_the_directory(tmp_path):
    for experiment in ("claims", "training-times"):
        config = ReproduceConfig(experiment, out=tmp_path / "resluts")
        with pytest.raises(ValueError, match=r"out=.*resluts: .* has no results\. Name the directory"):
            reproduce(config)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["claims", "training-times"])
def test_stored_report_is_that_of_the_rows(name, tmp_path):
    (tmp_path / "cpu").mkdir()
    shutil.copy(ROWS, tmp_path / "cpu")
    assert reproduce(ReproduceConfig(name, out=tmp_path)) == (ROWS.parent / f"{name}.md").read_text()
