"""A run under guard: what the losses and the optimizer of a training loop show, step by step."""

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
from resonax.guards.report import Event, GuardReport, loss_lost, report_of
from resonax.torch.bursts import Burst
from resonax.torch.checkpoint import Saved
from resonax.torch.forwards import MOST_PASSES, Forwards
from resonax.torch.groups import Groups
from resonax.torch.losses import check_first, check_graph
from resonax.torch.voice import Voice

__all__ = ["Run"]


class Run:
    """State of a guard and what it is fed with: groups, forward passes, bursts; and its voice."""

    def __init__(self, model: Any, optimizer: Any, config: GuardConfig, curvature: str, log: Any):
        self.config, self.state = config, init_guard(config)
        self.groups, self.forwards = Groups(optimizer), Forwards(model)
        self.burst = Burst(self.groups, curvature)
        self.voice = Voice(config, log)
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
        """Keep outputs where the user's loop may need them: in a burst, outside of `Guard.step`."""
        self.forwards.keep(self.probing and self.is_loop)

    def look(self, loss: Tensor) -> None:
        """Look at a loss before its ``backward``."""
        check_graph(loss)
        if not self._begun:
            check_first(loss, self.groups.weights())
            self._begun = True
        self._losses.append(loss.detach())
        outputs = self.forwards.take()
        if not self.probing:
            return
        if outputs is None:
            self._tell_crowded()
            return
        try:
            self.burst.look(loss, outputs, int(self._on().sum()))
        except (RuntimeError, NotImplementedError) as error:
            self._blind = True
            self.burst.stop()
            self.arm()
            start = np.zeros((), int)  # no warm-up either
            self.state = self.state._replace(current=start, advised=start)
            self.voice.tell_blind(str(error).splitlines()[0], self.state)

    def forget(self) -> None:
        """Forget what was seen since the last update."""
        self.burst.forget()
        self.forwards.forget()

    def before_step(self) -> None:
        """Give the optimizer the momentum of this step."""
        place = int(self.state.current)
        self.groups.apply(self.config.candidates[place] if place else None)

    def after_step(self) -> None:
        """Take in the step that the optimizer has made."""
        looks = (int(self.state.step) + 1) % STRIDE == 0
        met = self.burst.advance(self.config.candidates, self._on()) if self.probing else None
        self._missed += self.probing and met is None
        size = self.groups.size() if looks or met is not None else 0.0
        before = self.state
        if math.isfinite(size):
            self.state = update_guard(before, self.config, size, met)
        else:
            self.state = before._replace(step=before.step + 1)
        if looks:
            self._check_losses()
        self._turn(before)
        self.forwards.forget()
        self.arm()
        self.voice.tell(before, self.state, self.burst.period)

    def report(self) -> GuardReport:
        """Return what is known."""
        return report_of(
            self.state,
            self.config,
            momentum=max(self.groups.used),
            own=max(self.groups.own),
            probed=self.burst.probed,
            period=self.burst.period(),
            events=tuple(self.voice.events),
            missed=self._missed,
        )

    def end(self, *, quiet: bool) -> None:
        """Give the optimizer its own momentum; warn if nothing is known of the run."""
        self.is_over = True
        self.groups.apply(None)
        self.arm()
        unseen = self.report().unseen
        if int(self.state.step) == 0:
            unseen = "the guard never saw this run: its optimizer made no step"
        if unseen and not quiet:
            self.voice.tell_unseen(unseen, self.state)

    def save(self) -> Saved:
        """Return all that a resumed run needs."""
        return Saved(
            state=self.state,
            candidates=self.config.candidates,
            own=list(self.groups.own),
            used=list(self.groups.used),
            shadows=self.burst.tensors(),
            met=[list(row) for row in self.burst.met],
            events=list(self.voice.events),
            probed=self.burst.probed,
            missed=self._missed,
            blind=self._blind,
            lost=self._lost,
            losses=[float(loss) for loss in self._losses],
        )

    def load(self, saved: Saved) -> None:
        """Go on from what was saved."""
        self.config = self.config._replace(candidates=saved.candidates)
        self.voice.load(self.config, saved.events)
        self.state = saved.state
        self.groups.own, self.groups.used = saved.own, saved.used
        self.burst.load(saved.shadows, saved.met, saved.probed)
        self._missed, self._blind, self._lost = saved.missed, saved.blind, saved.lost
        self._losses = [torch.tensor(loss) for loss in saved.losses]
        self.before_step()
        self.arm()

    def follow(self, other: Run) -> None:
        """Take over from another run, of which this is a copy, what is not saved."""
        self.burst.follow(other.burst)
        self._begun, self._crowded, self.is_loop = other._begun, other._crowded, other.is_loop
        self.arm()

    def _on(self) -> np.ndarray:
        return np.asarray(active(self.state, self.config))

    def _check_losses(self) -> None:
        losses, self._losses = self._losses, []
        if self._lost or all(math.isfinite(float(loss)) for loss in losses):
            return
        self._lost = True
        self.voice.warn(loss_lost(self.state), self.state)

    def _tell_crowded(self) -> None:
        if not self._crowded:
            text = (
                f"more than {MOST_PASSES} forward passes came before this loss, and such steps are "
                "not followed; use guard.step(closure), and torch.no_grad() for other passes"
            )
            self.voice.warn(Event(int(self.state.step), "crowded", text), self.state)
        self._crowded = True

    def _turn(self, before: GuardState) -> None:
        """Begin with fresh shadows where others are followed from now on."""
        after = self.state
        if not (is_probing(before) or after.begins or int(after.current) != int(before.current)):
            return
        ons = [active(state, self.config).tolist() for state in (before, after)]
        if after.begins or ons[0] != ons[1]:
            self.burst.shadows = None
        if after.begins:
            self.burst.met = []
