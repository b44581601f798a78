"""One process at a time trains in a directory. A killed process blocks no other."""

import errno
import os
import signal
import time
import warnings
from contextlib import contextmanager

import pytest

from helpers.refusals import refused
from helpers.runs import rows, tiny_run
from latent_tokens.cli import main
from latent_tokens.training.loop import fit
from latent_tokens.training.run import LOCK, LockedError, locked


@contextmanager
def held_by_another(folder):
    """Yield the id of another process that holds the lock of a directory. It is killed at the end."""
    ready, tell = os.pipe()
    pid = os.fork()
    if not pid:
        warnings.simplefilter("ignore")
        with locked(folder):
            os.write(tell, b"locked")
            time.sleep(60)
        os._exit(1)
    try:
        assert os.read(ready, 6) == b"locked"
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_second_run_in_a_directory_is_refused_in_one_line(tmp_path, capsys):
    folder = tmp_path / "run"
    fit(tiny_run(folder, steps=3))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with held_by_another(folder):
        capsys.readouterr()
        command = f"train sudoku-4 scdm --out {folder} --steps 6 --resume auto"
        assert main(command.split()) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{folder}: another process is training in it. Wait for it, stop it, or name another" in line
        assert (folder / LOCK).is_file()
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != LOCK} == before


def test_a_lock_after_kill_9_does_not_block(tmp_path):
    folder = tmp_path / "run"
    with held_by_another(folder):
        pass
    assert (folder / LOCK).is_file()
    fit(tiny_run(folder, steps=3))
    assert not (folder / LOCK).exists()
    assert [row["step"] for row in rows(folder) if "loss" in row] == [3]


def test_a_lock_leaves_no_directory_behind(tmp_path):
    with refused("method=nothing"):
        fit(tiny_run(tmp_path / "a" / "b", method="nothing"))
    assert not list(tmp_path.iterdir())


def failing(code):
    """Return a system call that fails."""

    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    return fail


def test_a_read_only_directory_is_refused_in_one_line(tmp_path, monkeypatch):
    """The superuser may write everywhere, so the refusal of the system is imitated."""
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):
        monkeypatch.setattr(os, "open", failing(errno.EROFS))
    with pytest.raises(LockedError, match=r"cannot be written .* Make it writable, or name") as error:
        locked(tmp_path).__enter__()
    assert str(tmp_path) in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_file_is_the_lock_where_the_system_has_none(tmp_path, monkeypatch):
    """As on some network disks: a process that runs blocks, and one that was killed does not."""
    monkeypatch.setattr("fcntl.flock", failing(errno.ENOSYS))
    with (
        held_by_another(tmp_path),
        pytest.warns(UserWarning, match="flock"),
        pytest.raises(LockedError, match="another process"),
    ):
        locked(tmp_path).__enter__()
    with pytest.warns(UserWarning, match="flock"), locked(tmp_path):
        assert (tmp_path / LOCK).is_file()
    assert not list(tmp_path.iterdir())
