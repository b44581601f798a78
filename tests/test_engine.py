"""The page's engine equals the package: equal settings and seeds decode equal boards."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from helpers.documentation import ROOT
from helpers.page import model, untrained
from latent_tokens import METHODS, Text, from_pretrained, save_pretrained
from latent_tokens.configs import SamplingConfig
from latent_tokens.core.attention import bidirectional, semi_causal
from latent_tokens.trace.record import DecodeRequest, LoadedModel, trace

sys.path.append(str(ROOT / "scripts"))

from page_sentences import SHIFT, Gaps, decoded_and_scored

KEYS = (
    "latents",
    "candidates",
    "order",
    "temperature",
    "top_p",
    "seed",
    "refresh",
    "remask_every",
)  # of a request
MAX_DIFFERENCE = 1e-3 + 1e-9  # of two probabilities, each rounded to three digits
ADAPTIVE = ("top_prob", "margin", "entropy")
UNBUNDLED = {
    **{name: METHODS[name] for name in ("esolm", "ar-mtp-window-4", "ar-ntp-3", "mdm-depth")},
    "scdm-window": replace(METHODS["scdm"], window=6),
    "flat-sidm": replace(METHODS["sidm"], weight="flat"),
}


class Case(NamedTuple):
    """A decode: a saved model, a puzzle with None for empty cells, and the settings."""

    model: LoadedModel
    tokens: tuple[int | None, ...]
    setting: SamplingConfig

    def request(self):
        board = np.array([[token or 0 for token in self.tokens]], np.uint8)
        is_given = np.array([[token is not None for token in self.tokens]])
        return DecodeRequest(self.model, self.model.task.infilling(board, is_given), self.setting)


def saved(folder, name, method, **settings):
    """Return an untrained model of 6x6 boards that is saved in a directory."""
    net = untrained("sudoku-6", method, gain=6.0, **settings).net
    save_pretrained(net, folder / name, about={"task": {"name": "sudoku-6", "source": "solver"}})
    return model(str(folder / name))


def puzzle(task, num_given, seed):
    """Return a board with some given cells. A negative number gives the first ones."""
    board = task.generate(1, seed=seed).tokens[0].tolist()
    cells = np.random.default_rng(seed).permutation(len(board)) if num_given >= 0 else np.arange(len(board))
    given = set(cells[: abs(num_given)].tolist())
    return tuple(token if cell in given else None for cell, token in enumerate(board))


def node():
    """Return the path of node. NEEDS_NODE makes a missing one a failure."""
    program = shutil.which("node")
    if program is None:
        (pytest.fail if os.environ.get("NEEDS_NODE") else pytest.skip)("no node: apt-get install nodejs npm")
    return program


def engine_results(cases):
    """Return the trace or the error of each case in node."""
    jobs = []
    for case in cases:
        settings = {key: value for key, value in asdict(case.setting).items() if key in KEYS}
        request = {"tokens": case.tokens, **settings}
        jobs.append({"folder": str(case.model.net.folder), "name": case.model.name, "request": request})
    return engine_answers(jobs)


def engine_answers(jobs):
    """Return what tests/decode.js prints for each job."""
    command = [node(), "tests/decode.js"]
    streams = {"input": json.dumps(jobs), "capture_output": True, "text": True}
    done = subprocess.run(command, cwd=ROOT / "web", **streams, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def largest_difference(ours, theirs):
    """Return the largest difference of two predictions. A token that is not listed has probability 0."""
    assert ours.keys() == theirs.keys()
    pairs = [(dict(map(tuple, ours[cell])), dict(map(tuple, theirs[cell]))) for cell in ours]
    return max(abs(a.get(token, 0) - b.get(token, 0)) for a, b in pairs for token in a.keys() | b.keys())


def is_equal(expected, result):
    """Return whether a decode has equal choices. Until the first that differs, all else must be equal."""
    assert result["start"] == expected["start"]
    for ours, theirs in zip(expected["frames"], result["frames"], strict=True):
        for key in ("step", "again", "candidates", "latents", "processed", "all_processed"):
            assert ours.get(key) == theirs.get(key), key
        assert largest_difference(ours["beliefs"], theirs["beliefs"]) <= MAX_DIFFERENCE
        if ours["chosen"] != theirs["chosen"]:
            return False
    for key in ("right", "wrong", "broken", "processed"):
        assert expected["end"][key] == result["end"][key]
    return True


def assert_parity(cases):
    """Every decode is equal to the package's. Rounding may decide 1 in 100 where two choices are equal."""
    results = zip(cases, engine_results(cases), strict=True)
    differing = [case for case, result in results if not is_equal(trace(case.request()), result["trace"])]
    assert len(differing) <= len(cases) // 100, [(case.model.name, case.setting) for case in differing]


