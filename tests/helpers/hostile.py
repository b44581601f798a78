"""Hand-made files that no writer produces. Each must be refused."""

import json


def by_hand(offsets, shape=(2,), dtype="F32", size=16):
    """Return a .safetensors file with any shapes and offsets in its header."""
    header = {
        f"w{i}": {"dtype": dtype, "shape": list(shape), "data_offsets": list(pair)}
        for i, pair in enumerate(offsets)
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)


OFFSETS = {
    "overlapping": by_hand([(0, 8), (4, 12)]),
    "the same bytes twice": by_hand([(0, 8), (0, 8)], size=8),
    "beyond the end": by_hand([(0, 8), (1 << 40, (1 << 40) + 8)]),
    "a huge end": by_hand([(0, (1 << 64) - 1)]),
    "more than 64 bits": by_hand([(0, 1 << 70)]),
    "negative": by_hand([(-8, 0)]),
    "backwards": by_hand([(8, 0)]),
    "a huge shape": by_hand([(0, 8)], shape=(1 << 62, 1 << 62)),
    "a negative shape": by_hand([(0, 8)], shape=(-2,)),
    "a hole": by_hand([(0, 8), (12, 20)], size=20),
    "bytes behind": by_hand([(0, 8)], size=1_000),
    "a header of exabytes": ((1 << 62).to_bytes(8, "little") + b"{}"),
    "a header beyond the end": ((1_000).to_bytes(8, "little") + b"{}"),
}

REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 100}
CHAIN = [REPLACE] * 5
NESTED = [{"type": "Sequence", "normalizers": [REPLACE]}, REPLACE]
GROWING = {  # parts of a tokenizer.json that make a text far longer
    "a normalizer": {"normalizer": {"type": "Sequence", "normalizers": CHAIN}},
    "a decoder": {"decoder": {"type": "Sequence", "decoders": CHAIN}},
    "sequences in sequences": {"normalizer": {"type": "Sequence", "normalizers": NESTED}},
    "a pattern that matches nothing": {
        "normalizer": {"type": "Replace", "pattern": {"Regex": ""}, "content": "b" * 200}
    },
    "a long prefix": {"normalizer": {"type": "Prepend", "prepend": "b" * 200}},
}
