"""Mistakes that users make: each is answered in one line with the value that was typed, and a fix.

A row is (call, value, fix), both short pieces of the answer. Dashes of options, quotes and equal signs do not
count, so that "latents 4" is in "--latents 4", "latents=4" and "latents='4'".
"""

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import latent_tokens as lt
from helpers.refusals import refused_command
from latent_tokens.cli import main

BOARD = "1.....3............2................"
FEW = "--size pico --steps 2 --batch-size 4 --num-train 8 --num-validation 8 --precision fp32"

# The parser refuses names of commands, options and choices, and values of another type. It prints a box.
PARSED = [
    ("fly", "fly", "evaluate"),
    ("evalute sudoku-6-scdm", "evalute", "evaluate"),
    ("eval sudoku-6-scdm", "eval", "evaluate"),
    ("train", "TASK", "METHOD"),
    ("train sudoku-4", "METHOD", "train --help"),
    ("train sudoku-4 scdm more", "more", "--help"),
    ("train sudoku-4 scdm --step 3", "step", "meant: --steps"),
    ("train sudoku-4 scdm --reports wandb", "reports", "latent-tokens train --help"),
    ("evaluate sudoku-6-scdm --number 4", "number", "--help"),
    ("train sudoku-4 scdm --steps few", "few", "steps [INT"),
    ("train sudoku-4 scdm --steps", "steps", "must have a value"),
    ("train sudoku-4 scdm --seed 1.5", "1.5", "seed [INT"),
    ("evaluate sudoku-6-scdm --latents few", "few", "latents N|all"),
    ("reproduce figure1", "figure1", "figure-1"),
]

