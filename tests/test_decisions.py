"""docs/decisions.md states the defaults of the code. scripts/lint_docs.py checks references to it."""

import inspect
from pathlib import Path

from latent_tokens import METHODS, TASKS, Decoding, TrainConfig, Transformer
from latent_tokens.configs import SamplingConfig
from latent_tokens.core.decoding import candidates_of
from latent_tokens.evaluation.settings import decoding_for
from latent_tokens.paper.scales import SCALES

PAGE = Path(__file__).parents[1] / "docs" / "decisions.md"


def test_table_of_defaults_states_the_defaults():
    table = {
        row.split(" | ")[0].strip("| "): row for row in PAGE.read_text().splitlines() if row.startswith("| ")
    }
    training = vars(TrainConfig("sudoku-4", "scdm"))
    network = {
        name: given.default for name, given in inspect.signature(Transformer.__init__).parameters.items()
    }
    for row, found in (("`TrainConfig`, `latent-tokens train`", training), ("`Transformer(...)`", network)):
        assert f'`gelu="{found["gelu"]}"` | `positions="{found["positions"]}"`' in table[row]
    assert Decoding().candidates is None
    assert (
        "| 8, or 1 if the order leaves no choice | the method's own |" in table["`Decoding(...)` in Python"]
    )
    adaptive = decoding_for(METHODS["scdm"], TASKS["sudoku-6"], SamplingConfig())
    fixed = decoding_for(METHODS["scdm"], TASKS["sudoku-6"], SamplingConfig(order="uniform"))
    assert (candidates_of(METHODS["scdm"], adaptive), fixed.candidates, adaptive.latents) == (8, 1, None)
    assert "| 8, or 1 if" in table["`latent-tokens evaluate` and `sample`, `EvalConfig`"]
    budgets = SCALES["cpu"].budgets
    assert [
        budgets[task].candidates
        for task in ("sudoku-gen", "sudoku-puzzle", "zebra", "countdown", "sudoku-large", "sudoku-gen-9x9")
    ] == [4, 4, 8, 8, 8, 8]
    assert {name: METHODS[name].latents for name in ("sidm", "scdm", "esolm", "arm")} == dict.fromkeys(
        ("sidm", "scdm", "esolm", "arm"), 0
    )
    assert all(METHODS[name].latents is None for name in ("mdm", "ar-mtp", "ar-mtp-window-4", "ar-ntp-4"))
