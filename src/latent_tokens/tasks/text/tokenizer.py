"""Tokenizers: bytes, or any that the `tokenizers` library reads. Each has one token that ends documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from latent_tokens.checks import ask_hub, first_line, one_line

if TYPE_CHECKING:
    from tokenizers import Tokenizer as LibraryTokenizer


def library() -> ModuleType:
    """Return the `tokenizers` package. Raise ValueError if it is not installed."""
    try:
        import tokenizers
    except ImportError:
        raise ValueError(
            "tokenizers: is not installed. "
            "Install it from a clone (pip install -e '.[text]'), or use tokenizer=bytes."
        ) from None
    return tokenizers


@contextmanager
def library_errors(message: str, fix: str) -> Iterator[None]:
    """Raise ValueError for anything that the library raises. A panic of Rust is a BaseException."""
    try:
        yield
    except (MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except ValueError:
        raise
    except BaseException as error:
        raise ValueError(f"{message} ({one_line(str(error) or type(error).__name__, 200)}). {fix}") from None


Ids = NDArray[np.uint16 | np.uint32]


FILE = "tokenizer.json"


UNKNOWN = "\N{REPLACEMENT CHARACTER}"


END = "<|endoftext|>"


# Tokens that end documents in published tokenizers. Those of Llama 3 and BERT are the last two.
ENDS = (END, "</s>", "<eos>", "[EOS]", "<|im_end|>", "<|end_of_text|>", "[SEP]")


GPT2_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))  # by their two names


BATCH_CHARACTERS = 1 << 20  # tokenized in one call


MAX_TOKENS = 1_048_575  # a limit for corrupt files: published vocabularies have up to 902,000


MAX_16_BIT = 65_535  # of the ids that are stored as uint16


class Tokenizer(Protocol):
    """A map from text to ids 0..vocab_size-1 and back."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens without MASK."""

    @property
    def end(self) -> int:
        """The token that ends a document."""

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text, without an end."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids. Ids that are not in the vocabulary become U+FFFD."""


class Bytes:
    """A token for every byte of UTF-8. Token 256 ends a document."""

    vocab_size = 257
    end = 256

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.uint16) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        pieces = []
        run = bytearray()
        for token in [*ids, None]:
            if token is not None and token < 256:
                run.append(token)
                continue
            pieces.append(run.decode(errors="replace"))
            run.clear()
            if token is not None:
                pieces.append(END if token == self.end else UNKNOWN)
        return "".join(pieces)


class Learned:
    """A tokenizer of the `tokenizers` library.

    Raises:
        ValueError: It does not have a token that ends documents, or has too many tokens.
    """

    def __init__(self, inner: LibraryTokenizer, name: str) -> None:
        inner.no_truncation()  # a file may ask for both
        inner.no_padding()
        self.name = name
        self.inner = inner
        self.vocab_size = 1 + max(inner.get_vocab().values(), default=-1)
        end = next((number for number in map(inner.token_to_id, ENDS) if number is not None), None)
        if end is None:
            raise ValueError(
                f"{name}: none of {', '.join(ENDS)} is one of its tokens, so documents cannot be ended. "
                "Use another tokenizer."
            )
        if self.vocab_size > MAX_TOKENS:
            raise ValueError(
                f"{name}: has {self.vocab_size:,} tokens, more than {MAX_TOKENS:,}. Use another tokenizer."
            )
        self.end: int = end

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        ids: list[Ids] = []
        for batch in batches_of(texts):
            with library_errors(f"{self.name}: does not tokenize this text", "Use another tokenizer."):
                encodings = self.inner.encode_batch(batch, add_special_tokens=False)
            ids += [np.array(encoding.ids, type_of_ids(self.vocab_size)) for encoding in encodings]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        # The tokens between two unknown ones are decoded together: one may be a part of a character.
        runs = groupby(map(int, ids), self._is_token)
        with library_errors(f"{self.name}: does not decode these tokens", "Use another tokenizer."):
            return "".join(
                self._decode(list(run)) if is_token else UNKNOWN * len(list(run)) for is_token, run in runs
            )

    def _is_token(self, number: int) -> bool:
        """Return whether an id is a token. The ids of a vocabulary may have gaps."""
        return number < self.vocab_size and self.inner.id_to_token(number) is not None

    def _decode(self, tokens: list[int]) -> str:
        return str(self.inner.decode(tokens, skip_special_tokens=False))

    def to_json(self) -> bytes:
        """Return the content of its tokenizer.json."""
        return bytes(self.inner.to_str().encode())


def type_of_ids(vocab_size: int) -> type[np.uint16 | np.uint32]:
    """Return the type of the tokens of a text: uint16, or uint32 if MASK, the last id, needs it."""
    return np.uint16 if vocab_size <= MAX_16_BIT else np.uint32


def batches_of(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield texts in groups of about BATCH_CHARACTERS: a call takes hundreds of bytes per token."""
    batch: list[str] = []
    num_characters = 0
    for text in texts:
        batch.append(text)
        num_characters += len(text)
        if num_characters >= BATCH_CHARACTERS:
            yield batch
            batch = []
            num_characters = 0
    if batch:
        yield batch


def read_tokenizer(name: str, folder: Path | None = None) -> Bytes | Learned:
    """Return a tokenizer by name.

    Args:
        name: "bytes", a tokenizer.json, a folder with one or with GPT-2's two files, or a name on the
            Hugging Face Hub.
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
    library()
    try:
        if path.is_file():
            return read_cached(path.absolute(), hashlib.sha256(path.read_bytes()).hexdigest())
        if (path / FILE).is_file():
            return read_tokenizer(FILE, path)
        for vocabulary, merges in GPT2_FILES:
            if (path / vocabulary).is_file() and (path / merges).is_file():
                return read_gpt2(path / vocabulary, path / merges)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"tokenizer={name}: cannot be read ({error})") from None
    if path.is_dir():
        others = " or ".join(" and ".join(pair) for pair in GPT2_FILES)
        raise ValueError(f"tokenizer={name}: a directory without {FILE}, or {others}")
    try:
        return fetch_tokenizer(name)
    except Exception as error:  # a hub or a network can fail in any way
        raise ValueError(
            f"tokenizer={name}: must be bytes, bpe:SIZE, a {FILE}, a directory or a name on the Hub "
            f"({first_line(error)})"
        ) from None


