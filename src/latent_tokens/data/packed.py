"""The files of sequences into which documents are packed."""

from __future__ import annotations

import os
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

Counts = dict[str, int]


class PackedFile:
    """A .npy file of sequences that grows: each is an end, tokens of consecutive documents, and an end."""

    def __init__(
        self, file: BinaryIO, length: int, end: int, most: int | None, token_type: type[np.uint16 | np.uint32]
    ) -> None:
        self.file = file
        self.length = length
        self.end = end
        self.most = most
        self.token_type = token_type
        self.num_sequences = 0
        self.num_documents = 0
        self.num_tokens = 0
        self.remainder = np.zeros(0, token_type)  # tokens that do not fill a sequence yet
        self._write_header()

    @property
    def is_full(self) -> bool:
        return self.most is not None and self.num_sequences >= self.most

    def counts(self) -> Counts:
        """Return the manifest's counts."""
        return {"examples": self.num_sequences, "documents": self.num_documents, "tokens": self.num_tokens}

    def add(self, ids: NDArray[np.uint16 | np.uint32]) -> None:
        """Append one document and its end, unless the file is full."""
        if self.is_full:
            return
        self.num_documents += 1
        self.num_tokens += len(ids) + 1
        self.remainder = np.concatenate([self.remainder, ids, np.array([self.end], self.token_type)])
        inner = self.length - 2
        count = len(self.remainder) // inner
        if self.most is not None:
            count = min(count, self.most - self.num_sequences)
        if count:
            rows = np.full((count, self.length), self.end, self.token_type)
            rows[:, 1:-1] = self.remainder[: count * inner].reshape(count, inner)
            self.file.write(rows.tobytes())
            self.num_sequences += count
            self.remainder = self.remainder[count * inner :]

    def close(self) -> None:
        """Write the number of sequences into the header, where numpy leaves space for it, and flush."""
        self.file.seek(0)
        self._write_header()
        self.file.flush()
        os.fsync(self.file.fileno())

    def _write_header(self) -> None:
        header = {
            "descr": np.dtype(self.token_type).str,
            "fortran_order": False,
            "shape": (self.num_sequences, self.length),
        }
        np.lib.format.write_array_header_1_0(self.file, header)
