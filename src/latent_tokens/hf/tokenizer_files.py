"""The tokenizer of a model directory, in the files that AutoTokenizer of transformers reads without code."""

from __future__ import annotations

import re
from collections.abc import Sequence

from latent_tokens.storage import Json, json_bytes
from latent_tokens.tasks import Language, Text
from latent_tokens.tasks.text.tokenizer import END, TOKENIZER_FILE, Learned

TOKENIZER_CONFIG = "tokenizer_config.json"
TOKEN_ROLES = {"PAD": "pad_token", "BOS": "bos_token", "EOS": "eos_token", "SEP": "sep_token"}
MASK_NAMES = ("[MASK]", "<|mask|>", "<|latent-tokens mask|>")
FRAME = "|+-"  # drawn around boards
SPLIT_CHARACTERS: dict[str, Json] = {
    "type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False,
}  # fmt: skip
BYTE_LEVEL: dict[str, Json] = {
    "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False,
}  # fmt: skip
FLAGS: dict[str, Json] = {
    "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True,
}  # fmt: skip


def tokenizer_files(
    task: Language | None, vocab_size: int, length: int, mask_id: int | None = None
) -> dict[str, bytes]:
    """Return tokenizer.json and tokenizer_config.json by name.

    The tokens of a puzzle are the task's `symbols`. If all of these are single characters, "." is
    MASK. A learned tokenizer keeps its own tokenizer.json, and only the config names MASK.

    Args:
        task: the task of the model. None has a word for each token, its number.
        vocab_size: the number of tokens without MASK.
        length: the number of positions.
        mask_id: MASK. None is the token `vocab_size`. A model of transformers may have unused
            tokens before.
    """
    mask_id = vocab_size if mask_id is None else mask_id
    if isinstance(task, Text):
        return text_files(task, mask_id)
    symbols: Sequence[str] = getattr(task, "symbols", ())
    if len(symbols) != vocab_size:
        symbols = [str(token) for token in range(vocab_size)]

    # Special tokens, by their names in brackets, such as [PAD] or <PAD>.
    names = [symbol for symbol in symbols if re.fullmatch(r"\[[A-Z]+\]|<[A-Z]+>", symbol)]
    are_characters = all(len(symbol) == 1 for symbol in symbols if symbol not in names)
    mask = "." if are_characters and "." not in symbols else MASK_NAMES[0]
    roles = {TOKEN_ROLES[name[1:-1]]: name for name in names if name[1:-1] in TOKEN_ROLES}

    # Characters are read one by one, without frames and spaces, unless these are tokens. Other words
    # have spaces between them.
    tokens = {**{symbol: token for token, symbol in enumerate(symbols)}, mask: mask_id}
    skipped = "".join(re.escape(character) for character in FRAME if character not in symbols)
    spaces = "".join(re.escape(symbol) for symbol in symbols if symbol.isspace())
    kept = f"(?![{spaces}])" if spaces else ""  # a space may be a token, too
    skip: dict[str, Json] = {
        "type": "Replace",
        "pattern": {"Regex": rf"{kept}[\s{skipped}]"},
        "content": "",
    }
    tokenizer: dict[str, Json] = {
        "normalizer": skip if are_characters else None,
        "pre_tokenizer": SPLIT_CHARACTERS if are_characters else {"type": "WhitespaceSplit"},
        "decoder": {"type": "Fuse"} if are_characters else None,
        "model": {"type": "WordLevel", "vocab": tokens, "unk_token": ""},
    }
    added = {token: name for name, token in tokens.items() if name in (*names, mask)}
    return both_files(length, {**roles, "mask_token": mask}, tokenizer, added)


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
        return both_files(text.length, special)
    added = {coder.end: END}
    if mask_id == coder.vocab_size:
        special["mask_token"] = MASK_NAMES[0]
        added[mask_id] = MASK_NAMES[0]
    tokens = {character: byte for byte, character in enumerate(byte_characters())}
    tokenizer: dict[str, Json] = {
        "pre_tokenizer": BYTE_LEVEL,
        "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "vocab": tokens, "merges": []},
    }
    return both_files(text.length, special, tokenizer, added)


def byte_characters() -> list[str]:
    """Return the character that stands for each byte in a byte-level vocabulary, as GPT-2 defines it."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256)]


def both_files(
    length: int,
    special: dict[str, str],
    tokenizer: dict[str, Json] | None = None,
    added: dict[int, str] | None = None,
) -> dict[str, bytes]:
    """Return tokenizer_config.json, and tokenizer.json if there are its parts and special tokens by id."""
    config: dict[str, Json] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **special,
    }
    if tokenizer is None:
        return {TOKENIZER_CONFIG: json_bytes(config)}
    tokens: list[Json] = [
        {"id": token, "content": name, **FLAGS} for token, name in (added or {}).items()
    ]
    content = json_bytes({"version": "1.0", "added_tokens": tokens, **tokenizer})
    return {TOKENIZER_FILE: content, TOKENIZER_CONFIG: json_bytes(config)}
