"""Text: documents, packed into sequences of one length; prompts with gaps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from latent_tokens.checks import check_int
from latent_tokens.sizes import LONGEST
from latent_tokens.storage import short_hash
from latent_tokens.tasks.base import Examples, Tokens
from latent_tokens.tasks.text.tokenizer import FILE, Bytes, Learned, read_tokenizer

GAP = re.compile("_{3,}")


@dataclass(frozen=True)
class Text:
    """Sequences of L tokens: an end of document, L - 2 tokens of the documents one after the other, and an end again (Eso-LM's wrapping).

    `tokenizer` is what `read_tokenizer` takes; a file is looked for in `folder`. Raises ValueError where there is none.
    """

    length: int = 256
    tokenizer: str = "bytes"
    folder: Path | None = None

    name, order, top_p = (
        "text",
        "uniform",
        0.9,
    )  # what it is decoded with where nothing else is asked for (D-34, text framing)

    def __post_init__(self) -> None:
        check_int("length", self.length, 3)
        if self.length > LONGEST:
            raise ValueError(
                f"length={self.length:,}: must be at most {LONGEST:,}, as lengths are kept in 16 bits"
            )

    @cached_property
    def coder(self) -> Bytes | Learned:
        """The tokenizer itself, read when it is first needed."""
        return read_tokenizer(self.tokenizer, self.folder)

    @property
    def vocab_size(self) -> int:
        return self.coder.vocab_size

    @property
    def fingerprint(self) -> str:
        """Of the tokenizer: the same where two texts are of the same tokens."""
        content = self.coder.to_json() if isinstance(self.coder, Learned) else self.tokenizer.encode()
        return short_hash(content, 8)

    def description(self) -> dict[str, Any]:
        """What manifests and run folders hold of it."""
        about = {"name": self.name, "length": self.length, "tokenizer": self.tokenizer}
        return {**about, "tokenizer_hash": self.fingerprint} if isinstance(self.coder, Learned) else about

    def files(self) -> dict[str, bytes]:
        """What must stand beside that description."""
        return {self.tokenizer: self.coder.to_json()} if isinstance(self.coder, Learned) else {}

    def encode(self, text: str) -> Examples:
        """A prompt as one example: an end of document, then its tokens, known, and as many open ones as a gap has underscores (3 or more).

        What comes after is open too, up to L tokens, unless the prompt has a gap. Raises ValueError for a prompt that is longer, or no text.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"prompt: its character {error.start + 1} is half of one, or a byte that is no UTF-8; type it anew"
            ) from None
        pieces, gaps = GAP.split(text), [len(found) for found in GAP.findall(text)]
        ids, known = [self.coder.end], [True]
        for part, gap in zip(self.coder.encode(pieces), [*gaps, 0], strict=True):
            ids += [*part.tolist(), *[self.coder.end] * gap]
            known += [True] * len(part) + [False] * gap
        if len(ids) > self.length:
            raise ValueError(
                f"prompt of {len(ids) - 1:,} tokens: this model takes {self.length - 1:,} at most; shorten it"
            )
        length = len(ids) if gaps else self.length
        left = self.length - len(ids)
        tokens = np.array([ids + [self.coder.end] * left], np.uint16)
        return Examples(tokens, np.array([known + [False] * left]), np.array([length], np.uint16))

    def sequences(self, text: str) -> Examples:
        """A whole text as the model learned text: in pieces of L - 2 tokens between ends of document, the last one shorter. Nothing is known.

        Raises ValueError where there is no text.
        """
        (ids,) = self.coder.encode([text])
        if not len(ids):
            raise ValueError("no text: it has no token")
        inner = self.length - 2
        pieces = [ids[start : start + inner] for start in range(0, len(ids), inner)]
        tokens = np.full((len(pieces), self.length), self.coder.end, np.uint16)
        for row, piece in zip(tokens, pieces, strict=True):
            row[1 : len(piece) + 1] = piece
        lengths = np.array([len(piece) + 2 for piece in pieces], np.uint16)
        return Examples(tokens, np.zeros(tokens.shape, np.bool_), lengths)

    def decode(self, tokens: Tokens) -> str:
        """The text of one sequence; ends of documents show as the tokenizer names them, <|endoftext|> for most."""
        return self.coder.decode(tokens.tolist())

    def inside(self, tokens: Sequence[int]) -> str:
        """Some tokens as they stand inside a text, with the space that many leave out at its beginning; a part of a character is U+FFFD."""
        end = self.coder.end
        return self.coder.decode([end, *tokens]).removeprefix(self.coder.decode([end]))


def text_described(about: Mapping[str, Any], folder: Path | None) -> Text:
    """The text that a description in a folder means, its tokenizer read. Raises ValueError where it means none, or the tokenizer is another."""
    length, tokenizer = about.get("length"), about.get("tokenizer")
    if not isinstance(length, int) or not isinstance(tokenizer, str):
        raise ValueError(f"{about}: no task of this version")
    if tokenizer not in ("bytes", FILE):
        raise ValueError(
            f"tokenizer={tokenizer[:80]!a}: must be bytes or {FILE}, a file of the folder itself"
        )
    text = Text(length, tokenizer, folder)
    text.coder  # noqa: B018
    if folder is not None and "tokenizer_hash" in about:
        found = (
            short_hash((folder / tokenizer).read_bytes(), 8) if isinstance(text.coder, Learned) else tokenizer
        )
        if found != about["tokenizer_hash"]:
            raise ValueError(
                f"{folder / tokenizer}: is not the tokenizer that was saved here; its tokens would mean another text, so bring that one back"
            )
    return text
