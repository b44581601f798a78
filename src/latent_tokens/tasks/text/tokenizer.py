"""Tokenizers: bytes, or whatever the `tokenizers` library reads, in one form. Each has one token that ends documents."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import dropwhile
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import ask_hub, first_line, one_line
from latent_tokens.tasks.text.tokenizer_growth import check_growth

Ids = NDArray[np.uint16]

FILE = "tokenizer.json"
UNKNOWN = "\N{REPLACEMENT CHARACTER}"
END = "<|endoftext|>"
ENDS = (END, "</s>", "<eos>", "[EOS]", "<|im_end|>")  # what may end documents in the tokenizers of others
PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))  # GPT-2's files by their two names
PIECE, TOGETHER = 1 << 16, 1 << 20  # characters that are tokenized as one, and in one call
BETWEEN = re.compile(r"[^\W\d_](?= [^\W\d_])")
INSIDE = re.compile(r"[^\W\d_] ")
CONTRACTED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
EXPRESSIONS = (  # to split by, where a run of letters ends before a space and nothing looks back
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
    CONTRACTED + r"\p{N}{1,3}" + REST,  # Llama 3, GPT-4
    CONTRACTED + r"\p{N}" + REST,  # Qwen 2
)
MOST = 65_535  # tokens: ids are uint16, and MASK is one more


class Tokenizer(Protocol):
    """Text to ids 0..vocab_size-1 and back."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def end(self) -> int:
        """The token that ends a document."""

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of each text, without an end."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; what is no token shows as U+FFFD."""


class Bytes:
    """Every byte of UTF-8 a token; 256 ends a document."""

    vocab_size, end = 257, 256

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.uint16) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        pieces, run = [], bytearray()
        for token in [*ids, None]:
            if token is not None and token < 256:
                run.append(token)
                continue
            pieces.append(run.decode(errors="replace"))
            run.clear()
            if token is not None:
                pieces.append(END if token == self.end else "\N{REPLACEMENT CHARACTER}")
        return "".join(pieces)


