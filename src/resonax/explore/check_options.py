"""The options of a check, from the text fields of a form to what the command line would give."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from resonax.checking.asked import asked_check
from resonax.core.errors import ArgumentError, shorten, suggest
from resonax.explore.code import features_code, option_words, program, tidy

__all__ = ["EXAMPLE_OPTIONS", "check_code", "parse_options"]

EXAMPLE_OPTIONS = {"target": "temp", "order_by": "date", "horizon": 1, "lr": 0.01, "momentum": 0.95}


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(f"{name} must be a number, got {shorten(text)}") from None


def _whole(name: str, text: str) -> int:
    number = _number(name, text)
    if not abs(number) < 2**63 or number != int(number):
        raise ArgumentError(f"{name} must be a whole number, got {shorten(text)}")
    return int(number)


def _flag(name: str, text: str) -> bool:
    words = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
    if text.lower() not in words:
        raise ArgumentError(f"{name} must be true or false, got {shorten(text)}")
    return words[text.lower()]


def _word(name: str, text: str) -> str:
    del name
    return text


_KINDS: dict[str, Callable[[str, str], Any]] = {
    **dict.fromkeys(("target", "features", "order_by", "group_by", "separator", "decimal"), _word),
    **dict.fromkeys(("loss", "optimizer", "basis"), _word),
    **dict.fromkeys(("lr", "momentum", "dampening", "weight_decay", "intercept_lr"), _number),
    "width": _number,
    **dict.fromkeys(("batch", "epochs", "horizon", "grid", "seed"), _whole),
    **dict.fromkeys(("drop_missing", "standardise", "bias"), _flag),
}


def parse_options(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a form, which can be; empty fields are left out.

    Examples
    --------
    >>> parse_options({"lr": "0.01", "momentum": "0.9", "order-by": "date", "target": ""})
    {'lr': 0.01, 'momentum': 0.9, 'order_by': 'date'}
    """
    asked: dict[str, Any] = {}
    for field, text in fields.items():
        name = field.replace("-", "_")
        if name not in _KINDS:
            raise suggest("option", field, _KINDS)
        if text != "":
            asked[name] = _KINDS[name](name, text)
    asked_check(asked)
    return asked


def check_code(asked: Mapping[str, Any], source: str, example: bool) -> dict[str, str | None]:
    """Return the code that makes the same check."""
    words = [] if example else [source]
    words += ["--example"] if example else []
    left_out = EXAMPLE_OPTIONS if example else {}
    for name, value in asked.items():
        if left_out.get(name) == value:
            continue
        if isinstance(value, bool):
            off = {"standardise": "--as-is", "bias": "--no-bias", "drop_missing": None}
            on = {"standardise": None, "bias": None, "drop_missing": "--drop-missing"}
            words += [word for word in ((on if value else off)[name],) if word]
        else:
            words += option_words(name, tidy(value))
    keep = {name: value for name, value in asked.items() if name not in ("basis", "bias", "width")}
    keep.setdefault("momentum", 0.0)
    given = [f"{name}={value!r}" for name, value in keep.items()]
    if features := features_code(asked):
        given.append(f"basis=lambda dim: {features}" if "dim" in features else f"basis={features}")
    path = "EXAMPLE.path" if example else repr(source)
    python = program(
        f"found = rx.check(\n    {path},\n" + "".join(f"    {one},\n" for one in given) + ")",
        "print(found)",
    )
    if example:
        python = f"from resonax.data.example import EXAMPLE\n{python}"
    command = shlex.join(["resonax", "check", *words])
    return {"python": python, "command": command}
