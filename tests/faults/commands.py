"""The command line as a reader: valid commands, changed arguments, and limits on the work of each."""

import io
import json
import os
import re
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace

from faults.archives import mutated
from faults.corruptions import NUMBERS, WORDS
from latent_tokens import cli
from latent_tokens.commands import RUN, Bench
from latent_tokens.configs import DemoConfig, ReproduceConfig

COMMANDS = (
    "data sudoku-4 --num-train 4 --num-validation 2 --num-test 2 --seed 1 --source solver --padding paper "
    "--processes 1",
    "data sudoku-6-puzzle --num-train 2 --num-validation 0 --num-test 0 --clues 12 --guessing allowed "
    "--out {out}",
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
    "orders": 2, "num_sequences": 2, "rounds": 1, "show": 3, "processes": 1, "seeds": 2,
}  # fmt: skip
LIMITED_BY_DEFAULT = ("num_train", "num_validation", "num_test", "processes", "num_samples")
REPLACEMENTS = (*map(str, NUMBERS), "nan", "inf", "-inf", "1e400", "0.0", "-0.5", "1e-320", *WORDS)
CHANGES = ("drop", "repeat", "add flags", "mutate", "extend", "exchange", *["replace"] * 4)


def command(*arguments):
    """Run a command as a shell does. Raise ValueError with its last line, or AssertionError."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", "strict", write_through=True)
    errors = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            if stop.code == 0:  # --help
                return
            raise
    lines = errors.buffer.getvalue().decode().splitlines()
    assert "Traceback" not in "".join(lines)
    if code in (0, 1):
        return
    assert code == 2, f"exit code {code}"
    assert lines, "refused without a word"
    assert lines[-1].startswith("latent-tokens: "), f"ends with {lines[-1]!r}"
    assert sum(line.startswith("latent-tokens: ") for line in lines) == 1
    raise ValueError(lines[-1])


def command_seeds(fixtures):
    return [{"arguments.json": json.dumps(line.split()).encode()} for line in COMMANDS]


def change_command(rng, case, seeds):
    """Change arguments: swap values, drop or repeat flags, take some from other commands."""
    arguments = json.loads(case["arguments.json"])
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        other = json.loads(rng.choice(seeds)["arguments.json"])
        values = [at for at, word in enumerate(arguments) if at and not word.startswith("--")] or [0]
        at = rng.choice(values)
        change = rng.choice(CHANGES)
        if change == "drop":
            del arguments[rng.randrange(len(arguments))]
        elif change == "repeat":
            arguments[at:at] = [arguments[at]] * rng.choice((1, 2, 40))
        elif change == "add flags":
            flag = rng.randrange(len(other))
            arguments += other[flag : flag + rng.choice((1, 2, 3))]
        elif change == "mutate":
            content = mutated(rng, arguments[at].encode("utf-8", "surrogateescape"), [], "word")
            arguments[at] = os.fsdecode(content[:5_000]).replace("\x00", "")
        elif change == "extend":
            arguments[at] += rng.choice(WORDS).replace("\x00", "")
        elif change == "exchange":
            arguments[at] = rng.choice(other)
        else:
            arguments[at] = rng.choice(REPLACEMENTS).replace("\x00", "")
        arguments = arguments or ["--help"]
    return {"arguments.json": json.dumps(arguments).encode()}


def limited(asked, fill=True):
    """Return a command that takes little work. `fill` replaces defaults, too."""
    inner = getattr(asked, "config", None)
    if inner is not None:
        asked = replace(asked, config=limited(inner, getattr(asked, "show", None) is None))
    fill = fill and not hasattr(asked, "show")
    stored = ("num_train", "num_validation") if getattr(asked, "data", None) else ()  # counts of a data set
    for name, most in MOST_WORK.items():
        if name in stored:
            continue
        value = getattr(asked, name, None)
        too_much = isinstance(value, int) and not isinstance(value, bool) and value > most
        has_default = value is None and name in LIMITED_BY_DEFAULT and hasattr(asked, name)
        if too_much or (fill and has_default):
            asked = replace(asked, **{name: most})
    return asked


def run_limited(asked, run):
    """Run a command with small limits. demo, bench and the training of reproduce stop after their configs."""
    is_table = isinstance(asked, ReproduceConfig) and asked.experiment.startswith("table-m")
    trains = isinstance(asked, ReproduceConfig) and not asked.status and not is_table
    return 0 if trains or isinstance(asked, DemoConfig | Bench) else run(limited(asked))


def limit_commands():
    """Limit the work of the command line in this process, which does nothing else."""
    for kind, run in list(RUN.items()):
        RUN[kind] = lambda asked, run=run: run_limited(asked, run)


def read_command(folder, fixtures):
    arguments = json.loads((folder / "arguments.json").read_text())
    command(*placed(arguments, folder, fixtures))


def placed(arguments, folder, fixtures):
    """Return arguments with the paths of the fixtures that they name."""
    names = re.compile(r"\{((?:model|data|run|source|text|published)/[a-z0-9-]+)\}")

    def path_of(match):
        try:
            return str(fixtures.made(match[1]))
        except KeyError:
            return "nowhere"

    return [names.sub(path_of, argument).replace("{out}", str(folder / "out")) for argument in arguments]


def is_command(folder):
    """Return whether the parser takes the arguments, and the configs their values."""
    arguments = json.loads((folder / "arguments.json").read_text())
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            cli.parse([re.sub(r"[{}]", "", argument) for argument in arguments])
        except (ValueError, SystemExit):
            return False
    return True