def cases_of(loaded, num_given, most):
    """Return decodes of a model: up to `most` pairs of n and order, every other one at temperature 1."""
    method = loaded.net.method
    fixed = (None, "all") if method.window == "all" else (None, method.window - 1)
    latents = {"free": (0, 3, "all", None), "fixed": fixed, "none": (None, 0)}[method.latent_control]
    orders = ADAPTIVE if not method.is_left_to_right else ()
    orders += ("left_to_right",) if method.readout == "shifted" else ("uniform", "left_to_right")
    pairs = list(product(latents, orders))
    rng = random.Random(loaded.name.rpartition("/")[2])
    cases = []
    for seed, (n, order) in enumerate(rng.sample(pairs, min(most, len(pairs)))):
        k = rng.choice((1, 4, "all", "growing", None)) if order in ADAPTIVE else None
        if k == "all" and n not in (None, 0) and method.latent_control == "free":
            k = 4  # all masked tokens would be candidates
        remask = 3 if seed % 3 == 2 and method.attention in (bidirectional, semi_causal) else None
        temperature = 1.0 if seed % 2 else rng.choice((0.0, None, 0.7))
        top_p = rng.choice((None, 0.8))
        setting = SamplingConfig(
            n, k, order, temperature=temperature, top_p=top_p, seed=seed, remask_every=remask
        )
        cases.append(Case(loaded, puzzle(loaded.task, num_given, seed), setting))
    return cases


def test_engine_decodes_the_same_boards():
    scdm = model("sudoku-6-scdm")
    tokens = puzzle(scdm.task, 22, seed=1)
    settings = [
        SamplingConfig(),
        SamplingConfig(0, 4, "margin", temperature=1.0, seed=2**40),
        SamplingConfig("all", "growing", "entropy", temperature=1.0, top_p=0.8, seed=3),
        SamplingConfig(5, None, "uniform", temperature=1.0, seed=4),
        SamplingConfig(2, 3, temperature=1.0, seed=5, refresh=False),
        SamplingConfig(4, 4, temperature=1.0, seed=6, remask_every=2),
    ]
    assert_parity([Case(scdm, tokens, setting) for setting in settings])


def test_results_that_need_no_model():
    """The values of web/tests that are worked out by hand, and its puzzles."""
    command = [node(), "--test", "tests/by_hand.test.js", "tests/page.test.js"]
    done = subprocess.run(command, cwd=ROOT / "web", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_engine_errors_are_those_of_the_package(tmp_path):
    scdm = model("sudoku-6-scdm")
    arm, window = (saved(tmp_path, name, name) for name in ("arm", "ar-mtp-window-4"))
    tokens, full = (puzzle(scdm.task, num_given, seed=1) for num_given in (16, 36))
    prefix = full[:9] + (None,) * 27
    cases = [
        Case(window, tokens, SamplingConfig(2)),
        Case(window, tokens, SamplingConfig(order="top_prob")),
        Case(arm, prefix, SamplingConfig(1)),
        Case(arm, prefix, SamplingConfig(order="uniform")),
        Case(arm, tokens, SamplingConfig()),
        Case(scdm, full, SamplingConfig()),
        Case(scdm, tokens, SamplingConfig(2, "all")),
        Case(arm, prefix, SamplingConfig(remask_every=2)),
    ]
    for case, result in zip(cases, engine_results(cases), strict=True):
        with pytest.raises(ValueError, match=f"^{re.escape(result['error'])}$"):
            case.request()


def test_engine_fills_and_scores_sentences_as_the_package(tmp_path):
    """Rounding may decide a token where two are equal; large weights keep them apart."""
    task = Text(16)
    net = untrained(task, gain=6.0, gelu="exact", positions="learned").net
    save_pretrained(net, tmp_path / "text", about={"task": task.description()})
    loaded = LoadedModel("text", from_pretrained(tmp_path / "text"), task)
    sentence = Gaps([task.coder.end, *b"words to mask", task.coder.end], [2, 3, 6, 9, 10, 13])
    tokens = [None if i in sentence.masked else token for i, token in enumerate(sentence.tokens)]
    settings = [(n, seed) for n in (0, 2, "all") for seed in (0, 3)]
    requests = [
        {"tokens": tokens, "answer": sentence.tokens, "latents": n, "seed": seed} for n, seed in settings
    ]
    jobs = [{"folder": str(tmp_path / "text"), "name": "text", "request": each} for each in requests]
    for (n, seed), result in zip(settings, engine_answers(jobs), strict=True):
        frames, nats = decoded_and_scored(loaded, sentence, n, seed)
        for frame, step in zip(frames, result["steps"], strict=True):
            assert frame["chosen"] == [[step["position"] - SHIFT, step["token"]]]
            guesses = [[cell + SHIFT, frame["beliefs"][str(cell)][0][0]] for cell in frame["latents"]]
            assert guesses == step["guesses"]
            assert frame["processed"] == step["processed"]
        assert result["steps"][-1]["nats"] == pytest.approx(nats, abs=1e-3)


@pytest.mark.slow
def test_engine_decodes_equal_boards_for_every_method(tmp_path):
    models = [model(f"sudoku-6-{name}") for name in ("scdm", "mdm", "sidm", "ar-mtp")]
    models += [saved(tmp_path, name, method) for name, method in UNBUNDLED.items()]
    models += [saved(tmp_path, "rotary", "scdm", positions="rotary", gelu="exact")]
    models += [saved(tmp_path, "both", "mdm", positions="both")]
    cases = [case for loaded in models for case in cases_of(loaded, 26, 10)]
    cases += cases_of(model("sudoku-6-scdm"), 0, 2) + cases_of(model("sudoku-6-arm"), -24, 2)
    cases += cases_of(model("sudoku-9-scdm"), 66, 10) + cases_of(model("sudoku-9-mdm"), 66, 5)
    assert len(cases) >= 100
    assert sum(case.setting.temperature == 1 for case in cases) >= len(cases) // 2
    assert_parity(cases)
