"""What the server refuses before a route sees it: other hosts and sites, slow headers, and requests without end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from latent_tokens.checks import one_line

HEADER_SECONDS = 10.0
LOCAL = ("127.0.0.1", "localhost", "::1")
ANY = "*"
OTHER_SITES = (b"cross-site", b"same-site")
SHOWN = 100  # characters of a wrong name


class Guard:
    """Answers 403 to requests under another name of this server, or from a page of another site, and ends each after its time.

    A page of another site could otherwise let its own name point to this computer, and read what is served here.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str], seconds: float) -> None:
        self.app = app
        self.hosts = {*LOCAL, *(host.lower().strip("[]") for host in hosts)}
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        problem = self.problem_of(scope)
        if problem is not None:
            await JSONResponse({"detail": one_line(problem)}, 403)(scope, receive, send)
            return
        begun = False

        async def noted(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            async with asyncio.timeout(self.seconds):
                await self.app(scope, receive, noted)
        except TimeoutError:
            if not begun:
                answer = JSONResponse(
                    {"detail": f"took more than {self.seconds:.0f} seconds; ask for less"}, 503
                )
                await answer(scope, receive, send)

    def problem_of(self, scope: Scope) -> str | None:
        """Why a request is refused; None if it is not."""
        names = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if ANY not in self.hosts and (len(names) != 1 or name_of(names[0]) not in self.hosts):
            shown = ", ".join(names)[:SHOWN]
            return f"Host={shown}: is not a name of this server; use 127.0.0.1, or start it with --allow-host and that name"
        sites = [value.strip().lower() for name, value in scope["headers"] if name == b"sec-fetch-site"]
        if scope["path"].startswith("/api/") and any(site in OTHER_SITES for site in sites):
            return "asked for by a page of another site; open the page of this server"
        return None


def name_of(host: str) -> str:
    """The name in a Host header, without its port; empty if it is none."""
    found = re.fullmatch(r"\[([0-9a-f:.]+)\](?::\d+)?|([^:\[\]]+)(?::\d+)?", host.strip().lower())
    return "" if found is None else (found[1] or found[2]).removesuffix(".")


class PromptHeaders(H11Protocol):
    """HTTP/1.1 whose requests must have all their headers HEADER_SECONDS after their first byte, or after the connection was made."""

    deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.deadline = self.loop.call_later(HEADER_SECONDS, self.close_late)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        waiting = str(self.conn.their_state) == "IDLE"  # the state of h11 before all headers are there
        if not waiting:
            self.cancel()
        elif self.deadline is None:
            self.deadline = self.loop.call_later(HEADER_SECONDS, self.close_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self.cancel()
        super().connection_lost(exc)

    def cancel(self) -> None:
        """Waits for no header any more."""
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = None

    def close_late(self) -> None:
        """Ends a connection whose headers did not come."""
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            self.transport.close()
