"""Data sets: the same bytes from a seed, disjoint splits, and a directory that is complete or absent."""

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from latent_tokens import (
    TASKS,
    DataConfig,
    EvalConfig,
    Examples,
    TrainConfig,
    evaluate,
    fit,
    from_pretrained,
    load_data,
    make_data,
)
from latent_tokens.cli import main
from latent_tokens.data.loading import fingerprint
from latent_tokens.data.splits import make_splits
from latent_tokens.tasks import SPLITS, configured
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


@pytest.mark.parametrize("task", ["sudoku-6", "sudoku-6-puzzle", "zebra-3", "countdown-3"])
def test_the_same_bytes_on_any_number_of_processes(tmp_path, task):
    one, two = (made(tmp_path, task, str(count), num_train=5_000, processes=count) for count in (1, 2))
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in two.iterdir())
    for path in one.glob("*.npy"):
        assert path.read_bytes() == (two / path.name).read_bytes()
    assert manifest_of(one) == manifest_of(two)


@pytest.mark.parametrize("task", sorted({task.name for task in TASKS.values()}))
def test_puzzles_do_not_leak_across_splits_or_repeat(tmp_path, task):
    found, splits = load_data(made(tmp_path, task))
    keys = [found.keys(splits[split]) for split in SPLITS]
    every = np.concatenate(keys)
    assert len(np.unique(every)) == len(every)
    for number, split in enumerate(SPLITS):
        assert (found.splits(splits[split]) == number).all()
    if task != "sudoku-4":
        assert [len(part) for part in keys] == list(SIZES.values())


def test_288_boards_of_4x4_are_split_as_the_manifest_counts(tmp_path):
    about = manifest_of(made(tmp_path, "sudoku-4", num_train=1_000, num_validation=1_000, num_test=1_000))
    assert sum(split["examples"] for split in about["splits"].values()) == 288
    assert about["smaller_than_asked"] == {"train": 1_000, "validation": 1_000, "test": 1_000}
    assert about["note"] == "there are 288 boards of 4x4 in all"


def test_a_manifest_pins_what_made_the_data(tmp_path):
    about = manifest_of(made(tmp_path, "sudoku-6", source="pattern", padding="paper", seed=7))
    assert about["task"] == {"name": "sudoku-6", "source": "pattern", "padding": "paper"}
    assert (about["seed"], about["generator"]) == (7, 1)
    assert about["tried"] >= 340
    assert about["made_with"]["numpy"] == np.__version__
    assert "one board up to symmetry" in about["note"]
    assert about["splits"]["train"]["examples"] == 300
    long = manifest_of(made(tmp_path, "countdown", "long", padding="paper", num_train=3_000))
    assert 0 < long["too_long"] / long["tried"] < 0.05


def test_settings_reach_the_examples(tmp_path):
    task, splits = load_data(made(tmp_path, "sudoku-6-puzzle", clues=14, guessing="allowed"))
    assert ((task.givens(splits["train"].tokens) >= 0).sum(1) == 14).all()
    task, splits = load_data(made(tmp_path, "zebra", "houses", houses=(4,), attributes=(3, 5)))
    sizes = {read_prompt(row)[1:] for row in splits["train"].tokens}
    assert sizes == {(4, 3), (4, 5)}
    assert task.houses == (4,)
    task, splits = load_data(made(tmp_path, "countdown", "numbers", numbers=3, targets=(10, 20)))
    assert (task.numbers, task.length) == (3, 37)
    assert {int(texts(row)[0].rsplit(",", 1)[1]) for row in splits["train"].tokens} == set(range(10, 21)) - {
        14
    }


def test_another_data_set_can_be_kept_out(tmp_path):
    task, puzzles = load_data(made(tmp_path, "sudoku-6-puzzle", "held"))
    everything = made(tmp_path, "sudoku-6", "boards", num_train=4_000, seed=1)
    apart = made(
        tmp_path, "sudoku-6", "apart", num_train=4_000, seed=1, apart_from=(everything, tmp_path / "held")
    )
    _, before = load_data(everything)
    boards, after = load_data(apart)
    held = {key for examples in before.values() for key in boards.keys(examples).tolist()}
    held |= {key for examples in puzzles.values() for key in task.keys(examples).tolist()}
    assert not held & {key for examples in after.values() for key in boards.keys(examples).tolist()}
    with pytest.raises(
        ValueError,
        match=r"apart_from=.*boards: contains sudoku-6, which has no puzzle in common with zebra-3",
    ):
        made(tmp_path, "zebra-3", "other", apart_from=(everything,))


