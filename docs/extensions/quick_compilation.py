"""Flags of XLA for code that runs once: the site's gallery and the tests."""

from __future__ import annotations

from importlib.util import find_spec
from mmap import ACCESS_READ, mmap
from pathlib import Path

__all__ = ["quick_compilation"]


def quick_compilation() -> str:
    """Return flags by which XLA compiles in half the time.

    Most of the time of a test or an example goes into the compiler. That leaves machine code as it
    comes here, which gives the same numbers to rounding. A program is compiled as one piece: other
    cores, for which it would be cut, have tests of their own.
    """
    wanted = {
        "xla_backend_optimization_level": "0",
        "xla_cpu_use_fusion_emitters": "false",
        "xla_cpu_parallel_codegen_split_count": "1",
    }
    return " ".join(f"--{flag}={value}" for flag, value in wanted.items() if _has_flag(flag))


def _has_flag(name: str) -> bool:
    """Whether this version of XLA has a flag: one that it does not know ends the process."""
    found = find_spec("jaxlib")
    library = Path(found.origin).with_name("libjax_common.so") if found and found.origin else Path()
    if not library.is_file():
        return False
    with library.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
        return text.find(name.encode()) >= 0
