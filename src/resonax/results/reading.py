"""Read what tasks have stored, and see that it is as their markers say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from resonax.results.chunks import chunk_name, chunk_shape, seal
from resonax.results.folder import Folder
from resonax.results.layout import Layout, Task
from resonax.results.marker import Marker, marker_name

__all__ = ["read_blocks"]

_BYTES, _TASKS = 2**25, 256  # of tasks that are read at once


def read_blocks(
    folder: Folder,
    layout: Layout,
    tasks: Sequence[Task],
    marked: set[int],
    made: tuple[str, Mapping[str, str]],
) -> Iterator[tuple[Task, dict[str, bytes] | None]]:
    """Yield tasks with the chunk of each variable, None unless all is as the marker says.

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
    """
    each = 8 * sum(math.prod(chunk_shape(layout, name)) for name in layout.variables)
    size = max(1, min(_TASKS, _BYTES // max(each, 1)))
    for start in range(0, len(tasks), size):
        batch = tasks[start : start + size]
        names = {task.number: _names(layout, task) for task in batch if task.number in marked}
        texts = folder.read(marker_name(task) for task in batch if task.number in names)
        markers = {task.number: Marker.parse(texts.get(marker_name(task), b"")) for task in batch}
        finished = {
            number: marker.chunks
            for number, marker in markers.items()
            if marker is not None
            and (marker.specification_sha256, marker.versions) == made
            and marker.chunks.keys() == set(names[number].values())
        }
        chunks = folder.read(key for wanted in finished.values() for key in wanted)
        for task in batch:
            wanted = finished.get(task.number)
            if wanted is None or any(seal(chunks.get(k, b"")) != v for k, v in wanted.items()):
                yield task, None
            else:
                yield task, {name: chunks[key] for name, key in names[task.number].items()}


def _names(layout: Layout, task: Task) -> dict[str, str]:
    return {name: chunk_name(layout, task, name) for name in layout.variables}