def test_a_file_of_others_becomes_a_data_set(tmp_path):
    (tmp_path / "mine.txt").write_text("\n".join([*PUZZLES, PUZZLES[0], "not a puzzle"]))
    (tmp_path / "four.txt").write_text("\n".join([*PUZZLES, PUZZLES[0], OTHER]))
    settings = {
        "source": str(tmp_path / "mine.txt"),
        "skip_bad": True,
        "num_train": None,
        "num_validation": None,
        "num_test": None,
    }
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
    apart = made(
        tmp_path,
        "sudoku-9",
        "apart",
        **{**settings, "apart_from": (folder,), "source": str(tmp_path / "four.txt")},
    )
    assert (
        sum(len(part.tokens) for part in load_data(apart)[1].values()),
        manifest_of(apart)["kept_out"],
    ) == (1, 4)


def test_a_model_is_judged_on_a_data_set(tmp_path):
    task, _ = load_data(made(tmp_path, "sudoku-6-puzzle", num_test=12))
    run = fit(
        TrainConfig(
            "sudoku-6-puzzle",
            "mdm",
            tmp_path / "run",
            steps=2,
            batch_size=4,
            data=tmp_path / "data",
            precision="fp32",
        )
    )
    net = from_pretrained(run)
    (row,) = evaluate(net, task, EvalConfig(data=tmp_path / "data"))
    assert row["num_samples"] == 12
    assert row["metric"] == "exact"
    (fewer,) = evaluate(net, task, EvalConfig(data=tmp_path / "data", num_samples=5))
    assert fewer["num_samples"] == 5
    with pytest.raises(ValueError, match=r"num_samples=13: the test split of .* has 12 problems"):
        evaluate(net, task, EvalConfig(data=tmp_path / "data", num_samples=13))
    with pytest.raises(
        ValueError,
        match=r"has SudokuPuzzle of 128 .*padding=paper, and the model learned SudokuPuzzle of 74 "
        r".*padding=none",
    ):
        evaluate(net, task, EvalConfig(data=made(tmp_path, "sudoku-6-puzzle", "paper", padding="paper")))


def spoil_bytes(folder):
    path = folder / "train.tokens.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a changed byte": (spoil_bytes, "train does not match the checksum in its manifest"),
    "a cut file": (lambda folder: os.truncate(folder / "test.known.npy", 200), "test cannot be read"),
    "a missing file": (
        lambda folder: (folder / "validation.lengths.npy").unlink(),
        "validation cannot be read",
    ),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "manifest.json is missing"),
    "a broken manifest": (lambda folder: (folder / "manifest.json").write_text("{"), "corrupt"),
    "another hash": (
        lambda folder: (folder / "manifest.json").write_text(
            (folder / "manifest.json").read_text().replace('"sha256": "', '"sha256": "0')
        ),
        "does not match the checksum in its manifest",
    ),
    "another task": (
        lambda folder: (folder / "manifest.json").write_text(
            (folder / "manifest.json").read_text().replace("sudoku-4", "chess")
        ),
        "no task of this version. Make the data set again",
    ),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_seen(tmp_path, damage, message):
    folder = made(tmp_path, "sudoku-4")
    damage(folder)
    with pytest.raises(ValueError, match=message):
        load_data(folder)


MANIFESTS = {  # possible wrong entries: (key, value)
    "a name that is none": ("task", {"name": ["x"]}),
    "no task": ("task", None),
    "a setting that is none": ("task", {"name": "sudoku-4", "colour\nred": 1}),
    "the paper's padding": ("task", {"name": "sudoku-4", "padding": "paper"}),
    "another task": ("task", {"name": "zebra-3"}),
    "clues": ("task", {"name": "sudoku-puzzle", "clues": None}),
    "no splits": ("splits", None),
    "splits in a list": ("splits", ["train", "validation"]),
    "a split in a list": ("splits", {"train": []}),
    "another format": ("format", 0),
}


