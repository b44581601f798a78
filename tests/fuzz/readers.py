"""Every reader of the package: its valid inputs, its call, and its first check.

The first check is one that a file of another kind fails: a magic number, JSON that parses, a zip file that
opens, arguments that the parser accepts. Later checks are the package's own. `past` applies the first check
without the reader.
"""

import io
import json
import os
import pickletools
import re
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from random import Random

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load
from torch.optim.swa_utils import AveragedModel

from fuzz.cases import TINY, TRAINING, Fixtures, files_of, put
from fuzz.mutations import NUMBERS, WORDS, changed, mutated, written
from latent_tokens import TASKS, Transformer, cli, load_data
from latent_tokens.checkpoints.tensor_files import tensors_sha256
from latent_tokens.commands import RUN, Bench
from latent_tokens.configs import DemoConfig, ReproduceConfig
from latent_tokens.data.datasets import fingerprint
from latent_tokens.storage import read_lines
from latent_tokens.tasks import Examples, Text
from latent_tokens.tasks.readers.sources import read_source
from latent_tokens.tasks.sudoku.grid import symbols_of
from latent_tokens.tasks.text.tokenizer import read_tokenizer
from latent_tokens.training.state import discard_after, load_state, saved_states
from latent_tokens.training.step import ema_update

Case = dict[str, bytes]
SPARED = {"task", "tool"}  # files of a case that say what to do with it


@dataclass(frozen=True)
class Reader:
    """`read` takes the folder with a case and the fixtures; it returns, or raises ValueError or OSError."""

    name: str
    seeds: Callable[[Fixtures], list[Case]]
    read: Callable[[Path, Fixtures], object]
    past: Callable[[Path], bool]
    mend: Callable[[Random, Case], Case] = lambda rng, case: (
        case
    )  # what a forger would do: sums and names that agree again
    change: Callable[[Random, Case, list[Case]], Case] | None = None
    share: float = 1.0  # of the inputs asked for


def next_case(reader, seeds, rng):
    """One input: a valid one with a file or two changed, its sums made right again in most."""
    case = dict(rng.choice(seeds))
    if reader.change is not None:
        return reader.change(rng, case, seeds)
    for name in rng.sample(
        sorted(set(case) - SPARED), min(len(set(case) - SPARED), rng.choice((1, 1, 1, 2)))
    ):
        others = [other[name] for other in seeds if name in other]
        case[name] = mutated(rng, case[name], others, name)
        if rng.random() < 0.01:
            del case[name]
    return reader.mend(rng, case) if rng.random() < 0.85 else case


def command(*arguments):
    """Run a command as a shell would. Raise ValueError with its last line, AssertionError if unclear."""
    out, said = (
        io.TextIOWrapper(io.BytesIO(), "utf-8", errors, write_through=True)
        for errors in ("strict", "backslashreplace")
    )
    with redirect_stdout(out), redirect_stderr(said):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            if stop.code == 0:  # --help
                return
            raise
    lines = said.buffer.getvalue().decode().splitlines()
    assert "Traceback" not in "".join(lines)
    if code in (0, 1):
        return
    assert code == 2, f"exit code {code}"
    assert lines, "refused without a word"
    assert lines[-1].startswith("latent-tokens: "), f"ends with {lines[-1]!r}"
    assert sum(line.startswith("latent-tokens: ") for line in lines) == 1
    raise ValueError(lines[-1])


def is_json(path, kind=dict):
    """Whether a file is JSON of that kind."""
    try:
        return isinstance(json.loads(path.read_bytes()), kind)
    except (OSError, ValueError, RecursionError):
        return False


def is_safetensors(path):
    """Whether the library opens a file."""
    try:
        with safe_open(path, "pt"):
            return True
    except Exception:
        return False


def is_text(path):
    """Whether a file is UTF-8."""
    try:
        return bool(path.read_bytes().decode())
    except (OSError, ValueError):
        return False


def is_csv(folder):
    """Whether the first line is that of Ye et al.'s files, or of Sudoku-Extreme."""
    return (
        the(folder, "source/*.csv")
        .read_bytes()
        .startswith((b"quizzes,solutions\n", b"source,question,answer,rating\n"))
    )


def is_npy(path):
    """Whether numpy reads its header."""
    try:
        np.lib.format.open_memmap(path, mode="r")
    except Exception:
        return False
    return True


