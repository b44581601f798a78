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
import torch.distributed as dist
from safetensors.torch import load_file

from helpers.documentation import ROOT, commands, run
from helpers.rank_programs import own_network
from helpers.ranks import free_port, run_jobs, run_ranks
from helpers.runs import checkpoints, description, timeless
from helpers.tiny_models import tiny_model
from latent_tokens import DataConfig, make_data, processes
from latent_tokens.cli import entry, main
from latent_tokens.training.checkpoint import saved_step

pytestmark = pytest.mark.slow
OPTIONS = (
    "sudoku-4 scdm --size pico --batch-size 22 --num-train 100 --num-validation 20 "
    "--evaluate-every 25 --schedule constant --lr 1e-3"
)
UNSET = ["train", *OPTIONS.split(), "--out"]
TRAIN = [*UNSET[:-1], "--precision", "fp32", "--steps", "50", "--out"]
FEW = ["--steps", "5", "--batch-size", "7"]
EVALUATE = ["--num-samples", "7", "--batch-size", "3", "--latents", "0", "2"]
DATA = ["data", "sudoku-4", "--num-train", "20", "--num-validation", "4", "--num-test", "4", "--out"]
ADAPT = "--precision fp32 --steps 6 --batch-size 6 --evaluate-every 3 --lr 1e-2 --warmup 1"
LORA = ["--lora", "2", "--gradient-checkpointing"]


def alone(*arguments):
    with redirect_stdout(io.StringIO()) as printed:
        assert main([str(argument) for argument in arguments]) == 0
    return printed.getvalue()


