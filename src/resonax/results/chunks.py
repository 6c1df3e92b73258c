"""The chunks of a task: their names, and their bytes as zarr has them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from resonax.checks import ArgumentError
from resonax.results.disk import checksum
from resonax.results.layout import FILL, Layout, Task

if TYPE_CHECKING:
    import numpy as np

__all__ = ["chunk_name", "chunk_shape", "decode", "encode", "seal"]


def chunk_name(layout: Layout, task: Task, name: str) -> str:
    """Return the file of a variable's chunk, below the folder of the store."""
    places = zip(_region(layout, task, name), chunk_shape(layout, name), strict=True)
    numbers = (str(part.start // length) for part, length in places)
    return f"{name}/{'.'.join(['c', *numbers])}"


def encode(layout: Layout, task: Task, name: str, array: np.ndarray) -> bytes:
    """Return the bytes of a chunk as zarr has them: unpacked, little-endian, then their CRC-32C.

    Not made by zarr, which does not wait for the disk, and whose threads outlive an interrupt.
    """
    import numpy as np

    variable, array = layout.variables[name], np.asarray(array)
    shape = tuple(part.stop - part.start for part in _region(layout, task, name))
    if array.shape != shape:
        raise ArgumentError(f"{name} of a task must have shape {shape}, got {array.shape}")
    if not np.can_cast(array.dtype, variable.dtype, "same_kind"):
        raise ArgumentError(f"{name} must be of type {variable.dtype}, got {array.dtype}")
    # The last chunk along a dimension is as long as the others, whatever it has to hold.
    block = np.full(chunk_shape(layout, name), FILL[variable.dtype], _dtype(layout, name))
    with np.errstate(over="ignore"):  # too large for a short float is inf
        block[tuple(slice(0, n) for n in shape)] = array
    data = block.tobytes()
    return data + struct.pack("<I", int(checksum(data), 16))


def seal(data: bytes) -> str | None:
    """Return the checksum at the end of a chunk, or None if the chunk is not what it was."""
    found = checksum(data[:-4])
    return found if data[-4:] == struct.pack("<I", int(found, 16)) else None


def decode(layout: Layout, task: Task, name: str, data: bytes) -> np.ndarray:
    """Return the values of a chunk that `encode` made."""
    import numpy as np

    block = np.frombuffer(data[:-4], _dtype(layout, name)).reshape(chunk_shape(layout, name))
    shape = (part.stop - part.start for part in _region(layout, task, name))
    return block[tuple(slice(0, n) for n in shape)]


def _region(layout: Layout, task: Task, name: str) -> list[slice]:
    dims = layout.variables[name].dims
    return [task.region.get(dim, slice(0, len(layout.coords[dim]))) for dim in dims]


def chunk_shape(layout: Layout, name: str) -> tuple[int, ...]:
    """Return the shape of a variable's chunks."""
    return tuple(layout.chunk(dim) for dim in layout.variables[name].dims)


def _dtype(layout: Layout, name: str) -> np.dtype:
    import numpy as np

    return np.dtype(layout.variables[name].dtype).newbyteorder("<")
