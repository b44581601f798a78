"""latent-tokens serve."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading
import webbrowser
from dataclasses import dataclass
from typing import Any

from tyro.conf import Positional

from latent_tokens.checks import whole
from latent_tokens.commands.shared import task_of

SECONDS = 120.0  # one decode may take
MOST_PORT = 65_535


@dataclass(frozen=True)
class Serve:
    """Watch models decode puzzles, in a browser: the number of latents is a dial, and each step shows what the model makes of every cell."""

    runs: Positional[tuple[str, ...]] = ()
    """Run folders, beside the models that come along."""
    host: str = "127.0.0.1"
    """Where to listen. Anything else than this machine lets others decode here."""
    port: int = 8_000
    """0 takes any that is free."""
    at_once: int = 4
    """Decodes at once; whoever asks for more is told to try again."""
    open: bool = True
    """Open the page in a browser."""


def run_serve(command: Serve) -> int:
    """latent-tokens serve: prints where the page is, and serves it until Ctrl-C."""
    whole("at_once", command.at_once, 1)
    whole("port", command.port, 0)
    if command.port > MOST_PORT:
        raise ValueError(f"port={command.port}: must be at most {MOST_PORT}")
    try:
        import uvicorn

        from latent_tokens.web.server import app_for
    except ImportError as error:
        raise ValueError(f"serve needs {error.name}, which the extra web brings: pip install 'latent-tokens[web]'") from None
    import torch

    from latent_tokens.pretrained import shipped_names
    from latent_tokens.web.shelf import Shelf

    names = dict.fromkeys([*command.runs, *shipped_names()])
    shelf = Shelf(list(names), task_of)
    app = app_for(shelf, command.at_once, SECONDS)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // command.at_once))
    with bound(command.host, command.port) as place:
        address = address_of(place)
        if not is_local(command.host):
            print(f"latent-tokens: host={command.host}: whoever reaches this machine can decode here; there is no password", file=sys.stderr)
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        if command.open:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        config = uvicorn.Config(app, log_level="warning", ws="none", access_log=False, timeout_graceful_shutdown=1, server_header=False)
        uvicorn.Server(config).run(sockets=[place])
    return 0


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises ValueError where the port is taken, or the host is none of this machine."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise ValueError(f"host={host}: no name of this machine ({error}); use 127.0.0.1") from None
    place = socket.socket(family, kind, protocol)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(where)
        place.listen(128)
    except OSError as error:
        place.close()
        raise ValueError(f"{host}:{port} cannot be listened on ({error.strerror}); name another with --port, or 0 for any that is free") from None
    return place


def address_of(place: Any) -> str:
    """The page's address; of a socket that listens everywhere, on this machine."""
    host, port = place.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"


def is_local(host: str) -> bool:
    """Whether a host is this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
