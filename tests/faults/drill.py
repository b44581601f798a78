"""make drill: interrupt a small training run many times, resume it, and compare the final bytes.

It injects some 200 faults in minutes, or with --short a few of each kind. Exit code 1 if a result is wrong.
Data that change and a second run in a directory are faults of the fast tests.
"""

import argparse
import hashlib
import os
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import torch
import torch._dynamo  # before the fork, so that each process needs not import it

from helpers.ranks import free_port
from helpers.runs import timeless
from latent_tokens.cli import main
from latent_tokens.commands import RUN
from latent_tokens.commands.train import Train, run_train
from latent_tokens.storage import provenance

SAVE_EVERY = 3  # steps
HANGS = 300  # seconds after which a process counts as hung
SIGNALS = {signal.SIGTERM: 75, signal.SIGINT: 130, signal.SIGUSR1: 75}
STATES = {"latest": slice(1), "latest two": slice(2), "only an older one": slice(1, 2), "all": slice(None)}
FILES = ("model.safetensors", "metrics.jsonl", "config.json")
REFUSED = "corrupt|not a row of JSON|not JSON|complete|was started with|format"


@dataclass
class Child:
    """A forked process that trains. It reports (stage, step) in lines."""

    pid: int
    folder: Path
    reports: object
    output: object
    stages: list = field(default_factory=list)
    code: int = 0
    text: str = ""

    def listen(self, stage="", times=1):
        """Wait until it has reported a stage that often. Return False if it ended before."""
        for report in self.reports:
            self.stages.append(report.split())
            times -= self.stages[-1][0] == stage
            if not times:
                return True
        return False

    def end(self):
        self.listen()
        self.text = self.output.read()
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.reports.close()
        self.output.close()

    def steps(self, *stages):
        return [int(step) for stage, step in self.stages if stage in stages]


def fork(folder, arguments, *, limit=None, die_at=0, environment=None):
    """Run a command in a process with limits on time, file size and the number of file operations."""
    assert len(os.listdir("/proc/self/task")) == 1, "start it with OMP_NUM_THREADS=1: it forks"
    (reports, report_to), (output, write_to) = os.pipe(), os.pipe()

    def report(stage, step):
        os.write(report_to, f"{stage} {step}\n".encode())

    pid = os.fork()
    if pid:
        os.close(report_to)
        os.close(write_to)
        return Child(pid, folder, os.fdopen(reports), os.fdopen(output))
    try:
        os.dup2(write_to, 1)
        os.dup2(write_to, 2)
        signal.alarm(HANGS)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the background ignores it
        os.environ |= environment or {}
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        RUN[Train] = partial(run_train, observe=report)
        if die_at:
            die_at_file(folder, die_at)
        os._exit(main(arguments))
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def die_at_file(folder, number):
    """Kill this process before the file operation of that number in the directory."""
    operations = count(1)

    def audit(event, about):
        writes = event == "open" and isinstance(about[1], str) and about[1][0] in "wa"
        is_change = writes or event in ("os.rename", "os.remove")
        if is_change and str(about[0]).startswith(f"{folder}/") and next(operations) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)


def complete_step(folder):
    """Return the step of the latest checkpoint whose bytes hash to its name."""
    latest = 0
    for path in folder.glob("state-*"):
        _, step, name = path.stem.split("-")
        with suppress(FileNotFoundError):  # removed meanwhile
            if hashlib.sha256(path.read_bytes()).hexdigest().startswith(name):
                latest = max(latest, int(step))
    return latest


def comparable(folder, but=()):
    """Return {name: content} of the files of a run, metrics without times, and only the latest checkpoint."""
    states = sorted((path.name for path in folder.glob("state-*")), reverse=True)
    names = [path.name for path in folder.iterdir() if path.name not in (*but, *states[1:])]
    contents = {name: (folder / name).read_bytes() for name in names}
    if "metrics.jsonl" in contents:
        contents["metrics.jsonl"] = timeless(folder)
    return {**contents, "checkpoints": len(states)}


