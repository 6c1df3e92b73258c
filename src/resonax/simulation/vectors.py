"""A vector type for Numba: 16 numbers that are added and multiplied at once.

Numba leaves it to LLVM to find loops that vector instructions can take, and LLVM finds few in the
training of a network. With a type for what such an instruction works on there is nothing to find:
on AVX-512 a vector of single precision is one register, elsewhere it is two or four of them.
Plain loops over networks side by side took 3 times as long for 128 of them, and 11 times for 16.

An array of vectors has 16 as its last axis and its numbers one after the other; `load` and `store`
count its vectors from 0, whatever its other axes are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, overload, register_model

__all__ = ["LANES", "flush", "gate", "load", "relu", "root", "splat", "store"]

LANES = 16
_SMALLEST = 2.0**-120
_intrinsic: Any = intrinsic  # whose first argument numba gives
_FUSED = ("contract", "nsz")  # a product and a sum may be rounded once


class _VectorType(types.Type):
    """The type of a vector of some type of number."""

    def __init__(self, number: types.Float) -> None:
        self.number = number
        super().__init__(name=f"vector of {LANES} {number}")


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):
    """How a vector is held: as one of LLVM."""

    def __init__(self, manager: Any, kind: _VectorType) -> None:
        super().__init__(manager, kind, ir.VectorType(manager[kind.number].get_value_type(), LANES))


def _pointer(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Return the place of a vector in an array."""
    array = context.make_array(signature.args[0])(context, builder, values[0])
    kind = context.get_value_type(_VectorType(signature.args[0].dtype))
    first = builder.gep(array.data, [builder.mul(values[1], ir.Constant(values[1].type, LANES))])
    return builder.bitcast(first, kind.as_pointer())


def _bytes(vector: ir.VectorType) -> int:
    """Return the size of one of its numbers."""
    return 8 if vector.element == ir.DoubleType() else 4


@_intrinsic
def load(typing: Any, array: Any, place: Any) -> Any:
    """Return a vector of an array."""

    def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        found = builder.load(_pointer(context, builder, signature, values))
        found.align = _bytes(found.type)
        return found

    return _VectorType(array.dtype)(array, types.intp), write


@_intrinsic
def store(typing: Any, array: Any, place: Any, vector: Any) -> Any:
    """Put a vector into an array."""

    def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        stored = builder.store(values[2], _pointer(context, builder, signature, values))
        stored.align = _bytes(values[2].type)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), write


@_intrinsic
def splat(typing: Any, number: Any, like: Any) -> Any:
    """Return a number in every lane, of the type of another vector."""

    def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = context.get_value_type(like)
        one = context.cast(builder, values[0], number, like.number)
        first = builder.insert_element(ir.Constant(kind, ir.Undefined), one, ir.IntType(32)(0))
        return builder.shuffle_vector(
            first, first, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        )

    return like(number, like), write


def _elementwise(count: int, write: Callable[..., Any]) -> Any:
    """Return a function of one vector or two, whose code ``write(builder, *vectors)`` writes."""

    def typed(*vectors: Any) -> Any:
        signature = vectors[0](*vectors)
        return signature, lambda context, builder, signature, values: write(builder, *values)

    if count == 1:
        return _intrinsic(lambda typing, one: typed(one))
    return _intrinsic(lambda typing, one, other: typed(one, other))


def _define(operate: Callable[..., Any], name: str) -> None:
    """Let an operator of Python add or multiply vectors by an instruction of LLVM."""
    apply = _elementwise(2, lambda builder, a, b: getattr(builder, name)(a, b, flags=_FUSED))

    @overload(operate)
    def typed(one, other):  # without annotations: numba compares this with the signature below
        if isinstance(one, _VectorType) and one == other:
            return lambda one, other: apply(one, other)
        return None


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")


def _zero(vector: Any) -> Any:
    return ir.Constant(vector.type, [0.0] * LANES)


def _write_root(builder: Any, x: Any) -> Any:
    name = f"llvm.sqrt.v{LANES}f{8 * _bytes(x.type)}"
    kind = ir.FunctionType(x.type, [x.type])
    return builder.call(builder.module.declare_intrinsic(name, (), kind), [x])


def _write_relu(builder: Any, x: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", x, _zero(x)), _zero(x), x)


def _write_gate(builder: Any, x: Any, by: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", by, _zero(by)), x, _zero(x))


def _write_flush(builder: Any, x: Any) -> Any:
    low, high = (ir.Constant(x.type, [side * _SMALLEST] * LANES) for side in (-1, 1))
    is_above = builder.fcmp_ordered(">", x, low)
    is_tiny = builder.and_(is_above, builder.fcmp_ordered("<", x, high))
    return builder.select(is_tiny, _zero(x), x)


root = _elementwise(1, _write_root)  # the square root
relu = _elementwise(1, _write_relu)  # 0 for what is below 0; what is not a number stays so
gate = _elementwise(2, _write_gate)  # the first where the second is above 0, and 0 elsewhere
# 0 for numbers below 1e-36. The states of a unit that no longer learns decay into subnormal
# numbers, with which processors compute a hundred times more slowly.
flush = _elementwise(1, _write_flush)
