"""Fault drill: interrupt one small training run again and again, resume it, and compare the final bytes.

    python scripts/drill.py            about 200 kills, full disks, damaged files, signals: minutes
    python scripts/drill.py --short    a handful of each: the test suite's

Exit code 1 if a result differs. Processes are forked from one that has imported torch and has one thread,
so they start quickly.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from typing import Any, TextIO

import torch
import torch._dynamo  # AdamW imports it when it is first made
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from latent_tokens import TrainConfig, from_pretrained
from latent_tokens.cli import main
from latent_tokens.storage import provenance
from latent_tokens.training import loop as training, run as training_run
from latent_tokens.training.locking import LOCK

SAVE_EVERY, EVALUATE_EVERY, KEEP = 3, 7, 3
HANGS = 300  # seconds after which a process counts as hung
SPACE = 1 << 20
SIGNALS = {signal.SIGTERM: 75, signal.SIGINT: 130, signal.SIGUSR1: 75}
CONSOLE = Console(width=150 if not sys.stdout.isatty() else None, highlight=False)

Plan = Callable[["Child"], str]  # does something to a process while it trains, and says what


@dataclass
class Child:
    """A forked process that trains, and what it tells: a word and a step a line."""

    number: int
    pid: int
    folder: Path
    telling: TextIO
    saying: TextIO
    told: list[tuple[str, str]] = field(default_factory=list)
    code: int = 0
    said: str = ""

    def listen(self, word: str = "", times: int = 1) -> bool:
        """Waits until it has told a word that often; False where it ended before."""
        for line in self.telling:
            known, about = line.split(maxsplit=1)
            self.told.append((known, about.strip()))
            times -= known == word
            if not times:
                return True
        return False

    def end(self) -> None:
        """Waits for its end."""
        self.listen()
        self.said = self.saying.read()
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.telling.close()
        self.saying.close()

    def steps(self, *words: str) -> list[int]:
        """The steps that it told with those words."""
        return [int(about) for word, about in self.told if word in words]

    @property
    def moment(self) -> str:
        """What it was doing when it ended."""
        word = next((word for word, _ in reversed(self.told) if word != "file"), "starting")
        return {"begun": "training", "done": "training", "saved": "training"}.get(word, word)

    @property
    def line(self) -> str:
        """The one line that it ended with; all that it said where that is not one line."""
        lines = [
            line
            for line in self.said.splitlines()
            if not line.startswith(("scdm on sudoku-4: ", f"{self.folder}"))
        ]  # how far it is
        return (
            lines[0]
            if len(lines) == 1 and lines[0].startswith("latent-tokens: ")
            else f"not one line: {self.said}"
        )


@dataclass
class Fault:
    """A row of the table."""

    kind: str
    process: str
    step: int
    moment: str
    followed: str
    lost: int = 0


@dataclass
class Drill:
    """What was done so far, where, and what went wrong."""

    place: Path
    steps: int
    chance: random.Random
    report: Callable[[str], None]
    faults: list[Fault] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    numbers: Any = field(default_factory=lambda: count(1))

    @property
    def data(self) -> Path:
        return self.place / "data"

    @property
    def whole(self) -> Path:
        """The folder of the undisturbed run."""
        return self.place / "undisturbed"

    def arguments(self, folder: Path, steps: int | None = None) -> list[str]:
        """The command that trains into a folder, or goes on there."""
        every = (
            f"--save-every {SAVE_EVERY} --evaluate-every {EVALUATE_EVERY} --keep {KEEP} "
            "--batch-size 4 --warmup 4 --precision fp32 --resume auto"
        )
        return [
            "train",
            "sudoku-4",
            "scdm",
            "--steps",
            f"{steps or self.steps}",
            "--data",
            f"{self.data}",
            "--out",
            f"{folder}",
            *every.split(),
        ]

    def check(self, holds: bool, what: str) -> None:
        """Notes what is wrong."""
        if not holds:
            self.wrong.append(what)
            CONSOLE.print(f"WRONG: {what}", style="red", markup=False)

    def note(self, fault: Fault) -> None:
        """Adds a row."""
        self.faults.append(fault)
        self.report(fault.kind)

    def train(
        self,
        folder: Path,
        plan: Plan | None = None,
        *,
        limit: int | None = None,
        die_at: int = 0,
        behind: float = 0.0,
    ) -> tuple[Child, str]:
        """Check a process that has ended, and its faults. It must have started at the last complete state."""
        expected = whole_step(folder)
        work = partial(main, self.arguments(folder))
        child = self.fork(folder, partial(with_clock_back, behind, work) if behind else work, limit, die_at)
        done = plan(child) if plan else ""
        child.end()
        self.check(child.code != -signal.SIGALRM, f"{folder.name}: hung, {child.told[-3:]}")
        self.check(
            child.steps("begun") in ([], [expected]),
            f"{folder.name}: began at {child.steps('begun')}, not at {expected}",
        )
        return child, done

    def finish(self, folder: Path, but: Sequence[str] = ()) -> None:
        """Trains to the end, which must be the undisturbed run's."""
        child, _ = self.train(folder)
        self.check(child.code == 0, f"{folder.name}: ended with {child.code}, {child.line}")
        self.compare(folder, but)

    def compare(self, folder: Path, but: Sequence[str] = ()) -> None:
        """Compare a finished run with the undisturbed one, except for files that signals may change."""
        ours, theirs = (
            {path.name: path for path in place.iterdir() if path.name not in but}
            for place in (folder, self.whole)
        )
        states = [
            sorted((name for name in names if name.startswith("state-")), reverse=True)
            for names in (ours, theirs)
        ]
        self.check(len(states[0]) == len(states[1]), f"{folder.name}: holds {states[0]}")
        for names, several in zip((ours, theirs), states, strict=True):
            for name in several[1:]:
                del names[name]
        self.check(ours.keys() == theirs.keys(), f"{folder.name}: holds {sorted(ours)}, not {sorted(theirs)}")
        for name in ours.keys() & theirs.keys():
            equal = (
                timeless(ours[name]) == timeless(theirs[name])
                if name.endswith("l")
                else ours[name].read_bytes() == theirs[name].read_bytes()
            )
            self.check(equal, f"{folder.name}: its {name} is not the undisturbed run's")

    def fork(
        self,
        folder: Path,
        work: Callable[[], int],
        limit: int | None = None,
        die_at: int = 0,
        environment: dict[str, str] | None = None,
    ) -> Child:
        """Run the work and report its progress in a process with limits on file size and file operations."""
        if len(os.listdir("/proc/self/task")) > 1:
            raise RuntimeError("a process with threads must not be forked; start it with OMP_NUM_THREADS=1")
        telling, tells = os.pipe()
        saying, says = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.dup2(says, 1)
                os.dup2(says, 2)
                signal.alarm(HANGS)
                os.environ |= environment or {}
                signal.signal(
                    signal.SIGINT, signal.default_int_handler
                )  # what is started in the background ignores it
                if limit is not None:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
                spy(lambda word, about: os.write(tells, f"{word} {about}\n".encode()), folder, die_at)
                os._exit(work())
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        os.close(tells)
        os.close(says)
        return Child(next(self.numbers), pid, folder, os.fdopen(telling), os.fdopen(saying))

    def killed(self, child: Child, kind: str, moment: str = "") -> None:
        """Record a process that was killed: the steps to repeat are at most those since the last save."""
        step = max(child.steps("begun", "done"), default=whole_step(child.folder))
        lost = step - whole_step(child.folder)
        self.check(
            0 <= lost <= SAVE_EVERY,
            f"{child.folder.name}: step {step} was done, and {whole_step(child.folder)} is saved",
        )
        left = re.sub(
            r"-[0-9a-f]{16}|\.\d+$",
            "",
            next((path.name for path in sorted(child.folder.glob(".*")) if path.name != LOCK), ""),
        )
        self.note(
            Fault(
                kind,
                str(child.number),
                step,
                child.moment + (moment and f": {moment}"),
                left and f"left {left}",
                lost,
            )
        )


