"""A guarded run that is interrupted anywhere goes on in a fresh guard, bit for bit."""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from resonax.torch import Guard

STEPS = 48
REWOUND = 8  # the step after which the guard goes back
LATER = 16  # some steps after the rewind
IMAGES, LABELS = (torch.tensor(part) for part in load_digits(return_X_y=True))
IMAGES = (IMAGES / 16).float()


class Run(NamedTuple):
    """What is trained."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    guard: Guard

    def bits(self) -> list[Tensor]:
        """Return weights, buffers, optimizer state, random numbers, and what may be offered."""
        held = [one for state in self.optimizer.state.values() for one in state.values()]
        tensors = [*self.model.parameters(), *self.model.buffers(), *held, torch.get_rng_state()]
        offer = self.guard.state_dict()["offer"]
        tensors += [offer["count"], *offer["average"], *(offer["held"] or ())]
        return [torch.as_tensor(one).detach().clone() for one in tensors]

    def save(self) -> bytes:
        file = io.BytesIO()
        states = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "guard": self.guard.state_dict(),
            "random": torch.get_rng_state(),
        }
        torch.save(states, file)
        return file.getvalue()

    def go_on(self, last: int = STEPS, fails=lambda: None) -> None:
        """Train from the step that comes to one before ``last``."""

        def loss(x: Tensor, y: Tensor) -> Tensor:
            fails()
            made = self.model(x)
            fails()
            return cross_entropy(made, y)

        for place in range(self.guard.report().step, last):
            self.guard.step(loss, *batch(place))


def begin() -> Run:
    """Return a run with dropout and batch norm that resonates."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.95, fused=True)
    return Run(model, optimizer, Guard(model, optimizer, spacing=8, average=True))


def load(saved: bytes) -> Run:
    """Return a fresh run that goes on from what was saved: plain values and tensors."""
    states = torch.load(io.BytesIO(saved), weights_only=True)
    made = begin()
    made.model.load_state_dict(states["model"])
    made.optimizer.load_state_dict(states["optimizer"])
    made.guard.load_state_dict(states["guard"])
    torch.set_rng_state(states["random"])
    return made


def batch(place: int) -> tuple[Tensor, Tensor]:
    """Return digits of one class, all ten in 40 steps."""
    rng = np.random.default_rng(place)
    rows = rng.choice(np.flatnonzero(LABELS.numpy() == place % 40 // 4), 16)
    return IMAGES[rows], LABELS[rows]


def assert_same(one: list[Tensor], two: list[Tensor]) -> None:
    assert len(one) == len(two)
    for mine, other in zip(one, two, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


class Reference(NamedTuple):
    """A run that was not interrupted: calls of the loss after each step, its bits after some."""

    bits: dict[int, list[Tensor]]
    saved: dict[int, bytes]  # checkpoints, which take most of the time
    calls: list[int]
    report: str


def observe(cuts: Collection[int], ends: Collection[int]) -> Reference:
    """Train without an interruption; keep checkpoints and bits after so many steps."""
    run, count = begin(), 0
    bits, calls = {}, [0]
    saved = {0: run.save()}

    def counted() -> None:
        nonlocal count
        count += 1

    for step in range(STEPS):
        run.go_on(step + 1, counted)
        if step + 1 in ends:
            bits[step + 1] = run.bits()
        calls.append(count)
        if step + 1 in cuts:
            saved[step + 1] = run.save()
    report = run.guard.report()
    assert report.decisions, "no rewind happened, so nothing is shown"
    assert report.decisions[0].rewound > 0
    assert report.decisions[0].step == REWOUND
    return Reference(bits, saved, calls, str(report))


CUTS = [0, REWOUND - 1, REWOUND, REWOUND + 30]


@pytest.fixture(scope="module")
def reference() -> Reference:
    return observe(CUTS, {REWOUND - 1, LATER, STEPS})


def resume(reference: Reference, cut: int, last: int) -> None:
    run = load(reference.saved[cut])
    run.go_on(last)
    assert_same(run.bits(), reference.bits[last])
    if last == STEPS:
        assert str(run.guard.report()) == reference.report


@pytest.mark.parametrize("cut", CUTS)
def test_a_run_resumes_around_a_rewind(reference, cut):
    resume(reference, cut, STEPS)


@pytest.mark.slow
def test_a_run_resumes_from_every_step():
    """Over the rewind for those before it, over some steps for those after it."""
    reference = observe(range(STEPS), range(STEPS + 1))
    for cut in range(STEPS):
        resume(reference, cut, max(REWOUND + 1, min(cut + 4, STEPS)))


class Interrupted(BaseException):
    """As a user's key press."""


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_an_exception_leaves_all_as_it_was_and_the_run_can_go_on(reference, share):
    """In the loss of a step, before and after its forward pass, in a judgement, and in replays."""
    first, last = reference.calls[REWOUND - 1], reference.calls[REWOUND]
    assert last - first > 300  # of replays
    place = first + 1 + int(share * (last - first))
    for limit, is_loaded in ((place, False), (place + 1, True)):
        run, calls = begin(), 0

        def fails(limit: int = limit) -> None:
            nonlocal calls
            calls += 1
            if calls == limit:
                raise Interrupted

        with pytest.raises(Interrupted):
            run.go_on(STEPS, fails)
        made = run.guard.report().step
        assert made == REWOUND - (share == 0)
        if share == 0:  # of the step itself: as it was before it
            assert_same(run.bits(), reference.bits[made])
        if is_loaded:  # the other one goes on itself
            run = load(run.save())
        run.go_on(LATER)
        assert_same(run.bits(), reference.bits[LATER])
