"""A vector in the code being written: a number, a word or a flag for each lane.

Its operators append instructions that work on all lanes at once. None of them lets one lane see
another, and each rounds as IEEE 754 has it: what a lane computes does not depend on how many there
are, nor on what the others hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

if TYPE_CHECKING:
    from resonax.lanes.emitter import Code

__all__ = ["BOOL", "F32", "F64", "I32", "I64", "Type", "Value", "Vector"]

F32, F64 = ir.FloatType(), ir.DoubleType()
Value = Type = Any  # llvmlite has no annotations
I32, I64, BOOL = ir.IntType(32), ir.IntType(64), ir.IntType(1)


class Vector:
    """A vector of numbers, words or flags in the code being written."""

    __slots__ = ("code", "value")

    def __init__(self, code: Code, value: Value) -> None:
        self.code, self.value = code, value

    @property
    def element(self) -> Type:
        """What a lane holds."""
        return self.value.type.element

    @property
    def is_float(self) -> bool:
        """Whether lanes hold floating point numbers."""
        return self.element in (F32, F64)

    def like(self, other: Vector | float) -> Value:
        """Return another vector, or a number in every lane, as an operand beside this vector."""
        if isinstance(other, Vector):
            return other.value
        return self.code.constant(other, self.element, self.value.type.count).value

    def full(self, number: float) -> Vector:
        """Return a number in every lane, of the type of this vector."""
        return Vector(self.code, self.like(number))

    def _call(self, operation: str, *others: Vector | float) -> Vector:
        operands = [self.value, *(self.like(other) for other in others)]
        return Vector(self.code, getattr(self.code.builder, operation)(*operands))

    def __add__(self, other: Vector | float) -> Vector:
        return self._call("fadd" if self.is_float else "add", other)

    def __sub__(self, other: Vector | float) -> Vector:
        return self._call("fsub" if self.is_float else "sub", other)

    def __rsub__(self, other: float) -> Vector:
        return self.full(other) - self

    def __mul__(self, other: Vector | float) -> Vector:
        return self._call("fmul" if self.is_float else "mul", other)

    def __truediv__(self, other: Vector | float) -> Vector:
        return self._call("fdiv", other)

    def __rtruediv__(self, other: float) -> Vector:
        return self.full(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Vector:
        return self._call("fneg" if self.is_float else "neg")

    def __and__(self, other: Vector | int) -> Vector:
        return self._call("and_", other)

    def __or__(self, other: Vector | int) -> Vector:
        return self._call("or_", other)

    def __xor__(self, other: Vector | int) -> Vector:
        return self._call("xor", other)

    def __invert__(self) -> Vector:
        return self._call("not_")

    def __lshift__(self, count: int) -> Vector:
        return self._call("shl", count)

    def __rshift__(self, count: int) -> Vector:
        """Shift words to the right, filled up with zeros."""
        return self._call("lshr", count)

    def shift_signed(self, count: int) -> Vector:
        """Shift words to the right, filled up with their sign."""
        return self._call("ashr", count)

    def compare(self, sign: str, other: Vector | float) -> Vector:
        """Return flags; a comparison with nan is false, but for ``!=``."""
        build = self.code.builder
        test = build.icmp_signed
        if self.is_float:
            test = build.fcmp_unordered if sign == "!=" else build.fcmp_ordered
        return Vector(self.code, test(sign, self.value, self.like(other)))

    def __lt__(self, other: Vector | float) -> Vector:
        return self.compare("<", other)

    def __gt__(self, other: Vector | float) -> Vector:
        return self.compare(">", other)

    def where(self, yes: Vector | float, no: Vector | float) -> Vector:
        """Return ``yes`` where this flag is set, ``no`` elsewhere; one of them is a vector."""
        kind = yes if isinstance(yes, Vector) else no
        assert isinstance(kind, Vector)
        chosen = self.code.builder.select(self.value, kind.like(yes), kind.like(no))
        return Vector(self.code, chosen)

    def intrinsic(self, name: str, *others: Vector | float) -> Vector:
        """Return an intrinsic function of LLVM, lane by lane."""
        operands = (Vector(self.code, self.like(other)) for other in others)
        return self.code.call(name, self, *operands)

    def fma(self, factor: Vector | float, term: Vector | float) -> Vector:
        """Return ``self * factor + term``, rounded once."""
        return self.intrinsic("fma", factor, term)

    def relu(self) -> Vector:
        """Return the larger of a number and 0; nan stays. One instruction on either machine."""
        if self.code.is_arm:
            return self.intrinsic("maximum", 0.0)
        return (self < 0.0).where(0.0, self)

    def as_type(self, element: Type) -> Vector:
        """Return the same numbers as another type; words are signed."""
        if element == self.element:
            return self
        to = ir.VectorType(element, self.value.type.count)
        if self.is_float and element in (I32, I64):  # defined for every number, unlike fptosi
            return self.code.call("fptosi.sat", self, result=element)
        if self.is_float:
            operation = "fpext" if element == F64 else "fptrunc"
        elif element in (F32, F64):
            operation = "uitofp" if self.element == BOOL else "sitofp"
        elif element == I64 and self.element == I32:
            operation = "sext"
        else:
            operation = "zext" if self.element == BOOL else "trunc"
        return Vector(self.code, getattr(self.code.builder, operation)(self.value, to))

    def from_unsigned(self, element: Type) -> Vector:
        """Return words without a sign as floating point numbers."""
        to = ir.VectorType(element, self.value.type.count)
        return Vector(self.code, self.code.builder.uitofp(self.value, to))

    def bits_as(self, element: Type) -> Vector:
        """Return the same bits as another type of the same size."""
        to = ir.VectorType(element, self.value.type.count)
        return Vector(self.code, self.code.builder.bitcast(self.value, to))
