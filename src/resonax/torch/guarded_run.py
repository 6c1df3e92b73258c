"""A guarded run: the state of a guard, updated from the losses and steps of a training loop."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from resonax.guards.alarm import STRIDE
from resonax.guards.guard import GuardConfig, GuardState, active, is_probing
from resonax.guards.guard import init as init_guard
from resonax.guards.guard import update as update_guard
from resonax.guards.order_proof import unwatched_momentum
from resonax.guards.report import (
    Event,
    GuardReport,
    change,
    loss_lost,
    numbers_of,
    report_of,
    resonance,
)
from resonax.torch.bursts import Burst
from resonax.torch.checkpoint import Saved
from resonax.torch.events import EventLog
from resonax.torch.groups import Groups
from resonax.torch.losses import check_first, check_graph
from resonax.torch.outputs import MOST_PASSES, OutputRecorder

__all__ = ["GuardedRun"]


class GuardedRun:
    """State of a guard, with the parameter groups, outputs, shadows and events that it needs."""

    def __init__(self, model: Any, optimizer: Any, config: GuardConfig, curvature: str, log: Any):
        self.config, self.state = config, init_guard(config)
        self.groups, self.outputs = Groups(optimizer), OutputRecorder(model)
        self.burst = Burst(self.groups, curvature)
        self.events = EventLog(log)
        self.is_loop = True  # whether the user's loop steps the optimizer, as far as is known
        self.is_over = False
        self._losses: list[Tensor] = []
        self._missed = 0  # steps of bursts without a loss
        self._begun, self._blind, self._lost, self._crowded = False, False, False, False

    @property
    def probing(self) -> bool:
        """Whether the next step is part of a burst."""
        return is_probing(self.state) and not self._blind and not self.is_over

    def arm(self) -> None:
        """Record outputs where they may be needed: in a burst, outside of `Guard.step`."""
        self.outputs.record(self.probing and self.is_loop)

    def observe(self, loss: Tensor) -> None:
        """Observe a loss before its ``backward``."""
        check_graph(loss)
        if not self._begun:
            check_first(loss, self.groups.weights())
            self._begun = True
        self._losses.append(loss.detach())
        outputs = self.outputs.take()
        if not self.probing:
            return
        if outputs is None:
            self._warn_crowded()
            return
        try:
            self.burst.observe(loss, outputs, int(self._on().sum()))
        except (RuntimeError, NotImplementedError) as error:
            self._blind = True
            self.burst.stop()
            self.arm()
            start = np.zeros((), int)  # no warm-up either
            self.state = self.state._replace(current=start, advised=start)
            self._warn_blind(str(error).splitlines()[0])

    def discard(self) -> None:
        """Discard what was observed since the last update.

        Not the outputs: Lightning sets gradients to zero between a forward pass and its loss.
        """
        self.burst.discard()

    def before_step(self) -> None:
        """Give the optimizer the momentum of this step."""
        place = int(self.state.current)
        self.groups.apply(self.config.candidates[place] if place else None)

    def after_step(self) -> None:
        """Update the state with the step that the optimizer has made."""
        is_sampled = (int(self.state.step) + 1) % STRIDE == 0
        found = self.burst.advance(self.config.candidates, self._on()) if self.probing else None
        self._missed += self.probing and found is None
        size = self.groups.size() if is_sampled or found is not None else 0.0
        before = self.state
        if math.isfinite(size):
            self.state = update_guard(before, self.config, size, found)
        else:
            self.state = before._replace(step=before.step + 1)
        if is_sampled:
            self._check_losses()
        self._restart_shadows(before)
        self.outputs.clear()
        self.arm()
        self._report_step(before)

    def report(self) -> GuardReport:
        """Return what is known."""
        return report_of(
            self.state,
            self.config,
            momentum=max(self.groups.used),
            own=max(self.groups.own),
            probed=self.burst.probed,
            period=self.burst.period(),
            events=tuple(self.events.events),
            missed=self._missed,
            largest_curvature=self.burst.largest_curvature(),
            unwatched=self._unwatched(),
        )

    def _unwatched(self) -> float | None:
        """Return the momentum that is safe in every order, of the group with the largest steps."""
        curvature = self.burst.largest_curvature()
        if curvature is None:
            return None
        found = [
            unwatched_momentum(
                float(group["lr"])
                * (1 - float(group["dampening"]))
                * (curvature + float(group["weight_decay"])),
                nesterov=bool(group["nesterov"]),
            )
            for group in self.groups.optimizer.param_groups
        ]
        return None if None in found else min(one for one in found if one is not None)

    def end(self, *, quiet: bool) -> None:
        """Give the optimizer its own momentum; warn if nothing is known of the run."""
        self.is_over = True
        self.groups.apply(None)
        self.arm()
        unseen = self.report().unseen
        if int(self.state.step) == 0:
            unseen = "the guard never saw this run: its optimizer made no step"
        if unseen and not quiet:
            self._warn("unseen", unseen, step=False)

    def save(self) -> Saved:
        """Return all that a resumed run needs."""
        return Saved(
            state=self.state,
            candidates=self.config.candidates,
            own=list(self.groups.own),
            used=list(self.groups.used),
            shadows=self.burst.tensors(),
            met=[list(row) for row in self.burst.met],
            events=list(self.events.events),
            probed=self.burst.probed,
            missed=self._missed,
            blind=self._blind,
            lost=self._lost,
            losses=[float(loss) for loss in self._losses],
        )

    def load(self, saved: Saved) -> None:
        """Continue from what was saved."""
        self.config = self.config._replace(candidates=saved.candidates)
        self.events.events = saved.events
        self.state = saved.state
        self.groups.own, self.groups.used = saved.own, saved.used
        self.burst.load(saved.shadows, saved.met, saved.probed)
        self._missed, self._blind, self._lost = saved.missed, saved.blind, saved.lost
        self._losses = [torch.tensor(loss) for loss in saved.losses]
        self.before_step()
        self.arm()

    def copy_rest(self, other: GuardedRun) -> None:
        """Copy from another run, of which this is a copy, what is not saved."""
        self.burst.copy_products(other.burst)
        self._begun, self._crowded, self.is_loop = other._begun, other._crowded, other.is_loop
        self.arm()

    def _on(self) -> np.ndarray:
        return np.asarray(active(self.state, self.config))

    def _check_losses(self) -> None:
        losses, self._losses = self._losses, []
        if self._lost or all(math.isfinite(float(loss)) for loss in losses):
            return
        self._lost = True
        self.events.warn(loss_lost(self.state), self._numbers())

    def _numbers(self) -> dict[str, Any]:
        return numbers_of(self.state, self.config)

    def _report_step(self, before: GuardState) -> None:
        """Report what changed in a step."""
        after = self.state
        if int(after.current) != int(before.current):
            event = change(before, after, self.config, self.burst.period())
            self.events.tell(event, self._numbers())
        elif int(after.advised) != int(before.advised):
            event = resonance(before, after, self.config, self.burst.period())
            if event is not None:
                self.events.warn(event, self._numbers())
        if is_probing(before) and not is_probing(after):
            self.events.record(self._numbers())

    def _warn(self, kind: str, text: str, *, step: bool = True) -> None:
        self.events.warn(Event(int(self.state.step), kind, text), self._numbers(), step=step)

    def _warn_blind(self, reason: str) -> None:
        """Warn that the model has no second derivatives."""
        text = (
            f"this model has no second derivatives ({reason}): the guard sees only whether the "
            "run itself grows, and leaves the momentum alone"
        )
        self._warn("blind", text, step=False)

    def _warn_crowded(self) -> None:
        if not self._crowded:
            text = (
                f"more than {MOST_PASSES} forward passes came before this loss, and such steps are "
                "not followed; use guard.step(closure), and torch.no_grad() for other passes"
            )
            self._warn("crowded", text)
        self._crowded = True

    def _restart_shadows(self, before: GuardState) -> None:
        """Start new shadows where other candidates are followed from now on."""
        after = self.state
        has_same = before.schedule.mode == after.schedule.mode and before.current == after.current
        if has_same and not after.begins:
            return
        ons = [active(state, self.config).tolist() for state in (before, after)]
        if after.begins or ons[0] != ons[1]:
            self.burst.shadows = None
        if after.begins:
            self.burst.met = []
