"""A guard by replay for learners of river, scikit-learn, or of one's own."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from resonax.core.errors import ArgumentError, check_whole
from resonax.guards import guarded_run
from resonax.guards.averaging import preferred
from resonax.guards.guarded_run import GuardedRun
from resonax.guards.learner import Candidate, as_candidates, check_mix, default_candidates
from resonax.guards.report import GuardReport, announce
from resonax.guards.state import GuardConfig, has_judged
from resonax.online.calls import Call, count_rows
from resonax.online.learner import CopiedLearner, RowGroup
from resonax.online.libraries import Knobs, Library, find_library

__all__ = ["Guard"]

# Those that are not closed, by the identity of their models, which they keep alive.
_guards: weakref.WeakValueDictionary[int, Guard] = weakref.WeakValueDictionary()


class Guard:
    r"""Guard a model that learns by calls, by training it again where the order of rows harms.

    With a module of torch and its optimizer, ``Guard(model, optimizer)`` is a
    `resonax.torch.Guard`. This one decides as that does, and needs nothing but copies of the model.
    In place of
    ``model.learn_one(x, y)`` or ``model.partial_fit(X, y)`` write ``guard.learn(x, y)``.

    Parameters
    ----------
    model
        A model of river or scikit-learn, or any object that can be copied. It is trained in place:
        going back changes its attributes.
    policy
        ``safe`` acts; ``watch`` warns where ``safe`` would act, and changes nothing.
    learn
        ``learn(model, *batch)`` trains the model; by default ``learn_one`` or ``partial_fit``.
    loss
        ``loss(model, *batch)`` returns the mean loss of a batch, without training; by default the
        squared error, or the log loss or hinge loss of a classifier.
    knob, lr
        Paths of the attributes that hold the momentum and the step size, such as
        ``"optimizer.rho"``; those of river's optimizers and of scikit-learn are known. A candidate
        is in force during a call only.
    candidates
        Momenta to try, or `Candidate` values from the mildest to the strongest.
    mix
        Whether the guard may train on mixed rows of recent steps, which changes the order of your
        data. ``"ask"``: it says where that would help, and does it after `allow_mixing`.
    budget
        Extra work for each step in the long run, in steps. Tests that find nothing take 10,000
        times that in the first thousand steps, and it for each later one; what is done once
        something is found takes 60,000 times that more.
    memory
        Bytes that kept batches may take.
    spacing
        Steps between copies. Up to eight are kept, the oldest 8 to 16 spacings old: the guard sees
        no rhythm that is slower.
    rows
        Rows of a step, where each call is one row. They are learnt at once; the guard counts, keeps
        and mixes them together.
    seed
        Of the random orders in which rows are mixed.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import SGDRegressor
    >>> rng = np.random.default_rng(0)
    >>> guard = Guard(SGDRegressor(learning_rate="constant", eta0=0.01))
    >>> for _ in range(100):
    ...     X = rng.standard_normal((8, 2))
    ...     loss = guard.learn(X, X[:, 0])
    >>> print(str(guard.report()).partition("\n")[0])
    step 100, policy safe: momentum 0
    >>> print(f"{guard.model.coef_[0]:.1f}")
    1.0
    """

    def __new__(cls, model: Any = None, *given: Any, **options: Any) -> Any:
        """Return a guard; for a module of torch and its optimizer that of `resonax.torch`."""
        if given and _is_torch(model) and _is_torch(given[0]):
            return import_module("resonax.torch").Guard(model, *given, **options)
        return super().__new__(cls)

    def __init__(
        self,
        model: Any,
        policy: str = "safe",
        *,
        learn: Callable[..., Any] | None = None,
        loss: Callable[..., Any] | None = None,
        knob: str | Iterable[str] | None = None,
        lr: str | Iterable[str] | None = None,
        candidates: Iterable[float | Candidate] | None = None,
        mix: bool | str = True,
        budget: float = 0.05,
        memory: int = 2**28,
        spacing: int = 32,
        rows: int = 16,
        seed: int = 0,
    ):
        _check_kind(model, policy)
        if id(model) in _guards:
            raise ArgumentError("this model has a guard already; close() that one first")
        check_whole("rows", rows, low=1)
        library = _completed(find_library(model), learn, loss, _paths(knob), _paths(lr))
        knobs = library.knobs.checked(model)
        own = knobs.largest_momentum(model)
        check_mix(mix, ("ask",))
        made = _candidates(knobs, own, candidates, bool(mix))
        config = GuardConfig(
            made, policy=policy, budget=budget, memory=memory, spacing=spacing, seed=seed,
            asks=mix == "ask",
            is_averaging=any("beta" in path for path in knobs.momentum),
        )  # fmt: skip
        self._learner = CopiedLearner(model, library)
        self._run = guarded_run.init(config)
        self._group: RowGroup | None = None
        self._rows, self._is_pending = rows, False
        self._best: Any = None  # the copy that predicted best when that was last compared
        self._is_closed = False
        _guards[id(model)] = self

    @property
    def model(self) -> Any:
        """The model that is guarded."""
        return self._learner.model

    @property
    def setting(self) -> Candidate:
        """The candidate in use."""
        return self._run.setting

    def learn(self, *batch: Any, **options: Any) -> float:
        """Train the model on a batch, then test and replay where due; the loss before the update.

        Parameters
        ----------
        *batch
            What the model learns from: one row, such as ``x, y`` of river, or arrays, tables,
            sparse matrices or lists of one row for each example, such as ``X, y`` of scikit-learn.
        **options
            Given to the call as they are, such as ``classes``.
        """
        if self._is_closed:
            raise ArgumentError("this guard is closed; make a new one")
        rows = count_rows(batch)
        if not batch or rows == 0:
            raise ArgumentError("learn needs a batch of at least one row, such as learn(x, y)")
        known = len(self._run.events)
        self._finish()
        if rows is None:
            loss = self._learn_row(batch, options)
        else:
            self._end_group()
            self._run = guarded_run.with_reservoir(self._run, rows)
            loss = self._step(self._learner.call(batch, options))
        announce(self._run.events[known:])
        return loss

    def _learn_row(self, row: tuple[Any, ...], options: dict[str, Any]) -> float:
        learner = self._learner
        if self._group is not None and self._group.start.options != options:
            self._end_group()
        if self._group is None:
            run = guarded_run.with_reservoir(self._run, self._rows)
            self._run = guarded_run.begin(run, learner)
            self._group = RowGroup(learner.call((), options))
        loss = self._group.learn(learner, row, self.setting)
        self._raise_watched()
        if len(self._group.rows) >= self._rows:
            self._end_group()
        return loss

    def _end_group(self) -> None:
        """Count the rows so far as one step."""
        group, self._group = self._group, None
        if group is None:
            return
        call = group.call()
        is_learnt = not self.setting.is_mixed
        loss = group.loss() if is_learnt else self._train(self._run, call)
        self._count(self._run, call, loss)

    def _step(self, call: Call) -> float:
        run = guarded_run.begin(self._run, self._learner)
        loss = self._train(run, call)
        self._count(run, call, loss)
        return loss

    def _train(self, run: GuardedRun, call: Call) -> float:
        return self._learner.step(guarded_run.trained_on(run, self._learner, call))

    def _count(self, run: GuardedRun, call: Call, loss: float) -> None:
        self._run = guarded_run.count_step(run, self._learner, call, loss)
        self._raise_watched()
        self._is_pending = True
        self._finish()

    def _raise_watched(self) -> None:
        """Raise what the library raised, if the guard is to change nothing."""
        if self._learner.error is not None and self._run.config.policy == "watch":
            raise self._learner.error

    def _finish(self) -> None:
        """Test and replay what is due; after an interruption it is done before the next step."""
        if not self._is_pending:
            return
        learner, before = self._learner, self._run
        random = learner.random_state()
        try:
            self._run = guarded_run.finish(before, learner)
        finally:
            learner.set_random_state(random)  # the user's own random numbers are not disturbed
        self._is_pending = False
        if has_judged(before.state, self._run.state):
            self._is_best()

    def _is_best(self) -> bool:
        """Return whether the model predicts as well as the best copy so far; keep the better."""
        learner, reservoir = self._learner, self._run.state.reservoir
        now, random, losses = learner.save(), learner.random_state(), []
        try:
            for one in (now,) if self._best is None else (now, self._best):
                learner.load(one)
                losses.append(learner.losses(reservoir))
        finally:
            learner.load(now)
            learner.set_random_state(random)
        is_now = preferred(losses) == 0
        self._best = now if is_now else self._best
        return is_now

    def offered(self) -> Any:
        """Return what predicts best: the model, or a copy of it as it was after an earlier test.

        A copy is offered only if it is better on past data by more than a standard error. Models of
        others cannot be averaged as those of `resonax.torch.Guard` are.
        """
        if not self._run.state.reservoir or self._is_best():
            return self.model
        return self._learner.copy_of(self._best)

    def close(self) -> None:
        """End the guard; rows of a step that is not full yet are learnt."""
        if self._is_closed:
            return
        self._end_group()
        self._is_closed = True
        for known, guard in list(_guards.items()):
            if guard is self:
                del _guards[known]

    def allow_mixing(self) -> None:
        """Let a guard that was made with ``mix="ask"`` mix rows from now on, if that helps."""
        self._run = guarded_run.allow_mixing(self._run)

    def __repr__(self) -> str:
        """Return what the guard did so far, as its report says it."""
        return str(self.report())

    def report(self) -> GuardReport:
        """Return what is known of the run; print it, plot it, or take ``to_dict()``."""
        return guarded_run.report(self._run, self._learner)


def _is_torch(thing: Any) -> bool:
    """Return whether a thing is of torch, which is not imported for it."""
    return any(base.__module__.split(".")[0] == "torch" for base in type(thing).__mro__)


def _check_kind(*given: Any) -> None:
    """Raise `ArgumentError` for what another guard is for."""
    for one in given:
        rooms = {base.__module__.split(".")[0] for base in type(one).__mro__}
        if "torch" in rooms:
            raise ArgumentError(
                "resonax.Guard takes models that learn by calls; for one of torch write "
                "resonax.torch.Guard(model, optimizer)"
            )
        if rooms & {"optax", "flax", "equinox", "jax", "jaxlib"}:
            raise ArgumentError(
                "resonax.Guard takes models that learn by calls; for JAX write "
                "resonax.jax.guard(loss_fn, optimizer)"
            )


def _paths(given: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, str) else tuple(given)


def _completed(
    found: Library | None,
    learn: Callable[..., Any] | None,
    loss: Callable[..., Any] | None,
    momentum: tuple[str, ...] | None,
    lr: tuple[str, ...] | None,
) -> Library:
    """Return how a model learns: what is given, and else what is known of its library."""
    if found is None:
        if learn is None or loss is None:
            raise ArgumentError(
                "a model with neither learn_one nor partial_fit needs two functions: "
                "learn=lambda model, x, y: model.learn(x, y) and "
                "loss=lambda model, x, y: (model.predict(x) - y) ** 2"
            )
        found = Library(learn, loss, Knobs(), has_random=True)
    elif learn is not None:
        found = found._replace(has_random=True)
    knobs = found.knobs
    knobs = Knobs(knobs.momentum if momentum is None else momentum, knobs.lr if lr is None else lr)
    return found._replace(learn=learn or found.learn, loss=loss or found.loss, knobs=knobs)


def _candidates(
    knobs: Knobs, own: float, given: Iterable[float | Candidate] | None, mix: bool
) -> tuple[Candidate, ...]:
    """Return the candidates that a model can be trained with."""
    if given is None:
        made = default_candidates(own, mix=mix)
        if not knobs.lr:
            made = tuple(one for one in made if one.lr == 1)
    else:
        made = (Candidate(own), *as_candidates(given))
    if not knobs.lr and any(one.lr != 1 for one in made):
        raise ArgumentError("a candidate with another step size needs lr, where the model has it")
    if not knobs.momentum and any(one.momentum != own for one in made):
        raise ArgumentError("a candidate with a momentum needs knob, where the model has it")
    if len(made) == 1:
        raise ArgumentError(
            "there is nothing to change in this model: name where it has its momentum, knob=, or "
            "its step size, lr=, or allow mix=True"
        )
    return made
