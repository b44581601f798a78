"""The example puzzles of the page and of `make demo`: their labels equal the results of the models."""

import json
import re
import sys

import pytest
import torch

from helpers.documentation import ROOT
from latent_tokens import METHODS, SIZES, TASKS, Transformer, from_pretrained, save_pretrained
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.configs import SamplingConfig
from latent_tokens.demo import watched
from latent_tokens.page.document import stored_curve
from latent_tokens.storage import sha256_of
from latent_tokens.trace.examples import COMPARISONS, PAGE_RECORD, chosen, compared, measured, puzzles, solved
from latent_tokens.trace.record import DecodeRequest, LoadedModel, trace

sys.path.append(str(ROOT / "scripts"))

import page_examples

KINDS = {(False, True): "gained", (True, False): "lost", (True, True): "both", (False, False): "neither"}


@pytest.mark.parametrize("task", ["sudoku-6", "sudoku-9"])
def test_examples_were_measured_with_the_bundled_weights(task):
    record = measured()[task]
    assert record["sha256"] == sha256_of(BUNDLED / record["model"] / "model.safetensors"), (
        "run python scripts/page_examples.py"
    )
    assert sum(record[kind] for kind in COMPARISONS) == record["puzzles"]
    assert record["solved"]["0"] == record["lost"] + record["both"]
    assert record["solved"]["all"] == record["gained"] + record["both"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["sudoku-6", "sudoku-9"])
def test_example_labels_are_the_verdicts_of_the_model(task):
    record = measured()[task]
    model = LoadedModel(record["model"], from_pretrained(record["model"]), TASKS[task])
    for example in record["examples"]:
        problem = model.task.encode(example["puzzle"])
        assert int(problem.known.sum()) == record["givens"]
        assert model.task.count_solutions(problem, most=2) == 1
        decodes = {
            n: SamplingConfig(n if n == "all" else int(n), record["candidates"], seed=record["seed"])
            for n in example["solved"]
        }
        assert {
            n: trace(DecodeRequest(model, problem, setting))["end"]["right"] for n, setting in decodes.items()
        } == example["solved"]
        assert example["kind"] == KINDS[example["solved"]["0"], example["solved"]["all"]]


def test_solved_in_a_batch_is_what_a_single_decode_is():
    model = LoadedModel("sudoku-6-scdm", from_pretrained("sudoku-6-scdm"), TASKS["sudoku-6"])
    problems, setting = puzzles(model.task, 12, 14, 3), SamplingConfig(0, 4)
    alone = [
        trace(DecodeRequest(model, problems.take(slice(i, i + 1)), setting))["end"]["right"]
        for i in range(12)
    ]
    found = solved(model, problems, setting, lambda by, figures: None)
    assert found.tolist() == alone
    assert len(set(alone)) == 2
    assert compared(found, ~found) == {
        "gained": alone.count(False),
        "lost": alone.count(True),
        "both": 0,
        "neither": 0,
    }


def page_record():
    """What the page shows of the bundled model."""
    return json.loads(PAGE_RECORD.read_text())


def scdm(folder):
    """The model of the demo in a directory."""
    return LoadedModel("sudoku-6-scdm", from_pretrained(folder), TASKS["sudoku-6"])


def test_the_demo_shows_a_puzzle_that_needs_latent_tokens():
    (without, with_all), caption = watched(scdm(BUNDLED / "sudoku-6-scdm"), 20)
    assert [one["start"]["settings"]["latents"] for one in (without, with_all)] == [0, "all"]
    assert (without["end"]["right"], with_all["end"]["right"]) == (False, True)
    assert re.match(
        r"Chosen example: solved with all latent tokens, wrong with none, like \d+ of 20 generated puzzles "
        r"\(14 givens, k = 4",
        caption,
    )


def test_the_demo_says_when_no_puzzle_needs_latent_tokens(tmp_path):
    torch.manual_seed(0)
    net = Transformer(SIZES["nano"], TASKS["sudoku-6"].vocab_size, TASKS["sudoku-6"].length).eval()
    net.method = METHODS["scdm"]
    save_pretrained(net, tmp_path)
    traces, caption = watched(scdm(tmp_path), 10)
    assert [one["end"]["right"] for one in traces] == [False, False]
    assert caption.startswith("First of 10 generated puzzles (14 givens, k = 4")
    assert (
        "No puzzle is solved with all latent tokens and wrong with none. Solved with all: 0. Solved with "
        "none: 0." in caption
    )


