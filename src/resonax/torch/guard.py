"""A guard around the training loop of a torch module."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resonax.checks import ArgumentError, suggest
from resonax.diagnostics.duty import Plan
from resonax.diagnostics.guard import (
    Met,
    Rules,
    Watched,
    active,
    as_lists,
    begin,
    from_lists,
    is_probing,
    observe,
)
from resonax.diagnostics.guard_report import (
    Event,
    GuardReport,
    ResonanceWarning,
    change,
    loss_lost,
    numbers_of,
    report_of,
    resonance,
)
from resonax.diagnostics.passive import STRIDE, period_of
from resonax.diagnostics.policy import checked_policy
from resonax.diagnostics.shadows import Energy, checked_candidates
from resonax.torch.groups import Groups, check_optimizer
from resonax.torch.products import gauss_newton, hessian, outputs_of
from resonax.torch.shadows import Shadows

__all__ = ["Guard"]

_CURVATURES = ("gauss-newton", "hessian")
_REMEMBERED = 1024  # steps of curvature, for the period


class Guard:
    r"""Watch the training of a module, and lower the momentum where the data make it resonate.

    For each candidate momentum :math:`\mu_j` a shadow :math:`(u, v)` follows the tangent dynamics
    of the optimizer along the batches of the run, for SGD with momentum

    .. math:: v \gets \mu_j v - H_k u, \qquad u \gets u + \eta v ,

    with the Gauss-Newton matrix :math:`H_k` of the batch. The mean logarithm of its growth is the
    rate of that momentum on this stream. Shadows are followed in bursts only, see ``budget``.

    Parameters
    ----------
    model
        The module whose outputs the loss depends on.
    optimizer
        `torch.optim.SGD` of its parameters.
    policy
        ``watch`` warns once and changes nothing; ``safe`` lowers the momentum to the largest
        candidate that surely falls, and lets it rise again; ``fastest`` moves to the one that
        falls most.
    candidates
        Momenta to compare; by default the user's own and smaller ones down to 0.
    budget
        Extra work for each step, in steps, as long as nothing is wrong. ``math.inf`` follows
        shadows in every step.
    burst, search
        Length in steps of a look at the momentum in use, and at all candidates after an alarm. In
        a burst the guard holds two copies of the parameters for each candidate that it follows.
    curvature
        ``gauss-newton``, or ``hessian`` for models whose loss is not made of their outputs.
    log
        Called with a dictionary of numbers after each burst and at each event.
    scaler
        A `torch.amp.GradScaler`, used by `step`.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(1, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    >>> guard = Guard(model, optimizer, policy="safe", budget=math.inf)
    >>> for _ in range(400):
    ...     x = torch.randn(8, 1)
    ...     loss = guard.step(lambda: torch.nn.functional.mse_loss(model(x), 3 * x))
    >>> guard.momentum, guard.report().candidates[0].verdict
    (0.9, 'converges')
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        policy: str = "safe",
        *,
        candidates: Any = None,
        budget: float = Plan().budget,
        burst: int = Plan().burst,
        search: int = Plan().search,
        curvature: str = "gauss-newton",
        log: Callable[[dict[str, Any]], object] | None = None,
        scaler: Any = None,
    ):
        check_optimizer(model, optimizer)
        if curvature not in _CURVATURES:
            raise suggest("curvature", str(curvature), _CURVATURES)
        plan = Plan(min(budget, 1e9), burst, search).checked()
        self._groups = Groups(optimizer)  # pyright: ignore[reportArgumentType]
        own = checked_candidates(candidates, max(self._groups.own))
        own = tuple(number for number in own if number <= max(self._groups.own))
        self._rules = Rules(checked_policy(policy), own, plan)
        self._curvature, self._log, self._scaler = curvature, log, scaler
        self._optimizer = optimizer
        self._state = begin(self._rules)
        self._shadows: Shadows | None = None
        self._outputs: list[Tensor] = []
        self._products: list[Tensor] | None = None
        self._losses: list[Tensor] = []
        self._met: list[list[float]] = []  # curvature that each candidate met
        self._events: list[Event] = []
        self._probed, self._blind, self._lost = 0, False, False
        self._hooks = [
            model.register_forward_hook(self._forwarded),
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        ]
        self._groups.apply(None)

    @property
    def momentum(self) -> float:
        """The largest momentum in use."""
        return max(self._groups.used)

    @property
    def probing(self) -> bool:
        """Whether the next step is part of a burst."""
        return is_probing(self._state) and not self._blind

    def step(self, closure: Callable[[], Tensor]) -> Tensor:
        """Make one step of training: zero the gradients, differentiate, update; watched.

        Parameters
        ----------
        closure
            Returns the loss of the batch; it is called once, and must not call ``backward``.
        """
        self._optimizer.zero_grad()
        self._products = None  # of a step that a scaler skipped
        loss = closure()
        self.observe(loss)
        if self._scaler is None:
            loss.backward()
            self._optimizer.step()
        else:
            self._scaler.scale(loss).backward()
            self._scaler.step(self._optimizer)
            self._scaler.update()
        return loss.detach()

    def observe(self, loss: Tensor) -> None:
        """Look at a loss before its ``backward``, in a loop that steps the optimizer itself.

        For gradient accumulation call it for each part, with the loss as it is differentiated but
        before any `GradScaler` scales it.
        """
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise ArgumentError("the loss must be a tensor of one number")
        self._losses.append(loss.detach())
        outputs, self._outputs = self._outputs, []
        if not self.probing:
            return
        if not loss.requires_grad:
            raise ArgumentError("observe needs the loss before backward, with its graph")
        weights = self._groups.weights()
        count = int(self._on().sum())
        try:
            if self._shadows is None or not self._shadows.fits(weights, count):
                self._shadows = Shadows.along(self._direction(loss, weights), count)
            along = self._shadows.places
            if outputs and self._curvature == "gauss-newton":
                made = gauss_newton(loss, outputs, weights, along)
            else:
                made = hessian(loss, weights, along)
        except (RuntimeError, NotImplementedError) as error:
            self._give_up(str(error).splitlines()[0])
            return
        old = self._products
        self._products = made if old is None else [a + b for a, b in zip(old, made, strict=True)]

    def report(self) -> GuardReport:
        """Return what is known of the run; print it, or take ``to_dict()``."""
        return report_of(
            self._state,
            self._rules,
            momentum=self.momentum,
            own=max(self._groups.own),
            probed=self._probed,
            period=self._period(),
            events=tuple(self._events),
        )

    def close(self) -> None:
        """Let go of the module and the optimizer, with the momentum that the user gave them."""
        self._groups.apply(None)
        for hook in self._hooks:
            hook.remove()

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs; plain numbers, lists and tensors."""
        shadows = self._shadows
        return {
            "state": as_lists(self._state),
            "candidates": list(self._rules.candidates),
            "own": list(self._groups.own),
            "used": list(self._groups.used),
            "shadows": None if shadows is None else [shadows.places, shadows.velocities],
            "met": [list(row) for row in self._met],
            "events": [vars(event) for event in self._events],
            "flags": [self._probed, self._blind, self._lost],
            "losses": [float(loss) for loss in self._losses],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`, of a guard with the same candidates."""
        if list(state["candidates"]) != list(self._rules.candidates):
            raise ArgumentError(
                f"this guard has the candidates {list(self._rules.candidates)}, "
                f"the saved one {list(state['candidates'])}"
            )
        self._state = from_lists(state["state"])
        self._groups.own, self._groups.used = list(state["own"]), list(state["used"])
        held = state["shadows"]
        like = self._groups.weights()
        self._shadows = held and Shadows(
            *(
                [part.clone().to(to.device) for part, to in zip(row, like, strict=True)]
                for row in held
            )
        )
        self._met = [list(row) for row in state["met"]]
        self._events = [Event(**event) for event in state["events"]]
        self._probed, self._blind, self._lost = state["flags"]
        self._losses = [torch.tensor(loss) for loss in state["losses"]]

    def _on(self) -> np.ndarray:
        return np.asarray(active(self._state, self._rules))

    def _direction(self, loss: Tensor, weights: list[Tensor]) -> list[Tensor]:
        """Return where the run itself is heading: it carries the direction that grows."""
        found = self._groups.velocities()
        if any(part is None for part in found) or not any(bool(part.any()) for part in found):  # pyright: ignore
            made = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
            found = [
                torch.zeros_like(weight) if part is None else part
                for part, weight in zip(made, weights, strict=True)
            ]
        return [part.detach() for part in found if part is not None]

    def _forwarded(self, module: torch.nn.Module, inputs: Any, outputs: Any) -> None:
        del module, inputs
        if self.probing and torch.is_grad_enabled():
            self._outputs += outputs_of(outputs)

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        del optimizer, args, kwargs
        place = int(self._state.current)
        self._groups.apply(self._rules.candidates[place] if place else None)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        del optimizer, args, kwargs
        looks = (int(self._state.step) + 1) % STRIDE == 0
        met = self._followed()
        size = self._groups.size() if looks or met is not None else 0.0
        before = self._state
        if math.isfinite(size):
            self._state = observe(before, self._rules, size, met)
        else:
            self._state = before._replace(step=before.step + 1)
        if looks:
            self._check_losses()
        self._tell(before)

    def _followed(self) -> Met | None:
        products, self._products, self._outputs = self._products, None, []
        if not self.probing or products is None or self._shadows is None:
            return None
        on = self._on()
        candidates = np.asarray(self._rules.candidates)[on]
        each = self._groups.gains(candidates, bool(on[0]))
        part = self._shadows.advance(products, each)
        if not all(np.isfinite(row).all() for row in (*part.before, *part.after, part.curvature)):
            self._shadows = None
            return None
        self._probed += 1
        self._met = [*self._met[1 - _REMEMBERED :], _wide(part.curvature, on).tolist()]

        def wide(energy: Energy) -> Energy:
            return Energy(*(_wide(row, on) for row in energy))

        return Met(wide(part.before), wide(part.after), _wide(part.curvature, on))

    def _period(self) -> float | None:
        if not self._met:
            return None
        met = np.asarray(self._met)
        seen = np.isfinite(met).all(axis=0)
        # The shadow of the smallest momentum turns least, so that it shows the stream's rhythm.
        return period_of(met[:, np.flatnonzero(seen)[-1]]) if seen.any() else None

    def _tell(self, before: Watched) -> None:
        """Speak of what changed in this step."""
        after = self._state
        moved = int(after.current) != int(before.current)
        if not (is_probing(before) or after.begins or moved):
            return
        ons = [active(state, self._rules).tolist() for state in (before, after)]
        if after.begins or ons[0] != ons[1]:
            self._shadows = None
        if after.begins:
            self._met = []
        if moved:
            self._add(change(before, after, self._rules, self._period()))
        elif self._rules.policy == "watch" and is_probing(before):
            self._watch()
        if is_probing(before) and not is_probing(after):
            self._record()

    def _watch(self) -> None:
        if any(event.kind == "resonance" for event in self._events):
            return
        event = resonance(self._state, self._rules, self._period())
        if event is not None:
            self._add(event)
            warnings.warn(f"step {event.step}: {event.text}", ResonanceWarning, stacklevel=6)

    def _check_losses(self) -> None:
        losses, self._losses = self._losses, []
        if self._lost or not losses:
            return
        if all(math.isfinite(float(loss)) for loss in losses):
            return
        self._lost = True
        event = loss_lost(self._state)
        self._add(event)
        warnings.warn(f"step {event.step}: {event.text}", ResonanceWarning, stacklevel=5)

    def _give_up(self, reason: str) -> None:
        self._blind, self._shadows, self._products = True, None, None
        text = (
            f"this model has no second derivatives ({reason}): the guard sees only whether the "
            "run itself grows, and leaves the momentum alone"
        )
        self._add(Event(int(self._state.step), "blind", text))
        warnings.warn(text, ResonanceWarning, stacklevel=3)

    def _add(self, event: Event) -> None:
        self._events.append(event)
        self._record({"event": event.text})

    def _record(self, extra: dict[str, Any] | None = None) -> None:
        if self._log is not None:
            self._log(numbers_of(self._state, self._rules) | (extra or {}))


def _wide(numbers: np.ndarray, on: np.ndarray) -> np.ndarray:
    made = np.full(len(on), np.nan)
    made[on] = numbers
    return made