def is_pickle(content):
    """Whether the instructions of a pickle can be told apart up to its end."""
    try:
        return all(True for _ in pickletools.genops(content))
    except Exception:
        return False


def the(folder, pattern):
    """The file of a folder that a pattern means, or one that is not there."""
    return next(iter(sorted(folder.glob(pattern))), folder / "none")


def first_lines(folder):
    """Whether a line of the file is a JSON object."""
    file = the(folder, "*/*.jsonl")
    for line in file.read_bytes().splitlines() if file.is_file() else []:
        try:
            if isinstance(json.loads(line), dict):
                return True
        except (ValueError, RecursionError):
            continue
    return False


# puzzles, as solve takes them

PUZZLES = {
    "sudoku-4": (
        "1...............",
        "1234341221434321",
        "1 . | . .\n. . | . .\n----+----\n. . | . .\n. . | . 4",
    ),
    "sudoku-6": ("." * 35 + "1", "12....34....5...............1......."),
    "sudoku-9": ("003020600900305001001806400008102900700000008006708200002609500800203009005010300",),
    "sudoku-16": ("1" + "." * 255, "." * 200 + "123456789ABCDEFG" + "." * 40),
    "sudoku-36": ("1" + "." * 1_295,),
    "zebra-3": (
        "ends LHS c 1 1 RHS CLUE_END left-of LHS c 2 0 RHS c 2 1 CLUE_END nbr LHS c 1 1 RHS c 0 2 CLUE_END "
        "= LHS c 0 0 RHS c 2 1 CLUE_END 0 1 2",
    ),
    "countdown-3": ("3,5,7,15", "10,20,30,60"),
}


def puzzle_seeds(fixtures):
    for name in set(PUZZLES) - {"sudoku-16", "sudoku-36"}:
        fixtures.made(f"model/scdm-{name}")
    return [
        {"task": name.encode(), "puzzle.txt": text.encode()}
        for name, texts in PUZZLES.items()
        for text in texts
    ]


def read_a_puzzle(folder, fixtures):
    name, text = (folder / "task").read_text(), os.fsdecode((folder / "puzzle.txt").read_bytes())
    if name in ("sudoku-16", "sudoku-36"):  # too long to decode here
        problem = TASKS[name].encode(text)
        return TASKS[name].count_solutions(problem, most=1)
    return (
        command("solve", f"--run={fixtures.made(f'model/scdm-{name}')}", "--", text)
        if text.startswith("-")
        else command("solve", text, "--run", fixtures.made(f"model/scdm-{name}"))
    )


def is_puzzle(folder):
    name, text = (folder / "task").read_text(), os.fsdecode((folder / "puzzle.txt").read_bytes())
    if name.startswith("sudoku"):
        try:
            return bool(symbols_of(text, {TASKS[name].length}))
        except ValueError:
            return False
    return "CLUE_END" in text if name.startswith("zebra") else text.count(",") == 3


# files of puzzles that others made


def source_reader(name, task, pattern, past, share=1.0):
    """The reader of one kind of source."""

    def seeds(fixtures):
        folder = fixtures.made(f"source/{task}")
        return [{f"source/{file.name}": file.read_bytes()} for file in sorted(folder.glob(pattern))]

    def read(folder, fixtures):
        kind = TASKS["sudoku-6" if folder.name.endswith("1") and task == "sudoku-6-puzzle" else task]
        examples, _ = read_source(
            kind, the(folder, f"source/{pattern}"), skip_bad=len(list(folder.iterdir())) % 2 == 0
        )
        kind.keys(examples), kind.splits(examples)

    return Reader(name, seeds, read, past, share=share)


# folders


def folder_seeds(*names, only=None):
    """The seeds of a reader of folders: their files."""

    def seeds(fixtures):
        found = [files_of(fixtures.made(name)) for name in names]
        return [
            {
                f"folder/{Path(path).name}": content
                for path, content in case.items()
                if only is None or re.search(only, path)
            }
            for case in found
        ]

    return seeds


def repinned(rng, case):
    """A data set whose manifest pins what its arrays are now."""
    try:
        manifest = json.loads(case["folder/manifest.json"])
        for split, about in manifest["splits"].items():
            tokens = case[f"folder/{split}.tokens.npy"]
            if f"folder/{split}.known.npy" in case:
                parts = [np.load(io.BytesIO(case[f"folder/{split}.{part}.npy"])) for part in Examples._fields]
                about["sha256"] = fingerprint(Examples(*parts))
            else:
                about["sha256"] = sha256(tokens).hexdigest()
        if "tokenizer_hash" in manifest["task"] and rng.random() < 0.8:
            manifest["task"]["tokenizer_hash"] = sha256(case["folder/tokenizer.json"]).hexdigest()[:8]
        return {**case, "folder/manifest.json": json.dumps(manifest).encode()}
    except Exception:
        return case


