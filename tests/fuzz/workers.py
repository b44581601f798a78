"""Run one reader in a process that may die: limits on memory, files and time, and a record of accesses."""

import io
import json
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
import zipfile
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random

from fuzz.cases import put
from fuzz.mutations import MARK
from fuzz.readers import next_case, tame_the_commands

SECONDS, MEGABYTES = 10, 1_024  # that one input may take
LARGEST_FILE = 64 << 20
BY_HYPOTHESIS = 10  # one input in so many is hypothesis's
OUT_OF_MEMORY = re.compile(r"MemoryError|allocate|out of memory|bad_alloc|File too large", re.IGNORECASE)
FIELDS = ("number", "begun", "tried", "past", "accepted", "refused", "slowest", "peak")
HARMFUL = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.forkpty",
    "os.spawn",
    "subprocess.Popen",
    "socket.connect",
    "ctypes.dlopen",
    "pty.spawn",
)
WRITING = (
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.chown",
    "os.truncate",
    "shutil.rmtree",
    "os.utime",
)


@dataclass
class Result:
    """What a reader made of its inputs."""

    reader: str
    counts: dict[str, float] = field(default_factory=dict)
    found: dict[str, dict[str, object]] = field(default_factory=dict)  # by what and where


class Worker:
    """Process of a reader: read the inputs from a number on, and restart after an input that ended it."""

    def __init__(self, reader, seeds, fixtures, count, seed, out, only=None):
        self.reader, self.seeds, self.fixtures, self.count, self.seed, self.out, self.only = (
            reader,
            seeds,
            fixtures,
            count,
            seed,
            out,
            only,
        )
        self.folder = fixtures.folder.parent / f"worker-{reader.name.replace(' ', '-')}"
        self.shared = multiprocessing.get_context("fork").RawArray("d", len(FIELDS))
        self.found = {}
        self.start(0)

    def start(self, number):
        """Forks."""
        self.folder.mkdir(exist_ok=True)
        self.set(number=number, begun=time.monotonic() + 60)  # the seeds themselves come first
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            code = 3
            try:
                Inside(self).run(number)
                code = 0
            except BaseException:
                (self.folder / "died").write_text(traceback.format_exc())
            finally:
                os._exit(code)

    def set(self, **values):
        for name, value in values.items():
            self.shared[FIELDS.index(name)] = value

    def get(self, name):
        return self.shared[FIELDS.index(name)]

    def ended(self):
        """Return whether all inputs are read. Stop the process after a timeout, which is a finding."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        late = not pid and time.monotonic() - self.get("begun") > SECONDS
        if late:
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
        elif not pid:
            return False
        if not status:
            return True
        died, number = self.folder / "died", int(self.get("number"))
        if died.exists():
            raise AssertionError(f"the drill of {self.reader.name} broke: {died.read_text()}")
        what = (
            f"takes more than {SECONDS} s"
            if late
            else f"ends the process by {signal.Signals(os.WTERMSIG(status)).name}"
        )
        case = {
            str(file.relative_to(self.folder / "case")): file.read_bytes()
            for file in (self.folder / "case").rglob("*")
            if file.is_file()
        }
        keep(
            self, what, what, {name: content for name, content in case.items() if not name.startswith("out/")}
        )
        if number + 1 >= self.count or len(self.read_found()) > 50:
            return True
        self.start(number + 1)
        return False

    def read_found(self):
        """The findings so far, the smallest input of each."""
        found = {}
        place = self.folder / "found.jsonl"
        for line in place.read_text().splitlines() if place.exists() else []:
            row = json.loads(line)
            before = found.get(row["what"])
            row["times"] = 1 + (before["times"] if before else 0)
            found[row["what"]] = (
                row if before is None or row["size"] < before["size"] else {**before, "times": row["times"]}
            )
        return found

    def result(self):
        counts = {name: self.get(name) for name in FIELDS[2:]}
        return Result(self.reader.name, counts, self.read_found())


def keep(worker, what, said, case):
    """Saves an input with what is wrong with it."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, inner in case.items():
            file.writestr(zipfile.ZipInfo(name), inner)
    whole = content.getvalue()
    worker.out.mkdir(parents=True, exist_ok=True)
    path = worker.out / f"{worker.reader.name.replace(' ', '-')}-{sha256(whole).hexdigest()[:10]}.zip"
    path.write_bytes(whole)
    size = sum(map(len, case.values()))
    with (worker.folder / "found.jsonl").open("a") as file:
        file.write(json.dumps({"what": what, "said": said[-2_000:], "size": size, "file": str(path)}) + "\n")


def unpacked(file):
    """The case that `keep` saved."""
    with zipfile.ZipFile(file) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


