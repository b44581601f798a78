"""Changes of a valid input: of its bytes, or of the values in its format.

Each table is drawn from uniformly. The same random state makes the same change.
"""

import json
import re
import struct

NUMBERS = (
    0, -1, 1, 3, 255, 256, 65_535, 65_536, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 63, 1 << 64,
    10**30, -(1 << 63),
)  # fmt: skip
WORDS = (
    *map(str, NUMBERS), "1e308", "-1e999", "nan", "NaN", "Infinity", "null", "true", "[]", "{}", '""',
    "[[[[]]]]", "\\ud800", "\x00", "../", "/",
    "..", "", " ", "\n", "\r", "\u2028", "\ufeff", "\u0663", "\u00b2", "%s", "\x1b[31m", "1" * 5_000, ",",
    "|", "bytes", "text",
    "tokenizer.json", "../tokenizer.json", "../secret/tokenizer.json", "hub:a/b", "all", "growing", "bpe:0",
    "bpe:300", "<|endoftext|>",
)  # fmt: skip
VALUES = (
    *NUMBERS, 0.5, 1e308, float("nan"), float("inf"), None, True, False, "", "x", "\ud800", "a\nb", [], {},
    [None], {"": 0}, [1, 2], "1", "../x",
    "../secret/tokenizer.json", "/etc/passwd", "bytes", "any_order", "sudoku-6", "text", "zebra",
    ["a"] * 50, list(range(300)),
)  # fmt: skip
BAD_LINES = (b"", b"[]", b"null", b"3", b'"x"', b"{}", b"{", b"\xff")
JSON_CHANGES = ("drop", "nest", "rename", "repeat", "scale", "spell", "copy", "retype", "retype")
DTYPES = (b"F64", b"I64", b"BF16", b"BOOL", b"F8_E4M3", b"U64", b"C64", b"F4")
FLOATS = (float("nan"), float("inf"), 3e38, -3e38, 1e-40, 0.0)
NPY_DTYPES = (
    "'|O'", "'<f8'", "'<U1000000'", "'>i4'", "'S0'", "'<M8[s]'", "[('a', '<i8')]", "'<i2'", "'|u1'", "'|b1'",
    "'V0'", "'<c16'", "('<i8', (9, 9))",
)  # fmt: skip
NPY_SIDES = (*NUMBERS, 0, 0, 1, 2, 81)


# Bytes.


def flip_at(rng, content, at):
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def flip(rng, content, *_):
    for _ in range(rng.choice((1, 1, 2, 16))):
        content = flip_at(rng, content, rng.randrange(len(content)))
    return content


def swap_number(rng, content, start, *_):
    size = rng.choice((1, 2, 4, 8))
    number = rng.choice(NUMBERS) % (1 << 8 * size)
    return content[:start] + number.to_bytes(size, rng.choice(("little", "big"))) + content[start + size :]


def filler(rng):
    return bytes([rng.choice((0, 10, 13, 0x2E, 0x5B, 0x7B, 0x80, 0xFF))]) * rng.choice((1, 3, 300))


DAMAGES = {  # of (rng, content, at)
    "blanked": lambda rng, c, at: c[:at] + bytes(len(c[at : at + 64])) + c[at + 64 :],
    "cut": lambda rng, c, at: c[:at],
    "flipped": flip_at,
}
BYTE_CHANGES = {  # of (rng, content, start, stop, others)
    "flip": flip,
    "insert": lambda rng, c, a, *_: c[:a] + rng.randbytes(rng.choice((1, 2, 4, 32))) + c[a:],
    "delete": lambda rng, c, a, b, _: c[:a] + c[b:],
    "truncate": lambda rng, c, a, *_: c[:a],
    "repeat": lambda rng, c, a, b, _: c[:b] + c[a:b] * rng.choice((1, 1, 3, 200)) + c[b:],
    "join": lambda rng, c, a, b, others: c[:a] + tail(rng, rng.choice(others)),
    "swap a number": swap_number,
    "overwrite": lambda rng, c, a, b, _: c[:a] + filler(rng) + c[b:],
}


def tail(rng, content):
    return content[rng.randrange(len(content) + 1) :]


def of_bytes(rng, content, others):
    """Change bytes in one place. Without a byte to flip or an input to join, overwrite some."""
    start = rng.randrange(len(content) + 1)
    stop = min(len(content), start + rng.choice((1, 2, 4, 8, 64, 512)))
    change = rng.choice(list(BYTE_CHANGES))
    possible = {"flip": content, "join": others}.get(change, True)
    return BYTE_CHANGES[change if possible else "overwrite"](rng, content, start, stop, others)


# Text and JSON.


def of_words(rng, content, others):
    """Swap, extend, drop or repeat a number, a word or a line end of a text."""
    words = re.split(rb"([0-9]+|[A-Za-z_]+|\n)", content)
    at = rng.randrange(len(words))
    if rng.random() < 0.7 and len(words) > 1:
        at = at | 1 if (at | 1) < len(words) else at
    new = rng.choice(WORDS).encode("utf-8", "surrogatepass")
    change = rng.choice(("swap", "extend", "drop", "repeat"))
    if change == "repeat":
        new = words[at][:2_000] * rng.choice((2, 2, 9, 500))
    words[at] = {"extend": words[at] + new, "drop": b""}.get(change, new)
    return b"".join(words)


