"""A guard around the training loop of a torch module."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn, Self, Unpack

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from resonax.core.errors import ArgumentError
from resonax.guards.learner import Candidate
from resonax.guards.report import RunReport
from resonax.torch.batches import copied
from resonax.torch.groups import check_module
from resonax.torch.instruments import (
    GuardOptions,
    Instrument,
    check_options,
    check_state,
    choose_instrument,
)
from resonax.torch.refusals import (
    Gradients,
    check_alone,
    check_one_process,
    forget_guard,
    remember_guard,
)
from resonax.torch.replay import ReplayInstrument
from resonax.torch.tangent import TangentInstrument

__all__ = ["Guard"]


class Guard:
    r"""Watch the training of a module, and change how it trains where the order of the data harms.

    ``replay``
        For any module, and any optimizer but those whose step calls the loss again, such as
        `torch.optim.LBFGS`. From time to time, and when the loss has
        risen, the guard trains on the rows of the last stretch again, mixed. If the run is worse
        than these by more than chance, the order of the rows is to blame: the guard goes back,
        trains on the same batches with smaller momenta, and goes on from the state of the largest
        that does as well as mixed rows; if none does, on mixed rows of recent batches. A loss that
        explodes is undone at once.
    ``tangent``
        For `torch.optim.SGD`. For each candidate momentum :math:`\mu_j` a shadow :math:`(u, v)`
        follows the tangent dynamics of the optimizer along the batches of the run,

        .. math:: v \gets \mu_j v - H_k u, \qquad u \gets u + \eta v ,

        with the Gauss-Newton matrix :math:`H_k` of the batch. The mean logarithm of its growth is
        the rate of that momentum on these data. It is exact for models that are linear in their
        weights, and silent on most networks.

    An optimizer has one guard at a time. ``with Guard(...) as guard`` closes it at the end.
    ``copy.deepcopy((model, optimizer, guard))`` is a second run with a guard of its own.

    Parameters
    ----------
    model
        The module that is trained; for ``tangent`` the one whose outputs the loss depends on.
    optimizer
        Of its parameters. With ``replay`` it has the user's own momentum and step size between
        steps, so that schedulers and checkpoints see what they expect.
    policy
        ``safe`` acts, with a line of the logger ``resonax``; ``watch`` warns where ``safe`` would,
        and changes nothing; ``fastest`` moves to what decays fastest or ends lowest.
    instrument
        By default ``tangent`` for SGD with a model that is linear in its weights (one
        `torch.nn.Linear`, alone or in a `torch.nn.Sequential` with layers that reshape), and
        ``replay`` for all others.
    **options
        For both instruments:

        candidates
            Momenta to compare; by default the user's own and smaller ones down to 0. ``replay``
            also takes `resonax.guards.learner.Candidate` values, from the mildest to the strongest.
        budget
            Extra work for each step in the long run, in steps, as long as nothing is wrong.
        log
            Called with a dictionary of numbers at each event, and by ``tangent`` after each burst.
        scaler
            A `torch.amp.GradScaler`, used by `step`.

        For ``replay``:

        mix
            Whether the guard may train on mixed rows of recent batches.
        memory
            Bytes that kept batches may take.
        spacing
            Steps between snapshots. Up to eight of them are kept, the oldest 8 to 16 spacings old.
        average
            Whether to average the weights since the last change, see `averaged` and `offered`.
        transform
            Called after the gradients are there and before the update, such as to clip them.
        knob
            Entry of the groups that holds the momentum, such as ``"beta1"`` or ``("betas", 0)``.
        snapshots
            Where they live: on the ``device``, on the ``cpu``, or in its ``pinned`` memory.
        seed
            Of the random orders in which rows are mixed.

        For ``tangent``:

        burst, search
            Steps in which the momentum in use is followed, and all candidates after an alarm. In a
            burst the guard holds two copies of the parameters for each candidate that it follows.
            ``budget=math.inf`` follows shadows in every step.
        warmup
            Steps at the start, 0 or at least 96, in which all candidates are followed while
            ``safe`` and ``fastest`` train with a small momentum (0.75 for 0.95); then they change
            to the largest one that does not seem to grow. For runs that must not oscillate even
            once. Each of these steps costs as much as 10 to 15 others.
        curvature
            ``gauss-newton``, or ``hessian`` for models whose loss is not made of their outputs.

    Attributes
    ----------
    instrument
        Name of the instrument in use.

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

    _replays: ClassVar[type[ReplayInstrument]] = ReplayInstrument

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        policy: str = "safe",
        *,
        instrument: str | None = None,
        **options: Unpack[GuardOptions],
    ):
        check_module(model, optimizer)
        check_one_process()
        check_alone(model, optimizer)
        self._model, self._optimizer = model, optimizer
        self.instrument = choose_instrument(instrument, model, optimizer)
        check_options(options, self.instrument)
        self._policy, self._options = policy, options
        made: Any = TangentInstrument if self.instrument == "tangent" else self._replays
        self._inner = inner = made(model, optimizer, policy, **options)
        self._parts: tuple[tuple[Any, ...], ...] = ()
        self._is_closed = False
        self._gradients = gradients = Gradients(optimizer)
        is_tangent = self.instrument == "tangent"

        def after_step(*_: Any) -> None:
            inner.after_step()
            if is_tangent:  # in a loop of one's own gradients have been used now
                gradients.remember()

        # The hooks do not hold the guard: one that is deleted lets go of the run, as `close` does.
        self._hooks = [
            optimizer.register_step_pre_hook(lambda *_: inner.before_step()),
            optimizer.register_step_post_hook(after_step),
        ]
        guarded = {id(one) for group in optimizer.param_groups for one in group["params"]}
        others = () if is_tangent else map(id, model.parameters())
        self.guarded = frozenset({*guarded, *others})  # weights that nobody else may train
        remember_guard(self)
        deleted: Any = weakref.finalize(self, _let_go, self._hooks, inner)
        deleted.atexit = False
        self._deleted = deleted

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
        return self._inner.momentum

    @property
    def setting(self) -> Candidate:
        """The candidate in use."""
        return self._inner.setting

    @property
    def probing(self) -> bool:
        """Whether the next step is part of a burst of ``tangent``."""
        return self._inner.probing

    @property
    def averaged(self) -> AveragedModel | None:
        """The average of the weights since the last change, later ones counting more, or None."""
        return self._inner.averaged

    def offered(self) -> torch.nn.Module:
        """Return what predicts best: `averaged`, the model, or what was offered before.

        One gives way to the next only if that is better on past data by more than a standard error;
        the guard looks at them after each test and change, too.
        """
        return self._inner.offered() or self.model

    def step(self, loss_fn: Callable[..., Tensor], *batch: Any) -> Tensor:
        """Make one guarded step of training: zero the gradients, differentiate, update.

        Parameters
        ----------
        loss_fn
            Returns the loss of a batch; it is called as ``loss_fn(*batch)`` and must not call
            ``backward``. ``replay`` calls it again in replays: it must take from its arguments all
            that changes from step to step.
        *batch
            What the loss is made of, such as inputs and targets; tensors, or tuples, lists and
            dictionaries of them. ``tangent`` needs none: ``guard.step(lambda: loss)``.
        """
        inner = self._opened()
        self._gradients.check()
        parts, self._parts = (*self._parts, batch), ()
        try:
            return inner.step(loss_fn, parts)
        finally:
            self._gradients.remember()

    def accumulate(self, *batch: Any) -> None:
        """Add a part of the next step's batch, for a step of several backward passes."""
        self._opened()
        self._parts = (*self._parts, copied(batch))

    def observe(self, loss: Tensor) -> None:
        """Observe a loss before its ``backward``, in a loop that steps the optimizer itself.

        For ``tangent``. Call it for each part of an accumulated batch, before any `GradScaler`
        scales the loss. One of more than 16 forward passes needs `step`.
        """
        self._opened().observe(loss)

    def forget(self) -> None:
        """Discard what was observed since the last update, as of a step that a scaler skipped."""
        self._inner.forget()

    def report(self) -> RunReport:
        """Return what is known of the run; print it, plot it, or take ``to_dict()``."""
        return self._inner.report()

    def close(self) -> None:
        """Remove all hooks, and give back the user's own momentum; warn of a run never seen."""
        self._end(quiet=False)

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._end(quiet=kind is not None)

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs; plain numbers, lists and tensors, no functions."""
        return self._inner.state_dict() | {"instrument": self.instrument}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; a state that does not fit is refused, and nothing changes.

        The candidates of ``tangent`` are the saved ones; where some were given to this guard they
        must be the same. Batches that ``replay`` kept get the loss function of the next step.
        """
        inner = self._opened()
        check_state(state, self.instrument)
        inner.load_state_dict(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Guard:
        """Return a guard of the copies of the model and the optimizer, with the same log."""
        if self._options.get("transform") is not None:
            raise ArgumentError(
                "a guard with a transform cannot be copied, as that would change the gradients of "
                "the first model; make a new guard and load the state_dict of this one"
            )
        made = object.__new__(type(self))
        memo[id(self)] = made
        model, optimizer = copy.deepcopy(self.model, memo), copy.deepcopy(self.optimizer, memo)
        scaler = copy.deepcopy(self._options.get("scaler"), memo)
        options: GuardOptions = {**self._options, "scaler": scaler}
        made.__init__(model, optimizer, self._policy, instrument=self.instrument, **options)
        made.load_state_dict(self.state_dict())
        made._inner.copy_rest(self._inner)
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

    def _opened(self) -> Instrument:
        if self._is_closed:
            raise ArgumentError("this guard is closed; make a new one")
        check_one_process()
        return self._inner

    def _end(self, *, quiet: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._deleted.detach()
        for hook in self._hooks:
            hook.remove()
        forget_guard(self)
        self._inner.end(quiet=quiet)


def _let_go(hooks: Sequence[Any], inner: Instrument) -> None:
    """Take a guard off that was deleted and not closed."""
    for hook in hooks:
        hook.remove()
    inner.end(quiet=True)
