"""The device that computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from resonax.core.errors import ArgumentError, suggest

__all__ = ["check_device", "chosen_device", "describe_device"]


def check_device(name: str | None) -> None:
    """Raise `ArgumentError` for a kind of device that is not known."""
    if name not in (None, "cpu", "gpu"):
        raise suggest("device", str(name), ("cpu", "gpu"))


@contextlib.contextmanager
def chosen_device(name: str | None) -> Iterator[tuple[str, str]]:
    """Compute on a device, the default one if None; give its kind, and its name for the record."""
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
    """Return the kind and the name of the device that computes, the default one if None.

    Elsewhere, on the workers of a cluster, it is a CPU unless the user says otherwise.
    """
    if is_elsewhere:
        return name or "cpu", (name or "cpu").upper()
    with chosen_device(name) as found:
        return found
