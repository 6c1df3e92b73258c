"""Compiled programs that are kept on disk: another process loads them, and traces nothing.

The compilation cache of jax spares a second process the compiler, but not the tracing and lowering
that lead to its key. Here the key is what decides them: the function, the source of this package,
the structure and shapes of the arguments, the versions, the device and the settings of jax.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer
from jax.experimental.compilation_cache import compilation_cache

from resonax.program_key import UnknownPartError, file_name

__all__ = ["current_device", "keep_programs", "program"]

R = TypeVar("R")
Tell = Callable[[str], None]  # told "reading" or "writing" where that failed

_CONFIG = ("enable_x64", "default_matmul_precision", "threefry_partitionable", "disable_jit")
_DIGEST = 32  # bytes
_VERSIONS = 4  # of the source, whose programs stay


class _Shelf:
    """Where programs are kept, if anywhere; and those that this process has loaded."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.tell: Tell = print
        self.loaded: dict[Any, Callable[..., Any]] = {}
        self.compiling = 0  # threads that do, for which the compilation cache is off
        self.has_cache = True  # what it was before


_SHELF = _Shelf()
_LOCK = threading.Lock()


def keep_programs(folder: Path | None, tell: Tell) -> None:
    """Keep compiled programs in a folder from now on, or nowhere; forget those of another.

    Parameters
    ----------
    folder
        Must be writable by its owner alone: what is loaded from it is run.
    tell
        Called with "reading" where an entry was damaged, and is removed and made again; with
        "writing" where one could not be kept.
    """
    if folder != _SHELF.folder:
        _SHELF.loaded.clear()
    _SHELF.folder, _SHELF.tell = folder, tell


def program(
    function: Callable[..., R], *, static: tuple[str, ...] = (), donate: tuple[str, ...] = ()
) -> Callable[..., R]:
    """Compile a function as `jax.jit` does, and keep what is compiled where `keep_programs` says.

    Parameters
    ----------
    function
        Of a module of this package; its arguments are trees of arrays and numbers.
    static
        Names of keyword arguments that shape the compiled code.
    donate
        Names of arguments whose memory the result may take.

    Examples
    --------
    >>> program(lambda x: 2 * x)(21).item()
    42
    """
    compiled_here = jax.jit(function, static_argnames=static, donate_argnames=donate)

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        if _SHELF.folder is None:
            return compiled_here(*args, **given)
        words = {name: given[name] for name in static if name in given}
        flowing = {name: part for name, part in given.items() if name not in words}
        leaves, tree = jax.tree.flatten((args, flowing))
        device = current_device()
        if not all(_is_free(leaf, device) for leaf in leaves):
            return compiled_here(*args, **given)
        shapes = tuple(map(_shape, leaves))
        config = tuple(map(_config, _CONFIG))
        key = function, tree, shapes, tuple(words.items()), config, device
        if (found := _SHELF.loaded.get(key)) is not None:
            return found(*args, **flowing)
        try:
            path = _SHELF.folder / file_name(function, tree, shapes, words, config, device)
        except UnknownPartError:
            return compiled_here(*args, **given)
        with contextlib.ExitStack() as held:
            if not path.exists():  # another process may be at it: wait, and load what it made
                held.enter_context(_alone(path))
            kept = _load(path, tree, device)
            found = kept or _compile(path, compiled_here.lower(*args, **given))
        if kept is not None:  # others need not wait until it has run
            try:
                jax.block_until_ready(result := kept(*args, **flowing))
            except jax.errors.JaxRuntimeError:  # machine code that is not whole
                _remove(path)
                found = _compile(path, compiled_here.lower(*args, **given))
            else:
                _SHELF.loaded[key] = kept
                return result
        _SHELF.loaded[key] = found
        return found(*args, **flowing)

    return call


def current_device() -> Any:
    """Return the device on which a program runs now."""
    chosen = _config("default_device")
    return chosen if isinstance(chosen, jax.Device) else jax.local_devices(backend=chosen)[0]


def _config(name: str) -> Any:
    return getattr(jax.config, f"jax_{name}")


def _is_free(leaf: Any, device: Any) -> bool:
    """Return whether a part of the arguments can be handed to a program on a device."""
    if isinstance(leaf, Tracer):
        return False
    return not isinstance(leaf, jax.Array) or leaf.devices() == {device} or not leaf.committed


def _shape(leaf: Any) -> tuple[Any, ...]:
    if isinstance(leaf, jax.Array | np.ndarray | np.generic):
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)
    return (type(leaf).__name__,)  # a number of Python


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let one process at a time make a program; no lock where there is none to be had."""
    try:
        import fcntl

        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_suffix(".lock").open("ab")
    except (ImportError, OSError):
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            path.with_suffix(".lock").unlink(missing_ok=True)


def _load(path: Path, tree: Any, device: Any) -> Callable[..., Any] | None:
    """Return a program that was kept; None where there is none, or it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    try:
        if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
            raise ValueError(path)
        payload, out = pickle.loads(data[_DIGEST:])
        from jax.experimental.serialize_executable import deserialize_and_load

        # jax finds LAPACK when it lowers a call of it; without, the call is of null.
        if b"lapack_" in payload:
            from jaxlib.lapack import prepare_lapack_call

            prepare_lapack_call("getrf_ffi", np.dtype(float))
        return deserialize_and_load(
            payload, tree, jax.tree.structure(out), device.platform, execution_devices=[device]
        )
    except Exception:  # whatever a damaged entry leads to
        _remove(path)
        return None


def _remove(path: Path) -> None:
    """Remove a damaged entry, and say so."""
    with contextlib.suppress(OSError):  # not ours to remove: it stays, and we do without it
        path.unlink(missing_ok=True)
    _SHELF.tell("reading")


def _compile(path: Path, lowered: Any) -> Callable[..., Any]:
    """Compile a program, and keep it.

    Not by the compilation cache: machine code that was read from there is lost when it is written.
    """
    with _without_cache():
        compiled = lowered.compile()
    _save(path, compiled)
    return compiled


@contextlib.contextmanager
def _without_cache() -> Iterator[None]:
    """Switch the compilation cache off until the last of the threads that compile has done so."""

    def switch(on: bool) -> None:
        jax.config.update("jax_enable_compilation_cache", on)
        compilation_cache.reset_cache()

    with _LOCK:
        if not _SHELF.compiling:
            _SHELF.has_cache = _config("enable_compilation_cache")
            switch(False)
        _SHELF.compiling += 1
    try:
        yield
    finally:
        with _LOCK:
            _SHELF.compiling -= 1
            if not _SHELF.compiling:
                switch(_SHELF.has_cache)


def _forget_versions(folder: Path) -> None:
    """Remove the programs of all versions of the source but the last few."""
    versions = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    for old in versions[:-_VERSIONS]:
        shutil.rmtree(old, ignore_errors=True)


def _save(path: Path, compiled: Any) -> None:
    """Keep a compiled program, whole or not at all."""
    from jax.experimental.serialize_executable import serialize

    try:
        payload, _, out = serialize(compiled)
        # A tree of our own classes cannot be pickled; values of it can.
        shape = jax.tree.unflatten(out, [0] * out.num_leaves)
        data = pickle.dumps((payload, shape))
        path.parent.mkdir(parents=True, exist_ok=True)
        _forget_versions(path.parent.parent)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(data).digest() + data)
        Path(file.name).replace(path)
    except (OSError, ValueError, NotImplementedError, pickle.PicklingError):
        _SHELF.tell("writing")
