"""A drill: processes that train under limits and report each stage, and the comparison of their files."""

import hashlib
import json
import os
import re
import resource
import shutil
import signal
import sys
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

from latent_tokens.cli import main
from latent_tokens.commands import RUN
from latent_tokens.commands.train import Train, run_train

SAVE_EVERY = 3  # steps
HANGS = 300  # seconds after which a process counts as hung


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
        rows = [json.loads(line) for line in contents["metrics.jsonl"].splitlines()]
        timed = ("tokens_per_second", "seconds")
        contents["metrics.jsonl"] = [{name: row[name] for name in row if name not in timed} for row in rows]
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
