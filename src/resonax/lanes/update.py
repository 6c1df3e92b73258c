"""The update of a weight: equations of jax, written as code for vectors.

An optimizer is given as a function of jax. Its equations on scalars hold once for each network and
step (a correction of a bias, say), those on arrays for each weight. Whatever optax computes weight
by weight can be written so; what looks at several weights at once is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from resonax.lanes.emitter import Code
from resonax.lanes.equations import (
    Equation,
    Unsupported,
    constant,
    flatten,
    fuse_products,
    operation_of,
)
from resonax.lanes.vectors import Vector

__all__ = ["Update", "trace_update"]

_WEIGHTS = 3  # any length stands for all weights


@dataclass(frozen=True)
class Update:
    """An update, in the order of its inputs: numbers, gradient, weight, states."""

    text: str  # all that the code depends on
    numbers: int  # of a network, which do not change
    states: tuple[tuple[str, bool], ...]  # type, and whether each weight has one
    _inputs: tuple[Any, ...] = field(repr=False)
    _outputs: tuple[Any, ...] = field(repr=False)  # the weight, then the states
    _equations: tuple[Equation, ...] = field(repr=False)

    @property
    def before(self) -> int | None:
        """Which of the states of single weights is the weight before the step, if one is."""
        weight = self._inputs[self.numbers + 1]
        after = [v for v, (_, wide) in zip(self._outputs[1:], self.states, strict=True) if wide]
        return next((place for place, variable in enumerate(after) if variable is weight), None)

    def begin_step(
        self, code: Code, numbers: Sequence[Vector], scalars: Sequence[Vector]
    ) -> tuple[dict[Any, Vector], list[Vector]]:
        """Write what holds for all weights in a step; return it, and the scalar states after it."""
        own = [*self._inputs[: self.numbers], *self._scalars(self._inputs[self.numbers + 2 :])]
        known = dict(zip(own, [*numbers, *scalars], strict=True))
        self._write(known, True, code)
        return known, [_read(known, out, code) for out in self._scalars(self._outputs[1:])]

    def move(
        self, known: dict[Any, Vector], gradient: Vector, weight: Vector, states: Sequence[Vector]
    ) -> tuple[Vector, list[Vector]]:
        """Write the step of one weight; return it and its states."""
        inputs, outputs = self._inputs[self.numbers :], self._outputs
        arrays = [v for v, (_, wide) in zip(inputs[2:], self.states, strict=True) if wide]
        given = dict(zip([*inputs[:2], *arrays], [gradient, weight, *states], strict=True))
        here = {**known, **given}
        self._write(here, False, gradient.code)
        after = [v for v, (_, wide) in zip(outputs[1:], self.states, strict=True) if wide]
        found = [_read(here, variable, gradient.code) for variable in (outputs[0], *after)]
        return found[0], found[1:]

    def _scalars(self, variables: Sequence[Any]) -> list[Any]:
        return [v for v, (_, wide) in zip(variables, self.states, strict=True) if not wide]

    def _write(self, known: dict[Any, Vector], is_scalar: bool, code: Code) -> None:
        for equation in self._equations:
            if (equation.value.shape == ()) == is_scalar:
                operands = [_read(known, variable, code) for variable in equation.inputs]
                known[equation.output] = equation.operation(*operands)


def _read(known: dict[Any, Vector], variable: Any, code: Code) -> Vector:
    if hasattr(variable, "val"):  # a literal
        return constant(code, variable.val, variable.aval.dtype)
    return known[variable]


def _operation(equation: Any) -> Callable[..., Vector] | None:
    """Return what writes an equation on numbers of a network or of single weights."""
    values = [variable.aval for variable in (*equation.invars, *equation.outvars)]
    if not all(value.shape in ((), (_WEIGHTS,)) for value in values):
        return None
    if equation.primitive.name == "broadcast_in_dim":
        return lambda x: x
    return operation_of(equation)


def trace_update(function: Callable[..., Any], optimizer: Any, init: Callable[..., Any]) -> Update:
    """Trace an update.

    Parameters
    ----------
    function
        ``(optimizer, gradient, weights, state) -> (weights, state)``, as jax traces it.
    optimizer
        A pytree of numbers, which are given for each network.
    init
        ``(optimizer, weights) -> state``.
    """
    weights = jnp.zeros(_WEIGHTS)
    numbers = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), optimizer)
    if any(leaf.shape for leaf in jax.tree.leaves(numbers)):
        raise Unsupported("its optimizer has a number of its own for each weight")
    state = jax.eval_shape(init, numbers, weights)
    closed = jax.make_jaxpr(function)(numbers, weights, weights, state)
    if closed.consts:
        raise Unsupported("its optimizer has arrays of its own")
    states = []
    for leaf in jax.tree.leaves(state):
        is_wide = leaf.shape == (_WEIGHTS,) and leaf.dtype == weights.dtype
        if not is_wide and (leaf.shape != () or str(leaf.dtype) not in ("int32", "bool")):
            raise Unsupported("its optimizer has a state that is not of single weights")
        states.append((str(leaf.dtype), is_wide))
    inner = closed.jaxpr
    equations, outputs = flatten(inner, "its optimizer", _operation)
    return Update(
        text=str(closed),
        numbers=len(jax.tree.leaves(optimizer)),
        states=tuple(states),
        _inputs=tuple(inner.invars),
        _outputs=tuple(outputs),
        _equations=tuple(fuse_products(equations, outputs)),
    )