def spy(tell: Callable[[str, Any], Any], folder: Path, die_at: int) -> None:
    """Make training report its progress, and kill this process before the file operation of that number."""

    def telling(
        name: str, before: str, step_before: Callable[..., Any], after: str, step_after: Callable[..., Any]
    ) -> None:
        module = training_run if name == "save_state" else training
        work = getattr(module, name)

        def told(*arguments: Any) -> Any:
            tell(before, step_before(*arguments))
            found = work(*arguments)
            tell(after, step_after(found, *arguments))
            return found

        setattr(module, name, told)

    telling("setup", "starting", lambda *_: "-", "begun", lambda run, *_: run.state.step)
    telling("train_step", "training", lambda *a: a[5], "done", lambda _, *a: a[5] + 1)
    telling(
        "validation_loss", "validation", lambda run: run.state.step, "training", lambda _, run: run.state.step
    )
    telling(
        "keep_if_best",
        "keeping",
        lambda run, _: run.state.step,
        "training",
        lambda _, run, __: run.state.step,
    )
    telling("save_state", "saving", lambda *a: a[4].step, "saved", lambda _, *a: a[4].step)
    left = die_at

    def watch(event: str, about: tuple[Any, ...]) -> None:
        nonlocal left
        writes = event in ("os.rename", "os.remove") or (
            event == "open" and isinstance(about[1], str) and about[1][0] in "wa"
        )
        if left and writes and str(about[0]).startswith(f"{folder}/"):
            left -= 1
            if not left:
                tell("file", f"{event.removeprefix('os.')} {Path(about[0]).name}")
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def with_clock_back(seconds: float, work: Callable[[], int]) -> int:
    """Work while the clock of this process jumps by up to this many seconds. monotonic does not jump."""
    now, looks = time.time, count()
    time.time = lambda: now() - seconds * (next(looks) % 2)
    return work()


