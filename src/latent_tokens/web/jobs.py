"""Decodes in threads: bounded in number and time, and canceled when the client disconnects."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from starlette.types import Receive

from latent_tokens.checks import first_line, one_line
from latent_tokens.core.decoding import Step
from latent_tokens.web.payloads import Payload

Event = tuple[str, Payload]
Work = Callable[["Job"], None]
T = TypeVar("T")

MAX_DETAIL = 400  # characters of an error message
MAX_UNREAD = 32  # events that wait to be sent; the decode waits for a slower reader
POLL_SECONDS = 0.2  # between two checks for cancellation while the queue is full


class DisconnectedError(Exception):
    """The client disconnected."""


class Job:
    """Work in its own thread, whose events are read in the event loop.

    `on_end` is called when the thread ends.

    An exception of the work becomes the event `fault`. The last event is None.
    """

    def __init__(self, work: Work, seconds: float, on_end: Callable[[], None]) -> None:
        self.work = work
        self.seconds = seconds
        self.on_end = on_end
        self.loop = asyncio.get_running_loop()
        self.events = asyncio.Queue[Event | None]()
        self.free_slots = threading.Semaphore(MAX_UNREAD)
        self.canceled = threading.Event()
        self.deadline = time.monotonic() + seconds
        threading.Thread(target=self._run, name="decode", daemon=True).start()

    def _run(self) -> None:
        fault: Event | None = None
        try:
            self.work(self)
        except DisconnectedError:
            pass
        except Exception as error:
            fault = ("fault", {"detail": error_detail(error)})
            if not isinstance(error, ValueError | MemoryError | OSError):
                raise
        finally:
            self.on_end()
            if fault is not None:
                self._put(fault)
            self._put(None)

    def _put(self, event: Event | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has stopped
            self.loop.call_soon_threadsafe(self.events.put_nowait, event)

    def check(self, step: Step | None = None) -> None:
        """Check for cancellation and the deadline. It is an `on_step` of `generate`.

        Raises:
            DisconnectedError: the client disconnected.
            ValueError: the time limit is exceeded.
        """
        if self.canceled.is_set():
            raise DisconnectedError
        if time.monotonic() > self.deadline:
            raise ValueError(
                f"stopped after {self.seconds:g} seconds, the time limit of a request. "
                "Request less, or use the command line."
            )

    def tell(self, kind: str, payload: Payload) -> None:
        """Queue an event, after waiting while MAX_UNREAD events are unread. Raise as `check` does."""
        self.check()
        while not self.free_slots.acquire(timeout=POLL_SECONDS):
            self.check()
        self._put((kind, payload))

    async def next(self) -> Event | None:
        """Return the next event, or None after the last."""
        event = await self.events.get()
        self.free_slots.release()
        return event

    async def unless_disconnected(self, receive: Receive, awaitable: Awaitable[T]) -> T:
        """Return the result of `awaitable`.

        Raise DisconnectedError and cancel the job if the client disconnects first.
        """
        result = asyncio.ensure_future(awaitable)
        disconnect = asyncio.ensure_future(wait_for_disconnect(receive))
        try:
            await asyncio.wait({result, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return result.result()
            disconnect.result()  # raises the error of a malformed request
            raise DisconnectedError
        except BaseException:
            self.canceled.set()
            raise
        finally:
            result.cancel()
            disconnect.cancel()


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


def error_detail(error: Exception) -> str:
    """Return the one-line message of an error."""
    message = first_line(error)
    if not isinstance(error, ValueError | MemoryError | OSError):
        message = f"the decode failed ({type(error).__name__}: {message}). Please report it."
    return one_line(message, MAX_DETAIL)
