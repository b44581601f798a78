"""Data sets: the same bytes from a seed, disjoint splits, and a directory that is complete or absent."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.refusals import refused, refused_command
from helpers.runs import flip
from latent_tokens import METHODS, TASKS, DataConfig, EvalConfig, evaluate, load_data, make_data
from latent_tokens.cli import main
from latent_tokens.data.loading import fingerprint
from latent_tokens.data.splits import make_splits
from latent_tokens.tasks import SPLITS
from latent_tokens.tasks.countdown import texts
from latent_tokens.tasks.zebra.puzzles import read_prompt

SIZES = {"num_train": 300, "num_validation": 20, "num_test": 20}
PUZZLES = (
    "080050060460907108005000029970006500000872031300049000004025003010000480603100007",
    "024000390370061000500000020230700460060004508005900170040000080000093007096015040",
    "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79",
)
OTHER = "003020600900305001001806400008102900700000008006708200002609500800203009005010300"


def made(tmp_path, task, name="data", **changes):
    return make_data(DataConfig(task, tmp_path / name, **{**SIZES, "processes": 1, **changes}))


def manifest_of(folder):
    return json.loads((folder / "manifest.json").read_text())


PINNED = {  # of the first training examples of seed 0; a change here changes `paper.hashes.data_content`
    "sudoku-4": "1514eb895ebe", "sudoku-6": "fec123c7d245", "sudoku-9": "2266a8834fb7",
    "sudoku-16": "e2628071a7e2",
    "sudoku-36": "7e9f66a2984f", "sudoku-puzzle": "0e5e61d9392f", "sudoku-6-puzzle": "56f73a196b71",
    "zebra": "c5e79262bbd2",
    "zebra-3": "881af5a669a8", "countdown": "12f81d124874", "countdown-3": "132087f174d1",
    "countdown-4": "2a4a072fcee4",
}  # fmt: skip


@pytest.mark.parametrize("name", PINNED)
def test_a_seed_gives_the_same_bytes_in_every_version(name):
    made = make_splits(TASKS[name], {"train": 20}, seed=0).examples()["train"]
    assert fingerprint(made)[:12] == PINNED[name]


def test_the_same_bytes_on_any_number_of_processes(tmp_path):
    one, two = (
        made(tmp_path, "sudoku-6", str(count), num_train=2_500, processes=count, num_test=0)
        for count in (1, 2)
    )
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in two.iterdir())
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes()


@pytest.mark.parametrize(
    "name", ["sudoku-4", "sudoku-6-puzzle", "sudoku-16", "zebra-3", "zebra-compact-3", "countdown-3"]
)
def test_puzzles_do_not_leak_across_splits_or_repeat(tmp_path, name):
    task, splits = load_data(made(tmp_path, name))
    keys = [task.keys(splits[split]) for split in SPLITS]
    every = np.concatenate(keys)
    assert len(np.unique(every)) == len(every)
    for number, split in enumerate(SPLITS):
        assert (task.splits(splits[split]) == number).all()
    if name != "sudoku-4":
        assert [len(part) for part in keys] == list(SIZES.values())


def test_288_boards_of_4x4_are_split_as_the_manifest_counts(tmp_path):
    manifest = manifest_of(made(tmp_path, "sudoku-4", num_train=1_000, num_validation=1_000, num_test=1_000))
    assert sum(split["examples"] for split in manifest["splits"].values()) == 288
    assert manifest["smaller_than_asked"] == {"train": 1_000, "validation": 1_000, "test": 1_000}
    assert manifest["note"] == "there are 288 boards of 4x4 in all"


def test_a_manifest_pins_what_made_the_data(tmp_path):
    manifest = manifest_of(made(tmp_path, "sudoku-6", source="pattern", padding="paper", seed=7))
    assert manifest["task"] == {"name": "sudoku-6", "source": "pattern", "padding": "paper"}
    assert (manifest["seed"], manifest["generator"]) == (7, 1)
    assert manifest["tried"] >= 340
    assert manifest["made_with"]["numpy"] == np.__version__
    assert "one board up to symmetry" in manifest["note"]
    assert manifest["splits"]["train"]["examples"] == 300
    long = manifest_of(made(tmp_path, "countdown", "long", padding="paper", num_train=1_000))
    assert 0 < long["too_long"] / long["tried"] < 0.05


def test_settings_reach_the_examples(tmp_path):
    task, splits = load_data(made(tmp_path, "sudoku-6-puzzle", clues=14, guessing="allowed"))
    assert ((task.givens(splits["train"].tokens) >= 0).sum(1) == 14).all()
    task, splits = load_data(made(tmp_path, "zebra", "houses", houses=(4,), attributes=(3, 5)))
    assert {read_prompt(row)[1:] for row in splits["train"].tokens} == {(4, 3), (4, 5)}
    task, splits = load_data(made(tmp_path, "countdown", "numbers", numbers=3, targets=(10, 20)))
    assert (task.numbers, task.length) == (3, 37)
    targets = {int(texts(row)[0].rsplit(",", 1)[1]) for row in splits["train"].tokens}
    assert targets == {*range(10, 21)} - {14}


def test_another_data_set_can_be_kept_out(tmp_path):
    task, puzzles = load_data(made(tmp_path, "sudoku-6-puzzle", "held"))
    everything = made(tmp_path, "sudoku-6", "boards", num_train=2_000, seed=1)
    _, before = load_data(everything)
    kept_out = {"apart_from": (everything, tmp_path / "held")}
    boards, after = load_data(made(tmp_path, "sudoku-6", "apart", num_train=2_000, seed=1, **kept_out))
    held = {key for examples in before.values() for key in boards.keys(examples).tolist()}
    held |= {key for examples in puzzles.values() for key in task.keys(examples).tolist()}
    assert not held & {key for examples in after.values() for key in boards.keys(examples).tolist()}
    with refused("boards: contains sudoku-6, which has no puzzle in common with zebra-3"):
        made(tmp_path, "zebra-3", "other", apart_from=(everything,))
    zebra, puzzles = load_data(made(tmp_path, "zebra-3", "zebra"))
    compact, others = load_data(
        made(tmp_path, "zebra-compact-3", "compact", apart_from=(tmp_path / "zebra",))
    )
    left_out = manifest_of(tmp_path / "compact")["kept_out"]
    assert 0 < left_out <= sum(len(examples) for examples in puzzles.values())
    assert not {*zebra.keys(puzzles["train"]).tolist()} & {*compact.keys(others["train"]).tolist()}


def test_a_file_of_others_becomes_a_data_set(tmp_path):
    (tmp_path / "mine.txt").write_text("\n".join([*PUZZLES, PUZZLES[0], "not a puzzle"]))
    (tmp_path / "four.txt").write_text("\n".join([*PUZZLES, PUZZLES[0], OTHER]))
    every = {"num_train": None, "num_validation": None, "num_test": None}
    settings = {"source": str(tmp_path / "mine.txt"), "skip_bad": True, **every}
    folder = made(tmp_path, "sudoku-puzzle", **settings, split="test")
    task, splits = load_data(folder)
    assert list(splits) == ["test"]
    read = ["".join(map(str, row + 1)) for row in task.givens(splits["test"].tokens)]
    assert read == [puzzle.replace(".", "0") for puzzle in (*PUZZLES, PUZZLES[0])]
    about = manifest_of(folder)
    assert about["bad_rows"] == [
        "mine.txt, line 5: puzzle of 10 cells: must have 81 (9x9), row by row, 0 or . for an empty cell"
    ]
    assert about["file"] == "mine.txt"
    spread, parts = load_data(made(tmp_path, "sudoku-puzzle", "spread", **settings))
    assert sum(len(part.tokens) for part in parts.values()) == 4
    for split, part in parts.items():
        assert (spread.splits(part) == SPLITS.index(split)).all()
    settings["source"] = str(tmp_path / "four.txt")
    apart = made(tmp_path, "sudoku-9", "apart", **settings, apart_from=(folder,))
    assert sum(len(part.tokens) for part in load_data(apart)[1].values()) == 1
    assert manifest_of(apart)["kept_out"] == 4


def test_a_model_is_judged_on_a_data_set(pico, tmp_path):
    data = made(tmp_path, "sudoku-4", num_test=12)
    pico.method = METHODS["mdm"]
    (row,) = evaluate(pico, TASKS["sudoku-4"], EvalConfig(data=data))
    assert (row["num_samples"], row["metric"]) == (12, "valid")
    (fewer,) = evaluate(pico, TASKS["sudoku-4"], EvalConfig(data=data, num_samples=5))
    assert fewer["num_samples"] == 5
    with refused("padding=paper, and the model learned "):
        padded = made(tmp_path, "sudoku-4", "paper", padding="paper")
        evaluate(pico, TASKS["sudoku-4"], EvalConfig(data=padded))


def edited(**entries):
    """Return a damage: a manifest with other entries."""
    return lambda folder: (folder / "manifest.json").write_text(json.dumps(manifest_of(folder) | entries))


DAMAGE = {
    "a changed byte": (lambda folder: flip(folder / "train.tokens.npy", -1), "does not match the checksum"),
    "a cut file": (lambda folder: os.truncate(folder / "train.known.npy", 200), "train cannot be read"),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "manifest.json is missing"),
    "a broken manifest": (lambda folder: (folder / "manifest.json").write_text("{"), "corrupt"),
    "another task": (edited(task={"name": "zebra-3"}), "train is of another task"),
    "a list for a name": (edited(task={"name": ["x"]}), "no task of this version"),
    "no task": (edited(task=None), "no task of this version"),
    "an unknown setting": (edited(task={"name": "sudoku-4", "colour\nred": 1}), "no such setting"),
    "the paper's padding": (edited(task={"name": "sudoku-4", "padding": "paper"}), "is of another task"),
    "clues": (edited(task={"name": "sudoku-puzzle", "clues": None}), "clues=None"),
    "no splits": (edited(splits=None), "Make the data set again"),
    "splits in a list": (edited(splits=["train", "validation"]), "Make the data set again"),
    "a split in a list": (edited(splits={"train": []}), "its manifest lists no splits"),
    "another format": (edited(format=0), "format 0"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_refused_in_one_line(places, tmp_path, capsys, damage, message):
    folder = shutil.copytree(places["boards"], tmp_path / "data")
    damage(folder)
    refused_command(capsys, f"train sudoku-4 scdm --data {folder} --out {tmp_path / 'run'}", message)
    assert not (tmp_path / "run").exists()


MISTAKES = [
    ("data sudoku-6 --apart-from nowhere", "no data set"),
    ("data sudoku-6 --out .", "--out .: is the current directory. Choose another directory."),
    ("data sudoku-9 --show 0", "--show 0: must be a whole number from 1"),
    ("train sudoku-4 scdm --data {untrained} --out {out}", "lacks train or validation examples"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Return data sets by name."""
    folder = tmp_path_factory.mktemp("in")
    untrained = made(folder, "sudoku-4", "untrained", num_train=0)
    return {"boards": made(folder, "sudoku-4"), "untrained": untrained}


