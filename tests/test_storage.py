"""Files are written completely or not at all, and one process at a time trains in a directory."""

import errno
import os
import resource
import signal
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.refusals import refused, refused_command
from helpers.runs import rows, tiny_run
from latent_tokens.storage import (
    append_line,
    atomic_directory,
    create_directory,
    kind_of,
    read_lines,
    readable,
    write_atomic,
)
from latent_tokens.training.loop import fit
from latent_tokens.training.run import LOCK, LockedError, locked


def test_append_line_replaces_a_cut_off_last_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    many_blocks = b'{"step": "' + b"x" * 200_000
    for tail in (b'{"step": 2, "lo', many_blocks, b"\0" * 100, b'{"a": "\xff'):
        path.write_bytes(b'{"step": 1}\n' + tail)
        assert read_lines(path) == [{"step": 1}]
        append_line(path, {"step": 3})
        append_line(path, {"step": 4})
        assert path.read_text() == '{"step": 1}\n{"step": 3}\n{"step": 4}\n'
    path.write_text('{"step": 1}\n{"step": 2}')  # a complete row
    append_line(path, {"step": 3})
    assert [row["step"] for row in read_lines(path)] == [1, 2, 3]


def test_a_source_that_cannot_be_read_is_named(tmp_path):
    source = tmp_path / "a.txt"
    named = refused("a.txt: cannot be read (No such file")
    with named, atomic_directory(tmp_path / "out"), readable(source):
        source.read_text()


def test_a_full_disk_keeps_existing_files(tmp_path):
    path = tmp_path / "rows.jsonl"
    append_line(path, {"step": 1})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
    try:
        with pytest.raises(OSError, match=r"rows.jsonl: the row cannot be written \(File too large\)"):
            append_line(path, {"step": 2, "text": "x" * 1_000})
        with pytest.raises(OSError, match=r"rows.jsonl: cannot be written"):
            write_atomic({tmp_path / "beside": b"small", path: b"new" * 1_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_line_that_is_not_a_row_is_named(tmp_path):
    path = tmp_path / "x.jsonl"
    for text, part in (
        ("3\n", "line 1: is not a row of JSON"),
        ("[" * 100_000 + "\n", "line 1: is not a row"),
        ('{"a": 1}\n' + "1" * 5_000 + "\n", "line 2: is not a row"),
    ):
        path.write_text(text)
        with refused(part):
            read_lines(path)


def test_atomic_directory_fills_the_target_of_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    for name in ("empty", "missing"):
        (tmp_path / name).symlink_to(tmp_path / "disk" / name)
    (tmp_path / "disk" / "empty").mkdir()
    for name in ("empty", "missing"):
        with atomic_directory(tmp_path / name) as unfinished:
            (unfinished / "rows.csv").write_text("1")
        assert [path.name for path in (tmp_path / "disk" / name).iterdir()] == ["rows.csv"]
        assert (tmp_path / name).is_symlink()


def forked(function, *arguments):
    """Return the id of a process that calls a function. Its exit code is 1 if the call fails."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            function(*arguments)
            code = 0
        finally:
            os._exit(code)
    return pid


def fill(folder, name, seconds):
    with atomic_directory(folder) as unfinished:
        (unfinished / name).write_text("1")
        time.sleep(seconds)
        assert [path.name for path in unfinished.iterdir()] == [name]


def test_atomic_directory_is_filled_by_one_process_at_a_time(tmp_path):
    first = forked(fill, tmp_path / "data", "first", 0.3)
    while not (tmp_path / ".data.unfinished" / "first").exists():
        time.sleep(0.01)
    with pytest.raises(ValueError, match="data: exists and is not empty"):
        fill(tmp_path / "data", "second", 0)
    assert os.waitpid(first, 0)[1] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["first"]


@pytest.mark.parametrize("write", [create_directory, lambda folder: fill(folder, "first", 0)])
def test_directory_below_one_that_takes_no_files_is_refused(write):
    with pytest.raises(OSError, match=r"^/proc/data: cannot be \w+ \("):
        write(Path("/proc/data"))


def test_write_atomic_below_a_file_names_the_path(tmp_path):
    (tmp_path / "table").write_text("")
    path = tmp_path / "table" / "rows.csv"
    with pytest.raises(OSError, match=rf"^{path}: cannot be written \(Not a directory\)"):
        write_atomic({path: b""})


def append_many(path, process):
    for number in range(50):
        append_line(path, {"process": process, "number": number, "text": "x" * 5_000})


def test_append_line_of_two_processes_loses_no_row(tmp_path):
    path = tmp_path / "rows.jsonl"
    processes = [forked(append_many, path, process) for process in range(2)]
    assert [os.waitpid(process, 0)[1] for process in processes] == [0, 0]
    rows = [(row["process"], row["number"]) for row in read_lines(path)]
    assert sorted(rows) == [(process, number) for process in range(2) for number in range(50)]


# The lock of a run directory.


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
        problem = f"{folder}: another process is training in it. Wait for it, stop it, or name another"
        refused_command(capsys, f"train sudoku-4 scdm --out {folder} --steps 6 --resume auto", problem)
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


def test_a_read_only_directory_is_refused_before_it_is_used(tmp_path, monkeypatch):
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):  # the superuser
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OSError, match=r"cannot be written\. Make it writable, or use another"):
        create_directory(tmp_path)


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


KINDS = {
    "model": {"config.json": '{"format": 1, "model_type": "latent_tokens"}', "results.jsonl": ""},
    "transformers": {"config.json": '{"model_type": "llada"}'},
    "others": {"config.json": '{"n_heads": 4}'},
    "corrupt": {"config.json": "[1"},
    "data": {"manifest.json": "{}", "results.jsonl": ""},
    "results": {"results.jsonl": ""},
    "folder": {"model.ckpt": ""},
}


@pytest.mark.parametrize("kind", KINDS)
def test_kind_of_a_directory_is_told_by_its_files(tmp_path, kind):
    for name, content in KINDS[kind].items():
        (tmp_path / name).write_text(content)
    assert kind_of(tmp_path) == kind


def test_kind_of_a_file_is_told_by_its_ending(tmp_path):
    (tmp_path / "rows.jsonl").touch()
    (tmp_path / "model.ckpt").touch()
    kinds = [kind_of(tmp_path / name) for name in ("rows.jsonl", "model.ckpt", "other.jsonl")]
    assert kinds == ["rows", "file", "missing"]
