"""The server: its responses, its limits, and that work ends when a client disconnects."""

import asyncio
import base64
import hashlib
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest
import torch
from starlette.exceptions import HTTPException

from helpers.server import (
    JSON,
    MALFORMED,
    MODEL,
    PUZZLE,
    QUESTION,
    call,
    crowd,
    events,
    get,
    post,
    process,
    resident,
    serving,
)
from latent_tokens import (
    METHODS,
    SIZES,
    TASKS,
    EvalConfig,
    Transformer,
    evaluate,
    from_pretrained,
    save_pretrained,
)
from latent_tokens.checkpoints.directory import learned_task
from latent_tokens.checkpoints.files import find, shipped_names
from latent_tokens.cli import main
from latent_tokens.commands.serve import bound
from latent_tokens.configs import SamplingConfig
from latent_tokens.tasks import description
from latent_tokens.trace.boards import measured
from latent_tokens.trace.record import DecodeRequest, LoadedModel, trace
from latent_tokens.web import protection
from latent_tokens.web.jobs import MAX_UNREAD, Job
from latent_tokens.web.model_cache import ModelCache
from latent_tokens.web.protection import BodyLimit, Guard, PromptHeaders
from latent_tokens.web.server import app_for

MINUTE = 60.0


def load(name):
    return LoadedModel(name, from_pretrained(name), learned_task(find(name)))


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """Return the name of a model with long decodes: an untrained one of 16x16 boards."""
    folder, task = tmp_path_factory.mktemp("runs") / "slow", TASKS["sudoku-16"]
    torch.manual_seed(0)
    net = Transformer(SIZES["tiny"], task.vocab_size, task.length)
    net.method = METHODS["scdm"]
    save_pretrained(net, folder, about={"task": description(task)})
    return str(folder)


@pytest.fixture(scope="module")
def models(slow):
    return ModelCache([*shipped_names(), slow], learned_task)


@pytest.fixture(scope="module")
def port(models):
    with serving(app_for(models, at_once=4, seconds=MINUTE)) as found:
        yield found


@pytest.fixture
def alone(models):
    """A server that decodes one puzzle at a time."""
    with serving(app_for(models, at_once=1, seconds=MINUTE)) as found:
        yield found


def decoding():
    """Return the threads that decode now."""
    return [thread for thread in threading.enumerate() if thread.name == "decode"]


def until(true, seconds=10.0):
    """Return the seconds until a condition is true."""
    begun = time.perf_counter()
    while not true():
        assert time.perf_counter() - begun < seconds, "it did not come true"
        time.sleep(0.01)
    return time.perf_counter() - begun


