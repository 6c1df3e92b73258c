"""Frozen dataclasses whose numbers flow through jax transformations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

import jax

__all__ = ["static", "value"]

C = TypeVar("C", bound=type)


def static(*, default: Any) -> Any:
    """Declare a field that shapes the compiled code instead of flowing through it."""
    return field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, field_specifiers=(field, static))
def value(cls: C) -> C:
    """Make a frozen dataclass whose numbers flow through jax transformations."""
    return jax.tree_util.register_dataclass(dataclass(frozen=True)(cls))
