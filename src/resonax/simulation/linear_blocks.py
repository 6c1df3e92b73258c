r"""The code of a block of steps of linear models with many weights, in which lanes hold cells.

The weights of a cell and those before them stay in registers over the steps of a block:

.. math:: \theta_{k+1} = \theta_k + \mu(\theta_k-\theta_{k-1}) - \alpha H_k\theta_k .

Sums are formed in the order, and fused with products where, XLA's compiler does so for the
processor: the bits are those of `step_linear`. For x86-64 H is given; on ARM, where XLA's kernels
for it wait for memory most of the time, it is formed here from the rows of its factor.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

from llvmlite import ir

from resonax.lanes.emitter import Code, Index, Memory, Variable
from resonax.lanes.vectors import F32, I32, Vector
from resonax.simulation.batches import factor_columns
from resonax.simulation.linear_state import RANGE
from resonax.simulation.schedule import BLOCK

__all__ = ["GROUPS", "REAL", "WHOLE", "scratch_size", "write_block"]

WHOLE = ["first", "paths", "all_paths", "vectors"]
GROUPS = 4  # of paths, of which H is formed at once
REAL = ["weights", "before", "shift", "momentum", "alpha", "scale", "total", "scratch"]


def scratch_size(size: int, rows: int, lanes: int) -> int:
    """Return how many numbers a thread needs for itself."""
    held = _filled(size * size, lanes)
    return lanes * (GROUPS * BLOCK * held + held + GROUPS * rows * size)


def _filled(count: int, lanes: int) -> int:
    return -(-count // lanes) * lanes


def write_block(
    size: int, rows: int, lanes: int, triple: str, *, record: bool, diagonal: bool = False
) -> Code:
    """Return the function ``take_block`` for models of so many weights.

    Parameters
    ----------
    size, rows
        Number of weights, and of rows of the factor of H; 0 rows: the entries of H are given.
    lanes, triple
        Of the processor.
    record
        Whether the distances of the steps are summed up.
    diagonal
        Whether the coordinates of the inputs are independent, see `factor_columns`.
    """
    code = Code(lanes, F32, triple)
    given = code.function("take_block", WHOLE, REAL, ["entries"])
    if rows:
        held = _filled(size * size, lanes)
        with code.loop(given["paths"], GROUPS * lanes) as number:
            low: Index = given["first"] + number
            _form(code, given, low, size, factor_columns(size, rows, diagonal))
            with code.loop(GROUPS * lanes) as ahead:
                path = low + ahead
                start = code.move(given["scratch"].pointer, ahead * (BLOCK * held))
                with code.loop(given["vectors"]) as vector:
                    place = path * given["vectors"] + vector
                    _take_block(code, given, place, size, start, held, record)
    else:
        with code.loop(given["paths"]) as number:
            path = given["first"] + number
            _collect(code, given, path, size)
            with code.loop(given["vectors"]) as vector:
                place, start = path * given["vectors"] + vector, given["scratch"].pointer
                _take_block(code, given, place, size, start, size * size, record)
    code.end()
    return code


def _table(code: Code, given: dict[str, Any]) -> Any:
    return code.builder.bitcast(given["entries"].pointer, F32.as_pointer().as_pointer())


def _collect(code: Code, given: dict[str, Any], path: Index, size: int) -> None:
    """Put the entries of H of a path side by side, all of them for each step."""
    build, scratch, entries = code.builder, given["scratch"].pointer, _table(code, given)
    for i in range(size):
        for j in range(i + 1):
            entry = build.load(code.move(entries, i * (i + 1) // 2 + j))
            with code.loop(BLOCK) as step:
                number = build.load(code.move(entry, step * given["all_paths"] + path))
                for place in {i * size + j, j * size + i}:
                    build.store(number, code.move(scratch, step * (size * size) + place))


def _form(code: Code, given: dict[str, Any], low: Index, size: int, columns: list[range]) -> None:
    """Form H of some groups of as many paths as there are lanes, all entries of a path together.

    The rows of a step lie a page or more apart from each other: a whole line of each is read.
    """
    lanes, entries, rows = code.lanes, _table(code, given), len(columns)
    held, count = _filled(size * size, lanes), rows * size
    whole = given["scratch"].at(GROUPS * BLOCK * held)  # of a step, lanes hold paths
    factors = whole.at(held)
    scales = given["scale"]._replace(stride=1)
    for place in range(columns[0].stop, size):  # the bias
        for row, group in itertools.product(range(rows), range(GROUPS)):
            number = code.constant(0.0 if row else 1.0, F32)
            factors.store(group * count + row * size + place, number)
    with code.loop(BLOCK) as step:
        first = 0
        for row, own in enumerate(columns):
            with code.loop(len(own)) as number:
                entry = code.builder.load(code.move(entries, number + first))
                line = Memory(code, entry, 1).at(step * given["all_paths"] + low)
                place = number + (row * size + own.start)
                for group in range(GROUPS):
                    factors.store(place + group * count, line.load(group * lanes))
            first += len(own)
        with code.loop(GROUPS) as group:
            factor, scale = factors.at(group * count), scales.load(low + group * lanes)
            for j in range(size):
                _form_column(factor, whole, scale, j, size, columns)
            with code.loop(held, lanes) as place:
                vectors = [whole.load(place + lane) for lane in range(lanes)]
                for lane, vector in enumerate(_transposed(code, vectors)):
                    path = group * lanes + lane
                    row = given["scratch"]._replace(stride=1).at((path * BLOCK + step) * held)
                    row.store(place, vector)


def _form_column(
    factor: Memory, whole: Memory, scale: Vector, j: int, size: int, columns: list[range]
) -> None:
    """Form the entries of a column of H from the diagonal on, and those of its row."""
    some = [row for row, own in enumerate(columns) if own.start <= j]  # the others have 0 there
    left = [factor.load(row * size + j) for row in some]
    with factor.code.loop(size - j) as number:
        right = [factor.load(number + (row * size + j)) for row in some]
        total = right[0].fma(left[0], right[1] * left[1])
        for one, other in zip(right[2:], left[2:], strict=True):
            total = one.fma(other, total)
        for place in (number * size + (j * size + j), number + (j * size + j)):
            whole.store(place, total * scale)


def _transposed(code: Code, vectors: list[Vector]) -> list[Vector]:
    """Return the first lanes of four vectors as one, and the second, and so on."""

    def joined(one: Vector, other: Vector, places: list[int]) -> Vector:
        mask = code.words(places).value
        return Vector(code, code.builder.shuffle_vector(one.value, other.value, mask))

    a, b, c, d = vectors
    low, high = [0, 4, 1, 5], [2, 6, 3, 7]
    halves = [(joined(a, c, mask), joined(b, d, mask)) for mask in (low, high)]
    return [joined(*half, mask) for half in halves for mask in (low, high)]


def _take_block(
    code: Code,
    given: dict[str, Any],
    place: Index,
    size: int,
    start: Any,
    held: int,
    record: bool,
) -> None:
    """Take the steps of a block of as many cells as there are lanes; a step has so many numbers."""
    memory = [given[name].at(place * size) for name in ("weights", "before")]
    now, then = ([code.variable(one.load(i)) for i in range(size)] for one in memory)
    numbers = given["momentum"].load(place), given["alpha"].load(place)
    total = code.variable(code.constant(0.0, F32)) if record else None
    with code.loop(BLOCK // 2) as pair:
        for turn, (one, other) in enumerate(((now, then), (then, now))):
            row = pair * (2 * held) + turn * held
            _step(code, code.move(start, row), one, other, numbers)
            if total is not None:
                _add_distance(total, [variable.get() for variable in other])
    if total is not None:
        given["total"].store(place, total.get())
    _rescale(now, then, given["shift"].at(place))
    for one, variables in zip(memory, (now, then), strict=True):
        for i, variable in enumerate(variables):
            one.store(i, variable.get())


def _step(
    code: Code,
    hessian: Any,
    now: list[Variable],
    then: list[Variable],
    numbers: tuple[Vector, Vector],
) -> None:
    """Take one step: what comes next takes the place of what was before."""
    momentum, alpha = numbers
    errors = [variable.get() for variable in now]
    places = range(len(now))
    if code.is_arm:
        inertia = [momentum * (errors[i] - then[i].get()) for i in places]
        for i, slope in enumerate(_slopes_by_columns(code, hessian, errors)):
            then[i].set(errors[i] + (-alpha).fma(slope, inertia[i]))
        return
    for i in places:
        entries = [_everywhere(code, hessian, i * len(now) + j) for j in places]
        slope = entries[0].fma(errors[0], entries[1] * errors[1])  # as XLA's compiler fuses them
        for j in places[2:]:
            slope = entries[j].fma(errors[j], slope)
        inertia = errors[i] - then[i].get()
        then[i].set(errors[i] + momentum.fma(inertia, -(alpha * slope)))


def _slopes_by_columns(code: Code, hessian: Any, errors: list[Vector]) -> list[Vector]:
    r"""Return the sums :math:`\sum_jH_{ij}e_j` of all rows, each in the order of the columns.

    One row after the other, each multiply-add would wait for the one before it: a processor looks
    ahead over about two rows. Side by side, the sums of the other rows fill that time.
    """
    size = len(errors)

    def entry(i: int, j: int) -> Vector:
        return _everywhere(code, hessian, j * size + i)  # H is symmetric, and a column in one piece

    sums = [entry(i, 1) * errors[1] for i in range(size)]  # as XLA's compiler fuses them
    for j in (0, *range(2, size)):
        sums = [entry(i, j).fma(errors[j], total) for i, total in enumerate(sums)]
    return sums


def _everywhere(code: Code, start: Any, place: int) -> Vector:
    """Return a number in memory in every lane."""
    if code.is_arm:  # which multiplies by one lane of a vector
        lane = place % code.lanes
        return code.choose(Memory(code, start, 1).load(place - lane), [lane] * code.lanes)
    number = code.builder.load(code.move(start, place))
    nothing = ir.Constant(ir.VectorType(F32, code.lanes), ir.Undefined)
    one = Vector(code, code.builder.insert_element(nothing, number, I32(0)))
    return code.choose(one, [0] * code.lanes)


def _add_distance(total: Variable, errors: list[Vector]) -> None:
    """Add the length of the error of each cell, as `linear_state.distance` does."""
    sizes = [error.intrinsic("fabs") for error in errors]
    peak = functools.reduce(lambda one, other: one.intrinsic("maximum", other), sizes)
    safe = (peak > 0.0).where(peak, 1.0)
    shares = [error / safe for error in errors]
    squares = shares[0].fma(shares[0], shares[1] * shares[1])
    for share in shares[2:]:
        squares = share.fma(share, squares)
    total.set(peak.fma(squares.intrinsic("sqrt"), total.get()))


def _rescale(now: list[Variable], then: list[Variable], shift: Memory) -> None:
    """Bring errors that left their range back to about 1, as `linear_state.rescale` does."""
    sizes = [variable.get().intrinsic("fabs") for variable in now]
    peak = functools.reduce(lambda one, other: one.intrinsic("maxnum", other), sizes)
    power = peak.bits_as(I32).shift_signed(23) - 127
    clipped = (power > 126).where(126, power)
    clipped = (power < -126).where(-126, clipped)
    inside = (power > -RANGE - 1) & (power < RANGE + 1)
    power = inside.where(0, clipped)
    factor = ((127 - power) << 23).bits_as(F32)
    for variable in (*now, *then):
        variable.set(variable.get() * factor)
    shift.store(0, shift.load(0) + power.as_type(F32))