def retold(rng, case):
    """A model whose config says the hash of the tokenizer that it has now."""
    try:
        config = json.loads(case["folder/config.json"])
        config["task"]["tokenizer_hash"] = sha256(case["folder/tokenizer.json"]).hexdigest()[:8]
        case = {**case, "folder/model.safetensors": rehashed(case["folder/model.safetensors"])}
        return {**case, "folder/config.json": json.dumps(config).encode()}
    except Exception:
        return case


def read_data(folder, fixtures):
    """What evaluate, train and --apart-from do with a data set."""
    task, splits = load_data(folder / "folder")
    for examples in splits.values():
        if isinstance(task, Text):
            [task.decode(row) for row in examples.tokens[:2]]
        elif len(examples.tokens):
            task.keys(examples), task.splits(examples)
            task.score(examples.tokens, examples)
            task.decode(examples.tokens[0]), task.verify(examples.tokens[0])


def read_model(folder, fixtures):
    """Loads a model folder, its task, and draws a sample."""
    put(folder / "folder" / "..", {"secret/tokenizer.json": b"{}"})
    command("sample", folder / "folder", "--num-samples", 1, "--json")


def read_published(folder, fixtures):
    command(
        "import",
        the(folder, "folder/*.ckpt") if list(folder.glob("folder/*.ckpt")) else folder / "folder",
        folder / "out",
    )


def is_lightning(folder):
    """Whether a file is a zip file whose data.pkl is stored as it is and can be told apart up to its end."""
    try:
        with zipfile.ZipFile(the(folder, "folder/*.ckpt")) as archive:
            (info,) = [info for info in archive.infolist() if info.filename.endswith("/data.pkl")]
            return info.compress_type == zipfile.ZIP_STORED and is_pickle(archive.read(info))
    except Exception:
        return False


# text


def text_seeds(fixtures):
    cases = [
        {
            "tool": b"bytes",
            **{f"text/{name}": content for name, content in files_of(fixtures.made(f"text/{what}")).items()},
        }
        for what in ("one", "lines")
    ]
    whole = {
        f"text/{name}": content for name, content in list(files_of(fixtures.made("text/folder")).items())[:12]
    }
    return [
        *cases,
        {"tool": b"bytes", **whole},
        {**cases[0], "tool": b"bpe:300"},
        {**cases[1], "tool": b"bpe:300"},
    ]


def read_text(folder, fixtures):
    (place,) = (folder / "text").iterdir()
    files = list(place.iterdir())
    source = files[0] if len(files) == 1 else place
    command(
        "data",
        "text",
        "--source",
        source,
        "--length",
        16,
        "--tokenizer",
        (folder / "tool").read_text(),
        "--out",
        folder / "out",
    )


def tokenizer_seeds(fixtures):
    content = (fixtures.made("data/text") / "tokenizer.json").read_bytes()
    model = json.loads(content)["model"]
    merges = "\n".join(" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"])
    words = {f"w{number}": number for number in range(20)} | {"<|endoftext|>": 20, "[UNK]": 21}
    plain = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
        "added_tokens": [],
        "normalizer": None,
    }
    plain |= {
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "truncation": None,
        "padding": None,
    }
    return [
        {"folder/tokenizer.json": content},
        {"folder/tokenizer.json": json.dumps(plain).encode()},
        {
            "folder/vocab.json": json.dumps(model["vocab"]).encode(),
            "folder/merges.txt": f"#version: 0.2\n{merges}\n".encode(),
        },
    ]


def read_a_tokenizer(folder, fixtures):
    coder = read_tokenizer(str(folder / "folder"))
    ids = coder.encode(["The latent cells are open: 12 of 3\N{MULTIPLICATION SIGN}3.\r\n", "", "w1 w2"])
    for text in ids:
        coder.decode(text.tolist())
    coder.decode([0, coder.end, coder.vocab_size - 1, coder.vocab_size])


# what runs keep


