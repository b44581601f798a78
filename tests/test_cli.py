"""The command line: its output, its files, its help, and one line for every mistake."""

import dataclasses
import errno
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from contextlib import chdir
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from helpers.refusals import refused_command
from helpers.runs import tiny_run
from latent_tokens import METHODS, SIZES, TASKS, configs, fit, from_pretrained, save_pretrained
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.checks import printable
from latent_tokens.cli import as_flags, main, parse, resume_hint
from latent_tokens.commands import COMMANDS, RUN
from latent_tokens.commands.doctor import Doctor
from latent_tokens.commands.train import flags_of_run
from latent_tokens.data.splits import make_problems
from latent_tokens.training.config import TrainConfig

PUZZLE = "1.....3............2................"
FEW_STEPS = "--size pico --steps 2 --batch-size 4 --num-train 8 --num-validation 8 --precision fp32"


def run(command):
    """Return the exit code of a command line."""
    return main(shlex.split(command))


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return run directories of three methods, trained for 2 steps."""
    folder = tmp_path_factory.mktemp("runs")
    return {name: str(fit(tiny_run(folder / name, name, steps=2))) for name in ("scdm", "mdm", "arm")}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_a_text_per_flag_and_two_examples(command, capsys):
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    text = " ".join(re.sub(r"[\u2500-\u257f]", " ", out).split())  # on one line without its frames
    for field in dataclasses.fields(COMMANDS[command]):
        name = field.name.replace("_", "-")
        other_names = ("runs", "answers", "config_file")
        has_another_name = field.default is dataclasses.MISSING or field.name in other_names
        assert has_another_name or not field.init or f"--{name}" in text or f"--no-{name}" in text
    assert "default: None" not in text
    assert not re.search(r"\bSTR\b", text)
    examples = [line for line in out.splitlines() if line.startswith("    latent-tokens ")]
    assert len(examples) == 2
    assert {type(parse(shlex.split(example)[1:])) for example in examples} == {COMMANDS[command]}
    if command == "train":
        methods = [name for name in METHODS if not name.endswith("-16")]
        assert all(name in text for name in (*TASKS, "text", *methods, "ar-mtp-window-N", "ar-ntp-N"))


def test_choices_of_the_command_line_are_those_of_the_package():
    assert set(configs.TaskName.__args__) == {*TASKS, "text"}
    assert set(configs.SizeName.__args__) == set(SIZES)


@pytest.mark.slow
def test_module_prints_its_version_and_a_closed_pipe_is_no_error(capsys):
    command = f"{sys.executable} -m latent_tokens data sudoku-16 --show 40 | head -1"
    piped = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (len(piped.stdout.splitlines()), piped.stderr) == (1, "")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"latent-tokens {version('latent-tokens')}\n"


def test_a_character_that_the_terminal_lacks_is_shown_as_its_escape():
    code = r"from latent_tokens import cli; cli.main = lambda: print('caf\u00e9') or 0; cli.entry()"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "caf\\xe9\n")


def test_data_then_train_then_evaluate(tmp_path, capsys):
    data, folder = tmp_path / "data", tmp_path / "run"
    sizes = "--num-train 40 --num-validation 8 --num-test 8 --processes 1"
    assert run(f"data sudoku-4 {sizes} --source pattern --out {data}") == 0
    assert json.loads((data / "manifest.json").read_text())["splits"]["train"]["examples"] == 40
    training = f"sudoku-4 scdm --size pico --steps 3 --batch-size 4 --precision fp32 --data {data}"
    assert run(f"train {training} --out {folder}") == 0
    capsys.readouterr()
    assert run(f"evaluate {folder} --latents 0 4 all --num-samples 10 --json") == 0
    printed = lines(capsys.readouterr().out)
    assert [row["latents"] for row in printed] == [0, 4, "all"]
    assert printed == lines((folder / "results.jsonl").read_text())
    assert run(f"evaluate {folder} --num-samples 10 --out {tmp_path / 'elsewhere'}") == 0
    assert "95% interval" in capsys.readouterr().out
    assert len(lines((tmp_path / "elsewhere" / "results.jsonl").read_text())) == 1
    assert run(f"train --config {folder} --out {tmp_path / 'again'}") == 0
    weights = [(run_of / "model.safetensors").read_bytes() for run_of in (folder, tmp_path / "again")]
    assert weights[0] == weights[1]


def test_train_writes_one_run_for_each_combination_of_values(tmp_path, monkeypatch, capsys):
    """Each run equals that of a single command. Finished ones are skipped when the command is resumed."""
    monkeypatch.chdir(tmp_path)
    command = f"train sudoku-4 scdm {FEW_STEPS} --size pico nano --seed 0 1"
    names = [f"sudoku-4-scdm-{size}-{seed}" for size in ("pico", "nano") for seed in (0, 1)]
    assert run(command) == 0
    assert capsys.readouterr().out.splitlines() == [f"runs/{name}" for name in names]
    assert run(f"train sudoku-4 scdm {FEW_STEPS} --seed 1 --out {{size}}-{{seed}}") == 0
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "pico-1" / file).read_bytes() == (tmp_path / "runs" / names[1] / file).read_bytes()

    # Other values name the runs, too, and are those of their configs.
    assert run(f"train sudoku-4 scdm {FEW_STEPS} --lr 1e-3 5e-4 --clip 1 2") == 0
    names_of_values = [(lr, clip) for lr in (0.001, 0.0005) for clip in (1.0, 2.0)]
    for lr, clip in names_of_values:
        config = tmp_path / f"runs/sudoku-4-scdm-pico-0-lr-{lr}-clip-{clip}/config.json"
        stored = json.loads(config.read_text())["training"]
        assert (stored["lr"], stored["clip"], stored["seed"]) == (lr, clip, 0)
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(names_of_values)

    # A run without its last checkpoints is resumed, and the others are as they were.
    for state in (tmp_path / "runs" / names[2]).glob("state-*"):
        state.unlink()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/model.safetensors")}
    assert run(f"{command} --resume auto") == 0
    finished = re.findall(r"^runs/(\S+): finished at step 2$", capsys.readouterr().err, re.M)
    assert finished == [*names[:2], names[3]]
    changed = {path.parent.name for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert changed == {names[2]}


def test_config_of_a_run_has_the_defaults_of_train(runs, tmp_path, capsys):
    """What is typed replaces it. A name of a file imports no module."""
    first = json.loads(Path(runs["scdm"], "config.json").read_text())["training"]
    assert (
        run(f"train sudoku-4 mdm --config={runs['scdm']}/config.json --lr 0.003 --out {tmp_path / 'a'}") == 0
    )
    stored = json.loads((tmp_path / "a/config.json").read_text())
    assert stored["training"] == first | {"method": "mdm", "lr": 0.003}
    stored["training"] |= {"num_train": 99, "num_validation": 77}  # of data that was generated
    (tmp_path / "a/config.json").write_text(json.dumps(stored))
    assert flags_of_run(tmp_path / "a").num_train == 99
    flags = parse(["train", "--config", str(tmp_path / "a"), f"--data={tmp_path}"])
    assert (flags.num_train, flags.num_validation) == (None, TrainConfig.num_validation)
    from_model = stored["training"] | {"size": None, "start": "gpt2", "task": "text"}
    (tmp_path / "a/config.json").write_text(json.dumps({**stored, "training": from_model}))
    with warnings.catch_warnings(action="error"):
        assert parse(["train", "--config", str(tmp_path / "a")]).size is None
    (tmp_path / "evil.py").write_text("raise SystemExit(3)")
    stored["training"] |= {"task": "evil:Task"}
    (tmp_path / "a/config.json").write_text(json.dumps(stored))
    with chdir(tmp_path):
        assert run("train --config a") == 2
    assert "Missing from latent-tokens train:" in capsys.readouterr().err
    stored["training"] |= {"lrs": 1}
    (tmp_path / "a/config.json").write_text(json.dumps(stored))
    refused_command(capsys, f"train --config {tmp_path / 'a'}", "a: corrupt (TrainConfig.__init__() got")


def test_missing_run_is_found_before_another_is_extended(tmp_path, capsys):
    command = f"train sudoku-4 scdm {FEW_STEPS} --out {tmp_path}/{{seed}}"
    assert run(f"{command} --seed 0") == 0
    before = (tmp_path / "0/config.json").read_bytes()
    assert run(f"{command} --seed 0 1 --steps 3 --resume extend".replace("--steps 2", "")) == 2
    assert "no run to resume" in capsys.readouterr().err
    assert (tmp_path / "0/config.json").read_bytes() == before


def test_several_runs_under_a_launcher_are_refused(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    problem = "--seed 0 1: several runs take one process each. Leave out the launcher"
    refused_command(capsys, "train sudoku-4 scdm --seed 0 1", problem)


def test_sample_and_solve_print_boards_or_json(runs, capsys):
    assert run(f"sample {runs['arm']} --num-samples 3 --json") == 0
    samples = lines(capsys.readouterr().out)
    assert [len(row["tokens"]) for row in samples] == [16] * 3
    assert samples[0]["order"] == list(range(16))
    assert run(f"sample {runs['scdm']} --num-samples 1 --latents all --candidates 4") == 0
    assert "valid" in capsys.readouterr().out
    assert run(f"solve {PUZZLE} --candidates all --attempts 20") == 0
    solved = capsys.readouterr().out
    assert "\nsolved" in solved
    assert "by sudoku-6-scdm" in solved
    assert solved.endswith("\n0 latent tokens: all masked tokens are candidates\n")


def test_bundled_model_takes_all_candidates_and_gets_no_file(capsys, monkeypatch):
    before = sorted(BUNDLED.rglob("*"))
    monkeypatch.chdir(BUNDLED.parent)
    for settings in ("sudoku-6-mdm --latents all", "bundled/sudoku-6-scdm --latents 0"):
        assert run(f"evaluate {settings} --candidates all --num-samples 1 --json") == 0
    assert [row["relative_cost"] for row in lines(capsys.readouterr().out)] == [1.0, 1.0]
    assert sorted(BUNDLED.rglob("*")) == before


PROMPTS = {  # of each task: a problem, how its prompt is drawn, and its tokens: given, in all
    "zebra-3": ("= LHS c 1 1 RHS c 0 2 CLUE_END = LHS c 2 0 RHS c 1 1 CLUE_END "
                "immediate-left LHS c 0 0 RHS c 2 0 CLUE_END "
                "= LHS c 2 2 RHS n 0 1 CLUE_END nbr LHS c 1 0 RHS c 0 0 CLUE_END 0 1 2",
                "3. A1 is immediately left of C1", 55, 64),
    "countdown-3": ("4,44,89,87", "make 87 of 4, 44, 89", 12, 35),
    "sudoku-6-puzzle": (PUZZLE, "1 . . | . . .     ", 38, 74),
}  # fmt: skip


@pytest.mark.parametrize("name", PROMPTS)
def test_solve_and_sample_input_is_no_longer_than_the_problem(name, tmp_path, capsys):
    folder = fit(tiny_run(tmp_path / "run", task=name, steps=1))
    text, drawn, given, length = PROMPTS[name]
    capsys.readouterr()
    main(["solve", text, "--run", str(folder), "--latents", "0", "--candidates", "1"])
    out = capsys.readouterr().out
    assert drawn in out
    assert f"{sum(range(given + 1, length + 1)):,} tokens processed" in out
    assert run(f"sample {folder} --num-samples 3 --json") == 0
    problems = make_problems(TASKS[name], 3, seed=0)
    for line, problem, known, length in zip(lines(capsys.readouterr().out), *problems, strict=True):
        assert set(line) == {"tokens", "order", TASKS[name].metric}
        assert len(line["tokens"]) == length
        assert np.array(line["tokens"])[known[:length]].tolist() == problem[known].tolist()
        assert sorted(line["order"][int(known.sum()) : length]) == np.flatnonzero(~known[:length]).tolist()


# Rows that tests/test_mistakes.py does not have: the command, and a piece of its one line.
REFUSED = [
    ("train sudoku-4 scdm --seed 0 0", "--seed 0 0: must be different values"),
    ("train sudoku-4 scdm --size pico nano --seed 0 1 --out runs/x-{{seed}}", "--out runs/x-{seed}-{size}"),
    ("train sudoku-4 scdm --batch_size=0", "--batch-size 0: must be a whole number from 1"),
    ("train sudoku-4 scdm --from nowhere --out {full}/run", "'nowhere' not found: not a run directory"),
    ("data sudoku4", "TASK 'sudoku4': must be one of sudoku-4, "),
    ("data sudoku-4 --skip-bad", "--skip-bad: is for puzzles of a file. Name the file: --source FILE"),
    (
        "data sudoku-puzzle --source a --split test --num-train 5",
        "all puzzles of the file go to test. Use --n",
    ),
    ("data sudoku-6-puzzle --source a --clues 20", "--clues 20: is for generated puzzles, and a has"),
    ("train sudoku-4 scdm --lora-targets all", "--lora-targets all: is for an adapter. Add --lora 16"),
    ("data text --source a --apart-from a b", "--apart-from a b: text has no such setting"),
    ("evaluate {scdm} --out {scdm}/config.json/out", "config.json is a file. Choose another directory"),
    ("evaluate {scdm} --judge trigrams", "--evaluator trigrams: is for generated text"),
    ("evaluate {arm} --no-refresh", "--no-refresh with --order left_to_right: there is no random order"),
    ("evaluate {scdm} --latents 0 --latent-policy relevant", "there are no latent tokens to choose"),
    ("sample {scdm} --order top_prob --entropy-bound 1", "--order top_prob with --entropy-bound 1.0"),
    ("solve 123....4........ --run {scdm}", "puzzle has no solution"),
    ("solve 86,28,13,31,96", "there is no bundled model for it. Train one and name it with --run"),
    (f"solve {PUZZLE} --task my:Mine", "--task my:Mine: is for a model that --run names. Add"),
    (f"solve {PUZZLE} --method mine:rule", "--method mine:rule: is for a model that --run names. Add"),
    (f"trace sudoku-6-scdm {PUZZLE}", "nothing to write: name a page"),
    (f"trace sudoku-6-scdm {PUZZLE} -o {{full}}/nowhere/all.html", "its directory does not exist"),
    (f"trace sudoku-6-scdm {PUZZLE} -o {{full}}/x.html --png {{full}}/x.htm", "must end with .png"),
    ("demo --out {full}", "exists and is not empty"),
]


@pytest.mark.parametrize(("command", "message"), REFUSED, ids=[command for command, _ in REFUSED])
def test_refused_setting_is_one_line_and_exit_code_2(runs, tmp_path, capsys, command, message):
    (tmp_path / "file").touch()
    refused_command(capsys, command.format(full=tmp_path, **runs), message)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_puzzle_file_that_is_not_text_is_named(tmp_path, capsys):
    (tmp_path / "puzzle.txt").write_bytes("1.2.".encode("utf-16"))
    refused_command(capsys, f"solve {tmp_path}/puzzle.txt", "puzzle.txt: not UTF-8 (invalid start byte)")


def test_settings_are_spelled_as_flags_but_not_parts_of_a_path():
    for raised, typed, printed in (
        ("houses=(3, 4): no", "data x", "--houses 3 4: no"),
        ("source=None: no", "data x", "--source: no"),
        ("width=4: no", "train a b", "width=4: no"),
        ("runs/a.b=4/latents=3: no", "solve x", "runs/a.b=4/latents=3: no"),
        ("order=blockwise(2): no", "solve x", "--order blockwise:2: no"),
        ("out=a (1)/b: no", "export x 'a (1)/b'", "DIR 'a (1)/b': no"),
        ("out=a(1): no", "data x --out 'a(1)'", "--out a(1): no"),
        ("no. Leave lora_alpha out, or not", "train a b", "no. Leave --lora-alpha out, or not"),
        ("no. Leave task out", "train a b", "no. Leave task out"),
    ):
        assert as_flags(raised, parse(shlex.split(typed))) == printed


def test_interrupted_command_is_printed_with_the_option_that_resumes_it():
    """tests/faults/drill.py interrupts and resumes runs."""
    stop, command = KeyboardInterrupt("stopped at step 3"), ["train", "sudoku-4", "scdm", "--out", "a run"]
    hint = ". Resume with: latent-tokens train sudoku-4 scdm --out 'a run' --resume auto"
    assert resume_hint(stop, command) == resume_hint(stop, [*command, "--resume", "auto"]) == hint
    assert resume_hint(stop, [*command, "--resume=auto"]).endswith("'a run' --resume=auto")
    assert resume_hint(stop, [*command, "--resume", "no"]).endswith("--resume no --resume auto")
    assert resume_hint(stop, ["evaluate", "a"]) == resume_hint(KeyboardInterrupt(), command) == ""


def test_control_characters_are_escaped_in_a_terminal():
    assert printable("a\x1b[31m\x07b\nc\u202e") == "a\\x1b[31m\\x07b\\nc\\u202e"
    assert printable("a\tb\nä", also="\n\t") == "a\tb\nä"


def test_a_directory_named_like_markup_is_shown_as_it_is(tmp_path, capsys):
    folder = tmp_path / "[" / "x]"  # "[/x]" closes a style that was never opened
    save_pretrained(from_pretrained("sudoku-6-scdm"), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"task": {"name": "sudoku-6"}}))
    assert main(["evaluate", str(folder), "--num-samples", "2", "--latents", "0"]) == 0
    assert f"{tmp_path.name}/[/x]" in "".join(capsys.readouterr().out.split("\n"))


@pytest.mark.slow
def test_memory_that_is_not_there_is_one_line(capsys):
    assert run("solve 1.....3............2................ --attempts 99999999999999") == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("latent-tokens:")]
    assert "out of memory" in line


def test_illegal_access_to_memory_is_not_called_out_of_memory(monkeypatch):
    def fail(command):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setitem(RUN, Doctor, fail)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        main(["doctor"])


def test_unwritable_directory_is_one_line_with_a_fix(tmp_path, capsys, monkeypatch):
    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("pathlib.Path.mkdir", read_only)
    problem = "cannot be written (Read-only file system). Make it writable, or name another directory"
    refused_command(capsys, f"train sudoku-4 scdm --out {tmp_path / 'run'}", problem)
