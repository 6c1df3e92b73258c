"""An S3 server that fails: moto over real HTTP, in which a share of the requests goes wrong.

    python tests/flaky_s3.py --share 0.3 --port 9000

A request that goes wrong is refused before it is done (500, 503), done and then answered with 500,
answered too late, or cut off with no answer at all.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import socket
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

BUCKET = "bucket"
_KINDS = ("500", "503", "500 when done", "late", "cut off")
_ERROR = "<Error><Code>{code}</Code><Message>made on purpose</Message></Error>"


class _CutOff(Exception):  # noqa: N818
    """Ends a request without an answer."""


@dataclass
class Faults:
    """A share of requests that go wrong; ``late`` is the seconds that an answer is kept back."""

    app: Any
    share: float = 0.0
    late: float = 0.5
    seed: int = 0
    made: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._moments, self._gate = random.Random(self.seed), threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        with self._gate:
            is_wrong = self._moments.random() < self.share
            kind = self._moments.choice(_KINDS) if is_wrong else "right"
            self.made[kind] += 1
        if kind == "cut off":
            raise _CutOff
        if kind == "late":
            time.sleep(self.late)
        if kind in ("right", "late"):
            return self.app(environ, start)
        if kind == "500 when done":
            list(self.app(environ, lambda *_: None))
        else:  # what was sent must be taken, or it would be read as the next request
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        code = "SlowDown" if kind == "503" else "InternalError"
        start(f"{kind[:3]} made on purpose", [("Content-Type", "application/xml")])
        return [_ERROR.format(code=code).encode()]


@contextlib.contextmanager
def serving(share: float = 0.0, seed: int = 0, port: int = 0) -> Iterator[tuple[str, Faults]]:
    """Give the address of a server with one empty bucket, and what is wrong with it."""
    from moto.core.base_backend import BackendDict
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):
        """A request that is cut off says nothing, and none is written to the terminal."""

        def run_wsgi(self) -> None:
            try:
                super().run_wsgi()
            except (_CutOff, ConnectionError):
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)

        def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
            """Be silent."""

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    BackendDict.reset()  # of what an earlier server of this process has kept
    # S3 itself: to find the service of a request, moto lists a folder of 200 services each time.
    faults = Faults(create_backend_app("s3"), seed=seed)
    server = make_server("127.0.0.1", port, faults, threaded=True, request_handler=Handler)
    server.passthrough_errors = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        urllib.request.urlopen(urllib.request.Request(f"{address}/{BUCKET}", method="PUT"))
        faults.share = share
        yield address, faults
    finally:
        server.shutdown()
        server.server_close()


def environment(address: str) -> dict[str, str]:
    """Return what tells every S3 client of the server."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.3)
    parser.add_argument("--port", type=int, default=9000)
    given = parser.parse_args()
    with serving(given.share, port=given.port) as (where, what):
        print(" ".join(f"{name}={value}" for name, value in environment(where).items()), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
        print(dict(what.made))