class Drill:
    """The faults so far, their directory, and the problems."""

    def __init__(self, place, num_steps, seed):
        self.place, self.num_steps, self.rng = place, num_steps, Random(seed)
        self.data, self.undisturbed, self.half = (place / name for name in ("data", "undisturbed", "half"))
        self.faults, self.lost, self.wrong = Counter(), [], 0

    def check(self, holds, problem):
        """Print a problem unless the condition is true."""
        if not holds:
            self.wrong += 1
            print(f"WRONG: {problem}", flush=True)

    def command(self, folder):
        sizes = f"--steps {self.num_steps} --batch-size 4 --warmup 4 --precision fp32 --resume auto"
        saves = f"--save-every {SAVE_EVERY} --evaluate-every 7 --keep 3 --data {self.data} --out {folder}"
        return f"train sudoku-4 scdm {sizes} {saves}".split()

    def train(self, folder, plan=lambda child: None, **limits):
        """Return a process that has trained, from the last checkpoint on. The plan acts on it."""
        expected = complete_step(folder)
        child = fork(folder, self.command(folder), **limits)
        plan(child)
        child.end()
        begun = child.steps("begun")
        self.check(begun in ([], [expected]), f"{folder.name}: began at {begun}, not at {expected}")
        return child

    def ended(self, child, code, pattern=""):
        """Check the exit code of a process, and its last line if a pattern is given."""
        line = (child.text.splitlines() or [""])[-1]
        holds = child.code == code and (not pattern or re.search(f"^latent-tokens: .*({pattern})", line))
        self.check(holds, f"{child.folder.name}: ended with {child.code}, not {code}: {child.text[-900:]}")

    def note(self, kind, child=None):
        """Record a fault. The steps to repeat are at most those since the last checkpoint."""
        self.faults[kind] += 1
        if child is not None:
            saved = complete_step(child.folder)
            self.lost.append(max(child.steps("begun", "done"), default=saved) - saved)
            self.check(0 <= self.lost[-1] <= SAVE_EVERY, f"{kind}: {self.lost[-1]} steps lost")

    def finish(self, folder):
        """Train to the end. The result must equal that of the uninterrupted run."""
        self.ended(self.train(folder), 0)
        self.compare(folder)
        shutil.rmtree(folder)

    def compare(self, folder, but=()):
        ours, theirs = (comparable(place, but) for place in (folder, self.undisturbed))
        self.check(ours.keys() == theirs.keys(), f"{folder.name}: has {sorted(ours)}, not {sorted(theirs)}")
        for name in ours.keys() & theirs.keys():
            self.check(ours[name] == theirs[name], f"{folder.name}: its {name} is not the undisturbed run's")


# The faults. Each function takes the drill and a number of times.


def after(stage, times, number):
    """Return a plan: send a signal after a number of reports of a stage."""
    return lambda child: child.listen(stage, times) and os.kill(child.pid, number)


def kill(drill, times):
    """Send SIGKILL at random moments and before random file operations, to one run after another."""
    folder, rng, target = drill.place / "killed", drill.rng, drill.faults["kill"] + times

    def while_saving(child):
        child.listen("saving", rng.choice((1, 2)))
        time.sleep(rng.uniform(0, 0.05))
        os.kill(child.pid, signal.SIGKILL)

    def at_any_time(child):
        time.sleep(rng.uniform(0, 0.8))
        os.kill(child.pid, signal.SIGKILL)

    while drill.faults["kill"] < target:
        plan = rng.choice((while_saving, at_any_time, None))
        child = drill.train(folder, plan) if plan else drill.train(folder, die_at=rng.randrange(1, 13))
        if child.code == -signal.SIGKILL:
            drill.note("kill", child)
        else:
            drill.ended(child, 0)
            drill.compare(folder)
            shutil.rmtree(folder)
    drill.finish(folder)


def send_signals(drill, times):
    """Send SIGTERM, SIGINT or SIGUSR1 at random moments. The run saves at once, and is resumed."""
    folder = drill.place / "signalled"
    for number in list(SIGNALS) * times:
        stage = drill.rng.choice(("training", "done", "saving", "validation"))
        child = drill.train(folder, after(stage, drill.rng.randrange(1, 3), number))
        if child.code:  # it had not ended before
            drill.ended(child, SIGNALS[number], "--resume auto")
            is_saved = child.steps("done")[-1:] == [complete_step(folder)]
            drill.check(is_saved, f"{number.name}: its last step was not saved")
            drill.note("signal", child)
    drill.finish(folder)


def fill_the_disk(drill, times):
    """End files at some size."""
    folder = drill.place / "full"
    for turn in range(2 * times):
        sizes = (drill.rng.randrange(50, 500), 2 << 20, drill.rng.randrange(4, 14) << 20)
        child = drill.train(folder, limit=drill.rng.choice(sizes) if turn else 300)
        drill.ended(child, 2, r"cannot be written \(File too large\)")
        drill.note("disk full", child)
    drill.finish(folder)


