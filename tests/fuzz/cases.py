"""Minimal valid inputs, written by the package. Each is a directory: a dict from file path to bytes."""

import json
import os
import pickle
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from helpers.published_network import Published, lightning
from latent_tokens import METHODS, SIZES, TASKS, TrainConfig, Transformer, fit, save_pretrained
from latent_tokens.cli import main
from latent_tokens.sizes import Size
from latent_tokens.tasks import Text, description
from latent_tokens.tasks.zebra.puzzles import WORDS as CLUE_WORDS, answer, read_prompt

TINY = Size(8, 2, 1)
TASK_NAMES = ("sudoku-4", "sudoku-6-puzzle", "zebra-3", "countdown-3")
TRAINING = (
    "--steps",
    "2",
    "--batch-size",
    "2",
    "--evaluate-every",
    "1",
    "--save-every",
    "1",
    "--warmup",
    "1",
    "--num-train",
    "8",
    "--num-validation",
    "4",
)
TEXT = "\n\n".join(
    f"The latent cells of row {number} are open; the known ones, in box {number % 7}, are not."
    for number in range(120)
)


@contextmanager
def tiny_networks():
    """Has `nano` be tinier still, so that a run is a few thousand numbers."""
    before, SIZES["nano"] = SIZES["nano"], TINY
    try:
        yield
    finally:
        SIZES["nano"] = before


def files_of(*folders):
    """A case: the files of some folders, each under its folder's name."""
    return {
        str(file.relative_to(folder.parent)): file.read_bytes()
        for folder in folders
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def put(folder, case):
    """Writes a case into a folder; a path of it that no file system takes is left out."""
    for name, content in case.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def called(*arguments):
    """Runs a command that must succeed."""
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = main([str(argument) for argument in arguments])
    assert code == 0, said.getvalue()


class Fixtures:
    """Everything the seeds are taken from, in one folder, each made when it is first asked for."""

    def __init__(self, folder):
        self.folder = folder
        self.made = cache(self._made)

    def _made(self, name):
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
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
            }[kind](place, what)
        return place

    def _text(self, place, what):
        place.mkdir(parents=True)
        if what == "lines":
            (place / "lines.jsonl").write_text(
                "".join(json.dumps({"text": part, "number": 3}) + "\n" for part in TEXT.split("\n\n")[:40])
            )
        elif what == "short":
            (place / "one.txt").write_text(TEXT[:120])
        elif what == "folder":
            for number, part in enumerate(TEXT.split("\n\n")[:40]):
                (place / f"{number}.txt").write_text(part)
        else:
            (place / "one.txt").write_text(TEXT)

    def _model(self, place, what):
        method, _, name = what.partition("-")
        task = (
            Text(16, "tokenizer.json", self.made("data/text"))
            if name == "text"
            else Text(16)
            if name == "bytes"
            else TASKS[name]
        )
        net = Transformer(TINY, task.vocab_size, task.length).eval()
        net.method = METHODS[method]
        beside = task.files() if isinstance(task, Text) else {}
        save_pretrained(net, place, about={"task": description(task), "name": method}, beside=beside)

    def _data(self, place, what):
        if what in ("text", "bytes"):
            tokenizer = "bytes" if what == "bytes" else "bpe:300"
            called(
                "data",
                "text",
                "--source",
                self.made("text/one") / "one.txt",
                "--length",
                16,
                "--tokenizer",
                tokenizer,
                "--out",
                place,
            )
        else:
            counts = ("--num-train", 6, "--num-validation", 2, "--num-test", 2)
            called("data", what, *counts, "--processes", 1, "--out", place)

    def _run(self, place, what):
        counts = {"num_train": 8, "num_validation": 4}
        fit(
            TrainConfig(
                what,
                "scdm",
                place,
                steps=2,
                batch_size=2,
                evaluate_every=1,
                save_every=1,
                warmup=1,
                precision="fp32",
                **counts,
            )
        )

    def _source(self, place, what):
        place.mkdir(parents=True)
        examples = TASKS[what].generate(3, seed=1)
        tokens = examples.tokens
        if what == "countdown-3":
            problems = [TASKS[what].decode(row) for row in tokens]
            assert problems
            from latent_tokens.tasks.countdown.puzzles import texts

            rows = [dict(zip(("input", "output"), texts(row), strict=True)) for row in tokens]
            (place / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif what == "zebra":
            records = []
            for row in tokens:
                _, houses, attributes = read_prompt(row)
                words = [CLUE_WORDS[token] for token in row]
                table = [list(range(houses)), *answer(row, houses, attributes).tolist()]
                records.append((words[1 : words.index("<SEP>") - houses], table))
            (place / "train.jsonl").write_text(
                "".join(json.dumps({"clues": clues, "solution": table}) + "\n" for clues, table in records)
            )
            whole = [
                [[*clues, "ANSWER", "0"], np.array(table) if number else table, np.zeros((2, 2), np.int16)]
                for number, (clues, table) in enumerate(records)
            ]
            for protocol in (0, 2, 4, 5):
                (place / f"{protocol}.pkl").write_bytes(pickle.dumps(whole, protocol))
        else:
            task = TASKS[what]
            givens, boards = task.givens(tokens), task.answers(tokens).astype(np.int64) + 1
            lines = ["".join(map(str, row + 1)) for row in givens.tolist() for row in [np.array(row)]]
            solved = ["".join(map(str, row)) for row in boards.tolist()]
            (place / "train.txt").write_text("".join(f"{line}\n" for line in lines))
            (place / "train.csv").write_text(
                "quizzes,solutions\n"
                + "".join(f"{line},{done}\n" for line, done in zip(lines, solved, strict=True))
            )
            rated = [
                f"mine,{line.replace('0', '.')},{done},{number}\n"
                for number, (line, done) in enumerate(zip(lines, solved, strict=True))
            ]
            (place / "extreme.csv").write_text("source,question,answer,rating\n" + "".join(rated))
            rows = []
            for shown, board in zip(givens, boards, strict=True):
                order = np.argsort(shown < 0, kind="stable")
                cells = [
                    (cell // task.side, cell % task.side, board[cell], 0 if shown[cell] >= 0 else 2)
                    for cell in order
                ]
                rows.append([int((shown >= 0).sum()), *np.array(cells).ravel()])
            np.save(place / "train.npy", np.array(rows))

    def _published(self, place, what):
        place.mkdir(parents=True)
        net = Published(width=8, heads=2, layers=1, cond=2, vocab=9, waves=2)
        if what == "folder":
            save_file(
                {f"backbone.{name}": weight.contiguous() for name, weight in net.state_dict().items()},
                place / "model.safetensors",
            )
            (place / "config.json").write_text(
                json.dumps({"n_heads": 2, "model_length": 16, "model_type": "mdlm", "n_blocks": 1})
            )
        else:
            torch.save(lightning(net, [weight.detach() for weight in net.parameters()]), place / "last.ckpt")


def in_memory():
    """A folder for temporary files that are never written to a disk, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() and os.access("/dev/shm", os.W_OK) else None
