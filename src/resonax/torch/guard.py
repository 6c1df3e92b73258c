"""A guard around the training loop of a torch module."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, Self, Unpack

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from resonax.core.errors import ArgumentError
from resonax.guards.learner import Candidate
from resonax.guards.report import GuardReport
from resonax.torch.batches import copied
from resonax.torch.processes import join_processes
from resonax.torch.refusals import (
    check_alone,
    check_optimizer,
    check_unsharded,
    forget_guard,
    remember_guard,
)
from resonax.torch.training import GuardedTraining, GuardOptions, check_options

__all__ = ["Guard"]


class Guard:
    r"""Watch the training of a module, and change how it trains where the order of the data harms.

    From time to time, and when the loss has risen, the guard trains on the rows of the last stretch
    again, mixed. If the run is worse than these by more than chance, the order of the rows is to
    blame: the guard goes back, trains on the same batches with smaller momenta, and goes on from
    the state of the largest that does as well as mixed rows; if none does, on mixed rows of recent
    batches. A loss that explodes is undone at once.

    It takes any module, and any optimizer but those whose step calls the loss again, such as
    `torch.optim.LBFGS`. An optimizer has one guard at a time. ``with Guard(...) as guard`` closes
    it at the end. ``copy.deepcopy((model, optimizer, guard))`` is a second run with a guard of its
    own. Under `torch.distributed` all ranks make a guard, of a `DistributedDataParallel`, and take
    one decision.

    Parameters
    ----------
    model
        The module that is trained.
    optimizer
        Of its parameters. It has the user's own momentum and step size between steps, so that
        schedulers and checkpoints find what they expect.
    policy
        ``safe`` acts, with a line of the logger ``resonax``; ``watch`` warns where ``safe`` would,
        and changes nothing; ``fastest`` moves to what ends lowest on past data.
    **options
        candidates
            Momenta to compare, or `resonax.guards.learner.Candidate` values, from the mildest to
            the strongest; by default the user's own momentum, smaller ones down to 0, mixed rows
            and smaller steps.
        mix
            Whether the guard may train on mixed rows of recent batches, which changes the order of
            your data. ``"ask"``: it says where that would help, and does it after `allow_mixing`.
            ``"batches"``: whole batches in another order, as is done where shapes differ.
        budget
            Extra work for each step in the long run, in steps. Tests that find nothing take
            10,000 times that in the first thousand steps, and it for each later one; what is done
            once something is found takes 60,000 times that more.
        memory
            Bytes that kept batches may take.
        spacing
            Steps between snapshots. Up to eight of them are kept, the oldest 8 to 16 spacings old.
        average
            Whether to average the weights since the last change, see `averaged` and `offered`.
        log
            Called with a dictionary of numbers at each event.
        scaler
            A `torch.amp.GradScaler`, used by `step`.
        transform
            Called after the gradients are there and before the update, such as to clip them.
        knob
            Entry of the groups that holds the momentum, such as ``"beta1"`` or ``("betas", 0)``.
        snapshots
            Where they are held: on the ``device``, on the ``cpu``, or in its ``pinned`` memory.
        seed
            Of the random orders in which rows are mixed.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    >>> guard = Guard(model, optimizer)
    >>> for _ in range(200):
    ...     x = torch.randn(8, 1)
    ...     loss = guard.step(lambda x, y: torch.nn.functional.mse_loss(model(x), y), x, 3 * x)
    >>> print(str(guard.report()).partition("\n")[0])
    step 200, policy safe: momentum 0.9
    """

    _kind: ClassVar[type[GuardedTraining]] = GuardedTraining

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        policy: str = "safe",
        **options: Unpack[GuardOptions],
    ):
        self._model, self._optimizer = model, optimizer
        self._policy, self._options = policy, options
        processes = join_processes(model)
        try:
            with processes.together():
                check_options(options)
                check_unsharded(model, optimizer)
                check_optimizer(model, optimizer)
                check_alone(model, optimizer)
                self._training = self._kind(model, optimizer, policy, processes, **options)
            self._training.agree()
        except BaseException:
            processes.leave()
            raise
        self._parts: tuple[tuple[Any, ...], ...] = ()
        self._is_closed = False
        # Hooks do not hold the guard: one that is deleted releases the run, as `close` does.
        training = weakref.ref(self._training)

        def before_step(*_: Any) -> None:
            if (guarded := training()) is not None:
                guarded.before_step()

        def after_step(*_: Any) -> None:
            if (guarded := training()) is not None:
                guarded.after_step()

        self._hooks = [
            optimizer.register_step_pre_hook(before_step),
            optimizer.register_step_post_hook(after_step),
        ]
        trained = {id(one) for group in optimizer.param_groups for one in group["params"]}
        # Weights that no other optimizer may train.
        self.guarded = frozenset({*trained, *map(id, model.parameters())})
        optimizer.zero_grad()  # of a loop before this one
        remember_guard(self)

    @property
    def model(self) -> torch.nn.Module:
        """The module that is guarded."""
        return self._model

    @model.setter
    def model(self, model: torch.nn.Module) -> NoReturn:
        raise ArgumentError("a guard keeps its model; close() it and make a new one")

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer that is guarded."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: torch.optim.Optimizer) -> NoReturn:
        raise ArgumentError("a guard keeps its optimizer; close() it and make a new one")

    @property
    def momentum(self) -> float:
        """The largest momentum in use."""
        return self.setting.momentum

    @property
    def setting(self) -> Candidate:
        """The candidate in use."""
        return self._training.setting

    @property
    def averaged(self) -> AveragedModel | None:
        """The average of the weights since the last change, later ones counting more, or None."""
        return self._training.averaged

    def offered(self) -> torch.nn.Module:
        """Return what predicts best: `averaged`, the model, or what was offered before.

        One gives way to the next only if that is better on past data by more than a standard error;
        the guard compares them after each test and change, too.
        """
        return self._training.offered() or self.model

    def step(self, loss_fn: Callable[..., Tensor], *batch: Any) -> Tensor:
        """Make one guarded step of training: zero the gradients, differentiate, update.

        It leaves no gradients behind, and returns the loss; of several processes, which all call
        this, the mean.

        Parameters
        ----------
        loss_fn
            Returns the loss of a batch; it is called as ``loss_fn(*batch)`` and must not call
            ``backward``. Replays call it again: it must take from its arguments all that changes
            from step to step.
        *batch
            What the loss is made of, such as inputs and targets; tensors, or tuples, lists and
            dictionaries of them.
        """
        self._check_open()
        admitted = self._training.admit(loss_fn, (*self._parts, batch))
        self._parts = ()
        return self._training.step(admitted)

    def accumulate(self, *batch: Any) -> None:
        """Add a part of the next step's batch, for a step of several backward passes."""
        self._check_open()
        self._parts = (*self._parts, copied(batch))

    def allow_mixing(self) -> None:
        """Let a guard that was made with ``mix="ask"`` mix rows from now on, if that helps."""
        self._check_open()
        self._training.allow_mixing()

    def __repr__(self) -> str:
        """Return what the guard did so far, as its report says it."""
        return str(self.report())

    def report(self) -> GuardReport:
        """Return what is known of the run; print it, plot it, or take ``to_dict()``."""
        return self._training.report()

    def close(self) -> None:
        """Remove all hooks and release snapshots and batches; warn of a run that made no step."""
        self._end(quiet=False)

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._end(quiet=kind is not None)

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs; plain numbers, lists and tensors, no functions."""
        return self._training.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; a state that does not fit is refused, and nothing changes.

        Batches of the saved run get the loss function of the next step.
        """
        self._check_open()
        self._training.load_state_dict(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Guard:
        """Return a guard of the copies of the model and the optimizer, with the same log."""
        if self._options.get("transform") is not None:
            raise ArgumentError(
                "a guard with a transform cannot be copied, as that would change the gradients of "
                "the first model; make a new guard and load the state_dict of this one"
            )
        if self._training.processes.count > 1:
            raise ArgumentError(
                "a guard of several processes cannot be copied; make a new guard on all ranks and "
                "load the state_dict of this one"
            )
        made = object.__new__(type(self))
        memo[id(self)] = made
        model, optimizer = copy.deepcopy(self.model, memo), copy.deepcopy(self.optimizer, memo)
        scaler = copy.deepcopy(self._options.get("scaler"), memo)
        options: GuardOptions = {**self._options, "scaler": scaler}
        made.__init__(model, optimizer, self._policy, **options)
        made.load_state_dict(self.state_dict())
        made._training.copy_rest(self._training)
        made._parts = copy.deepcopy(self._parts, memo)
        if self._is_closed:
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

    def _check_open(self) -> None:
        """Raise `ArgumentError` for a guard that is closed, or of other processes."""
        if self._is_closed:
            raise ArgumentError("this guard is closed; make a new one")
        self._training.processes.check_world()

    def _end(self, *, quiet: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for hook in self._hooks:
            hook.remove()
        forget_guard(self)
        self._training.end(quiet=quiet)
