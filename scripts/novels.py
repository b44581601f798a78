"""Write short sentences of Jane Austen's six novels, which are in the public domain, and their tokenizer.

    python scripts/novels.py texts/novels

They are the sentences of 5 to 14 words and commas, all of them among the 1,000 most frequent. The source is
Debian's package `r-cran-janeaustenr`. It needs `apt-get`, `dpkg-deb` and a network, and installs nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from english import unpacked
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from latent_tokens.tasks.text.tokenizer import END

PACKAGE = "r-cran-janeaustenr"
DATABASE = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
NUM_WORDS = 1_000
LENGTHS = range(5, 15)
END_OF_SENTENCE = re.compile(r"(?<=[.!?;:])[\"']*\s+|\s*--\s*|[\"()]")
WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?|,")


def objects_of(database: bytes) -> Iterator[bytes]:
    """Yield the objects of an R database: each is a length of 4 bytes, then zlib data."""
    while database:
        reader = zlib.decompressobj()
        yield reader.decompress(database[4:])
        database = reader.unused_data


def lines_of(serialized: bytes) -> list[str]:
    """Return the strings of a serialized R vector: each is the type 9 with flags, a length, and bytes."""
    start = serialized.index(b"\x00\x00\x00\x10") + 4  # a character vector
    (count,) = struct.unpack_from(">i", serialized, start)
    offset = start + 4
    lines = []
    for _ in range(count):
        _, length = struct.unpack_from(">ii", serialized, offset)
        offset += 8
        lines.append(serialized[offset : offset + length].decode())
        offset += length
    return lines


def sentences_of(text: str) -> list[list[str]]:
    """Return the words and commas of each sentence or part of one, the first word as inside a sentence."""
    text = re.sub(r"\b(Mr|Mrs|Dr|St)\.", r"\1", text)
    sentences = [WORD.findall(part) for part in END_OF_SENTENCE.split(text)]
    trimmed = [" ".join(words).strip(", ").split() for words in sentences]
    inside = Counter(word for words in trimmed for word in words[1:])
    for words in filter(None, trimmed):
        word = words[0]
        words[0] = word if word == "I" or inside[word] >= inside[word.lower()] else word.lower()
    return trimmed


def mixed(sentence: str) -> bytes:
    """Return a key that sorts sentences in no order: neighbors of one sequence then differ."""
    return hashlib.sha256(sentence.encode()).digest()


def tokenizer_of(words: list[str]) -> str:
    """Return the tokenizer.json with a token for each word, and one that ends documents."""
    vocabulary = {word: number for number, word in enumerate([*words, END])}
    tokenizer = Tokenizer(WordLevel(vocabulary))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens([END])
    return str(tokenizer.to_str())


def main(out: Path) -> None:
    """Download the package and write the sentences and their tokenizer."""
    if out.exists():
        sys.exit(f"{out}: exists. Name a new directory.")
    with tempfile.TemporaryDirectory() as folder:
        package = unpacked(PACKAGE, Path(folder))
        novels = objects_of((Path(folder) / DATABASE).read_bytes())
        text = " ".join(" ".join(lines_of(novel)).replace("_", "") for novel in novels)
    sentences = sentences_of(text)
    counts = Counter(word for words in sentences for word in words)
    common = [word for word, _ in counts.most_common(NUM_WORDS)]
    is_common = set(common)
    short = {" ".join(words) for words in sentences if len(words) in LENGTHS and is_common.issuperset(words)}
    out.mkdir(parents=True)
    lines = [f"{json.dumps({'text': sentence})}\n" for sentence in sorted(short, key=mixed)]
    (out / "sentences.jsonl").write_text("".join(lines), encoding="utf-8")
    (out / "tokenizer.json").write_text(tokenizer_of(common), encoding="utf-8")
    print(f"{out}: {len(lines):,} sentences of {package.name}")


if __name__ == "__main__":
    main(Path(*sys.argv[1:]) if len(sys.argv) == 2 else sys.exit(__doc__))
