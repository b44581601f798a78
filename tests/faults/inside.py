"""The process that reads the inputs: limits on memory and files, and a record of accesses."""

import json
import os
import re
import resource
import shutil
import sys
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from random import Random

from faults.archives import MARK
from faults.commands import limit_commands
from faults.readers import next_case
from faults.seeds import keep, put

SECONDS, MEGABYTES = 10, 1_024  # that one input may take
LARGEST_FILE = 64 << 20
BY_HYPOTHESIS = 10  # of this many inputs, hypothesis draws one
OUT_OF_MEMORY = re.compile(r"MemoryError|allocate|out of memory|bad_alloc|File too large", re.IGNORECASE)
HARMFUL = {
    "os.system", "os.exec", "os.posix_spawn", "os.forkpty", "os.spawn", "subprocess.Popen", "socket.connect",
    "ctypes.dlopen", "pty.spawn",
}  # fmt: skip
WRITING = {
    "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown",
    "os.truncate", "shutil.rmtree", "os.utime",
}  # fmt: skip
FLAGS_OF_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
IGNORED = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning, FutureWarning)
NO_ACCESS = "the drill forbids"


class Inside:
    """The work of the process."""

    def __init__(self, worker):
        self.worker, self.reader, self.fixtures = worker, worker.reader, worker.fixtures
        self.place, self.mark = worker.folder / "case", worker.folder.parent / f"mark-{os.getpid()}"
        self.watching, self.arguments, self.seen, self.kept = False, "", [], {}

    def run(self, start):
        """Read all inputs from number `start` on: valid ones, hostile ones, mutations, and hypothesis's."""
        worker = self.worker
        self.settle()
        for case in worker.seeds:
            self.prepare(case)
            try:
                self.reader.read(self.place, self.fixtures)
            except (ValueError, OSError) as error:
                keep(worker, "a valid input is refused", str(error), case)
        self.limit()
        if worker.only is not None:
            self.attempt(worker.only)
            return
        for name, case in worker.hostile if not start else []:
            self.attempt(case, f"a hostile input is accepted: {name}")
        last = worker.count - worker.count // BY_HYPOTHESIS
        for number in range(start, last):
            worker.shared.number = number
            self.attempt(self.drawn(number))
        self.by_hypothesis(max(start, last))

    def drawn(self, number):
        rng = Random(f"{self.worker.seed} {self.reader.name} {number}")
        return next_case(self.reader, self.worker.seeds, rng)

    def by_hypothesis(self, start):
        """Run the remaining inputs: hypothesis draws mutations or file content, and shrinks the findings."""
        from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

        scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
        keys = st.text(max_size=10)
        values = st.recursive(
            scalars,
            lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5),
            max_leaves=20,
        )
        texts = st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
        contents = st.binary(max_size=200) | texts | values.map(lambda value: json.dumps(value).encode())
        options = {"phases": (Phase.generate, Phase.shrink), "suppress_health_check": list(HealthCheck)}
        options |= {"database": None, "deadline": None}
        worker = self.worker
        left = worker.count - start

        def drawn(draws, content):
            if content is None or self.reader.change is not None:
                return next_case(self.reader, worker.seeds, draws)
            case = dict(draws.choice(worker.seeds))
            names = sorted(case)[-1:] if "task" in case or "tool" in case else sorted(case)
            return {**case, draws.choice(names): content}

        @seed(f"{worker.seed} {self.reader.name} {start}")
        @settings(max_examples=max(1, left), **options)
        @given(st.randoms(use_true_random=False), st.none() | contents)
        def drill(draws, content):
            nonlocal left
            case = drawn(draws, content)  # hypothesis may end a draw that is too long
            worker.shared.number = worker.count - left
            left -= 1
            assert self.attempt(case) is None

        while left > 0:
            before = left
            with suppress(BaseException):  # its error has been saved
                drill()
            if before - left < 10:
                break
        for number in range(worker.count - left, worker.count):
            self.attempt(self.drawn(number))

    def settle(self):
        """Go to a directory of its own, without output, with copies of the fixtures."""
        os.setsid()
        os.environ[MARK] = str(self.mark)
        copied = self.worker.folder / "fixtures"
        if not copied.exists():
            shutil.copytree(self.fixtures.folder, copied)
        self.fixtures.folder = copied
        self.fixtures.made = lambda name: copied / name if (copied / name).exists() else copied / "nowhere"
        limit_commands()
        sink = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(sink, stream)
        work = self.worker.folder / "work"
        work.mkdir(exist_ok=True)
        os.chdir(work)
        warnings.simplefilter("error")
        for category in IGNORED:
            warnings.simplefilter("ignore", category)

    def limit(self):
        """Watch memory, files and accesses from now on."""
        data = int(re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10
        resource.setrlimit(resource.RLIMIT_DATA, (data + (MEGABYTES << 20),) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self.status = os.open("/proc/self/status", os.O_RDONLY)
        sys.addaudithook(self.audit)

    def audit(self, event, arguments):
        """Refuse and record actions that reading a file must never cause."""
        if not self.watching:
            return
        first = arguments[0] if arguments else None
        if event in HARMFUL and not (event == "ctypes.dlopen" and str(first) in ("None", "libc.so.6")):
            self.seen.append(f"{event} {str(arguments[:1])[:200]}")
            raise PermissionError(f"{NO_ACCESS} {event}")
        if event == "open" and isinstance(first, str | bytes):
            writes = set(str(arguments[1])) & set("wax+") or (arguments[2] or 0) & FLAGS_OF_WRITING
            self.check(event, first, bool(writes))
        elif event in WRITING and isinstance(first, str | bytes | os.PathLike):
            self.check(event, first, True)

    def check(self, event, path, writes):
        """Refuse to open a file: written outside of the worker's directory, or secret."""
        name = os.path.abspath(os.fsdecode(path))
        home = str(self.worker.folder) + os.sep
        inside = name.startswith((str(self.place) + os.sep, home + "work", home + "fixtures"))
        if name in (str(self.place), os.devnull) or inside or "__pycache__" in name:
            return
        if not writes and not (name.startswith(home) and "/secret/" in name):
            return
        parts = [part for part in re.split(r"/|\.unfinished|/\.", name)[-3:] if part]
        parts += [json.dumps(place) for place in (name, os.path.dirname(name))]
        asked_for = self.reader.change is not None and any(part in self.arguments for part in parts)
        if not asked_for:
            self.seen.append(f"{event} {'writes' if writes else 'reads'} outside: {name[:200]}")
        raise PermissionError(13, f"{NO_ACCESS} it", name)

    def prepare(self, case):
        shutil.rmtree(self.place, ignore_errors=True)
        for left in (self.worker.folder / "work").iterdir():
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
        self.place.mkdir()
        put(self.place, case)
        self.arguments = os.fsdecode(case.get("arguments.json", b""))

    def memory(self, name):
        """Return a figure of this process in megabytes."""
        return int(re.search(name + rb":\s+(\d+)", os.pread(self.status, 4_096, 0))[1]) / 1_024

    def attempt(self, case, if_accepted=None):
        """Pass a case to the reader. Return (problem, message), or None if it behaved."""
        shared = self.worker.shared
        shared.begun = time.monotonic() + 5
        self.prepare(case)
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again
        memory, self.seen = self.memory(b"VmRSS"), []
        shared.begun = start = time.monotonic()
        self.watching = True
        error = self.error_of_reader()
        self.watching = False
        took, peak = 1_000 * (time.monotonic() - start), self.memory(b"VmHWM") - memory
        shared.begun = time.monotonic() + 5

        # What is wrong, with the smallest input of each problem.
        problem = next(self.problems_of(error, if_accepted, took, peak), None)
        size = sum(map(len, case.values()))
        if problem is not None and size < self.kept.get(problem[0], 1 << 60):
            self.kept[problem[0]] = size
            keep(self.worker, *problem, case)

        # The counts. The first check may miss a file that the case lacks.
        shared.tried += 1
        shared.accepted += error is None
        shared.refused += error is not None
        with suppress(OSError):
            shared.past += error is None or self.reader.past(self.place)
        shared.slowest = max(shared.slowest, took)
        shared.peak = max(shared.peak, peak)
        return problem

    def error_of_reader(self):
        try:
            self.reader.read(self.place, self.fixtures)
        except BaseException as error:
            self.watching = False
            return error

    def problems_of(self, error, if_accepted, took, peak):
        """Yield (problem, message) of the handling of an input, the worst first."""
        message = "" if error is None else str(error)
        if self.mark.exists():
            self.mark.unlink()
            yield "executed", str(self.seen)
        if took > 1_000 * SECONDS:
            yield f"takes more than {SECONDS} s", f"{took:.0f} ms"
        if peak > MEGABYTES:
            yield "memory", f"{peak:.0f} MB"
        if self.seen:
            yield re.sub(r"/\S*", "...", self.seen[0]), "\n".join(self.seen)
        if error is None:
            yield if_accepted and (if_accepted, "")
        elif not isinstance(error, ValueError | OSError):
            yield where(error), "".join(traceback.format_exception(error))
        elif not message or "\n" in message or (NO_ACCESS in message and self.reader.change is None):
            yield f"no one line: {where(error)}", message
        elif self.reader.change is None and OUT_OF_MEMORY.search(message):
            yield f"out of memory: {where(error)}", message


def where(error):
    """Return an error's type and its place in the package."""
    frames = traceback.extract_tb(error.__traceback__)
    frames = [f for f in frames if "latent_tokens" in f.filename or "/faults/" in f.filename]
    text = re.sub(r"[0-9]+|/\S*|'[^']*'", "_", str(error))[:60] if isinstance(error, AssertionError) else ""
    place = f"{text}at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__} {place}".rstrip()
