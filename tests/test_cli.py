"""The command line: its output, its files, and one line for every mistake."""

import dataclasses
import errno
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from importlib.metadata import version

import numpy as np
import pytest

from latent_tokens import METHODS, SIZES, TASKS, TrainConfig, configs, fit, from_pretrained, save_pretrained
from latent_tokens.checks import printable
from latent_tokens.cli import as_flags, main, parse
from latent_tokens.commands import COMMANDS
from latent_tokens.configs import SamplingConfig
from latent_tokens.data.splits import make_problems

PUZZLE = "1.....3............2................"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return run directories of three methods, trained for 2 steps."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        name: str(
            fit(
                TrainConfig(
                    "sudoku-4",
                    name,
                    folder / name,
                    steps=2,
                    batch_size=4,
                    num_train=8,
                    num_validation=8,
                    precision="fp32",
                )
            )
        )
        for name in ("scdm", "mdm", "arm")
    }


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_help_answers_without_torch_and_in_under_a_second():
    code = (
        "import sys\n"
        "from latent_tokens.cli import main\ntry: main(['--help'])\n"
        "finally: assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    # CPU seconds: on a busy machine a process waits for its turn.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1
    assert answer.returncode == 0, answer.stderr
    for command in (
        "data",
        "train",
        "evaluate",
        "sample",
        "solve",
        "demo",
        "bench",
        "reproduce",
        "export",
        "doctor",
    ):
        assert command in answer.stdout


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "latent_tokens", "solve", "123"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("latent-tokens: puzzle of 3 cells")


def test_names_shown_are_the_names_there_are():
    assert set(configs.TaskName.__args__) == {*TASKS, "text"}
    assert set(configs.SizeName.__args__) == set(SIZES)


def test_data_then_train_then_evaluate(tmp_path, capsys):
    data, run = tmp_path / "data", tmp_path / "run"
    assert (
        main(
            [
                "data",
                "sudoku-4",
                "--num-train",
                "40",
                "--num-validation",
                "8",
                "--source",
                "pattern",
                "--out",
                str(data),
            ]
        )
        == 0
    )
    manifest = json.loads((data / "manifest.json").read_text())
    assert manifest["splits"]["train"]["examples"] == 40
    training = [
        "train",
        "sudoku-4",
        "scdm",
        "--size",
        "nano",
        "--steps",
        "3",
        "--batch-size",
        "4",
        "--precision",
        "fp32",
        "--seed",
        "1",
        "--data",
        str(data),
        "--out",
        str(run),
    ]
    assert main(training) == 0
    capsys.readouterr()
    measuring = ["--latents", "0", "4", "all", "--candidates", "8", "--num-samples", "10", "--seed", "0"]
    assert main(["evaluate", str(run), *measuring, "--order", "top_prob", "--json"]) == 0
    printed = lines(capsys.readouterr().out)
    assert [row["latents"] for row in printed] == [0, 4, "all"]
    assert printed == lines((run / "results.jsonl").read_text())
    assert main(["evaluate", str(run), "--num-samples", "10", "--out", str(tmp_path / "elsewhere")]) == 0
    assert "95% interval" in capsys.readouterr().out
    assert len(lines((tmp_path / "elsewhere" / "results.jsonl").read_text())) == 1
    assert main(["train", "sudoku-6", *training[2:-1], str(tmp_path / "other")]) == 2
    assert "contains sudoku-4, not sudoku-6" in capsys.readouterr().err
    (data / "train.tokens.npy").write_bytes((data / "validation.tokens.npy").read_bytes())
    assert main([*training[:-1], str(tmp_path / "third")]) == 2
    assert "does not match the checksum in its manifest" in capsys.readouterr().err


FEW_STEPS = shlex.split("--steps 2 --batch-size 4 --num-train 8 --num-validation 8 --precision fp32")


def test_train_writes_one_run_for_each_size_and_seed(tmp_path, monkeypatch, capsys):
    """Each run equals that of a single command. Finished ones are skipped when the command is resumed."""
    monkeypatch.chdir(tmp_path)
    command = ["train", "sudoku-4", "scdm", *FEW_STEPS, "--size", "pico", "nano", "--seed", "0", "1"]
    names = [f"sudoku-4-scdm-{size}-{seed}" for size in ("pico", "nano") for seed in (0, 1)]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines() == [f"runs/{name}" for name in names]
    alone = [
        "train",
        "sudoku-4",
        "scdm",
        *FEW_STEPS,
        "--size",
        "pico",
        "--seed",
        "1",
        "--out",
        "{size}-{seed}",
    ]
    assert main(alone) == 0
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "pico-1" / file).read_bytes() == (tmp_path / "runs" / names[1] / file).read_bytes()

    # A run without its last checkpoints is resumed, and the others are as they were.
    for state in (tmp_path / "runs" / names[2]).glob("state-*"):
        state.unlink()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/model.safetensors")}
    capsys.readouterr()
    assert main(command) == 2
    assert (
        "--out runs/sudoku-4-scdm-pico-0: exists and is not empty. Add --resume auto"
        in capsys.readouterr().err
    )
    assert main([*command, "--resume", "auto"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [f"runs/{name}" for name in names]
    assert re.findall(r"^runs/(\S+): finished at step 2$", err, re.M) == [*names[:2], names[3]]
    changed = {path.parent.name for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert changed == {names[2]}
    assert main([*command, "--resume", "auto", "--lr", "1"]) == 2
    assert "--lr 1.0: runs/sudoku-4-scdm-pico-0 was started with 0.002" in capsys.readouterr().err


def test_several_runs_under_a_launcher_are_refused(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", "sudoku-4", "scdm", "--seed", "0", "1"]) == 2
    assert (
        "--seed 0 1: several runs take one process each. Leave out the launcher." in capsys.readouterr().err
    )


def test_sample_prints_boards_or_json(runs, capsys):
    assert main(["sample", runs["arm"], "--num-samples", "3", "--json"]) == 0
    found = lines(capsys.readouterr().out)
    assert [len(row["tokens"]) for row in found] == [16] * 3
    assert found[0]["order"] == list(range(16))
    assert main(["sample", runs["scdm"], "--num-samples", "1", "--latents", "all", "--candidates", "4"]) == 0
    assert "valid" in capsys.readouterr().out


def test_solve_keeps_what_is_given(runs, capsys):
    assert main(["solve", "1...............", "--run", runs["scdm"], "--attempts", "2"]) in (0, 1)
    out = capsys.readouterr().out
    assert out.startswith("1 ")
    assert "solved" in out


def test_solve_uses_the_model_that_comes_along(capsys):
    assert main(["solve", PUZZLE, "--attempts", "20"]) == 0
    out = capsys.readouterr().out
    assert "\nsolved" in out
    assert "by sudoku-6-scdm" in out


def test_evaluate_writes_nothing_next_to_a_bundled_model(capsys):
    assert main(["evaluate", "sudoku-6-ar-mtp", "--num-samples", "2", "--json"]) == 0
    assert lines(capsys.readouterr().out)[0]["method"] == "ar-mtp"


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
    run = str(
        fit(
            TrainConfig(
                name,
                "scdm",
                tmp_path / "run",
                steps=2,
                batch_size=4,
                num_train=8,
                num_validation=8,
                precision="fp32",
            )
        )
    )
    text, drawn, given, whole = PROMPTS[name]
    capsys.readouterr()
    main(["solve", text, "--run", run, "--latents", "0", "--candidates", "1"])
    out = capsys.readouterr().out
    assert drawn in out
    assert f"{sum(range(given + 1, whole + 1)):,} tokens processed" in out
    task = TASKS[name]
    assert main(["sample", run, "--num-samples", "3", "--json"]) == 0
    problems = make_problems(task, 3, seed=0)
    for line, problem, known, length in zip(lines(capsys.readouterr().out), *problems, strict=True):
        assert set(line) == {"tokens", "order", task.metric}
        assert [token for token, shown in zip(line["tokens"], known, strict=False) if shown] == problem[
            known
        ].tolist()
        assert sorted(line["order"][int(known.sum()) : length]) == np.flatnonzero(~known[:length]).tolist()
        assert len(line["tokens"]) == length
    assert main(["solve", text]) == 2 if name != "sudoku-6-puzzle" else True


def test_closed_pipe_is_not_an_error():
    command = f"{sys.executable} -m latent_tokens.cli data sudoku-36 --show 40 | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""


MISTAKES = [
    ("train sudoku-7 scdm", "TASK 'sudoku-7': must be one of sudoku-4, "),
    ("train sudoku-4 gpt", "METHOD 'gpt': must be one of mdm, sidm, scdm, "),
    (
        "train sudoku-4 scdm --out {scdm}",
        "exists and is not empty. Add --resume auto to continue an interrupted run. ",
    ),
    ("train sudoku-4 scdm --out {full}", "exists and is not empty"),
    ("train sudoku-4 scdm --resume yes --out {nowhere}", "no run to resume"),
    ("train sudoku-4 scdm --data {nowhere}", "no data set"),
    (
        "train sudoku-4 scdm --resume yes --steps 7 --batch-size 4 "
        "--num-train 8 --num-validation 8 --out {scdm}",
        "--steps 7: ",
    ),
    ("data sudoku-4 --out {full}", "exists and is not empty"),
    ("evaluate {nowhere}", "not found: not a run directory, not a bundled model (sudoku-6-ar-mtp"),
    ("evaluate {empty}", "config.json is missing"),
    (
        "evaluate {mdm} --latents 16",
        "--latents 16 is not supported by mdm: its number of latent tokens is fixed",
    ),
    (
        "evaluate {arm} --latents 4",
        "--latents 4 is not supported by arm: it has no latent tokens. Use --latents 0, or a ",
    ),
    (
        "evaluate {arm} --candidates 8 --order top_prob",
        "--order top_prob is not supported by arm: it decodes the next token. Use --order left_to_right",
    ),
    (
        "solve 1............... --run {arm} --latents 3",
        "--latents 3 is not supported by arm: it has no latent tokens",
    ),
    (
        "solve 1............... --run {arm} --candidates 3",
        "--candidates 3 is not supported by arm: it decodes the next token. Use --candidates 1",
    ),
    ("evaluate {scdm} --out {full}", "exists and is not empty"),
    ("sample {scdm} --num-samples 0", "--num-samples 0: must be"),
    ("sample {scdm} --temperature -1", "--temperature -1"),
    ("solve 123", "puzzle of 3 cells: must have 16 (4x4) or 36 (6x6) or 81 (9x9)"),
    ("solve 1..............x --run {scdm}", "'x' in row 4 column 4: must be 1-4"),
    ("solve 11.............. --run {scdm}", "1 twice in row 1, at row 1 column 1 and row 1 column 2"),
    ("solve 123....4........ --run {scdm}", "puzzle has no solution"),
    ("solve 123............. --run {scdm} --latents -1", "--latents -1"),
    ("solve ................ ", "there is no bundled model for 4x4. Train one"),
    (f"solve {PUZZLE} --run {{scdm}}", "puzzle of 36 cells: must have 16 (4x4)"),
    ("solve 86,28,13,31,96", "there is no bundled model for it. Train one and name it with --run"),
    ("demo --out {full}", "exists and is not empty"),
    ("evaluate {scdm} --out {scdm}/config.json/out", "config.json is a file. Choose another directory"),
]


@pytest.mark.parametrize(("command", "message"), MISTAKES, ids=[command for command, _ in MISTAKES])
def test_a_mistake_gets_one_clear_line_and_exit_code_2(runs, tmp_path, capsys, command, message):
    places = {"nowhere": tmp_path / "nowhere", "empty": tmp_path / "empty", "full": tmp_path}
    places["empty"].mkdir()
    assert main(command.format(**places, **runs).split()) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("making")]
    assert line.startswith("latent-tokens: ")
    assert message in line


# Errors of the parser, which prints them in a box: a word of the typed one, and of the fix.
OF_THE_PARSER = [
    ("", "Expected one of {data, train,"),
    ("fly", "Unrecognized options: fly"),
    ("evalute run", "Available subcommands: data, train, evaluate"),
    ("--versoin", "--versoin"),
    ("evaluate", "RUN Model to evaluate"),
    ("train", "TASK Task to learn"),
    ("train sudoku-4", "METHOD Method to train"),
    ("train sudoku-4 scdm more", "Unrecognized options: more"),
    ("train sudoku-4 scdm --step 3", "Perhaps you meant: --steps"),
    ("train sudoku-4 scdm --qqq 3", "Unrecognized options: --qqq"),
    ("train sudoku-4 scdm --size huge", "invalid choice 'huge'"),
    ("train sudoku-4 scdm --steps", "Missing value for argument '--steps'"),
    ("train sudoku-4 scdm --steps few", "Error parsing --steps"),
    ("data countdown --targets 1", "--targets"),
    ("evaluate --seed few sudoku-6-scdm", "Error parsing --seed"),
    ("evaluate run --latents 3 few", "Error parsing --latents"),
    (f"solve {PUZZLE} --latent-policy random", "--latent-policy"),
    (f"trace sudoku-6-scdm {PUZZLE} --top-p 1", "--top-p"),
    ("demo --scale large", "invalid choice 'large'"),
    ("reproduce figure1", "invalid choice 'figure1'"),
]


@pytest.mark.parametrize(("command", "message"), OF_THE_PARSER)
def test_error_of_the_parser_names_the_value(command, message, capsys):
    assert main(command.split()) == 2
    box = re.sub(r"[\u2500-\u257f]", " ", capsys.readouterr().err)
    assert message in " ".join(box.split())
    assert "--help" in box


REFUSED = [
    ("train sudoku-4 scdm --seed 0 0", "--seed 0 0: must be different values"),
    (
        "train sudoku-4 scdm --seed 0 1 --out runs/x",
        "--out runs/x: is one directory for several runs. Use --out runs/x-{seed}.",
    ),
    (
        "train sudoku-4 scdm --size pico nano --seed 0 1 --out runs/x-{seed}",
        "Use --out runs/x-{seed}-{size}.",
    ),
    ("train sudoku-4 scdm --steps 0", "--steps 0: must be a whole number from 1"),
    ("train sudoku-4 scdm --batch_size=0", "--batch-size 0: must be a whole number from 1"),
    ("train sudoku4 scdm", "sudoku-gen, sudoku-large, text, module:Name. Did you mean sudoku-4?"),
    ("train sudoku-4 scmd", "ar-ntp-N, block-mdm-N, mdm-left. Did you mean scdm?"),
    ("data sudoku4", "TASK 'sudoku4': must be one of sudoku-4, "),
    ("data sudoku-4 --seed -1", "--seed -1: must be"),
    ("data sudoku-4 --skip-bad", "--skip-bad: is for puzzles of a file. Name the file: --source FILE"),
    ("data text", "--source: text is read from a file"),
    ("data text --source a --apart-from a b", "--apart-from a b: text has no such setting"),
    (f"solve {PUZZLE} --task my_task:Mine", "--task my_task:Mine: is for a model that --run names. Add"),
    (f"solve {PUZZLE} --method mine:rule", "--method mine:rule: is for a model that --run names. Add"),
    (
        "train sudoku-4 scdm --data there --num-train 5",
        "--num-train 5 with --data there: the data set has its own examples",
    ),
    ("evaluate run --latents -3", "--latents -3: must be"),
    ("evaluate sudoku-6-scdm --candidates -1", "--candidates -1: must be"),
    ("evaluate run --num-samples 0", "--num-samples 0: must be"),
    ("evaluate sudoku-6-scdn", "Did you mean sudoku-6-scdm?"),
    ("evaluate sudoku-6-scdm --judge trigrams", "--evaluator trigrams: is for generated text"),
    (
        "evaluate sudoku-6-scdm --latent-policy random",
        "--latent-policy random with --latents 0: there are no latent tokens to choose. Use --latents 4",
    ),
    ("evaluate sudoku-6-scdm --latents 0 --latent-policy relevant", "there are no latent tokens to choose"),
    ("evaluate sudoku-6-scdm --evaluator trigrams", "--evaluator trigrams: is for generated text"),
    ("sample sudoku-6-scdm --prompt a", "--prompt a: is for text"),
    ("bench --methods scmd", "--methods scmd: must be one of mdm, "),
    ("import nowhere out", "SOURCE 'nowhere': not found"),
]


@pytest.mark.parametrize(("command", "message"), REFUSED, ids=[command for command, _ in REFUSED])
def test_refused_setting_is_one_line_and_exit_code_2(command, message, capsys):
    assert main(command.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("latent-tokens: ")
    assert message in line


PYTHON = [  # the error, the arguments, the printed line
    ("latents=4: no", "solve x", "--latents 4: no"),
    (
        "tokens_per_step=2 with order=uniform: no. Use tokens_per_step=1.",
        "sample x",
        "--tokens-per-step 2 with --order uniform: no. Use --tokens-per-step 1.",
    ),
    ("task=a: no", "train a b", "TASK 'a': no"),
    ("refresh=False: no", "evaluate x", "--no-refresh: no"),
    ("skip_bad=True: no", "data x", "--skip-bad: no"),
    ("houses=(3, 4): no", "data x", "--houses 3 4: no"),
    ("source=None: no", "data x", "--source: no"),
    ("judge=x: no", "evaluate x", "--evaluator x: no"),
    ("width=4: no", "train a b", "width=4: no"),
    ("runs/a.b=4/latents=3: no", "solve x", "runs/a.b=4/latents=3: no"),
]


@pytest.mark.parametrize(("raised", "typed", "printed"), PYTHON)
def test_settings_are_spelled_as_flags(raised, typed, printed):
    assert as_flags(raised, parse(typed.split())) == printed


def test_python_reads_the_names_of_python():
    with pytest.raises(ValueError, match=r"^steps=0: must be"):
        TrainConfig("sudoku-4", "scdm", steps=0)


def test_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"latent-tokens {version('latent-tokens')}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_a_text_per_flag_and_two_examples(command, capsys):
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    text = " ".join(re.sub(r"[\u2500-\u257f]", " ", out).split())
    for field in dataclasses.fields(COMMANDS[command]):
        name = field.name.replace("_", "-")
        is_flag = field.init and field.default is not dataclasses.MISSING and field.name != "runs"
        assert not is_flag or f"--{name}" in text or f"--no-{name}" in text
    examples = [line for line in out.splitlines() if line.startswith("    latent-tokens ")]
    assert len(examples) == 2
    for example in examples:
        _, *arguments = shlex.split(example)
        assert type(parse(arguments)) is COMMANDS[command]


def test_settings_left_out_of_a_command_have_their_default():
    command = parse(["trace", "run", PUZZLE, "--latents", "4", "--seed", "2"])
    assert command.config(SamplingConfig) == SamplingConfig(latents=4, seed=2)


def test_help_lists_tasks_and_methods(capsys):
    main(["train", "--help"])
    text = " ".join(re.sub(r"[\u2500-\u257f]", " ", capsys.readouterr().out).split())
    assert all(
        name in text
        for name in (*TASKS, "text", *METHODS, "ar-mtp-window-N", "ar-ntp-N")
        if not name.endswith("-16") or name == "sudoku-16"
    )


@pytest.mark.parametrize(
    "command",
    [
        "evaluate sudoku-6-scdm",
        "sample sudoku-6-scdm",
        f"solve {PUZZLE}",
        f"trace sudoku-6-scdm {PUZZLE} -o x.html",
    ],
)
def test_latents_of_which_candidates_leave_none_are_refused(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for count in ("4", "all"):
        assert main([*command.split(), "--latents", count, "--candidates", "all"]) == 2
        reason = (
            "all masked tokens are candidates, so none is a latent token. Use --candidates 8, or --latents 0."
        )
        assert (
            capsys.readouterr().err == f"latent-tokens: --latents {count} with --candidates all: {reason}\n"
        )


def test_candidates_of_all_suit_a_fixed_number_of_latents(capsys):
    assert (
        main(
            [
                "evaluate",
                "sudoku-6-mdm",
                "--latents",
                "all",
                "--candidates",
                "all",
                "--num-samples",
                "1",
                "--json",
            ]
        )
        == 0
    )
    assert (
        main(
            [
                "evaluate",
                "sudoku-6-scdm",
                "--latents",
                "0",
                "--candidates",
                "all",
                "--num-samples",
                "1",
                "--json",
            ]
        )
        == 0
    )
    assert [row["relative_cost"] for row in lines(capsys.readouterr().out)] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "evaluate sudoku-6-scdm --order uniform --candidates 8",
            "--candidates 8 with --order uniform: this order decodes its next token",
        ),
        ("sample sudoku-6-ar-mtp --candidates 8", "--candidates 8 is not supported by ar-mtp"),
    ],
)
def test_options_that_would_be_ignored_are_refused(command, message, capsys):
    assert main(command.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "all masked tokens that are not candidates are latent tokens"),
        (["--candidates", "all"], "0 latent tokens: all masked tokens are candidates"),
        (["--latents", "0"], "0 latent tokens"),
        (["--latents", "4"], "4 latent tokens per step, fewer in the last steps"),
        (
            ["--latents", "all", "--candidates", "4"],
            "all masked tokens that are not candidates are latent tokens",
        ),
    ],
)
def test_solve_prints_the_number_of_latent_tokens(arguments, words, capsys):
    assert main(["solve", PUZZLE, *arguments]) in (0, 1)
    assert capsys.readouterr().out.endswith(f"\n{words}\n")


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    run = tmp_path / "a run"
    command = [
        "train",
        "sudoku-4",
        "scdm",
        "--steps",
        "300",
        "--batch-size",
        "4",
        "--precision",
        "fp32",
        "--num-train",
        "64",
        "--num-validation",
        "8",
        "--out",
        str(run),
    ]
    launch = [sys.executable, "-m", "latent_tokens.cli", *command]
    process = subprocess.Popen(launch, stderr=subprocess.PIPE, text=True, env=os.environ)
    while not (run / "metrics.jsonl").exists():
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    hint = said.splitlines()[-1]
    assert "stopped at step" in hint
    assert (
        f"Resume with: latent-tokens train sudoku-4 scdm --steps 300 --batch-size 4 --precision fp32 "
        f"--num-train 64 --num-validation 8 --out '{run}' --resume auto" in hint
    )
    assert main([*command, "--resume", "auto"]) == 0
    steps = [
        row["step"] for row in lines((run / "metrics.jsonl").read_text()) if "validation_loss" not in row
    ]
    assert steps == sorted(set(steps))
    assert steps[-1] == 300


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
    assert (
        main(["bench", "--lengths", "8", "--batch-sizes", "99999999999999", "--methods", "scdm", "--train"])
        == 2
    )
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("latent-tokens:")]
    assert "out of memory" in line


def test_unwritable_directory_is_one_line_with_a_fix(tmp_path, capsys, monkeypatch):
    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("pathlib.Path.mkdir", read_only)
    assert main(["train", "sudoku-4", "scdm", "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be written (Read-only file system). Make it writable, or name another directory" in line
