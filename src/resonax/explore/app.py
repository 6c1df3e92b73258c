"""The application: which path is answered by what, and errors as JSON of one sentence."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from resonax.checks import ResonaxError
from resonax.explore.asked import asked_map, asked_runs, asked_setting, take
from resonax.explore.errors import RequestError, answer_of
from resonax.explore.page_files import page_file, plotly_file
from resonax.explore.schema import describe
from resonax.explore.security import MOST_JSON, Guarded, limited
from resonax.explore.site import Site
from resonax.explore.work import Desk

__all__ = ["build_app"]

_THEORY, _BESIDE = "resonax.explore.theory", "resonax.explore.beside"
Endpoint = Callable[[Request], Awaitable[Response]]


def build_app(site: Site) -> Starlette:
    """Return the application of a site; with `starlette.testclient` it needs no port."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        desk = Desk(_once(site.prepare or _nothing))
        app.state.desk = desk
        if site.warm:
            desk.warm_up("map", f"{_THEORY}:warm_map")
            desk.warm_up("verdict", f"{_THEORY}:warm_judge")
            desk.warm_up("beside", f"{_BESIDE}:warm_beside")
        try:
            yield
        finally:
            desk.close()

    async def schema(_: Request) -> Response:
        data, results = site.data, site.results
        return JSONResponse(describe(data and data.name, results and results.name))

    return Starlette(
        routes=[
            Route("/", _answering(page_file)),
            Route("/plotly.min.js", plotly_file),
            Route("/api/schema", _answering(schema)),
            Route("/api/verdict", _answering(_verdict), methods=["POST"]),
            Route("/api/map", _answering(_map), methods=["POST"]),
            Route("/api/spectrum", _answering(_spectrum), methods=["POST"]),
            Route("/api/safe", _answering(_safe), methods=["POST"]),
            Route("/api/runs", _answering(_runs), methods=["POST"]),
            Route("/{name}", _answering(page_file)),
        ],
        middleware=[Middleware(Guarded, token=site.token, port=site.port)],
        exception_handlers={HTTPException: _refused, ResonaxError: _failed},
        lifespan=lifespan,
    )


async def _setting(request: Request) -> dict[str, Any]:
    return asked_setting(take(await _body(request), ("setting",))["setting"])


async def _verdict(request: Request) -> Response:
    return await _computed(request, "verdict", f"{_THEORY}:judge", await _setting(request))


async def _spectrum(request: Request) -> Response:
    return await _computed(request, "beside", f"{_BESIDE}:find_spectrum", await _setting(request))


async def _safe(request: Request) -> Response:
    return await _computed(request, "beside", f"{_BESIDE}:find_safe", await _setting(request))


async def _runs(request: Request) -> Response:
    asked = asked_runs(await _body(request))
    return await _computed(request, "beside", f"{_BESIDE}:follow_runs", *asked)


async def _map(request: Request) -> Response:
    return await _computed(request, "map", f"{_THEORY}:make_map", *asked_map(await _body(request)))


async def _body(request: Request) -> Any:
    """Return the JSON of a request: numbers that are none, and anything too deep, are refused."""
    text = await Request(request.scope, limited(request.scope, request.receive, MOST_JSON)).body()

    def refuse(word: str) -> None:
        raise RequestError(f"The request is not JSON: {word} is no number there.")

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise RequestError(
            "The request is not JSON: give one object of names and values."
        ) from None


async def _computed(request: Request, lane: str, name: str, *given: Any) -> Response:
    """Answer with what a function of `work` returns."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    client = request.headers.get("x-resonax-client", "")[:64]
    found = await request.app.state.desk.do(lane, name, *given, client=client, gone=gone)
    return Response(found, media_type="application/json")


def _answering(endpoint: Endpoint) -> Endpoint:
    """Turn what an endpoint raises into an answer; a defect of ours is told on the error stream."""

    @functools.wraps(endpoint)
    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except HTTPException:
            raise
        except Exception as error:
            return _failed(request, error)

    return answered


def _failed(_: Request, error: Exception) -> Response:
    status, told = answer_of(error)
    if status == 500 and not isinstance(error, ResonaxError):
        traceback.print_exception(error, file=sys.stderr)
    headers = {"connection": "close"} if status == 413 else {}
    if status == 503:
        headers["retry-after"] = "1"
    return JSONResponse(told, status, headers)


_REFUSALS = {
    404: "There is no such page here.",
    405: "This page is not asked in this way: see /api/docs.",
}


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = _REFUSALS.get(error.status_code, "The request cannot be answered.")
    status, told = answer_of(RequestError(text, error.status_code))
    return JSONResponse(told, status, error.headers)


def _nothing() -> None:
    """Prepare nothing."""


def _once(function: Callable[[], None]) -> Callable[[], None]:
    """Return a function that is called once, by the thread that comes first; others wait."""
    lock, done = threading.Lock(), []

    def call() -> None:
        with lock:
            if not done:
                function()
                done.append(True)

    return call
