"""Connections that ask nothing are closed: uvicorn waits for a first request without an end."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["FIRST", "Impatient"]

FIRST = 20.0  # seconds in which the head of the first request must be there


class Impatient(H11Protocol):
    """A connection to the server, which ends unless a whole request comes soon.

    After an answer it ends by uvicorn's own ``timeout_keep_alive``.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        asyncio.get_running_loop().call_later(FIRST, self._leave, transport)

    def _leave(self, transport: asyncio.Transport) -> None:
        if self.cycle is None:  # no request has begun
            transport.close()