@pytest.mark.parametrize(("where", "what"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_edited_by_hand_is_refused_in_one_line(tmp_path, capsys, where, what):
    folder = made(tmp_path, "sudoku-4")
    (folder / "manifest.json").write_text(json.dumps({**manifest_of(folder), where: what}))
    capsys.readouterr()  # a first making says how long it compiled
    assert main(["train", "sudoku-4", "scdm", "--data", str(folder), "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Make the data set again" in line
    assert not (tmp_path / "run").exists()


MISTAKES = [
    ("data sudoku-6 --houses 3", "--houses 3: sudoku-6 has no such setting"),
    ("data sudoku-6 --source {nowhere}", "not found. Name a file of sudoku-6"),
    (
        "data sudoku-9 --source {two}",
        "two.txt, line 2: puzzle has several solutions. Use --skip-bad to leave such rows out",
    ),
    ("data sudoku-9 --source {none}", "none.txt, line 1: puzzle has no solution"),
    ("data zebra --source {two}", "zebra is read from files that end in .pkl, .jsonl"),
    ("data sudoku-6 --apart-from {nowhere}", "no data set"),
    ("data sudoku-9 --source {two} --show 2", "line 2: puzzle has several solutions"),
    ("data sudoku-6 --out .", "--out .: is the current directory. Choose another directory."),
    ("data sudoku-9 --show 0", "--show 0: must be a whole number from 1"),
    (
        "train sudoku-6 scdm --data {untrained} --out {out}",
        "lacks train or validation examples",
    ),
]


@pytest.mark.parametrize(("command", "message"), MISTAKES, ids=[command for command, _ in MISTAKES])
def test_a_mistake_gets_one_line_and_nothing_is_written(tmp_path, capsys, monkeypatch, command, message):
    places = {name: tmp_path / "in" / name for name in ("nowhere", "two.txt", "none.txt")}
    (tmp_path / "in").mkdir()
    places["two.txt"].write_text(f"{PUZZLES[0]}\n1{'.' * 80}\n")
    places["none.txt"].write_text(f"12345678{'.' * 9}9{'.' * 63}\n")
    places["data4"] = made(tmp_path / "in", "sudoku-4", "data4")
    places |= {
        "data": made(tmp_path / "in", "sudoku-6"),
        "untrained": made(tmp_path / "in", "sudoku-6", "untrained", num_train=0),
    }
    (tmp_path / "at").mkdir()
    monkeypatch.chdir(tmp_path / "at")
    words = command.format(
        **{name.removesuffix(".txt"): place for name, place in places.items()}, out=tmp_path / "at" / "run"
    ).split()
    capsys.readouterr()  # a first making says how long it compiled
    assert main(words) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("making")]
    assert len(said) == 1
    assert message in said[0]
    assert list((tmp_path / "at").rglob("*")) == []


@pytest.mark.parametrize("name", sorted({task.name for task in TASKS.values()}))
def test_puzzles_are_shown_and_nothing_is_written(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", name, "--show", "2"]) == 0
    drawn = capsys.readouterr().out.rstrip("\n").split("\n\n")
    wanted = configured(name, {}).generate(2, seed=0).tokens
    assert "\n\n".join(drawn) == "\n\n".join(TASKS[name].decode(tokens) for tokens in wanted)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_making_leaves_nothing_and_starts_clean(tmp_path, sign, request):
    command = [
        sys.executable,
        "-m",
        "latent_tokens.cli",
        "data",
        "sudoku-6-puzzle",
        "--out",
        str(tmp_path / "data"),
        "--processes",
        "2",
    ]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen([*command, "--num-train", "2000000"], stderr=said)
    request.addfinalizer(process.kill)
    until = time.monotonic() + 300
    while not (tmp_path / ".data.unfinished").is_dir() or "making" not in (tmp_path / "said").read_text():
        assert process.poll() is None
        assert time.monotonic() < until, "it has not begun"
        time.sleep(0.1)
    workers = [
        int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ]
    process.send_signal(sign)
    assert process.wait(timeout=60) == (130 if sign is signal.SIGINT else -signal.SIGKILL)
    waited = time.monotonic() + 20
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < waited, "its processes live on"
        time.sleep(0.1)
    last_words = (tmp_path / "said").read_text()
    (tmp_path / "said").unlink()
    if sign is signal.SIGINT:
        assert last_words.splitlines()[-1] == "latent-tokens: stopped"
        assert "Traceback" not in last_words
    assert [path.name for path in tmp_path.iterdir()] == (
        [] if sign is signal.SIGINT else [".data.unfinished"]
    )
    (tmp_path / ".data.unfinished").mkdir(exist_ok=True)
    (tmp_path / ".data.unfinished" / "train.tokens.npy").write_bytes(b"half")
    subprocess.run([*command, "--num-train", "20"], check=True, capture_output=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(file, array):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(
        OSError, match=r"cannot be written .No space left on device., and nothing of it is left"
    ):
        made(tmp_path, "sudoku-4")
    assert list(tmp_path.iterdir()) == []


def test_fingerprint_of_mapped_arrays_needs_little_memory():
    tokens = np.broadcast_to(np.uint16(3), (100_000, 1_024))  # 200 MB if it were stored
    examples = Examples(
        tokens, np.broadcast_to(np.False_, tokens.shape), np.broadcast_to(np.uint16(1_024), tokens.shape[:1])
    )
    tracemalloc.start()
    found = fingerprint(examples)
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()
    assert fingerprint(examples.take(slice(99_999))) != found
