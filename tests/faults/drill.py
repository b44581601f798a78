"""make drill: interrupt a small training run many times, resume it, and compare the final bytes.

It injects some 200 faults in minutes, or with --short a few of each kind. It stops at the first wrong result.
"""

import argparse
import shutil
import signal
import subprocess
import time
from operator import methodcaller
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import torch

from helpers.ranks import free_port
from helpers.runs import comparable, complete_step, timeless
from helpers.training_process import Child
from latent_tokens.storage import provenance

SAVE_EVERY = 3  # steps
CODES = {signal.SIGKILL: -9, signal.SIGTERM: 75, signal.SIGINT: 130, signal.SIGUSR1: 75}
STAGES = ("training", "done", "saving", "validation")
STATES = {"latest": slice(1), "latest two": slice(2), "only an older one": slice(1, 2), "all": slice(None)}
FILES = {name: name for name in ("model.safetensors", "metrics.jsonl", "config.json")}
FILES["half a line"] = "metrics.jsonl"


class Drill:
    """A directory for the runs, one of which was not disturbed, and the number of faults so far."""

    def __init__(self, place, num_steps, seed):
        self.place, self.num_steps, self.rng, self.faults = place, num_steps, Random(seed), 0
        self.data, self.undisturbed, self.half = (place / name for name in ("data", "undisturbed", "half"))

    def start(self, folder, **limits):
        sizes = f"--steps {self.num_steps} --batch-size 4 --warmup 4 --precision fp32 --resume auto"
        saves = f"--save-every {SAVE_EVERY} --evaluate-every 7 --keep 3 --data {self.data} --out {folder}"
        return Child(folder, f"train sudoku-4 scdm {sizes} {saves}".split(), **limits)

    def train(self, folder, act=None, stage="", times=0, **limits):
        """Return a process that has trained, from the last checkpoint on. After these stages, act on it."""
        expected = complete_step(folder)
        child = self.start(folder, **limits)
        if child.listen(stage, times) and act:
            act(child)
        child.wait()
        begun = child.steps("begun")
        assert begun in ([], [expected]), f"{folder.name}: began at {begun}, not at {expected}"
        return child

    def note(self, child=None):
        """Count a fault. The steps to repeat are at most those since the last checkpoint."""
        self.faults += 1
        if child is not None:
            saved = complete_step(child.folder)
            lost = max(child.steps("begun", "done"), default=saved) - saved
            assert 0 <= lost <= SAVE_EVERY, f"{child.folder.name}: {lost} steps lost"

    def finish(self, folder):
        """Train to the end."""
        self.train(folder).expect(0)
        self.compare(folder)

    def compare(self, folder, but=""):
        """Compare the files of a run, but for one, with those of the undisturbed run, and remove it."""
        ours, theirs = comparable(folder), comparable(self.undisturbed)
        different = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
        assert different <= {but}, f"{folder.name}: {different} are not those of the undisturbed run"
        shutil.rmtree(folder)


# The faults. Each function takes the drill and a number of times.


def interrupt(drill, times):
    """Send SIGKILL or a signal at random moments, or SIGKILL before a random change of a file."""
    folder, rng = drill.place / "interrupted", drill.rng

    def send(child):
        time.sleep(rng.choice((0, 0.05, 0.8)) * rng.random() if number == signal.SIGKILL else 0)
        child.send(number)

    for number in [*CODES, *[signal.SIGKILL] * 3] * times:
        die_at = rng.choice((0, 0, rng.randrange(1, 13))) if number == signal.SIGKILL else 0
        child = drill.train(folder, send, rng.choice(STAGES), rng.randrange(1, 3), die_at=die_at)
        if child.code:
            child.expect(CODES[number], "" if number == signal.SIGKILL else "--resume auto")
            drill.note(child)
        else:  # it had ended before
            drill.compare(folder)
        if child.code in (75, 130):
            assert child.steps("done")[-1:] == [complete_step(folder)], f"{number.name}: not saved"
    drill.finish(folder)


def fill_the_disk(drill, times):
    """End files at some size. Fill a disk, enlarge it, and make it read-only, if mount is allowed."""
    folder, disk = drill.place / "full", drill.place / "disk"
    for turn in range(2 * times):
        sizes = (drill.rng.randrange(50, 500), 2 << 20, drill.rng.randrange(4, 14) << 20)
        child = drill.train(folder, limit=drill.rng.choice(sizes) if turn else 300)
        child.expect(2, r"cannot be written \(File too large\)")
        drill.note(child)
    drill.finish(folder)
    disk.mkdir()
    mount = ("mount", "-t", "tmpfs", "drill", disk, "-o")
    for _ in range(times):
        filled = [*mount, f"size={drill.rng.randrange(1, 55)}m"]
        if subprocess.run(filled, capture_output=True, check=False).returncode:
            print("no disk was filled: mount is not allowed")
            return
        try:
            drill.train(disk / "run").expect(2, r"\(No space left on device\)")
            subprocess.run([*mount, "remount,size=200m"], check=True)
            drill.finish(disk / "run")
            subprocess.run([*mount, "remount,ro"], check=True)
            drill.train(disk / "run").expect(2, r"cannot be written \(Read-only file system\)")
        finally:
            subprocess.run(["umount", disk], check=True)
        drill.faults += 2


