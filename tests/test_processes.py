"""Several ranks train, sample and evaluate as one process does, on the CPU: by fork, torchrun and Slurm."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from helpers.documentation import ROOT, commands, run
from helpers.ranks import free_port, run_ranks
from helpers.runs import timeless
from helpers.tiny_models import tiny_model
from latent_tokens import DataConfig, make_data, processes
from latent_tokens.cli import main

pytestmark = pytest.mark.slow
OPTIONS = (
    "sudoku-4 --size pico --batch-size 22 --num-train 100 --num-validation 20 "
    "--evaluate-every 25 --schedule constant --lr 1e-3 --precision fp32"
)
TRAIN = ["train", *OPTIONS.split()]
ADAPT = "--precision fp32 --steps 6 --batch-size 6 --evaluate-every 3 --lr 1e-2 --warmup 1"


def torchrun(count, *arguments):
    """Return the output of `latent-tokens` in a number of processes that torchrun starts."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(count), "--master-port", free_port()]
    command = [sys.executable, *launcher, "-m", "latent_tokens", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def together(count, *arguments, program="latent_tokens.cli"):
    code, out, err = run_ranks(count, *arguments, program=program)
    assert code == 0, err
    return out


def alone(*arguments):
    with redirect_stdout(io.StringIO()) as said:
        assert main([str(argument) for argument in arguments]) == 0
    return said.getvalue()


def lines(folder, file):
    return [json.loads(line) for line in (folder / file).read_text().splitlines()]


def losses(run, last):
    """Return the rows of the metrics up to a step."""
    return [row for row in timeless(run) if row["step"] <= last]


def assert_same_losses(run, other, last):
    found, expected = losses(run, last), losses(other, last)
    assert found[-1]["step"] == last
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        assert row == pytest.approx(wanted, rel=1e-5)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    run = tmp_path_factory.mktemp("one") / "run"
    alone(*TRAIN, "scdm", "--steps", "200", "--out", run)
    return run


@pytest.mark.parametrize(("count", "steps", "start"), [(2, 200, torchrun), (4, 50, together)])
def test_ranks_train_to_the_losses_of_one_process(one, tmp_path, count, steps, start):
    run = tmp_path / "run"
    said = start(count, *TRAIN, "scdm", "--steps", steps, "--out", run)
    assert said == f"{run}\n"
    assert_same_losses(run, one, steps)


def test_fsdp_trains_to_the_losses_of_one_process(one, tmp_path):
    asked = [*TRAIN, "scdm", "--steps", "50", "--parallel", "fsdp", "--out", tmp_path / "run"]
    said = together(2, *asked, program="helpers.train_and_print_shards")
    assert said.count("held 0.5 0.5 0.5") == 2
    assert_same_losses(tmp_path / "run", one, 50)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_resume_may_change_the_world_size(one, tmp_path, parallel):
    run = tmp_path / "run"
    asked = [*TRAIN, "scdm", "--steps", "50", "--save-every", "25", "--out", run]
    together(2, *asked, "--parallel", parallel)
    (latest,) = run.glob("state-00000050-*")
    latest.unlink()
    if parallel == "fsdp":
        together(2, *asked, "--parallel", parallel, "--resume", "auto")
    else:
        alone(*asked, "--resume", "auto")
    assert_same_losses(run, one, 50)


def test_ranks_with_different_microbatches_train_alike(tmp_path):
    asked = [*TRAIN, "scdm", "--steps", "5", "--batch-size", "7", "--out"]
    alone(*asked, tmp_path / "one")
    for parallel in ("ddp", "fsdp"):
        options = [tmp_path / parallel, "--parallel", parallel]
        together(2, *asked, *options, program="helpers.train_one_row_at_once")
        assert_same_losses(tmp_path / parallel, tmp_path / "one", 5)


def test_own_network_trains_alike_on_two_ranks(tmp_path):
    program = "helpers.train_own_network"
    together(1, tmp_path / "one", "ddp", program=program)
    for parallel in ("ddp", "fsdp"):
        together(2, tmp_path / parallel, parallel, program=program)
        rows = lines(tmp_path / parallel, "metrics.jsonl")
        expected = lines(tmp_path / "one", "metrics.jsonl")
        for name in ("loss", "validation_loss"):
            values = [row[name] for row in rows if name in row]
            assert values == pytest.approx([row[name] for row in expected if name in row], rel=1e-5)
            assert values


@pytest.fixture(scope="module")
def adapt(tmp_path_factory):
    """The command that adapts a tiny model of transformers to sentences of 12 bytes."""
    folder = tmp_path_factory.mktemp("adapt")
    for number in range(100):
        (folder / f"{number}.txt").write_text(f"{number} cats and {number + 1} dogs ran.")
    data = make_data(DataConfig("text", folder / "data", source=str(folder), length=12, tokenizer="bytes"))
    tiny_model("llama", vocab_size=257).save_pretrained(folder / "base")
    return ["train", "text", "esolm", "--from", folder / "base", "--data", data, *ADAPT.split()]


@pytest.mark.parametrize("adapter", [["--lora", "2", "--gradient-checkpointing"], []], ids=["lora", "full"])
def test_ranks_adapt_a_model_to_the_losses_of_one_process(adapt, tmp_path, adapter):
    alone(*adapt, *adapter, "--out", tmp_path / "one")
    command = [*adapt, *adapter, "--out", tmp_path / "two"]
    printed = together(2, *command, program="helpers.train_and_print_writes")
    assert_same_losses(tmp_path / "two", tmp_path / "one", 6)
    assert "rank 1 wrote 0 files" in printed
    assert "rank 0 wrote 0 files" not in printed
    weights = [load_file(tmp_path / run / "model.safetensors") for run in ("one", "two")]
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, atol=1e-4, rtol=1e-3)
    assert len(weights[0]) == len(weights[1])


