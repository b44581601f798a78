"""The tokenizer of a model directory, in the files that AutoTokenizer of transformers reads without code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from latent_tokens.storage import Json, json_bytes
from latent_tokens.tasks import Language, Text
from latent_tokens.tasks.text.tokenizer import END, FILE, Learned

CONFIG = "tokenizer_config.json"
ROLES = {"PAD": "pad_token", "BOS": "bos_token", "EOS": "eos_token", "SEP": "sep_token"}
MASK_NAMES = ("[MASK]", "<|mask|>", "<|latent-tokens mask|>")
FRAME = "|+-"  # drawn around boards
BYTE_LEVEL: dict[str, Json] = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": False,
}


def tokenizer_files(
    task: Language | None, vocab_size: int, length: int, mask_id: int | None = None
) -> dict[str, bytes]:
    """Return tokenizer.json and tokenizer_config.json by name.

    The tokens of a puzzle are the task's `symbols`. If all of these are single characters, "." is MASK.
    A learned tokenizer keeps its own tokenizer.json, and only the config names MASK.

    Args:
        task: the task of the model. None has a word for each token, its number.
        vocab_size: the number of tokens without MASK.
        length: the number of positions.
        mask_id: MASK. None is the token `vocab_size`.
    """
    mask_id = vocab_size if mask_id is None else mask_id
    if isinstance(task, Text):
        return text_files(task, mask_id)
    symbols: Sequence[str] = getattr(task, "symbols", ())
    if len(symbols) != vocab_size:
        symbols = [str(token) for token in range(vocab_size)]

    # Special tokens, by their names in brackets.
    roles = {symbol: ROLES.get(symbol[1:-1]) for symbol in symbols if is_special(symbol)}
    are_characters = all(len(symbol) == 1 for symbol in symbols if symbol not in roles)
    mask = "." if are_characters and "." not in symbols else MASK_NAMES[0]
    special = {role: symbol for symbol, role in roles.items() if role} | {"mask_token": mask}

    # A model of transformers may have unused tokens before MASK.
    tokens = {**numbered(symbols), mask: mask_id}

    # Characters are read one by one, without frames and spaces. Other words have spaces between them.
    skipped = "".join(re.escape(character) for character in FRAME if character not in symbols)
    tokenizer: dict[str, Json] = {
        "normalizer": replace_all(rf"[\s{skipped}]") if are_characters else None,
        "pre_tokenizer": split_characters() if are_characters else {"type": "WhitespaceSplit"},
        "decoder": {"type": "Fuse"} if are_characters else None,
        "model": {"type": "WordLevel", "vocab": tokens, "unk_token": ""},
    }
    added = {token: name for name, token in tokens.items() if name in roles or name == mask}
    return {FILE: tokenizer_bytes(tokenizer, added), CONFIG: config_bytes(length, special)}


def text_files(text: Text, mask_id: int) -> dict[str, bytes]:
    """Return the files of a text's tokenizer. A document begins and ends with the same token.

    MASK has a name if it is a token of a learned tokenizer, or the next id.
    """
    coder = text.coder
    end = (coder.inner.id_to_token(coder.end) or END) if isinstance(coder, Learned) else END
    special = {"bos_token": end, "eos_token": end, "pad_token": end}
    if isinstance(coder, Learned):
        # transformers numbers a new token by the count of the others, so gaps in the ids leave no MASK.
        names = coder.inner.get_vocab()
        reserved = coder.inner.id_to_token(mask_id)
        if reserved is not None:
            special["mask_token"] = reserved
        elif len(names) == mask_id:
            special["mask_token"] = next(name for name in MASK_NAMES if name not in names)
        return {CONFIG: config_bytes(text.length, special)}
    added = {coder.end: END}
    if mask_id == coder.vocab_size:
        special["mask_token"] = MASK_NAMES[0]
        added[mask_id] = MASK_NAMES[0]
    tokenizer: dict[str, Json] = {
        "pre_tokenizer": BYTE_LEVEL,
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": numbered(byte_characters()), "merges": []},
    }
    return {FILE: tokenizer_bytes(tokenizer, added), CONFIG: config_bytes(text.length, special)}


def is_special(symbol: str) -> bool:
    """Return whether a symbol is a name in brackets, such as [PAD] or <PAD>."""
    return re.fullmatch(r"\[[A-Z]+\]|<[A-Z]+>", symbol) is not None


def numbered(names: Iterable[str]) -> dict[str, int]:
    """Return the number of each name, from 0."""
    return {name: number for number, name in enumerate(names)}


def replace_all(pattern: str) -> dict[str, Json]:
    """Return the step of tokenizer.json that removes what a pattern matches."""
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}


def split_characters() -> dict[str, Json]:
    """Return the step of tokenizer.json that makes every character a token."""
    return {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}


def byte_characters() -> list[str]:
    """Return the character that stands for each byte in a byte-level vocabulary, as GPT-2 defines it."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256)]


def tokenizer_bytes(parts: dict[str, Json], added: dict[int, str]) -> bytes:
    """Return the content of tokenizer.json, with special tokens by their ids."""
    flags: dict[str, Json] = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    tokens: list[Json] = [{"id": token, "content": name, **flags} for token, name in added.items()]
    return json_bytes({"version": "1.0", "added_tokens": tokens, **parts})


def config_bytes(length: int, special: dict[str, str]) -> bytes:
    """Return the content of tokenizer_config.json."""
    config: dict[str, Json] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **special,
    }
    return json_bytes(config)
