"""The parameter groups of an optimizer: the user's hyperparameters, and those of a candidate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from resonax.core.errors import ArgumentError, suggest
from resonax.guards.learner import Candidate
from resonax.torch.batches import copied

__all__ = ["Groups", "Knob", "Options", "find_knob"]

Options = tuple[dict[str, Any], ...]  # of each group: all entries but its parameters

_PARAMETERS = ("params", "param_names")


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


class Groups:
    """The parameter groups of an optimizer; a candidate is in force during a step only.

    Between steps each group has the user's own hyperparameters, so that schedulers and checkpoints
    find what they expect.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, knob: Knob | None):
        self.knob = knob
        self._optimizer = optimizer
        self._ids = self._parameter_ids()

    def _parameter_ids(self) -> list[list[int]]:
        return [list(map(id, group["params"])) for group in self._optimizer.param_groups]

    def weights(self) -> list[Tensor]:
        """Return the parameters of all groups."""
        return [one for group in self._optimizer.param_groups for one in group["params"]]

    def own(self) -> Options:
        """Return the user's own hyperparameters of each group, as schedules left them."""
        if self._parameter_ids() != self._ids:
            raise ArgumentError(
                "the optimizer has other parameters than when the guard was made: make the guard "
                "after the last parameter group has been added"
            )
        return tuple(
            {name: copied(one) for name, one in group.items() if name not in _PARAMETERS}
            for group in self._optimizer.param_groups
        )

    def largest_momentum(self) -> float:
        """Return the largest of the user's own momenta; 0 for an optimizer without one."""
        if self.knob is None:
            return 0.0
        return max(float(self.knob.get(group)) for group in self._optimizer.param_groups)

    @contextmanager
    def in_force(self, own: Options, candidate: Candidate | None) -> Iterator[None]:
        """Give each group a candidate's momentum and step size; the numbers of now come back.

        Parameters
        ----------
        own
            The user's hyperparameters of the step that is made.
        candidate
            What is lowered, if anything.
        """
        groups, now = self._optimizer.param_groups, self.own()
        try:
            for group, mine in zip(groups, own, strict=True):
                _assign(group, mine if candidate is None else self._lowered(mine, candidate))
            yield
        finally:
            for group, mine in zip(groups, now, strict=True):
                _assign(group, mine)

    def _lowered(self, own: dict[str, Any], candidate: Candidate) -> dict[str, Any]:
        made = dict(own)
        if candidate.lr != 1:
            made["lr"] = own["lr"] * candidate.lr
        if self.knob is not None and candidate.momentum < float(self.knob.get(own)):
            made[self.knob.name] = self.knob.replaced(own, candidate.momentum)
        return made


def _assign(group: dict[str, Any], values: dict[str, Any]) -> None:
    for name, value in values.items():
        group[name] = _written(group.get(name), value)


def _written(held: Any, value: Any) -> Any:
    """Return what a group is to hold; a tensor stays the same one, as compiled steps read it."""
    if isinstance(held, Tensor):
        with torch.no_grad():
            return held.copy_(torch.as_tensor(value))
    if isinstance(held, (tuple, list)) and any(isinstance(one, Tensor) for one in held):
        return type(held)(_written(*pair) for pair in zip(held, value, strict=True))
    return value
