"""A batch of any size fits: parts change neither the samples (test_fast.py) nor the gradients."""

import re

import pytest
import torch
from safetensors.torch import load_file

from helpers.documentation import ROOT
from helpers.runs import rows, tiny_run
from latent_tokens import SIZES, TASKS, Size, Transformer, fit
from latent_tokens.network import memory
from latent_tokens.network.memory import decoding_rows, training_row_bytes, training_rows

NET = Transformer(Size(32, 2, 3), 7, 64)
ROWS = {
    "DECODING_BYTES": lambda length: decoding_rows(NET, 4, length),
    "TRAINING_BYTES": lambda length: training_rows(NET, length),
}


@pytest.mark.parametrize("constant", ROWS)
def test_max_rows_grow_with_memory_and_shrink_with_length(monkeypatch, constant):
    found = []
    for exponent in range(34):
        monkeypatch.setattr(memory, constant, 1 << exponent)
        found.append([ROWS[constant](length) for length in (1, 7, 16, 64)])
    counts = torch.tensor(found)
    assert (counts.diff(dim=0) >= 0).all()
    assert (counts.diff(dim=1) <= 0).all()
    assert (counts[0] == 1).all()
    assert (counts[-1] > 1_000).all()


BYTES_TRAINED = 4 * 5  # weight, EMA weight, gradient and two moments of AdamW, in float32


def test_memory_table_of_the_page_is_computed():
    task = TASKS["sudoku-9"]
    page = (ROOT / "docs" / "scaling.md").read_text()
    lines = re.findall(r"^\| `(\w+)` \| (\S+)M \| (\S+) GB \| (\S+) GB \| (\S+) GB \|$", page, re.M)
    assert [name for name, *_ in lines] == ["nano", "tiny", "mini", "sminy", "small"]
    for name, *shown in lines:
        with torch.device("meta"):
            net = Transformer(SIZES[name], task.vocab_size, task.length, positions="learned")
        count = sum(weight.numel() for weight in net.parameters())
        fixed = BYTES_TRAINED * count / 1e9
        board = training_row_bytes(net, task.length) / 1e9
        computed = [f"{count / 1e6:.1f}", f"{fixed:.2f}", f"{board:.3f}", f"{fixed + 32 * board:.2f}"]
        assert computed == shown


def test_more_candidates_never_give_more_rows():
    counts = [decoding_rows(NET, candidates, 64) for candidates in (1, 8, 64)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


@pytest.mark.parametrize("method", ["scdm", "arm"])
def test_microbatches_give_the_weights_of_the_full_batch(tmp_path, monkeypatch, method):
    settings = {
        "method": method,
        "steps": 3,
        "lr": 1e-4,
    }  # a hundred times the tolerance: Adam magnifies the rounding of the smallest gradients
    whole = fit(tiny_run(tmp_path / "whole", **settings))
    net = Transformer(SIZES["nano"], 4, 16)
    assert training_rows(net, 16) >= 8
    monkeypatch.setattr(memory, "TRAINING_BYTES", memory.TRAINING_BYTES // 3_000)
    assert 1 < training_rows(net, 16) < 8 / 2
    cut = fit(tiny_run(tmp_path / "cut", **settings))
    expected, found = (load_file(run / "model.safetensors") for run in (whole, cut))
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], atol=1e-6, rtol=0, msg=name)
    assert rows(cut)[-1]["validation_loss"] == pytest.approx(rows(whole)[-1]["validation_loss"], abs=1e-5)
