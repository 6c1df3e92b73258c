"""The paths for stored results: experiments, their panels, runs and figures."""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from resonax.explore.answering import answering, computed
from resonax.explore.errors import RequestError
from resonax.explore.site import Site

__all__ = ["results_routes"]

_FOLDER = "resonax.explore.results_folder"


def results_routes(site: Site) -> list[Route]:
    """Return the routes of the folder that the command line named."""

    def folder() -> str:
        if site.results is None:
            raise RequestError("There are no results: name their folder on the command line.", 404)
        return str(site.results)

    async def listed(request: Request) -> Response:
        return await computed(request, "beside", f"{_FOLDER}:list_results", folder())

    async def experiment(request: Request) -> Response:
        name = request.path_params["experiment"]
        return await computed(request, "beside", f"{_FOLDER}:show_experiment", folder(), name)

    async def cell(request: Request) -> Response:
        name, query = request.path_params["experiment"], request.query_params
        place = [query.get(axis, "") for axis in ("x", "y")]
        if not all(index.isdecimal() and len(index) < 8 for index in place):
            raise RequestError("A point is named by panel, x and y: give whole numbers.")
        given = (folder(), name, query.get("panel", ""), *map(int, place))
        return await computed(request, "beside", f"{_FOLDER}:show_cell", *given)

    async def figure(request: Request) -> Response:
        given = (request.path_params[name] for name in ("experiment", "figure"))
        found = await computed(request, "beside", f"{_FOLDER}:find_figure", folder(), *given)
        path, kind = json.loads(bytes(found.body))
        return FileResponse(path, media_type=kind)

    return [
        Route("/api/results", answering(listed)),
        Route("/api/results/{experiment}", answering(experiment)),
        Route("/api/results/{experiment}/cell", answering(cell)),
        Route("/api/results/{experiment}/{figure}", answering(figure)),
    ]
