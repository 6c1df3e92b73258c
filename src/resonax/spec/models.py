"""The base of all models of input, and their mistakes as one sentence.

The command line, TOML files, the page's JSON and Python keywords fill the same pydantic models. A
number has the range of its name (`resonax.core.errors.RANGES`) wherever it is given, which is also
what the constructors of frozen values check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from resonax.core.errors import (
    RANGES,
    ArgumentError,
    as_array,
    check_number,
    check_numbers,
    check_range,
    check_whole,
    shorten,
    suggest,
)

__all__ = ["NameFormat", "Spec", "first_mistake", "read"]

NameFormat = Callable[[str], str]  # formats the name of a parameter for error messages
S = TypeVar("S", bound="Spec")


def _check_plain(name: str, value: Any) -> None:
    """Check a number, a list of numbers or a list of such lists: no words, dates or flags."""
    for row in value if isinstance(value, list | tuple) else [value]:
        for number in row if isinstance(row, list | tuple) else [row]:
            check_number(name, number)


def _check_table(name: str, value: Any) -> None:
    _check_plain(name, value)
    check_numbers(name, as_array(name, value), (None, None))


def _check_count(name: str, value: Any) -> None:
    check_whole(name, value, low=int(RANGES[name].low), high=RANGES[name].high)


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    **dict.fromkeys(RANGES, check_range),
    **dict.fromkeys(("dim", "degree"), _check_count),
    **dict.fromkeys(("variance", "direction", "drift_direction", "omitted_weights"), _check_plain),
    **dict.fromkeys(("frequencies", "centers"), _check_table),
}


class Spec(BaseModel):
    """Input: unknown names are refused, and numbers lie in the ranges of their names."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def unknown(cls, info: ValidationInfo) -> str:
        """Return what is said of a name that the model does not have."""
        del info
        return f"is not a known key, use one of {', '.join(cls.model_fields)}"

    @classmethod
    def missing(cls, name: str, info: ValidationInfo) -> str:
        """Return what is said of a name that is not given."""
        del name, info
        return "is missing"

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, Mapping):
            return given
        for name in given:
            if name not in cls.model_fields:
                raise _mistake(name, cls.unknown(info))
        for name, field in cls.model_fields.items():
            if field.is_required() and name not in given:
                raise _mistake(name, cls.missing(name, info))
        return given

    @field_validator("*", mode="wrap")
    @classmethod
    def _check_range(cls, value: Any, handler: Callable[[Any], Any], info: ValidationInfo) -> Any:
        found = handler(value.item() if isinstance(value, np.generic) else value)
        if found is not None and (check := _CHECKS.get(info.field_name or "")):
            check(info.field_name or "", found)
        return found


def _mistake(name: str, text: str) -> PydanticCustomError:
    return PydanticCustomError("mistake", "{text}", {"text": text, "name": name})


_WORDS = {
    "Input should": "must",
    "Tuple should": "must",
    "Dictionary should": "must",
    "String should": "must",
    "Value error, ": "",
    "be a valid integer, got a number with a fractional part": "be a whole number",
    "be a valid integer, unable to parse string as an integer": "be a whole number",
    "be a valid number, unable to parse string as a number": "be a number",
    "be a valid boolean, unable to interpret input": "be true or false",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid boolean": "true or false",
    "a valid tuple": "a list",
    "a finite number": "finite",
    "a valid dictionary": "a table",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "above",
    "less than": "below",
    " after validation": "",
}


def first_mistake(error: ValidationError, place: str = "", format_name: NameFormat = str) -> str:
    """Return the first mistake that pydantic found as one sentence.

    Parameters
    ----------
    error
        What pydantic raised.
    place
        Where the model stands in what was given, as ``panels.0.run``.
    format_name
        Formats the name of a parameter, such as an option of the command line.
    """
    first = error.errors(include_url=False)[0]
    where, context = list(first["loc"]), first.get("ctx", {})
    message, given = first["msg"], first["input"]
    # The alternatives of a type are the last of its path: "int" and "float" of a number.
    is_number = bool(where) and where[-1] in ("int", "float")
    where = where[:-1] if is_number else where
    raised = context.get("error")
    if first["type"] == "mistake":
        where.append(context["name"])
    elif isinstance(raised, ArgumentError):  # its sentence begins with the name
        name, _, message = str(raised).partition(" ")
        where += [] if where and where[-1] == name else [name]
    words = [shorten(part, 40).strip("'") or "''" for part in where]
    path = ".".join([*filter(None, [place]), *map(format_name, words[:1]), *words[1:]])
    if first["type"] == "mistake" or isinstance(raised, ArgumentError):
        return f"{path} {message}"
    if first["type"] == "literal_error":
        known = re.findall(r"'([^']*)'", str(context["expected"]))
        return str(suggest(path, given if isinstance(given, str) else shorten(given), known))
    for theirs, ours in _WORDS.items():
        message = message.replace(theirs, ours)
    message = message.split(" or instance of")[0]
    if first["type"] == "string_pattern_mismatch":
        message = "must be small letters, digits and dashes, 64 at most"
    elif is_number and first["type"] != "finite_number":
        message = "must be a number"
    got = "" if ", got" in message or isinstance(given, dict) else f", got {shorten(given)}"
    return f"{path} {message}".strip() + got


def read(
    model: type[S],
    given: Any,
    *,
    place: str = "",
    format_name: NameFormat = str,
    strict: bool | None = None,
    **context: Any,
) -> S:
    """Return a model of what was given; raise `ArgumentError` for the first mistake.

    Parameters
    ----------
    model
        What is wanted.
    given
        A mapping of names to values.
    place, format_name
        Those of `first_mistake`.
    strict
        False to take text for numbers and flags, as a form has text alone.
    **context
        Context that the validators of the model get.

    Examples
    --------
    >>> class Rates(Spec):
    ...     lr: float
    ...     momentum: float = 0.0
    >>> read(Rates, {"lr": 0.1, "momentum": 1.2}, format_name="--{}".format)
    Traceback (most recent call last):
    resonax.ArgumentError: --momentum must be at least 0 and below 1, got 1.2
    >>> read(Rates, {"momentum": 0.5}, place="optimizer")
    Traceback (most recent call last):
    resonax.ArgumentError: optimizer.lr is missing
    """
    try:
        return model.model_validate(
            given, strict=strict, context={"format_name": format_name, **context}
        )
    except ValidationError as error:
        raise ArgumentError(first_mistake(error, place, format_name)) from None
