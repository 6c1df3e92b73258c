"""The application: its routes, and errors as JSON of one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from resonax.core.errors import ResonaxError
from resonax.explore.api_docs import PATHS
from resonax.explore.code import page_code
from resonax.explore.endpoints import (
    compute_response,
    error_response,
    handle_errors,
    http_error_response,
    read_json,
)
from resonax.explore.file_routes import data_routes, results_routes
from resonax.explore.jobs import CheckJobs
from resonax.explore.page_files import page_file, plotly_file
from resonax.explore.questions import parse_map, parse_page, parse_runs, parse_setting
from resonax.explore.schema import describe
from resonax.explore.security import AccessControl, Site
from resonax.explore.work import Threads

__all__ = ["build_app"]

_THEORY, _DETAILS = "resonax.explore.theory", "resonax.explore.details"
_WARM = {
    "map": f"{_THEORY}:warm_map",
    "verdict": f"{_THEORY}:warm_judge",
    "details": f"{_DETAILS}:warm_details",
}
Endpoint = Callable[[Request], Awaitable[Response]]


def build_app(site: Site) -> Starlette:
    """Return the application of a site; with `starlette.testclient` it needs no port."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        threads = Threads(site.prepare or _nothing)
        app.state.threads, app.state.jobs = threads, CheckJobs(site.prepare)
        if site.warm:
            threads.warm_up("map", f"{_THEORY}:load")
        try:
            yield
        finally:
            threads.close()
            app.state.jobs.close()

    async def home(request: Request) -> Response:
        if site.warm and not opened:  # a page will ask for all of it; a program may not
            opened.append(True)
            for thread, name in _WARM.items():
                request.app.state.threads.warm_up(thread, name)
        return await page_file(request)

    opened: list[bool] = []
    verdict = _theory("verdict", f"{_THEORY}:judge", _setting)
    drawn = _theory("map", f"{_THEORY}:make_map", parse_map)
    spectrum = _theory("details", f"{_DETAILS}:find_spectrum", _setting)
    safe = _theory("details", f"{_DETAILS}:find_safe", _setting)
    runs = _theory("details", f"{_DETAILS}:follow_runs", parse_runs)

    async def schema(_: Request) -> Response:
        names = [path.name if path else None for path in (site.data, site.results)]
        return JSONResponse(describe(*names))

    app = Starlette(
        routes=[
            Route("/", handle_errors(home)),
            Route("/plotly.min.js", plotly_file),
            Route("/api/schema", handle_errors(schema)),
            Route("/api/docs", handle_errors(_docs)),
            Route("/api/code", handle_errors(_code), methods=["POST"]),
            Route("/api/verdict", verdict, methods=["POST"]),
            Route("/api/map", drawn, methods=["POST"]),
            Route("/api/spectrum", spectrum, methods=["POST"]),
            Route("/api/safe", safe, methods=["POST"]),
            Route("/api/runs", runs, methods=["POST"]),
            *data_routes(site),
            *results_routes(site),
            Route("/{name}", handle_errors(page_file)),
        ],
        middleware=[Middleware(AccessControl, token=site.token, port=site.port)],
        exception_handlers={HTTPException: http_error_response, ResonaxError: error_response},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app


async def _docs(_: Request) -> Response:
    return JSONResponse({"paths": [path._asdict() for path in PATHS]})


def _setting(body: Any) -> tuple[dict[str, Any]]:
    return (parse_setting(body),)


async def _code(request: Request) -> Response:
    """Answer with the code of all that a page shows of a setting: it takes no computation."""
    body = await read_json(request)
    return JSONResponse({"asked": body, **page_code(*parse_page(body))})


def _theory(thread: str, name: str, read: Callable[[Any], tuple[Any, ...]]) -> Endpoint:
    """Return what answers by theory: the same to the same question, so that it is computed once."""

    async def answer(request: Request) -> Response:
        body = await read_json(request)
        return await compute_response(
            request, thread, name, *read(body), is_cached=True, question=body
        )

    return handle_errors(answer)


def _nothing() -> None:
    """Prepare nothing."""
