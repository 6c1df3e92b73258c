"""A process for checks, as the server sees it: requests go in, and messages come out."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from resonax.explore.check_worker import CheckRequest, work

__all__ = ["CheckProcess"]

Message = tuple[str, Any]  # a kind, and what it holds


@dataclass(eq=False)
class CheckProcess:
    """One process, which takes a request when it has done with the one before."""

    _process: BaseProcess
    _pipe: Connection
    _messages: asyncio.Queue[Message | None]  # None when the process has ended
    _is_idle: bool = True
    _is_killed: bool = False

    @classmethod
    def start(cls, prepare: Callable[[], None] | None) -> CheckProcess:
        """Start a process for this event loop; it loads what checks need while nobody waits."""
        # Not forked: a process that has begun to use jax cannot be copied.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, prepare), daemon=True)
        # Interrupts from the keyboard reach all processes: they are blocked until it ignores them.
        old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)
        theirs.close()
        messages: asyncio.Queue[Message | None] = asyncio.Queue()
        _listen(process, ours, messages)
        return cls(process, ours, messages)

    @property
    def is_free(self) -> bool:
        """Whether it may take a request."""
        return self._is_idle and not self._is_killed and self._process.is_alive()

    async def check(self, request: CheckRequest) -> AsyncIterator[Message]:
        """Yield the messages of a check until it is done or the process has ended.

        The process reports that it is free again after all messages of this request: the next
        one gets none of them.
        """
        self._is_idle = False
        with contextlib.suppress(OSError):  # it has ended, as the next message will say
            self._pipe.send(request)
        while (found := await self._messages.get()) is not None:
            kind, content = found
            if kind == "done":
                self._is_idle = content
                return
            yield found

    def kill(self) -> None:
        """End the process, whatever it does."""
        self._is_killed = True
        self._process.kill()


def _listen(
    process: BaseProcess, pipe: Connection, messages: asyncio.Queue[Message | None]
) -> None:
    """Put what comes from a process into a queue of this event loop, and None at its end."""
    loop = asyncio.get_running_loop()

    def listen() -> None:
        found: Message | None = None
        while True:
            try:
                found = pipe.recv()
            except (EOFError, OSError):
                found = None
            except Exception as error:  # what it sent cannot be loaded here: nothing more is taken
                traceback.print_exception(error, file=sys.stderr)
                process.kill()
                found = None
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(messages.put_nowait, found)
            if found is None:
                pipe.close()
                process.join()
                return

    threading.Thread(target=listen, daemon=True).start()
