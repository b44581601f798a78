"""Small training runs, how they are interrupted, and what is compared of them."""

import hashlib
import json

from latent_tokens import TrainConfig
from latent_tokens.training.checkpoint import saved_states

TINY = {
    "size": "pico",
    "steps": 12,
    "batch_size": 8,
    "num_train": 50,
    "num_validation": 16,
    "evaluate_every": 5,
    "save_every": 3,
    "warmup": 4,
    "precision": "fp32",
}


def tiny_run(out, method="scdm", task="sudoku-4", **changes):
    """Return the config of a run that takes a second."""
    of_data = {"num_train", "num_validation"} if changes.get("data") else set()
    settings = {name: value for name, value in TINY.items() if name not in of_data}
    return TrainConfig(task, method, out, **{**settings, **changes})


def stop_at(step, stage="done"):
    """Return an observer that interrupts a run at a stage of a step."""

    def observe(*reported):
        if reported == (stage, step):
            raise KeyboardInterrupt

    return observe


def rows(run):
    """Return the rows of the metrics."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def timeless(run):
    """Return the rows of the metrics without times."""
    times = ("tokens_per_second", "seconds")
    return [{name: value for name, value in row.items() if name not in times} for row in rows(run)]


def comparable(run):
    """Return {name: content} of the files of a run, metrics without times, and only the latest checkpoint."""
    states = sorted(run.glob("state-*"), reverse=True)
    files = {path.name: path.read_bytes() for path in run.iterdir() if path not in states[1:]}
    return {**files, "metrics.jsonl": timeless(run), "checkpoints": len(states)}


def description(run):
    """Return the entries of config.json."""
    return json.loads((run / "config.json").read_text())


def checkpoints(run):
    """Return the names of the checkpoints, which have the hashes of their bytes."""
    return [path.name for path in saved_states(run)]


def complete_step(folder):
    """Return the step of the latest checkpoint whose bytes hash to its name."""
    steps = [0]
    for path in folder.glob("state-*"):
        _, step, name = path.stem.split("-")
        if hashlib.sha256(path.read_bytes()).hexdigest().startswith(name):
            steps.append(int(step))
    return max(steps)


def flip(path, place):
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)
