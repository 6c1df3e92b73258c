"""Sweeps as data: a TOML file that a reader can lay beside the paper's table.

A file names the process, the model, the optimizer, how long is trained and how often, two axes,
and panels: variants that replace some of these numbers, each with the reading it stands for.
All that can be known of a file without running it is checked here, before jax is loaded.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from resonax.core.errors import ArgumentError, shorten, suggest
from resonax.sweeps.schema import MOST, Axis, Panel, Sweep, first_mistake
from resonax.sweeps.validation import check_sweep

__all__ = ["Axis", "Panel", "Sweep", "parse_sweep", "read_sweep"]


def _check_depth(table: Any) -> None:
    """Raise `ArgumentError` where tables or lists are nested without end."""
    level = [table]
    for _ in range(MOST["depth"]):
        inner = [part.values() if isinstance(part, Mapping) else part for part in level]
        level = [entry for part in inner for entry in part if isinstance(entry, Mapping | list)]
        if not level:
            return
    raise ArgumentError(f"tables and lists must be nested at most {MOST['depth']} deep")


def _replaced(table: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a nested table with some of its entries replaced."""
    result = dict(table)
    for name, change in changes.items():
        # A list of values replaces a range, and the other way round.
        if isinstance(change, Mapping) and isinstance(result.get(name), dict):
            inner = result[name]
            if "values" in change or ("values" in inner and "count" in change):
                inner = {}
            result[name] = _replaced(inner, change)
        else:
            result[name] = change
    return result


def _at_smoke(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table with what its tables ``smoke`` replace."""
    plain = dict(table)
    for home in [plain, *(plain["panels"] if isinstance(plain.get("panels"), list) else [])]:
        if isinstance(home, Mapping) and not isinstance(home.get("smoke", {}), Mapping):
            raise ArgumentError(f"smoke must be a table, got {shorten(home['smoke'])}")
    plain = _replaced(plain, plain.get("smoke", {}))
    if isinstance(panels := plain.get("panels"), list):
        plain["panels"] = [
            _replaced(panel, panel.get("smoke", {})) if isinstance(panel, dict) else panel
            for panel in panels
        ]
    return plain


def parse_sweep(table: Mapping[str, Any], *, scale: str = "paper", where: str = "sweep") -> Sweep:
    """Return the sweep that a table describes, at one of its scales; both must be valid.

    Examples
    --------
    >>> table = {"id": "mine", "process": {"kind": "sinusoid"}, "axis": {}}
    >>> parse_sweep(table, where="mine.toml")
    Traceback (most recent call last):
    resonax.ArgumentError: mine.toml: optimizer is missing
    """
    if scale not in ("smoke", "paper"):
        raise suggest("scale", scale, ("smoke", "paper"))

    def valid(table: Mapping[str, Any]) -> Sweep:
        sweep = Sweep.model_validate(table)
        check_sweep(sweep)
        return sweep

    try:
        _check_depth(table)
        small = _at_smoke(dict(table))
        sweep = valid(table)
        if small != table:
            small = valid(small)
            return small if scale == "smoke" else sweep
        return sweep
    except ValidationError as error:
        raise ArgumentError(f"{where}: {first_mistake(error)}") from None
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from None


def read_sweep(path: Path, *, scale: str = "paper") -> Sweep:
    """Read and check a sweep from a TOML file."""
    try:
        if path.exists() and not path.is_file():
            raise ArgumentError(f"{path} must be a file, a TOML file that describes a sweep")
        if path.stat().st_size > MOST["bytes"]:
            raise ArgumentError(
                f"{path} must have at most {MOST['bytes']} bytes, got {path.stat().st_size}"
            )
        table = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ArgumentError(f"{path} could not be read: {error.strerror}") from None
    except RecursionError:
        raise ArgumentError(
            f"{path}: tables and lists must be nested at most {MOST['depth']} deep"
        ) from None
    except ArgumentError:
        raise
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} is not TOML: {str(error)[:200]}") from None
    except ValueError:
        raise ArgumentError(f"{path} has a whole number of more than 4300 digits") from None
    return parse_sweep(table, scale=scale, where=path.name)
