"""`precision=auto` follows the instructions of the CPU, and is decided once per run and stored."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from helpers.runs import description, stop_at, tiny_run
from latent_tokens import METHODS, TASKS, EvalConfig, evaluate, fit
from latent_tokens.bench import default_precisions
from latent_tokens.configs import BenchConfig, DemoConfig, TrainConfig
from latent_tokens.demo import training
from latent_tokens.network.kernels import bf16_is_fast, precision_reason, resolve_precision
from latent_tokens.training.checkpoint import saved_states

CPU = torch.device("cpu")
NEITHER = {"avx2": True, "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}
WITH_AVX512 = NEITHER | {"avx512_bf16": True}
WITH_AMX = NEITHER | {"amx_bf16": True}


@pytest.fixture
def cpu(monkeypatch):
    """Return a function that sets the capabilities that torch reports."""
    return lambda known: monkeypatch.setattr("torch.cpu.get_capabilities", lambda: known, raising=False)


def stored(run):
    return description(run)["training"]["precision"]


def auto_run(out, **changes):
    return tiny_run(out, precision="auto", **changes)


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
    for asked in ("fp32", "bf16"):
        assert resolve_precision(asked, CPU) == asked


@pytest.mark.parametrize("supported", [(False, False), (True, False), (False, True)])
def test_auto_asks_an_older_torch_by_its_own_functions(monkeypatch, supported):
    monkeypatch.delattr("torch.cpu.get_capabilities", raising=False)
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: supported[0])
    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: supported[1])
    assert bf16_is_fast() == any(supported)


@pytest.mark.parametrize(("known", "precision"), [(NEITHER, "fp32"), (WITH_AMX, "bf16")])
def test_a_run_prints_and_stores_what_auto_is(cpu, tmp_path, capsys, known, precision):
    cpu(known)
    run = fit(auto_run(tmp_path / "auto", steps=2))
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("precision")]
    assert line == f"precision {precision} (auto: {precision_reason(CPU)})"
    assert stored(run) == precision
    named = fit(tiny_run(tmp_path / "named", steps=2, precision=precision))
    assert (run / "model.safetensors").read_bytes() == (named / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("first", "then"), [(WITH_AMX, NEITHER), (NEITHER, WITH_AMX)])
def test_resume_keeps_the_stored_precision_on_another_cpu(cpu, tmp_path, capsys, first, then):
    """The weights are bit-equal in both formats."""
    cpu(first)
    config = auto_run(tmp_path / "cut")
    with pytest.raises(KeyboardInterrupt):
        fit(config, observe=stop_at(7))
    precision = stored(config.folder)
    whole = fit(tiny_run(tmp_path / "whole", precision=precision))
    cpu(then)
    capsys.readouterr()
    fit(replace(config, resume="yes"))
    printed = capsys.readouterr().err
    assert f"precision {precision} (as the run was started)" in printed
    assert ("many times slower than fp32" in printed) == (precision == "bf16")
    assert stored(config.folder) == precision
    assert [path.name for path in saved_states(config.folder)] == [path.name for path in saved_states(whole)]
    assert (config.folder / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    other = "fp32" if precision == "bf16" else "bf16"
    with pytest.raises(ValueError, match=rf"precision={other}: .* was started with {precision}"):
        fit(replace(config, precision=other, resume="yes"))


@pytest.mark.parametrize(("known", "warns"), [(NEITHER, True), (WITH_AVX512, False)])
def test_bf16_without_its_instructions_warns_in_one_line(cpu, tmp_path, pico, capsys, known, warns):
    cpu(known)
    fit(tiny_run(tmp_path / "run", steps=1, precision="bf16"))
    net = deepcopy(pico)
    net.method = METHODS["scdm"]
    evaluate(net, TASKS["sudoku-4"], EvalConfig(num_samples=2, precision="bf16"))
    printed = [line for line in capsys.readouterr().err.splitlines() if "many times slower" in line]
    assert len(printed) == (2 if warns else 0)
    for line in printed:
        assert line.startswith("precision bf16: ")
        assert "neither AVX512-BF16 nor AMX" in line


def test_nothing_takes_bf16_on_a_cpu_unasked(cpu):
    cpu(NEITHER)
    defaults = (TrainConfig("sudoku-6", "scdm").precision, DemoConfig().precision, EvalConfig().precision)
    assert [resolve_precision(setting, CPU) for setting in defaults] == ["fp32"] * 3
    assert training(DemoConfig()).precision == "auto"
    assert BenchConfig().precisions is None
    assert default_precisions(CPU) == ("fp32",)
    cpu(WITH_AVX512)
    assert default_precisions(CPU) == ("fp32", "bf16")
    assert EvalConfig().precision == "fp32"
