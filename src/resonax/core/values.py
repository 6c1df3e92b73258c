"""Frozen dataclasses whose numbers flow through jax transformations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeVar, dataclass_transform

import jax

from resonax.core.errors import RANGES, suggest

__all__ = ["Varied", "static", "value"]

C = TypeVar("C", bound=type)


def static(*, default: Any) -> Any:
    """Declare a field that shapes the compiled code instead of flowing through it."""
    return field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, field_specifiers=(field, static))
def value(cls: C) -> C:
    """Make a frozen dataclass that is a jax pytree.

    jax rebuilds a value without calling it, so that ``__post_init__`` checks what people give,
    not what transformations put in its place.
    """
    made: Any = dataclass(frozen=True)(cls)
    inner = [item.name for item in fields(made) if not item.metadata.get("static")]
    outer = [item.name for item in fields(made) if item.metadata.get("static")]

    def flatten(thing: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        parts = [(jax.tree_util.GetAttrKey(name), getattr(thing, name)) for name in inner]
        return parts, tuple(getattr(thing, name) for name in outer)

    def unflatten(shape: tuple[Any, ...], parts: Any) -> Any:
        thing = object.__new__(made)
        for name, part in zip([*inner, *outer], [*parts, *shape], strict=True):
            object.__setattr__(thing, name, part)
        return thing

    jax.tree_util.register_pytree_with_keys(made, flatten, unflatten)
    return made


class Varied:
    """A frozen dataclass whose numbers may differ from cell to cell of a grid.

    Its axes are the fields that flow through jax and whose name has a range in `errors.RANGES`.
    """

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the numbers that may vary."""
        flowing = (item for item in fields(self) if not item.metadata.get("static"))  # pyrefly: ignore[bad-argument-type]
        return tuple(item.name for item in flowing if item.name in RANGES)

    def at(self, values: Mapping[str, Any]) -> Self:
        """Return the same with some of its numbers replaced, by the names of `axes`."""
        for name in values:
            if name not in self.axes:
                raise suggest("axis", name, self.axes)
        return replace(self, **values)  # pyrefly: ignore[bad-specialization]
