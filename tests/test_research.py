"""research/: every script prints its stored table, and what it measures is what it says."""

import hashlib
import importlib.util
import json
import re
import sys

import numpy as np
import pytest
import torch

from helpers.documentation import ROOT
from helpers.oracle import Oracle, small_joint
from helpers.runs import tiny_run
from helpers.tiny_models import tiny_model
from latent_tokens import METHODS, TASKS, DataConfig, Decoding, PolicyInput, fit, make_data
from latent_tokens.core.sampling import generate
from latent_tokens.paper.tables import interval_over_seeds

RESEARCH = ROOT / "research"
FOLDERS = sorted(path.parent.name for path in RESEARCH.glob("*/README.md"))
TASK = TASKS["sudoku-4"]
ORACLE_LENGTH = 5


def script_of(folder):
    """Import the script of a folder."""
    path = RESEARCH / folder / f"{folder.replace('-', '_')}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


adapting = script_of("adapting")
dead_ends = script_of("dead-ends")
predictions = script_of("predictions")
timing = script_of("timing")
latent_choice = script_of("latent-choice")
nats = script_of("nats")
confidence = script_of("confidence")
tables = sys.modules["tables"]
teacher_forced_order = nats.teacher_forced_order


@pytest.mark.parametrize("folder", FOLDERS)
def test_script_prints_the_stored_table(folder, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [folder])
    script_of(folder).main()
    assert capsys.readouterr().out == (RESEARCH / folder / "table.md").read_text()


def test_every_folder_is_in_the_list_of_questions():
    listed = re.findall(r"^\| \[([\w-]+)\]\(\1/README.md\)", (RESEARCH / "README.md").read_text(), re.M)
    assert sorted(listed) == FOLDERS


def test_rows_are_those_of_the_checksums():
    assert (RESEARCH / "SHA256SUMS").read_text() == tables.checksums()
    for line in (RESEARCH / "SHA256SUMS").read_text().splitlines():
        checksum, name = line.split("  ")
        assert hashlib.sha256((RESEARCH / name).read_bytes()).hexdigest() == checksum


def intervals_in(text):
    """Return every "(LOW to HIGH)" of a text, whether it has zero inside, and its bounds without signs."""
    found = re.findall(r"(?<=[( ])([+-]?[\d.]+)\s+to\s+([+-]?[\d.]+)(?=\))", text)
    return {
        (float(low) < 0 < float(high), frozenset((low.lstrip("+-"), high.lstrip("+-"))))
        for low, high in found
    }


def test_every_interval_of_a_page_is_in_a_table():
    """A difference may be written the other way round, which turns its signs."""
    stored = [RESEARCH / folder / "table.md" for folder in FOLDERS]
    stored.append(ROOT / "results" / "cpu" / "claims.md")
    of_tables = set().union(*(intervals_in(path.read_text()) for path in stored))
    pages = [RESEARCH / folder / "README.md" for folder in FOLDERS] + [ROOT / "docs" / "results.md"]
    of_pages = {path: intervals_in(path.read_text()) for path in pages}
    assert sum(map(len, of_pages.values())) > 90
    assert {path: found - of_tables for path, found in of_pages.items() if found - of_tables} == {}


def test_intervals_follow_the_rule_of_the_package():
    for values in ([40.0, 41.0, 45.0], [40.0, 41.0], [40.0, 40.0, 40.0]):
        expected = interval_over_seeds(values, (39.0, 42.0))[:2]
        assert tables.interval_over_seeds(values, (39.0, 42.0)) == expected
    assert tables.verdict((1.0, 2.0), 3, False, 0) == tables.verdict((-2.0, -1.0), 3, True, 0) == "yes"
    assert tables.verdict((-2.0, -1.0), 3, False, 0) == "no, the reverse"
    assert tables.verdict((-2.0, 1.0), 3, False, 3) == "yes"
    assert tables.verdict((-5.0, -4.0), 3, False, 3) == "no"
    assert tables.verdict((-5.0, 4.0), 3, False, 3) == "undecided"
    assert tables.verdict((1.0, 2.0), 2, False, 0) == "no claim: 2 seeds"


