"""Minimal valid inputs, written by the package. Each is a directory: a dict from file path to bytes."""

import io
import json
import os
import pickle
import zipfile
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from helpers.published_network import Published, lightning
from latent_tokens import METHODS, SIZES, TASKS, TrainConfig, Transformer, fit, save_pretrained
from latent_tokens.cli import main
from latent_tokens.sizes import Size
from latent_tokens.tasks import Text, description
from latent_tokens.tasks.countdown import texts
from latent_tokens.tasks.zebra.puzzles import WORDS as CLUE_WORDS, answer, read_prompt

TINY = Size(8, 2, 1)
PARAGRAPHS = [
    f"The latent cells of row {number} are open; the known ones, in box {number % 7}, are not."
    for number in range(120)
]
TEXT = "\n\n".join(PARAGRAPHS)


@contextmanager
def tiny_networks():
    """Make `nano` smaller, so that a run has a few thousand numbers."""
    before, SIZES["nano"] = SIZES["nano"], TINY
    try:
        yield
    finally:
        SIZES["nano"] = before


def files_of(folder):
    """Return a case: the files of a folder, under the folder's name."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {str(file.relative_to(folder.parent)): file.read_bytes() for file in files}


def put(folder, case):
    """Write a case into a folder."""
    for name, content in case.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def keep(worker, problem, message, case):
    """Save an input with its problem."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in case.items():
            file.writestr(zipfile.ZipInfo(name), content)
    worker.out.mkdir(parents=True, exist_ok=True)
    digest = sha256(buffer.getvalue()).hexdigest()[:10]
    path = worker.out / f"{worker.reader.name.replace(' ', '-')}-{digest}.zip"
    path.write_bytes(buffer.getvalue())
    row = {"what": problem, "said": message[-2_000:], "size": sum(map(len, case.values())), "file": str(path)}
    with (worker.folder / "found.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def unpacked(path):
    """Return the case that `keep` saved."""
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def run_command(*arguments):
    """Run a command that must succeed."""
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        code = main([str(argument) for argument in arguments])
    assert code == 0, output.getvalue()


class Fixtures:
    """The files of the seeds, in one directory. Each is created on first use."""

    def __init__(self, folder):
        self.folder = folder
        self.made = cache(self._made)

    def _made(self, name):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(0)
        kind, _, what = name.partition("/")
        with tiny_networks():
            {
                "text": self._text,
                "model": self._model,
                "data": self._data,
                "run": self._run,
                "source": self._source,
                "published": self._published,
            }[kind](path, what)
        return path

    def _text(self, path, what):
        path.mkdir(parents=True)
        if what == "lines":
            rows = [json.dumps({"text": part, "number": 3}) + "\n" for part in PARAGRAPHS[:40]]
            (path / "lines.jsonl").write_text("".join(rows))
        elif what == "folder":
            for number, part in enumerate(PARAGRAPHS[:40]):
                (path / f"{number}.txt").write_text(part)
        else:
            (path / "one.txt").write_text(TEXT[:120] if what == "short" else TEXT)

    def _model(self, path, what):
        method, _, name = what.partition("-")
        if name == "text":
            task = Text(16, "tokenizer.json", self.made("data/text"))
        else:
            task = Text(16) if name == "bytes" else TASKS[name]
        net = Transformer(TINY, task.vocab_size, task.length).eval()
        net.method = METHODS[method]
        beside = task.files() if isinstance(task, Text) else {}
        save_pretrained(net, path, about={"task": description(task), "name": method}, beside=beside)

    def _data(self, path, what):
        if what in ("text", "bytes"):
            source = self.made("text/one") / "one.txt"
            tokenizer = "bytes" if what == "bytes" else "bpe:300"
            options = ("--source", source, "--length", 16, "--tokenizer", tokenizer)
            run_command("data", "text", *options, "--out", path)
        else:
            options = ("--num-train", 6, "--num-validation", 2, "--num-test", 2, "--processes", 1)
            run_command("data", what, *options, "--out", path)

    def _run(self, path, what):
        every = {
            "steps": 2,
            "batch_size": 2,
            "evaluate_every": 1,
            "save_every": 1,
            "warmup": 1,
            "precision": "fp32",
        }
        fit(TrainConfig(what, "scdm", path, num_train=8, num_validation=4, **every))

    def _source(self, path, what):
        path.mkdir(parents=True)
        tokens = TASKS[what].generate(3, seed=1).tokens
        if what == "countdown-3":
            rows = [dict(zip(("input", "output"), texts(row), strict=True)) for row in tokens]
            (path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif what == "zebra":
            write_zebra(path, tokens)
        else:
            write_sudoku(path, TASKS[what], tokens)

    def _published(self, path, what):
        path.mkdir(parents=True)
        net = Published(width=8, heads=2, layers=1, cond=2, vocab=9, waves=2)
        if what == "folder":
            weights = {f"backbone.{name}": weight.contiguous() for name, weight in net.state_dict().items()}
            save_file(weights, path / "model.safetensors")
            config = {"n_heads": 2, "model_length": 16, "model_type": "mdlm", "n_blocks": 1}
            (path / "config.json").write_text(json.dumps(config))
        else:
            torch.save(lightning(net, [weight.detach() for weight in net.parameters()]), path / "last.ckpt")


def write_zebra(path, tokens):
    """Write Zebra puzzles as rows of JSON and as pickles of several protocols."""
    records = []
    for row in tokens:
        _, houses, attributes = read_prompt(row)
        words = [CLUE_WORDS[token] for token in row]
        table = [list(range(houses)), *answer(row, houses, attributes).tolist()]
        records.append((words[1 : words.index("<SEP>") - houses], table))
    rows = [json.dumps({"clues": clues, "solution": table}) + "\n" for clues, table in records]
    (path / "train.jsonl").write_text("".join(rows))
    arrays = [
        [[*clues, "ANSWER", "0"], np.array(table) if number else table, np.zeros((2, 2), np.int16)]
        for number, (clues, table) in enumerate(records)
    ]
    for protocol in (0, 2, 4, 5):
        (path / f"{protocol}.pkl").write_bytes(pickle.dumps(arrays, protocol))


def write_sudoku(path, task, tokens):
    """Write Sudoku puzzles in each format that the package reads."""
    givens = task.givens(tokens)
    boards = task.answers(tokens).astype(np.int64) + 1
    puzzles = ["".join(map(str, row)) for row in (givens + 1).tolist()]
    pairs = list(zip(puzzles, ["".join(map(str, row)) for row in boards.tolist()], strict=True))
    (path / "train.txt").write_text("".join(f"{puzzle}\n" for puzzle in puzzles))
    lines = [f"{puzzle},{solution}\n" for puzzle, solution in pairs]
    (path / "train.csv").write_text("".join(["quizzes,solutions\n", *lines]))
    rated = [f"mine,{a.replace('0', '.')},{b},{number}\n" for number, (a, b) in enumerate(pairs)]
    (path / "extreme.csv").write_text("".join(["source,question,answer,rating\n", *rated]))
    rows = []
    for shown, board in zip(givens, boards, strict=True):
        order = np.argsort(shown < 0, kind="stable")
        cells = [(*divmod(cell, task.side), board[cell], 0 if shown[cell] >= 0 else 2) for cell in order]
        rows.append([int((shown >= 0).sum()), *np.array(cells).ravel()])
    np.save(path / "train.npy", np.array(rows))


def in_memory():
    """Return a folder for temporary files that are never written to a disk, if there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() and os.access("/dev/shm", os.W_OK) else None
