"""Middleware: other hosts and sites, slow headers, large or slow bodies and overlong requests are refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from fastapi import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from latent_tokens.checks import one_line

HEADER_SECONDS = 10.0
BODY_SECONDS = 10.0  # until the next part of a body must arrive
MAX_BODY = 64_000  # bytes
BODY_HEADERS = (b"content-length", b"transfer-encoding")  # one of them is sent with every body
LOCAL = ("127.0.0.1", "localhost", "::1")
ANY = "*"
OTHER_SITES = (b"cross-site", b"same-site")
MAX_NAME = 100  # characters of a wrong name


class Guard:
    """Answer 403 to requests for another host or from another site, and limit their time.

    Otherwise a page of another site could resolve its own name to this computer and read what is served here.
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
        has_started = False

        async def tracked_send(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            async with asyncio.timeout(self.seconds):
                await self.app(scope, receive, tracked_send)
        except TimeoutError:
            if not has_started:
                detail = f"took more than {self.seconds:.0f} seconds. Request less."
                await JSONResponse({"detail": detail}, 503)(scope, receive, send)

    def problem_of(self, scope: Scope) -> str | None:
        """Return why a request is refused, or None if it is not."""
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if ANY not in self.hosts and (len(hosts) != 1 or host_name(hosts[0]) not in self.hosts):
            return (
                f"Host={', '.join(hosts)[:MAX_NAME]}: is not a name of this server. "
                "Use 127.0.0.1, or start it with --allow-host and that name."
            )
        sites = [value.strip().lower() for name, value in scope["headers"] if name == b"sec-fetch-site"]
        if scope["path"].startswith("/api/") and any(site in OTHER_SITES for site in sites):
            return "requested by a page of another site. Open the page of this server."
        return None


def host_name(host: str) -> str:
    """Return the name in a Host header without its port, or an empty string if the header is malformed."""
    match = re.fullmatch(r"\[([0-9a-f:.]+)\](?::\d+)?|([^:\[\]]+)(?::\d+)?", host.strip().lower())
    return "" if match is None else (match[1] or match[2]).removesuffix(".")


class BodyLimit:
    """Answer 413 to bodies of more than MAX_BODY bytes, and 408 to bodies that do not arrive in time."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        size = 0
        # A stream waits for its client to disconnect, which must not count as waiting for a body.
        more = any(name in BODY_HEADERS for name, _ in scope["headers"])

        async def limited_receive() -> Message:
            nonlocal size, more
            try:
                message = await asyncio.wait_for(receive(), BODY_SECONDS if more else None)
            except TimeoutError:
                detail = f"the rest of the request did not arrive within {BODY_SECONDS:.0f} seconds"
                raise HTTPException(408, detail) from None
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
            if size > MAX_BODY:
                raise HTTPException(413, f"a request may have {MAX_BODY:,} bytes")
            return message

        await self.app(scope, limited_receive, send)


class SecurityHeaders:
    """Add the headers that limit what a browser does with a response."""

    def __init__(self, app: ASGIApp, policy: str) -> None:
        self.app = app
        self.headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cache-control", b"no-store"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self.headers]}
            await send(message)

        await self.app(scope, receive, send_with_headers)


class PromptHeaders(H11Protocol):
    """HTTP/1.1 that requires all headers HEADER_SECONDS after a connection is made or a request begins."""

    deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.deadline = self.loop.call_later(HEADER_SECONDS, self.close_late)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        waiting = str(self.conn.their_state) == "IDLE"  # the state of h11 before all headers have arrived
        if not waiting:
            self.cancel()
        elif self.deadline is None:
            self.deadline = self.loop.call_later(HEADER_SECONDS, self.close_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self.cancel()
        super().connection_lost(exc)

    def cancel(self) -> None:
        """Cancel the deadline."""
        if self.deadline is not None:
            self.deadline.cancel()
        self.deadline = None

    def close_late(self) -> None:
        """Close a connection whose headers did not arrive in time."""
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            self.transport.close()
