"""The paths for files: columns of data, checks and their events, stored results and figures."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from resonax.core.errors import ArgumentError
from resonax.core.labels import printable
from resonax.data.example import EXAMPLE
from resonax.explore.check_worker import CheckRequest
from resonax.explore.code import EXAMPLE_OPTIONS, check_code
from resonax.explore.endpoints import client_id, compute_response, handle_errors, read_json
from resonax.explore.errors import RequestError
from resonax.explore.jobs import CheckJob, CheckJobs
from resonax.explore.questions import CheckCodeQuestion, parse_options, read_question
from resonax.explore.schema import LIMITS
from resonax.explore.security import MAX_JSON_BYTES, Site, limit_body

__all__ = ["data_routes", "results_routes"]

_COLUMNS = "resonax.explore.columns:describe_columns"
_AUDITS = "resonax.explore.audits"
_FOLDER = "resonax.explore.results_folder"
_REPORT_TIMEOUT = 120  # seconds for a report that is being drawn
_MAX_FIELDS = 40


def data_routes(site: Site) -> list[Route]:
    """Return the routes; a file that the command line named is read where it is."""

    async def given_columns(request: Request) -> Response:
        _jobs(request).start_spare()
        if _is_on(request.query_params.get("example", "")):
            return await compute_response(
                request, "details", _COLUMNS, str(EXAMPLE.path), None, None, EXAMPLE_OPTIONS
            )
        return await compute_response(request, "details", _COLUMNS, str(_given_file(site)))

    async def check(request: Request) -> Response:
        fields, upload = await _form(request)
        example, given = (_is_on(fields.pop(name, "")) for name in ("example", "given"))
        if upload is not None:
            try:
                asked = parse_options(fields)
            except ArgumentError:
                await upload.close()
                raise
            folder = _jobs(request).new_folder()
            path = await _save(upload, folder)
            check_request = CheckRequest(path, printable(path.name), asked)
        elif example and not given:
            folder = None
            usual = {name: str(value) for name, value in EXAMPLE_OPTIONS.items()}
            asked = parse_options({**usual, **fields})
            check_request = CheckRequest(EXAMPLE.path, EXAMPLE.path.name, asked, example=True)
        else:
            folder, path = None, _given_file(site)
            check_request = CheckRequest(path, printable(path.name), parse_options(fields))
        job = _jobs(request).start(check_request, client_id(request), folder)
        return JSONResponse({"job": job.id}, 202)

    return [
        Route("/api/columns", handle_errors(given_columns), methods=["GET"]),
        Route("/api/columns", handle_errors(_upload_columns), methods=["POST"]),
        Route("/api/example", handle_errors(_example), methods=["GET"]),
        Route("/api/check", handle_errors(check), methods=["POST"]),
        Route("/api/check/code", handle_errors(_check_code), methods=["POST"]),
        Route("/api/jobs/{id}", handle_errors(_show_job), methods=["GET"]),
        Route("/api/jobs/{id}", handle_errors(_cancel), methods=["DELETE"]),
        Route("/api/jobs/{id}/events", handle_errors(_events), methods=["GET"]),
        Route("/api/jobs/{id}/report", handle_errors(_report), methods=["GET"]),
        Route("/api/jobs/{id}/check.json", handle_errors(_download), methods=["GET"]),
    ]


def _jobs(request: Request) -> CheckJobs:
    return request.app.state.jobs


def _job(request: Request) -> CheckJob:
    return _jobs(request).find(request.path_params["id"])


def _is_on(word: str) -> bool:
    return word.lower() in ("1", "true", "on")


def _given_file(site: Site) -> Path:
    if site.data is None:
        raise RequestError("There is no data: send a file, or name one on the command line.", 404)
    return site.data


async def _example(request: Request) -> Response:
    _jobs(request).start_spare()
    answer = {"name": EXAMPLE.path.name, "title": EXAMPLE.title, "licence": EXAMPLE.licence}
    return JSONResponse(answer | {"options": EXAMPLE_OPTIONS})


async def _upload_columns(request: Request) -> Response:
    fields, upload = await _form(request)
    if upload is None:
        raise RequestError("There is no file in the request: send one as the field file.")
    folder = _jobs(request).new_folder()
    try:
        path = await _save(upload, folder)
        _jobs(request).start_spare()
        marks = [fields.get(name) or None for name in ("separator", "decimal")]
        return await compute_response(request, "details", _COLUMNS, str(path), *marks)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _form(request: Request) -> tuple[dict[str, str], UploadFile | None]:
    """Return the text fields of a form and its one file, within the limits."""
    kind = request.headers.get("content-type", "")
    if not kind.startswith(("multipart/form-data", "application/x-www-form-urlencoded")):
        raise RequestError("The request must be a form, multipart/form-data.", 415)
    receive = limit_body(request.scope, request.receive, LIMITS["upload_bytes"] + MAX_JSON_BYTES)
    limits: dict[str, Any] = {"max_files": 1, "max_fields": _MAX_FIELDS}
    try:
        form = await Request(request.scope, receive).form(**limits)
    except (MultiPartException, UnicodeDecodeError, ValueError, KeyError, IndexError):
        raise RequestError("The form cannot be read: send it as multipart/form-data.") from None
    except Exception as error:
        if isinstance(error, RequestError) or not hasattr(error, "status_code"):
            raise
        raise RequestError("The form cannot be read: send fewer fields and one file.") from None
    return _sorted(form)


def _sorted(form: FormData) -> tuple[dict[str, str], UploadFile | None]:
    fields: dict[str, str] = {}
    upload = None
    for name, value in form.multi_items():
        if isinstance(value, str):
            if name in fields:
                raise RequestError(f"The field {printable(name, 60)} is given twice.")
            fields[name] = value
        elif name != "file":
            raise RequestError("The file must be sent as the field file.")
        else:
            upload = value
    return fields, upload


async def _save(upload: UploadFile, folder: Path) -> Path:
    """Write an upload into a folder of its own, under the end of its name and nothing else."""
    name = re.split(r"[/\\]", upload.filename or "")[-1].replace("\0", "")
    name = "".join(letter for letter in name if letter.isprintable()).lstrip(".")
    name = name.encode()[-200:].decode(errors="ignore")  # systems count bytes, 255 at most
    path = folder / (name or "upload")
    with path.open("xb") as file:
        while part := await upload.read(2**20):
            file.write(part)
    await upload.close()
    return path


async def _check_code(request: Request) -> Response:
    """Answer with the code of a check: its options are judged, and no file is read."""
    body = await read_json(request)
    given = read_question(CheckCodeQuestion, body)
    usual = {name: str(value) for name, value in EXAMPLE_OPTIONS.items()} if given.example else {}
    asked = parse_options({**usual, **given.options})
    return JSONResponse({"asked": body, "code": check_code(asked, given.name, given.example)})


async def _show_job(request: Request) -> Response:
    job = _job(request)
    return JSONResponse({"state": job.state, "result": job.result})


async def _cancel(request: Request) -> Response:
    _jobs(request).cancel(_job(request))
    return Response(status_code=204)


async def _events(request: Request) -> Response:
    last = request.headers.get("last-event-id", "0")
    after = int(last) if last.isdecimal() and len(last) < 10 else 0
    return StreamingResponse(
        _job(request).follow(after),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


def _attached(body: str, name: str, kind: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(body, media_type=kind, headers=headers)


async def _report(request: Request) -> Response:
    job = _job(request)
    if job.result is None:
        raise RequestError("The check is not finished: its report comes after it.", 409)
    async with job.changed:
        try:
            await asyncio.wait_for(
                job.changed.wait_for(lambda: job.report is not None or job.process is None),
                _REPORT_TIMEOUT,
            )
        except TimeoutError:
            raise RequestError("The report takes too long: try again.", 503) from None
    if job.report is None:
        raise RequestError("The report could not be drawn: run the command instead.", 500)
    return _attached(job.report, "report.html", "text/html; charset=utf-8")


async def _download(request: Request) -> Response:
    job = _job(request)
    if job.result is None:
        raise RequestError("The check is not finished: its numbers come after it.", 409)
    return _attached(json.dumps(job.result["check"]), "check.json", "application/json")


def results_routes(site: Site) -> list[Route]:
    """Return the routes of the folder, or of the file of an audit, that the command line named."""

    def folder() -> str:
        if site.results is None:
            raise RequestError("There are no results: name their folder on the command line.", 404)
        return str(site.results)

    async def listed(request: Request) -> Response:
        return await compute_response(request, "details", f"{_FOLDER}:list_results", folder())

    async def experiment(request: Request) -> Response:
        name = request.path_params["experiment"]
        return await compute_response(
            request, "details", f"{_FOLDER}:show_experiment", folder(), name
        )

    async def cell(request: Request) -> Response:
        name, query = request.path_params["experiment"], request.query_params
        place = [query.get(axis, "") for axis in ("x", "y")]
        if not all(index.isdecimal() and len(index) < 8 for index in place):
            raise RequestError("A point is named by panel, x and y: give whole numbers.")
        given = (folder(), name, query.get("panel", ""), *map(int, place))
        return await compute_response(request, "details", f"{_FOLDER}:show_cell", *given)

    async def figure(request: Request) -> Response:
        given = (request.path_params[name] for name in ("experiment", "figure"))
        found = await compute_response(
            request, "details", f"{_FOLDER}:find_figure", folder(), *given
        )
        path, kind = json.loads(bytes(found.body))
        return FileResponse(path, media_type=kind)

    async def audit(request: Request) -> Response:
        given = (folder(), request.path_params["audit"])
        return await compute_response(request, "details", f"{_AUDITS}:show_audit", *given)

    return [
        Route("/api/audits/{audit}", handle_errors(audit)),
        Route("/api/results", handle_errors(listed)),
        Route("/api/results/{experiment}", handle_errors(experiment)),
        Route("/api/results/{experiment}/cell", handle_errors(cell)),
        Route("/api/results/{experiment}/{figure}", handle_errors(figure)),
    ]
