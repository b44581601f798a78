"""The histories of training that history.py compares: their models, and how they are trained and measured."""

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock

import latent_tokens as lt
from latent_tokens.evaluation.rows import append_result, read_results

sys.path.append(str(Path(__file__).parents[1]))

from tables import Cell

RUNS = Path(__file__).parents[2] / "runs" / "history"
SEEDS = range(3)
POINTS = 10  # of training, at which why.py measures


class Setting(NamedTuple):
    """How the models of a task are trained and measured, and what they start with."""

    task: str
    steps: int
    num_train: int
    training: dict[str, Any]
    candidates: int
    latents: tuple[int | str, ...]
    after: tuple[tuple[str, str], ...]  # (method, the one that the first steps train with)
    shares: tuple[float, ...]  # of the steps in one run, the decisive one first
    twice: tuple[tuple[str, str], ...]  # in two runs of half of the steps, with a schedule each
    redrawn: int = 0  # layers whose attention outputs are drawn again between two runs of scdm after sidm


AFTER_SIDM = (("mdm", "sidm"), ("scdm", "sidm"))
ON_BOARDS = (*AFTER_SIDM, ("scdm", "mdm"))
ON_ZEBRA = {"batch_size": 64, "warmup": 300, "positions": "learned"}
ON_COUNTDOWN = {"batch_size": 64, "warmup": 500}
SETTINGS = {
    "boards": Setting(
        *("sudoku-6", 6_800, 100_000, {}, 4, (0, 4, 8, "all"), ON_BOARDS),
        *((0.5, 0.25, 0.1), (*ON_BOARDS, ("scdm", "scdm")), 2),
    ),
    "zebra": Setting(
        *("zebra-compact-4", 14_000, 300_000, ON_ZEBRA, 8, (0, 4, "all"), AFTER_SIDM),
        *((0.5,), (*AFTER_SIDM, ("sidm", "sidm"))),
    ),
    "countdown": Setting(
        *("countdown-3", 12_000, 400_000, ON_COUNTDOWN, 8, (0, 4, "all"), AFTER_SIDM),
        *((0.5, 0.25), ()),
    ),
}


LEFT_TO_RIGHT = (0, 1, 2, 4, 8, "all")
"""The numbers of latent tokens of models of boards that decode from left to right."""
FIRST = {"from scratch": None, "after sidm": "sidm", "after mdm": "mdm"}
"""What the first half of the steps of these models trains as."""


class History(NamedTuple):
    """A trained model: a method, after another one for a share of the steps, in one run or in two."""

    name: str  # of the setting
    method: str
    first: str | None = None
    share: float = 0.0
    runs: int = 1
    seed: int = 0
    redrawn: int = 0

    @property
    def folder(self) -> Path:
        """The directory of its last run."""
        before = "" if self.first is None else f"-{self.first}-{self.share:g}-{self.runs}"
        redrawn = f"-redrawn-{self.redrawn}" if self.redrawn else ""
        return RUNS / f"{self.name}-{self.method}{before}{redrawn}-{self.seed}"

    def label(self, latents: object) -> dict[str, Any]:
        """The entries that tell its rows apart."""
        entries = {**self._asdict(), "n": latents}
        return {name: value for name, value in entries.items() if name != "redrawn" or value}


def histories(name: str) -> Iterator[History]:
    """Yield the models of a setting, all seeds of the decisive ones before the others: the dial of scdm."""
    setting = SETTINGS[name]
    for method, seed in product(("scdm", "mdm", "sidm"), SEEDS):
        yield History(name, method, seed=seed)
        after = [pair for pair in setting.after if pair[0] == method]
        yield from (History(name, *pair, setting.shares[0], 1, seed) for pair in after)
    for seed in SEEDS:
        for share, pair in product(setting.shares[1:], setting.after):
            yield History(name, *pair, share, 1, seed)
        yield from (History(name, *pair, 0.5, 2, seed) for pair in setting.twice)
        if setting.redrawn:
            yield History(name, "scdm", "sidm", 0.5, 2, seed, setting.redrawn)


