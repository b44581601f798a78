"""The processes of the readers. Each restarts after an input that ended it."""

import ctypes
import json
import os
import shutil
import signal
import sys
import time
import traceback
from multiprocessing.sharedctypes import RawValue
from typing import NamedTuple

from faults import inside
from faults.seeds import files_of, keep

MOST_FINDINGS = 50
COUNTS = ("tried", "past", "accepted", "refused", "slowest", "peak")


class Shared(ctypes.Structure):
    """The current input, its start time, and counts, in memory that both processes share."""

    _fields_ = [(name, ctypes.c_double) for name in ("number", "begun", *COUNTS)]


class Result(NamedTuple):
    """The results of a reader: counts, and findings by problem."""

    reader: str
    counts: dict
    found: dict


class Worker:
    """The process of a reader. It restarts after an input that ended it."""

    def __init__(self, reader, seeds, fixtures, count, seed, out, only=None):
        self.reader, self.seeds, self.fixtures = reader, seeds, fixtures
        self.count, self.seed, self.out, self.only = count, seed, out, only
        self.hostile = reader.hostile(seeds)
        self.folder = fixtures.folder.parent / f"worker-{reader.name.replace(' ', '-')}"
        self.shared = RawValue(Shared)
        self.start(0)

    def start(self, number):
        """Fork, and read the inputs from that number on."""
        self.folder.mkdir(exist_ok=True)
        self.shared.number, self.shared.begun = number, time.monotonic() + 60  # the seeds come first
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            return
        code = 3
        try:
            inside.Inside(self).run(number)
            code = 0
        except BaseException:
            (self.folder / "died").write_text(traceback.format_exc())
        finally:
            os._exit(code)

    def ended(self):
        """Return whether all inputs are read. Stop the process after a timeout, which is a finding."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        late = not pid and time.monotonic() - self.shared.begun > inside.SECONDS
        if late:
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
        if not (pid or late) or not status:
            return bool(pid or late)
        died = self.folder / "died"
        if died.exists():
            raise AssertionError(f"the process of {self.reader.name} failed: {died.read_text()}")
        name = signal.Signals(os.WTERMSIG(status)).name
        problem = f"takes more than {inside.SECONDS} s" if late else f"ends the process by {name}"
        case = {
            name.removeprefix("case/"): content for name, content in files_of(self.folder / "case").items()
        }
        keep(self, problem, problem, {name: case[name] for name in case if not name.startswith("out/")})
        following = int(self.shared.number) + 1
        if following >= self.count or len(self.findings()) > MOST_FINDINGS:
            return True
        self.start(following)
        return False

    def findings(self):
        """Return the findings so far, the smallest input of each."""
        found = {}
        path = self.folder / "found.jsonl"
        for line in path.read_text().splitlines() if path.exists() else []:
            row = json.loads(line)
            before = found.get(row["what"], {"times": 0, "size": row["size"] + 1})
            smallest = row if row["size"] < before["size"] else before
            found[row["what"]] = {**smallest, "times": before["times"] + 1}
        return found

    def result(self):
        counts = {name: getattr(self.shared, name) for name in COUNTS}
        return Result(self.reader.name, counts, self.findings())


def run_all(jobs, processes, tell=lambda text: None):
    """Return the results of (reader, seeds, fixtures, count, seed, out, only) each, some at a time."""
    waiting, running, results = list(jobs), [], []
    while waiting or running:
        while waiting and len(running) < processes:
            running.append(Worker(*waiting.pop(0)))
        for worker in [worker for worker in running if worker.ended()]:
            running.remove(worker)
            results.append(worker.result())
            num_inputs, num_findings = int(worker.shared.tried), len(results[-1].found)
            tell(f"{worker.reader.name}: {num_inputs:,} inputs, {num_findings} findings")
            shutil.rmtree(worker.folder, ignore_errors=True)
        time.sleep(0.02)
    return results
