"""latent-tokens serve."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading
import webbrowser
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from latent_tokens.checks import check_int
from latent_tokens.commands.options import Settings
from latent_tokens.commands.shared import OwnCode

if TYPE_CHECKING:
    from latent_tokens.tasks import Language

SECONDS = 120.0  # the longest decode
MOST_PORT = 65_535


@dataclass(frozen=True)
class Serve:
    """Serve the interactive demo: watch models decode puzzles in a browser."""

    runs: Positional[tuple[str, ...]] = ()
    """Run directories to offer in addition to the bundled models."""
    own: Annotated[OwnCode, Settings(("task", "method"))] = field(default_factory=OwnCode)
    host: str = "127.0.0.1"
    """Host name or address to listen on. One that is not of this machine alone lets others decode here."""
    allow_host: tuple[str, ...] = ()
    """Other host names that a browser may use for this server, like my-server.lan, or * for any. Default:
    --host and the local names."""
    port: int = 8_000
    """Port to listen on. 0 takes a free one."""
    at_once: int = 4
    """Maximum number of concurrent requests. Further ones receive HTTP 429."""
    open: bool = True
    """Open the page in a browser."""


def run_serve(command: Serve) -> int:
    """Run `latent-tokens serve`. Print the address of the page and serve it until Ctrl-C."""
    # Check the options and the installation.
    check_int("at_once", command.at_once, 1)
    check_int("port", command.port, 0)
    for name in ("task", "method"):
        if not command.runs and getattr(command.own, name) is not None:
            raise ValueError(f"{name}={getattr(command.own, name)}: is for run directories. Name one.")
    if command.port > MOST_PORT:
        raise ValueError(f"port={command.port}: must be at most {MOST_PORT}")
    try:
        import uvicorn

        from latent_tokens.web.protection import PromptHeaders
        from latent_tokens.web.server import app_for
    except ImportError as error:
        raise ValueError(
            f"serve needs {error.name}, which is not installed. "
            "Install the extra web from a clone: pip install -e '.[web]'"
        ) from None
    import torch

    from latent_tokens.checkpoints.directory import learned_task
    from latent_tokens.checkpoints.files import find, shipped_names
    from latent_tokens.checkpoints.stored_methods import load_method
    from latent_tokens.web.model_cache import ModelCache

    # Serve the page.
    names = dict.fromkeys([*command.runs, *shipped_names()])
    served = {find(run) for run in command.runs}
    if command.own.method is not None:
        load_method(command.own.method)

    def served_task(folder: Path) -> Language:
        """Return the task of a model. The typed one is that of the run directories."""
        return learned_task(folder, command.own.task if folder in served else None)

    models = ModelCache(list(names), served_task)
    app = app_for(models, command.at_once, SECONDS, (command.host, *command.allow_host))
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // command.at_once))
    with bound(command.host, command.port) as listener:
        address = address_of(listener)
        if not is_local(command.host):
            print(
                f"latent-tokens: --host {command.host}: "
                "anyone who can reach this machine can decode here, without a password",
                file=sys.stderr,
            )
        print(f"{address}  (press Ctrl-C to stop)", flush=True)
        if command.open:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        config = uvicorn.Config(
            app,
            log_level="warning",
            timeout_graceful_shutdown=1,
            ws="none",
            http=PromptHeaders,
            access_log=False,
            server_header=False,
        )
        uvicorn.Server(config).run(sockets=[listener])
    return 0


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raise ValueError if the port is taken or the host is not a name of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ValueError(f"host={host}: is not a name of this machine ({error}). Use 127.0.0.1.") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ValueError(
            f"port={port}: cannot listen on {host}:{port} ({error.strerror}). "
            "Choose another port, or 0 for a free one."
        ) from None
    return listener


def address_of(listener: socket.socket) -> str:
    """Return the address of the page on this machine."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"


def is_local(host: str) -> bool:
    """Return whether a host is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
