"""What is done to a valid input: to its bytes, or, knowing the format, to what they mean."""

import io
import json
import pickletools
import re
import struct
import zipfile
import zlib
from functools import partial

NUMBERS = (
    0,
    -1,
    1,
    3,
    255,
    256,
    65_535,
    65_536,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 63) - 1,
    1 << 63,
    1 << 64,
    10**30,
    -(1 << 63),
)
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
MARK = "MARK"  # the file that nothing may make: its path stands in the environment of the evil calls below


def nested(depth, kind):
    """A value nested so deep."""
    value = 0
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


def mutated(rng, content, others, name):
    """Some bytes of a file of that name changed once or a few times."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        content = rng.choice(kinds_of(name))(rng, content, others)[: 1 << 20]
    return content


def kinds_of(name):
    """Return the mutations for a file of that name. Format-specific ones are repeated: they reach further."""
    suffix = name.rpartition(".")[2]
    for suffixes, known in (
        (("json",), (of_json, of_json, of_json, of_words)),
        (("jsonl",), (of_lines, of_lines, of_lines, of_words)),
        (("safetensors",), (of_safetensors, of_safetensors, of_safetensors)),
        (("npy",), (of_npy, of_npy, of_npy)),
        (("pkl",), (of_pickle, of_pickle, of_pickle)),
        (("ckpt",), (of_zip, of_zip, of_zip)),
    ):
        if suffix in suffixes:
            return (*known, of_bytes)
    return (of_words, of_words, of_bytes)


def of_bytes(rng, content, others):
    """Flip bits, insert and delete bytes, truncate, repeat chunks, join two inputs, swap numbers."""
    data, count = bytearray(content), len(content)
    start = rng.randrange(count + 1)
    stop = min(count, start + rng.choice((1, 2, 4, 8, 64, 512)))
    what = rng.randrange(8)
    if what == 0 and count:
        for _ in range(rng.choice((1, 1, 2, 16))):
            data[rng.randrange(count)] ^= 1 << rng.randrange(8)
    elif what == 1:
        data[start:start] = rng.randbytes(rng.choice((1, 2, 4, 32)))
    elif what == 2:
        del data[start:stop]
    elif what == 3:
        del data[start:]
    elif what == 4:
        data[stop:stop] = data[start:stop] * rng.choice((1, 1, 3, 200))
    elif what == 5 and others:
        other = rng.choice(others)
        data[start:] = other[rng.randrange(len(other) + 1) :]
    elif what == 6:
        size = rng.choice((1, 2, 4, 8))
        data[start : start + size] = (rng.choice(NUMBERS) % (1 << 8 * size)).to_bytes(
            size, rng.choice(("little", "big"))
        )
    else:
        data[start:stop] = bytes([rng.choice((0, 10, 13, 0x2E, 0x5B, 0x7B, 0x80, 0xFF))]) * rng.choice(
            (1, 3, 300)
        )
    return bytes(data)


def of_words(rng, content, others):
    """A number or a word of a text swapped, put in, doubled or taken out; lines too."""
    words = re.split(rb"([0-9]+|[A-Za-z_]+|\n)", content)
    at = rng.randrange(len(words))
    if rng.random() < 0.7 and len(words) > 1:
        at = at | 1 if (at | 1) < len(words) else at
    new = rng.choice(WORDS).encode("utf-8", "surrogatepass")
    what = rng.randrange(4)
    words[at] = (
        new
        if what == 0
        else words[at] + new
        if what == 1
        else b""
        if what == 2
        else words[at][:2_000] * rng.choice((2, 2, 9, 500))
    )
    return b"".join(words)


def of_json(rng, content, others):
    """A value of a JSON file swapped, dropped, renamed, nested or grown."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return of_words(rng, content, others)
    return written(rng, changed(rng, value))


def of_lines(rng, content, others):
    """The same to a line of a .jsonl file, or to its lines."""
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    if rng.random() < 0.2:
        lines[at] = rng.choice(
            (b"", b"[]", b"null", b"3", b'"x"', b"{}", b"{", b"\xff", lines[at] + lines[0], b"[" * 100_000)
        )
    else:
        lines[at] = of_json(rng, lines[at], others)
    return b"\n".join(lines)


