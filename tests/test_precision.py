"""`precision=auto` follows the CPU and is stored with the run, and float32 draws what float64 draws."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from helpers.refusals import refused
from helpers.runs import checkpoints, description, stop_at, tiny_run
from latent_tokens import METHODS, TASKS, Decoding, EvalConfig, evaluate, fit, from_pretrained
from latent_tokens.core.sampling import generate
from latent_tokens.devices import bf16_is_fast, precision_reason, resolve_precision, warn_if_slow

CPU = torch.device("cpu")
NEITHER = {"avx2": True, "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}
WITH_AVX512 = NEITHER | {"avx512_bf16": True}
WITH_AMX = NEITHER | {"amx_bf16": True}


@pytest.fixture
def cpu(monkeypatch):
    """Return a function that sets the capabilities that torch reports."""
    return lambda known: monkeypatch.setattr("torch.cpu.get_capabilities", lambda: known, raising=False)


@pytest.mark.parametrize(
    ("known", "precision"),
    [(NEITHER, "fp32"), (WITH_AVX512, "bf16"), (WITH_AMX, "bf16"), ({"architecture": "aarch64"}, "fp32")],
)
def test_auto_on_a_cpu_is_bf16_with_its_instructions(cpu, known, precision):
    cpu(known)
    assert resolve_precision("auto", CPU) == precision
    assert bf16_is_fast() == (precision == "bf16")
    assert ("neither" in precision_reason(CPU)) == (precision == "fp32")
    assert resolve_precision("auto", torch.device("cuda")) == "bf16"
    for named in ("fp32", "bf16"):
        assert resolve_precision(named, CPU) == named


@pytest.mark.parametrize("supported", [(False, False), (True, False), (False, True)])
def test_auto_asks_an_older_torch_by_its_own_functions(monkeypatch, supported):
    monkeypatch.delattr("torch.cpu.get_capabilities", raising=False)
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: supported[0])
    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: supported[1])
    assert bf16_is_fast() == any(supported)


@pytest.mark.parametrize(
    ("first", "then", "precision"), [(WITH_AMX, NEITHER, "bf16"), (NEITHER, WITH_AMX, "fp32")]
)
def test_resume_keeps_the_stored_precision_on_another_cpu(cpu, tmp_path, capsys, first, then, precision):
    """The weights are bit-equal to those of a run with the precision by name."""
    cpu(first)
    config = tiny_run(tmp_path / "cut", precision="auto", steps=6)
    with pytest.raises(KeyboardInterrupt):
        fit(config, observe=stop_at(4))
    assert f"precision {precision} (auto: {precision_reason(CPU)})\n" in capsys.readouterr().err
    assert description(config.folder)["training"]["precision"] == precision
    whole = fit(tiny_run(tmp_path / "whole", precision=precision, steps=6))
    cpu(then)
    capsys.readouterr()
    fit(replace(config, resume="yes"))
    printed = capsys.readouterr().err
    assert f"precision {precision} (as the run was started)" in printed
    assert ("many times slower than fp32" in printed) == (precision == "bf16")
    assert description(config.folder)["training"]["precision"] == precision
    assert checkpoints(config.folder) == checkpoints(whole)
    assert (config.folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    other = "fp32" if precision == "bf16" else "bf16"
    with refused(f"precision={other}: ", f"was started with {precision}"):
        fit(replace(config, precision=other, resume="yes"))


def test_evaluation_in_bf16_without_its_instructions_warns(cpu, pico, capsys):
    cpu(NEITHER)
    net = deepcopy(pico)
    net.method = METHODS["scdm"]
    evaluate(net, TASKS["sudoku-4"], EvalConfig(num_samples=2, precision="bf16"))
    (printed,) = (
        line for line in capsys.readouterr().err.splitlines() if line.startswith("precision bf16: ")
    )
    assert "many times slower" in printed
    assert "neither AVX512-BF16 nor AMX" in printed
    cpu(WITH_AVX512)
    warn_if_slow("bf16", CPU)  # as evaluate does: it would run instructions that this CPU may lack
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["mdm", "scdm", "arm"])
def test_float32_draws_what_float64_draws(name):
    net = from_pretrained(f"sudoku-6-{name}")
    nothing = torch.zeros(8, 36, dtype=torch.bool)
    decoding = Decoding(1 if name == "arm" else 4)
    single, double = (
        generate(each, net.method, nothing.long(), nothing, decoding, 0)
        for each in (net, deepcopy(net).double())
    )
    assert single.tokens.equal(double.tokens)
    assert single.order.equal(double.order)
