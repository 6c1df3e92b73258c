"""Hyperparameters of an optimizer: the user's own, and those of a candidate during a step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from resonax.core.errors import ArgumentError, suggest
from resonax.guards.learner import Candidate
from resonax.torch.batches import copied, tensors_of

__all__ = ["Hyperparameters", "Knob", "Options", "find_knob"]

Options = tuple[dict[str, Any], ...]  # of each group: all but its parameters

_PARAMETERS = ("params", "param_names")
_NONE = object()
_PLAIN = (float, int, bool, str, type(None))


class Knob(NamedTuple):
    """Where a group holds its momentum: an entry, and a place in it if it is a tuple."""

    name: str
    place: int | None = None

    def get(self, options: dict[str, Any]) -> Any:
        """Return the momentum of a group."""
        held = options[self.name]
        return held if self.place is None else held[self.place]

    def replaced(self, options: dict[str, Any], momentum: float) -> Any:
        """Return the entry with another momentum."""
        held = options[self.name]
        if self.place is None:
            return momentum
        return type(held)((*held[: self.place], momentum, *held[self.place + 1 :]))


def find_knob(
    optimizer: torch.optim.Optimizer, knob: str | tuple[str, int] | None = None
) -> Knob | None:
    """Return where the momentum is: as given, or else ``betas[0]`` or ``momentum``, or nowhere.

    Examples
    --------
    >>> weights = [torch.zeros(1)]
    >>> find_knob(torch.optim.Adam(weights)), find_knob(torch.optim.SGD(weights, lr=0.1))
    (Knob(name='betas', place=0), Knob(name='momentum', place=None))
    >>> find_knob(torch.optim.Adagrad(weights)) is None
    True
    """
    groups = optimizer.param_groups
    if knob is None:
        usual = (Knob("betas", 0), Knob("momentum"))
        return next((one for one in usual if one.name in groups[0]), None)
    made = Knob(knob) if isinstance(knob, str) else Knob(*knob)
    for group in groups:
        if made.name not in group:
            raise suggest("knob", made.name, [one for one in group if one not in _PARAMETERS])
        held = group[made.name]
        if isinstance(held, (tuple, list)) and made.place is None:
            made = Knob(made.name, 0)
        try:
            float(made.get(group))
        except (TypeError, IndexError, ValueError):
            raise ArgumentError(
                f"knob must name a number in each group of the optimizer, such as "
                f'"momentum" or ("betas", 0); {made.name} holds {held}'
            ) from None
    return made


class Hyperparameters:
    """Those of an optimizer; a candidate's are in force during a step only."""

    def __init__(self, optimizer: torch.optim.Optimizer, knob: Knob | None):
        self.knob = knob
        self._optimizer = optimizer
        self._weights = [list(map(id, group["params"])) for group in self._groups]
        self._last: Options = ()
        self._seen: list[dict[str, Any]] = []  # the groups as they were when last read
        self._unlowered: Any = _NONE  # a candidate that lowers nothing of these
        self._has_tensors = bool(tensors_of([dict(one, params=None) for one in self._groups]))

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return self._optimizer.param_groups  # others after `load_state_dict`

    def own(self) -> Options:
        """Return what each group has between two steps: the user's own, as schedules left it."""
        groups = self._optimizer.param_groups
        if len(groups) != len(self._weights) or not self._has_weights(groups):
            raise ArgumentError(
                "the optimizer has other parameters than when the guard was made: make the guard "
                "after the last parameter group has been added"
            )
        if self._has_tensors or not self._is_seen(groups):
            self._last = tuple(
                {name: _kept(one) for name, one in group.items() if name not in _PARAMETERS}
                for group in groups
            )
            self._seen = [group | mine for group, mine in zip(groups, self._last, strict=True)]
            self._unlowered = _NONE
        return self._last

    def _has_weights(self, groups: list[dict[str, Any]]) -> bool:
        """Return whether the groups train the parameters that the guard was made for."""
        return all(
            list(map(id, group["params"])) == weights
            for group, weights in zip(groups, self._weights, strict=True)
        )

    def _is_seen(self, groups: list[dict[str, Any]]) -> bool:
        """Return whether the groups are as they were; their parameters must be the same list."""
        for group, seen in zip(groups, self._seen, strict=False):
            if group["params"] is not seen["params"] or group != seen:
                return False
        return bool(self._seen)

    def largest_momentum(self, own: Options) -> float:
        """Return the largest momentum of all groups; 0 for an optimizer without one."""
        if self.knob is None:
            return 0.0
        return max(float(self.knob.get(options)) for options in own)

    def are_in_force(self, own: Options, candidate: Candidate | None) -> bool:
        """Return whether the groups hold a candidate's numbers as they are.

        They do if the user's own were the same when they were last read, and none is lowered.
        """
        if own is not self._last:
            return False
        if self._unlowered is not candidate:
            lowers = candidate is not None and (
                candidate.lr != 1 or candidate.momentum < self.largest_momentum(own)
            )
            self._unlowered = _NONE if lowers else candidate
        return self._unlowered is candidate

    @contextlib.contextmanager
    def in_force(self, own: Options, candidate: Candidate | None) -> Iterator[None]:
        """Give the groups a candidate's numbers, where the user's own were these."""
        if self.are_in_force(own, candidate):
            yield
            return
        before = self.own()
        try:
            for group, mine in zip(self._groups, own, strict=True):
                _assign(group, mine if candidate is None else self._lowered(mine, candidate))
            yield
        finally:
            for group, mine in zip(self._groups, before, strict=True):
                _assign(group, mine)

    def _lowered(self, own: dict[str, Any], candidate: Candidate) -> dict[str, Any]:
        made = dict(own)
        if candidate.lr != 1:
            made["lr"] = own["lr"] * candidate.lr
        if self.knob is not None and candidate.momentum < float(self.knob.get(own)):
            made[self.knob.name] = self.knob.replaced(own, candidate.momentum)
        return made


def _kept(value: Any) -> Any:
    return value if isinstance(value, _PLAIN) else copied(value)


def _assign(group: dict[str, Any], values: dict[str, Any]) -> None:
    for name, value in values.items():
        group[name] = _written(group.get(name), value)


@torch.no_grad()
def _written(held: Any, value: Any) -> Any:
    """Return what a group is to hold; a tensor stays the same one, as compiled steps read it."""
    if isinstance(held, Tensor):
        return held.copy_(torch.as_tensor(value))
    if isinstance(held, (tuple, list)) and any(isinstance(one, Tensor) for one in held):
        return type(held)(_written(*pair) for pair in zip(held, value, strict=True))
    return value