def changed_bytes(rng, content):
    """Return a content with a bit flipped, the end cut off, or a part blanked."""
    at = rng.randrange(len(content))
    flipped = bytes([content[at] ^ 1 << rng.randrange(8)])
    return content[:at] + rng.choice((b"", flipped + content[at + 1 :], bytes(64) + content[at + 64 :]))


def damage(drill, times):
    """Damage checkpoints, weights, metrics or the config. The run ends equal, or stops with one line."""
    folder = drill.place / "damaged"
    for target in [*STATES, *FILES] * times:
        # Steps after the damage would write better weights.
        shutil.copytree(drill.undisturbed if target == "model.safetensors" else drill.half, folder)
        states = sorted(folder.glob("state-*"), reverse=True)
        paths = states[STATES[target]] if target in STATES else [folder / FILES[target]]
        for path in paths:
            content = path.read_bytes()
            is_torn = target == "half a line"
            path.write_bytes(content + b'{"step": 99, "lo' if is_torn else changed_bytes(drill.rng, content))
        child = drill.train(folder)
        drill.note()
        if target == "all" or (child.code and target in ("metrics.jsonl", "config.json")):
            child.expect(2, "corrupt|not a row of JSON|not JSON|complete|was started with|format")
            for path in paths:
                shutil.copy2(drill.half / path.name, path)
            drill.finish(folder)
            continue
        child.expect(0)
        lines = [f"{path.name}: corrupt" for path in paths] + ["previous checkpoint"]
        assert not target.startswith("latest") or all(line in child.text for line in lines), child.text
        drill.compare(folder, but=target)


def change_the_data(drill, times):
    """Change the data before a run is resumed, and while it trains."""
    folder, path = drill.place / "data-changed", min(drill.data.glob("train.*.npy"))
    content = path.read_bytes()

    def cut(child=None):
        path.write_bytes(content[:-9])

    for is_before in (True, False) * times:
        shutil.copytree(drill.half, folder)
        if is_before:
            cut()
        answer = "corrupt|manifest|cannot be read" if is_before else "changed during training"
        drill.train(folder, cut, "done", 2).expect(2, answer)
        drill.note()
        path.write_bytes(content)
        drill.finish(folder)


def losses(folder):
    return [row[name] for row in timeless(folder) for name in row if "loss" in name]


def kill_one_of_two(drill, times):
    """Kill one of two processes that train together. The other ends, and one process resumes the run."""
    folder = drill.place / "two"
    for turn in range(times):
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
        ranks = [{**group, "RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
        both = [drill.start(folder, environment=rank) for rank in ranks]
        killed, other = both[:: 1 - 2 * (turn % 2)]
        killed.listen("done", drill.rng.randrange(1, 8))
        killed.send(signal.SIGKILL)
        killed.wait()
        other.wait()
        other.expect(2, "another rank ended .* Rerun with --resume auto")
        drill.note(other)
        drill.train(folder).expect(0)
        np.testing.assert_allclose(losses(folder), losses(drill.undisturbed), atol=1e-4)
        shutil.rmtree(folder)


def start_a_second_run(drill, times):
    """Start a second process in the directory of one that trains, and one after that was killed."""
    folder = drill.place / "locked"

    def second(child):
        child.send(signal.SIGSTOP)
        other = drill.start(folder)
        other.wait()
        child.send(signal.SIGKILL)
        other.expect(2, "another process is training in it")

    for _ in range(times):
        drill.train(folder, second, "done", drill.rng.randrange(1, 8))
        drill.note()
        drill.finish(folder)


GROUPS = {  # how often each is done in a short and in a full drill
    interrupt: (1, 20),
    fill_the_disk: (1, 4),
    damage: (1, 4),
    change_the_data: (1, 4),
    kill_one_of_two: (1, 6),
    start_a_second_run: (1, 4),
}


def main(short, seed, place):
    """Train undisturbed, and half of it. Then inject the faults."""
    provenance()  # asks git once, for all
    drill = Drill(place, 15 if short else 60, seed)
    sizes = "--num-train 64 --num-validation 8 --num-test 1 --processes 1"
    Child(place, ["data", "sudoku-4", *sizes.split(), "--out", f"{drill.data}"]).wait()
    drill.train(drill.undisturbed).expect(0)
    stop = methodcaller("send", signal.SIGTERM)
    drill.train(drill.half, stop, "done", drill.num_steps // 2 + 1).expect(75)
    for inject, times in GROUPS.items():
        inject(drill, times[0] if short else times[1])
        print(f"{inject.__name__}: {drill.faults} faults so far", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(prog="drill", description=__doc__.splitlines()[0])
    parser.add_argument("--short", action="store_true", help="a few of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the choices; the clock decides, too")
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="drill-") as folder:
        main(asked.short, asked.seed, Path(folder))
