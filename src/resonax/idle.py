"""What a process does in place of waiting for a computation, such as to load libraries."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["do_when_idle", "wait_for"]

_PIECES: deque[Callable[[], Any]] = deque()


@contextmanager
def do_when_idle(pieces: Iterable[Callable[[], Any]]) -> Iterator[None]:
    """Let `wait_for` call a function each time, of some tenths of a second; forget the rest.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> with do_when_idle([lambda: print("called")]):
    ...     wait_for(jnp.zeros(3))
    ...     wait_for(jnp.zeros(3))
    called
    """
    _PIECES.extend(pieces)
    try:
        yield
    finally:
        _PIECES.clear()


def wait_for(computed: Any) -> None:
    """Wait until arrays are computed; before it, the main thread does what is to be done.

    Only that thread: two that load parts of one library at once may see a half of it.
    """
    if _PIECES and threading.current_thread() is threading.main_thread():
        _PIECES.popleft()()
    import jax  # not above: commands note what is to be done before they load it

    jax.block_until_ready(computed)
