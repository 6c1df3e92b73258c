"""The step of a process: equations of jax on small arrays, written as code for vectors.

Each number of an array is a vector, with a lane for each network. A law takes some hundred
instructions in this way, where jax computes it ahead, writes it to memory and takes ten times as
long.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from resonax.lanes.emitter import Code
from resonax.lanes.equations import Equation, Unsupported, constant, flatten, operation_of
from resonax.lanes.vectors import Vector

__all__ = ["ProcessStep", "trace_process"]

_MOST_NUMBERS = 64  # of a process, for each network


@dataclass(frozen=True)
class ProcessStep:
    """A step, in the order of its inputs: numbers, states, normal numbers, number of the step."""

    text: str  # all that the code depends on
    numbers: int  # of a network, which do not change
    states: int  # numbers of a network that do
    normals: int
    _inputs: tuple[Any, ...] = field(repr=False)
    _outputs: tuple[Any, ...] = field(repr=False)  # states, then the numbers of the law
    _equations: tuple[Equation, ...] = field(repr=False)

    def write(
        self, code: Code, given: Sequence[Vector], step: Vector
    ) -> tuple[list[Vector], list[Vector]]:
        """Write a step from numbers, states and normal numbers; return states and the law."""
        known: dict[Any, np.ndarray] = {}
        place = 0
        for variable in self._inputs[:-1]:
            shape = variable.aval.shape
            size = math.prod(shape)
            known[variable] = _array(given[place : place + size], shape)
            place += size
        known[self._inputs[-1]] = _array([step], ())
        for equation in self._equations:
            operands = [_read(known, variable, code) for variable in equation.inputs]
            known[equation.output] = equation.operation(*operands)
        found = [vector for out in self._outputs for vector in _read(known, out, code).flat]
        return found[: self.states], found[self.states :]


def trace_process(
    function: Callable[..., Any], process: Any, state: Any, normals: int
) -> ProcessStep:
    """Trace a step.

    Parameters
    ----------
    function
        ``(process, state, normals, step) -> (state, law)``, as jax traces it; the leaves of the
        law are its numbers, in order.
    process, state
        Pytrees of numbers, which are given for each network.
    normals
        How many standard normal numbers a step takes.
    """
    real = jnp.zeros(()).dtype
    leaves = jax.tree.leaves((process, state))
    sizes = [math.prod(jnp.shape(leaf)) for leaf in leaves]
    if sum(sizes) > _MOST_NUMBERS:
        raise Unsupported(f"its process has more than {_MOST_NUMBERS} numbers")
    if any(leaf.dtype != real for leaf in jax.tree.leaves(state)):
        raise Unsupported("its process has a state of whole numbers")
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), real), (process, state)
    )
    step = jax.ShapeDtypeStruct((), jnp.int32)
    closed = jax.make_jaxpr(function)(*shapes, jax.ShapeDtypeStruct((normals,), real), step)
    if closed.consts:  # the text does not tell them
        raise Unsupported("its process has arrays of its own")
    inner = closed.jaxpr
    equations, outputs = flatten(inner, "its process", _operation)
    states = sum(sizes[len(jax.tree.leaves(process)) :])
    return ProcessStep(
        text=str(closed),
        numbers=sum(sizes) - states,
        states=states,
        normals=normals,
        _inputs=tuple(inner.invars),
        _outputs=tuple(outputs),
        _equations=tuple(equations),
    )


def _array(vectors: Sequence[Vector], shape: tuple[int, ...]) -> np.ndarray:
    made = np.empty(len(vectors), object)
    made[:] = vectors
    return made.reshape(shape)


def _read(known: dict[Any, np.ndarray], variable: Any, code: Code) -> np.ndarray:
    """Return the vectors of a variable or a literal; plain numbers become constants."""
    is_literal = hasattr(variable, "val")
    array = np.asarray(variable.val, variable.aval.dtype) if is_literal else known[variable]
    if array.dtype == object:
        return array
    return _array([constant(code, number, array.dtype) for number in array.flat], array.shape)


def _operation(equation: Any) -> Callable[..., np.ndarray] | None:
    """Return what writes an equation on arrays: one that moves numbers, or holds for each."""
    kind, params = equation.primitive.name, equation.params
    if kind in _MOVES:
        return functools.partial(_MOVES[kind], params)
    each = operation_of(equation)
    if each is None:
        return None
    return lambda *arrays: np.asarray(np.frompyfunc(each, len(arrays), 1)(*arrays), object)


def _iota(params: dict[str, Any]) -> np.ndarray:
    return np.indices(params["shape"], params["dtype"])[params["dimension"]]


def _broadcast(params: dict[str, Any], x: np.ndarray) -> np.ndarray:
    shape = [1] * len(params["shape"])
    for axis, size in zip(params["broadcast_dimensions"], x.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), params["shape"])


def _slice(params: dict[str, Any], x: np.ndarray) -> np.ndarray:
    steps = params["strides"] or (None,) * x.ndim
    parts = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
    return x[tuple(slice(*part) for part in parts)]


_MOVES: dict[str, Callable[..., np.ndarray]] = {
    "broadcast_in_dim": _broadcast,
    "iota": _iota,
    "slice": _slice,
    "squeeze": lambda params, x: x.squeeze(params["dimensions"]),
}
