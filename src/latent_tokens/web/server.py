"""The server behind the page: models, checks, decodes as events. It stores nothing and reaches for nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal, TypeVar

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException as AnyHTTPException

from latent_tokens.configs import OrderName
from latent_tokens.tasks import Solvable
from latent_tokens.trace.boards import check, view
from latent_tokens.trace.record import DecodeRequest, DecodeSettings, brief, given, watch
from latent_tokens.web.answers import Door, Events, in_words
from latent_tokens.web.curve import Curve, measure
from latent_tokens.web.jobs import Event, Job, LeftError, Work
from latent_tokens.web.masks import Moment, drawn
from latent_tokens.web.page import page, policy
from latent_tokens.web.protection import Guard
from latent_tokens.web.shelf import Shelf

T = TypeVar("T")

GRACE = 10.0  # seconds more than the longest request takes, after which its connection is closed
CURVE = 5  # times as long as a decode may a curve take
MOST_SIGNS = 16_000  # of a puzzle; one of 36x36 has 1,296 cells


class Puzzle(BaseModel):
    """A puzzle for a model."""

    model_config = ConfigDict(extra="forbid")
    model: str = Field(max_length=1_000)
    puzzle: str = Field(max_length=MOST_SIGNS)


class CurveQuestion(BaseModel):
    """What /api/curve is to measure."""

    model_config = ConfigDict(extra="forbid")
    model: str = Field(max_length=1_000)
    count: int = 200
    candidates: int | Literal["all", "growing"] | None = None
    order: OrderName | None = None
    seed: int = Field(0, ge=0, lt=1 << 63)


class MaskQuestion(BaseModel):
    """Which step /api/masks is to show."""

    model_config = ConfigDict(extra="forbid")
    method: str = Field(max_length=100)
    length: int = 8
    clean: int = 3
    candidates: int = 1
    latents: int | None = None


class Question(Puzzle):
    """And how it is to be decoded; what is left out is as in `latent-tokens solve`."""

    latents: int | Literal["all"] | None = None
    candidates: int | Literal["all", "growing"] | None = None
    order: OrderName | None = None
    temperature: float = 0.0
    seed: int = 0

    def ask(self, shelf: Shelf) -> DecodeRequest:
        """What is asked of the model, which is loaded where it is not there. Raises ValueError where it cannot be."""
        model = shelf.model(self.model)
        setting = DecodeSettings(self.latents, self.candidates, self.order, self.temperature, self.seed)
        return DecodeRequest(model, model.task.encode(self.puzzle), setting)


def app_for(shelf: Shelf, at_once: int, seconds: float, hosts: Sequence[str] = ()) -> FastAPI:
    """The server of these models: at most so many decodes at once, none longer than `seconds`. It answers under the local names and those
    of `hosts`.
    """
    app, html = FastAPI(title="latent-tokens", docs_url=None, redoc_url=None), page()
    slots, checking = threading.Semaphore(at_once), ThreadPoolExecutor(at_once, "check")
    app.add_middleware(Door, policy=policy(html))
    app.add_middleware(Guard, hosts=hosts, seconds=CURVE * seconds + GRACE)
    for kind in (AnyHTTPException, RequestValidationError, ValueError, LeftError):
        app.add_exception_handler(kind, in_words)

    async def begin(request: Request, work: Work, limit: float = seconds) -> tuple[Job, Event]:
        """(the work in its thread, its first event). Raises HTTPException where there is no room, or it begins with a fault."""
        if not slots.acquire(blocking=False):
            said = f"{at_once} decodes are running, which is the maximum. Try again in a second."
            raise HTTPException(429, said, {"Retry-After": "1"})
        try:
            job = Job(work, limit, slots.release)
        except RuntimeError:  # no thread more
            slots.release()
            raise HTTPException(
                503, "the server cannot start another decode. Try again in a second.", {"Retry-After": "1"}
            ) from None
        first = await job.unless_left(request.receive, job.next())
        if first is None or first[0] == "fault":
            raise HTTPException(400, "stopped before the first step" if first is None else first[1]["detail"])
        return job, first

    async def in_time(work: Callable[[], T]) -> T:
        """What work gives that no step of ours can end. Raises HTTPException if it takes too long."""
        try:
            return await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(checking, work), seconds)
        except TimeoutError:
            raise HTTPException(
                503, f"stopped after {seconds:g} seconds, the time that one request may take; ask for less"
            ) from None

    @app.get("/", response_class=HTMLResponse)
    async def the_page() -> str:
        return html

    @app.get("/api/models")
    async def models() -> list[dict[str, Any]]:
        return shelf.described

    @app.post("/api/check")
    async def checked(puzzle: Puzzle) -> dict[str, Any]:
        task = shelf.task(puzzle.model)
        return await in_time(lambda: checked_puzzle(task, puzzle.puzzle))

    @app.post("/api/solve")
    async def solved(request: Request, question: Question) -> dict[str, Any]:
        shelf.task(question.model)

        def work(job: Job) -> None:
            job.tell("end", brief(question.ask(shelf), job.check))

        _, (_, found) = await begin(request, work)
        return found

    @app.get("/api/decode")
    async def decode(request: Request, question: Annotated[Question, Query()]) -> Response:
        shelf.task(question.model)

        def work(job: Job) -> None:
            watch(question.ask(shelf), job.tell)

        return Events(*await begin(request, work))

    @app.get("/api/curve")
    async def curve(request: Request, question: Annotated[CurveQuestion, Query()]) -> Response:
        shelf.task(question.model)

        def work(job: Job) -> None:
            asked = Curve(
                shelf.model(question.model),
                question.count,
                question.candidates,
                question.order,
                question.seed,
            )
            measure(asked, job.tell, job.check)

        return Events(*await begin(request, work, CURVE * seconds))

    @app.get("/api/masks")
    async def masks(question: Annotated[MaskQuestion, Query()]) -> dict[str, Any]:
        return await in_time(lambda: drawn(Moment(**question.model_dump())))

    return app


def checked_puzzle(task: Solvable, text: str) -> dict[str, Any]:
    """What /api/check says of a puzzle. Raises ValueError where it cannot be read."""
    problem, conflicts = check(task, text)
    seen = view(task, problem)
    solutions = 0 if conflicts else task.count_solutions(problem, most=2)
    return {
        "tokens": given(seen, problem),
        "conflicts": conflicts,
        "words": list(seen.words),
        "solutions": solutions,
    }
