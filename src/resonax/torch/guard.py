"""A guard around the training loop of a torch module."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NoReturn, Self

import torch
from torch import Tensor

from resonax.checks import ArgumentError, suggest
from resonax.guards.guard import GuardConfig
from resonax.guards.policy import checked_policy
from resonax.guards.report import GuardReport
from resonax.guards.schedule import Plan
from resonax.guards.shadows import checked_candidates
from resonax.torch.checkpoint import as_dict, from_dict
from resonax.torch.groups import Groups, check_optimizer, check_ownership
from resonax.torch.guarded_run import GuardedRun
from resonax.torch.losses import check_closure, check_no_backward

__all__ = ["Guard"]

_CURVATURES = ("gauss-newton", "hessian")
_GUARDED = "_resonax_guarded"  # attribute of an optimizer


class Guard:
    r"""Watch the training of a module, and lower the momentum where the data make it resonate.

    For each candidate momentum :math:`\mu_j` a shadow :math:`(u, v)` follows the tangent dynamics
    of the optimizer along the batches of the run, for SGD with momentum

    .. math:: v \gets \mu_j v - H_k u, \qquad u \gets u + \eta v ,

    with the Gauss-Newton matrix :math:`H_k` of the batch. The mean logarithm of its growth is the
    rate of that momentum on these data. Shadows are followed in bursts only, see ``budget``.

    An optimizer has one guard at a time. ``with Guard(...) as guard`` closes it at the end.
    ``copy.deepcopy((model, optimizer, guard))`` is a second run with a guard of its own; a copy or
    a file of the model alone knows nothing of the guard.

    Parameters
    ----------
    model
        The module whose outputs the loss depends on.
    optimizer
        `torch.optim.SGD` of its parameters.
    policy
        ``safe`` lowers the momentum to the largest candidate that decays, and raises it again,
        each with a line of the logger ``resonax``; ``watch`` warns where ``safe`` would lower it,
        and changes nothing; ``fastest`` moves to the candidate that decays fastest.
    candidates
        Momenta to compare; by default the user's own and smaller ones down to 0.
    budget
        Extra work for each step, in steps, as long as nothing is wrong. ``math.inf`` follows
        shadows in every step.
    burst, search
        Steps in which the momentum in use is followed, and all candidates after an alarm. In a
        burst the guard holds two copies of the parameters for each candidate that it follows.
    warmup
        Steps at the start, 0 or at least 96, in which all candidates are followed while ``safe``
        and ``fastest`` train with a small momentum (0.75 for 0.95); then they change to the largest
        one that does not seem to grow. For networks that are trained from scratch, and for runs
        that must not oscillate even once. Each of these steps costs as much as 10 to 15 others.
    curvature
        ``gauss-newton``, or ``hessian`` for models whose loss is not made of their outputs.
    log
        Called with a dictionary of numbers after each burst and at each event; an error in it is
        reported once and does not end the training.
    scaler
        A `torch.amp.GradScaler`, used by `step`.

    Attributes
    ----------
    model, optimizer
        Those that are guarded.

    Examples
    --------
    >>> import math
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
        check_ownership(model, optimizer, curvature)
        plan = Plan(min(budget, 1e9), burst, search, warmup).checked()
        largest = max(Groups(optimizer).own)  # pyright: ignore[reportArgumentType]
        kept = tuple(one for one in checked_candidates(candidates, largest) if one <= largest)
        config = GuardConfig(checked_policy(policy), kept, plan)
        self._given = None if candidates is None else {float(one) for one in candidates}
        self._scaler = scaler
        self._attach(model, optimizer, GuardedRun(model, optimizer, config, curvature, log))
        self._run.groups.apply(None)
        self._run.arm()

    def _attach(self, model: Any, optimizer: Any, run: GuardedRun) -> None:
        if getattr(optimizer, _GUARDED, False):
            raise ArgumentError("this optimizer has a guard already; close() that one first")
        self.model, self.optimizer, self._run = model, optimizer, run
        self._hooks = [
            optimizer.register_step_pre_hook(lambda *_: run.before_step()),
            optimizer.register_step_post_hook(lambda *_: run.after_step()),
        ]
        setattr(optimizer, _GUARDED, True)  # no part of its copies, nor of its state_dict

    @property
    def momentum(self) -> float:
        """The largest momentum in use."""
        return max(self._run.groups.used)

    @property
    def probing(self) -> bool:
        """Whether the next step is part of a burst."""
        return self._run.probing

    def step(self, closure: Callable[[], Tensor]) -> Tensor:
        """Make one guarded step of training: zero the gradients, differentiate, update.

        Parameters
        ----------
        closure
            Returns the loss of the batch; it is called once, and must not call ``backward``.
        """
        check_closure(closure)
        run = self._opened()
        run.is_loop = False
        self.optimizer.zero_grad()
        run.discard()
        with run.outputs.recording_all(run.probing):
            loss = closure()
        check_no_backward(run.groups.weights())
        run.observe(loss)
        if self._scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self._scaler.scale(loss).backward()
            self._scaler.step(self.optimizer)
            self._scaler.update()
        return loss.detach()

    def observe(self, loss: Tensor) -> None:
        """Observe a loss before its ``backward``, in a loop that steps the optimizer itself.

        For gradient accumulation call it for each part, with the loss as it is differentiated but
        before any `GradScaler` scales it. A loss made of more than 16 forward passes needs `step`.
        """
        run = self._opened()
        run.is_loop = True
        run.observe(loss)

    def forget(self) -> None:
        """Discard what was observed since the last update, as of a step that a scaler skipped."""
        self._run.discard()

    def report(self) -> GuardReport:
        """Return what is known of the run; print it, or take ``to_dict()``."""
        return self._run.report()

    def close(self) -> None:
        """Remove all hooks, and give the optimizer the user's own momentum again.

        Warns if no rate is known.
        """
        self._end(quiet=False)

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._end(quiet=kind is not None)

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs; plain numbers, lists and tensors."""
        return as_dict(self._run.save())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; a state that does not fit is refused, and nothing changes.

        The candidates are the saved ones, which follow from the momentum with which the run began;
        where some were given to this guard they must be the same.
        """
        run = self._opened()
        groups = len(self.optimizer.param_groups)
        saved = from_dict(state, run.config, run.groups.weights(), groups)
        first, *others = saved.candidates
        if self._given is not None and {one for one in self._given if one < first} != {*others}:
            raise ArgumentError(
                f"this guard has the candidates {list(run.config.candidates)}, "
                f"the saved one {list(saved.candidates)}"
            )
        run.load(saved)

    def __deepcopy__(self, memo: dict[int, Any]) -> Guard:
        """Return a guard of the copies of the model and the optimizer, with the same log."""
        made = object.__new__(type(self))
        memo[id(self)] = made
        model, optimizer = (copy.deepcopy(part, memo) for part in (self.model, self.optimizer))
        made._scaler, made._given = copy.deepcopy(self._scaler, memo), self._given
        old = self._run
        run = GuardedRun(model, optimizer, old.config, old.burst.curvature, old.events.log)
        made._attach(model, optimizer, run)
        made.load_state_dict(self.state_dict())
        run.copy_rest(old)
        if old.is_over:
            made._end(quiet=True)
        return made

    def __copy__(self) -> NoReturn:
        raise ArgumentError(
            "two guards cannot share a run; copy all of it, "
            "copy.deepcopy((model, optimizer, guard))"
        )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise ArgumentError(
            "a guard cannot be pickled: save guard.state_dict() next to those of the model and the "
            "optimizer, and load it into a new guard"
        )

    def _opened(self) -> GuardedRun:
        if self._run.is_over:
            raise ArgumentError("this guard is closed; make a new one")
        return self._run

    def _end(self, *, quiet: bool) -> None:
        if self._run.is_over:
            return
        for hook in self._hooks:
            hook.remove()
        delattr(self.optimizer, _GUARDED)
        self._run.end(quiet=quiet)
