"""Decodes that run in threads: so many at once, none longer than its time, and none that nobody waits for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from latent_tokens.checks import first_line, one_line

Event = tuple[str, dict[str, Any]]
Work = Callable[["Job"], None]
T = TypeVar("T")

LONGEST = 400  # signs of what is said of a mistake
UNREAD = 32  # events that may wait to be sent; a reader that is slower makes the decode wait
LOOK_SECONDS = 0.2  # between two looks at whether somebody still reads


class LeftError(Exception):
    """Nobody waits for the result any more."""


class Job:
    """Work in a thread of its own, whose events are read in the event loop. `ended` is called when the thread is at its end.

    What the work raises becomes the event `fault`; the last event is None.
    """

    def __init__(self, work: Work, seconds: float, ended: Callable[[], None]) -> None:
        self.work, self.seconds, self.ended = work, seconds, ended
        self.loop, self.events = asyncio.get_running_loop(), asyncio.Queue[Event | None]()
        self.room, self.left, self.deadline = (
            threading.Semaphore(UNREAD),
            threading.Event(),
            time.monotonic() + seconds,
        )
        threading.Thread(target=self._run, name="decode", daemon=True).start()

    def _run(self) -> None:
        try:
            self.work(self)
        except LeftError:
            pass
        except Exception as error:
            self._put(("fault", {"detail": in_one_line(error)}))
            if not isinstance(error, ValueError | MemoryError | OSError):
                raise
        finally:
            self.ended()
            self._put(None)

    def _put(self, event: Event | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server is gone
            self.loop.call_soon_threadsafe(self.events.put_nowait, event)

    def check(self, step: object = None) -> None:
        """Raises LeftError where nobody waits any more, ValueError where the time is over; `generate` may call it at every step."""
        if self.left.is_set():
            raise LeftError
        if time.monotonic() > self.deadline:
            raise ValueError(
                f"stopped after {self.seconds:g} seconds, the time that one request may take; ask for less, or use the command line"
            )

    def tell(self, kind: str, event: dict[str, Any]) -> None:
        """Hands over an event; waits while too many are unread. Raises as `check`."""
        self.check()
        while not self.room.acquire(timeout=LOOK_SECONDS):
            self.check()
        self._put((kind, event))

    async def next(self) -> Event | None:
        """The next event; None after the last."""
        event = await self.events.get()
        self.room.release()
        return event

    async def unless_left(self, receive: Callable[[], Awaitable[Any]], wanted: Awaitable[T]) -> T:
        """What is waited for. Raises LeftError where the client leaves before; then the work ends at its next step."""
        coming, leaving = asyncio.ensure_future(wanted), asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({coming, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                return coming.result()
            leaving.result()  # raises what is wrong with the request
            raise LeftError
        except BaseException:
            self.left.set()
            raise
        finally:
            for task in (coming, leaving):
                task.cancel()


async def disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    """Returns when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def in_one_line(error: Exception) -> str:
    """What an error says, for a person."""
    said = first_line(error)
    mistake = isinstance(error, ValueError | MemoryError | OSError)
    return one_line(
        said if mistake else f"the decode broke off ({type(error).__name__}: {said}); please report it",
        LONGEST,
    )
