"""The server behind the page: models, checks, and decodes as events.

It writes no files and sends no requests.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, TypeVar, cast

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, Response
from pydantic import JsonValue
from starlette.exceptions import HTTPException as AnyHTTPException

from latent_tokens.checkpoints.files import SHIPPED, shipped_names
from latent_tokens.tasks import Solvable
from latent_tokens.trace.boards import check, view
from latent_tokens.trace.record import brief, given, watch
from latent_tokens.web.curve import measure
from latent_tokens.web.errors import error_response
from latent_tokens.web.events import EventStream
from latent_tokens.web.jobs import DisconnectedError, Event, Job, Work
from latent_tokens.web.masks import Moment, step_mask
from latent_tokens.web.model_cache import MAX_NAME, ModelCache
from latent_tokens.web.page import MODEL_FILES, page, policy
from latent_tokens.web.payloads import CheckedPuzzle, Fault, Mask, ModelEntry, Payload
from latent_tokens.web.protection import BodyLimit, Guard, SecurityHeaders
from latent_tokens.web.questions import CurveQuestion, MaskQuestion, Puzzle, Question

T = TypeVar("T")
JsonObject = dict[str, JsonValue]  # the responses in /openapi.json

GRACE = 10.0  # seconds after the longest time limit, when a connection is closed
MAX_CURVES = 1  # measured at the same time, besides the decodes
CURVE = 5  # time limit of a curve, relative to that of a decode


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
    free_curves = threading.Semaphore(MAX_CURVES)  # a curve takes minutes, and must not keep decodes waiting
    check_threads = ThreadPoolExecutor(at_once, "check")

    async def start_job(
        request: Request, work: Work, limit: float = seconds, free: threading.Semaphore = free_decodes
    ) -> tuple[Job, Event]:
        """Start work in a thread.

        Return the job and its first event. Raise HTTPException if it cannot start or fails.
        """
        if not free.acquire(blocking=False):
            running = "another curve is" if free is free_curves else f"{at_once} decodes are"
            detail = f"{running} running, which is the maximum. Try again in a second."
            raise HTTPException(429, detail, {"Retry-After": "1"})
        try:
            job = Job(work, limit, free.release)
        except RuntimeError:  # no more threads
            free.release()
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
            measure(question.to_curve(models), job.tell, job.check)

        return EventStream(*await start_job(request, work, CURVE * seconds, free_curves))

    @app.get("/models/{name}/{file}")
    async def model_file(name: str, file: str) -> Response:
        return FileResponse(bundled_file(name, file))

    @app.get("/api/masks", response_model=JsonObject)
    async def masks(question: Annotated[MaskQuestion, Query()]) -> Mask:
        return await run_within_limit(lambda: step_mask(Moment(**question.model_dump())))

    return app


def bundled_file(name: str, file: str) -> Path:
    """Return a file of a bundled model, which the page decodes with. Raise HTTPException if it is missing."""
    if name not in shipped_names() or file not in MODEL_FILES:
        raise HTTPException(404, f"models/{name[:MAX_NAME]}/{file[:MAX_NAME]}: is not a bundled file")
    return SHIPPED / name / file


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
