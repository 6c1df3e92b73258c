"""What all endpoints share: JSON in, JSON out, and errors as JSON of one sentence."""

from __future__ import annotations

import functools
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from resonax.core.errors import ResonaxError
from resonax.explore.errors import RequestError, describe_error
from resonax.explore.security import MAX_JSON_BYTES, limit_body

__all__ = [
    "client_id",
    "compute_response",
    "error_response",
    "handle_errors",
    "http_error_response",
    "read_json",
]

Endpoint = Callable[[Request], Awaitable[Response]]


async def read_json(request: Request) -> Any:
    """Return the JSON of a request: numbers that are none, and anything too deep, are refused."""
    text = await Request(
        request.scope, limit_body(request.scope, request.receive, MAX_JSON_BYTES)
    ).body()

    def refuse(word: str) -> None:
        raise RequestError(f"The request is not JSON: {word} is no number there.")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise RequestError(
            "The request is not JSON: give one object of names and values."
        ) from None


async def compute_response(
    request: Request,
    thread: str,
    name: str,
    *given: Any,
    is_cached: bool = False,
    question: Any = None,
) -> Response:
    """Answer with what a function returns; see `Threads.compute` for the other arguments."""

    async def disconnected() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    more: dict[str, Any] = {
        "client": client_id(request),
        "is_cached": is_cached,
        "question": question,
    }
    found = await request.app.state.threads.compute(
        thread, name, *given, disconnected=disconnected, **more
    )
    return Response(found, media_type="application/json")


def handle_errors(endpoint: Endpoint) -> Endpoint:
    """Turn what an endpoint raises into an answer; a defect of ours goes to the error stream."""

    @functools.wraps(endpoint)
    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except HTTPException:
            raise
        except ClientDisconnect:
            return Response(status_code=400)  # which nobody reads
        except Exception as error:
            return error_response(request, error)

    return answered


def error_response(_: Request, error: Exception) -> Response:
    """Answer with what went wrong."""
    status, content = describe_error(error)
    if status == 500 and not isinstance(error, ResonaxError):
        traceback.print_exception(error, file=sys.stderr)
    headers = {"connection": "close"} if status == 413 else {}
    if status == 503:
        headers["retry-after"] = "1"
    return JSONResponse(content, status, headers)


_REFUSALS = {
    404: "There is no such page here.",
    405: "This page is not asked in this way: see /api/docs.",
}


def http_error_response(_: Request, error: Exception) -> Response:
    """Answer to a path or a method that there is not."""
    assert isinstance(error, HTTPException)
    text = _REFUSALS.get(error.status_code, "The request cannot be answered.")
    status, content = describe_error(RequestError(text, error.status_code))
    return JSONResponse(content, status, error.headers)


def client_id(request: Request) -> str:
    """Return who asks: a tab of a browser, by a number that it made up."""
    return request.headers.get("x-resonax-client", "")[:64]
