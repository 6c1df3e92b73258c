"""The code that draws normal numbers with the bits of jax's loop on ARM, four vectors at a time.

XLA's kernel takes one vector after the other, and waits for the rounds of the generator most of
the time. Here the rounds of one vector hide the latency of the others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from resonax.lanes.compiled import load_function
from resonax.lanes.emitter import Code, Index
from resonax.lanes.fleet import aligned_zeros
from resonax.lanes.functions import cos_sin
from resonax.lanes.machine import host_machine
from resonax.lanes.random_numbers import GROUP, uniform_pair
from resonax.lanes.vectors import F32, I32, Vector
from resonax.simulation.batches import INPUT
from resonax.simulation.schedule import BLOCK

__all__ = ["NormalsAhead", "write_normals"]

_WHOLE = ["first", "pairs", "paths", "step", "slot"]
_REAL, _WORDS = ["numbers"], ["keys", "more_keys"]
_AT_ONCE = 6  # pairs of numbers that a job draws
_ROOT_HALF = 0.70710677


class NormalsAhead:
    """The normal numbers of the inputs of some blocks of steps.

    Two blocks have memory: that of a block is written again two blocks later.

    Parameters
    ----------
    keys
        Of the paths, (paths, 2).
    count
        Numbers of a step.
    first
        The first step.
    """

    def __init__(self, keys: np.ndarray, count: int, first: int) -> None:
        self._keys = [np.ascontiguousarray(keys[:, place]) for place in range(2)]
        self._first, self._pairs = first, (count + 1) // 2
        shape = 2 * self._pairs, BLOCK, len(keys)
        # Aligned: jax copies what begins elsewhere.
        self._stored = [aligned_zeros(shape, np.float32) for _ in range(2)]

    def numbers(self, block: int) -> np.ndarray:
        """Return the numbers of a block, (numbers of a step or one more, steps, paths)."""
        return self._stored[block % 2]

    def jobs(self, block: int) -> list[Callable[[], None]]:
        """Return what is to be called, in any threads, to draw the numbers of a block."""
        stored, step = self.numbers(block), self._first + block * BLOCK
        places = [array.ctypes.data for array in (stored, *self._keys)]

        def draw(first: int) -> None:
            count = min(_AT_ONCE, self._pairs - first)
            paths = stored.shape[-1]
            _compiled()(first, count, paths, step, INPUT // 2, *places)

        return [functools.partial(draw, first) for first in range(0, self._pairs, _AT_ONCE)]


@functools.cache
def _compiled() -> Callable[..., None]:
    machine = host_machine()
    code = write_normals(machine.lanes(double=False), machine.triple)
    return load_function("draw_normals", code, len(_WHOLE), len(_REAL) + len(_WORDS))


def write_normals(lanes: int, triple: str) -> Code:
    """Return the function ``draw_normals``, which draws some pairs of numbers of a block.

    They lie as (2 pairs, steps, paths): each number is an array of its own, which XLA reads whole
    vectors of, unlike the parts of complex numbers.
    """
    width = lanes * GROUP
    code = Code(width, F32, triple)
    given = code.function("draw_normals", _WHOLE, _REAL, _WORDS)
    keys = [given[name]._replace(stride=1) for name in _WORDS]
    numbers = given["numbers"]._replace(stride=1)
    with code.loop(given["pairs"]) as number, code.loop(BLOCK) as step:
        pair: Index = given["first"] + number
        counter = code.splat(given["step"] + step, width), code.splat(given["slot"] + pair, width)
        rows = [(pair * (2 * BLOCK) + odd * BLOCK + step) * given["paths"] for odd in range(2)]
        with code.loop(given["paths"], width) as path:
            length, turns = uniform_pair((keys[0].load(path), keys[1].load(path)), counter)
            radius = (_log(length) * -2.0).intrinsic("sqrt")
            for row, one in zip(rows, cos_sin(turns), strict=True):
                numbers.store(row + path, radius * one)
    code.end()
    return code


def _log(x: Vector) -> Vector:
    """Return the natural logarithm of a number between 0 and 1, by the series that XLA has."""

    def constant(bits: int) -> float:
        return float(np.uint32(bits).view(np.float32))

    word = x.bits_as(I32)
    fraction = ((word & 0x7FFFFF) | 0x3F000000).bits_as(F32)  # from 1/2 to 1
    is_low = fraction < _ROOT_HALF
    rest = (fraction - 1.0) + is_low.where(fraction, 0.0)
    power = ((word >> 23) - 127).as_type(F32) + 1.0 - is_low.where(1.0, x.full(0.0))
    square = rest * rest
    cube = square * rest
    sums = [
        rest.fma(constant(first), constant(second)).fma(rest, constant(third))
        for first, second, third in (
            (0x3D9021BB, 0xBDEBD1B8, 0x3DEF251A),
            (0xBDFE5D4F, 0x3E11E9BF, 0xBE2AAE50),
            (0x3E4CCEAC, 0xBE7FFFFC, 0x3EAAAAAA),
        )
    ]
    series = sums[0].fma(cube, sums[1]).fma(cube, sums[2])
    low = series.fma(cube, power * constant(0xB95E8083))  # log 2 in two parts
    return power.fma(constant(0x3F318000), square.fma(-0.5, rest) + low)