def whole_step(folder: Path) -> int:
    """The step of the latest state whose bytes hash to its name."""
    latest = 0
    for path in folder.glob("state-*"):
        _, step, name = path.stem.split("-")
        with suppress(FileNotFoundError):  # removed meanwhile
            if hashlib.sha256(path.read_bytes()).hexdigest().startswith(name):
                latest = max(latest, int(step))
    return latest


def timeless(metrics: Path) -> list[dict[str, Any]]:
    """Rows of metrics without what the clock said."""
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "tokens_per_second"} for row in rows]


def damage(path: Path, chance: random.Random) -> str:
    """Flips bits of a file, cuts it, or blanks a part of it; says which."""
    content = bytearray(path.read_bytes())
    place, how = chance.randrange(len(content)), chance.choice(("flipped", "cut", "blanked"))
    if how == "cut":
        del content[place:]
    elif how == "blanked":
        content[place : place + 64] = bytes(len(content[place : place + 64]))
    if how == "flipped" or bytes(content) == path.read_bytes():
        content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return f"{path.name} {how} at {place:,}"


# What is done to a process while it trains.


def at_any_time(chance: random.Random, child: Child) -> str:
    time.sleep(chance.uniform(0, 0.8))
    os.kill(child.pid, signal.SIGKILL)
    return ""


def while_saving(chance: random.Random, longest: float, child: Child) -> str:
    if child.listen("saving", chance.choice((1, 2))):
        time.sleep(chance.uniform(0, longest))
    os.kill(child.pid, signal.SIGKILL)
    return ""


def at_a_temporary_file(chance: random.Random, child: Child) -> str:
    """Kills as soon as it sees one, after some others."""
    start = chance.choice((".state-", ".model.", ".state-"))
    child.listen("begun")
    until = time.perf_counter() + 2
    while time.perf_counter() < until and not any(
        path.name.startswith(start) for path in child.folder.glob(".*")
    ):
        pass
    os.kill(child.pid, signal.SIGKILL)
    return ""


def when_told(word: str, times: int, act: Callable[[Child], str], child: Child) -> str:
    """Acts when the process has told a word that often."""
    return act(child) if child.listen(word, times) else "ended before"


# The kinds of faults.


