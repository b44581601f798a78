"""make drill: interrupt a small training run many times, resume it, and compare the final bytes.

It injects some 260 faults in minutes, or with --short a few of each kind. Exit code 1 if a result is wrong.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from socket import socket
from subprocess import run
from tempfile import TemporaryDirectory

import torch
import torch._dynamo  # before the fork, so that each process needs not import it

from helpers.training_processes import SAVE_EVERY, Drill, comparable, complete_step, fork
from latent_tokens.storage import provenance

SIGNALS = {signal.SIGTERM: 75, signal.SIGINT: 130, signal.SIGUSR1: 75}
STATES = {"latest": slice(1), "latest two": slice(2), "only an older one": slice(1, 2), "all": slice(None)}
FILES = ("model.safetensors", "metrics.jsonl", "config.json")
REFUSED = "corrupt|not a row of JSON|not JSON|complete|was started with|format"


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
    """End files at some size. Fill a file system of a few MB, enlarge it, and make it read-only."""
    folder, mount = drill.place / "full", drill.place / "tmpfs"
    for turn in range(2 * times):
        sizes = (drill.rng.randrange(50, 500), 2 << 20, drill.rng.randrange(4, 14) << 20)
        child = drill.train(folder, limit=drill.rng.choice(sizes) if turn else 300)
        drill.ended(child, 2, r"cannot be written \(File too large\)")
        drill.note("disk full", child)
    drill.finish(folder)
    mount.mkdir()
    for _ in range(times):
        size = f"size={drill.rng.randrange(1, 55)}m"
        if run(
            ["mount", "-t", "tmpfs", "-o", size, "drill", mount], capture_output=True, check=False
        ).returncode:
            print("no tmpfs was filled: mount is not allowed")
            return
        try:
            drill.ended(drill.train(mount / "run"), 2, r"\(No space left on device\)")
            drill.note("disk full")
            run(["mount", "-o", "remount,size=200m", mount], check=True)
            drill.finish(mount / "run")
            run(["mount", "-o", "remount,ro", mount], check=True)
            drill.ended(drill.train(mount / "run"), 2, r"cannot be written \(Read-only file system\)")
            drill.note("read-only directory")
        finally:
            run(["umount", mount], check=True)


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


def change_the_data(drill, times):
    """Change the data before a run is resumed, and while it trains."""
    folder = drill.place / "data-changed"
    for path in sorted(drill.data.glob("train.*.npy"))[:1] * times:
        content = path.read_bytes()

        def corrupt(child=None, path=path, content=content):
            if child is None or child.listen("done", 2):
                path.write_bytes(content[:-9])

        for plan, answer in ((None, "corrupt|manifest|cannot be read"), (corrupt, "changed during training")):
            shutil.copytree(drill.half, folder)
            if plan is None:
                corrupt()
            drill.ended(drill.train(folder, plan or (lambda child: None)), 2, answer)
            drill.note("data changed")
            path.write_bytes(content)
            drill.finish(folder)


def kill_one_of_two(drill, times):
    """Kill one of two processes that train together. The other ends, and one process resumes the run."""
    folder = drill.place / "two"
    for turn in range(times):
        with socket() as free:
            free.bind(("127.0.0.1", 0))
            address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
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
            {(row["step"], name): row[name] for row in rows for name in row if "loss" in name}
            for rows in (comparable(place)["metrics.jsonl"] for place in (folder, drill.undisturbed))
        ]
        apart = max(abs(losses[0].get(key, 9) - loss) for key, loss in losses[1].items())
        drill.check(apart < 1e-4, f"two: its losses differ by {apart} from the undisturbed run's")
        shutil.rmtree(folder)


def start_a_second_run(drill, times):
    """Start a second process in the directory of one that trains, and one after that was killed."""
    folder = drill.place / "locked"

    def second(child):
        child.listen("done", drill.rng.randrange(1, 8))
        os.kill(child.pid, signal.SIGSTOP)
        other = fork(folder, drill.command(folder))
        other.end()
        drill.ended(other, 2, "another process is training in it")
        os.kill(child.pid, signal.SIGKILL)

    for _ in range(times):
        drill.train(folder, second)
        drill.note("second run")
        drill.finish(folder)


GROUPS = {  # how often each is done in a short and in a full drill
    kill: (12, 150),
    send_signals: (1, 4),
    fill_the_disk: (1, 4),
    damage: (1, 4),
    change_the_data: (1, 4),
    kill_one_of_two: (1, 6),
    start_a_second_run: (1, 4),
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