def of_json(rng, content, others):
    """Change a value of a JSON file."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return of_words(rng, content, others)
    return written(rng, changed(rng, value))


def of_lines(rng, content, others):
    """Change a line of a .jsonl file."""
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    if rng.random() < 0.2:
        lines[at] = rng.choice((*BAD_LINES, lines[at] + lines[0], b"[" * 100_000))
    else:
        lines[at] = of_json(rng, lines[at], others)
    return b"\n".join(lines)


def written(rng, value):
    """Return JSON as text. Some texts are invalid JSON, or have a key twice."""
    try:
        text = json.dumps(value, indent=rng.choice((None, 1)), ensure_ascii=rng.random() < 0.8)
    except (ValueError, RecursionError):
        text = "[" * 100_000
    if rng.random() < 0.05:
        text = text.replace("{", '{"a": 1, "a": 2, ' if rng.random() < 0.5 else "{{", 1)
    return text.encode("utf-8", "surrogatepass")


def changed(rng, value):
    """Return a JSON value of which one value inside is changed."""
    places = list(places_of(value))
    if not places:
        return rng.choice(VALUES)
    holder, key = rng.choice(places)
    change = rng.choice(JSON_CHANGES)
    old = holder[key]
    small = isinstance(old, bool | int | float) and abs(old) < 1e300
    if change == "drop":
        del holder[key]
    elif change == "nest":
        holder[key] = nested(rng.choice((5, 50, 700, 40_000)), rng.choice(("list", "dict")))
    elif change == "rename" and isinstance(holder, dict):
        holder[rng.choice(WORDS)] = holder.pop(key)
    elif change == "repeat" and isinstance(holder, list):
        holder[key:key] = [old] * rng.choice((1, 2, 300))
    elif change == "scale" and isinstance(old, bool | int | float):
        as_float, half = (float(old), old / 2) if small else (0, 1)
        holder[key] = rng.choice((str(old), [old], old + 1, -old, old * 1_000, as_float, half))
    elif change == "spell" and isinstance(old, str):
        after, before = old + rng.choice(WORDS), rng.choice(WORDS) + old
        holder[key] = rng.choice((after, before, old * 50, old.upper(), old[: len(old) // 2], [old]))
    elif change == "copy":
        other, at = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[at])) if at in keys_of(other) else 0
    else:
        holder[key] = rng.choice(VALUES)
    return value


def nested(depth, kind):
    """Return a value nested to a depth."""
    value = 0
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


def places_of(value, depth=0):
    """Yield (holder, key) of every value inside a JSON value, to a depth of 20."""
    if depth < 20 and isinstance(value, dict | list):
        for key in keys_of(value):
            yield value, key
            yield from places_of(value[key], depth + 1)


def keys_of(holder):
    return list(holder) if isinstance(holder, dict) else range(min(len(holder), 100))


# Tensors.


def of_safetensors(rng, content, others):
    """Change the header of a .safetensors file and keep its length right, or change length or data."""
    size = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + size], content[8 + size :]
    change = rng.choice(("length", "values", "data", "dtype", *["header"] * 4))
    if change == "length":
        return struct.pack("<Q", rng.choice(NUMBERS) % (1 << 64)) + content[8:]
    if change == "values":
        values = bytearray(data)
        count = rng.choice((1, 4, 50))
        for _ in range(count if len(values) >= 4 else 0):
            at = 4 * rng.randrange(len(values) // 4)
            values[at : at + 4] = struct.pack("<f", rng.choice(FLOATS))
        return content[: 8 + size] + bytes(values)
    if change == "data":
        return content[: 8 + size] + of_bytes(rng, data, others)
    if change == "dtype":
        header = re.sub(rb"F32", rng.choice(DTYPES), header, count=rng.choice((1, 0)))
    else:
        header = rng.choice((of_json, of_json, of_words))(rng, header.rstrip(b" "), [])
    return struct.pack("<Q", len(header)) + header + data


def of_npy(rng, content, others):
    """Change the header of a .npy file and keep its length right, or change its version or its data."""
    if len(content) < 10:
        return of_bytes(rng, content, others)
    size = int.from_bytes(content[8:10], "little")
    header, data = content[10 : 10 + size], content[10 + size :]
    change = rng.choice(("version", "data", "dtype", "shape", "header"))
    if change == "version":
        version = bytes((rng.choice((0, 1, 2, 3, 255)), rng.choice((0, 1))))
        return content[:6] + version + content[8:]
    if change == "data":
        return content[: 10 + size] + of_bytes(rng, data, others)
    if change == "dtype":
        header = re.sub(rb"'descr': [^,]*", b"'descr': " + rng.choice(NPY_DTYPES).encode(), header, count=1)
    elif change == "shape":
        shape = ", ".join(str(rng.choice(NPY_SIDES)) for _ in range(rng.choice((0, 1, 2, 2, 3, 40))))
        header = re.sub(rb"\([^)]*\)", f"({shape},)".encode() if shape else b"()", header, count=1)
    else:
        header = of_words(rng, header, [])
    return content[:8] + struct.pack("<H", len(header) % 65_536) + header + data
