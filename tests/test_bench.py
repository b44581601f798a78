"""The benchmark counts the right work. Its times are not tested."""

import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from latent_tokens import SIZES, Transformer
from latent_tokens.devices import fastest_device

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from bench import STORED_RATIOS, BenchConfig, Machine, bench, count_flop, default_precisions, main

SMALL = "--sizes nano --lengths 12 --batch-sizes 2 --precisions fp32 --rounds 1"
# Tokens of mdm per token of a decode of 12 tokens: 12 * 12, over the sum of clean + candidates + latents.
DECODES = [
    ("mdm", "all", 8, 1),
    ("sidm", 0, 8, 144 / (8 + 9 + 10 + 11 + 8 * 12)),
    ("scdm", 0, 8, 144 / (8 + 9 + 10 + 11 + 8 * 12)),
    ("scdm", 2, 8, 144 / (10 + 11 + 10 * 12)),
    ("esolm", 0, 1, 144 / (1 + 11 * 2)),
    ("esolm", 2, 1, 144 / (3 + 9 * 4 + 3 + 2)),
    ("arm", 0, 1, 144 / 12),
]

pytestmark = pytest.mark.usefixtures("brief_look")


@pytest.fixture(scope="module")
def brief_look():
    """Measure the limits of the machine on small matrices and blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.SIDE", 512)
        patch.setattr("bench.COPIED", 1 << 24)
        yield


@pytest.fixture(scope="module")
def rows(brief_look):
    counts = {"sizes": ("nano",), "lengths": (12,), "batch_sizes": (2,), "rounds": 1, "latents": (0, 2)}
    return bench(BenchConfig(**counts, precisions=("fp32",), train=("nano:4x12", "nano:4x9")))


def test_decodes_have_the_settings_and_the_theory_of_their_method(rows):
    keys = ("method", "latents", "candidates", "token_theory")
    decodes = [tuple(row[key] for key in keys) for row in rows if row["what"] == "decode"]
    assert decodes == [(*setting, round(theory, 3)) for *setting, theory in DECODES]
    mdm, sidm, scdm, scdm_2, esolm, esolm_2, arm = (row["flop"] for row in rows[:7])
    assert mdm > scdm_2 > scdm == sidm > esolm_2 > esolm > arm


def test_rows_have_rate_roofline_and_speedups(rows):
    assert [row["what"] for row in rows[7:]] == ["train", "train"]
    for row in rows:
        assert row["rate"] > 0
        assert row["seconds"] > row["floor_seconds"] > 0
        assert row["share"] == pytest.approx(row["floor_seconds"] / row["seconds"], abs=0.02)
        assert row["ratio_to_reference"] > 0
        assert row["device"].startswith("CPU")
        assert ("ratio_to_mdm" in row) == (row["what"] == "decode")
    assert rows[0]["ratio_to_mdm"] == 1


def test_flop_of_a_pass_are_its_products_and_attention():
    size, batch, slots = SIZES["nano"], 3, 10
    net = Transformer(size, 7, slots).eval()
    ids = torch.zeros(batch, slots, dtype=torch.int64)
    with torch.no_grad():
        counted = count_flop(lambda: net(ids, ids, torch.ones(batch, slots, slots, dtype=torch.bool)))
    products = 2 * (12 * size.layers * size.width**2 + size.width * 8)
    assert counted == batch * slots * (products + 4 * size.layers * slots * size.width)


def test_roofline_time_is_the_longer_of_the_two():
    assert Machine(flops=10, bandwidth=2).roofline_seconds(flop=30, num_bytes=2) == 3
    assert Machine(flops=10, bandwidth=2).roofline_seconds(flop=30, num_bytes=8) == 4


@pytest.mark.parametrize("vocabulary", [30, 1000])  # with a table of the first layer, and without
def test_a_network_of_text_is_measured_as_it_is_published(vocabulary, capsys):
    network = f"--vocabulary {vocabulary} --positions rotary --top-p 0.9"
    assert main(shlex.split(f"{SMALL} {network} --methods esolm --train --no-plain --json")) == 0
    (decode,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert "ratio_to_reference" not in decode
    head = 2 * SIZES["nano"].width * vocabulary
    assert decode["flop"] > 2 * 12 * head  # two rows, a step a token, the head for each


def test_table_of_the_benchmark_names_the_machine(capsys):
    assert main(shlex.split(f"{SMALL} --methods scdm --train nano:2x8")) == 0
    table = capsys.readouterr().out
    assert "matrix product" in table
    assert "decode scdm" in table


@pytest.mark.parametrize(
    ("present", "used"), [("cpu", "cpu"), ("cuda:1", "cuda:1"), ("cuda", "cuda:2"), ("mps", "cpu")]
)
def test_commands_run_on_the_fastest_device_that_has_float64(monkeypatch, present, used):
    monkeypatch.setattr("latent_tokens.processes.join", lambda: SimpleNamespace(device=torch.device(present)))
    monkeypatch.setattr("torch.cuda.current_device", lambda: 2)
    assert fastest_device() == torch.device(used)


def test_check_fails_if_a_ratio_fell_further_than_allowed(monkeypatch, capsys):
    for name, value in (("LENGTH", 6), ("BATCH", 1), ("ROUNDS", 1)):
        monkeypatch.setattr(f"bench.CHECKED_{name}", value)
    low = dict.fromkeys(STORED_RATIOS, 1e-3)
    monkeypatch.setattr("bench.STORED_RATIOS", {**low, "esolm over mdm": 1e3})
    assert main(["--check"]) == 1
    fallen = [line for line in capsys.readouterr().out.splitlines() if "fell" in line]
    assert [line.split(":")[0] for line in fallen] == ["esolm over mdm"]
    assert main(["--check", "--max-drop", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == STORED_RATIOS.keys()


REFUSED = {
    "--methods scmd": "--methods scmd: must be one of mdm, ",
    "--train tiny:64": "--train tiny:64: must be SIZE:BATCHxLENGTH, like tiny:64x128",
    "--train huge:4x4": "SIZE is one of pico, nano",
    "--check --max-drop 2": "--max-drop 2.0: must be a number from 0 to 1",
    "--vocabulary 1": "--vocabulary 1: must be a whole number from 2",
    "--batch-sizes -1": "--batch-sizes -1: must be a whole number from 1",
    "--methods --train": "nothing to measure",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_refused_setting_is_one_line_and_exit_code_2(capsys, flags):
    assert main(shlex.split(flags)) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("bench.py: ")]
    assert REFUSED[flags] in line


@pytest.mark.parametrize(("automatic", "precisions"), [("fp32", ("fp32",)), ("bf16", ("fp32", "bf16"))])
def test_precisions_measured_are_fp32_and_the_automatic(monkeypatch, automatic, precisions):
    monkeypatch.setattr("bench.resolve_precision", lambda precision, device: automatic)
    assert default_precisions(torch.device("cpu")) == precisions
