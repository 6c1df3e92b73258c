"""Access control: only a page of this server may send requests, by its address and its token.

The server listens on loopback, where any page in the user's browser could reach it. So a request
must name this server in its Host header (a foreign name that was made to resolve to 127.0.0.1 does
not), must not come from a page of another origin, and must know the token of the printed address.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from resonax.explore.errors import RequestError, describe_error

__all__ = ["MAX_JSON_BYTES", "AccessControl", "Site", "limit_body"]

MAX_JSON_BYTES = 2**18  # bytes of a request that is no upload
_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "worker-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "object-src 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",  # the address has the token
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True)
class Site:
    """What one server serves."""

    token: str
    port: int
    data: Path | None = None  # a file to check
    results: Path | None = None  # a folder of results, or the file of an audit
    prepare: Callable[[], None] | None = None  # called once in each process before jax is used
    warm: bool = False  # whether to compile the first answers when the page is opened

    @property
    def address(self) -> str:
        """The address to open."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"


def cookie_name(port: int) -> str:
    """Return the name of the cookie: cookies are shared by all ports of a host."""
    return f"resonax_{port}"


@dataclass(frozen=True)
class AccessControl:
    """An application behind the checks; every answer has headers that wall its page off."""

    app: ASGIApp
    token: str
    port: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or say why not."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        headers = Headers(scope=scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                out = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    out[name] = value
                out.setdefault("cache-control", "no-store")
                if self._is_page_with_token(scope):
                    out.append("set-cookie", self._cookie())
            await send(message)

        try:
            self._check(scope, headers)
        except RequestError as error:
            status, refusal = describe_error(error)
            return await JSONResponse(refusal, status)(scope, receive, send_guarded)
        return await self.app(scope, receive, send_guarded)

    def _check(self, scope: Scope, headers: Headers) -> None:
        names = ("127.0.0.1", "localhost")
        hosts = {f"{name}:{self.port}" for name in names}
        if self.port == 80:  # which browsers leave out
            hosts |= set(names)
        if len(headers.getlist("host")) != 1 or headers["host"].lower() not in hosts:
            raise RequestError("This server answers to its own address alone.", 403)
        origins = {f"http://{host}" for host in hosts}
        if any(origin not in origins for origin in headers.getlist("origin")):
            raise RequestError("This server answers to its own page alone.", 403)
        given = [*headers.getlist("x-resonax-token"), *_query_tokens(scope)]
        given = given or _cookie_tokens(headers, cookie_name(self.port))
        if not given or not all(self._is_token(token) for token in given):
            raise RequestError(
                "The token is missing or wrong: open the address that `resonax explore` printed.",
                403,
            )

    def _is_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(errors="replace"), self.token.encode())

    def _is_page_with_token(self, scope: Scope) -> bool:
        """Return whether this is the page, opened with the right token in its address."""
        query = _query_tokens(scope)
        return scope["path"] == "/" and bool(query) and all(map(self._is_token, query))

    def _cookie(self) -> str:
        return f"{cookie_name(self.port)}={self.token}; HttpOnly; SameSite=Strict; Path=/"


def _query_tokens(scope: Scope) -> list[str]:
    text = scope.get("query_string", b"").decode("latin-1")
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=50).get("token", [])
    except ValueError:  # too many fields
        return [""]


def _cookie_tokens(headers: Headers, name: str) -> list[str]:
    found = []
    for text in headers.getlist("cookie"):
        try:
            jar = SimpleCookie(text)
        except CookieError:
            continue
        found += [jar[name].value] if name in jar else []
    return found


def limit_body(scope: Scope, receive: Receive, most: int) -> Receive:
    """Return a ``receive`` that refuses a body of more than some bytes, announced or not."""
    announced = Headers(scope=scope).get("content-length", "0")
    seen = 0

    def refuse() -> RequestError:
        size = f"{most / 2**20:.3g} MiB" if most >= 2**20 else f"{most // 1024} KiB"
        return RequestError(f"The request is too large: at most {size} are taken.", 413)

    async def counted() -> Message:
        nonlocal seen
        if announced.isdecimal() and int(announced) > most:
            raise refuse()
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise refuse()
        return message

    return counted
