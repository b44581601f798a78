"""Tokenizers: bytes, or any that the `tokenizers` library reads. Each has one token that ends documents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import check_package, first_line
from latent_tokens.hub import ask_hub

if TYPE_CHECKING:
    from tokenizers import Tokenizer as LibraryTokenizer

Ids = NDArray[np.uint16 | np.uint32]

TOKENIZER_FILE = "tokenizer.json"
CHAT_TEMPLATE = "chat_template.jinja"
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
END = "<|endoftext|>"
# Tokens that end documents in published tokenizers. Those of Llama 3 and BERT are the last two.
END_TOKENS = (END, "</s>", "<eos>", "[EOS]", "<|im_end|>", "<|end_of_text|>", "[SEP]")
MAX_16_BIT = 65_535  # of the ids that are stored as uint16


class Bytes:
    """A token for every byte of UTF-8. Token 256 ends a document."""

    vocab_size = 257
    end = 256

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text, without an end."""
        return [np.frombuffer(text.encode(), np.uint8).astype(np.uint16) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids. Ids that are not in the vocabulary become U+FFFD."""
        pieces = []
        for is_byte, run in groupby(ids, lambda token: token < 256):
            if is_byte:
                pieces.append(bytes(run).decode(errors="replace"))
            else:
                pieces += [END if token == self.end else REPLACEMENT for token in run]
        return "".join(pieces)

    def num_bytes(self, ids: Sequence[int]) -> int:
        """Return the bytes of ids as text, also of a part of a character."""
        return sum(token < 256 for token in ids)


class Learned:
    """A tokenizer of the `tokenizers` library.

    Raises:
        ValueError: It does not have a token that ends documents.
    """

    def __init__(self, inner: LibraryTokenizer, name: str) -> None:
        inner.no_truncation()  # a file may ask for both
        inner.no_padding()
        self.name = name
        self.inner = inner
        self.vocab_size = 1 + max(inner.get_vocab().values(), default=-1)
        end = next(
            (number for number in map(inner.token_to_id, END_TOKENS) if number is not None), None
        )
        if end is None:
            reason = f"none of {', '.join(END_TOKENS)} is one of its tokens, so documents cannot be ended"
            raise ValueError(f"{name}: {reason}. Use another tokenizer.")
        self.end: int = end

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        try:
            encodings = self.inner.encode_batch(texts, add_special_tokens=False)
        except Exception as error:  # the library raises no other type
            if "[UNK]" in str(error):  # the vocabulary has words only, and no token for others
                shown = next(text for text in texts if not self._has_words(text))
                problem = f"has a word that is not one of the {self.vocab_size:,} of {self.name}"
                raise ValueError(
                    f"text {shown[:60]!r}: {problem}. Use other words, or another tokenizer."
                ) from None
            raise ValueError(f"{self.name}: {first_line(error)}. Use another tokenizer.") from None
        return [np.array(encoding.ids, type_of_ids(self.vocab_size)) for encoding in encodings]

    def _has_words(self, text: str) -> bool:
        """Return whether the tokenizer encodes a text."""
        try:
            self.inner.encode(text)
        except Exception:  # the library raises no other type
            return False
        return True

    def decode(self, ids: Sequence[int]) -> str:
        # The tokens between two unknown ones are decoded together: one may be a part of a character.
        pieces = []
        for is_token, run in groupby(map(int, ids), self._is_token):
            tokens = list(run)
            if is_token:
                pieces.append(self.inner.decode(tokens, skip_special_tokens=False))
            else:
                pieces.append(REPLACEMENT * len(tokens))
        return "".join(pieces)

    def num_bytes(self, ids: Sequence[int]) -> int:
        """Return the bytes of ids as text.

        A byte-level tokenizer names each byte by a character, also those of a part of a character.
        """
        if isinstance(self.inner.decoder, library().decoders.ByteLevel):
            return sum(len(self.inner.id_to_token(int(token)) or "") for token in ids)
        # Many tokenizers omit the leading space of a text.
        text = self.decode([self.end, *ids]).removeprefix(self.decode([self.end]))
        return len(text.encode())

    def _is_token(self, number: int) -> bool:
        """Return whether an id is a token. The ids of a vocabulary may have gaps."""
        return number < self.vocab_size and self.inner.id_to_token(number) is not None

    def to_json(self) -> bytes:
        """Return the content of its tokenizer.json."""
        return bytes(self.inner.to_str().encode())


def type_of_ids(vocab_size: int) -> type[np.uint16 | np.uint32]:
    """Return the type of the tokens of a text: uint16, or uint32 if MASK, the last id, needs it."""
    return np.uint16 if vocab_size <= MAX_16_BIT else np.uint32


def read_tokenizer(name: str, folder: Path | None = None) -> Bytes | Learned:
    """Return a tokenizer by name.

    Args:
        name: "bytes", a tokenizer.json, a directory with one, or a name on the Hugging Face Hub.
        folder: If it is set, the name is that of a file in it and nothing else.

    Raises:
        ValueError: The tokenizer is missing or corrupt.

    Example:
        >>> read_tokenizer("bytes").encode(["ab"])
        [array([97, 98], dtype=uint16)]
    """
    if name == "bytes":
        return Bytes()
    path = Path(name) if folder is None else folder / name
    if folder is not None and not path.is_file():
        raise ValueError(f"{path}: is missing, so the tokens have no text. Restore the file.")
    if path.is_dir():
        path = path / TOKENIZER_FILE
        if not path.is_file():
            raise ValueError(
                f"tokenizer={name}: a directory without {TOKENIZER_FILE}. Save one there."
            )
    if path.is_file():
        return read_cached(path.absolute(), hashlib.sha256(path.read_bytes()).hexdigest())
    try:
        return fetch_tokenizer(name)
    except Exception as error:  # a hub or a network can fail in any way
        must = f"must be bytes, bpe:SIZE, a {TOKENIZER_FILE}, a directory or a name on the Hub"
        raise ValueError(f"tokenizer={name}: {must} ({first_line(error)})") from None


def library() -> ModuleType:
    """Return the `tokenizers` package. Raise ValueError if it is not installed."""
    check_package("tokenizers", "text", "tokenizer")
    import tokenizers

    return tokenizers


@cache
def read_cached(path: Path, sha256: str) -> Learned:
    """Return the tokenizer of a file, read once while its content stays the same."""
    tokenizers = library()
    try:
        inner = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no other type
        problem = f"not a tokenizer ({first_line(error)})"
        raise ValueError(f"{path}: {problem}. Use another file.") from None
    return Learned(inner, str(path))


def fetch_tokenizer(name: str) -> Learned:
    """Return a tokenizer of the hub, from its cache if it is there. Raise any error of the hub."""
    tokenizers = library()
    import huggingface_hub  # a dependency of tokenizers

    file = huggingface_hub.try_to_load_from_cache(name, TOKENIZER_FILE)
    if not isinstance(file, str):
        ask_hub(name, TOKENIZER_FILE)
        file = huggingface_hub.hf_hub_download(name, TOKENIZER_FILE)
    return Learned(tokenizers.Tokenizer.from_file(file), name)


def learn_bpe(texts: Iterator[str], size: int) -> Learned:
    """Return a byte-level BPE of `size` tokens learned from texts, which splits them as GPT-2 does.

    Raise ValueError if the size is below 257, that of all bytes and an end.
    """
    if size < 257:
        raise ValueError(f"tokenizer=bpe:{size}: must have at least 257 tokens")
    tokenizers = library()
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens([END])
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    return Learned(inner, f"bpe:{size}")