COMMANDS = [
    ("evaluate sudoku-6-scdm --order topprob", "order topprob", "mean top-prob"),
    ("train sudoku-7 scdm", "sudoku-7", "sudoku-6"),
    ("train sudoku-4 sdcm", "sdcm", "mean scdm"),
    ("train no_such_module:Mine scdm", "no_such_module:Mine", "current directory"),
    ("train text scdm", "text", "latent-tokens data text"),
    ("train sudoku-4 scdm --size huge", "size huge", "nano"),
    ("train sudoku-4 scdm --size 65x2x3", "width 65 with heads 2", "even"),
    ("train sudoku-4 scdm --learning-rate 1e-3", "--learning-rate", "Use --lr."),
    ("train sudoku-4 scdm --epochs=3", "--epochs", "Use --steps."),
    ("train sudoku-4 scdm --output-dir x", "--output-dir", "Use --out."),
    ("train sudoku-4 scdm --report-to wandb", "--report-to", "Use --track."),
    ("train sudoku-4 scdm --device cpu", "--device", "CUDA_VISIBLE_DEVICES"),
    ("train --task sudoku-4", "--task", "train TASK"),
    ("sample sudoku-6-scdm --do-sample", "--do-sample", "Use --temperature."),
    ("evaluate --run sudoku-6-scdm", "--run", "evaluate RUN"),
    ("export sudoku-6-scdm --out {new}", "--out", "export DIR"),
    ("evaluate --model sudoku-6-scdm", "--model", "evaluate RUN"),
    ("evaluate sudoku-6-scdm --n 4", "--n", "Use --latents."),
    ("train sudoku-4 scdm --fp16", "--fp16", "Use --precision."),
    ("sample novels-scdm --prompt 'She was'", "'She was'", "Use other words"),
    ("train sudoku-4 scdm --steps 0", "steps 0", "from 1"),
    ("train sudoku-4 scdm --lr 0", "lr 0", "above 0"),
    ("train sudoku-4 scdm --dropout 8", "dropout 8", "below 1"),
    ("train sudoku-4 scdm --track mlflow --out {new}", "track mlflow", "pip install mlflow"),
    ("train sudoku-4 scdm --data {nowhere}", "nowhere", "latent-tokens data"),
    ("train sudoku-4 scdm --data {texts}", "texts", "latent-tokens data"),
    ("train sudoku-6 scdm --data {data}", "data", "sudoku-4"),
    ("train sudoku-4 scdm --data {data} --num-train 5", "num-train 5", "data"),
    ("train sudoku-4 scdm --data {data} --precision fp32 --lora 8 --out {new}", "lora 8", "from"),
    ("train sudoku-4 scdm --out {run}", "run", "resume auto"),
    ("train sudoku-4 scdm --out {full}", "full", "another"),
    ("train sudoku-4 scdm --resume yes --out {nowhere}", "nowhere", "resume auto"),
    (f"train sudoku-4 scdm {FEW} --resume auto --lr 0.5 --out {{run}}", "lr 0.5", "lr 0.002"),
    (f"train sudoku-4 mdm {FEW} --resume auto --out {{run}}", "mdm", "METHOD scdm"),
    (f"train sudoku-4 scdm {FEW} --resume extend --steps 1 --out {{run}}", "steps 1", "steps 2"),
    (f"train sudoku-4 scdm {FEW} --resume auto --out {{cut}}", "cut", "another"),
    ("train sudoku-4 scdm --seed 0 1 --out {nowhere}", "nowhere", "{seed}"),
    ("evaluate {nowhere}", "nowhere", "sudoku-6-scdm"),
    ("evaluate sudoku-6-scdm --latents 0 4 0", "latents 0 4 0", "each once"),
    ("evaluate sudoku-6-mdm --drafts 2 --remask-below 0.5", "drafts 2 with remask-below 0.5", "one of"),
    ("sample ''", "model=''", "a directory or a name"),
    ("score sudoku-6 {blank} --num-problems 1", "blank", "--template"),
    ("evaluate {empty}", "empty", "latent-tokens train"),
    ("evaluate {no_weights}", "no-weights", "resume auto"),
    ("evaluate {corrupt}", "corrupt", "again"),
    ("evaluate {misspelled} --num-samples 1", "geluu", "gelu"),
    ("evaluate {dropped} --num-samples 1", "dropout=8.0", "below 1"),
    ("evaluate sudoku-6-scdn", "sudoku-6-scdn", "mean sudoku-6-scdm"),
    ("evaluate sudoku-6-arm --latents 4", "latents 4", "latents 0"),
    ("evaluate sudoku-6-mdm --latents 4", "latents 4", "latents all"),
    ("evaluate sudoku-6-scdm --latents -3", "latents -3", "from 0"),
    ("evaluate sudoku-6-scdm --candidates 0", "candidates 0", "from 1, or all"),
    ("evaluate sudoku-6-arm --candidates 8", "candidates 8", "candidates 1"),
    ("evaluate sudoku-6-scdm --latents 4 --candidates all", "candidates all", "candidates 8"),
    ("evaluate sudoku-6-scdm --data {data}", "data", "data set"),
    ("evaluate {run} --data {data} --num-samples 9999", "num-samples 9999", "num-samples 4"),
    ("evaluate {run} --protocol paper", "protocol paper", "padding paper"),
    ("page sudoku-6-scdm sudoku-6-mdm sudoku-6-arm", "sudoku-6-arm", "Name fewer"),
    ("page sudoku-6-scdm -o page.htm", "page.htm", "end with .html"),
    ("page {nowhere}", "nowhere", "sudoku-6-scdm"),
    ("sample sudoku-6-scdm --temperature -1", "temperature -1", "or more"),
    ("sample sudoku-6-scdm --top-p 0", "top-p 0", "at most 1"),
    ("sample sudoku-6-arm --tokens-per-step 2", "tokens-per-step 2", "tokens-per-step 1"),
    ("sample sudoku-6-scdm --candidates 2 --tokens-per-step 8", "tokens-per-step 8", "candidates 8"),
    ("sample sudoku-6-scdm --prompt hello", "prompt hello", "latent-tokens solve"),
    ("solve 123", "3 cells", "36 (6x6)"),
    (f"solve {BOARD} --base x", "base x", "Add --run RUN"),
    (f"solve {BOARD} --attempts 0", "attempts 0", "from 1"),
    ("data sudoku-4 --show 1001", "show 1001", "at most 1,000"),
    ("lm-eval sudoku-6-scdm --tasks mine --limit 0", "limit 0", "from 1"),
    (f"train sudoku-4 scdm {FEW} --resume auto --freeze-embeddings --out {{run}}", "run", "no --freeze-e"),
    ("solve 1....x3............2................", "x in row 1 column 6", "1-6"),
    ("solve 11..................................", "1 twice in row 1", "row 1 column 2"),
    ("solve ................", "4x4", "run"),
    (f"solve {BOARD} --run {{run}}", "36 cells", "16 (4x4)"),
    (f"trace sudoku-6-scdm {BOARD} --out x.doc", "x.doc", ".html"),
    ("results {run}", "run", "latent-tokens evaluate"),
    ("export sudoku-6-scdm {full}", "full", "another"),
    ("data countdown --targets 90 20", "targets 90 20", "lowest"),
    ("data text", "source", ".jsonl"),
    ("import {nowhere} {new}", "nowhere", "OWNER/NAME"),
]


