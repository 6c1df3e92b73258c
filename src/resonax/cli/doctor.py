"""The command ``doctor``: what is installed, what computes, and what is kept between calls."""

from __future__ import annotations

import contextlib
import json
import platform
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import Annotated, Any

from packaging.requirements import Requirement
from rich.console import Console

from resonax.cli.cache import find_fault, keep_compiled
from resonax.cli.options import option
from resonax.cli.show import show_line
from resonax.core.errors import ArgumentError

__all__ = ["doctor_command"]

_NO_PARTS = ("all", "docs", "test")  # every other part, and what its developers need


def doctor_command(
    as_json: Annotated[bool, option("--json", "Result", "Print one JSON object.")] = False,
) -> None:
    """Say which versions, devices and extras are there, and where compiled programs are kept.

    resonax doctor
    """
    jax, cache = _ask_jax()
    extras = metadata("resonax").get_all("Provides-Extra") or []
    extras = [extra for extra in extras if extra not in _NO_PARTS]
    found: dict[str, Any] = {
        "resonax": version("resonax"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "jax": jax,
        "torch": _ask_torch(),
        "cache": cache,
        "parts": {extra or "base": _find_part(extra) for extra in ("", *extras)},
    }
    if as_json:
        print(json.dumps(found))
        return
    console = Console()
    show_line(f"resonax {found['resonax']}, Python {found['python']}, {found['system']}", console)
    for library in ("jax", "torch"):
        words = ", ".join(found[library]["devices"]) or found[library]["fault"] or "not installed"
        show_line(f"devices of {library}: {words}", console)
    show_line(f"compiled programs: {found['cache'] or 'not kept between calls'}", console)
    for name, part in found["parts"].items():
        words = [" ".join(pair) for pair in part["versions"].items()]
        if part["missing"]:
            words.append(f"missing {' '.join(part['missing'])}: {part['install']}")
        show_line(f"{name}: {', '.join(words)}", console)


def _find_part(extra: str) -> dict[str, Any]:
    """Return versions of what an extra adds, or of the base, and what is missing or too old."""
    versions, missing = {}, []
    for needed in map(Requirement, requires("resonax") or ()):
        mark = needed.marker
        in_base = not mark or mark.evaluate({"extra": ""})
        if in_base == bool(extra) or (mark and not mark.evaluate({"extra": extra})):
            continue
        with contextlib.suppress(PackageNotFoundError):
            versions[needed.name] = version(needed.name)
        found = versions.get(needed.name)
        if not found or not needed.specifier.contains(found, prereleases=True):
            missing.append(f"{needed.name}{needed.specifier}")
    line = f'pip install "resonax[{extra}]"' if extra else "pip install resonax"
    return {"versions": versions, "missing": missing, "install": line}


def _ask_jax() -> tuple[dict[str, Any], str | None]:
    """Return the devices that jax sees, and the folder in which compiled programs are kept."""
    try:
        keep_compiled()
        import jax

        devices = [f"{one.platform}:{one.id} ({one.device_kind})" for one in jax.devices()]
        folder = jax.config.jax_compilation_cache_dir  # pyrefly: ignore[missing-attribute]
        return {"devices": devices, "fault": None}, folder
    except Exception as error:  # our own sentence, or whatever jax raises for its settings
        fault = "" if isinstance(error, ArgumentError) else find_fault()
        return {"devices": [], "fault": fault or str(error)}, None


def _ask_torch() -> dict[str, Any]:
    """Return the devices that torch sees, if it is installed."""
    try:
        version("torch")
        import torch

        gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        devices = ["cpu", *(f"cuda:{index} ({name})" for index, name in enumerate(gpus))]
        devices += ["mps"] if torch.backends.mps.is_available() else []
        return {"devices": devices, "fault": None}
    except PackageNotFoundError:
        return {"devices": [], "fault": None}
    except Exception as error:  # of a broken installation
        return {"devices": [], "fault": f"torch does not start: {error}"}