def changed_bytes(rng, content):
    """Return a content with a bit flipped, the end cut off, or a part blanked."""
    at = rng.randrange(len(content))
    flipped = bytes([content[at] ^ 1 << rng.randrange(8)])
    after = content[at + 64 :]
    return rng.choice(
        (content[:at], content[:at] + flipped + content[at + 1 :], content[:at] + bytes(64) + after)
    )


def damage(drill, times):
    """Damage checkpoints, weights, metrics or the config. The run ends equal, or stops with one line."""
    folder = drill.place / "damaged"
    for target in (*STATES, *FILES, "half a line") * times:
        # Steps after the damage would write better weights.
        shutil.copytree(drill.undisturbed if target == "model.safetensors" else drill.half, folder)
        states = sorted(folder.glob("state-*"), reverse=True)
        paths = states[STATES[target]] if target in STATES else [folder / target]
        if target == "half a line":
            paths = []
            with (folder / "metrics.jsonl").open("a") as file:
                file.write('{"step": 99, "lo')
        for path in paths:
            path.write_bytes(changed_bytes(drill.rng, path.read_bytes()))
        child = drill.train(folder)
        drill.note("damaged")
        if child.code and target in ("all", "metrics.jsonl", "config.json"):
            drill.ended(child, 2, REFUSED)
            for path in paths:
                shutil.copy2(drill.half / path.name, path)
            drill.finish(folder)
            continue
        drill.ended(child, 2 if target == "all" else 0)
        if target.startswith("latest"):
            is_named = all(f"{path.name}: corrupt" in child.text for path in paths)
            drill.check(is_named and "previous checkpoint" in child.text, f"{target}: {child.text}")
        drill.compare(folder, but=(target,) if target in ("metrics.jsonl", "config.json") else ())
        shutil.rmtree(folder)


def kill_one_of_two(drill, times):
    """Kill one of two processes that train together. The other ends, and one process resumes the run."""
    folder = drill.place / "two"
    for turn in range(times):
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        ranks = [{**address, "WORLD_SIZE": "2", "RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
        both = [fork(folder, drill.command(folder), environment=rank) for rank in ranks]
        killed, other = both[:: 1 - 2 * (turn % 2)]
        killed.listen("done", drill.rng.randrange(1, 8))
        os.kill(killed.pid, signal.SIGKILL)
        for child in both:
            child.end()
        drill.ended(other, 2, "another rank ended .* Rerun with --resume auto")
        drill.note("one of two killed", other)
        drill.ended(drill.train(folder), 0)
        losses = [
            {(row["step"], name): row[name] for row in timeless(place) for name in row if "loss" in name}
            for place in (folder, drill.undisturbed)
        ]
        apart = max(abs(losses[0].get(key, 9) - loss) for key, loss in losses[1].items())
        drill.check(apart < 1e-4, f"two: its losses differ by {apart} from the undisturbed run's")
        shutil.rmtree(folder)


GROUPS = {  # how often each is done in a short and in a full drill
    kill: (12, 150),
    send_signals: (1, 4),
    fill_the_disk: (1, 4),
    damage: (1, 4),
    kill_one_of_two: (1, 6),
}


def drill_all(short, seed, place):
    """Run the drill. Return 1 if a result was wrong."""
    provenance()  # asks git once, for all
    drill = Drill(place, 15 if short else 60, seed)
    sizes = "--num-train 64 --num-validation 8 --num-test 1 --processes 1"
    fork(place, ["data", "sudoku-4", *sizes.split(), "--out", f"{drill.data}"]).end()
    drill.ended(drill.train(drill.undisturbed), 0)
    stop = after("done", drill.num_steps // 2 + 1, signal.SIGTERM)
    drill.ended(drill.train(drill.half, stop), 75)
    for inject, times in GROUPS.items():
        start = time.perf_counter()
        inject(drill, times[0] if short else times[1])
        print(
            f"{inject.__name__}: {time.perf_counter() - start:.0f} s, {drill.wrong} wrong so far", flush=True
        )
    print(", ".join(f"{kind} {number}" for kind, number in drill.faults.items()))
    print(f"steps lost {sum(drill.lost)}, at most {max(drill.lost)} at once; saved every {SAVE_EVERY}")
    print(f"faults injected {drill.faults.total()}")
    print(f"wrong results {drill.wrong}")
    return int(drill.wrong > 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="drill", description=__doc__, formatter_class=formatter)
    parser.add_argument("--short", action="store_true", help="a few of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the choices; the clock decides, too")
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="drill-") as folder:
        sys.exit(drill_all(asked.short, asked.seed, Path(folder)))
