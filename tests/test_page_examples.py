"""The example puzzles and counts of the page: they were measured with the bundled weights."""

import json
import sys

import pytest
import torch

from helpers.documentation import ROOT
from helpers.page import decoded, model
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.configs import SamplingConfig
from latent_tokens.page.document import stored_curve
from latent_tokens.storage import sha256_of
from latent_tokens.trace.examples import COMPARISONS, PAGE_RECORD, compared, measured, puzzles, solved
from latent_tokens.trace.record import DecodeRequest, trace

sys.path.append(str(ROOT / "scripts"))

import page_examples

KINDS = {(False, True): "gained", (True, False): "lost", (True, True): "both", (False, False): "neither"}
RECORD = json.loads(PAGE_RECORD.read_text())


@pytest.fixture(scope="module")
def six():
    return model("sudoku-6-scdm")


@pytest.mark.parametrize("record", [*measured().values(), RECORD], ids=["sudoku-6", "sudoku-9", "page"])
def test_record_is_of_the_bundled_weights(record):
    weights = BUNDLED / record["model"] / "model.safetensors"
    assert record["sha256"] == sha256_of(weights), "run python scripts/page_examples.py"


@pytest.mark.parametrize("record", measured().values(), ids=["sudoku-6", "sudoku-9"])
def test_counts_add_up_and_are_in_the_manual(record):
    assert sum(record[kind] for kind in COMPARISONS) == record["puzzles"]
    assert record["solved"]["0"] == record["lost"] + record["both"]
    assert record["solved"]["all"] == record["gained"] + record["both"]
    shares = " | ".join(f"{100 * count / record['puzzles']:.1f}%" for count in record["solved"].values())
    counts = f"{record['gained']} | {record['lost']} |"
    row = f" {record['givens']} givens | {record['candidates']} | {shares} | {counts}"
    assert row in (ROOT / "docs" / "watching.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("record", measured().values(), ids=["sudoku-6", "sudoku-9"])
def test_example_labels_are_the_verdicts_of_the_model(record):
    loaded = model(record["model"])
    setting = {"candidates": record["candidates"], "seed": record["seed"]}
    for example in record["examples"]:
        problem = loaded.task.encode(example["puzzle"])
        assert int(problem.known.sum()) == record["givens"]
        assert loaded.task.count_solutions(problem, most=2) == 1
        for n, right in example["solved"].items():
            latents = n if n == "all" else int(n)
            assert decoded(loaded, example["puzzle"], latents=latents, **setting)["end"]["right"] == right
        assert example["kind"] == KINDS[example["solved"]["0"], example["solved"]["all"]]


def test_solved_in_a_batch_equals_single_decodes(six):
    problems = puzzles(six.task, 8, 14, 3)
    setting = SamplingConfig(0, 4)
    requests = (DecodeRequest(six, problems.take(slice(i, i + 1)), setting) for i in range(8))
    single = [trace(request)["end"]["right"] for request in requests]
    batch = solved(six, problems, setting, lambda by, figures: None)
    assert batch.tolist() == single
    assert len(set(single)) == 2
    counts = {"gained": single.count(False), "lost": single.count(True), "both": 0, "neither": 0}
    assert compared(batch, ~batch) == counts


@pytest.mark.parametrize(("name", "without", "with_one"), [("corrected", 1, 5), ("spoiled", 0, 5)])
def test_board_of_the_first_scene_is_predicted_as_recorded(six, name, without, with_one):
    shown = RECORD[name]
    puzzle = six.task.encode(shown["puzzle"])
    tokens, known = torch.from_numpy(puzzle.tokens).long(), torch.from_numpy(puzzle.known)
    tokens[0, shown["target"]] = shown["answer"]
    target, others = torch.tensor([shown["target"]]), torch.tensor([shown["others"]])
    boards = page_examples.OneCellBoards(tokens, known, target, others)
    counts, corrected, spoiled = page_examples.measure(six.net, boards, six.task)
    assert {"corrected": corrected, "spoiled": spoiled}[name] == shown
    assert (counts["corrected"], counts["spoiled"]) == (name == "corrected", name == "spoiled")
    assert shown["predictions"]["without"][0][0] == without
    assert shown["predictions"]["with_one"][0][0] == with_one


def test_stored_bits_are_the_verdicts_of_the_model(six):
    hundred = RECORD["hundred"]
    most = len(hundred["solved"]) - 1
    assert most == 36 - RECORD["givens"] - hundred["candidates"]
    assert {len(bits) for bits in hundred["solved"]} == {len(hundred["puzzles"])} == {100}
    for n, puzzle in [(0, 0), (3, 57), (8, 24), (most, 0), (most, 99)]:
        setting = {"candidates": hundred["candidates"], "order": "uniform", "seed": RECORD["seed"]}
        end = decoded(six, hundred["puzzles"][puzzle], latents=n, **setting)["end"]
        assert end["right"] == (hundred["solved"][n][puzzle] == "1")
        assert end["processed"] == hundred["processed"][n]
    assert [hundred["solved"][n].count("1") for n in (0, 4, 12, most)] == [26, 31, 38, 53]


def test_plotted_points_are_those_of_the_bundled_models():
    points = stored_curve()
    assert [point["latents"] for point in points if point["method"] == "scdm"] == [0, 2, 4, 8, 16, "all"]
    others = {point["method"]: point["accuracy"] for point in points if point["method"] != "scdm"}
    assert others == pytest.approx({"mdm": 0.779, "sidm": 0.418, "ar-mtp": 0.875})
    assert all(point["low"] <= point["accuracy"] <= point["high"] for point in points)


@pytest.mark.slow
def test_few_puzzles_write_the_entries_of_all(monkeypatch, tmp_path):
    stored = {"MEASURED": page_examples.MEASURED, "PAGE_RECORD": PAGE_RECORD}
    for name in stored:
        monkeypatch.setattr(page_examples, name, tmp_path / name)
    page_examples.main(["--scale", "smoke"])
    for name, path in stored.items():
        record, complete = (json.loads(file.read_text()) for file in (tmp_path / name, path))
        assert record.keys() == complete.keys()
        assert record != complete
