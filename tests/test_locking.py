"""One process at a time trains in a directory. A killed process or a rebooted host blocks no other."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from latent_tokens.cli import main
from latent_tokens.training import locking
from latent_tokens.training.locking import LOCK, LockedError, locked
from latent_tokens.training.loop import fit
from test_training import rows, tiny_run

HOLD = """
import sys, time
from pathlib import Path
from latent_tokens.training.locking import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


@contextmanager
def held_by_another(folder):
    """Yield another process that holds the lock of a directory. It is killed at the end."""
    with subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "locked\n"
            yield process
        finally:
            process.kill()


def test_a_second_run_in_a_directory_is_refused_in_one_line(tmp_path, capsys):
    folder = tmp_path / "run"
    fit(tiny_run(folder, steps=3))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with held_by_another(folder) as process:
        capsys.readouterr()
        command = f"train sudoku-4 scdm --out {folder} --steps 6 --resume auto"
        assert main(command.split()) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{folder}: process {process.pid} on {socket.gethostname()} is training in it" in line
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != LOCK} == before


def test_a_lock_after_kill_9_does_not_block(tmp_path):
    folder = tmp_path / "run"
    with held_by_another(folder) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert (folder / LOCK).is_file()
    fit(tiny_run(folder, steps=3))  # neither the lock nor its record prevents this, and both are removed
    assert not (folder / LOCK).exists()
    assert [row["step"] for row in rows(folder) if "loss" in row] == [3]


def test_a_lock_leaves_no_directory_behind(tmp_path):
    with pytest.raises(ValueError, match="method=nothing"):
        fit(tiny_run(tmp_path / "a" / "b", method="nothing"))
    assert not list(tmp_path.iterdir())


def without_locks(*_):
    raise OSError(errno.ENOLCK, "No locks available")


def record(**changes):
    own = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "boot": locking.boot_id(),
        "started": locking.start_time(os.getpid()),
    }
    return json.dumps({**own, **changes})


STALE = {
    "a process that is gone": {"pid": 2**22 + 1},
    "a process number that another has by now": {"started": "1"},
    "a host that was started again": {"boot": "another"},
    "no process": {"pid": None},
}


@pytest.mark.parametrize("changes", STALE.values(), ids=STALE)
def test_a_stale_record_does_not_block_without_locks(tmp_path, monkeypatch, changes):
    monkeypatch.setattr("fcntl.flock", without_locks)
    (tmp_path / LOCK).write_text(record(**changes))
    with locked(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text()) == json.loads(record())


def test_a_running_process_blocks_without_locks(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", without_locks)
    (tmp_path / LOCK).write_text(record())
    with pytest.raises(LockedError, match=f"process {os.getpid()} on"), locked(tmp_path):
        pass
    assert (tmp_path / LOCK).is_file()


def test_record_of_another_host_with_a_free_lock_passes(tmp_path):
    """As on NFS, after the server has dropped the lock of a host that crashed."""
    (tmp_path / LOCK).write_text(record(host="elsewhere"))
    with locked(tmp_path):
        pass


def test_the_lock_of_another_host_is_waited_for(tmp_path, monkeypatch):
    """As on NFS, until the server drops the lock of a host that crashed."""
    monkeypatch.setattr(locking, "RETRY_SECONDS", 0.05)
    with held_by_another(tmp_path) as process:
        (tmp_path / LOCK).write_text(record(host="elsewhere"))
        monkeypatch.setattr(locking, "LEASE_SECONDS", 0.2)
        begun = time.monotonic()
        with pytest.raises(LockedError, match="on elsewhere"), locked(tmp_path):
            pass
        assert time.monotonic() - begun > 0.2
        process.kill()
        monkeypatch.setattr(locking, "LEASE_SECONDS", 60.0)
        with locked(tmp_path):
            pass
