"""The audit of a loader for a model of torch."""

from __future__ import annotations

import contextlib
import copy
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from resonax.core.errors import ArgumentError
from resonax.core.objects import call_by_name
from resonax.guards.audit import (
    LEAST,
    Audit,
    audit_order,
    audit_trials,
    check_options,
    planned_work,
)
from resonax.guards.batch_order import components, find_order
from resonax.guards.learner import Candidate
from resonax.guards.trials import Trials, judged_marks
from resonax.torch.batches import KeptBatch, can_mix, mapped
from resonax.torch.learner import TorchLearner
from resonax.torch.loader import (
    Reading,
    complete,
    contents,
    has_only_tensors,
    read_loader,
    same_on_ranks,
)
from resonax.torch.random_state import devices_of, read_random_state, write_random_state
from resonax.torch.refusals import check_loss, check_optimizer

__all__ = ["audit"]

_JUDGED = 16  # batches at most on which runs are judged
_SKETCH = 16  # numbers of a gradient


def audit(
    loader: Any,
    model: nn.Module | None = None,
    loss_fn: Callable[..., Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    steps: int = 512,
    budget: float = 64.0,
    ranks: Sequence[Any] = (),
    set_epoch: Callable[[int], object] | None = None,
    confidence: float = 0.99,
    memory: int = 2**30,
    seed: int = 0,
    progress: bool = True,
) -> Audit:
    r"""Tell whether a loader shuffles, whether its order harms training, why, and what ends that.

    Batches are recorded, and a few numbers of each (of labels, lengths and features, and random
    projections of the gradient) are compared with the same batches in random order: see
    `resonax.guards.batch_order`. Then copies of the model and the optimizer train on the recorded
    batches in their order, and on the same rows mixed. What the order costs is said in lost steps
    (`resonax.guards.lost_steps`), its cause is told by further runs (`resonax.guards.cause`), and
    each cure is confirmed by one. Nothing is said of steps beyond those that were recorded.

    The model, the optimizer and all random generators are left as they are, bit for bit; so is the
    loader, where it can be copied. An iterator is used up by what is read of it.

    Parameters
    ----------
    loader
        Gives batches when it is iterated over: a DataLoader, a list, a dataset that collates. A
        batch is a tensor, an array, or a tuple, list or dictionary of them.
    model
        What is trained, at the weights where the audit is to begin; without it only the order is
        looked at.
    loss_fn
        A function of the model and a batch that returns the mean loss over the batch; or a
        criterion such as ``nn.CrossEntropyLoss()``, for batches of inputs and targets; or None for
        models that return their loss, ``model(**batch).loss``.
    optimizer
        Of the parameters of the model, with the settings of training.
    steps
        Batches that are read. The loader is read again from its start when it ends.
    budget
        Steps that all copies together train at most, as a multiple of ``steps``.
    ranks
        The loaders of the other ranks of distributed training; a step then trains on the batches
        of all of them.
    set_epoch
        Called with the number of an epoch before it is read, as ``loader.sampler.set_epoch`` is in
        the loop, if it is.
    confidence
        Probability at least of calling a random order random.
    memory
        Bytes that recorded batches may take.
    seed
        Of all random orders.
    progress
        Whether to say what it takes, and to show how far it is.

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> y = torch.arange(4).repeat_interleave(256)  # one class after the other
    >>> x = nn.functional.one_hot(y, 4) + 0.8 * torch.randn(1024, 4)
    >>> data = torch.utils.data.TensorDataset(x, y)
    >>> loader = torch.utils.data.DataLoader(data, batch_size=16)  # shuffle=True was forgotten
    >>> model = nn.Linear(4, 4)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    >>> found = audit(
    ...     loader, model, nn.CrossEntropyLoss(), optimizer, steps=128, progress=False
    ... )
    >>> found.order, found.harm, found.cause
    ('ordered', 'harmful', 'forgetting')
    >>> audit(loader, steps=128, progress=False).order
    'ordered'
    """
    check_options(steps, budget, confidence)
    significance = 1 - confidence
    devices = [] if model is None else devices_of(_module_of(model))
    random = read_random_state(devices)
    generators = _generators((loader, *ranks))
    try:
        show = _Progress(progress)
        if model is None:
            readings = _read(loader, ranks, steps, memory, significance, seed, set_epoch, show)
            return _audit_order(readings, significance, seed)
        task = _Task(model, loss_fn, optimizer)
        readings = _read(loader, ranks, steps, memory, significance, seed, set_epoch, show)
        return _audit_training(task, readings, budget, significance, seed, show)
    finally:
        for generator, state in generators:
            generator.set_state(state)
        write_random_state(random, devices)


def _module_of(model: Any) -> nn.Module:
    """Return a module, without what shares its work among processes."""
    if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
        return model.module
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    return model


def _generators(loaders: Sequence[Any]) -> list[tuple[torch.Generator, Tensor]]:
    """Return the generators that loaders draw from, with their states."""
    found: dict[int, torch.Generator] = {}
    for loader in loaders:
        sampler = getattr(loader, "sampler", None)
        holders = (
            loader,
            sampler,
            getattr(getattr(loader, "batch_sampler", None), "sampler", None),
        )
        for holder in holders:
            generator = getattr(holder, "generator", None)
            if isinstance(generator, torch.Generator):
                found[id(generator)] = generator
    return [(one, one.get_state()) for one in found.values()]


def _read(
    loader: Any,
    ranks: Sequence[Any],
    steps: int,
    memory: int,
    significance: float,
    seed: int,
    set_epoch: Callable[[int], object] | None,
    show: _Progress,
) -> list[Reading]:
    """Return what the loaders of all ranks give."""
    loaders = (loader, *ranks)
    random = read_random_state([])
    readings = []
    with show("reading batches", steps * len(loaders)) as advance:
        for rank, one in enumerate(loaders):
            write_random_state(random, [])  # as in processes that begin with one seed
            name = "the loader" if not ranks else f"the loader of rank {rank}"
            readings.append(
                read_loader(
                    one, steps, memory=memory // len(loaders), significance=significance, seed=seed,
                    set_epoch=set_epoch if rank == 0 else None, advance=advance, name=name,
                )
            )  # fmt: skip
    count = len(readings[0].batches)
    if count < LEAST:
        why = "; memory= allows more" if any(one.notes for one in readings) else ""
        raise ArgumentError(
            f"the loader ended after {count} batches, and an audit needs {LEAST}: give one that "
            f"can be iterated over again, or a longer one{why}"
        )
    return readings


def _notes(readings: Sequence[Reading]) -> list[str]:
    return list(dict.fromkeys(note for one in readings for note in one.notes))


def _series(
    readings: Sequence[Reading], seed: int, gradients: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers of each batch in which an order is looked for, and which batches these are."""
    kept = complete(readings[0])
    found = contents(readings[0].batches, seed)
    groups = [*found.values(), *([] if gradients is None else [gradients])]
    made = [components(one[kept]) for one in groups if one.size]
    return np.concatenate(made, axis=1), kept


def _audit_order(readings: Sequence[Reading], significance: float, seed: int) -> Audit:
    first = readings[0]
    series, kept = _series(readings, seed)
    order = find_order(
        series, epochs=first.epochs[kept], same=first.same, significance=significance, seed=seed
    )
    same = same_on_ranks(readings) if len(readings) > 1 else None
    return audit_order(order, series, same_ranks=same, notes=_notes(readings))


class _Task:
    """Copies of what is trained, and the loss of a batch."""

    def __init__(self, model: Any, loss_fn: Any, optimizer: Any):
        module = _module_of(model)
        if optimizer is None:
            raise ArgumentError(
                "give the optimizer as well: audit(loader, model, loss_fn, optimizer)"
            )
        if not any(one.requires_grad for one in module.parameters()):
            raise ArgumentError("the model has no parameters that can be trained")
        check_optimizer(module, optimizer)
        if loss_fn is not None and (isinstance(loss_fn, Tensor) or not callable(loss_fn)):
            raise ArgumentError(
                "loss_fn must be a function of the model and a batch, or a criterion such as "
                f"nn.CrossEntropyLoss(), got {type(loss_fn).__name__}"
            )
        try:
            self.model, self.optimizer, self.loss_fn = copy.deepcopy(
                (module, optimizer, loss_fn if isinstance(loss_fn, nn.Module) else None)
            )
        except Exception as error:
            raise ArgumentError(f"the model and optimizer cannot be copied: {error}") from None
        self.given, self.device = loss_fn, next(module.parameters()).device
        self.optimizer.zero_grad()
        self.learner = TorchLearner(self.model, self.optimizer)

    def loss(self, batch: Any) -> Tensor:
        """Return the loss of the copy on a batch of one rank."""
        given = self.given
        if given is None:
            if not isinstance(batch, dict):
                raise ArgumentError(
                    "without loss_fn batches must be dictionaries, for model(**batch).loss; got a "
                    f"{type(batch).__name__}"
                )
            return self.model(**self._moved(batch)).loss
        if self.loss_fn is None and getattr(given, "__module__", "") != "torch.nn.functional":
            return given(self.model, batch)
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise ArgumentError(
                "a criterion needs batches of inputs and targets: give a function of the model and "
                "a batch as loss_fn"
            )
        inputs, target = self._moved(batch)
        return (self.loss_fn or given)(self.model(inputs), target)

    def _moved(self, batch: Any) -> Any:
        return mapped(lambda one: one.to(self.device), batch)

    def keep(self, readings: Sequence[Reading], seed: int) -> list[KeptBatch]:
        """Return the batches of all ranks as steps of the copy."""
        count, kept = len(readings), []

        def loss(*batches: Any) -> Tensor:
            if count == 1:
                return self.loss(batches[0])
            return torch.stack([self.loss(one) for one in batches]).mean()

        for place, batches in enumerate(zip(*(one.batches for one in readings), strict=True)):
            torch.manual_seed(seed + place)
            kept.append(self.learner.keep(loss, (batches,)))
        return kept

    def gradients(
        self, batches: Sequence[KeptBatch], advance: Callable[[int], object]
    ) -> np.ndarray:
        """Return numbers of the gradient of each batch at the weights as they are.

        They are sums of the entries with random signs in a few groups, which keeps inner products
        (Charikar, Chen and Farach-Colton, 2002), the logarithm of the norm, and the loss.
        """
        weights = [one for one in self.model.parameters() if one.requires_grad]
        signs = [_signs(one, number) for number, one in enumerate(weights)]
        buffers = [one.detach().clone() for one in self.model.buffers()]
        rows = []
        for batch in batches:
            self.learner.set_random_state(batch.random)
            loss = check_loss(batch.loss_fn(*batch.parts[0]))
            found = torch.autograd.grad(loss, weights, allow_unused=True)
            if all(one is None for one in found):
                raise ArgumentError(
                    "the loss does not depend on the model that loss_fn is given: use its first "
                    "argument in place of a model of your own"
                )
            pairs = [(a, b) for a, b in zip(found, signs, strict=True) if a is not None]
            sketch = torch.stack([_sketch(*pair) for pair in pairs]).sum(dim=0)
            norm = torch.stack([one.float().square().sum() for one, _ in pairs]).sum().sqrt()
            row = torch.cat(
                [sketch, torch.log(norm + 1e-12)[None], loss.detach().float().reshape(1)]
            )
            rows.append(row.cpu().numpy())
            advance(1)
        with torch.no_grad():
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
        return np.stack(rows)


def _signs(weight: Tensor, number: int) -> Tensor:
    generator = torch.Generator(weight.device).manual_seed(number)
    drawn = torch.randint(
        0, 2, (weight.numel(),), generator=generator, device=weight.device, dtype=torch.int8
    )
    return 2 * drawn - 1


def _sketch(gradient: Tensor, signs: Tensor) -> Tensor:
    if gradient.is_sparse:
        gradient = gradient.to_dense()
    signed = gradient.detach().reshape(-1).float() * signs
    padded = nn.functional.pad(signed, (0, -signed.numel() % _SKETCH))
    return padded.reshape(-1, _SKETCH).sum(dim=0)


def _audit_training(
    task: _Task,
    readings: Sequence[Reading],
    budget: float,
    significance: float,
    seed: int,
    show: _Progress,
) -> Audit:
    learner, first = task.learner, readings[0]
    batches = task.keep(readings, seed)
    begun = time.monotonic()
    with show("gradients of batches", len(batches)) as advance:
        gradients = task.gradients(batches, advance)
    seconds = (time.monotonic() - begun) / len(batches)
    series, kept = _series(readings, seed, gradients)
    order = find_order(
        series, epochs=first.epochs[kept], same=first.same, significance=significance, seed=seed
    )
    by_rows = can_mix([part for one in batches for part in one.parts])
    by_rows = by_rows and all(has_only_tensors(one) for one in batches[0].parts)
    steps, rng = len(batches), np.random.default_rng([seed, 11])
    count = min(_JUDGED, steps // 16)
    chosen = [batches[one] for one in rng.choice(steps, count, replace=False)]
    judged = list(learner.mix(batches, rng, chosen)) if by_rows else chosen
    momentum = learner.groups.largest_momentum()
    knob = learner.groups.knob
    is_averaging = knob is not None and knob.name == "betas"
    most = min(planned_work(order.order, steps), (budget + 16) * steps)
    show.say(most, 1.5 * seconds)
    lr = float(task.optimizer.param_groups[0].get("lr", 1.0))
    name = "beta1" if is_averaging else "momentum"
    with show("training copies", round(most)) as advance:
        trials = Trials(
            learner, learner.save(), batches, judged, judged_marks(steps), Candidate(momentum),
            is_averaging=is_averaging, by_rows=by_rows, seed=seed, advance=advance,
        )  # fmt: skip
        return audit_trials(
            trials, order, series, budget=budget, lr=lr, momentum_name=name,
            same_ranks=same_on_ranks(readings) if len(readings) > 1 else None,
            notes=_notes(readings),
            settings={"optimizer": type(task.optimizer).__name__, "lr": lr, name: momentum},
        )  # fmt: skip


class _Progress:
    """What an audit takes and how far it is, on the error stream; or nothing."""

    def __init__(self, is_shown: bool):
        self.is_shown = is_shown

    @contextlib.contextmanager
    def __call__(self, title: str, total: int) -> Iterator[Callable[[Any], object]]:
        """Show a stage of so many steps."""
        if not self.is_shown:
            yield lambda count: None  # noqa: ARG005
            return
        with call_by_name("resonax.cli.show:progress", title, total, "steps") as advance:
            left = 0.0  # of a step: bars count whole ones

            def count(done: float) -> None:
                nonlocal left
                whole, left = divmod(left + done, 1)
                advance(int(whole))

            yield count

    def say(self, work: float, seconds: float) -> None:
        """Say what is to come."""
        if self.is_shown:
            left = call_by_name("resonax.cli.show:say_time", work * seconds)
            text = (
                f"resonax: copies train at most {work:,.0f} steps, which takes about {left} or less"
            )
            print(text, file=sys.stderr, flush=True)
