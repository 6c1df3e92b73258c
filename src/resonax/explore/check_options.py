"""The options of a check, from the text fields of a form to what the command line would give."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from resonax.core.errors import suggest
from resonax.explore.code import features_code, option_words, program, tidy
from resonax.spec.checks import CheckOptions, check_options
from resonax.spec.models import read

__all__ = ["EXAMPLE_OPTIONS", "check_code", "parse_options"]

EXAMPLE_OPTIONS = {"target": "temp", "order_by": "date", "horizon": 1, "lr": 0.01, "momentum": 0.95}


def parse_options(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a form, checked; empty fields are left out.

    Examples
    --------
    >>> parse_options({"lr": "0.01", "momentum": "0.9", "order-by": "date", "target": ""})
    {'lr': 0.01, 'momentum': 0.9, 'order_by': 'date'}
    """
    given = {field.replace("-", "_"): text for field, text in fields.items() if text != ""}
    for name in given:
        if name not in CheckOptions.model_fields or name == "level":
            raise suggest("option", name, [*CheckOptions.model_fields])
    asked = read(CheckOptions, given, strict=False).model_dump(exclude_unset=True)
    asked = {name: asked[name] for name in given}
    check_options(asked)
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