def written(rng, value):
    """JSON as text; seldom one that is no longer JSON, or has keys twice."""
    try:
        text = json.dumps(value, indent=rng.choice((None, 1)), ensure_ascii=rng.random() < 0.8)
    except (ValueError, RecursionError):
        text = "[" * 100_000
    if rng.random() < 0.05:
        text = text.replace("{", '{"a": 1, "a": 2, ' if rng.random() < 0.5 else "{{", 1)
    return text.encode("utf-8", "surrogatepass")


def changed(rng, value):
    """A JSON value with one place in it changed."""
    places = list(places_of(value))
    if not places:
        return rng.choice(VALUES)
    holder, key = rng.choice(places)
    what, old = rng.randrange(9), holder[key]
    if what == 0:
        del holder[key]
    elif what == 1:
        holder[key] = nested(rng.choice((5, 50, 700, 40_000)), rng.choice(("list", "dict")))
    elif what == 2 and isinstance(holder, dict):
        holder[rng.choice(WORDS)] = holder.pop(key)
    elif what == 3 and isinstance(holder, list):
        holder[key:key] = [old] * rng.choice((1, 2, 300))
    elif what == 4 and isinstance(old, bool | int | float):
        holder[key] = rng.choice(
            (
                str(old),
                [old],
                old + 1,
                -old,
                old * 1_000,
                float(old) if abs(old) < 1e300 else 0,
                old / 2 if abs(old) < 1e300 else 1,
            )
        )
    elif what == 5 and isinstance(old, str):
        holder[key] = rng.choice(
            (
                old + rng.choice(WORDS),
                rng.choice(WORDS) + old,
                old * 50,
                old.upper(),
                old[: len(old) // 2],
                [old],
            )
        )
    elif what == 6:
        other, at = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[at])) if at in keys_of(other) else 0
    else:
        holder[key] = rng.choice(VALUES)
    return value


def places_of(value, depth=0):
    """(holder, key) of every value inside a JSON value, as far as is worth it."""
    if depth < 20 and isinstance(value, dict | list):
        for key in keys_of(value):
            yield value, key
            yield from places_of(value[key], depth + 1)


def keys_of(holder):
    """Where something stands in a list or a dict."""
    return list(holder) if isinstance(holder, dict) else range(min(len(holder), 100))