def test_a_caption_names_the_reverse_only_for_a_difference():
    counts = {
        "puzzles": 9,
        "givens": 14,
        "candidates": 4,
        "seed": 0,
        "gained": 4,
        "lost": 2,
        "both": 3,
        "neither": 0,
    }
    assert chosen("gained", counts).endswith(
        "like 4 of 9 generated puzzles (14 givens, k = 4, top-prob decoding, seed 0). The reverse: 2."
    )
    assert chosen("lost", counts).endswith("The reverse: 4.")
    assert "reverse" not in chosen("both", counts)


@pytest.mark.parametrize(
    ("task", "name"), [("sudoku-6", "400 of 6x6, 14 givens"), ("sudoku-9", "150 of 9x9, 36 givens")]
)
def test_the_manual_states_the_measured_counts(task, name):
    record = measured()[task]
    shares = " | ".join(f"{100 * count / record['puzzles']:.1f}%" for count in record["solved"].values())
    row = f"| {name} | {record['candidates']} | {shares} | {record['gained']} | {record['lost']} |"
    assert name.startswith(f"{record['puzzles']} ")
    assert row in (ROOT / "docs" / "watching.md").read_text()


def test_the_page_was_measured_with_the_bundled_weights():
    record = page_record()
    assert record["sha256"] == sha256_of(BUNDLED / record["model"] / "model.safetensors"), (
        "run python scripts/page_examples.py"
    )
    counts = record["counts"]
    wrong = counts["states"] - counts["right"]
    assert counts["corrected_by_one"] <= counts["corrected"] <= wrong
    assert counts["right_with_all"] == counts["right"] + counts["corrected"] - counts["spoiled"]
    assert counts["states"] == 400


@pytest.mark.parametrize(("name", "without", "with_one"), [("corrected", 1, 5), ("spoiled", 0, 5)])
def test_the_shown_boards_are_predicted_as_recorded(name, without, with_one):
    record = page_record()
    one = record[name]
    task = TASKS["sudoku-6"]
    puzzle = task.encode(one["puzzle"])
    tokens, known = torch.from_numpy(puzzle.tokens).long(), torch.from_numpy(puzzle.known)
    tokens[0, one["target"]] = one["answer"]
    target, others = torch.tensor([one["target"]]), torch.tensor([one["others"]])
    boards = page_examples.OneCellBoards(tokens, known, target, others)
    counts, *shown = page_examples.measure(from_pretrained(record["model"]), boards, task)
    assert shown[name == "spoiled"] == one
    assert (one["predictions"]["without"][0][0], one["predictions"]["with_one"][0][0]) == (without, with_one)
    assert (counts["corrected"], counts["spoiled"]) == (name == "corrected", name == "spoiled")
    assert counts["right"] == (without == one["answer"])


def test_stored_bits_are_the_verdicts_of_the_model():
    record = page_record()
    hundred = record["hundred"]
    model = scdm(BUNDLED / record["model"])
    most = len(hundred["solved"]) - 1
    assert most == 36 - record["givens"] - hundred["candidates"]
    assert {len(bits) for bits in hundred["solved"]} == {len(hundred["puzzles"])} == {100}
    for n, puzzle in [(0, 0), (3, 57), (8, 24), (most, 0), (most, 99)]:
        setting = SamplingConfig(n, hundred["candidates"], "uniform", seed=record["seed"])
        problem = model.task.encode(hundred["puzzles"][puzzle])
        end = trace(DecodeRequest(model, problem, setting))["end"]
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
def test_few_puzzles_write_the_entries_of_all(monkeypatch, tmp_path, capsys):
    torch.set_num_threads(1)
    stored = {"MEASURED": page_examples.MEASURED, "PAGE_RECORD": PAGE_RECORD}
    for name in stored:
        monkeypatch.setattr(page_examples, name, tmp_path / name)
    page_examples.main(["--scale", "smoke"])
    for name, path in stored.items():
        record, complete = (json.loads(file.read_text()) for file in (tmp_path / name, path))
        assert record.keys() == complete.keys()
        assert record != complete
    assert "solved" in capsys.readouterr().out
