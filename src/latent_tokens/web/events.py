"""What the server answers with: events, one line for every mistake, and nothing that the page did not ask for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from latent_tokens.checks import one_line
from latent_tokens.web.jobs import LONGEST, Event, Job, LeftError
from latent_tokens.web.shelf import UnknownError

MOST_BODY = 64_000  # bytes
BODY_SECONDS = 10.0  # until its next part must be there
SHOWN = 60  # signs of a wrong value


class Events(Response):
    """The events of a job as they come, the first of which is there; the job ends where the client leaves."""

    media_type = "text/event-stream"

    def __init__(self, job: Job, first: Event) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.job, self.first = job, first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.job.unless_left(receive, self.stream(send))
        except (LeftError, OSError):
            pass
        finally:
            self.job.left.set()

    async def stream(self, send: Send) -> None:
        """Sends event after event, to the last."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        event: Event | None = self.first
        while event is not None:
            await send({"type": "http.response.body", "body": as_bytes(event), "more_body": True})
            event = await self.job.next()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def as_bytes(event: Event) -> bytes:
    """A server-sent event."""
    kind, data = event
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


class Door:
    """Lets in bodies that are neither too large nor too slow, and puts on every answer what a browser may do with it."""

    def __init__(self, app: ASGIApp, policy: str) -> None:
        self.app = app
        kept = {
            "content-security-policy": policy,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cache-control": "no-store",
        }
        self.headers = [(name.encode(), value.encode()) for name, value in kept.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        read, more = 0, True

        async def limited() -> Message:
            nonlocal read, more
            try:
                message = await asyncio.wait_for(receive(), BODY_SECONDS if more else None)
            except TimeoutError:
                raise HTTPException(
                    408, f"the rest of the request did not come within {BODY_SECONDS:.0f} seconds"
                ) from None
            read, more = read + len(message.get("body", b"")), message.get("more_body", False)
            if read > MOST_BODY:
                raise HTTPException(413, f"a request may have {MOST_BODY:,} bytes")
            return message

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self.headers]}
            await send(message)

        await self.app(scope, limited, marked)


def in_words(request: Request, error: Exception) -> Response:
    """One line on what is wrong, for every error that a client can cause."""
    if isinstance(error, RequestValidationError):
        return JSONResponse({"detail": one_line(faults(error), LONGEST)}, 422)
    if isinstance(error, AnyHTTPException):
        return JSONResponse(
            {"detail": one_line(str(error.detail), LONGEST)}, error.status_code, error.headers
        )
    return JSONResponse(
        {"detail": one_line(str(error), LONGEST)}, 404 if isinstance(error, UnknownError) else 400
    )


def faults(error: RequestValidationError) -> str:
    """What is wrong with the values of a request, each named once."""
    said: dict[str, list[str]] = {}
    for fault in error.errors():
        name = next((str(part) for part in fault["loc"][1:2]), str(fault["loc"][0]))
        value = "" if fault["type"] in ("missing", "json_invalid") else f"={shown(fault['input'])}"
        said.setdefault(f"{name}{value}", []).append(fault["msg"][:1].lower() + fault["msg"][1:])
    return "; ".join(f"{name}: {', or '.join(messages)}" for name, messages in said.items())


def shown(value: Any) -> str:
    """A value as it came, cut where it is long."""
    text = value if isinstance(value, str) else repr(value)
    return text[:SHOWN] + " ..." * (len(text) > SHOWN)
