"""A limit on how much longer a tokenizer.json makes a text: kilobytes can ask for terabytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

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
