"""The faults of one training process. Each function takes the drill and the faults to inject."""

import json
import os
import re
import shutil
import signal
import statistics
import time
from contextlib import suppress
from functools import partial
from itertools import count

from faults.children import complete_step
from faults.corruptions import DAMAGES
from latent_tokens import TrainConfig, fit, from_pretrained

SIGNALS = {signal.SIGTERM: 75, signal.SIGINT: 130, signal.SIGUSR1: 75}
RESUME = "--resume auto"
STATES = {"latest": slice(1), "latest two": slice(2), "only an older one": slice(1, 2), "all": slice(None)}
FILES = ("model.safetensors", "metrics.jsonl", "config.json")


def damage(path, rng):
    """Flip a bit of a file, cut it, or blank a part of it. Return a description."""
    content = path.read_bytes()
    at, how = rng.randrange(len(content)), rng.choice(sorted(DAMAGES))
    damaged = DAMAGES[how](rng, content, at)
    if damaged == content:
        damaged = DAMAGES["flipped"](rng, content, at)
    path.write_bytes(damaged)
    return f"{path.name} {how} at {at:,}"


# Plans: actions on a process while it trains.


def send(number, child):
    os.kill(child.pid, number)
    return number.name


kill = partial(send, signal.SIGKILL)


def kill_while_saving(rng, longest, child):
    if child.listen("saving", rng.choice((1, 2))):
        time.sleep(rng.uniform(0, longest))
    kill(child)


def kill_at_a_temporary_file(rng, child):
    start = rng.choice((".state-", ".model.", ".state-"))
    child.listen("begun")
    until = time.perf_counter() + 2
    while time.perf_counter() < until and not list(child.folder.glob(f"{start}*")):
        pass
    kill(child)


def kill_at_any_time(rng, child):
    time.sleep(rng.uniform(0, 0.8))
    kill(child)


def at_stage(stage, times, act, child):
    """Act after a number of reports of a stage."""
    return act(child) if child.listen(stage, times) else "ended before"


# The faults.


def kill_again_and_again(drill, faults):
    """Send SIGKILL at random moments, at least a third during a save, to one run after another."""
    rng, wanted = drill.rng, len(drill.faults) + len(faults)
    while_saving = partial(kill_while_saving, rng, save_seconds(drill, "nano"))
    plans = [while_saving, partial(kill_at_a_temporary_file, rng), partial(kill_at_any_time, rng), None]
    for number in count(1):
        folder, first = drill.place / f"killed-{number}", 1
        while True:
            open_faults = len(drill.faults) < wanted
            plan = rng.choice(plans) if open_faults else None
            die_at = 0
            if open_faults and plan is None:
                # A start is killed at each of its file operations in turn, a later step at a random one.
                is_start = not complete_step(folder)
                die_at = first if is_start and first <= 4 else rng.randrange(1, 13)
                first += is_start
            child, _ = drill.train(folder, plan, die_at=die_at)
            if child.code != -signal.SIGKILL:
                break
            drill.killed(child, "killed", child.files)
        drill.ended(child, 0)
        if child.code == 0:
            drill.compare(folder)
        shutil.rmtree(folder)
        if len(drill.faults) >= wanted or child.code:
            return


def signal_one(drill, faults):
    """Send SIGTERM, SIGINT or SIGUSR1 at random moments. The run saves at once, and is resumed."""
    folder, rng = drill.place / "signalled", drill.rng
    for name in faults:
        number = signal.Signals[name]
        while True:
            stage = rng.choice(("training", "done", "saving", "validation"))
            child, _ = drill.train(
                folder, partial(at_stage, stage, rng.randrange(1, 4), partial(send, number))
            )
            if child.code:
                break
            drill.compare(folder)  # it had ended before
            shutil.rmtree(folder)
        drill.ended(child, SIGNALS[number], RESUME)
        done, saved = child.steps("done")[-1:], complete_step(folder)
        drill.check(done == [saved], f"{name}: {done} done, {saved} saved")
        drill.killed(child, name)
    drill.finish(folder)


