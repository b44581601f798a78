"""Decodes by the page's engine in node, compared with those of the package."""

import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass, replace

import numpy as np
import pytest
import torch

from helpers.documentation import ROOT
from latent_tokens import METHODS, SIZES, TASKS, Transformer, from_pretrained
from latent_tokens.checkpoints.directory import save_pretrained
from latent_tokens.checkpoints.files import BUNDLED
from latent_tokens.configs import SamplingConfig
from latent_tokens.tasks import Examples
from latent_tokens.trace.record import DecodeRequest, LoadedModel, decode

WEB = ROOT / "web"
KEYS = ("latents", "candidates", "order", "temperature", "top_p", "seed", "refresh")  # of a request
MAX_DIFFERENCE = 1e-3 + 1e-9  # of two probabilities, each rounded to three digits
TIE = 1e-4  # two choices that are closer may differ
GAIN = 6.0  # of the weights of an untrained network, so that its input matters


@dataclass(frozen=True)
class Case:
    """A decode: a model, where its files are, a puzzle with null for empty cells, and the settings."""

    model: LoadedModel
    folder: str
    tokens: tuple[int | None, ...]
    setting: SamplingConfig

    @property
    def problem(self) -> Examples:
        board = np.array([[token or 0 for token in self.tokens]], np.uint8)
        return self.model.task.infilling(board, np.array([[token is not None for token in self.tokens]]))

    @property
    def request(self) -> DecodeRequest:
        return DecodeRequest(self.model, self.problem, self.setting)


def bundled(name):
    """Return a bundled model and its directory."""
    return LoadedModel(name, from_pretrained(name), TASKS[name[:8]]), str(BUNDLED / name)


def untrained(folder, name, method, **settings):
    """Write an untrained model of 6x6 boards, of the size of the bundled ones, to a directory."""
    torch.manual_seed(len(name))
    task = TASKS["sudoku-6"]
    net = Transformer(SIZES["nano"], task.vocab_size, task.length, **settings).eval()
    net.method = method
    with torch.no_grad():
        for weight in net.parameters():
            if weight.dim() == 2:
                weight.mul_(GAIN)
    save_pretrained(net, folder / name, about={"task": {"name": task.name, "source": "solver"}})
    return LoadedModel(name, net, task), str(folder / name)


def puzzle(task, num_given, seed):
    """Return a board with some given cells. A negative number gives the first ones."""
    board = task.generate(1, seed=seed).tokens[0].tolist()
    cells = np.random.default_rng(seed).permutation(len(board)) if num_given >= 0 else np.arange(len(board))
    given = set(cells[: abs(num_given)].tolist())
    return tuple(token if cell in given else None for cell, token in enumerate(board))


def node(*arguments, stdin=""):
    """Return the lines that a script of web/ prints. Without node, skip the test unless NEEDS_NODE is set."""
    program = shutil.which("node")
    if program is None:
        (pytest.fail if os.environ.get("NEEDS_NODE") else pytest.skip)("no node: apt-get install nodejs npm")
    done = subprocess.run(
        [program, *arguments], cwd=WEB, input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def engine_results(cases):
    """Return the trace or the error of each case in node."""
    jobs = [
        {
            "folder": case.folder,
            "name": case.model.name,
            "request": {
                "tokens": case.tokens,
                **{key: value for key, value in asdict(case.setting).items() if key in KEYS},
            },
        }
        for case in cases
    ]
    return [json.loads(line) for line in node("tests/decode.js", stdin=json.dumps(jobs))]


def first_difference(expected, result):
    """Return the first step whose choice differs, or None if a trace is equal up to rounding."""
    assert result["start"] == expected["start"]
    for ours, theirs in zip(expected["frames"], result["frames"], strict=True):
        for key in ("step", "candidates", "latents", "processed", "all_processed"):
            assert ours[key] == theirs[key], key
        assert largest_difference(ours["beliefs"], theirs["beliefs"]) <= MAX_DIFFERENCE
        if ours["chosen"] != theirs["chosen"]:
            return ours["step"]
    for key in ("right", "wrong", "broken", "processed"):
        assert expected["end"][key] == result["end"][key]
    return None


def largest_difference(ours, theirs):
    """Return the largest difference of two predictions. A token that is not listed has probability 0."""
    assert ours.keys() == theirs.keys()
    pairs = [(dict(map(tuple, ours[cell])), dict(map(tuple, theirs[cell]))) for cell in ours]
    return max(abs(a.get(token, 0) - b.get(token, 0)) for a, b in pairs for token in a.keys() | b.keys())


def closest_choice(case, number):
    """Return the distance of the closest two choices of a step: of candidates by confidence, or of tokens."""
    steps = []
    request = replace(case.request)
    decode(request, steps.append)
    step = steps[number]
    probabilities = step.probabilities[0, -int(step.num_candidates[0]) :].double()
    confidences = request.decoding.confidence(probabilities.log()[None])[0].sort(descending=True).values
    between_candidates = float(confidences[:2].diff().abs()) if len(confidences) > 1 else 1.0
    drawn = probabilities[step.candidates[0].index(int(step.chosen[0, 0]))]
    if request.decoding.temperature == 0:
        return min(between_candidates, float(drawn.topk(2).values.diff().abs()))
    scaled = (drawn.log() / request.decoding.temperature).softmax(-1)
    noise = token_noise(case, steps, number)
    return min(between_candidates, float((scaled.cumsum(-1)[:-1] - noise).abs().min()))


def token_noise(case, steps, number):
    """Return the number that a step drew for its token. Every step also reshuffles the masked tokens."""
    rng = np.random.default_rng((case.setting.seed, 0))
    is_random = case.request.order != "left_to_right"
    counts = [len(case.tokens) - int(step.layout.num_clean[0]) for step in steps[: number + 1]]
    for count in counts[:-1]:
        rng.random(count * is_random)
        rng.random(1)
    rng.random(counts[-1] * is_random)
    return float(rng.random())


def methods_without_bundled_model():
    """Return the other methods that the engine supports."""
    return {
        "esolm": METHODS["esolm"],
        "ar-mtp-window-4": METHODS["ar-mtp-window-4"],
        "ar-ntp-3": METHODS["ar-ntp-3"],
        "mdm-depth": METHODS["mdm-depth"],
        "scdm-window": replace(METHODS["scdm"], window=6),
        "flat-sidm": replace(METHODS["sidm"], weight="flat"),
    }
