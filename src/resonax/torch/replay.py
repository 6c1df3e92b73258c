"""A guard by replay around a training loop of torch."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from resonax.checks import ArgumentError
from resonax.guards import replay
from resonax.guards.learner import Candidate, default_candidates
from resonax.guards.replay_report import ReplayReport, event_of, replay_report
from resonax.guards.report import Event, ResonanceWarning
from resonax.guards.rewind import act
from resonax.guards.rhythm import dominant_period
from resonax.torch.batches import KeptBatch, can_mix, copied, tensors_of
from resonax.torch.learner import TorchLearner, checked_optimizer
from resonax.torch.replay_checkpoint import load_guard, save_guard, with_loss

__all__ = ["ReplayGuard"]

_LOGGER = logging.getLogger("resonax")
_AVERAGE = 8  # steps between two terms of the average
_SEEN = 16  # numbers of a batch that its rhythm is looked for in
_ROWS = 128  # least rows of the reservoir


class ReplayGuard:
    r"""Guard the training of any module, with any optimizer, by training again what went wrong.

    The guard keeps snapshots, the batches since the oldest of them, and a sample of all batches so
    far. From time to time, and when the loss has risen, it trains on the rows of the last stretch
    again, mixed. If the run is worse than these by more than chance, the order of the rows is to
    blame: the guard goes back, trains on the same batches with smaller momenta, and goes on from
    the state of the largest that does as well as mixed rows; if none does, from the mixed run,
    and trains on mixed rows of recent batches from then on. A loss that explodes is undone at once.

    Parameters
    ----------
    model
        The module that is trained.
    optimizer
        Any `torch.optim` optimizer. The momentum of `SGD` and `RMSprop`, ``betas[0]`` of `Adam`
        and its relatives, and the step size are what the guard may lower; in force during a step
        only, so that schedulers and checkpoints see the user's own.
    policy
        ``safe`` acts; ``watch`` warns where ``safe`` would act, and changes nothing.
    candidates
        Momenta to try, or `Candidate` values from the mildest to the strongest.
    mix
        Whether the guard may train on mixed rows of recent batches.
    budget
        Extra work for each step in the long run, in steps, as long as nothing is wrong.
    memory
        Bytes that kept batches may take.
    spacing
        Steps between snapshots. Up to eight of them are kept, the oldest 8 to 16 spacings old.
    average
        Whether to keep the mean of the weights since the last change, in `averaged`.
    scaler
        A `torch.amp.GradScaler`.
    transform
        Called after the gradients are there and before the update, such as to clip them.
    log
        Called with a dictionary of numbers at each event.
    seed
        Of the random orders in which rows are mixed.

    Attributes
    ----------
    model, optimizer
        Those that are guarded.
    averaged
        `torch.optim.swa_utils.AveragedModel` of the weights, or None.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(1, 1)
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    >>> guard = ReplayGuard(model, optimizer)
    >>> for _ in range(200):
    ...     x = torch.randn(8, 1)
    ...     loss = guard.step(lambda x, y: torch.nn.functional.mse_loss(model(x), y), x, 3 * x)
    >>> print(str(guard.report()).partition("\n")[0])
    step 200, policy safe: momentum 0.9
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        policy: str = "safe",
        *,
        candidates: Iterable[float | Candidate] | None = None,
        mix: bool = True,
        budget: float = 0.05,
        memory: int = 2**28,
        spacing: int = 32,
        average: bool = False,
        scaler: Any = None,
        transform: Callable[[], object] | None = None,
        log: Callable[[dict[str, Any]], object] | None = None,
        seed: int = 0,
    ):
        checked_optimizer(model, optimizer)
        self.model, self.optimizer = model, optimizer
        self._learner = TorchLearner(model, optimizer, scaler, transform)
        own = self._learner.largest_momentum()
        given = None if candidates is None else [_candidate(one) for one in candidates]
        made = default_candidates(own, mix=mix) if given is None else (Candidate(own), *given)
        self._config = replay.ReplayConfig(
            made, policy=policy, budget=budget, memory=memory, spacing=spacing, seed=seed
        ).checked()
        self._state = replay.init(self._config)
        self._parts: tuple[tuple[Any, ...], ...] = ()
        self._losses: tuple[float, ...] = ()
        self._events: tuple[Event, ...] = ()
        self._peak, self._log = 0, log
        self._is_loaded = False
        self.averaged = AveragedModel(model) if average else None

    @property
    def momentum(self) -> float:
        """The largest momentum in use."""
        return self._config.candidates[self._state.place].momentum

    @property
    def setting(self) -> Candidate:
        """The candidate in use."""
        return self._config.candidates[self._state.place]

    def accumulate(self, *batch: Any) -> None:
        """Add a part of the next step's batch, for a step of several backward passes."""
        self._parts = (*self._parts, copied(batch))

    def step(self, loss_fn: Callable[..., Tensor], *batch: Any) -> Tensor:
        """Make one guarded step of training: zero the gradients, differentiate, update.

        Parameters
        ----------
        loss_fn
            Returns the loss of a batch: it is called as ``loss_fn(*batch)``, now and in replays,
            and must take from its arguments all that changes from step to step.
        *batch
            What the loss is made of, such as inputs and targets; tensors, or tuples, lists and
            dictionaries of them.
        """
        _check_call(loss_fn, batch)
        learner, config = self._learner, self._config
        if self._is_loaded:
            self._state, self._is_loaded = with_loss(self._state, loss_fn), False
        kept = KeptBatch(
            loss_fn, (*self._parts, copied(batch)), learner.own(), learner.random_state()
        )
        if self._state.step == 0:
            self._check_first(kept)
            config = self._config
        state = replay.before_step(self._state, config, learner, kept)
        used = config.candidates[state.place]
        learner.set(used)
        count = len(state.ladder.batches)
        loss = learner.step(replay.trained_on(state, config, learner, used, count))
        state, is_due = replay.after_step(state, config, learner, loss)
        if len(state.recent) and state.step % config.spacing == 0:
            self._losses = (*self._losses, state.recent[-1])
        self._state, self._parts = state, ()
        self._measure()
        if is_due:
            self._act()
        if self.averaged is not None and state.step % _AVERAGE == 0:
            self.averaged.update_parameters(self.model)
        return loss

    def _act(self) -> None:
        learner, config, before = self._learner, self._config, self._state
        random = learner.random_state()
        try:
            self._state = act(before, config, learner)
        finally:
            learner.set_random_state(random)  # the user's own random numbers go on as they were
        for decision in self._state.decisions[len(before.decisions) :]:
            self._report(event_of(decision, config.policy, self._period()))
        if self.averaged is not None and self._state.place != before.place:
            self.averaged = AveragedModel(self.model)

    def _report(self, event: Event) -> None:
        self._events = (*self._events, event)
        if event.kind == "resonance":
            warnings.warn(f"step {event.step}: {event.text}", ResonanceWarning, stacklevel=4)
        else:
            _LOGGER.warning("step %d: %s", event.step, event.text)
        if self._log is not None:
            used = self.setting
            numbers = {"momentum": used.momentum, "lr_factor": used.lr, "is_mixed": used.is_mixed}
            self._log({"step": event.step, **numbers, "event": event.text})

    def _check_first(self, kept: KeptBatch) -> None:
        """See how many rows a batch has; `ArgumentError` where they cannot be told apart."""
        if not can_mix([kept]):
            raise ArgumentError(
                "the rows of this batch cannot be told apart, as its tensors differ in their first "
                "dimension; give tensors of one row for each example"
            )
        rows = sum(len(tensors_of(part)[0]) for part in kept.parts)
        reservoir = max(self._config.reservoir, -(-_ROWS // rows))
        self._config = replace(self._config, reservoir=reservoir)

    def _measure(self) -> None:
        """Note the most bytes that snapshots and batches took."""
        ladder = self._state.ladder
        size = ladder.size + sum(one.saved.size for one in ladder.snapshots)
        self._peak = max(self._peak, size)

    def _period(self) -> float | None:
        """Return the rhythm of the inputs that are kept."""
        batches = self._state.ladder.batches
        rows = [_summary(batch) for batch in batches]
        return dominant_period(np.stack(rows)) if rows else None

    def report(self) -> ReplayReport:
        """Return what is known of the run; print it, plot it, or take ``to_dict()``."""
        return replay_report(
            self._state,
            self._config,
            memory=self._peak,
            period=self._period(),
            losses=self._losses,
            events=self._events,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs: plain values and tensors, no functions."""
        made = save_guard(self._state, self._losses, self._events, self._peak)
        return made | {"reservoir": self._config.reservoir}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; kept batches get the loss function of the next step."""
        loaded = load_guard(state, self._config, self._learner)
        self._state, self._losses, self._events, self._peak = loaded
        self._config = replace(self._config, reservoir=state["reservoir"])
        self._is_loaded = True

    def close(self) -> None:
        """End the guard; the optimizer has the user's own numbers between steps anyway."""
        self._state = replay.init(self._config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _candidate(given: float | Candidate) -> Candidate:
    return given if isinstance(given, Candidate) else Candidate(float(given))


def _check_call(loss_fn: object, batch: tuple[Any, ...]) -> None:
    if isinstance(loss_fn, Tensor) or not callable(loss_fn):
        raise ArgumentError(
            "guard.step takes a function of the batch and the batch, such as "
            f"guard.step(lambda x, y: loss_fn(model(x), y), x, y), not a {type(loss_fn).__name__}"
        )
    if not tensors_of(batch):
        raise ArgumentError(
            "a batch can be trained on again only if it is given to step: write "
            "guard.step(lambda x, y: loss_fn(model(x), y), x, y) in place of "
            "guard.step(lambda: loss_fn(model(x), y))"
        )


def _summary(batch: KeptBatch) -> np.ndarray:
    """Return the mean row of the first floating tensor of a batch, its first numbers."""
    tensors = tensors_of(batch.parts)
    first = next((one for one in tensors if one.is_floating_point()), tensors[0])
    mean = first.detach().float().reshape(len(first), -1).mean(dim=0)
    return mean[:: max(1, len(mean) // _SEEN)][:_SEEN].cpu().numpy()
