"""make fuzz: every reader refuses damaged input in one line, and executes nothing in it.

    python -m faults.fuzz                           2,000 inputs for each reader: minutes
    python -m faults.fuzz --reader ckpt --only 17   one input again
The same seed makes the same inputs. Another error, a crash, a hang, or a call that a file made is a wrong
result, and the exit code is 1. Memory is not limited.
"""

import argparse
import io
import json
import os
import pickle
import shutil
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from multiprocessing import RawArray
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import torch
from safetensors.torch import save_file
from torch.optim.swa_utils import AveragedModel

from helpers.hostile import changed
from helpers.published_network import Published, lightning
from helpers.runs import tiny_run
from latent_tokens import METHODS, TASKS, Transformer, cli, fit, load_data, save_pretrained
from latent_tokens.storage import read_lines
from latent_tokens.tasks import Text, description
from latent_tokens.tasks.readers import read_source
from latent_tokens.tasks.text.tokenizer import read_tokenizer
from latent_tokens.training.checkpoint import discard_after, load_state
from latent_tokens.training.step import ema_update
from test_sources import PUZZLE, extreme_csv, shah_rows, shah_zebras

COUNTDOWN = '{"input": "3,5,7,15", "output": "3+5=8,8+7=15"}\n'
SECONDS = 60  # after which an input counts as a hang
SENTENCE = "The latent cells of row {} are open; the known ones, in box 3, are not.\n\n"
COMMANDS = (
    "data sudoku-4 --num-train 4 --num-validation 2 --num-test 2 --seed 1 --processes 1 --out {out}",
    "data countdown-3 --targets 10 30 --num-train 2 --num-validation 1 --num-test 1 --out {out}",
    "train sudoku-4 scdm --size pico --steps 1 --batch-size 2 --lr 0.001 --data {data} --out {out}",
    "evaluate {model} --latents 0 4 all --candidates 4 --order margin --num-samples 2 --json --out {out}",
    "sample {model} --num-samples 1 --latents 2 --tokens-per-step 2 --order entropy --json",
    "solve 1............... --run {model} --latents 2 --candidates 3 --attempts 2 --seed 3",
)

# Valid files of each kind that the package reads, as {name: content} of a directory.


def files(*folders):
    """Return inputs: the files of each directory by name."""
    return [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]


def written(path, write):
    """Return the input of a directory with one file, which a function writes."""
    path.parent.mkdir()
    write(path)
    return files(path.parent)


def save_model(folder, method, task):
    net = Transformer("pico", task.vocab_size, task.length)
    net.method = METHODS[method]
    beside = task.files() if isinstance(task, Text) else {}
    save_pretrained(net, folder, about={"task": description(task), "name": method}, beside=beside)
    return folder


def puzzle_readers(home):
    """Return the inputs and the call for files of published puzzles, by name."""
    csv = extreme_csv(PUZZLE.generate(3, seed=1))
    write = {
        "sudoku-puzzle a.npy": lambda path: np.save(path, shah_rows(3)[0]),
        "sudoku-puzzle a.csv": lambda path: path.write_text(csv),
        "sudoku-puzzle a.txt": lambda path: path.write_text(f"{csv.split(',')[4]}\n"),
        "zebra a.pkl": lambda path: path.write_bytes(pickle.dumps(shah_zebras(2)[0], 2)),
        "countdown-3 a.jsonl": lambda path: path.write_text(COUNTDOWN),
    }
    readers = {}
    for name, write_file in write.items():
        task, file = name.split()
        readers[name] = written(home / f"from-{file}" / file, write_file), partial(read_puzzles, task)
    return readers


# Readers: functions of a directory with the input. What they write goes to `out` next to it.


def command(*arguments):
    """Run a command. Raise ValueError with its line, or the title of the parser's box, if it is refused."""
    errors = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(errors):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:  # --help
            code = stop.code
    said = errors.getvalue().splitlines()
    lines = [line for line in said if line.startswith("latent-tokens: ")]
    has_box = any(line.startswith("╭─ ") or set(line.strip()) == {"-"} for line in said)
    boxes = [line.strip() for line in said if line.strip()][:1] if has_box else []
    assert code in (0, 1, 2), errors.getvalue()
    assert len(lines) + len(boxes) == (code == 2), errors.getvalue()
    lines += boxes
    if lines:
        raise ValueError(lines[0])


def read_puzzles(task, folder):
    (path,) = folder.iterdir()
    TASKS[task].splits(read_source(TASKS[task], path, skip_bad=path.stat().st_size % 2 == 0)[0])


def read_data(folder):
    task, splits = load_data(folder)
    for examples in splits.values():
        task.decode(examples.tokens[0])


def read_tokens(folder):
    coder = read_tokenizer(str(folder))
    coder.decode([*coder.encode(["The latent cells are open: 12 of 3.\r\n"])[0].tolist(), coder.end])


def read_checkpoint(folder):
    net = Transformer("pico", TASKS["sudoku-4"].vocab_size, 16)
    average = AveragedModel(net, multi_avg_fn=ema_update(0.9))
    state = load_state(folder, net, average, torch.optim.AdamW(net.parameters()))
    read_lines(folder / "metrics.jsonl")
    discard_after(folder, state.step, keep=2)


