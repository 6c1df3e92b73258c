"""Errors of a request, each with a status and one sentence."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from resonax.core.errors import ArgumentError, DataError, ResonaxError
from resonax.core.labels import printable
from resonax.explore.schema import NAMES, OPTIONS

__all__ = ["RequestError", "Superseded", "describe_error", "explain_unreadable"]


class RequestError(ResonaxError):
    """A request that cannot be answered, with the status that says so."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class Superseded(RequestError):  # noqa: N818
    """A request that a newer one has replaced, or that nobody waits for."""

    def __init__(self) -> None:
        super().__init__("Superseded by a newer request.", 409)


@contextlib.contextmanager
def explain_unreadable(name: str) -> Iterator[None]:
    """Raise `DataError` where a library fails on a file, whatever it raises.

    Examples
    --------
    >>> with explain_unreadable("a.npy"):
    ...     int("no number")
    Traceback (most recent call last):
    resonax.core.errors.DataError: a.npy cannot be read: save it again, as what its name says
    """
    try:
        yield
    except (ResonaxError, MemoryError):
        raise
    except Exception as error:
        text = f"{printable(name)} cannot be read: save it again, as what its name says"
        raise DataError(text) from error


def describe_error(error: BaseException) -> tuple[int, dict[str, str]]:
    """Return the status of an error and what is said of it; a defect of ours is not explained.

    ``name`` is the number or word of a setting that the sentence begins with.

    Examples
    --------
    >>> describe_error(ArgumentError("lr must be above 0, got -1"))
    (400, {'error': 'lr must be above 0, got -1.', 'name': 'lr'})
    """
    if isinstance(error, MemoryError):
        return 507, {"error": "Not enough memory: use fewer points, runs or rows."}
    if not isinstance(error, ResonaxError):
        return 500, {"error": "The server failed at this request, which is a defect of resonax."}
    text = re.sub(r"`(\w+)`", r"\1", " ".join(str(error).split()))
    answer = {"error": f"{printable(text, 1000).rstrip('.')}."}
    first = text.partition(" ")[0]
    if first in NAMES | OPTIONS:
        answer["name"] = first
    if isinstance(error, RequestError):
        return error.status, answer
    return 400 if isinstance(error, ArgumentError | DataError) else 500, answer
