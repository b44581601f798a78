"""Errors as responses: a status code and one line of JSON for every mistake of a client."""

from __future__ import annotations

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from latent_tokens.checks import one_line
from latent_tokens.web.jobs import MAX_DETAIL
from latent_tokens.web.model_cache import UnknownModelError

MAX_VALUE = 60  # characters of a wrong value


def error_response(request: Request, error: Exception) -> Response:
    """Return the response to an error that a client caused."""
    if isinstance(error, RequestValidationError):
        return one_line_response(validation_message(error), 422)
    if isinstance(error, HTTPException):
        return JSONResponse(
            {"detail": one_line(str(error.detail), MAX_DETAIL)}, error.status_code, error.headers
        )
    if isinstance(error, UnknownModelError):
        return one_line_response(str(error), 404)
    return one_line_response(str(error), 400)


def one_line_response(detail: str, status: int) -> JSONResponse:
    """Return a response with `detail` in one line."""
    return JSONResponse({"detail": one_line(detail, MAX_DETAIL)}, status)


def validation_message(error: RequestValidationError) -> str:
    """Return every wrong field of a request with its value and the reasons."""
    messages: dict[str, list[str]] = {}
    for fault in error.errors():
        location = fault["loc"]
        if fault["type"] == "json_invalid":  # its location is the number of a character
            messages.setdefault(str(location[0]), []).append(fault["msg"])
            continue
        field = str(location[1]) if len(location) > 1 else str(location[0])
        if fault["type"] != "missing":
            field += f"={shortened(fault['input'])}"
        message = fault["msg"]
        messages.setdefault(field, []).append(message[:1].lower() + message[1:])
    return "; ".join(f"{field}: {', or '.join(reasons)}" for field, reasons in messages.items())


def shortened(value: object) -> str:
    """Return a value as it was sent, shortened to MAX_VALUE characters."""
    text = value if isinstance(value, str) else repr(value)
    return text[:MAX_VALUE] + " ..." * (len(text) > MAX_VALUE)