def state_seeds(fixtures):
    folder = fixtures.made("run/sudoku-4")
    path = saved_states(folder)[0]
    return [
        {
            "run/state.safetensors": path.read_bytes(),
            "run/metrics.jsonl": (folder / "metrics.jsonl").read_bytes(),
        }
    ]


def rehashed(content):
    """A tensor file that says the hash of the tensors that it has now."""
    try:
        right = tensors_sha256(load(content)).encode()
    except Exception:
        return content
    return re.sub(rb'(tensors_sha256\\*": ?\\*")[0-9a-f]{64}', rb"\g<1>" + right, content)


def renamed_state(rng, case):
    """A state under the name that its bytes ask for."""
    content = rehashed(case.pop("run/state.safetensors", b""))
    step = rng.choice((0, 1, 2, 2, 7))
    digest = sha256(content).hexdigest()[:16]
    return {**case, f"run/state-{step:08d}-{digest}.safetensors": content}


def read_a_state(folder, fixtures):
    net = Transformer(TINY, TASKS["sudoku-4"].vocab_size, TASKS["sudoku-4"].length)
    optimizer = torch.optim.AdamW(net.parameters())
    state = load_state(folder / "run", net, AveragedModel(net, multi_avg_fn=ema_update(0.9)), optimizer)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    discard_after(folder / "run", state.step, keep=2)


def read_metrics(folder, fixtures):
    file = the(folder, "folder/*.jsonl")
    assert all(isinstance(row, dict) for row in read_lines(file))
    discard_after(folder / "folder", 1, keep=2)


def lines_seeds(fixtures):
    rows = (fixtures.made("run/sudoku-4") / "metrics.jsonl").read_bytes()
    return [{"folder/metrics.jsonl": rows}]


def read_a_run(folder, fixtures):
    """Goes on with a run from its folder."""
    command("train", "sudoku-4", "scdm", *TRAINING, "--resume", "auto", "--out", folder / "folder")


def renamed_in_run(rng, case):
    """A run whose states have the names that their bytes ask for."""
    for name in [name for name in case if "state-" in name]:
        content = rehashed(case.pop(name))
        case[f"{name[: name.index('state-') + 15]}{sha256(content).hexdigest()[:16]}.safetensors"] = content
    return case


# the command line

COMMANDS = (
    "data sudoku-4 --num-train 4 --num-validation 2 --num-test 2 --seed 1 --source solver --padding paper "
    "--processes 1",
    "data sudoku-6-puzzle --num-train 2 --num-validation 0 --num-test 0 --clues 12 --guessing allowed "
    "--show 1",
    "data zebra-3 --houses 3 --attributes 3 --show 1 --seed 5",
    "data countdown-3 --numbers 3 --targets 10 30 --num-train 2 --num-validation 1 --num-test 1 "
    "--apart-from {data/countdown-3} --out {out}",
    "data sudoku-6-puzzle --source {source/sudoku-6-puzzle}/train.csv --split test --skip-bad --out {out}",
    "data text --source {text/lines}/lines.jsonl --length 16 --tokenizer bpe:300 --num-test 3 --out {out}",
    "train sudoku-4 scdm --out {out} --size nano --steps 1 --batch-size 2 --lr 0.001 --weight-decay 0.1 "
    "--data {data/sudoku-4}",
    "train sudoku-4 ar-mtp-window-2 --out {out} --steps 1 --batch-size 2 --ema 0.9 --positions both --gelu "
    "tanh --data {data/sudoku-4}",
    "train countdown-3 arm --out {out} --steps 1 --weight flat --targets all --noise all --precision fp32 "
    "--data {data/countdown-3}",
    "train sudoku-4 mdm --out {out} --warmup 1 --num-train 4 --num-validation 2 --evaluate-every 1 "
    "--save-minutes 1 --dropout 0.1 --keep 1",
    "train text esolm --out {out} --steps 1 --batch-size 2 --data {data/text} --on-nan skip --seed 3 "
    "--resume auto",
    "evaluate {model/scdm-sudoku-4} --latents 0 4 all --candidates 4 --order margin --num-samples 2 --out "
    "{out} --json",
    "evaluate {model/scdm-sudoku-4} --latents 1 --tokens-per-step 2 --latent-policy relevant --data "
    "{data/sudoku-4} --batch-size 2 --out {out}",
    "evaluate {model/scdm-sudoku-4} --temperature 0.5 --top-p 0.9 --no-refresh --precision bf16 "
    "--num-samples 2 --out {out}",
    "evaluate {model/esolm-text} --latents 2 --num-samples 2 --data {data/text} --judge trigrams --out {out}",
    "sample {model/scdm-sudoku-4} --num-samples 1 --latents 2 --candidates growing --tokens-per-step 2 "
    "--order entropy --json",
    "sample {model/scdm-countdown-3} --num-samples 1 --temperature 1 --top-p 0.5 --seed 7",
    "sample {model/esolm-text} --prompt The_latent_____are --num-samples 1 --latents all",
    "sample {model/esolm-bytes} --show --temperature 0",
    "solve 1............... --run {model/scdm-sudoku-4} --latents 2 --candidates 3 --temperature 0.5 "
    "--attempts 2 --seed 3",
    "solve 3,5,7,15 --run {model/scdm-countdown-3}",
    "demo --out {out} --scale smoke --every-method --precision fp32 --seed 1",
    "bench --methods scdm --sizes nano --lengths 8 --batch-sizes 2 --latents 1 --candidates 2 --train "
    "nano:2x8 --precisions fp32 --rounds 1 --json",
    "bench --vocabulary 32 --positions rotary --top-p 0.9 --no-plain --growth {out}",
    "reproduce table-models --scale smoke --out {out} --runs {out}/runs",
    "reproduce figure-1 --scale smoke --seeds 1 --status --judge trigrams --out {out} --runs {out}/runs",
    "import {published/ckpt}/last.ckpt {out} --weights raw --method scdm",
    "import {published/folder} {out} --weights ema --method mdm",
    "likelihood {model/esolm-text} --data {data/text} --num-sequences 2 --order uniform --orders 2 "
    "--latents 0 3 all --seed 2 --json",
    "likelihood {model/esolm-text} --text {text/short}/one.txt --orders 1",
)
MOST_WORK = {
    "steps": 2, "num_train": 8, "num_validation": 4, "num_test": 3, "num_samples": 2, "attempts": 3,
    "orders": 2, "num_sequences": 2, "rounds": 1,
    "show": 3, "processes": 1, "seeds": 2,
}  # fmt: skip


