"""The benchmark counts the right work. Its times are not tested."""

import json
import shlex
from types import SimpleNamespace

import pytest
import torch

from latent_tokens import SIZES, Transformer
from latent_tokens.bench import STORED_RATIOS, Machine, bench, count_flop, measure_machine
from latent_tokens.cli import main
from latent_tokens.configs import BenchConfig
from latent_tokens.core.cost import cached_cost, relative_cost
from latent_tokens.processes import fastest_device

SMALL = {"sizes": ("nano",), "lengths": (12,), "batch_sizes": (2,), "precisions": ("fp32",), "rounds": 1}
ASKED = "bench --sizes nano --lengths 12 --batch-sizes 2 --precisions fp32 --rounds 1"

pytestmark = pytest.mark.usefixtures("brief_look")


@pytest.fixture(scope="module")
def rows(brief_look):
    return bench(BenchConfig(**SMALL, latents=(0, 2), train=("nano:4x12", "nano:4x9:12")))


def test_every_method_is_measured_with_its_own_settings(rows):
    found = [(row["method"], row["latents"], row["candidates"]) for row in rows if row["what"] == "decode"]
    dialled = [("scdm", 0, 8), ("scdm", 2, 8), ("esolm", 0, 1), ("esolm", 2, 1)]
    assert found == [("mdm", "all", 8), ("sidm", 0, 8), *dialled, ("arm", 0, 1)]
    assert [row["what"] for row in rows] == [*["decode"] * 7, "train", "train"]


def test_rows_have_rate_roofline_and_speedups(rows):
    for row in rows:
        assert row["rate"] > 0
        assert row["seconds"] > row["floor_seconds"] > 0
        assert row["share"] == pytest.approx(row["floor_seconds"] / row["seconds"], abs=0.02)
        assert row["ratio_to_reference"] > 0
        assert row["device"].startswith("CPU")
        assert ("ratio_to_mdm" in row) == (row["what"] == "decode")
    assert rows[0]["ratio_to_mdm"] == 1
    assert rows[-1]["reference_length"] == 12


def test_token_theory_is_the_cost_formula(rows):
    for row in rows[:4]:
        n = 12 if row["latents"] == "all" else row["latents"]
        assert row["token_theory"] == pytest.approx(1 / relative_cost(12, row["candidates"], n), abs=1e-3)
    for row, n in zip(rows[4:6], (0, 2), strict=True):
        assert row["token_theory"] == pytest.approx(1 / cached_cost(12, 1, n), abs=1e-3)
    assert rows[6]["token_theory"] == 12


def test_cached_cost_is_the_share_of_the_papers_sampler():
    for length, share in ((128, 0.016), (192, 0.010), (1_536, 0.001)):
        assert cached_cost(length, 1, 0) == pytest.approx((2 * length - 1) / length**2)
        assert cached_cost(length, 1, 0) == pytest.approx(share, abs=5e-4)


def test_less_is_computed_where_less_is_shown(rows):
    mdm, sidm, scdm, scdm_2, esolm, esolm_2, arm = (row["flop"] for row in rows[:7])
    assert mdm > scdm_2 > scdm > esolm_2 > esolm > arm
    assert sidm == scdm


def test_flop_of_a_pass_are_its_products_and_attention():
    size, batch, slots = SIZES["nano"], 3, 10
    net = Transformer(size, 7, slots).eval()
    ids = torch.zeros(batch, slots, dtype=torch.int64)
    with torch.no_grad():
        counted = count_flop(lambda: net(ids, ids, torch.ones(batch, slots, slots, dtype=torch.bool)))
    products = 2 * (12 * size.layers * size.width**2 + size.width * 8)
    assert counted == batch * slots * (products + 4 * size.layers * slots * size.width)


def test_the_roofline_time_is_the_longer_of_the_two():
    assert Machine(flops=10, bandwidth=2).roofline_seconds(flop=30, num_bytes=2) == 3
    assert Machine(flops=10, bandwidth=2).roofline_seconds(flop=30, num_bytes=8) == 4
    assert measure_machine(torch.float32, torch.device("cpu")).flops > 0


def test_json_lines_come_one_a_row_and_a_table_names_the_machine(capsys):
    assert main(shlex.split(f"{ASKED} --methods mdm --train nano:2x8 --json")) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["what"] for row in printed] == ["decode", "train"]
    assert main(shlex.split(f"{ASKED} --methods scdm --train nano:2x8")) == 0
    table = capsys.readouterr().out
    assert "matrix product" in table
    assert "decode scdm" in table


@pytest.mark.parametrize("vocabulary", [30, 1000])  # with a table of the first layer, and without
def test_a_network_of_text_is_measured_as_it_is_published(vocabulary, capsys):
    network = f"--vocabulary {vocabulary} --positions rotary --top-p 0.9"
    assert main(shlex.split(f"{ASKED} {network} --methods esolm --train --no-plain --json")) == 0
    (decode,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert "ratio_to_reference" not in decode
    head = 2 * SIZES["nano"].width * vocabulary
    assert decode["flop"] > 2 * 12 * head  # two rows, a step a token, the head for each


@pytest.mark.parametrize(("there", "taken"), [("cpu", "cpu"), ("cuda:1", "cuda:1"), ("mps", "cpu")])
def test_commands_run_on_the_fastest_device_that_has_float64(monkeypatch, there, taken):
    monkeypatch.setattr("latent_tokens.processes.join", lambda: SimpleNamespace(device=torch.device(there)))
    assert fastest_device() == torch.device(taken)


def test_check_fails_if_a_ratio_fell_further_than_allowed(monkeypatch, capsys):
    for name, value in (("LENGTH", 6), ("BATCH", 1), ("ROUNDS", 1)):
        monkeypatch.setattr(f"latent_tokens.bench.CHECKED_{name}", value)
    assert all(ratio > 1 for ratio in STORED_RATIOS.values())
    low = dict.fromkeys(STORED_RATIOS, 1e-3)
    monkeypatch.setattr("latent_tokens.bench.STORED_RATIOS", low)
    assert main(["bench", "--check", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(STORED_RATIOS)
    monkeypatch.setattr("latent_tokens.bench.STORED_RATIOS", {**low, "esolm over mdm": 1e3})
    assert main(["bench", "--check"]) == 1
    fallen = [line for line in capsys.readouterr().out.splitlines() if "fell" in line]
    assert [line.split(":")[0] for line in fallen] == ["esolm over mdm"]
    assert main(["bench", "--check", "--max-drop", "1"]) == 0
