"""A short `make fuzz`, and tests that it detects each problem."""

import faulthandler
import os
import shutil
import time
from random import Random

import pytest

from faults.fuzz import drill, findings, replay, table
from faults.readers import BY_NAME, READERS, Reader
from faults.seals import reseal_data
from latent_tokens.storage import read_lines

SHORT = [
    reader for reader in READERS if reader.name not in ("commands", "run folder", "text")
]  # these take long to start


@pytest.mark.slow
def test_every_reader_refuses_what_is_wrong_in_one_line(tmp_path):
    results = drill(SHORT, 40, out=tmp_path)
    assert not any(result.found for result in results), findings(results)
    assert all(result.counts["tried"] >= 40 for result in results)
    assert "0 found" in table(results)


def writes_elsewhere(folder, fixtures):
    (folder.parent.parent / "elsewhere").write_text("x")


def calls_a_program(folder, fixtures):
    os.system("true")


def aborts(folder, fixtures):
    faulthandler.disable()  # pytest has it print where each of some 40 processes was
    os.abort()


def makes_the_mark(folder, fixtures):
    os.mknod(os.environ["MARK"])


def takes_memory(folder, fixtures):
    bytearray(2 << 30)


def takes_memory_in_silence(folder, fixtures):
    try:
        bytearray(2 << 30)
    except MemoryError as error:
        raise ValueError(f"damaged ({type(error).__name__})") from None


FAULTS = {
    "says two lines": (lambda folder, fixtures: refuse("a\nb"), "no one line"),
    "says nothing": (lambda folder, fixtures: refuse(""), "no one line"),
    "lets an error out": (lambda folder, fixtures: {}["x"], "KeyError"),
    "ends the process": (aborts, "SIGABRT"),
    "hangs": (lambda folder, fixtures: time.sleep(60), "takes more than"),
    "writes elsewhere": (writes_elsewhere, "writes outside"),
    "calls a program": (calls_a_program, "os.system"),
    "makes the mark": (makes_the_mark, "executed"),
    "takes memory": (takes_memory, "MemoryError"),
    "takes memory in silence": (takes_memory_in_silence, "out of memory"),
}


def refuse(said):
    raise ValueError(said)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_reader_with_a_fault_is_found_and_its_input_found_again(tmp_path, monkeypatch, name):
    monkeypatch.setattr("faults.inside.SECONDS", 1)
    fault, what = FAULTS[name]

    def read(folder, fixtures):
        if b"7" in (folder / "x.txt").read_bytes():
            return fault(folder, fixtures)
        return None

    reader = Reader("faulty", lambda fixtures: [{"x.txt": b"1 2 3 4 5 6"}], read, lambda folder: True)
    monkeypatch.setitem(BY_NAME, "faulty", reader)
    shutil.rmtree(tmp_path / "kept", ignore_errors=True)
    (result,) = drill([reader], 400 if name != "hangs" else 60, seed=3, out=tmp_path / "kept")
    found = next((about for said, about in result.found.items() if what in said), None)
    assert found is not None, result.found
    again = replay(found["file"], "faulty", tmp_path / "again")
    assert any(what in said for said in again.found)


def test_an_input_of_many_elements_is_not_hashed():
    header = b"{'descr': 'V0', 'fortran_order': False, 'shape': (2147483648,), }\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    arrays = {f"folder/test.{part}.npy": content for part in ("tokens", "known", "lengths")}
    case = {"folder/manifest.json": b'{"task": {}, "splits": {"test": {}}}', **arrays}
    begun = time.perf_counter()
    assert reseal_data(Random(0), case) == case
    assert time.perf_counter() - begun < 5


def test_rows_that_are_none_are_named(tmp_path):
    for text, message in (
        ("3\n", "a int where an object must be"),
        ("[" * 100_000 + "\n", "is not a row of JSON"),
        ('{"a": 1}\n' + "1" * 5_000 + "\n", "line 2: is not a row"),
    ):
        (tmp_path / "x.jsonl").write_text(text)
        with pytest.raises(ValueError, match=message):
            read_lines(tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n{"a"')
    assert read_lines(tmp_path / "x.jsonl") == [{"a": 1}]
