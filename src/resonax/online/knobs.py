"""Numbers of a model by the path of their attributes, and what a candidate makes of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from resonax.core.errors import ArgumentError
from resonax.guards.learner import Candidate

__all__ = ["Knobs", "Paths", "read_path", "write_path"]

Paths = tuple[str, ...]


def _part(thing: Any, name: str) -> Any:
    return thing[name] if isinstance(thing, Mapping) else getattr(thing, name)


def read_path(model: Any, path: str) -> Any:
    """Return the attribute of a path such as ``optimizer.rho``; a name in a mapping is its key.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> read_path(SimpleNamespace(steps={"last": SimpleNamespace(rho=0.9)}), "steps.last.rho")
    0.9
    """
    for name in path.split("."):
        model = _part(model, name)
    return model


def write_path(model: Any, path: str, value: Any) -> None:
    """Change the attribute of a path."""
    *names, last = path.split(".")
    for name in names:
        model = _part(model, name)
    setattr(model, last, value)


@dataclass(frozen=True)
class _Scaled:
    """A schedule of river, times a factor."""

    schedule: Any
    factor: float

    def get(self, step: int) -> float:
        return self.factor * self.schedule.get(step)


def _times(own: Any, factor: float) -> Any:
    return own * factor if isinstance(own, Real) else _Scaled(own, factor)


@dataclass(frozen=True)
class Knobs:
    """Where a model has its momentum and its step size: paths of which some may not exist yet."""

    momentum: Paths = ()
    lr: Paths = ()

    def read(self, model: Any) -> dict[str, Any]:
        """Return the numbers as they are now."""
        found = {}
        for path in (*self.momentum, *self.lr):
            try:
                found[path] = read_path(model, path)
            except (AttributeError, KeyError):
                continue
        return found

    def checked(self, model: Any) -> Knobs:
        """Return them, or raise `ArgumentError` for a name that the model does not have."""
        found = self.read(model)
        for what, paths in (("knob", self.momentum), ("lr", self.lr)):
            if paths and not set(paths) & set(found):
                raise ArgumentError(
                    f"{what} must name a number of the model, such as 'optimizer.rho'; "
                    f"it has no {paths[0]!r}"
                )
        return self

    def largest_momentum(self, model: Any) -> float:
        """Return the largest momentum; 0 for a model without one."""
        found = self.read(model)
        return max((float(found[path]) for path in self.momentum if path in found), default=0.0)

    def changed(self, own: dict[str, Any], candidate: Candidate) -> dict[str, Any]:
        """Return what a candidate makes of the user's own numbers."""
        made = {path: min(own[path], candidate.momentum) for path in self.momentum if path in own}
        if candidate.lr != 1:
            made |= {path: _times(own[path], candidate.lr) for path in self.lr if path in own}
        return own | made

    @contextlib.contextmanager
    def in_force(self, model: Any, own: dict[str, Any], candidate: Candidate) -> Iterator[None]:
        """Give the model a candidate's numbers; afterwards they are the user's own again.

        A number that the model has changed meanwhile, as a schedule does, is left as it is.
        """
        now, wanted = self.read(model), self.changed(own, candidate)
        for path, value in wanted.items():
            if path in now and now[path] is not value:
                write_path(model, path, value)
        try:
            yield
        finally:
            now = self.read(model)
            for paths in (self.momentum, self.lr):
                held = [path for path in paths if path in own]
                for path in paths:
                    like = path if path in own else next(iter(held), path)  # of one made meanwhile
                    if like in own and own[like] is not wanted[like] is now.get(path):
                        write_path(model, path, own[like])