def kill_again_and_again(drill: Drill, kills: int) -> None:
    """SIGKILL at random moments, at least a third during a save. Each run ends before the next begins."""
    chance, wanted = drill.chance, len(drill.faults) + kills
    longest = save_seconds(drill, "nano")
    plans: list[Plan | None] = [
        partial(while_saving, chance, longest),
        partial(at_a_temporary_file, chance),
        partial(at_any_time, chance),
        None,
    ]
    for run in count(1):
        folder, first = drill.place / f"killed-{run}", 1
        while True:
            plan = chance.choice(plans) if len(drill.faults) < wanted else None
            # A start dies at each of its file operations in turn, later ones at any.
            die_at = (
                0
                if plan or len(drill.faults) >= wanted
                else first
                if not whole_step(folder) and first <= 4
                else chance.randrange(1, 13)
            )
            first += bool(die_at) and not whole_step(folder)
            child, _ = drill.train(folder, plan, die_at=die_at)
            if child.code != -signal.SIGKILL:
                drill.check(child.code == 0, f"{folder.name}: ended with {child.code}, {child.line}")
                break
            drill.killed(
                child,
                "killed",
                " ".join(
                    re.sub(r"-[0-9a-f]{16}|\.\d+$", "", about) for word, about in child.told if word == "file"
                ),
            )
        if child.code == 0:
            drill.compare(folder)
        shutil.rmtree(folder)
        if len(drill.faults) >= wanted or child.code:
            return


def fill_the_disk(drill: Drill, times: int) -> None:
    """Files above a size cannot be written: of metrics, of weights, of a state, of the config."""
    folder = drill.place / "full"
    for turn in range(1 + times):
        limit = (
            300
            if not turn
            else drill.chance.choice(
                (drill.chance.randrange(50, 500), 2 * SPACE, drill.chance.randrange(4, 14) * SPACE)
            )
        )
        child, _ = drill.train(folder, limit=limit)
        refused(
            drill, child, r"cannot be written \(File too large\)|the row cannot be written \(File too large\)"
        )
        drill.killed(child, "disk full", f"files end at {limit:,} bytes")
        if drill.chance.random() < 0.5:  # some steps on
            child, _ = drill.train(folder, partial(when_told, "saved", drill.chance.randrange(1, 4), kill))
            if child.code == 0:  # it was through before it was killed
                shutil.rmtree(folder)
    drill.finish(folder)
    shutil.rmtree(folder)


def fill_a_tmpfs(drill: Drill, times: int) -> None:
    """A file system of a few MB, which then is given more."""
    folder = drill.place / "tmpfs" / "run"
    for _ in range(times):
        size = drill.chance.randrange(1, 55)
        folder.parent.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}m", "drill", folder.parent],
            capture_output=True,
            text=True,
            check=False,
        )
        if mounted.returncode:
            CONSOLE.print(f"no tmpfs was filled: {mounted.stderr.strip()}", markup=False)
            folder.parent.rmdir()
            return
        try:
            child, _ = drill.train(folder)
            refused(drill, child, r"\(No space left on device\)")
            drill.killed(child, "disk full", f"tmpfs of {size} MB")
            subprocess.run(["mount", "-o", "remount,size=200m", folder.parent], check=True)
            drill.finish(folder)
        finally:
            subprocess.run(["umount", folder.parent], check=True)
            folder.parent.rmdir()


def refused(drill: Drill, child: Child, why: str) -> None:
    """A process must have ended with one line that says why, and exit code 2."""
    drill.check(
        child.code == 2 and re.search(why, child.line) is not None,
        f"{child.folder.name}: ended with {child.code}, {child.line}",
    )


def kill(child: Child) -> str:
    os.kill(child.pid, signal.SIGKILL)
    return ""


