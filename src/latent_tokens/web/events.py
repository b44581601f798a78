"""Server-sent events: the response that streams the events of a job."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from latent_tokens.web.jobs import Event, Job


class EventStream(StreamingResponse):
    """The events of a job as they come, beginning with `first`.

    The job is canceled when the client disconnects.
    """

    media_type = "text/event-stream"

    def __init__(self, job: Job, first: Event) -> None:
        super().__init__(encoded_events(job, first), headers={"X-Accel-Buffering": "no"})
        self.job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except (ClientDisconnect, OSError):
            pass
        finally:
            self.job.canceled.set()


async def encoded_events(job: Job, first: Event) -> AsyncIterator[bytes]:
    """Yield `first` and every later event of a job."""
    event: Event | None = first
    while event is not None:
        yield encode_event(event)
        event = await job.next()


def encode_event(event: Event) -> bytes:
    """Return an event in the format of server-sent events."""
    kind, payload = event
    return f"event: {kind}\ndata: {json.dumps(payload, separators=(',', ':'))}\n\n".encode()
