"""How commands describe themselves: flags as flags, and names that the shell can complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["Command", "Group", "completing"]


class Command(TyperCommand):
    """A command whose help shows no types: flags take nothing, others name what they take."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class Group(TyperGroup):
    """The same for the command that holds the others."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


def _without_types(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        elif parameter.param_type_name == "argument" and hasattr(parameter, "display_type_rich"):
            parameter.display_type_rich = _no_type
    return parameters


def _no_type(ctx: Any) -> str:
    del ctx
    return ""  # its name says what it is


def completing(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a function that completes the beginning of a name, for a shell.

    Examples
    --------
    >>> completing(["sgd", "sinusoid", "square"])("s")
    ['sgd', 'sinusoid', 'square']
    """
    known = list(names)

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return complete
