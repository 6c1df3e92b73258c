"""What a process does in place of waiting for a computation, such as to load libraries."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["do_when_idle", "wait_for", "work_until"]

_PIECES: deque[Callable[[], Any]] = deque()


@contextmanager
def do_when_idle(pieces: Iterable[Callable[[], Any]]) -> Iterator[None]:
    """Let `wait_for` call a function each time, and `work_until` one after the other.

    Those of a block inside another come after its own; what is left in the end is forgotten.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> with do_when_idle([lambda: print("called")]):
    ...     wait_for(jnp.zeros(3))
    ...     wait_for(jnp.zeros(3))
    called
    """
    own = list(pieces)
    _PIECES.extend(own)
    try:
        yield
    finally:
        for piece in own:
            with suppress(ValueError):  # it was called
                _PIECES.remove(piece)


def wait_for(computed: Any) -> None:
    """Wait until arrays are computed; before it, the main thread does what is to be done.

    Only that thread: two that load parts of one library at once may see a half of it.
    """
    if _may_work():
        _PIECES.popleft()()
    import jax  # not above: commands note what is to be done before they load it

    jax.block_until_ready(computed)


def work_until(is_done: Callable[[], bool]) -> None:
    """Do what is to be done until other threads have done their part, or nothing is left of it.

    Examples
    --------
    >>> done = []
    >>> with do_when_idle([lambda: done.append(1), lambda: done.append(2), lambda: None]):
    ...     work_until(lambda: len(done) == 2)
    >>> done
    [1, 2]
    """
    while _may_work() and not is_done():
        _PIECES.popleft()()


def _may_work() -> bool:
    return bool(_PIECES) and threading.current_thread() is threading.main_thread()
