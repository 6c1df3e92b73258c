"""Read what tasks have stored, and see that it is as their markers say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from resonax.results.chunks import chunk_name, chunk_shape, decode, seal
from resonax.results.folder import Folder
from resonax.results.layout import FILL, Layout, Task
from resonax.results.marker import Marker, marker_name

if TYPE_CHECKING:
    import numpy as np

__all__ = ["assemble", "read_blocks"]

_BYTES, _TASKS = 2**25, 256  # of tasks that are read at once


def read_blocks(
    folder: Folder,
    layout: Layout,
    tasks: Sequence[Task],
    marked: set[int],
    made: tuple[str, Mapping[str, str]],
    wanted: Sequence[str],
) -> Iterator[tuple[Task, dict[str, bytes] | None]]:
    """Yield tasks with chunks of variables, None unless these are as the marker says.

    What lies in memory at once is bounded, whatever the number of tasks.

    Parameters
    ----------
    folder, layout
        The files of the store, and what it holds.
    tasks
        Those that are read, in this order.
    marked
        The numbers of those that have a marker: the others are not looked for.
    made
        The hash of the specification and the versions that a marker must name.
    wanted
        The variables whose chunks are read.
    """
    each = 8 * sum(math.prod(chunk_shape(layout, name)) for name in wanted)
    size = max(1, min(_TASKS, _BYTES // max(each, 1)))
    for start in range(0, len(tasks), size):
        batch = tasks[start : start + size]
        names = {task.number: _names(layout, task) for task in batch if task.number in marked}
        texts = folder.read(marker_name(task) for task in batch if task.number in names)
        markers = {task.number: Marker.parse(texts.get(marker_name(task), b"")) for task in batch}
        finished = {
            number: {key: marker.chunks[key] for key in map(names[number].__getitem__, wanted)}
            for number, marker in markers.items()
            if marker is not None
            and (marker.specification_sha256, marker.versions) == made
            and marker.chunks.keys() == set(names[number].values())
        }
        chunks = folder.read(key for sums in finished.values() for key in sums)
        for task in batch:
            sums = finished.get(task.number)
            if sums is None or any(seal(chunks.get(key, b"")) != sums[key] for key in sums):
                yield task, None
            else:
                yield task, {name: chunks[names[task.number][name]] for name in wanted}


def assemble(
    layout: Layout,
    names: Sequence[str],
    steps: Mapping[str, int],
    blocks: Iterable[tuple[Task, Mapping[str, bytes] | None]],
) -> tuple[dict[str, np.ndarray], int]:
    """Return variables with every so many points of each dimension, and how many tasks are missing.

    What is missing is nan, 0 or False.
    """
    import numpy as np

    lengths = {dim: len(values) for dim, values in layout.coords.items()}
    arrays, missing = {}, 0
    for name in names:
        kind = layout.variables[name].dtype
        shape = [-(-lengths[dim] // steps[dim]) for dim in layout.variables[name].dims]
        arrays[name] = np.full(shape, FILL[kind], kind)
    for task, chunks in blocks:
        missing += chunks is None
        for name, chunk in (chunks or {}).items():
            dims = layout.variables[name].dims
            places = [_thin(task.region.get(d, slice(0, lengths[d])), steps[d]) for d in dims]
            values = decode(layout, task, name, chunk)[tuple(of for _, of in places)]
            arrays[name][tuple(to for to, _ in places)] = values
    return arrays, missing


def _thin(region: slice, step: int) -> tuple[slice, slice]:
    """Return where a part of a dimension goes if every ``step``-th point is kept, and which.

    Examples
    --------
    >>> to, of = _thin(slice(4, 8), 3)  # of 0, 3, 6, ... it has 6, which is the third
    >>> list(range(9)[to]), list(range(4, 8)[of])
    ([2], [6])
    """
    first = -(-region.start // step)
    return slice(first, -(-region.stop // step)), slice(first * step - region.start, None, step)


def _names(layout: Layout, task: Task) -> dict[str, str]:
    return {name: chunk_name(layout, task, name) for name in layout.variables}
