"""Changes of pickles and zip files, and the changes for each kind of file."""

import io
import pickletools
import re
import struct
import zipfile
import zlib

from faults.corruptions import NUMBERS, of_bytes, of_json, of_lines, of_npy, of_safetensors, of_words

MARK = "MARK"  # the environment variable with the path of a file that no input may create
CALLS = (
    "posix system", "os system", "builtins eval", "builtins exec", "builtins open", "io FileIO",
    "subprocess Popen", "builtins getattr", "numpy save", "pickle loads", "torch load",
    "builtins __import__", "shutil rmtree", "pathlib Path", "omegaconf.base x", "typing Any",
    "collections OrderedDict", "numpy ndarray", "numpy dtype", "_codecs encode", "builtins bytearray",
    "collections Counter",
)  # fmt: skip


def evil(rng):
    """Return harmful opcodes of a pickle: calls that create the file MARK, or allocate much memory."""
    module, name = rng.choice(CALLS).split()
    commands = {"system": f"touch ${MARK}", "rmtree": f"${MARK}"}
    command = commands.get(name, f"open(__import__('os').environ['{MARK}'], 'w')").encode()
    text = b"X" + struct.pack("<I", len(command)) + command
    words = (module.encode(), name.encode())
    stacked = b"".join(b"\x8c" + bytes([len(word)]) + word for word in words) + b"\x93"
    call = rng.choice((f"c{module}\n{name}\n".encode(), stacked))
    far = struct.pack("<I", rng.choice(NUMBERS) % (1 << 32))
    long = struct.pack("<Q", rng.choice(NUMBERS) % (1 << 64))
    return rng.choice((
        call + b"(" + text + b"tR", call + text + b"\x85R", b"(" + text + f"i{module}\n{name}\n".encode(),
        call + b")\x81", call + b"}b",
        call + b"(K\x01K\x02tb", b"(" + call + text + b"o", call + b")}\x92", b"r" + far,
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
    """Drop, repeat, move, change or insert opcodes of a pickle, most often harmful ones."""
    try:
        starts = [start for _, _, start in pickletools.genops(content)]
    except Exception:
        return of_bytes(rng, content, others)
    parts = [content[a:b] for a, b in zip(starts, [*starts[1:], len(content)], strict=True)]
    at = rng.randrange(len(parts))
    change = rng.choice(("drop", "repeat", "move", "argument", "replace all", *["insert"] * 3))
    if change == "drop":
        del parts[at]
    elif change == "repeat":
        parts[at:at] = [parts[at]] * rng.choice((1, 2, 300))
    elif change == "move":
        parts[at] = rng.choice(parts)
    elif change == "argument":
        parts[at] = parts[at][:1] + of_bytes(rng, parts[at][1:], [])
    elif change == "replace all":
        parts = [parts[0], evil(rng), b"."]
    else:
        parts[at:at] = [evil(rng)]
    return b"".join(parts)


def of_zip(rng, content, others):
    """Rename, repeat, drop, compress or change entries of a zip file, its directory or its pickle."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            entries = [(info.filename, file.read(info), zipfile.ZIP_STORED) for info in file.infolist()]
    except Exception:
        entries = []
    if not entries:
        return of_bytes(rng, content, others)
    pickled = next((at for at, entry in enumerate(entries) if entry[0].endswith("data.pkl")), 0)
    at = rng.randrange(len(entries))
    change = rng.choice(("rename", "append", "drop", "compress", "bytes", "many", *["pickle"] * 6))
    name, inner, packed = entries[at]
    if change == "rename":
        folder, other = name.rpartition("/")[0] + "/", rng.choice(entries)[0]
        names = (
            name.upper(),
            "../" + name,
            "/" + name,
            "a/" + name,
            name + "\x00",
            folder,
            other,
            "x" * 60_000,
        )
        entries[at] = (rng.choice(names), inner, packed)
    elif change == "append":
        entries.append((name, of_bytes(rng, inner, []), packed))
    elif change == "drop":
        del entries[at]
    elif change == "compress":
        entries[at] = (name, inner + bytes(rng.choice((0, 1 << 16, 1 << 18))), zipfile.ZIP_DEFLATED)
    elif change == "bytes":
        entries[at] = (name, of_bytes(rng, inner, [entry[1] for entry in entries]), packed)
    elif change == "many":
        entries += [(f"{name}{number}", b"", packed) for number in range(200)]
    else:
        entries[pickled] = (entries[pickled][0], of_pickle(rng, entries[pickled][1], []), packed)
    archive = zipped(entries)
    return of_directory(rng, archive) if rng.random() < 0.15 else archive


def zipped(entries):
    """Return a zip file of entries. Names may occur twice, of which zipfile itself warns."""
    body, directory = bytearray(), bytearray()
    for name, content, packed in entries:
        data = zlib.compressobj(wbits=-15) if packed else None
        stored = content if data is None else data.compress(content) + data.flush()
        encoded = name.encode()[:65_535]
        sizes = (zlib.crc32(content), len(stored), len(content), len(encoded), 0)
        header = struct.pack("<HHHHHIIIHH", 20, 0, packed, 0, 33, *sizes)
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + header
        directory += struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + encoded
        body += b"PK\x03\x04" + header + encoded + stored
    counts = (len(entries), len(entries), len(directory), len(body), 0)
    return bytes(body + directory + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, *counts))


def of_directory(rng, content):
    """Write a wrong size, offset, flag or checksum into the directory of a zip file."""
    starts = [match.start() for match in re.finditer(b"PK\x01\x02|PK\x03\x04|PK\x05\x06", content)]
    data = bytearray(content)
    at = rng.choice(starts) + rng.randrange(4, 46)
    data[at : at + 4] = struct.pack("<I", rng.choice(NUMBERS) % (1 << 32))
    return bytes(data[: len(content)])


# Changes that know the format occur more often, because readers accept more of them.
CHANGES = {
    "json": (of_json, of_json, of_json, of_words, of_bytes),
    "jsonl": (of_lines, of_lines, of_lines, of_words, of_bytes),
    "safetensors": (of_safetensors, of_safetensors, of_safetensors, of_bytes),
    "npy": (of_npy, of_npy, of_npy, of_bytes),
    "pkl": (of_pickle, of_pickle, of_pickle, of_bytes),
    "ckpt": (of_zip, of_zip, of_zip, of_bytes),
}
TEXT_CHANGES = (of_words, of_words, of_bytes)


def mutated(rng, content, others, name):
    """Change the bytes of a file of that name once or a few times."""
    changes = CHANGES.get(name.rpartition(".")[2], TEXT_CHANGES)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        content = rng.choice(changes)(rng, content, others)[: 1 << 20]
    return content