def fetch_tokenizer(name: str) -> Learned:
    """Return a tokenizer of the hub, from its cache if it is there. Raise any error of the hub."""
    import huggingface_hub  # a dependency of tokenizers

    file = huggingface_hub.try_to_load_from_cache(name, FILE)
    if not isinstance(file, str):
        ask_hub(name, FILE)
        file = huggingface_hub.hf_hub_download(name, FILE)
    check_growth(Path(file))
    return Learned(library().Tokenizer.from_file(file), name)


@cache
def read_cached(path: Path, sha256: str) -> Learned:
    """Return the tokenizer of a file, read once while its content stays the same."""
    with library_errors(f"{path}: not a tokenizer", "Use another file."):
        check_growth(path)
        return Learned(library().Tokenizer.from_file(str(path)), str(path))


def read_gpt2(vocabulary: Path, merges: Path) -> Learned:
    """Return GPT-2's byte-level BPE from its two files. Raise ValueError if one is corrupt."""
    tokenizers = library()
    try:
        json.loads(vocabulary.read_text())
        inner = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(vocabulary), str(merges)))
    except Exception as error:
        raise ValueError(f"{vocabulary}: not a vocabulary of GPT-2 ({first_line(error)})") from None
    return Learned(with_byte_level(inner), str(vocabulary))


def with_byte_level(inner: LibraryTokenizer) -> LibraryTokenizer:
    """Make a tokenizer split as GPT-2 does, over the bytes of UTF-8, with a token that ends documents."""
    tokenizers = library()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.add_special_tokens([END])
    return inner


def learn_bpe(texts: Iterator[str], size: int) -> Learned:
    """Return a byte-level BPE learned from texts. Raise ValueError if its size is out of range."""
    tokenizers = library()
    if not 257 <= size <= MAX_TOKENS:
        raise ValueError(f"tokenizer=bpe:{size}: must have 257 to {MAX_TOKENS:,} tokens")
    inner = with_byte_level(tokenizers.Tokenizer(tokenizers.models.BPE()))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    return Learned(inner, f"bpe:{size}")


MOST_GROWTH = 64  # characters per character, in normalizing or in decoding


LONGEST_TOKEN = 4_096  # characters


LARGEST_FILE = 1 << 27  # bytes


DEEPEST = 16  # sequences of steps in sequences


LARGEST_FACTOR = 10**12  # beyond which the exact factor does not matter


def check_growth(path: Path) -> None:
    """Raise ValueError if a tokenizer.json makes too many characters of one, or has too long a token."""
    num_bytes = path.stat().st_size
    if num_bytes > LARGEST_FILE:
        raise ValueError(
            f"{path}: has {num_bytes:,} bytes, more than {LARGEST_FILE:,}. Use another tokenizer"
        )
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return  # the library reports the error
    if not isinstance(content, dict):
        return
    for part in ("normalizer", "decoder"):
        factor = growth(content.get(part))
        if factor > MOST_GROWTH:
            raise ValueError(
                f"{path}: its {part} makes up to {factor:,} characters of one, "
                f"more than {MOST_GROWTH}. Use another tokenizer"
            )
    longest = max(map(len, tokens(content)), default=0)
    if longest > LONGEST_TOKEN:
        raise ValueError(
            f"{path}: has a token of {longest:,} characters, more than {LONGEST_TOKEN:,}. "
            "Use another tokenizer"
        )


def growth(step: object, depth: int = 0) -> int:
    """Return how many characters a step of normalizing or decoding can make of one."""
    if not isinstance(step, dict):
        return 1
    if depth > DEEPEST:
        return MOST_GROWTH + 1
    factor = 1
    for inner in [*as_list(step.get("normalizers")), *as_list(step.get("decoders"))]:
        factor = min(factor * growth(inner, depth + 1), LARGEST_FACTOR)
    content = step.get("content")
    if step.get("type") == "Replace" and isinstance(content, str):
        pattern = step.get("pattern")
        replaced = pattern.get("String") if isinstance(pattern, dict) else None
        if isinstance(replaced, str) and replaced:
            factor *= -(-len(content) // len(replaced))
        else:
            factor *= 1 + len(content)
    prefix = step.get("prepend")
    if step.get("type") == "Prepend" and isinstance(prefix, str):
        factor *= 1 + len(prefix)
    return max(1, factor)


def tokens(content: dict[str, object]) -> Iterator[str]:
    """Yield the tokens of a tokenizer.json: its vocabulary (a dict or a list of pairs) and added ones."""
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    entries: Iterable[object]
    if isinstance(vocabulary, dict):
        entries = vocabulary
    else:
        entries = (pair[0] for pair in as_list(vocabulary) if isinstance(pair, list) and pair)
    added = as_list(content.get("added_tokens"))
    added_contents = (token.get("content") for token in added if isinstance(token, dict))
    for token in (*entries, *added_contents):
        if isinstance(token, str):
            yield token


def as_list(value: object) -> list[object]:
    """Return a value that is a list, or an empty list."""
    return value if isinstance(value, list) else []
