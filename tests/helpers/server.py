"""A server on a free port, and requests to it. As a script, it prints the effect of concurrent requests."""

import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import uvicorn

PUZZLE = ".....1.1.5..45.162..23....1.2.6.541."
MODEL = "sudoku-6-scdm"
QUESTION = {"model": MODEL, "puzzle": PUZZLE}
JSON = {"content-type": "application/json"}

MALFORMED = {
    "unknown model": ("POST", "/api/solve", JSON, json.dumps({**QUESTION, "model": "none"}), 404),
    "unknown model to decode": (
        "GET",
        f"/api/decode?{urlencode({**QUESTION, 'model': '../..'})}",
        {},
        None,
        404,
    ),
    "a page of another site": ("GET", "/api/models", {"Sec-Fetch-Site": "cross-site"}, None, 403),
    "no candidate for a curve": (
        "GET",
        f"/api/curve?{urlencode({'model': MODEL, 'candidates': 0})}",
        {},
        None,
        400,
    ),
    "unknown place": ("GET", "/api/nothing", {}, None, 404),
    "a path upwards": ("GET", "/../../etc/passwd", {}, None, 404),
    "documentation from elsewhere": ("GET", "/docs", {}, None, 404),
    "wrong method": ("DELETE", "/api/models", {}, None, 405),
    "decode by POST": ("POST", "/api/decode", JSON, "{}", 405),
    "no body": ("POST", "/api/solve", JSON, None, 422),
    "no JSON": ("POST", "/api/check", JSON, "{", 422),
    "no object": ("POST", "/api/check", JSON, "[1, 2]", 422),
    "nested without end": ("POST", "/api/check", JSON, "[" * 30_000, 400),
    "no text": ("POST", "/api/check", JSON, b"\xff\xfe\x00", 400),
    "half a character": ("POST", "/api/check", JSON, '{"model": "sudoku-6-scdm", "puzzle": "\\ud800"}', 422),
    "no puzzle": ("POST", "/api/check", JSON, json.dumps({"model": MODEL}), 422),
    "a puzzle of another kind": ("POST", "/api/check", JSON, json.dumps({**QUESTION, "puzzle": 7}), 422),
    "a short puzzle": ("POST", "/api/check", JSON, json.dumps({**QUESTION, "puzzle": "123"}), 400),
    "a wrong sign": ("POST", "/api/check", JSON, json.dumps({**QUESTION, "puzzle": "\x1b" + "." * 35}), 400),
    "an empty puzzle": ("POST", "/api/solve", JSON, json.dumps({**QUESTION, "puzzle": ""}), 400),
    "a contradiction": ("POST", "/api/solve", JSON, json.dumps({**QUESTION, "puzzle": "11" + "." * 34}), 400),
    "no solution": (
        "POST",
        "/api/solve",
        JSON,
        json.dumps({**QUESTION, "puzzle": "12345." + "." * 6 + ".....6" + "." * 18}),
        400,
    ),
    "nothing to solve": (
        "POST",
        "/api/solve",
        JSON,
        json.dumps({**QUESTION, "puzzle": "641532325416134625256143512364463251"}),
        400,
    ),
    "an unknown entry": ("POST", "/api/solve", JSON, json.dumps({**QUESTION, "steps": 3}), 422),
    "latents below 0": ("POST", "/api/solve", JSON, json.dumps({**QUESTION, "latents": -1}), 400),
    "latents beyond 2^63": ("POST", "/api/solve", JSON, json.dumps({**QUESTION, "latents": 1 << 70}), 400),
    "latents in words": ("GET", f"/api/decode?{urlencode({**QUESTION, 'latents': 'many'})}", {}, None, 422),
    "candidates of 0": ("GET", f"/api/decode?{urlencode({**QUESTION, 'candidates': 0})}", {}, None, 400),
    "an unknown order": ("GET", f"/api/decode?{urlencode({**QUESTION, 'order': 'best'})}", {}, None, 400),
    "no temperature": ("GET", f"/api/decode?{urlencode({**QUESTION, 'temperature': 'nan'})}", {}, None, 400),
    "an endless temperature": (
        "POST",
        "/api/solve",
        JSON,
        json.dumps({**QUESTION, "temperature": 0.5}).replace("0.5", "1e999"),
        400,
    ),
    "a seed below 0": ("GET", f"/api/decode?{urlencode({**QUESTION, 'seed': -5})}", {}, None, 400),
    "a seed of a thousand digits": (
        "GET",
        f"/api/decode?{urlencode({**QUESTION, 'seed': '9' * 1_000})}",
        {},
        None,
        400,
    ),
    "a dial that is none": (
        "GET",
        f"/api/decode?{urlencode({**QUESTION, 'model': 'sudoku-6-mdm', 'latents': 3})}",
        {},
        None,
        400,
    ),
    "givens that are no prefix": (
        "GET",
        f"/api/decode?{urlencode({**QUESTION, 'model': 'sudoku-6-arm'})}",
        {},
        None,
        400,
    ),
    "an order of another method": (
        "GET",
        f"/api/decode?{urlencode({'model': 'sudoku-6-arm', 'puzzle': '.' * 36, 'order': 'margin'})}",
        {},
        None,
        400,
    ),
    "a large body": ("POST", "/api/check", JSON, json.dumps({**QUESTION, "puzzle": "." * 100_000}), 413),
    "a large body in parts": (
        "POST",
        "/api/check",
        {**JSON, "transfer-encoding": "chunked"},
        f"8000\r\n{'[' * 0x8000}\r\n" * 2,
        413,
    ),
    "a long puzzle": ("POST", "/api/check", JSON, json.dumps({**QUESTION, "puzzle": "." * 20_000}), 422),
    "a curve of no problem": ("GET", f"/api/curve?model={MODEL}&count=0", {}, None, 400),
    "a curve of too many": ("GET", f"/api/curve?model={MODEL}&count=1000000", {}, None, 400),
    "a mask of no method": ("GET", "/api/masks?method=best", {}, None, 400),
    "a mask of another number": ("GET", "/api/masks?method=mdm&latents=2", {}, None, 400),
    "a mask without end": ("GET", "/api/masks?method=scdm&length=100000", {}, None, 400),
    "a mask with nothing left": ("GET", "/api/masks?method=scdm&length=4&clean=4", {}, None, 400),
}


