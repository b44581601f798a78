"""Rows of a .jsonl file survive an incomplete last line, and files that cannot be written are named."""

import os
import resource
import time

import pytest

from helpers.refusals import refused
from latent_tokens.storage import append_line, atomic_directory, read_lines, write_atomic


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
    with pytest.raises(OSError, match="cannot be written"):
        fill(tmp_path / "data", "second", 0)
    assert os.waitpid(first, 0)[1] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["first"]


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
