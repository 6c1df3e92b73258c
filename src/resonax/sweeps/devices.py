"""Choice of the device of jax."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from resonax.core.errors import ArgumentError, suggest

__all__ = ["check_device", "chosen_device", "describe_device"]


def check_device(name: str | None) -> None:
    """Raise `ArgumentError` for an unknown kind of device."""
    if name not in (None, "cpu", "gpu"):
        raise suggest("device", str(name), ("cpu", "gpu"))


@contextlib.contextmanager
def chosen_device(name: str | None) -> Iterator[tuple[str, str]]:
    """Compute on a device, by default that of jax; yield its kind and its name."""
    check_device(name)
    import jax

    try:
        device = jax.devices(name)[0] if name else jax.devices()[0]
    except RuntimeError:
        raise ArgumentError(f"there is no {name} here: leave out --device {name}") from None
    kind = "cpu" if device.platform == "cpu" else "gpu"
    with jax.default_device(device):
        yield kind, "CPU" if kind == "cpu" else str(device.device_kind)


def describe_device(name: str | None, *, is_elsewhere: bool = False) -> tuple[str, str]:
    """Return the kind and the name of a device, by default that of jax.

    ``is_elsewhere`` is for workers of a cluster, whose default is the CPU.
    """
    if is_elsewhere:
        return name or "cpu", (name or "cpu").upper()
    with chosen_device(name) as kind_and_name:
        return kind_and_name
