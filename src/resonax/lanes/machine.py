"""The processor at hand: how many lanes it has, and how it is told to the compiler."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import llvmlite.binding as llvm

__all__ = ["Machine", "host_machine", "make_target_machine"]


class Machine(NamedTuple):
    """A processor as LLVM knows it."""

    triple: str
    cpu: str
    features: str

    def _has(self, feature: str) -> bool:
        return f"+{feature}" in self.features.split(",")

    @property
    def is_arm(self) -> bool:
        """Whether it is a 64-bit ARM processor."""
        return self.triple.startswith(("aarch64", "arm64"))

    @property
    def bits(self) -> int:
        """Width of a vector register; 0 for a processor without fused multiply-add."""
        if self.is_arm:
            return 128
        if self._has("avx512f") and self._has("avx512dq"):
            return 512
        return 256 if self._has("avx2") and self._has("fma") else 0

    @property
    def registers(self) -> int:
        """How many such registers there are."""
        return 16 if self.bits == 256 else 32

    def lanes(self, double: bool) -> int:
        """Return how many numbers a register holds."""
        return self.bits // (64 if double else 32)

    @property
    def sums(self) -> int:
        """How many registers hold sums; the others hold what is multiplied."""
        return 10 if self.registers == 16 else 20


@functools.cache
def host_machine() -> Machine:
    """Return the processor that this runs on."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    return Machine(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


def make_target_machine(machine: Machine) -> Any:
    """Return LLVM's compiler for a processor; who is given it owns it."""
    target = llvm.Target.from_triple(machine.triple)
    return target.create_target_machine(cpu=machine.cpu, features=machine.features, opt=3, jit=True)