def test_intercalates_of_known_squares():
    """Cyclic squares have side^2 / 4 if the side is even, else none. Those of xor have the maximum."""
    for side, expected in ((4, 4), (5, 0), (6, 9), (9, 0)):
        index = np.arange(side)
        cyclic = (index[:, None] + index) % side
        assert confidence.num_intercalates(cyclic.reshape(1, -1), side).tolist() == [expected]
    index = np.arange(8)
    klein = index[:, None] ^ index
    assert confidence.num_intercalates(klein.reshape(1, -1), 8).tolist() == [8**2 * 7 // 4]


def test_share_of_boards_that_differ_from_all_others():
    assert confidence.share_of_distinct(np.array([[0, 1], [0, 1], [1, 0], [2, 0]])) == 2 / 4


@pytest.mark.parametrize("k", [1, 4])
def test_schedules_show_as_many_latents_in_all(k):
    def numbers(name):
        latents = timing.scheduled(name, TASKS["sudoku-6"].length, k)
        return [min(latents(n) if callable(latents) else latents, max(0, n - k)) for n in range(1, 37)]

    counts = {name: numbers(name) for name in timing.SCHEDULES}
    total = sum(counts["constant"])
    assert all(abs(sum(count) - total) <= 0.03 * total for count in counts.values())
    assert counts["early"][-1] == 36 - k
    assert counts["early"][0] == counts["late"][-1] == 0
    assert [timing.a_share(36, 9)(left) for left in (4, 16, 36)] == [1, 4, 9]


def shown_by(choice, order, clean, latents):
    """Return the latent tokens of a choice in one row with one candidate, in their order."""
    row = torch.tensor([order])
    numbers = (torch.tensor([number]) for number in (clean, len(order) - clean, 1, latents))
    found = choice(None, TASK)(PolicyInput(row, *numbers, row))
    return found[0, clean + 1 : clean + 1 + latents].tolist()


def test_latents_of_a_unit_and_constrained_ones():
    order = [15, 14, 13, 0, *range(1, 13)]
    assert set(shown_by(latent_choice.of_a_unit, order, 3, 7)) == {1, 2, 3, 4, 5, 8, 12}
    assert shown_by(latent_choice.constrained, order, 3, 1) == [12]  # in a row with all clean cells
    assert shown_by(latent_choice.constrained_of_a_unit, order, 3, 1) == [12]  # units with both sides
    # Clean: 5, 9, 13. Candidate: 10. 2 shares its column, 1 a column with all clean cells, 8 row and box.
    order = [5, 9, 13, 10, 0, 1, 2, 3, 4, 6, 7, 8, 11, 12, 14, 15]
    names = ("of a unit", "constrained", "constrained of a unit")
    assert [shown_by(latent_choice.OF_RULES[name], order, 3, 1) for name in names] == [[2], [1], [8]]


@pytest.mark.slow
def test_models_are_measured_anew(tmp_path, capsys):
    """Each script with decoding code of its own measures a model."""
    run = fit(tiny_run(tmp_path / "run", steps=1))
    timing.measure(run, 2)
    latent_choice.measure(run, 2)
    nats.measure("sudoku-6-scdm", 2)
    assert dead_ends.measure("sudoku-6-mdm", 2, candidates=8)["dead_ends"]
    assert predictions.measure("sudoku-6-mdm", 2)["foresight"]
    printed = capsys.readouterr().out.splitlines()
    assert sum("nats per cell" in line for line in printed) == 2 * len(nats.NUMBERS)
    assert sum("% at " in line for line in printed) == 2 * 4 + 2 * 8 * 2


def test_entropy_of_all_4x4_boards():
    """The solver draws each of the 288 boards, nearly equally often."""
    found = nats.entropy_per_cell(TASK, 20_000, 0)
    assert found == pytest.approx(np.log(288) / 16, abs=0.005)


@pytest.fixture(scope="module")
def oracle():
    return Oracle(small_joint(length=ORACLE_LENGTH))


def test_teacher_forced_order_of_a_sample_is_that_of_its_decoding(oracle):
    """With the same seed, the sample is what teacher forcing writes. Known positions and lengths count."""
    known = torch.zeros(64, ORACLE_LENGTH, dtype=torch.bool)
    known[::2, 1] = True
    lengths = torch.tensor([5, 4]).repeat(32)
    decoding = Decoding(candidates=2, latents=2)
    given = torch.zeros_like(known).long()
    made = generate(oracle, METHODS["scdm"], given, known, decoding, 1, lengths=lengths)
    order = nats.teacher_forced_order(
        oracle, METHODS["scdm"], made.tokens, known, decoding, 1, lengths=lengths
    )
    assert torch.equal(order, made.order)
    other = (made.tokens + 1) % 3
    assert not torch.equal(
        teacher_forced_order(oracle, METHODS["scdm"], other, known, decoding, 1, lengths=lengths),
        made.order,
    )


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A model of transformers, a data set, and a function that trains an adapter of the model."""
    folder = tmp_path_factory.mktemp("adapting")
    for number in range(120):
        (folder / f"{number}.txt").write_text(f"{number} {('cats', 'dogs', 'birds')[number % 3]} ran.")
    source = {"source": str(folder), "length": 12, "tokenizer": "bytes"}
    data = make_data(DataConfig("text", folder / "data", **source))
    tiny_model("llama", vocab_size=257).save_pretrained(folder / "base")
    settings = {"batch_size": 2, "warmup": 1, "lora": 2, "lr": 1e-2, "precision": "fp32"}

    def train(method, steps, every):
        out = folder / f"run-{method}"
        settings.update(steps=steps, evaluate_every=every, save_every=every)
        return fit("text", method, out=out, data=data, start=folder / "base", **settings)

    return folder / "base", data, train


@pytest.fixture
def measure(adapted, tmp_path, monkeypatch, capsys):
    """Measure runs with rows of their own, and four sequences, or two at a checkpoint. Return the output."""
    for name, value in {"ROWS": tmp_path / "rows.jsonl", "SEQUENCES": 4, "FEW": 2}.items():
        monkeypatch.setattr(adapting, name, value)

    def of(*runs):
        monkeypatch.setattr(sys, "argv", ["adapting.py", *map(str, (*adapted[:2], *runs))])
        adapting.main()
        return capsys.readouterr().out, [json.loads(line) for line in adapting.ROWS.read_text().splitlines()]

    return of


@pytest.mark.slow
def test_adapted_models_are_measured_once_and_rendered(adapted, measure):
    run = adapted[2]("ar-latents", 4, 2)
    for arguments in ([], [run], [run]):
        text, rows = measure(*arguments)
    of_run = [(row["step"], row["latents"], len(row["nats"])) for row in rows[1:]]
    at_checkpoints = [(2, 0, 2), (2, 8, 2), (4, 0, 2), (4, 8, 2)]
    assert of_run == [*at_checkpoints, (4, 0, 4), (4, 8, 4), (4, 64, 4), (4, "all", 4)]
    assert (rows[0]["model"], rows[0]["method"]) == ("base", "arm")
    assert rows[1]["weights_sha256"] != rows[3]["weights_sha256"]
    assert rows[4]["nats"] != rows[3]["nats"]
    assert text.count("| run-ar-latents | ar-latents | 4 |") == 4
    assert f"{sum(rows[0]['nats']) / sum(rows[0]['tokens']):.3f} ± " in text
    (part,) = adapting.parts_of(adapted[0], adapted[2]("scdm", 2, 1))  # without a cache: at its end
    assert (part.step, part.sequences, part.latents) == (2, 4, (0, 8, "all"))


def test_histories_are_trained_measured_and_tabled(tmp_path, monkeypatch):
    """One run after another method, and two runs: n = 0 and all, with the dial of a single seed."""
    monkeypatch.setattr(sys, "argv", ["history"])
    history = script_of("history")
    histories = sys.modules["histories"]
    few = {"size": "pico", "batch_size": 4, "num_validation": 10}
    settings = ("sudoku-4", 8, 100, few, 4, (0, "all"))
    monkeypatch.setattr(histories, "RUNS", tmp_path)
    monkeypatch.setitem(histories.SETTINGS, "boards", histories.Setting(*settings, (), (), ()))
    path = tmp_path / "rows.jsonl"
    for runs, redrawn in ((1, 0), (2, 0), (2, 1)):
        histories.measure(histories.History("boards", "scdm", "mdm", 0.5, runs, 0, redrawn), path, 8)
    lines = history.table(history.read_results(path)).splitlines()[2:]
    assert [line.split(" | ")[2:6] for line in lines] == [
        ["mdm", "50%", runs, n] for runs in ("1", "2", "2, redrawn") for n in ("0", "all")
    ]
    trained = [
        json.loads((path / "config.json").read_text())["training"] for path in tmp_path.glob("boards-*")
    ]
    assert sorted((run["steps"], run.get("first")) for run in trained if run["method"] == "scdm") == [
        (4, None),
        (4, None),
        (8, "mdm:4"),
    ]

    # Why: sidm's masked tokens attend to themselves and to clean ones only, so n changes no loss.
    why = importlib.import_module("why")
    sidm = histories.History("boards", "sidm")
    histories.trained(sidm)
    (*_, last) = why.measured(sidm, why.inputs_of("boards"))
    assert last["loss_0"] == pytest.approx(last["loss_all"])
    assert last["step"] == 8
    assert last["attention"] == [0, 0]