def begun(port, path, **values):
    """Return a connection that has received the first event of a stream."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", f"{path}?{urlencode(values)}")
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    assert answer.readline().startswith(b"event: ")
    return connection, answer


def test_models_endpoint_lists_every_model(port, slow):
    rows = {row["name"]: row for row in get(port, "/api/models")[1]}
    assert set(rows) == {*shipped_names(), slow}
    assert next(iter(rows)).endswith("scdm")
    one = rows[MODEL]
    assert one["parameters"] == sum(parameter.numel() for parameter in from_pretrained(MODEL).parameters())
    assert (one["task"], one["kind"], one["method"], one["dial"], one["side"], one["box"]) == (
        "sudoku-6",
        "sudoku",
        "scdm",
        True,
        6,
        [2, 3],
    )
    assert rows["sudoku-6-ar-mtp"]["left_to_right"]
    assert not rows["sudoku-6-mdm"]["dial"]
    for row in rows.values():
        for example in row["examples"]:
            assert post(port, "/api/check", model=row["name"], puzzle=example["puzzle"])[0] == 200
    assert rows["sudoku-6-arm"]["examples"] == [{"puzzle": "." * 36, "label": "empty board", "caption": ""}]
    assert (rows["sudoku-6-arm"]["continues_prefix"], one["continues_prefix"]) == (True, False)
    assert [rows[name]["candidates"] for name in (MODEL, "sudoku-9-scdm", slow)] == [4, 8, 8]
    labels = [(example["label"], example["caption"]) for example in one["examples"]]
    assert labels[0][0] == "solved with all latent tokens, wrong with none"
    assert labels[0][1].startswith("Chosen example: solved with all latent tokens, wrong with none, like ")
    assert [example["label"] for example in rows["sudoku-6-mdm"]["examples"]] == [""] * (len(labels) - 1) + [
        "empty board"
    ]


def test_check_says_what_is_given_and_what_contradicts(port):
    status, found = post(port, "/api/check", model=MODEL, puzzle=PUZZLE)
    assert status == 200
    assert found["tokens"] == [None if sign == "." else int(sign) - 1 for sign in PUZZLE]
    assert (found["conflicts"], found["solutions"]) == ([], 1)
    assert post(port, "/api/check", model=MODEL, puzzle="." * 36)[1]["solutions"] == 2
    found = post(port, "/api/check", model=MODEL, puzzle="1....1" + "." * 30)[1]
    assert (found["conflicts"], found["solutions"]) == ([0, 5], 0)


@pytest.mark.parametrize(
    ("setting", "arguments"),
    [
        ({}, []),
        ({"latents": 4}, ["--latents", "4"]),
        ({"latents": "all", "candidates": 4}, ["--latents", "all", "--candidates", "4"]),
        (
            {"candidates": "growing", "temperature": 1.0, "seed": 3},
            ["--candidates", "growing", "--temperature", "1", "--seed", "3"],
        ),
    ],
)
def test_solve_answers_as_the_command_does(port, capsys, setting, arguments):
    puzzle = "1.....3............2................"
    main(["solve", puzzle, "--run", MODEL, *arguments])
    said = capsys.readouterr().out
    status, found = post(port, "/api/solve", model=MODEL, puzzle=puzzle, **setting)
    assert status == 200
    board, verdict = re.split(r"\n(?=solved|not solved)", said)
    assert [int(digit) - 1 for digit in re.findall(r"\d", board)] == found["tokens"]
    assert (
        int(re.search(r"([\d,]+) tokens processed", verdict)[1].replace(",", "")) == found["end"]["processed"]
    )
    assert verdict.startswith("solved") == found["end"]["right"]
    assert all(line in verdict for line in found["end"]["wrong"])


def test_decode_streams_the_trace(port):
    got = events(port, "/api/decode", **QUESTION, latents=4, seed=2)
    expected = trace(
        DecodeRequest(load(MODEL), TASKS["sudoku-6"].encode(PUZZLE), SamplingConfig(latents=4, seed=2))
    )
    for one in (got[-1][1], expected["end"]):
        one.pop("seconds")
    assert got == [
        ("start", expected["start"]),
        *(("frame", frame) for frame in expected["frames"]),
        ("end", expected["end"]),
    ]


def test_decodes_at_once_do_not_touch_each_other(port):
    alone = [
        events(port, "/api/decode", **QUESTION, latents=n, temperature=1, seed=n)[1:-1] for n in range(4)
    ]
    together = [None] * 4

    def one(n):
        together[n] = events(port, "/api/decode", **QUESTION, latents=n, temperature=1, seed=n)[1:-1]

    threads = [threading.Thread(target=one, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_the_curve_ends_where_evaluate_does(port):
    got = events(port, "/api/curve", model=MODEL, count=4, candidates=4, seed=1)
    rows = evaluate(
        from_pretrained(MODEL),
        TASKS["sudoku-6"],
        EvalConfig(latents=(0, 4, 16, "all"), candidates=4, num_samples=4, seed=1),
    )
    points = [point for kind, point in got[:-1]]
    assert got[-1][0] == "end"
    assert [point["latents"] for point in points] == [0, 4, 16, "all"]
    for point, row in zip(points, rows, strict=True):
        assert (point["done"], point["of"]) == (4, 4)
        assert 100 * point["right"] / 4 == row["valid"]
        assert [round(100 * point[name], 2) for name in ("low", "high")] == row["ci95"]
        assert point["processed"] == row["processed"]
        assert round(point["relative"], 4) == row["relative_cost"]


RULES = {
    "mdm": lambda q, k, c: True,
    "sidm": lambda q, k, c: k < c or k == q,
    "scdm": lambda q, k, c: k < c or k <= q,
    "esolm": lambda q, k, c: k <= q,
    "arm": lambda q, k, c: k <= q,
    "ar-mtp": lambda q, k, c: True,
}


@pytest.mark.parametrize("method", RULES)
def test_masks_are_the_papers(port, method):
    status, found = get(port, "/api/masks", method=method, length=9, clean=4)
    assert status == 200
    kinds = [slot["kind"] for slot in found["slots"]]
    latents = {"mdm": 4, "ar-mtp": 4, "scdm": 2, "esolm": 2}.get(method, 0)
    assert kinds == ["clean"] * 4 + ["latent"] * latents + ["candidate"] + ["hidden"] * (4 - latents)
    assert sorted(slot["position"] for slot in found["slots"]) == list(range(9))
    shown = 5 + latents
    assert found["mask"] == [
        [max(q, k) < shown and bool(RULES[method](q, k, 4)) for k in range(9)] for q in range(9)
    ]
    assert found["order"] == ("left to right" if METHODS[method].order.__name__ == "left_to_right" else "any")
    assert found["words"].endswith(".")


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_request_gets_one_line(port, kind):
    method, path, headers, body, status = MALFORMED[kind]
    found, said, content = call(port, method, path, headers, body)
    assert found == status, content
    detail = json.loads(content)["detail"]
    assert detail
    assert detail.isprintable()
    assert len(detail) < 500
    assert said["content-type"] == "application/json"


def test_body_that_is_not_json_is_named(port):
    headers = {"Content-Type": "application/json"}
    status, _, content = call(port, "POST", "/api/solve", headers, b'{"model": ')
    assert (status, json.loads(content)["detail"]) == (422, "body: JSON decode error")


def test_request_that_is_not_http_is_refused(port):
    with socket.create_connection(("127.0.0.1", port)) as speaker:
        speaker.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert speaker.recv(100).startswith(b"HTTP/1.1 400")


def test_a_body_that_does_not_come_is_not_waited_for(port, monkeypatch):
    monkeypatch.setattr(protection, "BODY_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", port)) as speaker:
        speaker.sendall(
            b"POST /api/check HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        speaker.settimeout(5)
        assert speaker.recv(100).startswith(b"HTTP/1.1 408")


def test_the_page_may_run_its_own_scripts_and_nothing_else(port):
    status, headers, body = call(port, "GET", "/")
    assert status == 200
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    html = body.decode()
    for tag in ("script", "style"):
        blocks = re.findall(rf"<{tag}(?![^>]*json)[^>]*>(.*?)</{tag}>", html, re.S)
        digests = [base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() for block in blocks]
        allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
        assert policy[f"{tag}-src"] == allowed + " 'wasm-unsafe-eval'" * (tag == "script")
    assert policy["worker-src"] == "blob:"
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    linked = re.sub(r"<a [^>]*>", "", html)  # links load nothing
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", linked), "it loads nothing from elsewhere"
    assert get(port, "/openapi.json")[1]["paths"].keys() >= {
        "/api/models",
        "/api/check",
        "/api/solve",
        "/api/decode",
        "/api/curve",
        "/api/masks",
    }


@pytest.mark.parametrize("path", ["/api/decode", "/api/curve"])
def test_a_decode_ends_when_its_reader_leaves(alone, slow, path):
    values = {"puzzle": "." * 256} if path == "/api/decode" else {"count": 1_000}
    values["model"] = slow if path == "/api/decode" else MODEL
    connection, _ = begun(alone, path, **values)
    assert len(decoding()) == 1
    status, headers, body = call(alone, "GET", f"{path}?{urlencode(values)}")
    assert (status, headers["retry-after"]) == (429, "1")
    running = "1 decodes are running" if path == "/api/decode" else "another curve is running"
    assert running in json.loads(body)["detail"]
    connection.close()
    assert until(lambda: not decoding()) < 5
    assert events(alone, "/api/decode", **QUESTION)[-1][0] == "end"


def test_a_curve_leaves_room_for_decodes(alone):
    """A server with one decode at a time still decodes while a curve is measured."""
    connection, _ = begun(alone, "/api/curve", model=MODEL, count=1_000)
    try:
        assert post(alone, "/api/solve", model=MODEL, puzzle=PUZZLE)[0] == 200
        status, _, body = call(alone, "GET", f"/api/curve?{urlencode({'model': MODEL})}")
        assert (status, json.loads(body)["detail"].split(",")[0]) == (429, "another curve is running")
    finally:
        connection.close()
    until(lambda: not decoding())


def test_only_bundled_weights_are_served(port):
    status, _, body = call(port, "GET", f"/models/{MODEL}/model.safetensors")
    assert (status, hashlib.sha256(body).hexdigest()) == (200, measured()["sudoku-6"]["sha256"])
    for path in (
        "/models/other/config.json",
        f"/models/{MODEL}/README.md",
        f"/models/..%2F{MODEL}/config.json",
    ):
        assert call(port, "GET", path)[0] == 404


def test_solving_ends_when_nobody_waits(alone, slow):
    connection = http.client.HTTPConnection("127.0.0.1", alone, timeout=30)
    connection.request("POST", "/api/solve", json.dumps({"model": slow, "puzzle": "." * 256}), JSON)
    until(decoding)
    connection.close()
    assert until(lambda: not decoding()) < 5
    assert post(alone, "/api/solve", **QUESTION)[0] == 200


def test_work_waits_for_a_reader_and_what_it_raises_is_told():
    """The number of unread events is limited, and none is lost."""

    async def read():
        told, ended = [], threading.Event()

        def work(job):
            for number in range(3 * MAX_UNREAD):
                job.tell("point", {"number": number})
                told.append(number)
            raise ValueError("no\x1b more\nof it")

        job = Job(work, MINUTE, ended.set)
        await asyncio.sleep(0.5)
        assert len(told) == MAX_UNREAD
        got = [await job.next() for _ in range(3 * MAX_UNREAD + 2)]
        assert [event[1]["number"] for event in got[:-2]] == list(range(3 * MAX_UNREAD))
        assert got[-2:] == [("fault", {"detail": r"no\x1b more"}), None]
        assert ended.wait(1)

    asyncio.run(read())


def test_failed_work_makes_room_before_it_is_told():
    """So the next request of the same client is not refused."""
    ended = threading.Event()

    def on_end():
        time.sleep(0.05)
        ended.set()

    def work(job):
        raise ValueError("no")

    async def read():
        job = Job(work, MINUTE, on_end)
        assert await job.next() == ("fault", {"detail": "no"})
        assert ended.is_set()

    asyncio.run(read())


def test_decode_ends_at_its_deadline(models, slow):
    with serving(app_for(models, at_once=1, seconds=0.5)) as port:
        got = events(port, "/api/decode", model=slow, puzzle="." * 256)
        assert got[0][0] == "start"
        assert got[-1][0] == "fault"
        assert got[-1][1]["detail"].startswith("stopped after 0.5 seconds")
        status, said = post(port, "/api/solve", model=slow, puzzle="." * 256)
        assert status == 400
        assert said["detail"].startswith("stopped after")
        until(lambda: not decoding())


@pytest.mark.parametrize("damage", ["no weights", "damaged weights", "no method"])
def test_incomplete_model_is_refused_before_it_is_served(slow, tmp_path, damage):
    folder = shutil.copytree(slow, tmp_path / "run")
    if damage == "no weights":
        (folder / "model.safetensors").unlink()
    elif damage == "damaged weights":
        (folder / "model.safetensors").write_bytes(b"none")
    else:
        about = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(
            json.dumps({name: value for name, value in about.items() if name != "method"})
        )
    with pytest.raises(ValueError, match=r"run=.*: has no complete model .*Resume its training"):
        ModelCache([*shipped_names(), str(folder)], learned_task)


def test_named_run_is_the_first_model(tmp_path):
    """The page opens with it, even if its method fixes the number of latent tokens."""
    run = str(shutil.copytree(find("sudoku-6-mdm"), tmp_path / "run"))
    names = [entry["name"] for entry in ModelCache([run, "sudoku-6-arm", MODEL], learned_task).entries]
    assert names == [run, MODEL, "sudoku-6-arm"]


def test_few_models_are_kept(models):
    names = shipped_names()
    few = ModelCache(names, learned_task, most=2)
    first = few.model(names[0])
    assert few.model(names[0]) is first
    for name in names[1:3]:
        few.model(name)
    assert list(few.loaded) == names[1:3]


@pytest.mark.slow
def test_server_under_load_answers_or_defers_in_constant_memory():
    with process("--at-once", "2") as (server, port):
        events(port, "/api/decode", **QUESTION)
        crowd(port, 20, 20)
        before, _ = resident(server.pid)
        found, seconds = crowd(port)
        now, most = resident(server.pid)
        print(
            f"200 requests at once in {seconds:.1f} s, {before:.0f} MB before, {now:.0f} after, "
            f"{most:.0f} at most: {dict(found)}"
        )
        assert sum(found.values()) == 200
        assert {answer for kind, answer in found if kind == "decode"} <= {"end", 429}
        assert found["decode", "end"] >= 1
        assert all(400 <= answer < 500 for kind, answer in found if kind == "malformed")
        assert now - before < 40
        assert events(port, "/api/decode", **QUESTION)[-1][0] == "end"
        server.send_signal(signal.SIGINT)
        assert server.wait(20) in (0, 130)
        assert "Traceback" not in server.stderr.read()


def test_a_port_in_use_is_one_line():
    with bound("127.0.0.1", 0) as place:
        port = place.getsockname()[1]
        with pytest.raises(
            ValueError, match=rf"port={port}: cannot listen on 127.0.0.1:{port} .* Choose another port"
        ):
            bound("127.0.0.1", port)
    with pytest.raises(ValueError, match=r"host=no\.such\.host\.invalid: is not a name of this machine"):
        bound("no.such.host.invalid", 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--port", "70000"], "--port 70000: must be at most 65535"),
        (["--at-once", "0"], "--at-once 0: must be"),
        (["none-such"], "'none-such' not found: not a run directory"),
    ],
)
def test_serve_refuses_in_one_line(capsys, arguments, says):
    assert main(["serve", "--no-open", *arguments]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_serve_without_the_extra_names_the_install_command():
    script = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from latent_tokens.cli import main\nsys.exit(main(['serve', '--no-open']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert (
        done.stderr.strip() == "latent-tokens: serve needs uvicorn, which is not installed. "
        "Install the extra web from a clone: pip install -e '.[web]'"
    )


def test_web_libraries_are_imported_by_serve_only():
    script = (
        "import sys, latent_tokens.cli, latent_tokens.commands.trace, latent_tokens.demo, "
        "latent_tokens.trace.record, latent_tokens.web.page\n"
    )
    script += "sys.exit(any(name in sys.modules for name in ('fastapi', 'uvicorn', 'starlette', 'pydantic')))"
    assert subprocess.run([sys.executable, "-c", script], cwd=Path.cwd(), check=False).returncode == 0


HOSTS = {
    "127.0.0.1": 200,
    "localhost:9": 200,
    "[::1]:8000": 200,
    "LOCALHOST": 200,
    "my-server.lan:8000": 200,
    "evil.example": 403,
    "evil.example:8000": 403,
    "127.0.0.1.evil.example": 403,
    "localhost@evil.example": 403,
    "evil.example#localhost": 403,
    "": 403,
}


@pytest.fixture(scope="module")
def named(models):
    with serving(
        app_for(models, at_once=1, seconds=MINUTE, hosts=("My-Server.lan",)), http=PromptHeaders
    ) as found:
        yield found


@pytest.mark.parametrize("host", HOSTS)
def test_server_answers_to_its_own_host_names_only(named, host):
    """A page of another site whose name resolves to this computer gets no data (DNS rebinding)."""
    for path in ("/", "/api/models"):
        status, _, body = call(named, "GET", path, {"Host": host})
        assert status == HOSTS[host]
        assert status == 200 or b"--allow-host" in body


@pytest.mark.parametrize("site", ["cross-site", "Cross-Site", "CROSS-SITE", "same-site", " cross-site "])
def test_a_page_of_another_site_is_refused(named, site):
    status, _, body = call(named, "GET", "/api/models", {"Sec-Fetch-Site": site})
    assert (status, b"another site" in body) == (403, True)
    assert call(named, "GET", "/api/models", {"Sec-Fetch-Site": "same-origin"})[0] == 200


def test_headers_that_do_not_come_end_the_connection(named, monkeypatch):
    monkeypatch.setattr(protection, "HEADER_SECONDS", 0.5)
    for first in (b"", b"GET /api/models HTTP/1.1\r\nHost: localhost\r\nX-Slow: "):
        with socket.create_connection(("127.0.0.1", named), 10) as connection:
            begun = time.perf_counter()
            connection.sendall(first)
            with suppress(OSError):  # single bytes now and then do not keep a connection open
                while first and time.perf_counter() - begun < 5:
                    connection.sendall(b"x")
                    time.sleep(0.1)
            assert connection.recv(100).startswith(b"HTTP/1.1 408") or first
            assert time.perf_counter() - begun < 4
    # A connection that is kept open may wait between two requests for longer than headers may take.
    connection = http.client.HTTPConnection("localhost", named, timeout=10)
    connection.connect()
    opened = connection.sock
    for _ in range(2):
        connection.request("GET", "/api/models")
        response = connection.getresponse()
        assert response.status == 200
        response.read()
        assert connection.sock is opened
        time.sleep(0.7)
    connection.close()


@pytest.mark.parametrize("path", ["/api/check", "/api/masks?method=scdm"])
def test_every_route_has_a_deadline(models, monkeypatch, path):
    def slow(*_):
        time.sleep(3)

    monkeypatch.setattr("latent_tokens.web.server.checked_puzzle", slow)
    monkeypatch.setattr("latent_tokens.web.server.step_mask", slow)
    with serving(app_for(models, at_once=1, seconds=0.3)) as port:
        body = json.dumps({"model": MODEL, "puzzle": PUZZLE}) if "check" in path else None
        begun = time.perf_counter()
        status, _, _ = call(port, "POST" if body else "GET", path, JSON if body else {}, body)
        assert status == 503
        assert time.perf_counter() - begun < 2.5


@pytest.mark.parametrize("begins", [True, False])
def test_a_stream_that_is_not_read_is_closed(begins):
    """With a client that does not read, the server waits in `send` until the deadline."""
    sent = []

    async def answer(scope, receive, send):
        if begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": "/api/decode", "headers": [(b"host", b"localhost")]}
    begun = time.perf_counter()
    asyncio.run(Guard(answer, (), 0.2)(scope, None, send))
    assert time.perf_counter() - begun < 5
    assert sent[0]["status"] == (200 if begins else 503)
    assert len(sent) == (1 if begins else 2)


@pytest.mark.parametrize(("headers", "refused"), [([], False), ([(b"content-length", b"9")], True)])
def test_body_deadline_applies_to_requests_with_a_body(monkeypatch, headers, refused):
    monkeypatch.setattr(protection, "BODY_SECONDS", 0.05)
    messages = []

    async def receive():
        await asyncio.sleep(0.3)
        return {"type": "http.disconnect"}

    async def app(scope, receive, send):
        try:
            messages.append(await receive())
        except HTTPException as error:
            messages.append(error.status_code)

    asyncio.run(BodyLimit(app)({"type": "http", "headers": headers}, receive, None))
    assert messages == ([408] if refused else [{"type": "http.disconnect"}])
