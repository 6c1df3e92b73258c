"""A process for checks that only does as it is told, for tests of those who start it."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


class Missing:
    """What needs a module that is not there, wherever it is taken out of a pipe."""

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, ("no_such_module",)


def obey(pipe: Connection, prepare: Callable[[], None] | None) -> None:
    """Take requests as `check_worker.work` does; what to do is the name of the file."""
    while True:
        request: Any = pipe.recv()
        pipe.send(("partial", {"name": request.name, "process": os.getpid()}))
        if request.name == "hang":
            time.sleep(600)
        elif request.name == "die":
            os._exit(1)
        elif request.name == "unreadable":
            pipe.send(("partial", Missing()))
        elif request.name == "not a number":
            pipe.send(("result", {"name": float("nan")}))
        elif request.name == "refuse":
            pipe.send(("failed", {"error": "No."}))
        elif request.name == "no report":
            pipe.send(("result", {"name": request.name}))
            os._exit(1)
        else:
            pipe.send(("result", {"name": request.name}))
            pipe.send(("report", f"<p>{request.name}"))
        pipe.send(("done", request.name != "last"))
