"""The files of the page: its modules, and plotly.js as the `plotly` package ships it."""

from __future__ import annotations

import functools
import gzip
import hashlib
import re
from importlib.util import find_spec
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from resonax.explore.errors import RequestError

__all__ = ["page_file", "plotly_file"]

_PAGE = Path(__file__).parent / "page"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{,60}\.(html|js|css|svg|png|json)")
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
}


async def page_file(request: Request) -> Response:
    """Return a file of the page; names that are no such file are not looked for."""
    name = request.path_params.get("name", "index.html")
    path = _PAGE / name
    if not _NAME.fullmatch(name) or not path.is_file():
        raise RequestError("There is no such page here.", 404)
    body = path.read_bytes()
    return _answer(request, body, _KINDS[path.suffix], "no-cache")


@functools.cache
def _plotly() -> tuple[bytes, bytes]:
    """Return plotly.js as it is, and packed."""
    spec = find_spec("plotly")
    assert spec is not None  # the command looked for it
    body = (Path(spec.origin or "").parent / "package_data" / "plotly.min.js").read_bytes()
    return body, gzip.compress(body, compresslevel=1, mtime=0)


def plotly_file(request: Request) -> Response:
    """Return plotly.js; run in a thread, as it is packed once."""
    plain, packed = _plotly()
    wants = "gzip" in request.headers.get("accept-encoding", "")
    answer = _answer(request, packed if wants else plain, _KINDS[".js"], "max-age=86400, private")
    if wants:
        answer.headers["content-encoding"] = "gzip"
    answer.headers["vary"] = "accept-encoding"
    return answer


def _answer(request: Request, body: bytes, kind: str, cache: str) -> Response:
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": cache}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=kind, headers=headers)
