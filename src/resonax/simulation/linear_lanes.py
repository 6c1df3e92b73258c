r"""Blocks of steps of linear models with many weights: each lane of a register holds a cell.

XLA has no kernels of several outputs on a CPU, and so a kernel of it takes one step, and reads
all weights of a cell for each of them. Here a block of steps is written as LLVM code, in which the
weights of a cell and those before them stay in registers:

.. math:: \theta_{k+1} = \theta_k + \mu(\theta_k-\theta_{k-1}) - \alpha H_k\theta_k .

Sums are formed in the order, and fused with products where, XLA's compiler does so for x86-64: the
bits are those of `step_linear`, which takes the steps of every other kind.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.learners import Momentum
from resonax.programs import program
from resonax.simulation.linear import draw_block, step_linear
from resonax.simulation.linear_state import RANGE, LinearState
from resonax.simulation.schedule import BLOCK
from resonax.simulation.training import Training
from resonax.simulation.walk import Grid, Loop, cell_at

if TYPE_CHECKING:
    from resonax.lanes.emitter import Code, Index, Memory, Variable
    from resonax.lanes.vectors import Vector

__all__ = ["choose_steps", "fits_lanes", "step_in_lanes"]

_WHOLE = ["first", "paths", "all_paths", "vectors"]
_REAL = ["weights", "before", "shift", "momentum", "alpha", "scratch"]
_PARTS = 8  # in which the paths of a thread are handed out


def choose_steps(
    training: Training, grid: Grid, loop: Loop, lanes: bool | None
) -> Callable[[LinearState, int, int, bool], LinearState]:
    """Return what takes blocks of steps: lanes where they can, unless they are not wanted."""
    by_jax = functools.partial(step_linear, training, grid, loop=loop)
    if lanes is False or not fits_lanes(training, grid, loop):
        return by_jax

    def step_blocks(state: LinearState, first: int, blocks: int, record: bool) -> LinearState:
        if record:
            return by_jax(state, first, blocks, record)
        return step_in_lanes(training, grid, state, first, blocks, loop=loop)

    return step_blocks


def fits_lanes(training: Training, grid: Grid, loop: Loop) -> bool:
    """Return whether the steps of some cells that are not recorded can be taken in lanes."""
    optimizer = training.optimizer
    if not isinstance(optimizer, Momentum) or optimizer.lookahead or optimizer.full_start:
        return False
    if not training.is_linear or not loop.wide or not loop.ordered or loop.noisy or loop.decays:
        return False
    if grid.summed.dtype != jnp.float32:
        return False
    if {device.platform for device in grid.keys.devices()} != {"cpu"}:
        return False
    if importlib.util.find_spec("llvmlite") is None:
        return False
    from resonax.lanes import host_machine

    return bool(host_machine().bits) and host_machine().triple.startswith("x86_64")


@program
def _numbers(training: Training, grid: Grid) -> tuple[Array, Array]:
    """Return momentum and step size of each cell, (paths, cells)."""
    columns = {name: array[:, None] for name, array in grid.columns.items()}
    optimizer: Any = cell_at(training, {**columns, **grid.shared}).optimizer
    cells = len(grid.keys), len(next(iter(grid.shared.values())))
    return jnp.broadcast_to(optimizer.momentum, cells), jnp.broadcast_to(optimizer.alpha, cells)


@functools.partial(program, static=("loop",))
def _draw_hessians(
    training: Training, grid: Grid, process: Any, first: Array, *, loop: Loop
) -> tuple[Any, tuple[Array, ...]]:
    """Return the processes after a block of steps, and the entries of H, (steps, paths) each."""
    process, (hessian, _) = draw_block(training, grid, loop, process, first, None)
    return process, tuple(entry[:, :, 0] for entry in hessian)


def step_in_lanes(
    training: Training, grid: Grid, state: LinearState, first: int, blocks: int, *, loop: Loop
) -> LinearState:
    """Advance all cells by some blocks of steps that are not recorded."""
    from resonax.lanes import host_machine
    from resonax.simulation.network_lanes import count_threads

    lanes, (paths, cells) = host_machine().lanes(double=False), state.shift.shape
    vectors, threads = -(-cells // lanes), count_threads()

    def spread(*arrays: Array) -> np.ndarray:
        """Return (paths, cells) of each array as (paths, vectors, arrays, lanes)."""
        made = np.zeros((paths, vectors, len(arrays), lanes), np.float32)
        for place, array in enumerate(arrays):
            filled = np.pad(np.asarray(array), ((0, 0), (0, vectors * lanes - cells)))
            made[:, :, place] = filled.reshape(paths, vectors, lanes)
        return made

    def gathered(array: np.ndarray) -> tuple[Array, ...]:
        parts = np.moveaxis(array, 2, 0).reshape(array.shape[2], paths, -1)
        return tuple(jax.device_put(np.ascontiguousarray(part[:, :cells])) for part in parts)

    momentum, alpha = _numbers(training, grid)
    weights, before = spread(*state.weights), spread(*state.optimizer)
    arrays = [weights, before, shift := spread(state.shift), spread(momentum), spread(alpha)]
    places = [array.ctypes.data for array in arrays]
    take_block = _compiled(len(state.weights))
    size = max(1, paths // (threads * _PARTS))
    parts = [(low, min(size, paths - low)) for low in range(0, paths, size)]
    process, also = state.process
    draw = functools.partial(_draw_hessians, training, grid, loop=loop)

    def take_part(table: np.ndarray, part: tuple[int, int]) -> None:
        scratch = np.empty((BLOCK, len(state.weights) ** 2), np.float32)
        own = *places, scratch.ctypes.data, table.ctypes.data
        take_block(*part, paths, vectors, *own)

    with ThreadPoolExecutor(threads) as pool:
        process, hessians = draw(process, first)
        for number in range(1, blocks + 1):
            given = [np.asarray(entry) for entry in hessians]
            table = np.array([entry.ctypes.data for entry in given], np.uint64)
            if number < blocks:  # jax draws the next ones meanwhile
                ahead = first + number * BLOCK
                process, hessians = draw(process, ahead)
            list(pool.map(functools.partial(take_part, table), parts))
    return state._replace(
        process=(process, also),
        weights=gathered(weights),
        optimizer=gathered(before),
        shift=gathered(shift)[0],
    )


@functools.cache
def _compiled(size: int) -> Callable[..., None]:
    """Return the function that takes a block of steps of models with so many weights."""
    from resonax.lanes.compiled import compile_code, link
    from resonax.lanes.machine import host_machine

    machine = host_machine()
    code = _write(size, machine.lanes(double=False), machine.triple)
    kept = link("take_block", compile_code(code, machine), machine, len(_WHOLE), len(_REAL) + 1)
    return functools.partial(_call, kept)


def _call(kept: tuple[Any, Callable[..., None]], *given: int) -> None:
    kept[1](*given)  # what it is linked in stays in memory with it


def _write(size: int, lanes: int, triple: str) -> Code:
    from resonax.lanes.emitter import Code
    from resonax.lanes.vectors import F32

    code = Code(lanes, F32, triple)
    given = code.function("take_block", _WHOLE, _REAL, ["entries"])
    with code.loop(given["paths"]) as number:
        path: Index = given["first"] + number
        _collect(code, given, path, size)
        with code.loop(given["vectors"]) as vector:
            _take_block(code, given, path * given["vectors"] + vector, size)
    code.end()
    return code


def _collect(code: Code, given: dict[str, Any], path: Index, size: int) -> None:
    """Put the entries of H of a path side by side, all of them for each step."""
    from resonax.lanes.vectors import F32

    build, scratch = code.builder, given["scratch"].pointer
    entries = build.bitcast(given["entries"].pointer, F32.as_pointer().as_pointer())
    for i in range(size):
        for j in range(i + 1):
            entry = build.load(code.move(entries, i * (i + 1) // 2 + j))
            with code.loop(BLOCK) as step:
                number = build.load(code.move(entry, step * given["all_paths"] + path))
                for place in {i * size + j, j * size + i}:
                    build.store(number, code.move(scratch, step * (size * size) + place))


def _take_block(code: Code, given: dict[str, Any], place: Index, size: int) -> None:
    """Take the steps of a block of as many cells as there are lanes."""
    memory = [given[name].at(place * size) for name in ("weights", "before")]
    now, then = ([code.variable(one.load(i)) for i in range(size)] for one in memory)
    numbers = given["momentum"].load(place), given["alpha"].load(place)
    with code.loop(BLOCK // 2) as pair:
        for turn, (one, other) in enumerate(((now, then), (then, now))):
            row = pair * (2 * size * size) + turn * size * size
            _step(code, code.move(given["scratch"].pointer, row), one, other, numbers)
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
    for i in places:
        entries = [_everywhere(code, hessian, i * len(now) + j) for j in places]
        slope = entries[0].fma(errors[0], entries[1] * errors[1])  # as XLA's compiler fuses them
        for j in places[2:]:
            slope = entries[j].fma(errors[j], slope)
        move = momentum.fma(errors[i] - then[i].get(), -(alpha * slope))
        then[i].set(errors[i] + move)


def _everywhere(code: Code, start: Any, place: int) -> Vector:
    """Return a number in memory in every lane."""
    from llvmlite import ir

    from resonax.lanes.vectors import F32, I32, Vector

    number = code.builder.load(code.move(start, place))
    nothing = ir.Constant(ir.VectorType(F32, code.lanes), ir.Undefined)
    one = Vector(code, code.builder.insert_element(nothing, number, I32(0)))
    return code.choose(one, [0] * code.lanes)


def _rescale(now: list[Variable], then: list[Variable], shift: Memory) -> None:
    """Bring errors that left their range back to about 1, as `linear_state.rescale` does."""
    from resonax.lanes.vectors import F32, I32

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
