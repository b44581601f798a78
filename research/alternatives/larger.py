"""Loops of MDM on larger tasks: Zebra with four houses, where training stays on a plateau, and 9x9 boards."""

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch

import latent_tokens as lt
from latent_tokens.evaluation.rows import append_result

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent), str(HERE.parent / "history"), str(HERE.parent / "positions")]

from histories import SETTINGS  # noqa: E402
from networks import Looped, flops  # noqa: E402
from positions import from_history, losses_of  # noqa: E402
from tables import Cell, Claim, Line, compared, lines_in, report  # noqa: E402

SEEDS = range(3)
LOOPS = (1, 2, 4)  # at inference
ONE_PASS = "one pass"
EQUAL_STEPS = ", equal steps"
"""A plain network, and loops with as many steps as it, and not as many operations."""
LONGER = "one pass, as many operations"
"""A plain network with as many operations as those loops."""
BOARDS = "sudoku-9"
ZEBRA = SETTINGS["zebra"]


class Setting(NamedTuple):
    """How the models of a task are trained and decoded."""

    num_train: int
    steps: int  # of a plain network
    training: dict[str, Any]
    num_samples: int  # per row and seed
    decodings: dict[str, dict[str, Any]]


TASKS = {
    ZEBRA.task: Setting(
        *(ZEBRA.num_train, ZEBRA.steps, ZEBRA.training, 1_000),
        {"top_prob": {"candidates": ZEBRA.candidates}, "uniform": {"order": "uniform"}},
    ),
    BOARDS: Setting(
        *(500_000, 4_000, {"batch_size": 128, "lr": 2.5e-3, "warmup": 300}, 300),
        {
            "entropy": {"order": "entropy", "candidates": "growing"},
            "top_prob": {"candidates": 8},
            "left_to_right": {"order": "left_to_right"},
        },
    ),
}


def build(task: Any, cell: Cell, seed: int) -> lt.Transformer:
    """Return the network of a setting, untrained."""
    torch.manual_seed(seed)
    of_task: Any = {}
    if task.name == ZEBRA.task:
        of_task = {"parts": task.parts, "answer_tokens": task.answer_tokens}
    network = lt.Transformer if cell.variant in (ONE_PASS, LONGER) else Looped
    return network("nano", task.vocab_size, task.length, positions="learned", gelu="exact", **of_task)


def steps_of(cell: Cell) -> int:
    """Return the steps of a training: those of a plain network, or as many as take equal operations."""
    setting, task = TASKS[cell.task], lt.TASKS[cell.task]
    if cell.variant == ONE_PASS or str(cell.variant).endswith(EQUAL_STEPS):
        return setting.steps
    net = build(task, cell, 0)
    loops = range(1, Looped.most_loops + 1)
    times = fmean(flops(net, task.length, number) for number in loops) / flops(net, task.length)
    return round(setting.steps * times if cell.variant == LONGER else setting.steps / times)


def trained(cell: Cell, seed: int, runs: Path) -> Path:
    """Train the mdm of a setting, and return its directory."""
    setting = TASKS[cell.task]
    data = lt.DataConfig(cell.task, runs / "larger" / "data" / cell.task, num_train=setting.num_train)
    if not data.folder.exists():
        lt.make_data(data)
    net, steps = build(lt.TASKS[cell.task], cell, seed), steps_of(cell)
    folder = (
        runs / "larger" / f"{cell.task}-{'looped' if isinstance(net, Looped) else 'plain'}-{steps}-{seed}"
    )
    config = lt.TrainConfig(
        cell.task, "mdm", data=data.folder, out=folder, steps=steps, seed=seed, precision="bf16",
        resume="auto", **setting.training,
    )  # fmt: skip
    return lt.fit(config, net=net)


def cells_of(name: str) -> Iterator[Cell]:
    """Yield the settings of a task, by order. One pass on Zebra is in research/history."""
    numbers = [f"{number} loops" for number in LOOPS]
    longer = [*(f"{number}{EQUAL_STEPS}" for number in numbers), LONGER] if name == ZEBRA.task else []
    for order, variant in product(TASKS[name].decodings, [ONE_PASS, *numbers, *longer]):
        yield Cell("mdm", order, None, variant, name)


def measure(runs: Path, path: Path = HERE / "larger.jsonl") -> None:
    """Train and measure what a file lacks."""
    torch.set_num_threads(1)
    done = [*((cell, seed) for cell, line in stored(path).items() for seed in line.by_seed)]
    for name, seed in product(TASKS, SEEDS):
        for cell in sorted(cells_of(name), key=steps_of):
            if (cell, seed) in done:
                continue
            folder = trained(cell, seed, runs)
            net = lt.from_pretrained(folder, net=build(lt.TASKS[name], cell, seed))
            if isinstance(net, Looped):
                net.loops = int(str(cell.variant).split()[0])
            decoding = {"num_samples": TASKS[name].num_samples, **TASKS[name].decodings[cell.order]}
            (row,) = lt.evaluate(net, name, seed=seed, **decoding)
            entries = {"cell": cell._asdict(), "train_seed": seed, "validation_losses": losses_of(folder)}
            append_result(path, {**row, **entries, "train_steps": steps_of(cell)})


def stored(path: Path = HERE / "larger.jsonl") -> dict[Cell, Line]:
    """Return the rows of a file, and those of plain networks on Zebra in research/history."""
    lines = lines_in(path) if path.exists() else {}
    for cell, line in from_history().items():
        one_pass = cell._replace(variant=ONE_PASS, task=ZEBRA.task)
        lines[one_pass] = Line(one_pass, line.rows)
    return lines


def tables() -> str:
    """Return the table of the settings, and that of the claims on them."""
    lines = stored()
    cells = [cell for name in TASKS for cell in cells_of(name)]
    claims = []
    for cell in cells:
        others = {"one pass": cell._replace(variant=ONE_PASS)}
        if "loops" in str(cell.variant):
            others["1 loop"] = cell._replace(variant=f"1{str(cell.variant)[1:]}")
        if str(cell.variant).endswith(EQUAL_STEPS):
            others[LONGER] = cell._replace(variant=LONGER)
        claims += [
            Claim(f"{cell.task}, {cell.order}: {cell.variant} > {name}", cell, other)
            for name, other in others.items()
            if cell.variant != ONE_PASS and other != cell
        ]
    return report(lines, cells, compared(lines, claims))
