"""Checks that a file of another kind fails: a magic number, JSON that parses, a zip file that opens."""

import json
import pickletools
import zipfile

import numpy as np
from safetensors import safe_open


def parses(read):
    """Return whether a call of a library raises nothing."""
    try:
        read()
    except Exception:
        return False
    return True


def is_json(path):
    """Return whether a file is a JSON object."""
    return parses(lambda: {**json.loads(path.read_bytes())})


def is_safetensors(path):
    return parses(lambda: safe_open(path, "pt").__enter__())


def is_pickle(content):
    """Return whether the opcodes of a pickle can be told apart up to its end."""
    return parses(lambda: list(pickletools.genops(content)))


def is_text(path):
    """Return whether a file is UTF-8 and not empty."""
    return parses(lambda: path.read_bytes().decode()) and path.stat().st_size > 0


def is_csv(path):
    """Return whether the first line is that of Ye et al.'s files, or of Sudoku-Extreme."""
    return path.read_bytes().startswith((b"quizzes,solutions\n", b"source,question,answer,rating\n"))


def is_npy(path):
    return parses(lambda: np.lib.format.open_memmap(path, mode="r"))


def has_json_line(path):
    """Return whether a line of the file is a JSON object."""
    lines = path.read_bytes().splitlines() if path.is_file() else []
    return any(parses(lambda line=line: {**json.loads(line)}) for line in lines)


def is_lightning(path):
    """Return whether a file is a zip file with one data.pkl, stored uncompressed, whose opcodes parse."""
    try:
        with zipfile.ZipFile(path) as archive:
            (info,) = [info for info in archive.infolist() if info.filename.endswith("/data.pkl")]
            return info.compress_type == zipfile.ZIP_STORED and is_pickle(archive.read(info))
    except Exception:
        return False


def is_model(folder):
    return is_json(folder / "config.json") and is_safetensors(folder / "model.safetensors")


def file_of(folder, pattern):
    """Return the first file of a folder that a pattern matches, or one that does not exist."""
    return next(iter(sorted(folder.glob(pattern))), folder / "none")


def first(pattern, check):
    """Return the check of a folder whose first file of that pattern passes another check."""
    return lambda folder: check(file_of(folder, pattern))
