"""Every reader of the package, with valid inputs, its call, and its first check.

The first check is one that a file of another kind fails. Later checks are the package's own. `past` applies
the first check without the reader.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch.optim.swa_utils import AveragedModel

from faults import first_checks as past
from faults.archives import mutated
from faults.commands import change_command, command, command_seeds, is_command, read_command
from faults.first_checks import file_of, first
from faults.puzzles import is_puzzle, puzzle_seeds, read_puzzle
from faults.seals import rehash_run, reseal_data, reseal_model, reseal_state
from faults.seeds import TINY, Fixtures, files_of, put
from helpers.hostile import GROWING, OFFSETS
from latent_tokens import TASKS, Transformer, load_data
from latent_tokens.storage import read_lines
from latent_tokens.tasks import Text
from latent_tokens.tasks.readers.sources import read_source
from latent_tokens.tasks.text.tokenizer import read_tokenizer
from latent_tokens.training.checkpoint import discard_after, load_state, saved_states
from latent_tokens.training.step import ema_update

Case = dict[str, bytes]
SPARED = {"task", "tool"}  # files of a case that select what is done with it
TRAINING = (
    "--steps 2 --batch-size 2 --evaluate-every 1 --save-every 1 --warmup 1 --num-train 8 --num-validation 4"
)
MODELS = ("scdm-sudoku-4", "esolm-text", "scdm-countdown-3", "arm-sudoku-4", "scdm-zebra-3",
          "scdm-sudoku-6-puzzle")  # fmt: skip
DATA = ("sudoku-4", "countdown-3", "zebra-3", "sudoku-6-puzzle", "text", "bytes")


@dataclass(frozen=True)
class Reader:
    """A reader. `read` takes the directory of a case and the fixtures. It may raise ValueError or OSError."""

    name: str
    seeds: Callable[[Fixtures], list[Case]]
    read: Callable[[Path, Fixtures], object]
    past: Callable[[Path], bool]
    mend: Callable[[Random, Case], Case] = lambda rng, case: case  # makes hashes and names right again
    change: Callable[[Random, Case, list[Case]], Case] | None = None
    share: float = 1.0  # of the inputs asked for
    hostile: Callable[[list[Case]], list[tuple[str, Case]]] = lambda seeds: []  # which must be refused


def next_case(reader, seeds, rng):
    """Return an input: a valid one with a file or two changed, its hashes made right again in most."""
    case = dict(rng.choice(seeds))
    if reader.change is not None:
        return reader.change(rng, case, seeds)
    names = sorted(set(case) - SPARED)
    for name in rng.sample(names, min(len(names), rng.choice((1, 1, 1, 2)))):
        others = [other[name] for other in seeds if name in other]
        case[name] = mutated(rng, case[name], others, name)
        if rng.random() < 0.01:
            del case[name]
    return reader.mend(rng, case) if rng.random() < 0.85 else case


# Seeds and calls.


def source_reader(name, task, pattern, check):
    """Return the reader of one kind of published puzzle file."""

    def seeds(fixtures):
        files = sorted(fixtures.made(f"source/{task}").glob(pattern))
        return [{f"source/{file.name}": file.read_bytes()} for file in files]

    def read(folder, fixtures):
        skip_bad = len(list(folder.iterdir())) % 2 == 0
        examples, _ = read_source(TASKS[task], file_of(folder, f"source/{pattern}"), skip_bad=skip_bad)
        TASKS[task].keys(examples)
        TASKS[task].splits(examples)

    return Reader(name, seeds, read, first(f"source/{pattern}", check), share=2.0)


def folder_seeds(kind, *names):
    """Return the seeds of a reader of folders: their files."""

    def seeds(fixtures):
        cases = [files_of(fixtures.made(f"{kind}/{name}")) for name in names]
        return [{f"folder/{Path(path).name}": content for path, content in case.items()} for case in cases]

    return seeds


def read_data(folder, fixtures):
    """Use a data set as evaluate, train and --apart-from do."""
    task, splits = load_data(folder / "folder")
    for examples in splits.values():
        if isinstance(task, Text):
            [task.decode(row) for row in examples.tokens[:2]]
        elif len(examples.tokens):
            task.keys(examples), task.splits(examples)
            task.score(examples.tokens, examples)
            task.decode(examples.tokens[0]), task.verify(examples.tokens[0])


def read_model(folder, fixtures):
    """Load a model directory and its task, and draw a sample."""
    put(folder / "folder" / "..", {"secret/tokenizer.json": b"{}"})
    command("sample", folder / "folder", "--num-samples", 1, "--json")


def read_published(folder, fixtures):
    checkpoints = sorted(folder.glob("folder/*.ckpt"))
    command("import", checkpoints[0] if checkpoints else folder / "folder", folder / "out")


def text_seeds(fixtures):
    one, lines, many = (files_of(fixtures.made(f"text/{what}")) for what in ("one", "lines", "folder"))
    parts = [(b"bytes", one), (b"bytes", lines), (b"bytes", dict(list(many.items())[:12]))]
    parts += [(b"bpe:300", one), (b"bpe:300", lines)]
    return [{"tool": tool, **{f"text/{name}": files[name] for name in files}} for tool, files in parts]


def read_text(folder, fixtures):
    (place,) = (folder / "text").iterdir()
    files = list(place.iterdir())
    options = ("--source", files[0] if len(files) == 1 else place, "--length", 16)
    tokenizer = (folder / "tool").read_text()
    command("data", "text", *options, "--tokenizer", tokenizer, "--out", folder / "out")


def tokenizer_seeds(fixtures):
    content = (fixtures.made("data/text") / "tokenizer.json").read_bytes()
    model = json.loads(content)["model"]
    merges = "\n".join(" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"])
    words = {f"w{number}": number for number in range(20)} | {"<|endoftext|>": 20, "[UNK]": 21}
    by_word = {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"}
    plain = {"version": "1.0", "model": by_word, "added_tokens": [], "normalizer": None}
    plain |= {"pre_tokenizer": {"type": "Whitespace"}}
    plain |= dict.fromkeys(("post_processor", "decoder", "truncation", "padding"))
    vocabulary = {
        "folder/vocab.json": json.dumps(model["vocab"]).encode(),
        "folder/merges.txt": f"#version: 0.2\n{merges}\n".encode(),
    }
    return [
        {"folder/tokenizer.json": content},
        {"folder/tokenizer.json": json.dumps(plain).encode()},
        vocabulary,
    ]


def read_a_tokenizer(folder, fixtures):
    coder = read_tokenizer(str(folder / "folder"))
    ids = coder.encode(["The latent cells are open: 12 of 3\N{MULTIPLICATION SIGN}3.\r\n", "", "w1 w2"])
    for text in ids:
        coder.decode(text.tolist())
    coder.decode([0, coder.end, coder.vocab_size - 1, coder.vocab_size])


def state_seeds(fixtures):
    folder = fixtures.made("run/sudoku-4")
    state, metrics = saved_states(folder)[0].read_bytes(), (folder / "metrics.jsonl").read_bytes()
    return [{"run/state.safetensors": state, "run/metrics.jsonl": metrics}]


def read_a_state(folder, fixtures):
    net = Transformer(TINY, TASKS["sudoku-4"].vocab_size, TASKS["sudoku-4"].length)
    optimizer = torch.optim.AdamW(net.parameters())
    state = load_state(folder / "run", net, AveragedModel(net, multi_avg_fn=ema_update(0.9)), optimizer)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    discard_after(folder / "run", state.step, keep=2)


def metrics_seeds(fixtures):
    return [{"folder/metrics.jsonl": (fixtures.made("run/sudoku-4") / "metrics.jsonl").read_bytes()}]


def read_metrics(folder, fixtures):
    assert all(isinstance(row, dict) for row in read_lines(file_of(folder, "folder/*.jsonl")))
    discard_after(folder / "folder", 1, keep=2)


def read_a_run(folder, fixtures):
    """Resume a run in its directory."""
    options = (*TRAINING.split(), "--resume", "auto", "--out", folder / "folder")
    command("train", "sudoku-4", "scdm", *options)


def with_offsets(seeds):
    """Return (name, case): the first seed with each of OFFSETS in place of its weights."""
    return [(name, {**seeds[0], "folder/model.safetensors": content}) for name, content in OFFSETS.items()]


def with_growth(seeds):
    """Return (name, case): the first seed of the tokenizer with each of GROWING."""
    ((path, content),) = seeds[0].items()
    return [(name, {path: json.dumps(json.loads(content) | part).encode()}) for name, part in GROWING.items()]


READERS = (
    Reader("puzzle", puzzle_seeds, read_puzzle, is_puzzle),
    source_reader("sudoku.npy", "sudoku-6-puzzle", "*.npy", past.is_npy),
    source_reader("sudoku.csv", "sudoku-6-puzzle", "train.csv", past.is_csv),
    source_reader("sudoku-extreme.csv", "sudoku-6-puzzle", "extreme.csv", past.is_csv),
    source_reader("sudoku.txt", "sudoku-6-puzzle", "*.txt", past.is_text),
    source_reader("zebra.pkl", "zebra", "*.pkl", lambda path: past.is_pickle(path.read_bytes())),
    source_reader("zebra.jsonl", "zebra", "*.jsonl", past.has_json_line),
    source_reader("countdown.jsonl", "countdown-3", "*.jsonl", past.has_json_line),
    Reader("ckpt", folder_seeds("published", "ckpt"), read_published,
           first("folder/*.ckpt", past.is_lightning), share=1.2),
    Reader("published folder", folder_seeds("published", "folder"), read_published,
           first("folder", past.is_model), hostile=with_offsets),
    Reader("model folder", folder_seeds("model", *MODELS), read_model,
           first("folder", past.is_model), reseal_model, hostile=with_offsets),
    Reader("data folder", folder_seeds("data", *DATA), read_data,
           first("folder/manifest.json", past.is_json), reseal_data),
    Reader("text", text_seeds, read_text, lambda folder: all(map(past.is_text, folder.glob("text/*/*")))),
    Reader("tokenizer", tokenizer_seeds, read_a_tokenizer,
           lambda folder: all(map(past.is_json, folder.glob("folder/*.json"))),
           share=2.0, hostile=with_growth),
    Reader("state", state_seeds, read_a_state,
           first("run/state-*.safetensors", past.is_safetensors), reseal_state),
    Reader("metrics.jsonl", metrics_seeds, read_metrics, first("*/*.jsonl", past.has_json_line), share=2.0),
    Reader("run folder", folder_seeds("run", "sudoku-4"), read_a_run,
           first("folder/config.json", past.is_json), rehash_run),
    Reader("commands", command_seeds, read_command, is_command, change=change_command),
)  # fmt: skip
BY_NAME = {reader.name: reader for reader in READERS}