def call(port, method, path, headers=None, body=None, seconds=60):
    """Return (status, headers, body) of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        if headers and "transfer-encoding" in headers:
            connection.putrequest(method, path)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            connection.send(body.encode())
        else:
            connection.request(method, path, body=body, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def post(port, path, **content):
    """Return (status, JSON) of a request with a body."""
    status, _, body = call(port, "POST", path, JSON, json.dumps(content))
    return status, json.loads(body)


def get(port, path, **values):
    """Return (status, JSON) of a request without a body."""
    status, _, body = call(port, "GET", f"{path}?{urlencode(values)}")
    return status, json.loads(body)


def events(port, path, **values):
    """Return the events as (kind, data), or the status if there are none."""
    status, headers, body = call(port, "GET", f"{path}?{urlencode(values)}")
    if status != 200:
        return status, json.loads(body), headers
    parts = [part.split("\n") for part in body.decode().strip().split("\n\n")]
    return [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in parts]


@contextmanager
def serving(app, **options):
    """Yield the port of a server in this process."""
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="warning", ws="none", lifespan="off", **options)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
        assert thread.is_alive()
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def process(*arguments):
    """(the process of latent-tokens serve, its port)."""
    command = [sys.executable, "-m", "latent_tokens", "serve", "--port", "0", "--no-open", *arguments]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = started.stdout.readline()
        assert line, started.stderr.read()
        yield started, int(re.search(r":(\d+)/", line)[1])
    finally:
        started.kill()
        started.communicate()


def resident(pid):
    """Return (the current memory of a process, its peak), in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return tuple(int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) / 1024 for name in ("VmRSS", "VmHWM"))


def crowd(port, decodes=100, malformed=100):
    """Return (count of each (kind, answer), seconds) of concurrent requests. `end` is a finished decode."""
    found, faults = Counter(), list(MALFORMED.values())

    def decode(number):
        got = events(port, "/api/decode", **QUESTION, latents=number % 5, seed=number)
        found["decode", got[0] if isinstance(got, tuple) else got[-1][0]] += 1

    def fault(number):
        method, path, headers, body, _ = faults[number % len(faults)]
        found["malformed", call(port, method, path, headers, body)[0]] += 1

    asked = [
        threading.Thread(target=target, args=(i,))
        for count, target in ((decodes, decode), (malformed, fault))
        for i in range(count)
    ]
    begun = time.perf_counter()
    for thread in asked:
        thread.start()
    for thread in asked:
        thread.join()
    return found, time.perf_counter() - begun


def main():
    """Print the answers to many clients and the memory, round by round."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with process() as (server, port):
        events(port, "/api/decode", **QUESTION)
        print(f"before: {resident(server.pid)[0]:.0f} MB")
        for number in range(1, 6):
            found, seconds = crowd(port)
            print(
                f"round {number}: {seconds:.1f} s, now {resident(server.pid)[0]:.0f} MB, at most "
                f"{resident(server.pid)[1]:.0f} MB"
            )
            print(
                "  ", {f"{kind} {answer}": count for (kind, answer), count in sorted(found.items(), key=str)}
            )


if __name__ == "__main__":
    main()