def damage_what_was_saved(drill, faults):
    """Damage checkpoints, weights, metrics or the config. The run ends equal, or stops with one line."""
    half, folder = half_way(drill), drill.place / "damaged"
    for target in faults:
        # Steps after the damage would write better weights.
        shutil.copytree(drill.undisturbed if target == "model.safetensors" else half, folder)
        before = complete_step(folder)
        states = sorted(folder.glob("state-*"), reverse=True)
        paths = states[STATES[target]] if target in STATES else [folder / target]
        what = ", ".join(damage(path, drill.rng) for path in paths)
        child, _ = drill.train(folder)
        if child.code == 2 and target in ("all", "metrics.jsonl", "config.json"):
            drill.ended(child, 2, r"corrupt|not a row of JSON|not JSON|complete|was started with|format")
            followed = child.line.replace(str(folder), "")
            for path in paths:
                shutil.copy2(half / path.name, path)
            drill.finish(folder, remove=False)
        else:
            drill.check(child.code == 0 and target != "all", f"{what}: ended with {child.code}, {child.line}")
            drill.compare(folder, but=(target,) if target in ("metrics.jsonl", "config.json") else ())
            same = target != "config.json" or described(folder) == described(drill.undisturbed)
            drill.check(same, f"{what}: resumed with another config.json")
            followed = f"resumed at {(child.steps('begun') or ['-'])[0]}"
        what = re.sub(r"-[0-9a-f]{16}\.safetensors", "", what)
        drill.note("saved file damaged", str(child.number), before, f"{target}: {what}", followed)
        shutil.rmtree(folder)


def half_way(drill):
    """Return the directory of a run that was stopped half-way."""
    folder = drill.place / "half-way"
    if not folder.exists():
        plan = partial(at_stage, "done", drill.num_steps // 2 + 1, partial(send, signal.SIGTERM))
        drill.ended(drill.train(folder, plan)[0], 75)
    return folder


def described(folder):
    """Return the entries that are read from a config, and the model."""
    config = json.loads((folder / "config.json").read_text())
    names = ("format", "model", "method", "task", "training", "data_sha256")
    with suppress(ValueError):
        return from_pretrained(folder).method, *(config.get(name) for name in names)
    return ()


def set_the_clock_back(drill, faults):
    """Set the clock before the file times at each start and at some steps. Nothing may depend on it."""
    folder = drill.place / "clock"
    for turn in range(len(faults)):
        shutil.copytree(half_way(drill), folder)
        for path in folder.iterdir():
            os.utime(path, (time.time() + 3_600 * turn,) * 2)
        before = complete_step(folder)
        child, _ = drill.train(folder, behind=86_400.0 * (turn + 1))
        drill.ended(child, 0)
        drill.compare(folder)
        moment = f"by {turn + 1} days, at every second look"
        drill.note("clock set back", str(child.number), before, moment, "went on")
        shutil.rmtree(folder)


def damage_the_data(drill, faults):
    """Change data before a run is resumed, and while it trains."""
    files = [path for path in sorted(drill.data.iterdir()) if not path.name.startswith("test.")]
    contents = {path: path.read_bytes() for path in files}
    folder, rng = drill.place / "data-damaged", drill.rng
    for turn, moment in enumerate(faults):
        shutil.copytree(half_way(drill), folder)
        before, plan, what = complete_step(folder), None, ""
        if moment == "before":
            what = damage(files[turn // 2 % len(files)], rng)
            message = r"--data .*(corrupt|manifest|cannot be read)|manifest.json"
        else:
            target, times = rng.choice(files), rng.randrange(1, drill.num_steps // 2 - 1)
            plan = partial(at_stage, "done", times, lambda child, path=target: damage(path, rng))
            message = "changed during training"
        child, harmed = drill.train(folder, plan)
        followed = "went on"  # if the change has no effect, such as versions in the manifest
        if child.code or "manifest" not in what:
            drill.ended(child, 2, message)
            followed = child.line.replace(str(drill.place), "")
            unsaved = complete_step(folder) == max([before, *child.steps("saved")])
            drill.check(unsaved, f"data damaged: saved what it should not have, {child.stages}")
        for path, content in contents.items():
            path.write_bytes(content)
        drill.finish(folder)
        step = max(child.steps("begun", "done"), default=before)
        stage = child.moment if plan else moment
        drill.note("data damaged", str(child.number), step, f"{stage}: {what or harmed}", followed)


def save_seconds(drill, size):
    """Return how long a checkpoint takes: the median of some."""
    settings = {
        "size": size,
        "data": drill.data,
        "steps": 8,
        "batch_size": 4,
        "save_every": 100,
        "precision": "fp32",
    }
    config = TrainConfig("sudoku-4", "scdm", drill.place / f"saved-{size}", **settings)

    def measure():
        start_times = {}

        def observe(stage, step):
            if stage == "saving":
                start_times[step] = time.perf_counter()
            elif stage == "saved":
                os.write(1, f"{time.perf_counter() - start_times[step]}\n".encode())

        for _ in range(3):
            fit(config, observe=observe)
            shutil.rmtree(config.folder)
        return 0

    child = drill.fork(drill.place, measure)
    child.end()
    return statistics.median(float(line) for line in re.findall(r"^[\d.e-]+$", child.text, re.M))
