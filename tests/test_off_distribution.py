"""Masked tokens left out of a model that had them in training: allowed by a word, exact, and labeled."""

import json
from dataclasses import replace

import pytest
import torch
from matplotlib.figure import Figure

from helpers.refusals import refused, refused_command
from latent_tokens import METHODS, Decoding, generate, load
from latent_tokens.cli import main
from latent_tokens.configs import SamplingConfig
from latent_tokens.core.decoding import is_off_distribution
from latent_tokens.hf.model_card import figures
from latent_tokens.hf.modeling_latent_tokens import LatentTokensForMaskedLM
from latent_tokens.trace.drawing import set_title
from latent_tokens.trace.record import DecodeRequest, LoadedModel, trace

LENGTH = 16
LABEL = "2 (off-distribution)"
FIXED = ("mdm", "ar-mtp", "ar-mtp-window-4", "ar-ntp-4", "block-mdm-4")
KNOWN = torch.arange(LENGTH) < torch.tensor([[0], [5], [2]])


def half(masked):
    return masked // 2


def tokens_of(net):
    return torch.randint(0, net.mask_id, (3, LENGTH), generator=torch.Generator().manual_seed(2))


def decoding_of(method, latents, **settings):
    candidates = 1 if method.is_left_to_right else 2
    return Decoding(candidates, latents, off_distribution=True, **settings)


@pytest.mark.parametrize(("name", "latents"), [*((name, 2) for name in FIXED), ("mdm", half)])
def test_off_distribution_step_has_n_latent_tokens(pico, name, latents):
    method = METHODS[name]
    decoding = decoding_of(method, latents)
    steps = []
    samples = generate(pico, method, tokens_of(pico), KNOWN, decoding, 0, on_step=steps.append)
    processed = torch.zeros(3, dtype=torch.int64)
    for step in steps:
        for a, row in enumerate(step.rows.tolist()):
            num_clean = int(step.layout.num_clean[a])
            num_masked = LENGTH - num_clean
            n = latents(num_masked) if callable(latents) else latents
            visible = num_masked if method.window == "all" else min(num_masked, method.window)
            if name == "block-mdm-4":
                visible = 4 - int(KNOWN[row, :LENGTH].sum() + (num_clean - KNOWN[row].sum())) % 4
            k = min(decoding.candidates, visible)
            assert len(step.candidates[a]) == k
            assert len(step.latents[a]) == min(n, visible - k)
            processed[row] += num_clean + k + len(step.latents[a])
    assert torch.equal(samples.tokens_processed, processed)


@pytest.mark.parametrize(
    ("name", "latents", "expected"),
    [
        ("mdm", None, False),
        ("mdm", "all", False),
        ("mdm", 0, True),
        ("mdm", lambda masked: 1, True),
        ("ar-mtp-window-4", 2, True),
        ("ar-mtp-window-4", 3, False),
        ("block-mdm-4", 3, True),
        ("scdm", 2, False),
        ("mdm-depth", 2, False),
        ("sidm", 0, False),
    ],
)
def test_label_is_for_inputs_that_training_never_had(name, latents, expected):
    assert is_off_distribution(METHODS[name], latents) is expected


@pytest.fixture(scope="module")
def model():
    return load("sudoku-6-mdm")


@pytest.fixture(scope="module")
def puzzle(model):
    """A board without its last ten digits."""
    (board,) = model.task.generate(1, seed=0).tokens
    return "".join(str(token + 1) for token in board[:26]) + "." * 10


def test_results_and_their_tables_are_labeled(tmp_path, capsys):
    folder = tmp_path / "rows"
    evaluate_it = ["evaluate", "sudoku-6-mdm", "--num-samples", "2", "--latents", "2", "all"]
    assert main([*evaluate_it, "--off-distribution", "--out", str(folder)]) == 0
    assert LABEL in capsys.readouterr().out
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    few, every_token = rows
    assert few["relative_cost"] == few["paper_cost"] < every_token["relative_cost"] == 1
    assert [row.get("off_distribution") for row in rows] == [True, None]
    assert LABEL in figures(rows)
    assert main(["results", str(folder)]) == 0
    assert LABEL in capsys.readouterr().out
    refused_command(capsys, evaluate_it, "Use --off-distribution to allow it.")


@pytest.mark.slow
def test_samples_and_solutions_are_labeled(model, puzzle, capsys):
    off = ["--latents", "2", "--off-distribution"]
    assert main(["sample", "sudoku-6-mdm", "--num-samples", "1", *off]) == 0
    label = "2 latent tokens per step, fewer in the last steps (off-distribution)\n"
    assert capsys.readouterr().out.endswith(label)
    assert main(["sample", "sudoku-6-mdm", "--num-samples", "1", "--json", *off]) == 0
    assert json.loads(capsys.readouterr().out)["off_distribution"] is True
    assert main(["solve", puzzle, "--run", "sudoku-6-mdm", *off]) in (0, 1)
    assert capsys.readouterr().out.endswith(label)
    assert model.generate(latents=2, off_distribution=True).off_distribution
    assert not model.generate().off_distribution
    with refused("latents=2 with candidates=all", "all masked tokens are candidates"):
        model.generate(latents=2, candidates="all", off_distribution=True)


def test_traces_and_their_pictures_are_labeled(model, puzzle):
    problem = model.task.encode(puzzle)
    loaded = LoadedModel("mdm", model.net, model.task)
    setting = SamplingConfig(2, 4, off_distribution=True)
    events = trace(DecodeRequest(loaded, problem, setting))
    assert events["start"]["settings"]["off_distribution"] is True
    axes = Figure().subplots()
    set_title(axes, events)
    assert axes.get_title("left").endswith("2 latent tokens (off-distribution)")
    plain = trace(DecodeRequest(loaded, problem, replace(setting, latents="all")))
    assert "off_distribution" not in plain["start"]["settings"]


def test_generate_of_transformers_allows_n():
    model = LatentTokensForMaskedLM.from_pretrained("sudoku-6-mdm")
    board = torch.full((1, 36), 6)
    assert model.generate(board, latents=2, tokens_per_step=9, off_distribution=True).off_distribution
    assert not model.generate(board, tokens_per_step=9).off_distribution
    with refused("latents=2 is not supported by mdm", "off_distribution=True"):
        model.generate(board, latents=2)
