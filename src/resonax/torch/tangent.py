"""The instrument that follows the tangent dynamics: growth rates of momenta along a run of SGD."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from resonax.core.errors import ArgumentError, suggest
from resonax.guards.guard import GuardConfig
from resonax.guards.learner import Candidate
from resonax.guards.policy import checked_policy
from resonax.guards.report import GuardReport
from resonax.guards.schedule import Plan
from resonax.guards.shadows import checked_candidates
from resonax.torch.checkpoint import as_dict, from_dict
from resonax.torch.groups import Groups, check_optimizer, check_ownership
from resonax.torch.guarded_run import GuardedRun
from resonax.torch.losses import check_closure, check_no_backward

__all__ = ["TangentInstrument"]

_CURVATURES = ("gauss-newton", "hessian")


class TangentInstrument:
    """Follow shadows of a run, see `resonax.torch.Guard` for the options."""

    averaged = None

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        policy: str,
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
        check_optimizer(optimizer)
        if curvature not in _CURVATURES:
            raise suggest("curvature", str(curvature), _CURVATURES)
        check_ownership(model, optimizer, curvature)
        plan = Plan(min(budget, 1e9), burst, search, warmup).checked()
        largest = max(Groups(optimizer).own)  # pyrefly: ignore[bad-argument-type]
        kept = tuple(one for one in checked_candidates(candidates, largest) if one <= largest)
        config = GuardConfig(checked_policy(policy), kept, plan)
        self._given = None if candidates is None else {float(one) for one in candidates}
        self._optimizer, self._scaler = optimizer, scaler
        self.run = GuardedRun(model, optimizer, config, curvature, log)
        self.run.groups.apply(None)
        self.run.arm()

    @property
    def momentum(self) -> float:
        return max(self.run.groups.used)

    @property
    def setting(self) -> Candidate:
        return Candidate(self.momentum)

    @property
    def probing(self) -> bool:
        return self.run.probing

    def step(self, loss_fn: Callable[..., Tensor], parts: Sequence[tuple[Any, ...]]) -> Tensor:
        check_closure(loss_fn)
        run, total = self.run, None
        run.is_loop = False
        self._optimizer.zero_grad()
        run.discard()
        for part in parts:
            with run.outputs.recording_all(run.probing):
                loss = loss_fn(*part)
            if total is None:
                check_no_backward(run.groups.weights())
            run.observe(loss)
            (loss if self._scaler is None else self._scaler.scale(loss)).backward()
            total = loss.detach() if total is None else total + loss.detach()
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        assert total is not None
        return total

    def observe(self, loss: Tensor) -> None:
        self.run.is_loop = True
        self.run.observe(loss)

    def forget(self) -> None:
        self.run.discard()

    def before_step(self) -> None:
        self.run.before_step()

    def after_step(self) -> None:
        self.run.after_step()

    def offered(self) -> None:
        return None

    def report(self) -> GuardReport:
        return self.run.report()

    def state_dict(self) -> dict[str, Any]:
        return as_dict(self.run.save())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        run = self.run
        saved = from_dict(
            state, run.config, run.groups.weights(), len(self._optimizer.param_groups)
        )
        first, *others = saved.candidates
        if self._given is not None and {one for one in self._given if one < first} != {*others}:
            raise ArgumentError(
                f"this guard has the candidates {list(run.config.candidates)}, "
                f"the saved one {list(saved.candidates)}"
            )
        run.load(saved)

    def copy_rest(self, other: TangentInstrument) -> None:
        self.run.copy_rest(other.run)

    def end(self, *, quiet: bool) -> None:
        self.run.end(quiet=quiet)