def command_seeds(fixtures):
    return [{"arguments.json": json.dumps(line.split()).encode()} for line in COMMANDS]


def changed_command(rng, case, seeds):
    """Arguments with a few changed: values swapped, flags dropped, doubled, taken from other commands."""
    arguments = json.loads(case["arguments.json"])
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        other = json.loads(rng.choice(seeds)["arguments.json"])
        values = [at for at, word in enumerate(arguments) if at and not word.startswith("--")] or [0]
        at, what = rng.choice(values), rng.randrange(10)
        if what == 0:
            del arguments[rng.randrange(len(arguments))]
        elif what == 1:
            arguments[at:at] = [arguments[at]] * rng.choice((1, 2, 40))
        elif what == 2:
            flag = rng.randrange(len(other))
            arguments += other[flag : flag + rng.choice((1, 2, 3))]
        elif what == 3:
            arguments[at] = os.fsdecode(
                mutated(rng, arguments[at].encode("utf-8", "surrogateescape"), [], "word")[:5_000]
            ).replace("\x00", "")
        elif what == 4:
            arguments[at] += rng.choice(WORDS).replace("\x00", "")
        elif what == 5:
            arguments[at] = rng.choice(other)
        else:
            arguments[at] = rng.choice(
                (*map(str, NUMBERS), "nan", "inf", "-inf", "1e400", "0.0", "-0.5", "1e-320", *WORDS)
            ).replace("\x00", "")
        if not arguments:
            arguments = ["--help"]
    return {"arguments.json": json.dumps(arguments).encode()}


def tamed(asked):
    """A command that asks for no more than a moment's work, else as it is."""
    inner = getattr(asked, "config", None)
    if inner is not None:
        asked = replace(asked, config=tamed(inner))
    for name, most in MOST_WORK.items():
        value = getattr(asked, name, None)
        if (isinstance(value, int) and not isinstance(value, bool) and value > most) or (
            value is None
            and name in ("num_train", "num_validation", "num_test", "processes", "num_samples")
            and hasattr(asked, name)
            and not hasattr(asked, "show")
        ):
            asked = replace(asked, **{name: most})
    return asked


def ran(asked, run):
    """Run a command with small limits. demo, bench and the training of reproduce stop after their configs."""
    if isinstance(asked, DemoConfig | Bench) or (
        isinstance(asked, ReproduceConfig) and not asked.status and not asked.experiment.startswith("table-m")
    ):
        return 0
    return run(tamed(asked))


