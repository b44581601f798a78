"""Processes that train under limits and report each stage, and the comparison of their files."""

import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import namedtuple
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from socket import socket

from latent_tokens.cli import main
from latent_tokens.commands import RUN
from latent_tokens.commands.train import Train, run_train
from latent_tokens.training.locking import LOCK

SAVE_EVERY, EVALUATE_EVERY, KEEP = 3, 7, 3
HANGS = 300  # seconds after which a process counts as hung
OPTIONS = (
    f"--save-every {SAVE_EVERY} --evaluate-every {EVALUATE_EVERY} --keep {KEEP} "
    "--precision fp32 --resume auto"
)

Fault = namedtuple("Fault", "kind process step moment followed lost", defaults=(0,))


@dataclass
class Child:
    """A forked process that trains. It reports (stage, step) in lines."""

    number: int
    pid: int
    folder: Path
    reports: object
    output: object
    stages: list = field(default_factory=list)
    code: int = 0
    text: str = ""

    def listen(self, stage="", times=1):
        """Wait until it has reported a stage that often. Return False if it ended before."""
        for line in self.reports:
            word, about = line.split(maxsplit=1)
            self.stages.append((word, about.strip()))
            times -= word == stage
            if not times:
                return True
        return False

    def end(self):
        """Wait for its end."""
        self.listen()
        self.text = self.output.read()
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.reports.close()
        self.output.close()

    def steps(self, *stages):
        return [int(about) for word, about in self.stages if word in stages]

    @property
    def files(self):
        """The file operation at which it was killed, or None."""
        return " ".join(nameless(about) for word, about in self.stages if word == "file")

    @property
    def moment(self):
        """A description of its end."""
        word = next((word for word, _ in reversed(self.stages) if word != "file"), "starting")
        return "training" if word in ("begun", "done", "kept", "saved") else word

    @property
    def line(self):
        """Return its last output if that is one line, otherwise all of it."""
        progress = ("scdm on sudoku-4: ", f"{self.folder}")
        lines = [line for line in self.text.splitlines() if not line.startswith(progress)]
        is_one = len(lines) == 1 and lines[0].startswith("latent-tokens: ")
        return lines[0].removeprefix("latent-tokens: ") if is_one else f"not one line: {self.text}"


