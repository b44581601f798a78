"""Faults of disks, of two processes that train together, of a client of the server, and of a download."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

from faults.children import HANGS, SAVE_EVERY, complete_step, timeless
from faults.run_faults import RESUME, SIGNALS, at_stage, kill, send
from helpers import hub, server
from latent_tokens import METHODS, SIZES, TASKS, Transformer, save_pretrained
from latent_tokens.cli import main
from latent_tokens.tasks import description

MEGABYTE = 1 << 20
DEADLINE = 3.0  # seconds of a decode


def fill_the_disk(drill, faults):
    """Limit the size of files: of metrics, weights, a checkpoint or the config."""
    folder, rng = drill.place / "full", drill.rng
    for turn in range(len(faults)):
        sizes = (rng.randrange(50, 500), 2 * MEGABYTE, rng.randrange(4, 14) * MEGABYTE)
        limit = rng.choice(sizes) if turn else 300
        child, _ = drill.train(folder, limit=limit)
        drill.ended(child, 2, r"(cannot|the row cannot) be written \(File too large\)")
        drill.killed(child, "disk full", f"files end at {limit:,} bytes")
        if rng.random() < 0.5:  # some steps on
            child, _ = drill.train(folder, partial(at_stage, "saved", rng.randrange(1, 4), kill))
            if child.code == 0:  # it had finished before it was killed
                shutil.rmtree(folder)
    drill.finish(folder)


def fill_a_tmpfs(drill, faults):
    """Train on a file system of a few MB, which is enlarged later."""
    folder = drill.place / "tmpfs" / "run"
    for _ in faults:
        size = drill.rng.randrange(1, 55)
        folder.parent.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}m", "drill", folder.parent]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode:
            print(f"no tmpfs was filled: {mounted.stderr.strip()}")
            folder.parent.rmdir()
            return
        try:
            child, _ = drill.train(folder)
            drill.ended(child, 2, r"\(No space left on device\)")
            drill.killed(child, "disk full", f"tmpfs of {size} MB")
            subprocess.run(["mount", "-o", "remount,size=200m", folder.parent], check=True)
            drill.finish(folder, remove=False)
        finally:
            subprocess.run(["umount", folder.parent], check=True)
            folder.parent.rmdir()


def kill_one_of_two(drill, faults):
    """Kill one of two processes. The other ends with one line. Resumed losses equal the undisturbed ones."""
    folder, num_steps, rng = drill.place / "one-of-two", two_steps(drill), drill.rng
    two_undisturbed(drill)
    for turn in range(len(faults)):
        both = drill.pair(folder, num_steps)
        lost, left = both if turn % 2 else both[::-1]
        stage = rng.choice(("training", "done", "validation"))
        lost.listen(stage, 1 if stage == "validation" else rng.randrange(1, 8))
        kill(lost)
        for child in both:
            child.end()
        drill.ended(left, 2, f"another rank ended .* Rerun with {RESUME}")
        step, saved = max(lost.steps("done"), default=0), complete_step(folder)
        drill.check(
            0 <= step - saved <= SAVE_EVERY, f"one of two: step {step} was done, and {saved} is saved"
        )
        process = f"{lost.number}, rank {both.index(lost)}"
        drill.note("one of two killed", process, step, lost.moment, left.line, step - saved)
        resume_with_two_and_one(drill, folder)


def signal_one_of_two(drill, faults):
    """Send a signal to one of two processes. Both stop after the same step, and save."""
    folder, num_steps = drill.place / "signalled-two", two_steps(drill)
    for turn in range(len(faults)):
        both, number = drill.pair(folder, num_steps), drill.rng.choice(list(SIGNALS))
        signalled = both[turn % 2]
        signalled.listen("done", drill.rng.randrange(1, num_steps // 2))
        send(number, signalled)
        for child in both:
            child.end()
            drill.ended(child, SIGNALS[number] if child is signalled else 75, RESUME)
            done, saved = max(child.steps("done"), default=0), complete_step(folder)
            drill.check(done == saved, f"{number.name} to one of two: {done} done, {saved} saved")
        process = f"{signalled.number}, rank {turn % 2}"
        drill.note(f"{number.name} to one of two", process, saved, signalled.moment, "both stopped")
        resume_with_two_and_one(drill, folder)


def kill_one_under_torchrun(drill, faults):
    """Kill one of two processes of a launcher, which must end."""
    folder, num_steps = drill.place / "launched", two_steps(drill)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "latent_tokens"]
    for turn in range(len(faults)):
        output = folder.with_suffix(".txt")
        with output.open("wb") as file:
            command = [sys.executable, *launcher, *drill.arguments(folder, num_steps)]
            launched = subprocess.Popen(command, stdout=file, stderr=file)
        least, until = drill.rng.randrange(1, num_steps * 2 // 3), time.perf_counter() + HANGS
        while complete_step(folder) < least and launched.poll() is None and time.perf_counter() < until:
            time.sleep(drill.rng.uniform(0, 0.05))
        kill_rank(launched.pid, str(turn % 2))
        start, code = time.perf_counter(), launched.wait(HANGS)
        seconds, text = time.perf_counter() - start, output.read_text()
        drill.check(code != 0, f"launched: the launcher ended with {code} though a process was killed")
        traceback = f"[rank{1 - turn % 2}]: Traceback"
        drill.check(traceback not in text, "launched: the other process ended with a traceback")
        lines = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("latent-tokens: ")]
        followed = f"torchrun ended after {seconds:.1f} s; {' '.join(lines)}"
        process = f"torchrun, rank {turn % 2}"
        drill.note("one of two killed", process, complete_step(folder), "training", followed)
        resume_with_two_and_one(drill, folder)


def kill_rank(launcher, rank):
    """Send SIGKILL to the process of that rank which a launcher started."""
    for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        if f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            os.kill(int(pid), signal.SIGKILL)


def two_steps(drill):
    """Return the number of steps of the runs of two processes."""
    return min(30, drill.num_steps - 3)


def two_undisturbed(drill):
    """Return the directory of two processes that were not interrupted."""
    folder = drill.place / "two"
    if not folder.exists():
        for child in drill.pair(folder, two_steps(drill)):
            child.end()
            drill.ended(child, 0)
    return folder


def resume_with_two_and_one(drill, folder):
    """Resume copies of a run that lost a process. Their losses must equal those of the uninterrupted run."""
    for number in (2, 1):
        again = drill.place / f"again-with-{number}"
        shutil.copytree(folder, again)
        one = partial(main, drill.arguments(again, two_steps(drill)))
        children = drill.pair(again, two_steps(drill)) if number == 2 else [drill.fork(again, one)]
        for child in children:
            child.end()
            drill.ended(child, 0)
        apart = difference(again, two_undisturbed(drill))
        drill.check(
            apart < 1e-5, f"{again.name}: its losses differ by {apart} from two undisturbed processes"
        )
        shutil.rmtree(again)
    shutil.rmtree(folder)


def difference(first, second):
    """Return the largest difference between the losses of two runs, infinite if their rows differ."""
    losses = []
    for run in (first, second):
        rows = timeless(run / "metrics.jsonl") if (run / "metrics.jsonl").is_file() else []
        losses.append({(row["step"], name): row[name] for row in rows for name in row if "loss" in name})
    if not losses[0] or losses[0].keys() != losses[1].keys():
        return float("inf")
    return max(abs(loss - losses[1][which]) for which, loss in losses[0].items())


def leave_a_decode_unread(drill, faults):
    """Leave a decode longer than the buffers unread. It must end at its deadline."""
    from latent_tokens.checkpoints.directory import learned_task
    from latent_tokens.web.model_cache import ModelCache
    from latent_tokens.web.server import app_for

    folder, task = drill.place / "long", TASKS["sudoku-16"]
    net = Transformer(SIZES["nano"], task.vocab_size, task.length)
    net.method = METHODS["scdm"]
    save_pretrained(net, folder, about={"task": description(task)})
    models = ModelCache([str(folder), server.MODEL], learned_task)
    path = f"/api/decode?{urlencode({'model': folder, 'puzzle': '.' * task.length, 'latents': 'all'})}"
    with server.serving(app_for(models, at_once=1, seconds=HANGS)) as port:
        complete = server.call(port, "GET", path)[2]  # also loads and compiles
    for _ in faults:
        app = app_for(models, at_once=1, seconds=DEADLINE)
        with server.serving(app) as port, socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.settimeout(1)
            client.connect(("127.0.0.1", port))
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            drill.check(wait(decodes, 1), "client: no decode begins")
            busy = server.call(port, "GET", path)[0]
            drill.check(busy == 429, f"client: a second decode begins beside an unread one: {busy}")
            drill.check(
                wait(lambda: not decodes(), 3 * DEADLINE), "client: a decode that is not read goes on"
            )
            unread = received(client)
            drill.check(0 < len(unread) < len(complete), "client: the decode did not wait for its reader")
            drill.check(b"event: fault" in unread[-400:], f"client: the stream ends with {unread[-400:]}")
            last = server.events(port, "/api/decode", **server.QUESTION)[-1]
            drill.check(last[0] == "end", f"client: the next decode ends with {last}")
        followed = f"{len(unread):,} of {len(complete):,} bytes, then the next decode"
        drill.note("client reads nothing", "server", 0, "decode", followed)


def decodes():
    """Return the threads that decode."""
    return [thread for thread in threading.enumerate() if thread.name == "decode"]


def received(client):
    """Return all that a socket has received."""
    content = b""
    with suppress(TimeoutError):
        while part := client.recv(1 << 16):
            content += part
    return content


def wait(holds, seconds):
    """Wait until a condition holds. Return whether it did in time."""
    until = time.perf_counter() + seconds
    while not holds() and time.perf_counter() < until:
        time.sleep(0.01)
    return bool(holds())


def cut_a_download(drill, faults):
    """Stop a download from the hub half-way. Each try must end in one line, without a model in the cache."""
    for _ in faults:
        lines, kept = hub.cut_download(drill.undisturbed, drill.place / "hub")
        refused = len(lines) == 2 and all(line.startswith("'someone/cut' not found: ") for line in lines)
        drill.check(refused and not kept, f"download: {lines}, kept {kept}")
        drill.note("download stops half-way", "client", 0, "model.safetensors", lines[0])
