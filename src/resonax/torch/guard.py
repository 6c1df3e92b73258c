"""A guard around the training loop of a torch module."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resonax.checks import ArgumentError, suggest
from resonax.diagnostics.duty import Plan
from resonax.diagnostics.guard import (
    Rules,
    Watched,
    active,
    as_lists,
    begin,
    from_lists,
    is_probing,
    observe,
)
from resonax.diagnostics.guard_report import Event, GuardReport, loss_lost, report_of
from resonax.diagnostics.passive import STRIDE
from resonax.diagnostics.policy import checked_policy
from resonax.diagnostics.shadows import checked_candidates
from resonax.torch.bursts import Burst
from resonax.torch.groups import Groups, check_optimizer
from resonax.torch.voice import Voice

__all__ = ["Guard"]

_CURVATURES = ("gauss-newton", "hessian")


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
    warmup
        Steps at the start, 0 or at least 96, in which all candidates are followed while ``safe``
        and ``fastest`` train with a small momentum (0.75 for 0.95); then they take up the largest
        one that does not seem to grow. For networks that are trained from scratch, and for runs
        that must not swing even once. Each of these steps takes as long as ten to fifteen others.
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
        warmup: int = Plan().warmup,
        curvature: str = "gauss-newton",
        log: Callable[[dict[str, Any]], object] | None = None,
        scaler: Any = None,
    ):
        check_optimizer(model, optimizer)
        if curvature not in _CURVATURES:
            raise suggest("curvature", str(curvature), _CURVATURES)
        plan = Plan(min(budget, 1e9), burst, search, warmup).checked()
        self._groups = Groups(optimizer)  # pyright: ignore[reportArgumentType]
        own = checked_candidates(candidates, max(self._groups.own))
        own = tuple(number for number in own if number <= max(self._groups.own))
        self._rules = Rules(checked_policy(policy), own, plan)
        self._optimizer, self._scaler = optimizer, scaler
        self._state = begin(self._rules)
        self._burst = Burst(self._groups, curvature)
        self._voice = Voice(self._rules, log)
        self._losses: list[Tensor] = []
        self._blind, self._lost = False, False
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
        self.forget()
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
        outputs = self._burst.outputs()
        if not self.probing:
            return
        if not loss.requires_grad:
            raise ArgumentError("observe needs the loss before backward, with its graph")
        try:
            self._burst.look(loss, outputs, int(self._on().sum()))
        except (RuntimeError, NotImplementedError) as error:
            self._blind = True
            self._burst.stop()
            self._state = self._state._replace(current=np.zeros((), int))  # no warm-up either
            self._voice.tell_blind(str(error).splitlines()[0], self._state)

    def forget(self) -> None:
        """Forget what was observed since the last update, as of a step that a scaler skipped."""
        self._burst.forget()

    def report(self) -> GuardReport:
        """Return what is known of the run; print it, or take ``to_dict()``."""
        return report_of(
            self._state,
            self._rules,
            momentum=self.momentum,
            own=max(self._groups.own),
            probed=self._burst.probed,
            period=self._burst.period(),
            events=tuple(self._voice.events),
        )

    def close(self) -> None:
        """Let go of the module and the optimizer, with the momentum that the user gave them."""
        self._groups.apply(None)
        for hook in self._hooks:
            hook.remove()

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs; plain numbers, lists and tensors."""
        return {
            "state": as_lists(self._state),
            "candidates": list(self._rules.candidates),
            "own": list(self._groups.own),
            "used": list(self._groups.used),
            "shadows": self._burst.tensors(),
            "met": [list(row) for row in self._burst.met],
            "events": [vars(event) for event in self._voice.events],
            "flags": [self._burst.probed, self._blind, self._lost],
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
        self._burst.load(state["shadows"])
        self._burst.met = [list(row) for row in state["met"]]
        self._voice.events = [Event(**event) for event in state["events"]]
        self._burst.probed, self._blind, self._lost = state["flags"]
        self._losses = [torch.tensor(loss) for loss in state["losses"]]

    def _on(self) -> np.ndarray:
        return np.asarray(active(self._state, self._rules))

    def _forwarded(self, module: torch.nn.Module, inputs: Any, outputs: Any) -> None:
        del module, inputs
        if self.probing and torch.is_grad_enabled():
            self._burst.saw(outputs)

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        del optimizer, args, kwargs
        place = int(self._state.current)
        self._groups.apply(self._rules.candidates[place] if place else None)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        del optimizer, args, kwargs
        looks = (int(self._state.step) + 1) % STRIDE == 0
        met = self._burst.advance(self._rules.candidates, self._on()) if self.probing else None
        size = self._groups.size() if looks or met is not None else 0.0
        before = self._state
        if math.isfinite(size):
            self._state = observe(before, self._rules, size, met)
        else:
            self._state = before._replace(step=before.step + 1)
        if looks:
            self._check_losses()
        self._turn(before)
        self._voice.tell(before, self._state, self._burst.period)

    def _check_losses(self) -> None:
        losses, self._losses = self._losses, []
        if self._lost or all(math.isfinite(float(loss)) for loss in losses):
            return
        self._lost = True
        self._voice.warn(loss_lost(self._state), self._state)

    def _turn(self, before: Watched) -> None:
        """Begin with fresh shadows where others are followed from now on."""
        after = self._state
        if not (is_probing(before) or after.begins or int(after.current) != int(before.current)):
            return
        ons = [active(state, self._rules).tolist() for state in (before, after)]
        if after.begins or ons[0] != ons[1]:
            self._burst.shadows = None
        if after.begins:
            self._burst.met = []
