"""Programs compiled for the processor at hand: kept in memory, and on disk beside those of jax."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from resonax.lanes.emitter import Code
from resonax.lanes.machine import Machine, host_machine, make_target_machine
from resonax.lanes.plan import Plan
from resonax.lanes.program import REAL, WHOLE, WORDS, write_program

__all__ = ["compile_code", "load_function", "load_program"]

_loaded: dict[str, tuple[Any, Callable[..., None]]] = {}
_lock = threading.Lock()


def compile_code(code: Code, machine: Machine) -> bytes:
    """Return the machine code of what was written, as an object file."""
    compiler = make_target_machine(machine)
    module = llvm.parse_assembly(str(code.module))
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False  # it is vectors already
    passes = llvm.create_pass_builder(compiler, options)
    passes.getModulePassManager().run(module, passes)
    return compiler.emit_object(module)


@functools.cache
def _source() -> bytes:
    """Return a digest of the code that writes programs."""
    folder = Path(__file__).parent
    parts = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    return hashlib.sha256(b"".join(parts)).digest()


def _name(plan: Plan, machine: Machine) -> str:
    """Return a name for a program that no other one has."""
    versions = (llvmlite.__version__, llvm.llvm_version_info)
    parts = repr((machine, versions, plan.text)).encode()
    return hashlib.sha256(_source() + parts).hexdigest()[:40]


def load_program(plan: Plan, folder: Path | None) -> Callable[..., None]:
    """Return the function of a plan: from memory, from a folder that keeps it, or made now."""
    machine = host_machine()
    name = _name(plan, machine)
    with _lock:
        if name not in _loaded:
            file = folder / f"{name}.o" if folder else None
            data = _read(file) if file else None
            if data is None:
                data = compile_code(write_program(plan, machine.triple), machine)
                if file:
                    _keep(file, data)
            _loaded[name] = _link("advance", data, machine, len(WHOLE), len(REAL) + len(WORDS))
        return _loaded[name][1]


def _read(file: Path) -> bytes | None:
    """Return an object file that is whole, by the digest before it; else None."""
    try:
        data = file.read_bytes()
    except OSError:
        return None
    digest, content = data[:32], data[32:]
    return content if hashlib.sha256(content).digest() == digest else None


def _keep(file: Path, content: bytes) -> None:
    """Write an object file, in one piece; where that is not possible it is made again each time."""
    temporary = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(hashlib.sha256(content).digest() + content)
        temporary.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _link(
    name: str, content: bytes, machine: Machine, numbers: int, pointers: int
) -> tuple[Any, Callable[..., None]]:
    """Load an object file; return what keeps it in memory, and its function of this name.

    The function takes so many whole numbers, and so many pointers after them.
    """
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), make_target_machine(machine))
    engine.add_object_file(llvm.ObjectFileRef.from_data(content))
    engine.finalize_object()
    kinds = [ctypes.c_int64] * numbers + [ctypes.c_void_p] * pointers
    return engine, ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address(name))


def load_function(name: str, code: Code, numbers: int, pointers: int) -> Callable[..., None]:
    """Return the function of this name that was written, made now and kept nowhere."""
    machine = host_machine()
    kept = _link(name, compile_code(code, machine), machine, numbers, pointers)
    return functools.partial(_call, kept)


def _call(kept: tuple[Any, Callable[..., None]], *given: int) -> None:
    kept[1](*given)  # what it is linked in stays in memory with it