def trained(history: History) -> lt.Model:
    """Return a model, trained as far as it is not yet."""
    setting = SETTINGS[history.name]
    shared: dict[str, Any] = {**setting.training, "data": data_of(setting), "seed": history.seed}
    shared |= {"precision": "fp32", "threads": 1, "resume": "auto"}
    if history.seed == 0:  # why.py reads its checkpoints
        shared |= {"keep": POINTS, "save_every": max(1, setting.steps // POINTS), "save_minutes": 1e6}
    steps = setting.steps
    num_first = round(history.share * steps)
    if history.runs == 2:
        assert history.first is not None
        start = History(history.name, history.first, history.first, history.share, 0, history.seed).folder
        start.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{start}.lock"):  # several histories begin with this model
            lt.fit(setting.task, history.first, out=start, steps=num_first, **shared)
        shared["start"] = with_redrawn(start, history.redrawn) if history.redrawn else start
        steps -= num_first
    elif history.first is not None:
        shared["first"] = f"{history.first}:{num_first}"
    lt.fit(setting.task, history.method, out=history.folder, steps=steps, **shared)
    return lt.load(history.folder)


def with_redrawn(start: Path, num_layers: int) -> Path:
    """Return a copy of a model whose first layers have new attention outputs: a test of the explanation.

    If masked tokens stop to attend to each other because sidm's layers are of no use to them, new ones help.
    """
    net = lt.load(start).net
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in net.blocks[:num_layers]:
            block.attention_out.reset_parameters()
    folder = start.parent / "redrawn" / start.name
    lt.save_pretrained(net, folder)
    return folder


def data_of(setting: Setting) -> Path:
    """Return the data set of a setting, which is made if it is missing."""
    folder = RUNS / "data" / setting.task
    if not folder.exists():
        lt.make_data(lt.DataConfig(setting.task, folder, num_train=setting.num_train))
    return folder


def measure_history(history: History, path: Path, samples: int) -> None:
    """Append the rows of a model that a file lacks."""
    setting = SETTINGS[history.name]
    counts = setting.latents if history.method == "scdm" else (None,)
    done = [row["setting"] for row in read_results(path)]
    missing = [n for n in counts if history.label(n) not in done]
    if not missing:
        return
    model = trained(history)
    for n in missing:
        shared: dict[str, Any] = {"latents": None if n is None else (n,), "num_samples": samples}
        (row,) = model.evaluate(candidates=(setting.candidates,), threads=1, **shared).rows
        (uniform,) = model.evaluate(order="uniform", threads=1, **shared).rows
        values = {"accuracy": row[row["metric"]], "uniform": uniform[row["metric"]]}
        append_result(path, {"setting": history.label(n), **values, **row})


def measure_left_to_right(path: Path, samples: int) -> None:
    """Append the rows that a file lacks of scdm on boards, from left to right."""
    done = [(row["cell"], row["train_seed"]) for row in read_results(path)] if path.exists() else []
    for seed, (name, first), n in product(SEEDS, FIRST.items(), LEFT_TO_RIGHT):
        cell = left_to_right_cell(name, n)
        if (cell._asdict(), seed) not in done:
            model = trained(History("boards", "scdm", first, 0.5 if first else 0.0, 1, seed))
            settings: dict[str, Any] = {"order": "left_to_right", "num_samples": samples, "threads": 1}
            (row,) = model.evaluate(latents=(n,), seed=seed, **settings).rows
            append_result(path, {**row, "cell": cell._asdict(), "train_seed": seed})


def left_to_right_cell(name: str, latents: int | str) -> Cell:
    """Return the setting of an scdm from left to right, by what it is `FIRST`."""
    return Cell("scdm", "left_to_right", latents, name)