class Inside:
    """What the process itself does."""

    def __init__(self, worker):
        self.worker, self.reader, self.fixtures = worker, worker.reader, worker.fixtures
        self.place, self.mark = worker.folder / "case", worker.folder.parent / f"mark-{os.getpid()}"
        self.watching, self.arguments, self.seen, self.kept = False, "", [], {}

    def run(self, first):
        """Reads all inputs from number `first` on."""
        self.settle()
        for case in self.worker.seeds:
            self.prepare(case)
            try:
                self.reader.read(self.place, self.fixtures)
            except (ValueError, OSError) as error:
                keep(self.worker, "a valid input is refused", str(error), case)
        self.limit()
        if self.worker.only is not None:
            self.attempt(self.worker.only)
            return
        count = self.worker.count
        last = count - count // BY_HYPOTHESIS
        for number in range(first, last):
            self.worker.set(number=number)
            self.attempt(
                next_case(
                    self.reader, self.worker.seeds, Random(f"{self.worker.seed} {self.reader.name} {number}")
                )
            )
        self.by_hypothesis(max(first, last))

    def by_hypothesis(self, first):
        """Run the remaining inputs: hypothesis draws mutations or file content, and shrinks the findings."""
        from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

        scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
        values = st.recursive(
            scalars,
            lambda inner: (
                st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=10), inner, max_size=5)
            ),
            max_leaves=20,
        )
        contents = st.binary(max_size=200) | st.text(max_size=200).map(
            lambda text: text.encode("utf-8", "surrogatepass")
        )
        contents |= values.map(lambda value: json.dumps(value).encode())
        left = [self.worker.count - first]

        def drawn(draws, content):
            if content is None or self.reader.change is not None:
                return next_case(self.reader, self.worker.seeds, draws)
            case = dict(draws.choice(self.worker.seeds))
            return {
                **case,
                draws.choice(
                    sorted(case)[-1:] if "task" in case or "tool" in case else sorted(case)
                ): content,
            }

        @seed(f"{self.worker.seed} {self.reader.name} {first}")
        @settings(
            max_examples=max(1, left[0]),
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(st.randoms(use_true_random=False), st.none() | contents)
        def drill(draws, content):
            case = drawn(draws, content)  # hypothesis may end a draw that is too long
            self.worker.set(number=self.worker.count - left[0])
            left[0] -= 1
            assert self.attempt(case) is None

        while left[0] > 0:
            before = left[0]
            with suppress(BaseException):  # what it raises has been kept
                drill()
            if before - left[0] < 10:
                break
        for number in range(self.worker.count - left[0], self.worker.count):
            self.attempt(
                next_case(
                    self.reader, self.worker.seeds, Random(f"{self.worker.seed} {self.reader.name} {number}")
                )
            )

    def settle(self):
        """A place of its own, quiet, with the fixtures copied so that they stay as they are."""
        os.setsid()
        os.environ[MARK] = str(self.mark)
        copied = self.worker.folder / "fixtures"
        if not copied.exists():
            shutil.copytree(self.fixtures.folder, copied)
        self.fixtures.folder = copied
        self.fixtures.made = lambda name: copied / name if (copied / name).exists() else copied / "nowhere"
        tame_the_commands()
        sink = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(sink, stream)
        work = self.worker.folder / "work"
        work.mkdir(exist_ok=True)
        os.chdir(work)
        warnings.simplefilter("error")
        for category in (
            DeprecationWarning,
            PendingDeprecationWarning,
            ImportWarning,
            ResourceWarning,
            FutureWarning,
        ):
            warnings.simplefilter("ignore", category)

    def limit(self):
        """From here on memory, files and deeds are watched."""
        data = int(re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10
        resource.setrlimit(resource.RLIMIT_DATA, (data + (MEGABYTES << 20),) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self.status = os.open("/proc/self/status", os.O_RDONLY)
        sys.addaudithook(self.audit)

    def audit(self, event, arguments):
        """Refuses, and writes down, what reading a file must never do."""
        if not self.watching:
            return
        if event in HARMFUL and not (event == "ctypes.dlopen" and str(arguments[0]) in ("None", "libc.so.6")):
            self.seen.append(f"{event} {str(arguments[:1])[:200]}")
            raise PermissionError(f"the drill forbids {event}")
        if event == "open" and isinstance(arguments[0], str | bytes):
            writes = bool(set(str(arguments[1])) & set("wax+")) or bool(
                (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            )
            self.check(event, arguments[0], writes)
        elif event in WRITING and isinstance(arguments[0], str | bytes | os.PathLike):
            self.check(event, arguments[0], True)

    def check(self, event, path, writes):
        """Return whether a file may be opened: written in the worker's directory, read also elsewhere."""
        name = os.path.abspath(os.fsdecode(path))
        home = str(self.worker.folder) + os.sep
        inside = name.startswith((str(self.place) + os.sep, home + "work", home + "fixtures"))
        if name in (str(self.place), os.devnull) or inside or "__pycache__" in name:
            return
        strange = name.startswith(home) and "/secret/" in name
        if writes or strange:
            own = self.reader.change is not None and any(
                part in self.arguments for part in re.split(r"/|\.unfinished|/\.", name)[-3:] if part
            )
            if not own:
                self.seen.append(f"{event} {'writes' if writes else 'reads'} outside: {name[:200]}")
            raise PermissionError(13, "the drill forbids it", name)

    def prepare(self, case):
        shutil.rmtree(self.place, ignore_errors=True)
        for left in (self.worker.folder / "work").iterdir():
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
        self.place.mkdir()
        put(self.place, case)
        self.arguments = os.fsdecode(case.get("arguments.json", b""))

    def memory(self, name):
        """A figure of this process in megabytes."""
        return int(re.search(name + rb":\s+(\d+)", os.pread(self.status, 4_096, 0))[1]) / 1_024

    def attempt(self, case):
        """Gives a case to the reader; gives what is wrong with how it was taken, None where nothing is."""
        worker = self.worker
        worker.set(begun=time.monotonic() + 5)
        self.prepare(case)
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
        before, self.seen, wrong, outcome = self.memory(b"VmRSS"), [], None, "refused"
        begun, worker.shared[1] = time.perf_counter(), time.monotonic()
        self.watching = True
        try:
            self.reader.read(self.place, self.fixtures)
            outcome = "accepted"
        except (ValueError, OSError) as error:
            self.watching = False
            said = str(error)
            if (
                not said or "\n" in said or "the drill forbids" in said
            ):  # of a process that reads beforehand, whose deeds are not seen here
                wrong = (f"no one line: {self.where(error)}", said)
            elif OUT_OF_MEMORY.search(said) and self.reader.change is None:
                wrong = (f"out of memory: {self.where(error)}", said)
        except BaseException as error:
            self.watching = False
            wrong = (self.where(error), traceback.format_exc())
        self.watching = False
        took, peak = 1_000 * (time.perf_counter() - begun), self.memory(b"VmHWM") - before
        worker.set(begun=time.monotonic() + 5)
        if self.seen:
            wrong = (re.sub(r"/\S*", "...", self.seen[0]), "\n".join(self.seen))
        if self.mark.exists():
            self.mark.unlink()
            wrong = ("executed", str(self.seen))
        if peak > MEGABYTES:
            wrong = ("memory", f"{peak:.0f} MB")
        if took > 1_000 * SECONDS:
            wrong = (f"takes more than {SECONDS} s", f"{took:.0f} ms")
        if wrong is not None:
            size = sum(map(len, case.values()))
            if size < self.kept.get(wrong[0], 1 << 60):
                self.kept[wrong[0]] = size
                keep(worker, *wrong, case)
        try:
            past = outcome == "accepted" or self.reader.past(self.place)
        except OSError:  # a file that the case lacks
            past = False
        for name, value in (("tried", 1), ("past", past), (outcome, 1)):
            worker.set(**{name: worker.get(name) + value})
        worker.set(slowest=max(worker.get("slowest"), took), peak=max(worker.get("peak"), peak))
        return wrong

    @staticmethod
    def where(error):
        """An error's type and the place in the package where it comes from."""
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if "latent_tokens" in frame.filename or "/fuzz/" in frame.filename
        ]
        last = frames[-1] if frames else None
        text = (
            re.sub(r"[0-9]+|/\S*|'[^']*'", "_", str(error))[:60] if isinstance(error, AssertionError) else ""
        )
        return (
            f"{type(error).__name__} {text}at {Path(last.filename).name}:{last.lineno}"
            if last
            else type(error).__name__
        )


def drilled(jobs, processes, tell=lambda text: None):
    """The results of (reader, seeds, fixtures, count, seed, out) each, some at a time."""
    waiting, running, results = list(jobs), [], []
    while waiting or running:
        while waiting and len(running) < processes:
            running.append(Worker(*waiting.pop(0)))
        for worker in [worker for worker in running if worker.ended()]:
            running.remove(worker)
            results.append(worker.result())
            tell(
                f"{worker.reader.name}: {int(worker.get('tried')):,} inputs, {len(results[-1].found)} "
                f"findings"
            )
            shutil.rmtree(worker.folder, ignore_errors=True)
        time.sleep(0.02)
    return results
