"""Files that no writer produces: changes of valid ones."""

import io
import json
import pickletools
import re
import zipfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from safetensors.torch import load

from latent_tokens.checkpoints.files import tensors_sha256

NUMBERS = (0, -1, 1, 3, 255, 65_536, (1 << 31) - 1, 1 << 63, 10**30)
VALUES = (*NUMBERS, 0.5, 1e308, float("nan"), None, True, "", "x", "\ud800", "a\nb", [], {}, [None], {"": 0},
          "../x", "/etc/passwd", "any_order", "zebra", [0] * 300)  # fmt: skip
WORDS = (*map(str, NUMBERS), "nan", "null", "[]", "{}", "[" * 100_000, "\x00", "../", "", "\n", "\u2028",
         "\u00b2", "%s", "\x1b[31m", "1" * 5_000, ",", "text", "all", "|O", "<f8", "F64")  # fmt: skip
ARGUMENTS = ("0", "-1", "1", "3", "nan", "inf", "", "x", "all", "\u00b2", "a\nb", "--help", "--seed")
CALLS = ("posix system", "builtins eval", "builtins exec", "subprocess Popen", "builtins getattr",
         "os system", "torch load", "numpy ndarray", "numpy dtype", "_codecs encode",
         "collections OrderedDict")  # fmt: skip

# Changes of content: functions of (rng, content).


class Call:
    """An object of a malicious pickle: a call that is made when it is read."""

    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


def of_bytes(rng, content):
    """Overwrite, insert, repeat or delete some bytes, flip a bit, or cut the end off."""
    start = rng.randrange(len(content) + 1)
    stop = min(len(content), start + rng.choice((1, 2, 8, 64, 512)))
    number = (rng.choice(NUMBERS) % (1 << 64)).to_bytes(8, "little")
    flipped = bytes(byte ^ 1 << rng.randrange(8) for byte in content[start : start + 1])
    new = rng.choice((b"", flipped, number, rng.randbytes(4), content[start:stop] * rng.choice((2, 200))))
    return content[:start] if rng.random() < 0.1 else content[:start] + new + content[stop:]


def of_words(rng, content):
    """Swap, extend, repeat or drop a number, a word or a line end of a text."""
    words = re.split(rb"([0-9]+|[A-Za-z_]+|\n)", content)
    at = rng.randrange(len(words))
    new = rng.choice(WORDS).encode("utf-8", "surrogatepass")
    words[at] = rng.choice((new, words[at] + new, words[at][:999] * 9, b""))
    return b"".join(words)


def of_json(rng, content):
    """Change, rename or drop a value of a JSON text, or of one line of it."""
    lines = content.split(b"\n") if content.startswith(b'{"step"') else [content]
    at = rng.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except (ValueError, RecursionError):
        return of_words(rng, content)
    places, waiting = [([value], 0)], [value] * isinstance(value, dict | list)
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        places += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys if isinstance(holder[key], dict | list)]
    holder, key = rng.choice(places)
    old = holder[key]
    holder[key] = rng.choice((*VALUES, [old], str(old) * 2))
    if isinstance(holder, dict) and rng.random() < 0.4:
        del holder[key]
        holder |= {rng.choice(WORDS): old} if rng.random() < 0.5 else {}
    lines[at] = json.dumps(places[0][0][0]).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def of_header(rng, content):
    """Change the header of a .safetensors or .npy file and keep its length right."""
    start, width = (10, 2) if content.startswith(b"\x93NUMPY") else (8, 8)
    stop = start + int.from_bytes(content[start - width : start], "little")
    header = (of_words if width == 2 else of_json)(rng, content[start:stop])[: 1 << 15]
    return content[: start - width] + len(header).to_bytes(width, "little") + header + content[stop:]


def of_pickle(rng, content):
    """Insert a call that would create the file MARK into a pickle, or drop an opcode."""
    module, name = rng.choice(CALLS).split()
    command = "touch $MARK" if name in ("system", "Popen") else "open(__import__('os').environ['MARK'], 'w')"
    text = b"X" + len(command).to_bytes(4, "little") + command.encode()
    line = f"{module}\n{name}\n".encode()
    call = b"c" + line
    calls = (call + text + b"\x85R", b"(" + text + b"i" + line, call + text + b"\x85\x81", call + b"}b", call)
    new = rng.choice((*calls, b"(" + call + text + b"o", b"", b"N", b"]", b"(((", b"h\xff", b"Q"))
    with suppress(Exception):
        starts = [*(start for _, _, start in pickletools.genops(content)), len(content)]
        at = rng.randrange(len(starts) - 1)
        return content[: starts[at]] + new + content[starts[at + rng.choice((0, 1))] :]
    return new + content


def of_zip(rng, content):
    """Change an entry of a .ckpt, most often its pickle."""
    with suppress(Exception), zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
        pickled = [name for name in entries if name.endswith(".pkl")]
        name = rng.choice(pickled if rng.random() < 0.7 else list(entries))
        entries[name] = rng.choice((of_pickle, of_bytes) if name in pickled else (of_bytes,))(
            rng, entries[name]
        )
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as changed:
            for entry in entries.items():
                changed.writestr(*entry)
        return buffer.getvalue()
    return of_bytes(rng, content)


CHANGES = {".json": of_json, ".jsonl": of_json, ".pkl": of_pickle, ".ckpt": of_zip}
CHANGES |= {".safetensors": of_header, ".npy": of_header}


def changed(rng, case):
    """Return an input with one file changed once or a few times, and in most with right hashes again."""
    if "arguments" in case:
        arguments = json.loads(case["arguments"])
        arguments[rng.randrange(len(arguments))] = rng.choice(ARGUMENTS)
        return {"arguments": json.dumps(arguments).encode()}
    name = rng.choice(sorted(case))
    content = case[name]
    for _ in range(rng.choice((1, 1, 2, 5))):
        content = rng.choice((CHANGES.get(Path(name).suffix, of_words), of_bytes))(rng, content)[: 1 << 20]
    return resealed({**case, name: content}) if rng.random() < 0.8 else {**case, name: content}


def resealed(case):
    """Return an input whose tensors, checkpoints and tokenizer have the hashes that their readers compare."""
    with suppress(Exception):
        for name in [name for name in case if name.endswith(".safetensors")]:
            digest = tensors_sha256(load(case[name])).encode()
            content = re.sub(rb'(tensors_sha256\\*": ?\\*")[0-9a-f]{64}', rb"\g<1>" + digest, case.pop(name))
            case[re.sub("-[0-9a-f]{16}", f"-{sha256(content).hexdigest()[:16]}", name)] = content
    if "tokenizer.json" in case:
        digest = sha256(case["tokenizer.json"]).hexdigest()[:8].encode()
        case = {name: re.sub(rb'(tokenizer_hash": ")\w{8}', rb"\g<1>" + digest, case[name]) for name in case}
    return case
