"""Equations of jax, each as an operation on vectors, in the order in which they are computed."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resonax.lanes.emitter import Code
from resonax.lanes.functions import exp, power, sine
from resonax.lanes.vectors import BOOL, F32, F64, I32, I64, Type, Vector

__all__ = [
    "Equation",
    "Unsupported",
    "constant",
    "element_of",
    "flatten",
    "fuse_products",
    "operation_of",
]

_ELEMENTS = {"float32": F32, "float64": F64, "int32": I32, "int64": I64, "bool": BOOL}
_NESTED = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr"}


class Unsupported(Exception):  # noqa: N818  # a reason, which is told
    """What cannot be written as code for lanes, as the end of a sentence."""


@dataclass(frozen=True)
class Equation:
    """An operation on the values of variables; literals have a value of their own, ``val``."""

    kind: str
    operation: Callable[..., Any]
    inputs: tuple[Any, ...]
    output: Any
    value: Any  # shape and type of the output


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
    "copy": _same,
    "div": operator.truediv,
    "eq": _compare("=="),
    "exp": exp,
    "floor": _intrinsic("floor"),
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
    "sin": sine,
    "sqrt": _intrinsic("sqrt"),
    "square": lambda x: x * x,
    "stop_gradient": _same,
    "sub": operator.sub,
}


def element_of(kind: Any) -> Type | None:
    """Return what a lane holds for a type of jax, if it can hold it."""
    return _ELEMENTS.get(str(kind))


def operation_of(equation: Any) -> Callable[..., Vector] | None:
    """Return what writes an equation that holds number by number, if anything does."""
    kind, params = equation.primitive.name, equation.params
    values = [variable.aval for variable in (*equation.invars, *equation.outvars)]
    if len(equation.outvars) != 1 or not all(element_of(value.dtype) for value in values):
        return None
    if kind == "convert_element_type":
        element = element_of(params["new_dtype"])
        return lambda x: x.as_type(element)
    if kind == "integer_pow":
        return lambda x: _integer_power(x, params["y"])
    return _OPERATIONS.get(kind)


def constant(code: Code, number: Any, kind: Any) -> Vector:
    """Return a number of a type of jax in every lane."""
    return code.constant(np.asarray(number).item(), element_of(kind))


def flatten(
    jaxpr: Any, whose: str, operation_of: Callable[[Any], Callable[..., Any] | None]
) -> tuple[list[Equation], list[Any]]:
    """Return all equations, with those of functions that are called in place of the calls.

    And the variables of the results. What has no operation is `Unsupported`; ``whose`` it is
    begins the sentence.
    """
    equations: list[Equation] = []

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
            operation = operation_of(equation)
            if operation is None:
                raise Unsupported(f"{whose} has the operation {kind}")
            (output,) = equation.outvars
            fresh = object()  # a function may be called twice
            names[output] = fresh
            equations.append(Equation(kind, operation, tuple(inputs), fresh, output.aval))

    names: dict[Any, Any] = {}
    add(jaxpr, names)
    return equations, [v if hasattr(v, "val") else names.get(v, v) for v in jaxpr.outvars]


_FUSED: dict[tuple[str, int], Callable[..., Vector]] = {  # by the place of the product
    ("add", 0): lambda a, b, term: a.fma(b, term),
    ("add", 1): lambda a, b, term: a.fma(b, term),
    ("sub", 0): lambda a, b, term: a.fma(b, -term),
    ("sub", 1): lambda a, b, term: (-a).fma(b, term),
}


def fuse_products(equations: list[Equation], outputs: list[Any]) -> list[Equation]:
    """Return the equations with sums of a product and a term as one operation, rounded once.

    Which products it takes is decided here, and not by a compiler for one machine.
    """
    used = Counter(id(v) for v in outputs)
    used.update(id(v) for equation in equations for v in equation.inputs)
    products = {
        id(equation.output): equation
        for equation in equations
        if equation.kind == "mul"
        and used[id(equation.output)] == 1
        and element_of(equation.value.dtype) in (F32, F64)
    }
    found = {id(equation.output): equation for equation in equations}
    for equation in equations:
        for place in (1, 0) if equation.kind in ("add", "sub") else ():
            product = products.get(id(equation.inputs[place]))
            if product is not None:
                inputs = *product.inputs, equation.inputs[1 - place]
                fused = replace(equation, operation=_FUSED[equation.kind, place], inputs=inputs)
                found[id(equation.output)] = fused
                del found[id(product.output)]
                break
    return list(found.values())
