"""A sequence that grows at its end and loses its beginning, both in little time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

__all__ = ["EMPTY", "Parts", "Window", "window_of"]

_CHUNK = 32


class Parts(NamedTuple):
    """Chunks of equal length, what is left at the end, and how many at the start are gone."""

    chunks: tuple[tuple[Any, ...], ...] = ()
    last: tuple[Any, ...] = ()
    gone: int = 0


class Window(Sequence[Any]):
    """A sequence of which `extend` and `drop` return new ones that share its parts.

    A plain tuple of some hundred batches would be copied at every step, and the counter of each
    batch touched: out of the cache of a processor that trains, that is most of the work of a guard.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: Parts):
        self.parts = parts

    def __len__(self) -> int:
        chunks, last, gone = self.parts
        return _CHUNK * len(chunks) + len(last) - gone

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(self[one] for one in range(len(self))[place])
        chunks, last, gone = self.parts
        place = range(len(self))[place] + gone  # IndexError beyond the end
        chunk, inside = divmod(place, _CHUNK)
        return chunks[chunk][inside] if chunk < len(chunks) else last[inside]

    def __iter__(self) -> Iterator[Any]:
        chunks, last, gone = self.parts
        return islice(chain.from_iterable((*chunks, last)), gone, None)

    def extend(self, items: Iterable[Any]) -> Window:
        """Return it with more at the end."""
        chunks, last, gone = self.parts
        last = (*last, *items)
        full = len(last) // _CHUNK * _CHUNK
        new = (last[place : place + _CHUNK] for place in range(0, full, _CHUNK))
        return Window(Parts((*chunks, *new), last[full:], gone))

    def drop(self, count: int) -> Window:
        """Return it without so many at the start, at most all of them."""
        chunks, last, gone = self.parts
        if count >= len(self):
            return EMPTY
        whole, gone = divmod(gone + count, _CHUNK)
        return Window(Parts(chunks[whole:], last, gone))


EMPTY = Window(Parts())


def window_of(items: Iterable[Any]) -> Window:
    """Return items as a window.

    Examples
    --------
    >>> window = window_of(range(99)).extend([99, 100]).drop(90)
    >>> list(window), window[0], window[-1], window[3:5]
    ([90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100], 90, 100, (93, 94))
    """
    return EMPTY.extend(items)
