"""The application: which path is answered by what, and errors as JSON of one sentence."""

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

from resonax.checks import ResonaxError
from resonax.explore.answering import answering, body_of, computed, failed, refused
from resonax.explore.api_docs import PATHS
from resonax.explore.asked import asked_map, asked_runs, asked_setting, take
from resonax.explore.data_routes import data_routes
from resonax.explore.jobs import Jobs
from resonax.explore.page_files import page_file, plotly_file
from resonax.explore.results_routes import results_routes
from resonax.explore.schema import describe
from resonax.explore.security import Guarded
from resonax.explore.site import Site
from resonax.explore.work import Desk

__all__ = ["build_app"]

_THEORY, _BESIDE = "resonax.explore.theory", "resonax.explore.beside"
_WARM = {
    "map": f"{_THEORY}:warm_map",
    "verdict": f"{_THEORY}:warm_judge",
    "beside": f"{_BESIDE}:warm_beside",
}
Endpoint = Callable[[Request], Awaitable[Response]]


def build_app(site: Site) -> Starlette:
    """Return the application of a site; with `starlette.testclient` it needs no port."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        desk = Desk(site.prepare or _nothing)
        app.state.desk, app.state.jobs = desk, Jobs(site.prepare)
        if site.warm:
            desk.warm_up("map", f"{_THEORY}:load")
        try:
            yield
        finally:
            desk.close()
            app.state.jobs.close()

    async def home(request: Request) -> Response:
        if site.warm and not opened:  # a page will ask for all of it; a program may not
            opened.append(True)
            for lane, name in _WARM.items():
                request.app.state.desk.warm_up(lane, name)
        return await page_file(request)

    opened: list[bool] = []

    async def schema(_: Request) -> Response:
        names = [path.name if path else None for path in (site.data, site.results)]
        return JSONResponse(describe(*names))

    app = Starlette(
        routes=[
            Route("/", answering(home)),
            Route("/plotly.min.js", plotly_file),
            Route("/api/schema", answering(schema)),
            Route("/api/docs", answering(_docs)),
            Route("/api/verdict", answering(_verdict), methods=["POST"]),
            Route("/api/map", answering(_map), methods=["POST"]),
            Route("/api/spectrum", answering(_spectrum), methods=["POST"]),
            Route("/api/safe", answering(_safe), methods=["POST"]),
            Route("/api/runs", answering(_runs), methods=["POST"]),
            *data_routes(site),
            *results_routes(site),
            Route("/{name}", answering(page_file)),
        ],
        middleware=[Middleware(Guarded, token=site.token, port=site.port)],
        exception_handlers={HTTPException: refused, ResonaxError: failed},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app


async def _docs(_: Request) -> Response:
    return JSONResponse({"paths": [path._asdict() for path in PATHS]})


async def _setting(request: Request) -> dict[str, Any]:
    return asked_setting(take(await body_of(request), ("setting",))["setting"])


async def _known(request: Request, lane: str, name: str, *given: Any) -> Response:
    """Answer what theory says: the same to the same question, so that it is computed once."""
    return await computed(request, lane, name, *given, keeps=True)


async def _verdict(request: Request) -> Response:
    return await _known(request, "verdict", f"{_THEORY}:judge", await _setting(request))


async def _spectrum(request: Request) -> Response:
    return await _known(request, "beside", f"{_BESIDE}:find_spectrum", await _setting(request))


async def _safe(request: Request) -> Response:
    return await _known(request, "beside", f"{_BESIDE}:find_safe", await _setting(request))


async def _runs(request: Request) -> Response:
    asked = asked_runs(await body_of(request))
    return await _known(request, "beside", f"{_BESIDE}:follow_runs", *asked)


async def _map(request: Request) -> Response:
    return await _known(request, "map", f"{_THEORY}:make_map", *asked_map(await body_of(request)))


def _nothing() -> None:
    """Prepare nothing."""
