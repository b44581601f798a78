"""How much longer a tokenizer.json can make a text: a few kilobytes can ask for a text of terabytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MOST_GROWTH = 64  # characters for one, in normalizing or in decoding
LONGEST_TOKEN = 4_096  # characters
LARGEST_FILE = 1 << 27  # bytes
DEEPEST = 16  # sequences of steps in sequences


def check_growth(path: Path) -> None:
    """Raises ValueError if a tokenizer.json could make more than MOST_GROWTH characters of one, or has tokens of any length."""
    if path.stat().st_size > LARGEST_FILE:
        raise ValueError(
            f"{path}: has {path.stat().st_size:,} bytes, more than {LARGEST_FILE:,}. Use another tokenizer"
        )
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return  # the library says what is wrong with it
    if not isinstance(content, dict):
        return
    for part in ("normalizer", "decoder"):
        grown = growth(content.get(part))
        if grown > MOST_GROWTH:
            raise ValueError(
                f"{path}: its {part} makes up to {grown:,} characters of one, more than {MOST_GROWTH}. Use another tokenizer"
            )
    longest = max(map(len, tokens(content)), default=0)
    if longest > LONGEST_TOKEN:
        raise ValueError(
            f"{path}: has a token of {longest:,} characters, more than {LONGEST_TOKEN:,}. Use another tokenizer"
        )


def growth(step: Any, depth: int = 0) -> int:
    """How many characters a step of normalizing or decoding can make of one, by what is written in the file."""
    if not isinstance(step, dict):
        return 1
    if depth > DEEPEST:
        return MOST_GROWTH + 1
    total = 1
    for inner in [*as_list(step.get("normalizers")), *as_list(step.get("decoders"))]:
        total = min(total * growth(inner, depth + 1), 10**12)
    content = step.get("content")
    if step.get("type") == "Replace" and isinstance(content, str):
        pattern = step.get("pattern")
        replaced = pattern.get("String") if isinstance(pattern, dict) else None
        total *= (
            -(-len(content) // len(replaced)) if isinstance(replaced, str) and replaced else 1 + len(content)
        )
    prefix = step.get("prepend")
    if step.get("type") == "Prepend" and isinstance(prefix, str):
        total *= 1 + len(prefix)
    return max(1, total)


def tokens(content: dict[str, Any]) -> list[str]:
    """The tokens of a tokenizer.json: a dict of them, a list of pairs, and those that were added."""
    model = content.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    entries = (
        vocab.keys()
        if isinstance(vocab, dict)
        else (pair[0] for pair in as_list(vocab) if isinstance(pair, list) and pair)
    )
    added = (
        token.get("content") for token in as_list(content.get("added_tokens")) if isinstance(token, dict)
    )
    return [token for token in [*entries, *added] if isinstance(token, str)]


def as_list(value: Any) -> list[Any]:
    """A value that is a list, or an empty one."""
    return value if isinstance(value, list) else []