def near_miss(name):
    """Return a name after making the run `four` in its directory."""
    run = Path(name).parent / "four"
    run.mkdir(parents=True)
    (run / "config.json").write_text("{}")
    return name


def bundled(**settings):
    return lt.load("sudoku-6-scdm").generate(**settings)


def language_model():
    """Return a language model of transformers that is not wrapped."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=8, n_positions=16))


class Failing(lt.TaskBase):
    length = 16
    vocab = "abcd"

    def generate(self, count, seed, first=0):
        raise NotImplementedError

    def verify(self, tokens):
        return [str(1 / 0)]


METHODS = ("scdm", "mdm", "arm", "ar-mtp", "ar-mtp-window-3")
SCDM, MDM, ARM, MTP, WINDOW = (lt.METHODS[name] for name in METHODS)
TOKENS = torch.arange(16).expand(2, -1) % 4
KNOWN = torch.arange(16)[None] < torch.tensor([[3], [5]])
LONG = torch.zeros(1, 20, dtype=torch.int64)


def likelihood(net, **changed):
    """Return the likelihood of TOKENS from left to right, with some arguments replaced."""
    values = {"method": SCDM, "tokens": TOKENS, "order": torch.arange(16).expand(2, -1)}
    values |= {"num_known": torch.tensor([3, 5]), "lengths": torch.tensor([16, 16])}
    return lt.log_likelihood(net, **{**values, **changed})


CALLS = [
    (lambda net: lt.TASKS["sudoku-7"], "sudoku-7", "sudoku-6"),
    (lambda net: lt.METHODS["sdcm"], "sdcm", "mean scdm"),
    (lambda net: lt.METHODS["SCDM"], "SCDM", "mean scdm"),
    (lambda net: lt.SIZES["huge"], "huge", "nano"),
    (lambda net: lt.Decoding(1, latents="4"), "latents='4'", "whole number"),
    (lambda net: lt.Decoding(1, order="unifrom"), "order unifrom", "mean uniform"),
    (lambda net: lt.TrainConfig("sudoku-4", "scdm", seed=np.int64(1)), "seed np.int64", "Use seed.item()"),
    (lambda net: lt.TrainConfig("sudoku-4", "scdm", seed=1.5), "seed 1.5", "whole number"),
    (lambda net: lt.EvalConfig(latents="some"), "latents some", "whole number"),
    (lambda net: lt.DataConfig("sudoku-4", num_train=-1), "num-train -1", "from 0"),
    (lambda net: lt.given([0, 0, 1]), "[0, 0, 1]", "0..2"),
    (lambda net: lt.equal_parts(0), "steps 0", "from 1"),
    (lambda net: lt.Method(lt.any_order, SCDM.attention, window=0), "window 0", "from 1"),
    (lambda net: lt.load(3), "model 3", "a directory or a name"),
    (lambda net: lt.load("sudoku-6-scdn"), "sudoku-6-scdn", "mean sudoku-6-scdm"),
    (lambda net: lt.from_pretrained("nowhere"), "nowhere", "sudoku-6-scdm"),
    (lambda net: lt.load(near_miss("runs/fuor")), "runs/fuor", "mean runs/four?"),
    (lambda net: lt.load_data("nowhere"), "nowhere", "make_data"),
    (lambda net: lt.results("nowhere"), "nowhere", "runs/*"),
    (lambda net: lt.dataset("sudoku-4", "trian", 8), "split trian", "train"),
    (lambda net: lt.generate(net, "scdm", TOKENS, KNOWN), "method scdm", "METHODS[scdm]"),
    (lambda net: lt.generate(net, SCDM, TOKENS, KNOWN.long()), "int64", "known.bool()"),
    (lambda net: lt.generate(net, SCDM, TOKENS.numpy(), KNOWN), "tokens ndarray", "torch.as-tensor"),
    (lambda net: lt.generate(net, SCDM, TOKENS, KNOWN, latent=4), "latent", "mean latents"),
    (lambda net: lt.generate(net, SCDM, TOKENS, KNOWN, seed=1.5), "seed 1.5", "whole number"),
    (lambda net: lt.generate(net, SCDM, LONG, LONG > 0), "20", "16"),
    (lambda net: lt.loss(net, SCDM, LONG, LONG > 0), "20", "16"),
    (
        lambda net: lt.log_likelihood(net, SCDM, LONG, LONG, LONG.sum(1), LONG.sum(1) + 20),
        "tokens of 20",
        "has 16",
    ),
    (lambda net: lt.Transformer("pico", 4, 16, positions="rotery"), "positions rotery", "mean rotary"),
    (
        lambda net: replace(lt.TASKS["sudoku-puzzle"], box_rows=4, box_columns=4),
        "side 16",
        "4, 6, 9",
    ),
    (
        lambda net: replace(lt.TASKS["countdown"], answer_length=0),
        "answer_length 0",
        "from 1",
    ),
    (lambda net: lt.Examples.of(TOKENS.numpy(), 1, [16, 70_000]), "70000", "at most 16"),
    (lambda net: lt.generate(net, SCDM, TOKENS + 9, KNOWN), "token 9", "3"),
    (lambda net: lt.generate(net, SCDM, TOKENS, KNOWN, refresh="no"), "refresh no", "True, False"),
    (lambda net: lt.generate(net, MTP, TOKENS, KNOWN, order=lt.blockwise(4)), "candidates 8", "candidates 1"),
    (
        lambda net: lt.generate(net, WINDOW, TOKENS, KNOWN, latent_policy="random"),
        "ar-mtp-window-3",
        "nearest",
    ),
    (lambda net: lt.generate(net, SCDM, TOKENS, KNOWN, lengths=[3, 3]), "lengths of list", "torch.tensor"),
    (lambda net: lt.generate(net, SCDM, TOKENS, KNOWN, order=lambda known: [[0]]), "lambda", "permutation"),
    (
        lambda net: lt.generate(net, SCDM, TOKENS, KNOWN, tokens_per_step=lambda known, noise: [[16]]),
        "returns list",
        "equal_parts(4)",
    ),
    (
        lambda net: lt.generate(net, MDM, TOKENS, KNOWN, remask_every=2, extra_passes=10**12),
        "extra_passes 1000000000000",
        "at most 1,000,000,000",
    ),
    (lambda net: lt.Method("left_to_right", ARM.attention), "order left_to_right", "any_order"),
    (lambda net: bundled(prompt=torch.zeros(1, 36).long(), known="abc"), "known of str", "true or false"),
    (lambda net: lt.loss(net, SCDM, TOKENS + 9, KNOWN), "token 9", "0-3"),
    (lambda net: lt.loss(net, SCDM, TOKENS - 100, KNOWN), "token -100", "0-3"),
    (lambda net: lt.loss(net, SCDM, TOKENS, KNOWN[:, :5]), "known (2, 5)", "(2, 16)"),
    (lambda net: lt.loss(net, SCDM, TOKENS, KNOWN, lengths=torch.tensor([40, 40])), "[40, 40]", "0..16"),
    (lambda net: likelihood(net, tokens=TOKENS - 1), "token -1", "0-3"),
    (lambda net: likelihood(net, num_known=torch.tensor([0, 17])), "num-known [0, 17]", "0..[16, 16]"),
    (lambda net: likelihood(net, lengths=torch.tensor([16, 21])), "lengths [16, 21]", "0..16"),
    (lambda net: likelihood(net, method="scdm"), "method scdm", "METHODS[scdm]"),
    (lambda net: lt.loss(net, "scdm", TOKENS, KNOWN), "method scdm", "METHODS[scdm]"),
    (lambda net: lt.loss(net, ARM, TOKENS, torch.arange(16) == 3 * torch.ones(2, 1)), "row 0", "scdm or mdm"),
    (lambda net: lt.evaluate(net, "sudoku-6"), "36", "16"),
    (lambda net: lt.evaluate(net, "sudoku-4", samples=2), "samples", "mean num-samples"),
    (lambda net: lt.load("sudoku-6-scdm").generate("123"), "3 cells", "36 (6x6)"),
    (lambda net: lt.load("sudoku-6-scdm").generate(BOARD, latents="4"), "latents='4'", "whole number"),
    (lambda net: lt.load("sudoku-6-scdm").generate(samples=2), "samples", "mean num-samples"),
    (lambda net: bundled(seed=None), "seed None", "whole number"),
    (lambda net: bundled(off_distribution="no"), "off-distribution no", "True, False"),
    (lambda net: bundled(prompt=b"1..."), "prompt of bytes", "text"),
    (lambda net: bundled(prompt=torch.zeros(0, 36).long()), "prompt", "is empty"),
    (lambda net: bundled(order=torch.arange(36)), "order tensor([ 0", "top-prob"),
    (lambda net: bundled(order=np.arange(36)), "order [ 0", "top-prob"),
    (lambda net: lt.Decoding(1, order=torch.arange(36)), "order tensor([", "given(schedule)"),
    (lambda net: bundled(prompt={"input_ids": [0] * 36}), "prompt of dict", "token ids"),
    (lambda net: lt.load("novels-scdm").likelihood(["she was"]), "text of list", "one by one"),
    (lambda net: lt.generate(net, SCDM, TOKENS + 0.5, KNOWN), "tokens of torch.float32", "tokens.long()"),
    (lambda net: lt.generate(net, SCDM, TOKENS, KNOWN, {"latents": 4}), "decoding dict", "Decoding"),
    (lambda net: lt.TASKS["sudoku-4"].decode(TOKENS), "tokens (2, 16)", "a row"),
    (lambda net: lt.TASKS["sudoku-4"].verify("1234"), "tokens of type <U4", "whole numbers"),
    (lambda net: lt.load("sudoku-6-scdm").generate(num_samples="2"), "num_samples='2'", "from 1"),
    (lambda net: bundled(latents=4, candidates=36), "candidates 36", "candidates 8"),
    (lambda net: bundled(confidence=lt.margin, order="entropy"), "order entropy with", "one of the two"),
    (lambda net: lt.generate(net, SCDM, TOKENS, KNOWN, select=lambda step: 2), "int", "torch.full-like"),
    (lambda net: lt.train("sudoku-4", "scdm", net=language_model()), "GPT2LMHeadModel", "wrap it"),
    (lambda net: lt.train("sudoku-4", "scdm", start=net), "start Transformer", "a path"),
    (lambda net: Failing().score(TOKENS), "ZeroDivisionError: division by zero, in test-mistakes.py", "line"),
    (lambda net: lt.train(3, "scdm"), "task 3", "sudoku-4"),
    (lambda net: lt.fit("sudoku-4"), "sudoku-4", "METHOD"),
    (lambda net: lt.fit("sudoku-4", "scdm", step=3), "step", "mean steps"),
    (lambda net: lt.fit("sudoku-4", "scdm", max_steps=3), "max-steps", "Use steps"),
    (lambda net: bundled(do_sample=True), "do-sample", "Use temperature"),
    (lambda net: lt.DiffusionCollator("scdm", mask_id=4), "method scdm", "METHODS[scdm]"),
    (lambda net: lt.TASKS["countdown-3"].encode("4,44,89"), "4,44,89", "3 numbers"),
    (lambda net: lt.TASKS["zebra-3"].encode("hello"), "hello", "CLUE-END"),
]


def plain(text):
    """Return a text without dashes of options, quotes and equal signs."""
    return text.replace("--", "").replace("=", " ").replace("_", "-").replace("'", "").replace('"', "")


def check(answer, value, fix):
    assert "\n" not in answer.strip()
    for part in (value, fix):
        assert part in answer or plain(part) in plain(answer), part


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Return directories of runs, good and damaged, of a data set, of texts and of nothing."""
    root = tmp_path_factory.mktemp("p")
    damaged = ("no_weights", "corrupt", "cut", "misspelled", "dropped")
    names = ("run", "data", "nowhere", "new", "empty", "full", "texts", "blank", *damaged)
    folders = {name: root / name for name in names}
    main(shlex.split(f"train sudoku-4 scdm {FEW} --out {folders['run']}"))
    counts = {"num_train": 16, "num_validation": 4, "num_test": 4}
    lt.make_data(lt.DataConfig("sudoku-4", out=folders["data"], processes=1, **counts))
    for name in ("empty", "full", "texts"):
        folders[name].mkdir()
    (folders["full"] / "notes.md").write_text("mine")
    folders["blank"].write_text("\n")
    (folders["texts"] / "book.txt").write_text("Once upon a time.")
    for name in damaged:
        shutil.copytree(folders["run"], folders[name])
    (folders["no_weights"] / "model.safetensors").unlink()
    for checkpoint in folders["cut"].glob("state-*"):
        checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    config = (folders["run"] / "config.json").read_text()
    dropped = re.sub(r'"dropout": [\d.]+', '"dropout": 8.0', config)
    texts = {"corrupt": "{", "misspelled": config.replace('"gelu"', '"geluu"'), "dropped": dropped}
    for name, text in texts.items():
        assert text != config
        (folders[name] / "config.json").write_text(text)
    return folders


@pytest.mark.parametrize(("command", "value", "fix"), PARSED)
def test_mistake_that_the_parser_finds_is_named_in_its_box(capsys, command, value, fix):
    assert main(shlex.split(command)) == 2
    answer = capsys.readouterr().err
    check(" ".join(re.sub(r"[\u2500-\u257f]", " ", answer).split()), value, fix)


@pytest.mark.parametrize(("command", "value", "fix"), COMMANDS)
def test_mistake_on_the_command_line_is_one_line(places, tmp_path, monkeypatch, capsys, command, value, fix):
    monkeypatch.chdir(tmp_path)
    for name, folder in places.items():
        command = command.replace(f"{{{name}}}", str(folder))
    check(refused_command(capsys, command), value, fix)


@pytest.mark.parametrize(("call", "value", "fix"), CALLS)
def test_mistake_in_python_is_a_value_error_of_one_line(tmp_path, monkeypatch, call, value, fix):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    net = lt.Transformer("pico", 4, 16).eval()
    net.method = SCDM
    with pytest.raises(ValueError) as error:  # noqa: PT011
        call(net)
    check(str(error.value), value, fix)