def results(path):
    """Return the rows of results.jsonl without times and their hashes."""
    rows = [json.loads(line) for line in (path / "results.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if "second" not in k and k != "row_sha256"} for row in rows]


def assert_same_losses(run, other):
    rows, expected = timeless(run), timeless(other)
    assert len(rows) == len(expected) > 0
    for row, wanted in zip(rows, expected, strict=True):
        assert row == pytest.approx(wanted, rel=1e-5)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def one(home):
    """Return a run of one process."""
    alone(*TRAIN, home / "one")
    return home / "one"


@pytest.fixture(scope="module")
def adapt(home):
    """Return the command that adapts a tiny model of transformers to sentences of 12 bytes."""
    folder = home / "text"
    folder.mkdir()
    for number in range(100):
        (folder / f"{number}.txt").write_text(f"{number} cats and {number + 1} dogs ran.")
    config = DataConfig("text", home / "sentences", source=str(folder), length=12, tokenizer="bytes")
    tiny_model("llama", vocab_size=257).save_pretrained(home / "base")
    return ["train", "text", "esolm", "--from", home / "base", "--data", make_data(config), *ADAPT.split()]


@pytest.fixture(scope="module")
def two(home, one, adapt):
    """Return what two ranks answer to many commands. They are started once."""
    jobs = {
        "ddp": ["main", *TRAIN, home / "ddp", "--save-every", "25"],
        "fsdp": ["with_shards", *TRAIN, home / "fsdp", "--parallel", "fsdp"],
        "resumed": ["resumed", *TRAIN, home / "resumed", "--save-every", "25", "--parallel", "fsdp"],
        "ddp, rows": ["one_row_at_once", *TRAIN, home / "ddp-rows", *FEW],
        "fsdp, rows": ["one_row_at_once", *TRAIN, home / "fsdp-rows", *FEW, "--parallel", "fsdp"],
        "ddp, own": ["own_network", home / "ddp-own", "ddp"],
        "fsdp, own": ["own_network", home / "fsdp-own", "fsdp"],
        "lora": ["with_writes", *adapt, *LORA, "--out", home / "two-lora"],
        "full": ["with_writes", *adapt, "--out", home / "two-full"],
        "unequal": ["on_unequal_cpus", *UNSET, home / "unequal", "--steps", "3"],
        "named": ["main", *UNSET, home / "named", "--steps", "3", "--precision", "bf16"],
        "evaluate": ["main", "evaluate", one, *EVALUATE, "--out", home / "two-rows", "--json"],
        "evaluate one": ["main", "evaluate", one, "--num-samples", "1", "--out", home / "two-row"],
        "sample": ["main", "sample", one, "--num-samples", "3", "--json"],
        "sample one": ["main", "sample", one, "--num-samples", "1", "--json"],
        "data": ["main", *DATA, home / "two-data"],
        "leaves": ["leaves", *TRAIN, home / "leaves"],
        "too many": ["main", *TRAIN, home / "too-many", "--batch-size", "1"],
    }
    answers = run_jobs(2, jobs)
    for name, (code, _, err) in answers.items():
        assert code == (2 if name == "too many" else 0), err
    return answers


def test_ranks_train_to_the_losses_of_one_process(home, one, two, tmp_path):
    assert two["ddp"][1] == f"{home / 'ddp'}\n"
    assert_same_losses(home / "ddp", one)
    code, _, err = run_ranks(4, *TRAIN, tmp_path / "four")
    assert code == 0, err
    assert_same_losses(tmp_path / "four", one)


def test_torchrun_trains_to_the_losses_of_one_process(one, tmp_path):
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port()]
    command = [sys.executable, *launcher, "-m", "latent_tokens", *TRAIN, tmp_path / "run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ, check=False)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'run'}\n"), done.stderr
    assert_same_losses(tmp_path / "run", one)


def test_fsdp_trains_to_the_losses_of_one_process(home, one, two):
    assert two["fsdp"][1].count("held 0.5 0.5 0.5") == 2
    assert_same_losses(home / "fsdp", one)


def test_resume_may_change_the_world_size(home, one, two):
    assert_same_losses(home / "resumed", one)
    (home / "ddp" / checkpoints(home / "ddp")[0]).unlink()
    alone(*TRAIN, home / "ddp", "--save-every", "25", "--resume", "auto")
    assert_same_losses(home / "ddp", one)


def test_ranks_with_different_microbatches_train_alike(home, two, tmp_path):
    alone(*TRAIN, tmp_path / "one", *FEW)
    for parallel in ("ddp", "fsdp"):
        assert_same_losses(home / f"{parallel}-rows", tmp_path / "one")


def test_own_network_trains_alike_on_two_ranks(home, two, tmp_path):
    own_network(tmp_path / "one", "ddp")
    for parallel in ("ddp", "fsdp"):
        assert_same_losses(home / f"{parallel}-own", tmp_path / "one")


@pytest.mark.parametrize(("name", "options"), [("lora", LORA), ("full", [])], ids=["lora", "full"])
def test_ranks_adapt_a_model_to_the_losses_of_one_process(home, adapt, two, tmp_path, name, options):
    alone(*adapt, *options, "--out", tmp_path / "one")
    run = home / f"two-{name}"
    assert_same_losses(run, tmp_path / "one")
    assert "rank 1 wrote 0 files" in two[name][1]
    assert "rank 0 wrote 0 files" not in two[name][1]
    weights = load_file(run / "model.safetensors")
    expected = load_file(tmp_path / "one" / "model.safetensors")
    assert weights.keys() == expected.keys()
    for key, weight in expected.items():
        torch.testing.assert_close(weights[key], weight, atol=1e-4, rtol=1e-3)


def test_ranks_evaluate_and_sample_as_one_process(home, one, two):
    alone("evaluate", one, *EVALUATE, "--out", home / "one-rows")
    assert results(home / "two-rows") == results(home / "one-rows")
    assert [json.loads(line)["latents"] for line in two["evaluate"][1].splitlines()] == [0, 2]
    assert len(results(home / "two-row")) == 1  # a rank without samples
    for name, count in (("sample", 3), ("sample one", 1)):
        assert two[name][1] == alone("sample", one, "--num-samples", count, "--json")


def test_rank_without_world_size_is_main(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert processes.is_main()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not processes.is_main()


def test_models_of_a_run_go_before_its_group(home, two):
    """Otherwise DistributedDataParallel and Gloo can wait for each other at the end. Ranks stay joined."""
    assert two["leaves"][1].count("left with 0 models") == 2
    assert len(results(home / "leaves")) == 1


@pytest.mark.parametrize("code", [0, 75, 2])
def test_command_that_ends_well_leaves_the_group(monkeypatch, code):
    """After an error the group stays: another rank may wait in it."""
    monkeypatch.setattr("latent_tokens.cli.main", lambda: code)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(SystemExit) as ended:
            entry()
        assert ended.value.code == code
        assert dist.is_initialized() == (code == 2)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def test_data_set_is_written_once(home, two, tmp_path):
    assert two["data"][1] == f"{home / 'two-data'}\n"
    alone(*DATA, tmp_path / "one")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (home / "two-data" / path.name).read_bytes()


def test_more_ranks_than_examples_are_refused(home, two):
    assert "--batch-size 1: must be at least the world size, 2" in two["too many"][2]
    assert not (home / "too-many").exists()


def test_rank_0_chooses_the_precision_of_all_ranks(home, two):
    assert description(home / "unequal")["training"]["precision"] == "bf16"
    weights = [(home / run / "model.safetensors").read_bytes() for run in ("unequal", "named")]
    assert weights[0] == weights[1]


SRUN = """#!/bin/bash
for task in 0 1; do
    SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NTASKS=2 "$@" &
    echo $! >> tasks
done
status=0
for task in $(cat tasks); do wait "$task" || status=$?; done
exit "$status"
"""
SCONTROL = """#!/bin/bash
[ "$1" = show ] && echo 127.0.0.1 || echo "$@" >> requeued
"""


def test_slurm_job_saves_and_is_requeued_on_a_signal(tmp_path):
    """The job has more steps than it can take before the signal, however slow this process is."""
    for name, script in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "here", "MASTER_PORT": free_port()}
    options = ["run", "--steps", "1000000", "--save-every", "20", "--evaluate-every", "1000000"]
    command = ["bash", str(ROOT / "scripts" / "train.slurm"), *TRAIN, *options]
    errors = tmp_path / "errors"
    with errors.open("w") as stderr:
        job = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PATH": path, **slurm}, stderr=stderr)
    while not list((tmp_path / "run").glob("state-*")):
        time.sleep(0.02)
        assert job.poll() is None, errors.read_text()
    os.kill(int((tmp_path / "tasks").read_text().split()[1]), signal.SIGUSR1)  # one gets it, both stop
    assert job.wait(timeout=120) == 75, errors.read_text()
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    step = saved_step(tmp_path / "run")
    assert f"stopped at step {step} of 1000000" in errors.read_text()


def test_commands_of_the_page_on_scaling_run(tmp_path):
    page = commands((ROOT / "docs" / "scaling.md").read_text())
    assert sum(command.startswith("torchrun") for command in page) >= 2
    run(page, tmp_path)
    assert (tmp_path / "runs/four-by-two/model.safetensors").is_file()