def half_way(drill: Drill) -> Path:
    """The folder of a run that was stopped in its middle."""
    folder = drill.place / "half-way"
    child, _ = drill.train(
        folder,
        partial(when_told, "done", drill.steps // 2 + 1, lambda child: kill_with(child, signal.SIGTERM)),
    )
    drill.check(child.code == 75, f"{folder.name}: ended with {child.code}, {child.line}")
    return folder


def kill_with(child: Child, number: signal.Signals) -> str:
    os.kill(child.pid, number)
    return number.name


def damage_what_was_saved(drill: Drill, half: Path, times: int) -> None:
    """Saved states, weights, metrics and the config: it goes on to the same end, or stops with one line."""
    targets = [
        "latest",
        "latest two",
        "only an older one",
        "all",
        "model.safetensors",
        "metrics.jsonl",
        "config.json",
    ]
    for target in targets * times:
        folder = drill.place / "damaged"
        source = (
            drill.whole if target == "model.safetensors" else half
        )  # later steps would write better weights
        shutil.copytree(source, folder)
        before = whole_step(folder)
        states = sorted(folder.glob("state-*"), reverse=True)
        paths = {
            "latest": states[:1],
            "latest two": states[:2],
            "only an older one": states[1:2],
            "all": states,
        }.get(target, [folder / target])
        what = ", ".join(damage(path, drill.chance) for path in paths)
        child, _ = drill.train(folder)
        if child.code == 2 and target in ("all", "metrics.jsonl", "config.json"):
            refused(drill, child, r"corrupt|damaged|not JSON|complete|was started with|format")
            followed = child.line.removeprefix("latent-tokens: ").replace(str(folder), "")
            for path in paths:
                shutil.copy2(half / path.name, path)
            drill.finish(folder)
        else:
            drill.check(child.code == 0 and target != "all", f"{what}: ended with {child.code}, {child.line}")
            drill.compare(folder, but=() if target not in ("metrics.jsonl", "config.json") else (target,))
            if target == "config.json":
                drill.check(
                    described(folder) == described(drill.whole), f"{what}: went on with another config.json"
                )
            begun = child.steps("begun")
            followed = f"went on from {begun[0] if begun else '-'}"
        drill.note(
            Fault(
                "saved file damaged",
                str(child.number),
                before,
                re.sub(r"-[0-9a-f]{16}\.safetensors", "", what),
                followed,
            )
        )
        shutil.rmtree(folder)


def set_the_clock_back(drill: Drill, half: Path, times: int) -> None:
    """Set the clock behind the file times at each start and at some steps. Nothing may depend on it."""
    for turn in range(times):
        folder = drill.place / "clock"
        shutil.copytree(half, folder)
        for path in folder.iterdir():
            os.utime(path, (time.time() + 3_600 * turn,) * 2)
        before = whole_step(folder)
        child, _ = drill.train(folder, behind=86_400.0 * (turn + 1))
        drill.check(child.code == 0, f"clock set back: ended with {child.code}, {child.line}")
        drill.compare(folder)
        drill.note(
            Fault(
                "clock set back",
                str(child.number),
                before,
                f"by {turn + 1} days, at every second look",
                "went on",
            )
        )
        shutil.rmtree(folder)


def described(folder: Path) -> tuple[Any, ...]:
    """What is read of a config, and by it the model."""
    read = ("format", "model", "method", "task", "training", "data_sha256")
    config = json.loads((folder / "config.json").read_text())
    with suppress(ValueError):
        return from_pretrained(folder).method, *(config.get(name) for name in read)
    return ()


def damage_the_data(drill: Drill, half: Path, times: int) -> None:
    """Before a run goes on, and under it while it runs."""
    files = [path for path in sorted(drill.data.iterdir()) if not path.name.startswith("test.")]
    good = {path: (path.read_bytes(), path.stat()) for path in files}

    def restore_files() -> None:
        for path, (content, _) in good.items():
            path.write_bytes(content)

    def harm(child: Child) -> str:
        return damage(drill.chance.choice(files), drill.chance)

    for turn in range(times):
        folder, running = drill.place / "data-damaged", bool(turn % 2)
        shutil.copytree(half, folder)
        before = whole_step(folder)
        what = "" if running else damage(files[turn // 2 % len(files)], drill.chance)
        child, harmed = drill.train(
            folder,
            partial(when_told, "done", drill.chance.randrange(1, drill.steps // 2 - 1), harm)
            if running
            else None,
        )
        if child.code == 0 and "manifest" in what:  # what does not matter, such as the versions that made it
            followed = "went on"
        else:
            refused(
                drill,
                child,
                "changed during training"
                if running
                else r"data=.*(corrupt|manifest|cannot be read)|manifest.json",
            )
            followed = child.line.removeprefix("latent-tokens: ").replace(str(drill.place), "")
            told = [about for about in child.told if about[0] in ("done", "saved")]
            saved = child.steps("saved")
            drill.check(
                whole_step(folder) == max([before, *saved]),
                f"data damaged: saved what it should not have, {told}",
            )
        restore_files()
        drill.finish(folder)
        step = max(child.steps("begun", "done"), default=before)
        drill.note(
            Fault(
                "data damaged",
                str(child.number),
                step,
                f"{child.moment if running else 'before'}: {what or harmed}",
                followed,
                0,
            )
        )
        shutil.rmtree(folder)


def signal_it(drill: Drill, times: int) -> None:
    """SIGTERM, SIGINT and SIGUSR1 at random moments: saved at once, and gone on from."""
    folder = drill.place / "signalled"
    for number, code in list(SIGNALS.items()) * times:
        while True:
            word = drill.chance.choice(("training", "done", "saving", "validation"))
            child, _ = drill.train(
                folder,
                partial(when_told, word, drill.chance.randrange(1, 4), partial(kill_with, number=number)),
            )
            if child.code:
                break
            drill.compare(folder)  # it had ended before
            shutil.rmtree(folder)
        drill.check(
            child.code == code and "--resume auto" in child.line,
            f"{number.name}: ended with {child.code}, {child.line}",
        )
        drill.check(
            whole_step(folder) == max(child.steps("done")),
            f"{number.name}: {child.steps('done')[-1:]} done, {whole_step(folder)} saved",
        )
        drill.killed(child, number.name)
    drill.finish(folder)
    shutil.rmtree(folder)


def lose_one_of_two(drill: Drill, times: int, steps: int) -> None:
    """Kill one of two processes. The other ends with one line. Resumed losses equal the undisturbed ones."""
    whole, folder = drill.place / "two", drill.place / "one-of-two"
    for child in pair(drill, whole, steps):
        child.end()
        drill.check(child.code == 0, f"two: ended with {child.code}, {child.line}")
    for turn in range(times):
        both = pair(drill, folder, steps)
        lost, left = both if turn % 2 else both[::-1]
        word = drill.chance.choice(("training", "done", "validation"))
        lost.listen(word, 1 if word == "validation" else drill.chance.randrange(1, 8))
        kill(lost)
        for child in both:
            child.end()
        refused(drill, left, "another rank ended .* Rerun with --resume auto")
        step = max(lost.steps("done"), default=0)
        again = step - whole_step(folder)
        drill.check(
            0 <= again <= SAVE_EVERY, f"one of two: step {step} was done, and {whole_step(folder)} is saved"
        )
        followed = left.line.removeprefix("latent-tokens: ")
        drill.note(
            Fault(
                "one of two killed",
                f"{lost.number}, rank {both.index(lost)}",
                step,
                lost.moment,
                followed,
                again,
            )
        )
        go_on_with_two_and_one(drill, folder, whole, steps)


def signal_one_of_two(drill: Drill, times: int, steps: int) -> None:
    """Both stop after the same step, saved, where one has a signal."""
    folder = drill.place / "signalled-two"
    for turn in range(times):
        both, number = pair(drill, folder, steps), drill.chance.choice(list(SIGNALS))
        signalled = both[turn % 2]
        signalled.listen("done", drill.chance.randrange(1, steps // 2))
        kill_with(signalled, number)
        for child in both:
            child.end()
            code = SIGNALS[number] if child is signalled else 75
            drill.check(
                child.code == code and "--resume auto" in child.line,
                f"{number.name} to one of two: {child.code}, {child.line}",
            )
            drill.check(
                max(child.steps("done"), default=0) == whole_step(folder),
                f"{number.name} to one of two: {whole_step(folder)} is saved",
            )
        drill.note(
            Fault(
                f"{number.name} to one of two",
                f"{signalled.number}, rank {turn % 2}",
                whole_step(folder),
                signalled.moment,
                "both stopped",
            )
        )
        go_on_with_two_and_one(drill, folder, drill.place / "two", steps)


def go_on_with_two_and_one(drill: Drill, folder: Path, whole: Path, steps: int) -> None:
    """Copies of a run that lost a process go on to its losses."""
    for number in (2, 1):
        again = drill.place / f"again-with-{number}"
        shutil.copytree(folder, again)
        for child in (
            pair(drill, again, steps)
            if number == 2
            else (drill.fork(again, partial(main, drill.arguments(again, steps))),)
        ):
            child.end()
            drill.check(child.code == 0, f"{again.name}: ended with {child.code}, {child.line}")
        apart = difference(again, whole)
        drill.check(
            apart < 1e-5,
            f"{again.name}: its losses are {apart} apart from those of two that were undisturbed",
        )
        shutil.rmtree(again)
    shutil.rmtree(folder)


def pair(drill: Drill, folder: Path, steps: int) -> list[Child]:
    """Two processes that train together."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        met = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    work = partial(main, drill.arguments(folder, steps))
    return [
        drill.fork(folder, work, environment={**met, "RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")
    ]


def lose_one_under_torchrun(drill: Drill, times: int, steps: int) -> None:
    """The same with the launcher, which must end."""
    whole, folder = drill.place / "two", drill.place / "launched"
    for turn in range(times):
        launcher = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "-m",
            "latent_tokens",
        ]
        with folder.with_suffix(".txt").open("wb") as said:
            launched = subprocess.Popen(
                [sys.executable, *launcher, *drill.arguments(folder, steps)], stdout=said, stderr=said
            )
        least, until = drill.chance.randrange(1, steps * 2 // 3), time.perf_counter() + HANGS
        while whole_step(folder) < least and launched.poll() is None and time.perf_counter() < until:
            time.sleep(drill.chance.uniform(0, 0.05))
        kill_rank(launched.pid, str(turn % 2))
        begun, code = time.perf_counter(), launched.wait(HANGS)
        drill.check(code != 0, f"launched: the launcher ended with {code} though a process was killed")
        text = folder.with_suffix(".txt").read_text()
        ours = [
            line.removeprefix("latent-tokens: ")
            for line in text.splitlines()
            if line.startswith("latent-tokens: ")
        ]
        drill.check(
            f"[rank{1 - turn % 2}]: Traceback" not in text,
            "launched: the other process ended with a traceback",
        )
        followed = f"torchrun ended after {time.perf_counter() - begun:.1f} s; {' '.join(ours)}"
        drill.note(
            Fault("one of two killed", f"torchrun, rank {turn % 2}", whole_step(folder), "training", followed)
        )
        go_on_with_two_and_one(drill, folder, whole, steps)


def kill_rank(launcher: int, rank: str) -> None:
    """SIGKILL to the process of that rank which a launcher started."""
    for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        if f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            os.kill(int(pid), signal.SIGKILL)


def difference(first: Path, second: Path) -> float:
    """The largest difference between two runs' losses; infinite where they have other rows."""
    rows = [
        timeless(run / "metrics.jsonl") if (run / "metrics.jsonl").is_file() else []
        for run in (first, second)
    ]
    losses = [
        {(row["step"], name): row[name] for row in one for name in row if "loss" in name} for one in rows
    ]
    if not losses[0] or losses[0].keys() != losses[1].keys():
        return float("inf")
    return max(abs(loss - losses[1][which]) for which, loss in losses[0].items())


def save_seconds(drill: Drill, size: str) -> float:
    """What a save of a run takes: the median of some."""

    def measure() -> int:
        config = TrainConfig(
            "sudoku-4",
            "scdm",
            drill.place / f"saved-{size}",
            size=size,
            data=drill.data,
            steps=8,
            batch_size=4,
            save_every=100,
            precision="fp32",
        )  # type: ignore[arg-type]
        save = training.Run.save

        def timed(run: training.Run) -> None:
            begun = time.perf_counter()
            save(run)
            os.write(1, f"{time.perf_counter() - begun}\n".encode())

        training.Run.save = timed  # type: ignore[method-assign]
        for _ in range(3):
            training.fit(config)
            shutil.rmtree(config.folder)
        return 0

    child = drill.fork(drill.place, measure)
    child.end()
    return statistics.median(
        float(line) for line in child.said.splitlines() if re.fullmatch(r"[\d.e-]+", line)
    )


def summary(drill: Drill, seconds: float) -> None:
    """The table and the totals."""
    table = Table("fault", "process", "step", "moment", "what followed", "steps lost")
    for fault in drill.faults:
        table.add_row(
            fault.kind, fault.process, str(fault.step), fault.moment, fault.followed[:160], str(fault.lost)
        )
    CONSOLE.print(table, markup=False)
    kinds = Counter(fault.kind for fault in drill.faults)
    moments = Counter(fault.moment.split(":")[0] for fault in drill.faults if fault.kind == "killed")
    lost = [fault.lost for fault in drill.faults]
    CONSOLE.print(f"kinds: {', '.join(f'{kind} {number}' for kind, number in kinds.items())}")
    CONSOLE.print(
        f"killed while: {', '.join(f'{moment} {number}' for moment, number in moments.most_common())}"
    )
    CONSOLE.print(
        f"faults injected {len(drill.faults)}, "
        f"survived {max(0, len(drill.faults) - len(drill.wrong))}, in {seconds:.0f} s"
    )
    CONSOLE.print(f"steps lost {sum(lost)}, at most {max(lost)} at once; saved every {SAVE_EVERY}")
    CONSOLE.print(f"wrong results {len(drill.wrong)}", style="red" if drill.wrong else "green")


def run(short: bool, kills: int, seed: int, place: Path) -> int:
    """The whole drill; 1 where a result was wrong."""
    CONSOLE.print(f"drill: seed {seed}, in {place}")
    begun, times = time.perf_counter(), 1 if short else 4
    provenance()  # asks git once, for all
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} faults"),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=CONSOLE, auto_refresh=False, disable=not CONSOLE.is_terminal
    ) as bar:  # a bar that refreshes itself has a thread
        line = bar.add_task("undisturbed", total=kills + 40 * times)

        def report(kind: str) -> None:
            bar.update(line, advance=1, description=kind, refresh=True)

        drill = Drill(place, 15 if short else 60, random.Random(seed), report)
        make = (
            f"data sudoku-4 --num-train 64 --num-validation 8 --num-test 1 --processes 1 --out {drill.data}"
        )
        child = drill.fork(place, partial(main, make.split()))
        child.end()
        child, _ = drill.train(drill.whole)
        drill.check(child.code == 0, f"undisturbed: {child.said}")
        kinds: list[tuple[str, Callable[[], None]]] = [
            ("killed", lambda: kill_again_and_again(drill, kills)),
            ("disk full", lambda: fill_the_disk(drill, 2 * times)),
            ("tmpfs full", lambda: fill_a_tmpfs(drill, times)),
            ("signals", lambda: signal_it(drill, times)),
            ("damaged", lambda: damage_what_was_saved(drill, half_way(drill), times)),
            ("clock", lambda: set_the_clock_back(drill, drill.place / "half-way", times)),
            ("data", lambda: damage_the_data(drill, drill.place / "half-way", 2 * times)),
            ("two processes", lambda: lose_one_of_two(drill, 1 if short else 6, 12 if short else 30)),
            (
                "signals to one of two",
                lambda: signal_one_of_two(drill, 1 if short else 4, 12 if short else 30),
            ),
            ("torchrun", lambda: lose_one_under_torchrun(drill, 0 if short else 2, 30)),
        ]
        for name, fault in kinds:
            before, since = len(drill.faults), time.perf_counter()
            fault()
            CONSOLE.print(
                f"{name}: {len(drill.faults) - before} faults, {time.perf_counter() - since:.1f} s, "
                f"{len(drill.wrong)} wrong so far"
            )
    summary(drill, time.perf_counter() - begun)
    for size in ("nano",) if short else ("nano", "tiny"):
        taken = save_seconds(drill, size)
        CONSOLE.print(f"a save of {size} takes {taken:.3f} s: {taken / 60:.2%} of the time at one a minute")
    return int(bool(drill.wrong))


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="a handful of each kind")
    parser.add_argument("--kills", type=int, help="how many processes to kill (200; 12 with --short)")
    parser.add_argument(
        "--seed", type=int, default=0, help="of what is broken; when a kill falls is up to the clock, too"
    )
    given = parser.parse_args()
    with TemporaryDirectory(prefix="drill-") as beside:
        sys.exit(run(given.short, given.kills or (12 if given.short else 200), given.seed, Path(beside)))
