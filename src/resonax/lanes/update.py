"""The update of a weight: equations of jax, written as code for vectors.

An optimizer is given as a function of jax. Its equations on scalars hold once for each network and
step (a correction of a bias, say), those on arrays for each weight. Whatever optax computes weight
by weight can be written so; what looks at several weights at once is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from resonax.lanes.emitter import Code
from resonax.lanes.functions import power
from resonax.lanes.vectors import BOOL, F32, F64, I32, Vector

__all__ = ["Unsupported", "Update", "trace_update"]

_ELEMENTS = {"float32": F32, "float64": F64, "int32": I32, "bool": BOOL}
_NESTED = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr"}
_WEIGHTS = 3  # any length stands for all weights


class Unsupported(Exception):  # noqa: N818  # a reason, which is told
    """What cannot be written as code for lanes, as the end of a sentence."""


def _sign(x: Vector) -> Vector:
    return (x > 0.0).where(1.0, (x < 0.0).where(-1.0, x))


def _integer_power(x: Vector, exponent: int) -> Vector:
    found = x
    for _ in range(abs(exponent) - 1):
        found = found * x
    return found if exponent > 0 else 1.0 / found


def _compare(sign: str) -> Callable[..., Vector]:
    return lambda a, b: a.compare(sign, b)


def _intrinsic(name: str) -> Callable[..., Vector]:
    return lambda x, *others: x.intrinsic(name, *others)


def _same(x: Vector) -> Vector:
    return x


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "abs": _intrinsic("fabs"),
    "add": operator.add,
    "add_any": operator.add,
    "and": operator.and_,
    "broadcast_in_dim": _same,
    "copy": _same,
    "div": operator.truediv,
    "eq": _compare("=="),
    "ge": _compare(">="),
    "gt": _compare(">"),
    "le": _compare("<="),
    "lt": _compare("<"),
    "max": _intrinsic("maximum"),
    "min": _intrinsic("minimum"),
    "mul": operator.mul,
    "ne": _compare("!="),
    "neg": operator.neg,
    "not": operator.invert,
    "or": operator.or_,
    "pow": power,
    "rsqrt": lambda x: 1.0 / x.intrinsic("sqrt"),
    "select_n": lambda which, no, yes: which.where(yes, no),
    "sign": _sign,
    "sqrt": _intrinsic("sqrt"),
    "square": lambda x: x * x,
    "stop_gradient": _same,
    "sub": operator.sub,
}


def _operation(equation: Any) -> Callable[..., Vector] | None:
    """Return what writes an equation of jax, if anything does."""
    kind, params = equation.primitive.name, equation.params
    values = [variable.aval for variable in (*equation.invars, *equation.outvars)]
    if len(equation.outvars) != 1 or not all(
        value.shape in ((), (_WEIGHTS,)) and str(value.dtype) in _ELEMENTS for value in values
    ):
        return None
    if kind == "convert_element_type":
        element = _ELEMENTS[str(params["new_dtype"])]
        return lambda x: x.as_type(element)
    if kind == "integer_pow":
        return lambda x: _integer_power(x, params["y"])
    return _OPERATIONS.get(kind)


@dataclass(frozen=True)
class _Equation:
    operation: Callable[..., Vector]
    inputs: tuple[Any, ...]
    output: Any
    is_scalar: bool


@dataclass(frozen=True)
class Update:
    """An update, in the order of its inputs: numbers, gradient, weight, states."""

    text: str  # all that the code depends on
    numbers: int  # of a network, which do not change
    states: tuple[tuple[str, bool], ...]  # type, and whether each weight has one
    _inputs: tuple[Any, ...] = field(repr=False)
    _outputs: tuple[Any, ...] = field(repr=False)  # the weight, then the states
    _equations: tuple[_Equation, ...] = field(repr=False)

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
            if equation.is_scalar == is_scalar:
                operands = [_read(known, variable, code) for variable in equation.inputs]
                known[equation.output] = equation.operation(*operands)


def _read(known: dict[Any, Vector], variable: Any, code: Code) -> Vector:
    if hasattr(variable, "val"):  # a literal
        return code.constant(np.asarray(variable.val).item(), _ELEMENTS[str(variable.aval.dtype)])
    return known[variable]


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
    equations, names = _flatten(inner)
    return Update(
        text=str(closed),
        numbers=len(jax.tree.leaves(optimizer)),
        states=tuple(states),
        _inputs=tuple(inner.invars),
        _outputs=tuple(names.get(v, v) if not hasattr(v, "val") else v for v in inner.outvars),
        _equations=tuple(equations),
    )


def _flatten(jaxpr: Any) -> tuple[list[_Equation], dict[Any, Any]]:
    """Return the equations, with those of functions that are called in place of the calls."""
    equations: list[_Equation] = []

    def add(jaxpr: Any, names: dict[Any, Any]) -> None:
        def name(variable: Any) -> Any:
            return variable if hasattr(variable, "val") else names.get(variable, variable)

        for equation in jaxpr.eqns:
            kind, inputs = equation.primitive.name, [name(v) for v in equation.invars]
            if kind in _NESTED:
                called = equation.params[_NESTED[kind]].jaxpr
                inner = dict(zip(called.invars, inputs, strict=True))
                add(called, inner)
                for out, given in zip(equation.outvars, called.outvars, strict=True):
                    names[out] = given if hasattr(given, "val") else inner.get(given, given)
                continue
            operation = _operation(equation)
            if operation is None:
                raise Unsupported(f"its optimizer has the operation {kind}")
            (output,) = equation.outvars
            fresh = object()  # a function may be called twice
            names[output] = fresh
            is_scalar = output.aval.shape == ()
            equations.append(_Equation(operation, tuple(inputs), fresh, is_scalar))

    names: dict[Any, Any] = {}
    add(jaxpr, names)
    return equations, names