class Drill:
    """The faults so far, their directory, and the problems."""

    def __init__(self, place, num_steps, seed):
        self.place, self.num_steps, self.rng = place, num_steps, random.Random(seed)
        self.data, self.undisturbed = place / "data", place / "undisturbed"
        self.faults, self.wrong, self.numbers = [], [], count(1)

    def arguments(self, folder, num_steps=None):
        """Return the command that trains into a directory, or resumes there."""
        options = f"--steps {num_steps or self.num_steps} --batch-size 4 --warmup 4 {OPTIONS}"
        return ["train", "sudoku-4", "scdm", *options.split(), "--data", f"{self.data}", "--out", f"{folder}"]

    def check(self, holds, problem):
        """Record a problem unless the condition is true."""
        if not holds:
            self.wrong.append(problem)
            print(f"WRONG: {problem}", flush=True)

    def note(self, *row):
        self.faults.append(Fault(*row))

    def fork(self, folder, work, *, limit=None, die_at=0, environment=None):
        """Run work in a process with limits on time, file size and the number of file operations."""
        if len(os.listdir("/proc/self/task")) > 1:
            raise RuntimeError("a process with threads must not be forked. Start it with OMP_NUM_THREADS=1.")
        (reports, report_to), (output, write_to) = os.pipe(), os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.dup2(write_to, 1)
                os.dup2(write_to, 2)
                signal.alarm(HANGS)
                signal.signal(signal.SIGINT, signal.default_int_handler)  # the background ignores it
                os.environ |= environment or {}
                if limit is not None:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

                def tell(stage, about):
                    os.write(report_to, f"{stage} {about}\n".encode())

                RUN[Train] = partial(run_train, observe=tell)
                if die_at:
                    die_at_file(folder, die_at, tell)
                os._exit(work())
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        os.close(report_to)
        os.close(write_to)
        return Child(next(self.numbers), pid, folder, os.fdopen(reports), os.fdopen(output))

    def train(self, folder, plan=None, *, behind=0.0, **limits):
        """Return a process that has trained, and the result of the plan. It starts at the last checkpoint."""
        expected = complete_step(folder)
        work = partial(main, self.arguments(folder))
        child = self.fork(folder, partial(with_clock_back, behind, work) if behind else work, **limits)
        done = plan(child) if plan else ""
        child.end()
        begun = child.steps("begun")
        self.check(child.code != -signal.SIGALRM, f"{folder.name}: hung, {child.stages[-3:]}")
        self.check(begun in ([], [expected]), f"{folder.name}: began at {begun}, not at {expected}")
        return child, done

    def pair(self, folder, num_steps):
        """Return two processes that train together."""
        with socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        work = partial(main, self.arguments(folder, num_steps))
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        ranks = ("0", "1")
        return [self.fork(folder, work, environment={**shared, "RANK": r, "LOCAL_RANK": r}) for r in ranks]

    def ended(self, child, code, pattern=""):
        """Check the exit code of a process and its one line."""
        holds = child.code == code and re.search(pattern, child.line if pattern else "") is not None
        self.check(holds, f"{child.folder.name}: ended with {child.code}, {child.line}")

    def finish(self, folder, remove=True):
        """Train to the end. The result must equal that of the uninterrupted run."""
        self.ended(self.train(folder)[0], 0)
        self.compare(folder)
        if remove:
            shutil.rmtree(folder)

    def compare(self, folder, but=()):
        """Compare a finished run with the uninterrupted one, except for files that signals may change."""
        ours, theirs = (comparable(place, but) for place in (folder, self.undisturbed))
        self.check(ours.keys() == theirs.keys(), f"{folder.name}: holds {sorted(ours)}, not {sorted(theirs)}")
        for name in ours.keys() & theirs.keys():
            equal = ours[name] == theirs[name]
            self.check(equal, f"{folder.name}: its {name} is not the undisturbed run's")

    def killed(self, child, kind, cause=""):
        """Record a process that ended: the steps to repeat are at most those since the last checkpoint."""
        saved = complete_step(child.folder)
        step = max(child.steps("begun", "done"), default=saved)
        problem = f"{child.folder.name}: step {step} was done, and {saved} is saved"
        self.check(0 <= step - saved <= SAVE_EVERY, problem)
        left = [path.name for path in sorted(child.folder.glob(".*")) if path.name != LOCK]
        followed = f"left {nameless(left[0])}" if left else ""
        moment = child.moment + (cause and f": {cause}")
        self.note(kind, str(child.number), step, moment, followed, step - saved)


def die_at_file(folder, number, tell):
    """Kill this process before the file operation of that number in the directory."""
    operations = count(1)

    def audit(event, about):
        is_write = event == "open" and isinstance(about[1], str) and about[1][0] in "wa"
        if not (is_write or event in ("os.rename", "os.remove")) or not str(about[0]).startswith(
            f"{folder}/"
        ):
            return
        if next(operations) == number:
            tell("file", f"{event.removeprefix('os.')} {Path(about[0]).name}")
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)


def with_clock_back(seconds, work):
    """Set the clock of this process back at every second call. `monotonic` is not changed."""
    now, looks = time.time, count()
    time.time = lambda: now() - seconds * (next(looks) % 2)
    return work()


def nameless(name):
    """Return a file name without its hash or process number."""
    return re.sub(r"-[0-9a-f]{16}|\.\d+$", "", name)


def complete_step(folder):
    """Return the step of the latest checkpoint whose bytes hash to its name."""
    latest = 0
    for path in folder.glob("state-*"):
        _, step, name = path.stem.split("-")
        with suppress(FileNotFoundError):  # removed meanwhile
            if hashlib.sha256(path.read_bytes()).hexdigest().startswith(name):
                latest = max(latest, int(step))
    return latest


def comparable(folder, but):
    """Return {name: content} of the files of a run. Of older checkpoints only the number is returned."""
    states = sorted((path.name for path in folder.glob("state-*")), reverse=True)
    paths = {path.name: path for path in folder.iterdir() if path.name not in (*but, *states[1:])}
    contents = {name: (timeless if name.endswith("l") else Path.read_bytes)(paths[name]) for name in paths}
    return {**contents, "checkpoints": len(states)}


def timeless(metrics):
    """Return rows of metrics without times."""
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [
        {name: value for name, value in row.items() if name not in ("tokens_per_second", "seconds")}
        for row in rows
    ]
