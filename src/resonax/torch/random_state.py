"""Random numbers that a loss draws: the states of the generators of torch, NumPy and Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["RandomState", "devices_of", "read_random_state", "write_random_state"]


class RandomState(NamedTuple):
    """States of the global generators of torch, NumPy and Python, as plain values and tensors."""

    torch: tuple[Tensor, ...]  # of the CPU, and of each device
    numpy: tuple[Any, ...] | None  # None for a generator other than the Mersenne Twister
    python: tuple[Any, ...]

    @property
    def size(self) -> int:
        """Bytes of all states."""
        words = [self.python[1], *(self.numpy or ())[:1]]
        return sum(one.nbytes for one in self.torch) + sum(map(len, words))


def devices_of(model: torch.nn.Module) -> list[torch.device]:
    """Return the devices of a module that have a generator of their own."""
    found = {one.device for one in (*model.parameters(), *model.buffers())}
    return sorted((one for one in found if one.type not in ("cpu", "meta")), key=str)


def read_random_state(devices: Sequence[torch.device]) -> RandomState:
    """Return the states of all generators."""
    of_devices = [_module_of(one).get_rng_state(*_arguments(one)) for one in devices]
    version, words, gauss = random.getstate()
    return RandomState(
        (torch.get_rng_state(), *of_devices),
        _read_numpy(),
        (version, np.array(words, np.uint32).tobytes(), gauss),
    )


def write_random_state(state: RandomState, devices: Sequence[torch.device]) -> None:
    """Continue with earlier random numbers."""
    first, *others = state.torch
    torch.set_rng_state(first)
    for device, one in zip(devices, others, strict=True):
        _module_of(device).set_rng_state(one, *_arguments(device))
    if state.numpy is not None:
        key, *rest = state.numpy
        np.random.set_state(("MT19937", np.frombuffer(key, np.uint32), *rest))  # noqa: NPY002
    version, words, gauss = state.python
    random.setstate((version, tuple(np.frombuffer(words, np.uint32).tolist()), gauss))


def _module_of(device: torch.device) -> Any:
    return getattr(torch, device.type)


def _arguments(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "mps" else (device,)  # there is only one such device


def _read_numpy() -> tuple[Any, ...] | None:
    """Return the state of NumPy's global generator, or None for another kind of generator."""
    state = np.random.get_state(legacy=False)  # noqa: NPY002
    if state["bit_generator"] != "MT19937":
        return None
    inner = state["state"]
    return inner["key"].tobytes(), int(inner["pos"]), int(state["has_gauss"]), state["gauss"]
