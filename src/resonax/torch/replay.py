"""The instrument that rewinds a run and trains it again: any module, any optimizer of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from resonax.checks import ArgumentError
from resonax.guards import ladder as ladders
from resonax.guards import replay
from resonax.guards.decision_log import Judged, record
from resonax.guards.learner import Candidate, default_candidates
from resonax.guards.replay_report import ReplayReport, event_of, replay_report
from resonax.guards.report import Event
from resonax.guards.rhythm import dominant_period
from resonax.torch.average import average_of, does_better
from resonax.torch.batches import KeptBatch, byte_size, can_mix, copied, tensors_of
from resonax.torch.events import EventLog
from resonax.torch.learner import TorchLearner, checked_optimizer
from resonax.torch.replay_checkpoint import load_guard, save_guard, with_loss

__all__ = ["ReplayInstrument", "check_call"]

_AVERAGE = 8  # steps between two terms of the average
_SEEN = 16  # numbers of a batch that its rhythm is looked for in
_ROWS = 128  # least rows of the reservoir
_COPIES = 3  # of the model that a replay holds for a while
_SHOWN = "guard.step(lambda x, y: loss_fn(model(x), y), x, y)"


class ReplayInstrument:
    """Rewind a run and train it again, see `resonax.torch.Guard` for the options."""

    probing = False

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        policy: str,
        *,
        candidates: Iterable[float | Candidate] | None = None,
        mix: bool = True,
        budget: float = 0.02,
        memory: int = 2**28,
        spacing: int = 32,
        average: bool = False,
        scaler: Any = None,
        transform: Callable[[], object] | None = None,
        log: Callable[[dict[str, Any]], object] | None = None,
        knob: str | tuple[str, int] | None = None,
        snapshots: str = "device",
        seed: int = 0,
    ):
        checked_optimizer(model, optimizer)
        self._learner = TorchLearner(model, optimizer, scaler, transform, knob, snapshots)
        own = self._learner.largest_momentum()
        given = None if candidates is None else [_candidate(one) for one in candidates]
        made = default_candidates(own, mix=mix) if given is None else (Candidate(own), *given)
        self._config = replay.ReplayConfig(
            made, policy=policy, budget=budget, memory=memory, spacing=spacing, seed=seed
        ).checked()
        self._state = replay.init(self._config)
        self._losses: tuple[float, ...] = ()
        self._log = EventLog(log)
        self._peak = 0
        self._judged: tuple[Judged, ...] = ()
        self._is_loaded, self._is_stepping, self._is_pending = False, False, False
        self._ended_period: float | None = None
        self.averaged = average_of(model) if average else None

    @property
    def momentum(self) -> float:
        return self.setting.momentum

    @property
    def setting(self) -> Candidate:
        return self._config.candidates[self._state.place]

    def before_step(self) -> None:
        if not self._is_stepping:
            raise ArgumentError(
                "a guard that replays makes the steps itself, and would not see this one: write "
                f"{_SHOWN} in place of zero_grad, backward and optimizer.step(), or give "
                'instrument="tangent", which follows a loop of your own'
            )

    def after_step(self) -> None:
        pass

    def observe(self, loss: Tensor) -> None:
        raise ArgumentError(f"a guard that replays needs the batch, not the loss: write {_SHOWN}")

    def forget(self) -> None:
        raise ArgumentError("a guard that replays has nothing to forget: it makes the steps itself")

    def step(self, loss_fn: Callable[..., Tensor], parts: Sequence[tuple[Any, ...]]) -> Tensor:
        check_call(loss_fn, parts)
        self._is_stepping = True
        try:
            return self._step(loss_fn, parts)
        finally:
            self._is_stepping = False

    def _resume(self, loss_fn: Callable[..., Tensor]) -> None:
        """Give the batches of a loaded state their loss function; finish what was interrupted."""
        if self._is_loaded:
            self._state, self._is_loaded = with_loss(self._state, loss_fn), False
        self._finish()

    def _step(self, loss_fn: Callable[..., Tensor], parts: Sequence[tuple[Any, ...]]) -> Tensor:
        learner = self._learner
        self._resume(loss_fn)
        given = (*parts[:-1], copied(parts[-1]))  # those before are copies already
        kept = learner.keep(loss_fn, given)
        config = self._check_batch(kept)
        state = replay.before_step(self._state, config, learner, kept)
        used = config.candidates[state.place]
        learner.set(used)
        count = len(state.ladder.batches)
        loss = learner.step(replay.trained_on(state, config, learner, used, count))
        self._state, self._is_pending = replay.count_step(state, config, loss), True
        self._finish()
        return loss

    def _finish(self) -> None:
        """Look at the run and do what is due after a step.

        An exception leaves the run as it was after the step, and before the next one all of this is
        done again: a run that was interrupted here goes on as if it had not been.
        """
        if not self._is_pending:
            return
        learner, config, before = self._learner, self._config, self._state
        if replay.is_marked(before, config) or replay.is_due(before, config):
            random = learner.random_state()
            try:
                self._state, judged = record(before, config, learner)
            finally:
                learner.set_random_state(random)  # the user's own random numbers go on as they were
            self._judged = (*self._judged, *judged)
            self._measure(acted=True)
        self._is_pending = False
        if before.step % config.spacing == 0:
            self._losses = (*self._losses, before.recent[-1])
            self._measure(acted=False)
        for decision in self._state.decisions[len(before.decisions) :]:
            self._report(event_of(decision, config.policy, self._period()))
        if self.averaged is None:
            return
        if self._state.place != before.place and self.offered() is None:
            self.averaged = average_of(learner.model)
        if before.step % _AVERAGE == 0:
            self.averaged.update_parameters(learner.model)

    def _report(self, event: Event) -> None:
        used = self.setting
        numbers = {"momentum": used.momentum, "lr_factor": used.lr, "is_mixed": used.is_mixed}
        say = self._log.warn if event.kind == "resonance" else self._log.tell
        say(event, {"step": event.step, **numbers})

    def _check_batch(self, kept: KeptBatch) -> replay.ReplayConfig:
        """Return the configuration, which follows from the rows of the first batch.

        `ArgumentError` where rows cannot be told apart, or not be mixed with those before.
        """
        batches = self._state.ladder.batches
        if not can_mix((*batches[-1:], kept)):
            what = "the rows of this batch have another shape than those before and cannot be mixed"
            if not can_mix([kept]):
                what = (
                    "the rows of this batch cannot be told apart, as its tensors differ in length"
                )
            raise ArgumentError(
                f"{what}; give tensors of one row for each example, padded to one shape"
            )
        if self._state.step == 0:
            rows = sum(len(tensors_of(part)[0]) for part in kept.parts)
            reservoir = max(self._config.reservoir, -(-_ROWS // rows))
            self._config = replace(self._config, reservoir=reservoir)
        return self._config

    def _measure(self, *, acted: bool) -> None:
        """Note the most bytes that snapshots and batches took, and a replay on top of them."""
        ladder, reservoir = self._state.ladder, self._state.reservoir
        inside = {id(one.parts) for one in ladder.batches}
        outside = sum(byte_size(one) for one in reservoir if id(one.parts) not in inside)
        copies = [one.saved.size for one in ladder.snapshots]
        extra = _COPIES * copies[-1] if acted else 0
        self._peak = max(self._peak, ladder.size + outside + sum(copies) + extra)

    def _period(self) -> float | None:
        """Return the rhythm of the inputs that are kept."""
        batches = self._state.ladder.batches
        if not batches:
            return self._ended_period
        rows = [_summary(batch) for batch in batches]
        return dominant_period(np.stack(rows))

    def offered(self) -> AveragedModel | None:
        average, reservoir = self.averaged, self._state.reservoir
        if average is None or not does_better(average, self._learner, reservoir):
            return None
        return average

    def report(self) -> ReplayReport:
        return replay_report(
            self._state,
            self._config,
            memory=self._peak,
            period=self._period(),
            losses=self._losses,
            events=tuple(self._log.events),
            judged=self._judged,
        )

    def state_dict(self) -> dict[str, Any]:
        made = save_guard(self._state, self._losses, tuple(self._log.events), self._peak)
        rest = {"reservoir": self._config.reservoir, "is_pending": self._is_pending}
        return made | rest | {"judged": [tuple(one) for one in self._judged]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        loaded = load_guard(state, self._config, self._learner)
        self._state, self._losses, events, self._peak = loaded
        self._log.events = list(events)
        self._config = replace(self._config, reservoir=state["reservoir"])
        self._judged = tuple(Judged(*one) for one in state["judged"])
        self._is_loaded, self._is_pending = True, state["is_pending"]

    def copy_rest(self, other: ReplayInstrument) -> None:
        self._ended_period = other._ended_period
        if self.averaged is not None and other.averaged is not None:
            self.averaged.load_state_dict(other.averaged.state_dict())

    def end(self, *, quiet: bool) -> None:
        """Keep what was decided, and let go of snapshots and batches."""
        if self._state.step == 0 and not quiet:
            text = f"the guard never saw this run: it made no step; train with {_SHOWN}"
            self._log.warn(Event(0, "unseen", text), {"step": 0}, step=False)
        self._ended_period = self._period()
        self._state = replace(self._state, ladder=ladders.EMPTY, reservoir=(), marked=())


def _candidate(given: float | Candidate) -> Candidate:
    return given if isinstance(given, Candidate) else Candidate(float(given))


def check_call(loss_fn: object, parts: Sequence[tuple[Any, ...]]) -> None:
    """Raise `ArgumentError` for what cannot be trained on again."""
    if isinstance(loss_fn, Tensor) or not callable(loss_fn):
        raise ArgumentError(
            f"guard.step takes a function of the batch and the batch, such as {_SHOWN}, "
            f"not a {type(loss_fn).__name__}"
        )
    if not all(map(tensors_of, parts)):
        raise ArgumentError(
            f"a batch can be trained on again only if it is given to step: write {_SHOWN} in place "
            'of guard.step(lambda: loss_fn(model(x), y)), or give instrument="tangent"'
        )


def _summary(batch: KeptBatch) -> np.ndarray:
    """Return the mean row of the first floating tensor of a batch, its first numbers."""
    tensors = tensors_of(batch.parts)
    first = next((one for one in tensors if one.is_floating_point()), tensors[0])
    mean = first.detach().float().reshape(len(first), -1).mean(dim=0)
    return mean[:: max(1, len(mean) // _SEEN)][:_SEEN].cpu().numpy()
