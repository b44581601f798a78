"""Arrays of .npy files, mapped from disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LONGEST_EMPTY = 1_000  # an array without bytes can have a dimension of any length


def load_npy(path: Path) -> NDArray[np.generic]:
    """Return the array of a .npy file, mapped and not read.

    Raises:
        ValueError: The file is incomplete or corrupt, or holds no array, objects, or nothing.
    """
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (MemoryError, RecursionError):  # of Python's parser
        raise ValueError(f"{path}: no complete array in it (its header is nested too deep)") from None
    except Exception as error:  # a corrupt header can fail in any way
        raise ValueError(f"{path}: no complete array in it ({type(error).__name__})") from None
    if not array.ndim or (not array.nbytes and max(array.shape) > LONGEST_EMPTY):
        raise ValueError(f"{path}: no complete array in it (of {array.dtype}, its shape is {array.shape})")
    return array