def readers(home):
    """Return (valid inputs, the call) of each reader by name. Everything is written below `home`."""
    out, run, data, text = home / "out", home / "run", home / "sudoku-4", home / "text" / "a.txt"
    sentences = written(text, lambda path: path.write_text("".join(map(SENTENCE.format, range(99)))))
    for task in ("sudoku-4", "countdown-3", "zebra-3"):
        sizes = ("--num-train", 6, "--num-validation", 2, "--num-test", 2, "--processes", 1)
        command("data", task, *sizes, "--out", home / task)
    as_text = ("--length", 16, "--tokenizer", "bpe:300", "--out")
    command("data", "text", "--source", text, *as_text, home / "tokens")
    model = save_model(home / "model", "scdm", TASKS["sudoku-4"])
    texts = save_model(home / "texts", "esolm", Text(16, "tokenizer.json", home / "tokens"))
    settings = {"steps": 2, "save_every": 1}
    fit(tiny_run(run, **settings))
    net = Published(width=8, heads=2, layers=1, cond=2, vocab=9, waves=2)
    content = lightning(net, [*net.parameters()])
    weights = {name: weight.contiguous() for name, weight in content["state_dict"].items()}
    published = written(home / "published" / "model.safetensors", lambda path: save_file(weights, path))
    published[0]["config.json"] = b'{"n_heads": 2, "model_length": 16, "model_type": "mdlm", "n_blocks": 1}'
    lines = [line.format(out=out, model=model, data=data).split() for line in COMMANDS]
    ckpt = written(home / "ckpt" / "last.ckpt", partial(torch.save, content))
    few = ("--num-samples", 1, "--json")
    return puzzle_readers(home) | {
        "ckpt": (ckpt, lambda folder: command("import", folder / "last.ckpt", out)),
        "published folder": (published, lambda folder: command("import", folder, out)),
        "model folder": (files(model, texts), lambda folder: command("sample", folder, *few)),
        "data folder": (files(data, home / "countdown-3", home / "zebra-3", home / "tokens"), read_data),
        "text": (
            sentences,
            lambda folder: command("data", "text", "--source", folder / text.name, *as_text, out),
        ),
        "tokenizer": ([{"tokenizer.json": files(home / "tokens")[0]["tokenizer.json"]}], read_tokens),
        "checkpoint": (files(run), read_checkpoint),
        "run folder": (files(run), lambda folder: fit(tiny_run(folder, **settings, resume="auto"))),
        "puzzle": (
            [{"a.txt": b"1..............."}],
            lambda folder: command("solve", os.fsdecode((folder / "a.txt").read_bytes()), f"--run={model}"),
        ),
        "commands": (
            [{"arguments": json.dumps(line).encode()} for line in lines],
            lambda folder: command(*json.loads((folder / "arguments").read_bytes())),
        ),
    }


def attempt(case, read, home):
    """Return what becomes of an input: accepted, refused, or what is wrong."""
    folder, mark = home / "case", home / "mark"
    for path in (folder, home / "out"):
        shutil.rmtree(path, ignore_errors=True)
    folder.mkdir()
    for name, content in case.items():
        (folder / name).write_bytes(content)
    os.environ["MARK"] = str(mark)
    signal.alarm(SECONDS)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            read(folder)
        result = "accepted"
    except (ValueError, OSError) as error:
        is_line = bool(str(error)) and "\n" not in str(error)
        result = "refused" if is_line else f"not one line: {str(error)!r}"
    except BaseException as error:
        result = f"{type(error).__name__}: {error!s:.300}"
    signal.alarm(0)
    return "executed" if mark.exists() else result


def read_all(name, inputs, read, home):
    """Return the numbers of accepted and refused inputs (number, input), and what is wrong.

    They are read in another process, which starts again after one that ended it.
    """
    counts, wrong = RawArray("i", 3), home / "wrong"  # the inputs that were begun, accepted and refused
    wrong.write_text("")

    def note(number, result):
        with wrong.open("a") as file:
            file.write(f"WRONG: {name}, input {number}: {result}\n")

    while counts[0] < len(inputs):
        pid = os.fork()
        if not pid:
            for number, case in inputs[counts[0] :]:
                counts[0] += 1
                result = attempt(case(), read, home)
                counts[1] += result == "accepted"
                counts[2] += result == "refused"
                if result not in ("accepted", "refused"):
                    note(number, result)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code:
            note(inputs[counts[0] - 1][0], f"ends the process ({code})")
    return counts[1], counts[2], wrong.read_text()


def change(seed, cases):
    """Return a change of a valid input."""
    rng = Random(seed)
    return changed(rng, dict(rng.choice(cases)))


def main(count, seed, names, only):
    """Run the readers, print their counts, and return 1 if something is wrong."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    torch.set_num_threads(1)
    totals = np.zeros(3, int)
    with TemporaryDirectory(prefix="fuzz-") as folder:
        home = Path(folder)
        os.chdir(home)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            every_reader = readers(home)
        for name in names or every_reader:
            cases, read = every_reader[name]
            for case in cases:
                result = attempt(case, read, home)
                assert result == "accepted", f"{name}: a valid input: {result}"
            numbers = range(count) if only is None else [only]
            inputs = [(number, partial(change, f"{seed} {name} {number}", cases)) for number in numbers]
            accepted, refused, wrong = read_all(name, inputs, read, home)
            totals += (accepted, refused, wrong.count("WRONG: "))
            print(f"{wrong}{name}: {accepted} accepted, {refused} refused in one line", flush=True)
    print(f"inputs {totals.sum():,}, accepted {totals[0]:,}, refused {totals[1]:,}")
    print(f"wrong results {totals[2]}")
    return int(totals[2] > 0)


if __name__ == "__main__":
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__, formatter_class=formatter)
    parser.add_argument("--inputs", type=int, default=2_000, help="for each reader")
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same inputs")
    parser.add_argument("--reader", nargs="*", help="only these")
    parser.add_argument("--only", type=int, help="the number of one input")
    asked = parser.parse_args()
    sys.exit(main(asked.inputs, asked.seed, asked.reader, asked.only))