@contextmanager
def refused_by_library(what: str, fix: str) -> Iterator[None]:
    """Raises ValueError for whatever the library raises: Exception itself, or what a panic of Rust becomes, which is none."""
    try:
        yield
    except (MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except ValueError:
        raise
    except BaseException as error:
        raise ValueError(f"{what} ({one_line(str(error) or type(error).__name__, 200)}); {fix}") from None


class Learned:
    """A tokenizer of the `tokenizers` library. Raises ValueError where it has no token that ends documents, or too many tokens."""

    def __init__(self, inner: Any, name: str) -> None:
        inner.no_truncation()  # what a file may ask for, and no corpus wants
        inner.no_padding()
        self.name, self.inner, self.vocab_size = name, inner, 1 + max(inner.get_vocab().values(), default=-1)
        found = next((token for token in ENDS if inner.token_to_id(token) is not None), None)
        if found is None:
            raise ValueError(
                f"{name}: none of {', '.join(ENDS)} is a token of it, so documents cannot be ended"
            )
        if self.vocab_size > MOST:
            raise ValueError(
                f"{name}: {self.vocab_size:,} tokens: ids are stored in 16 bits, so at most {MOST:,}"
            )
        self.end: int = inner.token_to_id(found)
        self.cuts = can_be_cut(inner)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        made: list[list[Ids]] = [[] for _ in texts]
        for part in parts_of(
            [
                (number, piece)
                for number, text in enumerate(texts)
                for piece in (pieces(text) if self.cuts else [text])
            ]
        ):
            with refused_by_library(f"{self.name}: does not tokenize this text", "use another tokenizer"):
                found = self.inner.encode_batch([piece for _, piece in part], add_special_tokens=False)
            for (number, _), one in zip(part, found, strict=True):
                made[number].append(np.array(one.ids, np.uint16))
        return [np.concatenate(ids) for ids in made]

    def decode(self, ids: Sequence[int]) -> str:
        known = [int(token) for token in ids]
        with refused_by_library(f"{self.name}: does not decode these tokens", "use another tokenizer"):
            if all(token < self.vocab_size for token in known):
                return str(self.inner.decode(known, skip_special_tokens=False))
            texts = (
                str(self.inner.decode([token], skip_special_tokens=False))
                if token < self.vocab_size
                else UNKNOWN
                for token in known
            )
            return "".join(texts)

    def to_json(self) -> bytes:
        """The file that holds it."""
        return bytes(self.inner.to_str().encode())


def can_be_cut(inner: Any) -> bool:
    """Whether no token of any text joins a letter with a space and the letter behind it, so that the text may be cut there.

    So it is where nothing changes the text, and the first split, but for one between digits, is there whatever stands before and behind; those
    after it see a part at a time. Added tokens are found in the whole text: none may have such a place inside, nor take the space behind it.
    """
    if inner.pre_tokenizer is None or inner.normalizer is not None:
        return False
    splits: dict[str, Any] = json.loads(inner.pre_tokenizer.__getstate__())
    first, *others = [
        *dropwhile(lambda one: one["type"] == "Digits", splits.get("pretokenizers", [splits])),
        {"type": "none"},
    ]
    local = all(one["type"] in ("Split", "Digits", "ByteLevel", "none") for one in others)
    added = inner.get_added_tokens_decoder().values()
    return (
        splits_words(first)
        and local
        and not any(token.rstrip or INSIDE.search(token.content) for token in added)
    )


def splits_words(split: dict[str, Any]) -> bool:
    """Whether a split is GPT-2's, or goes by one of EXPRESSIONS and leaves nothing out."""
    if split["type"] == "Split":
        return (
            split["behavior"] == "Isolated"
            and not split["invert"]
            and split["pattern"].get("Regex") in EXPRESSIONS
        )
    return split["type"] == "ByteLevel" and split["use_regex"] and not split["add_prefix_space"]


def pieces(text: str) -> Iterator[str]:
    """A text in parts of about PIECE characters, cut between a letter and a space with a letter behind it, where there is one soon."""
    start = 0
    while start < len(text):
        cut = BETWEEN.search(text, start + PIECE, start + 2 * PIECE)
        stop = min(len(text), start + 2 * PIECE) if cut is None else cut.end()
        yield text[start:stop]
        start = stop
    if not text:
        yield text


def parts_of(pieces: Sequence[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Pieces in groups of about TOGETHER characters: the library takes hundreds of bytes for each token that it makes at once."""
    part, size = list[tuple[int, str]](), 0
    for piece in pieces:
        part.append(piece)
        size += len(piece[1])
        if size >= TOGETHER:
            yield part
            part, size = [], 0
    if part:
        yield part


def library() -> Any:
    """The `tokenizers` package. Raises ValueError where it is not there."""
    try:
        import tokenizers
    except ImportError:
        raise ValueError(
            "tokenizers is not installed. Install it from a clone (pip install -e '.[text]'), or use tokenizer=bytes."
        ) from None
    return tokenizers


def read_tokenizer(name: str, folder: Path | None = None) -> Bytes | Learned:
    """`bytes`; a tokenizer.json; a folder that has one, or GPT-2's two files; or a name on the Hugging Face hub.

    Where a `folder` is given it is a file in it, and nothing else. Raises ValueError where it is none of these, or damaged.
    """
    if name == "bytes":
        return Bytes()
    path = Path(name) if folder is None else folder / name
    if folder is not None and not path.is_file():
        raise ValueError(f"{path}: is missing, so what the tokens mean is not known; put it back")
    tokenizers = library()
    try:
        if path.is_file():
            return cached(path.absolute(), hashlib.sha256(path.read_bytes()).hexdigest())
        if (path / FILE).is_file():
            return read_tokenizer(FILE, path)
        for vocabulary, merges in PAIRS:
            if (path / vocabulary).is_file() and (path / merges).is_file():
                return of_gpt2(path / vocabulary, path / merges)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"tokenizer={name}: cannot be read ({error})") from None
    if path.is_dir():
        raise ValueError(
            f"tokenizer={name}: a folder without {FILE}, or {' or '.join(' and '.join(pair) for pair in PAIRS)}"
        )
    try:
        import huggingface_hub  # which tokenizers brings

        if isinstance(fetched := huggingface_hub.try_to_load_from_cache(name, FILE), str):
            check_growth(Path(fetched))
            return Learned(tokenizers.Tokenizer.from_file(fetched), name)
        ask_hub(name, FILE)
        fetched = huggingface_hub.hf_hub_download(name, FILE)
        check_growth(Path(fetched))
        return Learned(tokenizers.Tokenizer.from_file(fetched), name)
    except Exception as error:  # of the hub: no network, no such name, and many more
        raise ValueError(
            f"tokenizer={name}: must be bytes, bpe:SIZE, a {FILE}, a folder or a name on the hub ({first_line(error)})"
        ) from None


@cache
def cached(path: Path, sha256: str) -> Learned:
    """The tokenizer of a file, read once while it stays the same."""
    with refused_by_library(f"{path}: no tokenizer", "bring another"):
        check_growth(path)
        return Learned(library().Tokenizer.from_file(str(path)), str(path))


def of_gpt2(vocabulary: Path, merges: Path) -> Learned:
    """GPT-2's byte-level BPE from its two files. Raises ValueError where they are damaged."""
    tokenizers = library()
    try:
        json.loads(vocabulary.read_text())
        inner = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(vocabulary), str(merges)))
    except Exception as error:
        raise ValueError(f"{vocabulary}: no vocabulary of GPT-2 ({first_line(error)})") from None
    return Learned(byte_level(inner), str(vocabulary))


def byte_level(inner: Any) -> Any:
    """Splits as GPT-2 does, every byte of UTF-8 a character, and has a token that ends documents."""
    tokenizers = library()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens([END])
    return inner


def learn_bpe(texts: Iterator[str], size: int) -> Learned:
    """A byte-level BPE of `size` tokens learned from texts. Raises ValueError for a size that it cannot have."""
    tokenizers = library()
    if not 257 <= size <= MOST:
        raise ValueError(f"tokenizer=bpe:{size}: must have 257 to {MOST:,} tokens")
    inner = byte_level(tokenizers.Tokenizer(tokenizers.models.BPE()))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    return Learned(inner, f"bpe:{size}")
