"""Groups of options: dataclasses whose fields are options of each command that takes them."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from resonax.cli.parsers import OptionError, spelled

__all__ = ["given", "single", "with_groups"]


def given(group: Any) -> dict[str, Any]:
    """Return the options of a group that differ from what they are if left out."""
    found = {item.name: getattr(group, item.name) for item in fields(group)}
    return {item.name: found[item.name] for item in fields(group) if _differs(found, item)}


def _differs(found: dict[str, Any], item: Any) -> bool:
    value = found[item.name]
    return value is not item.default and (hasattr(value, "shape") or value != item.default)


def single(*groups: Any, **options: Any) -> None:
    """Raise `OptionError` for an option that is a range."""
    for found in (*map(given, groups), options):
        for name, value in found.items():
            if hasattr(value, "shape"):
                raise OptionError(f"{spelled(name)} must be a number: a range is for resonax map")


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of the groups that it takes, in their place."""
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for item in inspect.signature(command).parameters.values():
        group = groups.get(item.name)
        if group is None:
            parameters.append(item.replace(annotation=hints[item.name]))
        else:
            own = typing.get_type_hints(group, include_extras=True)
            parameters += [
                part.replace(annotation=own[part.name])
                for part in inspect.signature(group).parameters.values()
            ]

    @functools.wraps(command)
    def wrapper(**options: Any) -> None:
        made = {
            name: group(**{item.name: options.pop(item.name) for item in fields(group)})
            for name, group in groups.items()
        }
        command(**made, **options)

    wrapper.__signature__ = inspect.Signature(  # pyrefly: ignore[missing-attribute]
        [item.replace(kind=item.KEYWORD_ONLY) for item in parameters]
    )
    wrapper.__annotations__ = {item.name: item.annotation for item in parameters}
    return wrapper
