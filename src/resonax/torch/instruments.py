"""The two instruments of a guard: which there are, their options, and which one fits a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypedDict

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from resonax.core.errors import ArgumentError, suggest
from resonax.guards.learner import Candidate
from resonax.guards.report import RunReport

__all__ = [
    "INSTRUMENTS",
    "GuardOptions",
    "Instrument",
    "check_options",
    "check_state",
    "choose_instrument",
    "is_linear",
]

INSTRUMENTS = ("tangent", "replay")


class CommonOptions(TypedDict, total=False):
    """Options of every guard."""

    candidates: Iterable[float | Candidate] | None
    budget: float
    log: Callable[[dict[str, Any]], object] | None
    scaler: Any


class TangentOptions(TypedDict, total=False):
    """Options of ``tangent`` alone."""

    burst: int
    search: int
    warmup: int
    curvature: str


class ReplayOptions(TypedDict, total=False):
    """Options of ``replay`` alone."""

    mix: bool
    memory: int
    spacing: int
    average: bool
    transform: Callable[[], object] | None
    knob: str | tuple[str, int] | None
    snapshots: str
    seed: int


class GuardOptions(CommonOptions, TangentOptions, ReplayOptions, total=False):
    """Options of `resonax.torch.Guard`."""


_ALONE = {
    "tangent": frozenset(TangentOptions.__annotations__),
    "replay": frozenset(ReplayOptions.__annotations__),
}


class Instrument(Protocol):
    """What a guard asks of its instrument."""

    @property
    def momentum(self) -> float:
        """The largest momentum in use."""
        ...

    @property
    def setting(self) -> Candidate:
        """The candidate in use."""
        ...

    @property
    def probing(self) -> bool:
        """Whether the next step is part of a burst."""
        ...

    @property
    def averaged(self) -> AveragedModel | None:
        """The average of the weights, if it is kept."""
        ...

    def offered(self) -> AveragedModel | None:
        """Return the average if it does better on past data than the weights."""
        ...

    def step(self, loss_fn: Callable[..., Tensor], parts: Sequence[tuple[Any, ...]]) -> Tensor:
        """Make one step of training on a batch, given as the arguments of each backward pass."""
        ...

    def observe(self, loss: Tensor) -> None:
        """Observe a loss before its ``backward``."""
        ...

    def forget(self) -> None:
        """Discard what was observed since the last update."""
        ...

    def before_step(self) -> None:
        """Be told that the optimizer is about to make a step."""
        ...

    def after_step(self) -> None:
        """Be told that the optimizer has made a step."""
        ...

    def report(self) -> RunReport:
        """Return what is known of the run."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; a state that does not fit changes nothing."""
        ...

    def copy_rest(self, other: Any) -> None:
        """Copy from another instrument, of which this is a copy, what is not saved."""
        ...

    def end(self, *, quiet: bool) -> None:
        """Give the optimizer back as it was; warn if nothing is known of the run."""
        ...


def is_linear(model: nn.Module) -> bool:
    """Return whether the outputs of a model are surely linear in its weights.

    That is one `torch.nn.Linear`, alone or in a `Sequential` with layers that only reshape.
    Subclasses may do anything, and do not count.

    Examples
    --------
    >>> is_linear(nn.Linear(2, 1)), is_linear(nn.Sequential(nn.Flatten(), nn.Linear(4, 1)))
    (True, True)
    >>> is_linear(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)))
    False
    """
    kinds = [type(one) for one in model.modules() if type(one) is not nn.Sequential]
    reshapes = (nn.Identity, nn.Flatten, nn.Unflatten)
    return kinds.count(nn.Linear) == 1 and all(one in (nn.Linear, *reshapes) for one in kinds)


def choose_instrument(
    instrument: str | None, model: nn.Module, optimizer: torch.optim.Optimizer
) -> str:
    """Return the instrument that was asked for, or the one that fits a model and its optimizer.

    ``tangent`` is exact where the model is linear in its weights and the optimizer is SGD;
    ``replay`` holds everywhere.
    """
    if instrument is not None:
        if instrument not in INSTRUMENTS:
            raise suggest("instrument", str(instrument), INSTRUMENTS)
        return instrument
    return "tangent" if type(optimizer) is torch.optim.SGD and is_linear(model) else "replay"


def check_options(options: GuardOptions, instrument: str | None = None) -> None:
    """Raise `ArgumentError` for an option that does not exist, or is of another instrument.

    Examples
    --------
    >>> check_options({"bugdet": 0.1})
    Traceback (most recent call last):
    resonax.ArgumentError: unknown option 'bugdet', did you mean 'budget'? ...
    >>> check_options({"warmup": 256}, "replay")
    Traceback (most recent call last):
    resonax.ArgumentError: warmup is an option of the instrument tangent, and this guard
    uses replay; leave it out, or give instrument="tangent"
    """
    for name in options:
        if name not in GuardOptions.__annotations__:
            raise suggest("option", name, GuardOptions.__annotations__)
        for other in INSTRUMENTS:
            if instrument not in (None, other) and name in _ALONE[other]:
                raise ArgumentError(
                    f"{name} is an option of the instrument {other}, and this guard uses "
                    f'{instrument}; leave it out, or give instrument="{other}"'
                )


def check_state(state: object, instrument: str) -> None:
    """Raise `ArgumentError` for the state of a guard with another instrument."""
    if not isinstance(state, dict):
        kind = type(state).__name__
        raise ArgumentError(f"this is no state of a guard of this version of resonax, but a {kind}")
    saved = state.get("instrument")
    if isinstance(saved, str) and saved in INSTRUMENTS and saved != instrument:
        raise ArgumentError(
            f"this is the state of a guard with the instrument {saved}, and this guard uses "
            f'{instrument}; make it with instrument="{saved}"'
        )
