"""A function being written as LLVM code: whole numbers, memory and loops.

Python runs once and writes; what it computes with `Index` and `Vector` is computed when the code
that it wrote runs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from resonax.lanes.vectors import BOOL, F32, F64, I32, I64, Type, Value, Vector

__all__ = ["Code", "Index", "Memory", "Variable"]

_NAMES = {F32: "f32", F64: "f64", I32: "i32", I64: "i64", BOOL: "i1"}


class Index:
    """A whole number: a part that the code computes, and a part that is known as it is written.

    The known part becomes the constant offset of an address.
    """

    __slots__ = ("code", "known", "rest")

    def __init__(self, code: Code, rest: Value | None, known: int = 0) -> None:
        self.code, self.rest, self.known = code, rest, known

    @property
    def value(self) -> Value:
        """Both parts together."""
        if self.rest is None:
            return I64(self.known)
        return self.code.builder.add(self.rest, I64(self.known)) if self.known else self.rest

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.code, self.rest, self.known + other)
        parts = [rest for rest in (self.rest, other.rest) if rest is not None]
        rest = functools.reduce(self.code.builder.add, parts) if parts else None
        return Index(self.code, rest, self.known + other.known)

    def __mul__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            rest = self.rest if self.rest is None or other == 1 else None
            if self.rest is not None and other != 1:
                rest = self.code.builder.mul(self.rest, I64(other))
            return Index(self.code, rest, self.known * other)
        return Index(self.code, self.code.builder.mul(self.value, other.value))

    __radd__, __rmul__ = __add__, __mul__


class Memory(NamedTuple):
    """Vectors in memory, ``stride`` numbers apart."""

    code: Code
    pointer: Value
    stride: Index | int

    def at(self, index: Index | int) -> Memory:
        """Return the memory that begins at a vector."""
        return self._replace(pointer=self.code.move(self.pointer, index * self.stride))

    def _place(self, index: Index | int) -> Value:
        kind = ir.VectorType(self.pointer.type.pointee, self.code.lanes)
        return self.code.builder.bitcast(self.at(index).pointer, kind.as_pointer())

    def load(self, index: Index | int) -> Vector:
        """Return a vector."""
        value = self.code.builder.load(self._place(index))
        value.align = _size(value.type.element)
        return Vector(self.code, value)

    def store(self, index: Index | int, vector: Vector) -> None:
        """Put a vector into its place."""
        stored = self.code.builder.store(vector.value, self._place(index))
        stored.align = _size(vector.element)


def _size(element: Type) -> int:
    return 8 if element == F64 else 4


class Variable(NamedTuple):
    """A vector that changes; it is kept in a register where there is one."""

    code: Code
    slot: Value

    def get(self) -> Vector:
        """Return what it holds now."""
        return Vector(self.code, self.code.builder.load(self.slot))

    def set(self, vector: Vector) -> None:
        """Let it hold something else."""
        self.code.builder.store(vector.value, self.slot)


class Code:
    """A function being written, for so many lanes of one type of number."""

    def __init__(self, lanes: int, real: Type, triple: str) -> None:
        self.lanes, self.real = lanes, real
        self.is_arm = triple.startswith(("aarch64", "arm64"))
        self.module = ir.Module("lanes")
        self.module.triple = triple
        self.builder: Any = None

    def function(self, name: str, whole: list[str], real: list[str], words: list[str]) -> Any:
        """Begin a function of whole numbers and of pointers to numbers and words, by name."""
        pointers = [self.real.as_pointer()] * len(real) + [I32.as_pointer()] * len(words)
        signature = ir.FunctionType(ir.VoidType(), [I64] * len(whole) + pointers)
        function = ir.Function(self.module, signature, name)
        function.attributes.add("nounwind")
        self._entry = ir.IRBuilder(function.append_basic_block("entry"))
        self._body = function.append_basic_block("body")
        self.builder = ir.IRBuilder(self._body)
        given: dict[str, Any] = {}
        for argument, key in zip(function.args, [*whole, *real, *words], strict=True):
            if key in whole:
                given[key] = Index(self, argument)
            else:
                argument.add_attribute("noalias")
                given[key] = Memory(self, argument, self.lanes)
        self._mode = self._flush_subnormals()
        return given

    def end(self) -> None:
        """End the function."""
        self._set_mode(self._mode)
        self.builder.ret_void()
        self._entry.branch(self._body)

    def _flush_subnormals(self) -> Value:
        """Let numbers below the normal ones be 0, as XLA does; return the mode before.

        They are a hundred times slower, and states of units that no longer learn decay into them.
        """
        if self.is_arm:
            mode, flush = self._call("llvm.aarch64.get.fpcr", I64), I64(1 << 24)
        else:
            self._slot = self._entry.alloca(I32)
            self._call("llvm.x86.sse.stmxcsr", ir.VoidType(), self._pointer())
            mode, flush = self.builder.load(self._slot), I32(0x8040)
        self._set_mode(self.builder.or_(mode, flush))
        return mode

    def _set_mode(self, mode: Value) -> None:
        if self.is_arm:
            self._call("llvm.aarch64.set.fpcr", ir.VoidType(), mode)
        else:
            self.builder.store(mode, self._slot)
            self._call("llvm.x86.sse.ldmxcsr", ir.VoidType(), self._pointer())

    def _pointer(self) -> Value:
        return self.builder.bitcast(self._slot, ir.IntType(8).as_pointer())

    def _call(self, name: str, result: Type, *values: Value) -> Value:
        kind = ir.FunctionType(result, [value.type for value in values])
        known = self.module.globals.get(name) or ir.Function(self.module, kind, name)
        return self.builder.call(known, values)

    def constant(self, number: float, element: Type, count: int | None = None) -> Vector:
        """Return a number in every lane."""
        count = self.lanes if count is None else count
        item = float(number) if element in (F32, F64) else int(number)
        if element == F32:
            item = float(np.float32(item))
        kind = ir.VectorType(element, count)
        return Vector(self, ir.Constant(kind, [item] * count))

    def words(self, numbers: list[int]) -> Vector:
        """Return a word for each lane."""
        return Vector(self, ir.Constant(ir.VectorType(I32, len(numbers)), numbers))

    def splat(self, number: Index, count: int) -> Vector:
        """Return the lower word of a whole number in every lane."""
        kind = ir.VectorType(I32, count)
        word = self.builder.trunc(number.value, I32)
        one = self.builder.insert_element(ir.Constant(kind, ir.Undefined), word, I32(0))
        return self.choose(Vector(self, one), [0] * count)

    def choose(self, vector: Vector, places: list[int]) -> Vector:
        """Return some lanes of a vector, in some order."""
        value = vector.value
        return Vector(self, self.builder.shuffle_vector(value, value, self.words(places).value))

    def variable(self, initial: Vector) -> Variable:
        """Return a new variable."""
        made = Variable(self, self._entry.alloca(initial.value.type))
        made.set(initial)
        return made

    def call(self, name: str, *vectors: Vector, result: Type | None = None) -> Vector:
        """Call an intrinsic function of LLVM."""
        kinds = [vector.value.type for vector in vectors]
        to = kinds[0] if result is None else ir.VectorType(result, kinds[0].count)
        overloads = [to] if to == kinds[0] else [to, kinds[0]]
        parts = [f"v{kind.count}{_NAMES[kind.element]}" for kind in overloads]
        full = ".".join(["llvm", name, *parts])
        return Vector(self, self._call(full, to, *(vector.value for vector in vectors)))

    def move(self, pointer: Value, count: Index | int) -> Value:
        """Return a pointer moved by so many numbers; by what is known last."""
        index = Index(self, None, count) if isinstance(count, int) else count
        if index.rest is not None:
            pointer = self.builder.gep(pointer, [index.rest])
        return self.builder.gep(pointer, [I64(index.known)]) if index.known else pointer

    def in_turn(self, one: Memory, other: Memory, turn: Index) -> tuple[Memory, Memory]:
        """Return two places in memory: in this order where a number is even, else in the other."""
        is_odd = self.builder.trunc(turn.value, BOOL)
        pointers = [
            self.builder.select(is_odd, second.pointer, first.pointer)
            for first, second in ((one, other), (other, one))
        ]
        return one._replace(pointer=pointers[0]), other._replace(pointer=pointers[1])

    @contextmanager
    def loop(self, count: Index | int, step: int = 1) -> Iterator[Index]:
        """Count from 0 up to ``count``, which may be 0."""
        head, body, out = (self.builder.append_basic_block(n) for n in ("head", "body", "out"))
        limit = I64(count) if isinstance(count, int) else count.value
        before = self.builder.block
        self.builder.branch(head)
        self.builder.position_at_end(head)
        place = self.builder.phi(I64)
        place.add_incoming(I64(0), before)
        self.builder.cbranch(self.builder.icmp_unsigned("<", place, limit), body, out)
        self.builder.position_at_end(body)
        yield Index(self, place)
        place.add_incoming(self.builder.add(place, I64(step)), self.builder.block)
        self.builder.branch(head)
        self.builder.position_at_end(out)

    def each(self, count: int, few: int = 4) -> Iterator[Index | int]:
        """Yield the places of a range: few of them written out, more in a loop."""
        if count <= few:
            yield from range(count)
        else:
            with self.loop(count) as place:
                yield place

    def tiles(self, count: int, width: int) -> Iterator[tuple[Index | int, int]]:
        """Yield first place and width of the tiles of a range: a loop, and one for the rest."""
        whole = count // width * width
        if whole == width:
            yield 0, width
        elif whole:
            with self.loop(whole, width) as place:
                yield place, width
        if count > whole:
            yield whole, count - whole
