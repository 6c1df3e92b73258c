"""The name of a compiled program on disk: a digest of all that decides it, made without tracing."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["UnknownPartError", "file_name", "source_folder"]

_OURS = ("resonax.", "optax", "jax.", "builtins", "numpy")  # whose source the key stands for
_PACKAGES = ("jax", "jaxlib", "numpy", "diffrax", "optax")


class UnknownPartError(Exception):
    """Something whose name does not say what it does: it can be no part of a key."""


def file_name(
    function: Any, tree: Any, shapes: tuple, words: dict[str, Any], config: tuple, device: Any
) -> str:
    """Return the name of a program, a digest of all that decides it, under that of the source."""
    parts = [*_name(function), *_tree(tree), *map(repr, shapes), *_word(words), repr(config)]
    folder, *rest = _surroundings(device)
    digest = hashlib.sha256("\0".join([*parts, *rest]).encode()).hexdigest()
    return f"{folder}/{function.__name__.strip('_')}-{digest}"


def _name(thing: Any) -> Iterator[str]:
    """Yield what stands for a class or a function: its name, if that says what it does."""
    module, name = thing.__module__ or "", thing.__qualname__
    if not module.startswith(_OURS) or "<" in name:
        raise UnknownPartError
    yield f"{module}:{name}"


def _tree(tree: Any) -> Iterator[str]:
    """Yield what stands for the structure of arguments."""
    data = tree.node_data()
    if data is None:
        yield "leaf" if tree.num_leaves else "none"
        return
    kind, rest = data
    yield from _name(kind)
    yield from _word(rest)
    children = tree.children()
    yield str(len(children))
    for child in children:
        yield from _tree(child)


def _word(value: Any) -> Iterator[str]:
    """Yield what stands for a static value."""
    if value is None or isinstance(value, str | int | float):
        yield repr(value)
    elif isinstance(value, tuple | list | dict):
        items = value.items() if isinstance(value, dict) else value
        yield from (*_name(type(value)), str(len(value)))
        for item in items:
            yield from _word(item)
    elif callable(value) and hasattr(value, "__qualname__"):
        yield from _name(value)
    else:
        raise UnknownPartError


@functools.cache
def _surroundings(device: Any) -> tuple[str, ...]:
    """Return what decides a program beside its own text: source, versions, machine, flags."""
    packages = tuple(f"{name} {version(name)}" for name in _PACKAGES)
    kind = (device.platform, device.device_kind, str(device.id), device.client.platform_version)
    flags = tuple(os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"))
    return (source_folder(), *packages, *kind, *flags, platform.machine(), _processor())


def source_folder() -> str:
    """Return the name of the folder of programs made from this source: a digest of it."""
    home = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        digest.update(path.relative_to(home).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    """Return what the processor can do: machine code is made for that."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    kept = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(kept)}))
