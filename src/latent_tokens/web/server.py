"""The server behind the page: models, checks, and decodes as events.

It writes no files and sends no requests.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypeVar, cast

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.exceptions import HTTPException as AnyHTTPException

from latent_tokens.configs import NumCandidates, NumLatents, OrderName, SamplingConfig
from latent_tokens.tasks import Solvable
from latent_tokens.trace.boards import check, view
from latent_tokens.trace.record import DecodeRequest, brief, given, watch
from latent_tokens.web.curve import Curve, measure
from latent_tokens.web.errors import error_response
from latent_tokens.web.events import EventStream
from latent_tokens.web.jobs import DisconnectedError, Event, Job, Work
from latent_tokens.web.masks import Moment, step_mask
from latent_tokens.web.model_cache import ModelCache
from latent_tokens.web.page import page, policy
from latent_tokens.web.payloads import CheckedPuzzle, Fault, Mask, ModelEntry, Payload
from latent_tokens.web.protection import BodyLimit, Guard, SecurityHeaders

T = TypeVar("T")
JsonObject = dict[str, JsonValue]  # the responses in /openapi.json

GRACE = 10.0  # seconds after the longest time limit, when a connection is closed
CURVE = 5  # time limit of a curve, relative to that of a decode
MAX_PUZZLE = 16_000  # characters; a board of 36x36 has 1,296 cells


class Puzzle(BaseModel):
    """A puzzle for a model."""

    model_config = ConfigDict(extra="forbid")
    model: str = Field(max_length=1_000)
    puzzle: str = Field(max_length=MAX_PUZZLE)


class CurveQuestion(BaseModel):
    """The query of /api/curve."""

    model_config = ConfigDict(extra="forbid")
    model: str = Field(max_length=1_000)
    count: int = 200
    candidates: NumCandidates | None = None
    order: OrderName | None = None
    seed: int = Field(0, ge=0, lt=1 << 63)


class MaskQuestion(BaseModel):
    """The query of /api/masks."""

    model_config = ConfigDict(extra="forbid")
    method: str = Field(max_length=100)
    length: int = 8
    clean: int = 3
    candidates: int = 1
    latents: int | None = None


class Question(Puzzle):
    """A puzzle and the settings to decode it with.

    Omitted settings have the defaults of `latent-tokens solve`.
    """

    latents: NumLatents | None = None
    candidates: NumCandidates | None = None
    order: OrderName | None = None
    temperature: float = 0.0
    seed: int = 0

    def to_request(self, models: ModelCache) -> DecodeRequest:
        """Load the model if necessary and return the request. Raise ValueError if it is not possible."""
        model = models.model(self.model)
        setting = SamplingConfig(
            latents=self.latents,
            candidates=self.candidates,
            order=self.order,
            temperature=self.temperature,
            seed=self.seed,
        )
        return DecodeRequest(model, model.task.encode(self.puzzle), setting)


def protected_app(html: str, hosts: Sequence[str], seconds: float) -> FastAPI:
    """Return a server without routes, whose middleware checks requests and whose errors are one line."""
    app = FastAPI(title="latent-tokens", docs_url=None, redoc_url=None)
    app.add_middleware(BodyLimit)
    app.add_middleware(SecurityHeaders, policy=policy(html))
    app.add_middleware(Guard, hosts=hosts, seconds=seconds)
    for kind in (AnyHTTPException, RequestValidationError, ValueError, DisconnectedError):
        app.add_exception_handler(kind, error_response)
    return app


def app_for(models: ModelCache, at_once: int, seconds: float, hosts: Sequence[str] = ()) -> FastAPI:
    """Return the server of some models.

    Args:
        models: the served models.
        at_once: number of decodes that run at the same time. Others receive status 429.
        seconds: time limit of a decode.
        hosts: names that the server answers to besides the local ones.
    """
    html = page()
    app = protected_app(html, hosts, CURVE * seconds + GRACE)
    free_decodes = threading.Semaphore(at_once)
    check_threads = ThreadPoolExecutor(at_once, "check")

    async def start_job(request: Request, work: Work, limit: float = seconds) -> tuple[Job, Event]:
        """Start work in a thread.

        Return the job and its first event. Raise HTTPException if it cannot start or fails.
        """
        if not free_decodes.acquire(blocking=False):
            detail = f"{at_once} decodes are running, which is the maximum. Try again in a second."
            raise HTTPException(429, detail, {"Retry-After": "1"})
        try:
            job = Job(work, limit, free_decodes.release)
        except RuntimeError:  # no more threads
            free_decodes.release()
            detail = "the server cannot start another decode. Try again in a second."
            raise HTTPException(503, detail, {"Retry-After": "1"}) from None
        event = await job.unless_disconnected(request.receive, job.next())
        if event is None:
            raise HTTPException(400, "stopped before the first step")
        if event[0] == "fault":
            raise HTTPException(400, cast(Fault, event[1])["detail"])
        return job, event

    async def run_within_limit(work: Callable[[], T]) -> T:
        """Return the result of work that cannot be canceled.

        Raise HTTPException if it exceeds the time limit.
        """
        future = asyncio.get_running_loop().run_in_executor(check_threads, work)
        try:
            return await asyncio.wait_for(future, seconds)
        except TimeoutError:
            detail = f"stopped after {seconds:g} seconds, the time limit of a request. Request less."
            raise HTTPException(503, detail) from None

    @app.get("/", response_class=HTMLResponse)
    async def the_page() -> str:
        return html

    @app.get("/api/models", response_model=list[JsonObject])
    async def list_models() -> list[ModelEntry]:
        return models.entries

    @app.post("/api/check", response_model=JsonObject)
    async def check_route(puzzle: Puzzle) -> CheckedPuzzle:
        task = models.task(puzzle.model)
        return await run_within_limit(lambda: checked_puzzle(task, puzzle.puzzle))

    @app.post("/api/solve", response_model=JsonObject)
    async def solve(request: Request, question: Question) -> Payload:
        models.task(question.model)

        def work(job: Job) -> None:
            job.tell("end", brief(question.to_request(models), job.check))

        _, (_, answer) = await start_job(request, work)
        return answer

    @app.get("/api/decode")
    async def decode(request: Request, question: Annotated[Question, Query()]) -> Response:
        models.task(question.model)

        def work(job: Job) -> None:
            watch(question.to_request(models), job.tell)

        return EventStream(*await start_job(request, work))

    @app.get("/api/curve")
    async def curve(request: Request, question: Annotated[CurveQuestion, Query()]) -> Response:
        models.task(question.model)

        def work(job: Job) -> None:
            model = models.model(question.model)
            settings = Curve(model, question.count, question.candidates, question.order, question.seed)
            measure(settings, job.tell, job.check)

        return EventStream(*await start_job(request, work, CURVE * seconds))

    @app.get("/api/masks", response_model=JsonObject)
    async def masks(question: Annotated[MaskQuestion, Query()]) -> Mask:
        return await run_within_limit(lambda: step_mask(Moment(**question.model_dump())))

    return app


def checked_puzzle(task: Solvable, text: str) -> CheckedPuzzle:
    """Return the answer of /api/check to a puzzle. Raise ValueError if it cannot be read."""
    problem, conflicts = check(task, text)
    board = view(task, problem)
    solutions = 0 if conflicts else task.count_solutions(problem, most=2)
    return {
        "tokens": given(board, problem),
        "conflicts": conflicts,
        "words": list(board.words),
        "solutions": solutions,
    }