def test_ranks_evaluate_and_sample_as_one_process(one, tmp_path):
    asked = ["--num-samples", "7", "--batch-size", "3", "--latents", "0", "2"]
    alone("evaluate", one, *asked, "--out", tmp_path / "one")
    said = together(2, "evaluate", one, *asked, "--out", tmp_path / "two", "--json")
    rows, others = (
        [{k: v for k, v in row.items() if "second" not in k and k != "row_sha256"} for row in rows]
        for rows in (lines(tmp_path / name, "results.jsonl") for name in ("one", "two"))
    )
    assert others == rows
    assert [json.loads(line)["latents"] for line in said.splitlines()] == [0, 2]
    drawn = ["sample", one, "--num-samples", "3", "--json"]
    assert together(2, *drawn) == alone(*drawn)


def test_rank_without_samples_is_allowed(one, tmp_path):
    asked = ["--num-samples", "1", "--json"]
    together(2, "evaluate", one, *asked, "--out", tmp_path / "two")
    assert len(lines(tmp_path / "two", "results.jsonl")) == 1
    assert together(2, "sample", one, *asked) == alone("sample", one, *asked)


def test_rank_without_world_size_is_main(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert processes.is_main()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not processes.is_main()


def test_data_set_is_written_once(tmp_path):
    asked = ["data", "sudoku-4", "--num-train", "20", "--num-validation", "4", "--num-test", "4", "--out"]
    assert together(2, *asked, tmp_path / "two") == f"{tmp_path / 'two'}\n"
    alone(*asked, tmp_path / "one")
    made = [(tmp_path / name / "train.tokens.npy").read_bytes() for name in ("one", "two")]
    assert made[0] == made[1]


def test_more_ranks_than_examples_are_refused(tmp_path):
    options = ["--steps", "5", "--batch-size", "1", "--out", tmp_path / "run"]
    code, _, err = run_ranks(2, *TRAIN, "scdm", *options)
    assert code == 2
    assert "--batch-size 1: must be at least the world size, 2" in err
    assert not (tmp_path / "run").exists()


SRUN = """#!/bin/bash
for task in 0 1; do
    SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NTASKS=2 "$@" &
    echo $! >> tasks
done
for task in $(cat tasks); do wait "$task" || status=$?; done
exit "$status"
"""
SCONTROL = """#!/bin/bash
[ "$1" = show ] && echo 127.0.0.1 || echo "$@" >> requeued
"""


def test_slurm_job_saves_and_is_requeued_on_a_signal(one, tmp_path):
    for name, script in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "here", "MASTER_PORT": free_port()}
    environment = os.environ | {"PATH": path, **job}
    asked = [*TRAIN, "scdm", "--steps", "200", "--out"]
    command = ["bash", str(ROOT / "scripts" / "train.slurm"), *asked, "run", "--save-every", "1"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as job:
        while not list((tmp_path / "run").glob("state-*")):
            time.sleep(0.02)
            assert job.poll() is None
        os.kill(int((tmp_path / "tasks").read_text().split()[1]), signal.SIGUSR1)  # one gets it, both stop
        said = job.communicate(timeout=120)[1]
    assert job.returncode == 75, said
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    together(2, *asked, tmp_path / "run", "--save-every", "200", "--resume", "auto")
    assert_same_losses(tmp_path / "run", one, 200)


def test_commands_of_the_page_on_scaling_run(tmp_path):
    page = commands((ROOT / "docs" / "scaling.md").read_text())
    assert sum(command.startswith("torchrun") for command in page) >= 2
    run(page, tmp_path)
    assert (tmp_path / "runs/four-by-two/model.safetensors").is_file()


def test_rank_0_chooses_the_precision_of_all_ranks(tmp_path):
    asked = [*TRAIN[:-2], "scdm", "--steps", "3", "--out"]
    together(2, *asked, tmp_path / "unequal", program="helpers.train_on_unequal_cpus")
    together(2, *asked, tmp_path / "named", "--precision", "bf16")
    assert json.loads((tmp_path / "unequal/config.json").read_text())["training"]["precision"] == "bf16"
    weights = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("unequal", "named")]
    assert weights[0] == weights[1]