def read_arguments(folder, fixtures):
    arguments = json.loads((folder / "arguments.json").read_text())
    command(*placed(arguments, folder, fixtures))


def placed(arguments, folder, fixtures):
    """Arguments with the places that they name."""
    names = re.compile(r"\{((?:model|data|run|source|text|published)/[a-z0-9-]+)\}")

    def place(found):
        try:
            return str(fixtures.made(found[1]))
        except KeyError:
            return "nowhere"

    return [names.sub(place, argument).replace("{out}", str(folder / "out")) for argument in arguments]


def is_command(folder):
    """Whether the parser takes the arguments, and the configs what they say."""
    arguments = json.loads((folder / "arguments.json").read_text())
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            cli.parse([re.sub(r"[{}]", "", argument) for argument in arguments])
        except (ValueError, SystemExit):
            return False
    return True


def tame_the_commands():
    """Limit the work of the command line to a moment. Meant for a process that does nothing else."""
    for kind, run in list(RUN.items()):
        RUN[kind] = lambda asked, run=run: ran(asked, run)


MODELS = (
    "model/scdm-sudoku-4",
    "model/esolm-text",
    "model/scdm-countdown-3",
    "model/arm-sudoku-4",
    "model/scdm-zebra-3",
    "model/scdm-sudoku-6-puzzle",
)
DATA = (
    "data/sudoku-4",
    "data/countdown-3",
    "data/zebra-3",
    "data/sudoku-6-puzzle",
    "data/text",
    "data/bytes",
)


def has_model_files(folder):
    """Return whether the directory passes the first check of a model: its config and its weights parse."""
    return is_json(folder / "config.json") and is_safetensors(folder / "model.safetensors")


def folder_of(check):
    return lambda folder: check(folder / "folder")


READERS = (
    Reader("puzzle", puzzle_seeds, read_a_puzzle, is_puzzle),
    source_reader("sudoku.npy", "sudoku-6-puzzle", "*.npy",
        lambda folder: is_npy(the(folder, "source/*.npy")), share=2.0),
    source_reader("sudoku.csv", "sudoku-6-puzzle", "train.csv", is_csv, share=2.0),
    source_reader("sudoku-extreme.csv", "sudoku-6-puzzle", "extreme.csv", is_csv, share=2.0),
    source_reader("sudoku.txt", "sudoku-6-puzzle", "*.txt",
        lambda folder: is_text(the(folder, "source/*.txt")), share=2.0),
    source_reader("zebra.pkl", "zebra", "*.pkl",
        lambda folder: is_pickle(the(folder, "source/*.pkl").read_bytes()), share=2.0),
    source_reader("zebra.jsonl", "zebra", "*.jsonl", first_lines, share=2.0),
    source_reader("countdown.jsonl", "countdown-3", "*.jsonl", first_lines, share=2.0),
    Reader("ckpt", folder_seeds("published/ckpt"), read_published, is_lightning, share=1.2),
    Reader(
        "published folder", folder_seeds("published/folder"), read_published, folder_of(has_model_files),
    ),
    Reader(
        "model folder", folder_seeds(*MODELS), read_model, folder_of(has_model_files), retold,
    ),
    Reader("data folder", folder_seeds(*DATA), read_data,
        folder_of(lambda folder: is_json(folder / "manifest.json")), repinned),
    Reader("text", text_seeds, read_text,
        lambda folder: all(is_text(file) for file in folder.glob("text/*/*"))),
    Reader("tokenizer", tokenizer_seeds, read_a_tokenizer,
        folder_of(lambda folder: all(map(is_json, folder.glob("*.json")))), share=2.0),
    Reader("state", state_seeds, read_a_state,
        lambda folder: is_safetensors(the(folder, "run/state-*.safetensors")), renamed_state),
    Reader("metrics.jsonl", lines_seeds, read_metrics, first_lines, share=2.0),
    Reader(
        "run folder", folder_seeds("run/sudoku-4"), read_a_run,
        folder_of(lambda folder: is_json(folder / "config.json")), renamed_in_run,
    ),
    Reader("commands", command_seeds, read_arguments, is_command, change=changed_command),
)  # fmt: skip
BY_NAME = {reader.name: reader for reader in READERS}

__all__ = ["BY_NAME", "READERS", "Case", "Reader", "changed", "next_case", "tame_the_commands", "written"]
