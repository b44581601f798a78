"""The demo: rows from several processes, threads, settings, and the puzzle that it shows."""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch

from helpers.page import untrained
from helpers.refusals import refused
from helpers.runs import tiny_run
from latent_tokens import TASKS, EvalConfig, TrainConfig, evaluate, fit, from_pretrained
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.checks import MOST_THREADS
from latent_tokens.configs import DemoConfig
from latent_tokens.demo import watched
from latent_tokens.evaluation.evaluate import evaluate_in_parallel
from latent_tokens.trace.record import LoadedModel

CLOCK = ("seconds", "samples_per_second", "made_with")
SCDM = BUNDLED / "sudoku-6-scdm"


@pytest.mark.slow
def test_rows_of_two_processes_are_those_of_one():
    configs = [
        EvalConfig(latents=(0, "all"), candidates=4, num_samples=2, threads=1),
        EvalConfig(num_samples=2, order="uniform", threads=1),
    ]
    kept = []
    rows = evaluate_in_parallel(from_pretrained(SCDM), "sudoku-6", configs, 2, on_row=kept.append)
    net = from_pretrained(SCDM)
    expected = [row for config in configs for row in evaluate(net, TASKS["sudoku-6"], config)]
    assert kept == rows
    for row, other in zip(rows, expected, strict=True):
        assert {**row, **dict.fromkeys(CLOCK)} == {**other, **dict.fromkeys(CLOCK)}


def test_threads_are_used_during_training_and_evaluation_only(tmp_path, monkeypatch):
    used = []

    def backward(*arguments, original=torch.Tensor.backward, **named):
        used.append(torch.get_num_threads())
        return original(*arguments, **named)

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    config = tiny_run(tmp_path / "run", steps=2, threads=2)
    run = fit(config)
    assert (used, torch.get_num_threads()) == ([2, 2], 1)
    assert "threads" not in json.loads((run / "config.json").read_text())["training"]
    fit(replace(config, threads=1, resume="yes"))
    for threads, expected in ((2, 2), (None, 1)):
        (row,) = evaluate(from_pretrained(run), "sudoku-4", EvalConfig(num_samples=2, threads=threads))
        assert (row["threads"], torch.get_num_threads()) == (expected, 1)


@pytest.mark.parametrize("threads", [0, 1.5, True, MOST_THREADS + 1])
def test_a_wrong_number_of_threads_is_refused(threads):
    for config in (partial(TrainConfig, "sudoku-4", "scdm"), EvalConfig, DemoConfig):
        with refused(f"threads={threads}: must be"):
            config(threads=threads)


def shown(net, count):
    """Return which of the two decodes of the demo are right, and the caption."""
    traces, caption = watched(LoadedModel("sudoku-6-scdm", net, TASKS["sudoku-6"]), count)
    assert [trace["start"]["settings"]["latents"] for trace in traces] == [0, "all"]
    return [trace["end"]["right"] for trace in traces], caption


def test_demo_shows_a_puzzle_that_needs_latent_tokens():
    right, caption = shown(from_pretrained(SCDM), 10)
    assert right == [False, True]
    assert caption.startswith("Chosen example: solved with all latent tokens, wrong with none, like ")
    assert " of 10 generated puzzles (14 givens, k = 4" in caption


def test_demo_states_that_no_puzzle_needs_latent_tokens():
    right, caption = shown(untrained("sudoku-6").net, 2)
    assert right == [False, False]
    assert caption.startswith("First of 2 generated puzzles (14 givens, k = 4")
    assert caption.endswith("Solved with all: 0. Solved with none: 0.")
