"""Text: documents packed into sequences of one length, and prompts with gaps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from latent_tokens.checks import check_int
from latent_tokens.sizes import LONGEST
from latent_tokens.storage import short_hash
from latent_tokens.tasks.examples import Examples, TokensLike, as_array, one_sequence
from latent_tokens.tasks.text.tokenizer import (
    CHAT_TEMPLATE,
    TOKENIZER_FILE,
    Bytes,
    Learned,
    read_tokenizer,
    type_of_ids,
)

BLANK = re.compile("_{3,}")


def with_first_given(examples: Examples) -> Examples:
    """Return sequences whose first token, an end of document, is given, as it is in dialogues.

    The readout "left" needs it: no slot is to the left of position 0.
    """
    count, length = examples.tokens.shape
    if examples.known[:, 0].all():
        return examples
    known = np.broadcast_to(np.arange(length) == 0, (count, length))
    return Examples(examples.tokens, known, examples.lengths)


@dataclass(frozen=True)
class Text:
    """Sequences of L tokens: an end of document, L - 2 tokens of documents, and an end, as Eso-LM packs.

    It has no `generate`: its examples come from a data set.

    Attributes:
        length: L.
        tokenizer: A name that `read_tokenizer` takes.
        folder: The directory that has the tokenizer's file.

    Raises:
        ValueError: The length is out of range or, on first use, the tokenizer cannot be read.

    Example:
        >>> Text(length=8).encode("a___").known[0].tolist()
        [True, True, False, False, False, False, False, False]
    """

    length: int = 256
    tokenizer: str = "bytes"
    folder: Path | None = None

    name = "text"
    order = "uniform"  # the default decoding order and top-p (D-34, text framing)
    top_p = 0.9

    def __post_init__(self) -> None:
        check_int("length", self.length, 3)
        if self.length > LONGEST:
            reason = "as lengths are stored in 16 bits"
            raise ValueError(f"length={self.length:,}: must be at most {LONGEST:,}, {reason}")

    @cached_property
    def coder(self) -> Bytes | Learned:
        """The tokenizer, read on first use."""
        return read_tokenizer(self.tokenizer, self.folder)

    @property
    def vocab_size(self) -> int:
        """The number of tokens without MASK."""
        return self.coder.vocab_size

    @property
    def token_type(self) -> type[np.uint16 | np.uint32]:
        """The type of stored tokens."""
        return type_of_ids(self.vocab_size)

    @property
    def fingerprint(self) -> str:
        """A hash of the tokenizer, equal for texts of the same tokens."""
        coder = self.coder
        own = coder.to_json() if isinstance(coder, Learned) else self.tokenizer.encode()
        return short_hash(own, 8)

    def description(self) -> dict[str, str | int]:
        """Return the entries of manifests and config.json from which `text_described` restores the task."""
        named = {"tokenizer": self.tokenizer}
        if isinstance(self.coder, Learned):
            named["tokenizer_hash"] = self.fingerprint
        return {"name": self.name, "length": self.length, **named}

    def files(self) -> dict[str, bytes]:
        """Return the files, by name, that must be in the same directory as the description."""
        files = {self.tokenizer: self.coder.to_json()} if isinstance(self.coder, Learned) else {}
        if self.folder is not None and (self.folder / CHAT_TEMPLATE).is_file():
            files[CHAT_TEMPLATE] = (self.folder / CHAT_TEMPLATE).read_bytes()
        return files

    def encode(self, text: str) -> Examples:
        """Return a prompt as one example: an end of document and the prompt's tokens, all given.

        A gap of 3 or more underscores becomes as many masked tokens. All positions after the prompt
        are masked too, unless the prompt has a gap.

        Raises:
            ValueError: The prompt is longer than L, or has the word [MASK].
        """
        if "[MASK]" in text:
            fix = "Use a gap of underscores, ___ for three tokens."
            raise ValueError(f"prompt with [MASK]: is text here, and no masked token. {fix}")
        text.encode()  # a byte that is not UTF-8 is refused here, in words

        # Tokenize the parts between gaps.
        gaps = [len(gap) for gap in BLANK.findall(text)]
        ids = [self.coder.end]
        known = [True]
        for part, gap in zip(self.coder.encode(BLANK.split(text)), [*gaps, 0], strict=True):
            ids += [*part.tolist(), *[self.coder.end] * gap]
            known += [True] * len(part) + [False] * gap
        if len(ids) > self.length:
            limit = f"the limit is {self.length - 1:,}"
            raise ValueError(f"prompt of {len(ids) - 1:,} tokens: {limit}. Shorten it.")

        # Pad to L positions.
        tokens = np.full((1, self.length), self.coder.end, self.token_type)
        tokens[0, : len(ids)] = ids
        is_known = np.zeros((1, self.length), np.bool_)
        is_known[0, : len(ids)] = known
        return Examples.of(tokens, is_known, [len(ids) if gaps else self.length])

    def sequences(self, text: str) -> Examples:
        """Return a text as sequences of L - 2 tokens between ends of document, the last one shorter."""
        (ids,) = self.coder.encode([text])
        inner = self.length - 2
        parts = [ids[start : start + inner] for start in range(0, len(ids), inner)]
        tokens = np.full((len(parts), self.length), self.coder.end, self.token_type)
        for row, part in zip(tokens, parts, strict=True):
            row[1 : len(part) + 1] = part
        return Examples.of(tokens, 0, [len(part) + 2 for part in parts])

    def decode(self, tokens: TokensLike) -> str:
        """Return the text of one sequence, with ends of document as the tokenizer names them."""
        return self.coder.decode(one_sequence(tokens).tolist())

    def document(self, tokens: TokensLike, known: ArrayLike) -> str:
        """Return the text of one sample from its first token to its first decoded end, without either end.

        An end before a given token, as in a gap, ends no document.
        """
        ids = as_array(tokens)
        start = int(ids[0] == self.coder.end)
        is_known = np.asarray(known, np.bool_)
        begin = max(start, int(np.flatnonzero(is_known).max(initial=-1)) + 1)
        ends = begin + np.flatnonzero(ids[begin:] == self.coder.end)
        return self.decode(ids[start : ends.min(initial=len(ids))])

    def inside(self, tokens: Sequence[int]) -> str:
        """Return tokens as they read inside a text: with the leading space that many tokenizers omit.

        A part of a character is U+FFFD.
        """
        end = self.coder.end
        return self.coder.decode([end, *tokens]).removeprefix(self.coder.decode([end]))


def text_described(entries: Mapping[str, object], folder: Path | None) -> Text:
    """Return the text of a description in a directory, with its tokenizer read.

    Raise ValueError if it is none, or the tokenizer is not the one that was saved.
    """
    length = entries.get("length")
    tokenizer = entries.get("tokenizer")
    if not isinstance(length, int) or not isinstance(tokenizer, str):
        raise ValueError(f"{entries}: no task of this version")
    if tokenizer not in ("bytes", TOKENIZER_FILE):
        must = f"must be bytes or {TOKENIZER_FILE}, a file of the same directory"
        raise ValueError(f"tokenizer={tokenizer[:80]!a}: {must}")
    text = Text(length, tokenizer, folder)
    if isinstance(text.coder, Learned) and folder is not None and "tokenizer_hash" in entries:
        file = folder / tokenizer
        if short_hash(file.read_bytes(), 8) != entries["tokenizer_hash"]:
            problem = "is not the tokenizer that was saved here: its tokens mean other text"
            raise ValueError(f"{file}: {problem}. Restore the saved one.")
    return text