@pytest.mark.parametrize("name", ["sudoku-6-puzzle", "zebra-3", "countdown-3"])
def test_puzzles_are_shown_and_nothing_is_written(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", name, "--show", "2"]) == 0
    shown = capsys.readouterr().out.rstrip("\n")
    tokens = TASKS[name].generate(2, seed=0).tokens
    assert shown == "\n\n".join(map(TASKS[name].decode, tokens))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_making_leaves_nothing_and_starts_clean(tmp_path, sign, request):
    out, log = tmp_path / "out", tmp_path / "log"
    out.mkdir()  # an empty directory that the command made would be removed
    command = ["data", "sudoku-6-puzzle", "--out", str(out / "data"), "--processes", "2", "--num-train"]
    with log.open("w") as errors:
        started = [sys.executable, "-m", "latent_tokens.cli", *command, "200000"]
        process = subprocess.Popen(started, stderr=errors)
    request.addfinalizer(process.kill)

    def wait_until(holds):
        until = time.monotonic() + 300
        while not holds():
            assert time.monotonic() < until
            time.sleep(0.1)

    wait_until(lambda: (out / ".data.unfinished").is_dir() and "making" in log.read_text())
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.send_signal(sign)
    assert process.wait(timeout=60) == (130 if sign is signal.SIGINT else -signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    remains = [".data.lock", ".data.unfinished"]
    if sign is signal.SIGINT:
        assert log.read_text().splitlines()[-1] == "latent-tokens: stopped"
        assert "Traceback" not in log.read_text()
        remains = []
    assert sorted(path.name for path in out.iterdir()) == remains
    (out / ".data.unfinished").mkdir(exist_ok=True)
    (out / ".data.unfinished" / "train.tokens.npy").write_bytes(b"half")
    assert main([*command, "20"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["data"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(file, array):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match=r"cannot be written .No space left on device., and nothing"):
        made(tmp_path, "sudoku-4")
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_gets_one_line_and_nothing_is_written(places, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command, message in MISTAKES:
        refused_command(capsys, command.format(**places, out=tmp_path / "run"), message)
        assert list(tmp_path.rglob("*")) == []