def of_safetensors(rng, content, others):
    """Change the JSON header of a .safetensors file and keep its length right, or change length or data."""
    size = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + size], content[8 + size :]
    what = rng.randrange(8)
    if what == 0:
        return struct.pack("<Q", rng.choice(NUMBERS) % (1 << 64)) + content[8:]
    if what == 1:
        values = bytearray(data)
        for _ in range(rng.choice((1, 4, 50))):
            if len(values) >= 4:
                at = 4 * rng.randrange(len(values) // 4)
                values[at : at + 4] = struct.pack(
                    "<f", rng.choice((float("nan"), float("inf"), 3e38, -3e38, 1e-40, 0.0))
                )
        return content[: 8 + size] + bytes(values)
    if what == 2:
        return content[: 8 + size] + of_bytes(rng, data, others)
    if what == 3:
        header = re.sub(
            rb"F32",
            rng.choice((b"F64", b"I64", b"BF16", b"BOOL", b"F8_E4M3", b"U64", b"C64", b"F4")),
            header,
            count=rng.choice((1, 0)),
        )
    else:
        header = rng.choice((of_json, of_json, of_words))(rng, header.rstrip(b" "), [])
    return struct.pack("<Q", len(header)) + header + data


def of_npy(rng, content, others):
    """The header of a .npy file changed, its length right; or its version; or what stands behind it."""
    if len(content) < 10:
        return of_bytes(rng, content, others)
    size = int.from_bytes(content[8:10], "little")
    header, data = content[10 : 10 + size], content[10 + size :]
    what = rng.randrange(5)
    if what == 0:
        return content[:6] + bytes((rng.choice((0, 1, 2, 3, 255)), rng.choice((0, 1)))) + content[8:]
    if what == 1:
        return content[: 10 + size] + of_bytes(rng, data, others)
    if what == 2:
        kinds = (
            "'|O'",
            "'<f8'",
            "'<U1000000'",
            "'>i4'",
            "'S0'",
            "'<M8[s]'",
            "[('a', '<i8')]",
            "'<i2'",
            "'|u1'",
            "'|b1'",
            "'V0'",
            "'<c16'",
            "('<i8', (9, 9))",
        )
        header = re.sub(rb"'descr': [^,]*", b"'descr': " + rng.choice(kinds).encode(), header, count=1)
    elif what == 3:
        shape = ", ".join(
            str(rng.choice((*NUMBERS, 0, 0, 1, 2, 81))) for _ in range(rng.choice((0, 1, 2, 2, 3, 40)))
        )
        header = re.sub(rb"\([^)]*\)", f"({shape},)".encode() if shape else b"()", header, count=1)
    else:
        header = of_words(rng, header, [])
    return content[:8] + struct.pack("<H", len(header) % 65_536) + header + data


CALLS = ("posix system", "os system", "builtins eval", "builtins exec", "builtins open", "io FileIO",
         "subprocess Popen", "builtins getattr",
         "numpy save", "pickle loads", "torch load", "builtins __import__", "shutil rmtree", "pathlib Path",
         "omegaconf.base x", "typing Any",
         "collections OrderedDict", "numpy ndarray", "numpy dtype", "_codecs encode", "builtins bytearray",
         "collections Counter")  # fmt: skip


def evil(rng):
    """Opcodes of a pickle that would do harm: calls of what makes the file MARK, and what asks for a lot."""
    module, name = rng.choice(CALLS).split()
    command = {"system": f"touch ${MARK}", "rmtree": f"${MARK}"}.get(
        name, f"open(__import__('os').environ['{MARK}'], 'w')"
    ).encode()
    said = b"X" + struct.pack("<I", len(command)) + command
    call = rng.choice(
        (
            f"c{module}\n{name}\n".encode(),
            b"\x8c"
            + bytes([len(module)])
            + module.encode()
            + b"\x8c"
            + bytes([len(name)])
            + name.encode()
            + b"\x93",
        )
    )
    far, long = (
        struct.pack("<I", rng.choice(NUMBERS) % (1 << 32)),
        struct.pack("<Q", rng.choice(NUMBERS) % (1 << 64)),
    )
    return rng.choice((
        call + b"(" + said + b"tR", call + said + b"\x85R", b"(" + said + f"i{module}\n{name}\n".encode(),
        call + b")\x81", call + b"}b",
        call + b"(K\x01K\x02tb", b"(" + call + said + b"o", call + b")}\x92", b"r" + far,
        b"p%d\n" % rng.choice(NUMBERS), b"N\x85" * 3,
        b"N" + b"\x85" * rng.choice((50, 5_000, 200_000)),
        b"}N" + b"\x85" * rng.choice((50, 200_000)) + b"Ns", b"]" * rng.choice((50, 200_000)),
        b"\x8e" + long, b"\x96" + long, b"\x8d" + long, b"T" + far, b"\x8b" + far + b"\x7f" * 40,
        b"\x8b\x00\x10\x00\x00" + b"\x7f" * 4_096,
        b"\x95" + long, b"\x80\xff", b"\x82\x01", b"\x84" + far, b"NQ", b"I" + b"9" * 5_000 + b"\n",
        b"\x8f(K\x01\x90", b"j" + far, b"2" * 999,
        b"]\x94" + b"(h\x00h\x00e" * 20, b"(((", b"0", b"1", b".", b"\x88", b"\x97\x98", b"V\\ud800\n",
        b"S'a'\n", b"L" + b"9" * 4_000 + b"L\n",
    ))  # fmt: skip


def of_pickle(rng, content, others):
    """Instructions of a pickle dropped, doubled, moved or put in, most often harmful ones."""
    try:
        starts = [place for _, _, place in pickletools.genops(content)]
    except Exception:
        return of_bytes(rng, content, others)
    parts = [content[a:b] for a, b in zip(starts, [*starts[1:], len(content)], strict=True)]
    at, what = rng.randrange(len(parts)), rng.randrange(8)
    if what == 0:
        del parts[at]
    elif what == 1:
        parts[at:at] = [parts[at]] * rng.choice((1, 2, 300))
    elif what == 2:
        parts[at] = rng.choice(parts)
    elif what == 3:
        parts[at] = parts[at][:1] + of_bytes(rng, parts[at][1:], [])
    elif what == 4:
        parts = [parts[0], evil(rng), b"."]
    else:
        parts[at:at] = [evil(rng)]
    return b"".join(parts)


def of_zip(rng, content, others):
    """Rename, repeat, drop, compress or change entries of a zip file, their sizes, offsets or pickle."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            entries = [(info.filename, file.read(info), zipfile.ZIP_STORED) for info in file.infolist()]
    except Exception:
        return of_bytes(rng, content, others)
    if not entries:
        return of_bytes(rng, content, others)
    pickled = next((at for at, entry in enumerate(entries) if entry[0].endswith("data.pkl")), 0)
    at, what = rng.randrange(len(entries)), rng.randrange(12)
    name, inner, packed = entries[at]
    if what == 0:
        names = (
            name.upper(),
            "../" + name,
            "/" + name,
            "a/" + name,
            name + "\x00",
            name.rpartition("/")[0] + "/",
            rng.choice(entries)[0],
            "x" * 60_000,
        )
        entries[at] = (rng.choice(names), inner, packed)
    elif what == 1:
        entries.append((name, of_bytes(rng, inner, []), packed))
    elif what == 2:
        del entries[at]
    elif what == 3:
        entries[at] = (name, inner + bytes(rng.choice((0, 1 << 16, 1 << 18))), zipfile.ZIP_DEFLATED)
    elif what == 4:
        entries[at] = (name, of_bytes(rng, inner, [entry[1] for entry in entries]), packed)
    elif what == 5:
        entries += [(f"{name}{number}", b"", packed) for number in range(200)]
    else:
        entries[pickled] = (entries[pickled][0], of_pickle(rng, entries[pickled][1], []), packed)
    made = zipped(entries)
    return of_directory(rng, made) if rng.random() < 0.15 else made


def zipped(entries):
    """A zip file, its entries as they come; zipfile itself would warn of names that stand in it twice."""
    body, directory = bytearray(), bytearray()
    for name, content, packed in entries:
        data = zlib.compressobj(wbits=-15) if packed else None
        stored = content if data is None else data.compress(content) + data.flush()
        said = name.encode()[:65_535]
        about = struct.pack(
            "<HHHHHIIIHH", 20, 0, packed, 0, 33, zlib.crc32(content), len(stored), len(content), len(said), 0
        )
        directory += (
            b"PK\x01\x02"
            + struct.pack("<H", 20)
            + about
            + struct.pack("<HHHII", 0, 0, 0, 0, len(body))
            + said
        )
        body += b"PK\x03\x04" + about + said + stored
    return bytes(
        body
        + directory
        + b"PK\x05\x06"
        + struct.pack("<HHHHIIH", 0, 0, len(entries), len(entries), len(directory), len(body), 0)
    )


def of_directory(rng, content):
    """A zip file of which the directory lies: in a size, a place, a flag or a check sum."""
    places = [found.start() for found in re.finditer(b"PK\x01\x02|PK\x03\x04|PK\x05\x06", content)]
    data, at = bytearray(content), rng.choice(places) + rng.randrange(4, 46)
    data[at : at + 4] = struct.pack("<I", rng.choice(NUMBERS) % (1 << 32))
    return bytes(data[: len(content)])


__all__ = [
    "MARK",
    "NUMBERS",
    "VALUES",
    "WORDS",
    "changed",
    "evil",
    "mutated",
    "of_json",
    "partial",
    "written",
    "zipped",
]
