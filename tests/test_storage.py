"""Rows of a .jsonl file survive an incomplete last line, and files that cannot be written are named."""

import json
import multiprocessing
import resource
import time

import pytest

from latent_tokens.storage import append_line, atomic_directory, read_lines, write_atomic

TAILS = {
    "half a row": b'{"step": 2, "lo',
    "half a row of many blocks": b'{"step": "' + b"x" * 200_000,
    "zeros of a power cut": b"\0" * 100,
    "bytes that are no text": b'{"a": "\xff',
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
def test_append_line_replaces_a_cut_off_last_line(tmp_path, tail):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"step": 1}\n' + tail)
    assert read_lines(path) == [{"step": 1}]
    append_line(path, {"step": 3})
    append_line(path, {"step": 4})
    assert path.read_text() == '{"step": 1}\n{"step": 3}\n{"step": 4}\n'


def test_append_line_keeps_a_complete_row_without_newline(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}')
    append_line(path, {"step": 3})
    assert [row["step"] for row in read_lines(path)] == [1, 2, 3]


def test_append_line_on_a_full_disk_leaves_the_old_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    append_line(path, {"step": 1})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, limits[1]))
    try:
        with pytest.raises(OSError, match=r"rows.jsonl: the row cannot be written \(File too large\)"):
            append_line(path, {"step": 2, "text": "x" * 1_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before


def append_many(path, process):
    for number in range(50):
        append_line(path, {"process": process, "number": number, "text": "x" * 5_000})


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


def fill(folder, name, seconds):
    with atomic_directory(folder) as unfinished:
        (unfinished / name).write_text("1")
        time.sleep(seconds)
        assert [path.name for path in unfinished.iterdir()] == [name]


def test_atomic_directory_is_filled_by_one_process_at_a_time(tmp_path):
    first = multiprocessing.get_context("spawn").Process(target=fill, args=(tmp_path / "data", "first", 1))
    first.start()
    while not (tmp_path / ".data.unfinished" / "first").exists():
        time.sleep(0.01)
    with pytest.raises(OSError, match="cannot be written"):
        fill(tmp_path / "data", "second", 0)
    first.join()
    assert first.exitcode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["first"]


def test_write_atomic_below_a_file_names_the_path(tmp_path):
    (tmp_path / "table").write_text("")
    path = tmp_path / "table" / "rows.csv"
    with pytest.raises(OSError, match=rf"^{path}: cannot be written \(Not a directory\)"):
        write_atomic({path: b""})


def test_append_line_of_two_processes_loses_no_row(tmp_path):
    path = tmp_path / "rows.jsonl"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=append_many, args=(path, process)) for process in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted((row["process"], row["number"]) for row in rows) == [
        (process, number) for process in range(2) for number in range(50)
    ]
