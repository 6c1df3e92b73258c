"""What each of two processes does in the tests of a guard under `torch.distributed`."""

from __future__ import annotations

import copy
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from resonax.core.errors import ResonaxError
from resonax.guards.learner import Candidate
from resonax.torch import Guard

STEPS, KILLED, SAVED = 40, 27, 8
_DRAWN = np.random.default_rng(0)
KINDS = torch.tensor(_DRAWN.normal(size=(5, 16)), dtype=torch.float32)  # centres of classes


def rows(rank: int, step: int, size: int = 8) -> tuple[Tensor, Tensor]:
    """Return rows of one class, all five in 10 steps, and others on each rank."""
    draw = torch.Generator().manual_seed(1000 * rank + step)
    kind = step % 10 // 2
    x = KINDS[kind] + 0.8 * torch.randn(size, 16, generator=draw)
    return x, torch.full((size,), kind)


def accuracy(net: nn.Module) -> float:
    """Return the share of rows of all classes that a network tells."""
    found = []
    with torch.no_grad():
        for step in range(0, 10, 2):
            x, y = rows(7, step, 100)
            found.append((net.eval()(x).argmax(1) == y).float().mean())
    return float(torch.stack(found).mean())


def network() -> nn.Module:
    """Return a network with dropout and batch norm."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 5)
    )


def plain_network() -> nn.Module:
    """Return a network that draws nothing."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 5))


class Run:
    """A guarded run of one rank."""

    def __init__(self, rank: int, **options: Any):
        self.rank, self.net = rank, network()
        self.called = DistributedDataParallel(self.net)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.95)
        options = {"spacing": 8, "average": True, "seed": rank, **options}
        self.guard = Guard(self.called, self.optimizer, **options)
        torch.manual_seed(100 + rank)  # of dropout
        self.fails: Callable[[], object] = lambda: None
        self.net[3].register_forward_hook(lambda *_: self.fails())
        self.before: Callable[[], object] = lambda: None

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.before()
        return cross_entropy(self.called(x), y)

    def step(self) -> Tensor:
        return self.guard.step(self.loss, *rows(self.rank, self.guard.report().step))

    def bits(self) -> list[Any]:
        """Return all that a run consists of, of this rank."""
        held = [one for state in self.optimizer.state.values() for one in state.values()]
        tensors = [*self.net.parameters(), *self.net.buffers(), *held, torch.rand(1)]
        return [one.tolist() for one in tensors if one is not None]

    def weights(self) -> list[Any]:
        return [one.tolist() for one in self.net.parameters()]

    def save(self, folder: Path) -> None:
        states = {
            "model": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "guard": self.guard.state_dict(),
            "random": torch.get_rng_state(),
        }
        torch.save(states, folder / f"{self.rank}-{self.guard.report().step}.pt")

    def load(self, folder: Path, step: int, rank: int | None = None) -> None:
        name = f"{self.rank if rank is None else rank}-{step}.pt"
        states = torch.load(folder / name, weights_only=True)
        self.guard.load_state_dict(states["guard"])
        self.net.load_state_dict(states["model"])
        self.optimizer.load_state_dict(states["optimizer"])
        torch.set_rng_state(states["random"])


def plain(rank: int) -> float:
    """Train without a guard."""
    net = network()
    called = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.95)
    for step in range(STEPS):
        optimizer.zero_grad()
        x, y = rows(rank, step)
        cross_entropy(called(x), y).backward()
        optimizer.step()
    return accuracy(net)


def undisturbed(rank: int, folder: Path) -> dict[str, Any]:
    """Train with a guard, and say what came of it after each step."""
    without = plain(rank)
    run, seen = Run(rank), []
    for _ in range(STEPS):
        run.step()
        seen.append((run.weights(), str(run.guard.setting)))
        if run.guard.report().step == SAVED:
            run.save(folder)
    report = run.guard.report()
    made = {
        "plain": without,
        "seen": seen,
        "bits": run.bits(),
        "decisions": repr(report.decisions),
        "events": [one.text for one in report.events],
        "rewound": [one.rewound for one in report.decisions],
        "seed": report.log.config.seed,
        "check": report.log.check(),
        "accuracy": accuracy(run.net),
        "offered": accuracy(run.guard.offered()),
    }
    run.guard.close()
    return made


def killed(rank: int, folder: Path) -> None:
    """Train, save now and then, and be killed."""
    run = Run(rank)
    while True:
        run.step()
        if run.guard.report().step % SAVED == 0:
            run.save(folder)
        if run.guard.report().step == KILLED - rank:
            os.kill(os.getpid(), signal.SIGKILL)


def resumed(rank: int, folder: Path) -> dict[str, Any]:
    """Go on from the last checkpoint of all ranks, after the states of others were refused."""
    last = (KILLED - 1) // SAVED * SAVED
    torch.manual_seed(5)
    run = Run(rank)
    texts = [
        said(lambda: run.load(folder, last, 1 - rank)),  # of the other rank
        said(lambda: run.load(folder, last - SAVED * rank)),  # of different steps
        said(lambda: run.load(folder, last, 0)),  # that fits on one rank only
    ]
    run.load(folder, last)
    while run.guard.report().step < STEPS:
        run.step()
    return {"texts": texts, "bits": run.bits(), "decisions": repr(run.guard.report().decisions)}


def said(call: Callable[[], object]) -> str:
    """Return what an error says."""
    try:
        call()
    except (ResonaxError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def disturbed(rank: int) -> dict[str, Any]:
    """Train as the undisturbed run does, with exceptions on one rank, after which all go on."""
    run, texts, calls = Run(rank), [], 0

    def broken() -> None:
        raise RuntimeError("broken")

    def broken_later() -> None:
        nonlocal calls
        calls += 1
        if calls == 30:
            raise RuntimeError("broken")

    for step in range(STEPS):
        if step == 3 and rank == 1:
            run.before = broken
        if step == 5 and rank == 0:
            run.fails = broken
        if step == 6 and rank == 1:
            texts.append(said(lambda: run.guard.step(run.loss)))
        elif step == 6:
            texts.append(said(run.step))
        if step == 7 and rank == 1:  # the step with a test
            run.fails = broken_later
        if step in (3, 5, 7):
            texts.append(said(run.step))
            run.before = run.fails = lambda: None
        if run.guard.report().step == step:
            run.step()
    return {"texts": texts, "bits": run.bits(), "decisions": repr(run.guard.report().decisions)}


def not_finite(rank: int) -> dict[str, Any]:
    """Train with one batch of one rank that has no finite loss."""
    run = Run(rank, average=False)
    for step in range(20):
        x, y = rows(rank, step)
        if step == 5 and rank == 1:
            x[0, 0] = float("nan")
        run.guard.step(run.loss, x, y)
    report = run.guard.report()
    return {"aside": report.set_aside, "weights": run.weights(), "events": len(report.events)}


def model(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a linear model with its optimizer."""
    torch.manual_seed(seed)
    net = nn.Linear(16, 5)
    return net, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)


def train(rank: int, net: nn.Module, guard: Guard, steps: int = 1) -> None:
    """Make guarded steps."""
    for step in range(steps):
        guard.step(lambda x, y: cross_entropy(net(x), y), *rows(rank, step))


def by_hand(rank: int) -> dict[str, Any]:
    """Train with gradients that are averaged by hand, and on rows that do not fit together."""
    net, optimizer = model()

    def reduce() -> None:
        for one in net.parameters():
            distributed.all_reduce(one.grad)
            one.grad /= 2

    guard = Guard(net, optimizer, spacing=8, transform=reduce)
    train(rank, net, guard, 20)
    made: dict[str, Any] = {"weights": net.weight.tolist(), "tests": guard.report().tests}
    guard.close()
    called = DistributedDataParallel(net)
    guard = Guard(called, optimizer, candidates=[Candidate(0.9, 1.0, True)], spacing=8, mix="ask")
    if rank == 0:
        guard.allow_mixing()
        guard.report()  # on one rank
    for step in range(20):  # other numbers of rows, and some of one rank that do not fit
        x, y = rows(rank, step, 8 + rank)
        if rank and step == 3:
            x = x.double()
        guard.step(lambda x, y: cross_entropy(called(x.float()), y), x, y)
    made |= {"ragged": net.weight.tolist(), "decisions": repr(guard.report().decisions)}
    guard.close()
    return made


def refused(rank: int) -> dict[str, Any]:
    """Return what is said of what cannot be guarded by several processes."""
    texts: dict[str, Any] = {}

    net, optimizer = model(seed=rank)
    guard = Guard(net, optimizer)
    before = net.weight.tolist()
    texts["weights"] = said(lambda: train(rank, net, guard))
    texts["is_unchanged"] = net.weight.tolist() == before
    net, optimizer = model()
    guard = Guard(net, optimizer)
    texts["gradients"] = said(lambda: train(rank, net, guard))
    scaler = torch.amp.GradScaler("cpu")
    texts["scaler"] = said(lambda: Guard(*model(), scaler=scaler))

    net, optimizer = model()
    texts["options"] = said(lambda: Guard(net, optimizer, budget=0.1 + rank))
    texts["one"] = said(lambda: Guard(net, optimizer, budget=0.1 - rank))
    called = DistributedDataParallel(net)
    guard = Guard(called, optimizer)
    texts["copy"] = said(lambda: copy.deepcopy(guard))
    guard.close()
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net, optimizer = model()
    zero = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1)
    texts["zero"] = said(lambda: Guard(net, zero))
    sharded = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    texts["fsdp"] = said(lambda: Guard(sharded, torch.optim.SGD(sharded.parameters(), lr=0.1)))
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        pass
    else:
        net = nn.Linear(16, 4)
        fully_shard(net, mesh=distributed.init_device_mesh("cpu", (2,)))
        texts["fsdp2"] = said(lambda: Guard(net, torch.optim.SGD(net.parameters(), lr=0.1)))
    return texts


def early(rank: int) -> str:
    """Return what a guard says that was made before the processes knew of each other."""
    distributed.destroy_process_group()
    net = nn.Linear(16, 5)
    guard = Guard(net, torch.optim.SGD(net.parameters(), lr=0.1))
    store = os.environ["STORE"] + "-again"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    return said(lambda: guard.step(lambda x, y: cross_entropy(net(x), y), *rows(rank, 0)))


def by_lightning(rank: int, folder: Path) -> dict[str, Any]:
    """Train by Lightning, in one go and from the checkpoint in the middle."""
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.plugins.environments import LightningEnvironment

    from resonax.torch.lightning import GuardCallback

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = plain_network()

        def training_step(self, batch: Any, index: int) -> Tensor:
            return cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.net.parameters(), lr=0.2, momentum=0.95)

    def fit(name: str, epochs: int, resume: str | None = None) -> Any:
        guarding, keeping = GuardCallback(spacing=8, seed=rank), ModelCheckpoint(folder / name)
        trainer = lightning.Trainer(
            max_epochs=epochs, callbacks=[guarding, keeping], logger=False, accelerator="cpu",
            devices=2, strategy="ddp", use_distributed_sampler=False, enable_progress_bar=False,
            enable_model_summary=False, plugins=[LightningEnvironment()],
        )  # fmt: skip
        module = Module()
        given = [rows(rank, step) for step in range(32)]
        torch.manual_seed(100 + rank)
        loader = torch.utils.data.DataLoader(given, batch_size=None)
        trainer.fit(module, loader, ckpt_path=resume)
        trainer.save_checkpoint(folder / f"{name}.ckpt")  # when the guard is closed
        return keeping.best_model_path, module.net, guarding.guard

    checkpoint, *_ = fit("half", 1)
    return compared(fit("whole", 2)[1:], fit("again", 2, checkpoint)[1:])


def compared(run: tuple[nn.Module, Any], resumed: tuple[nn.Module, Any]) -> dict[str, Any]:
    """Return what is left of a run, and of one from a checkpoint in the middle."""
    (net, guard), (other, again) = run, resumed
    report = guard.report()
    return {
        "weights": [one.tolist() for one in net.parameters()],
        "resumed": [one.tolist() for one in other.parameters()],
        "decisions": repr(report.decisions),
        "again": repr(again.report().decisions),
        "steps": (report.step, again.report().step),
        "rewound": [one.rewound for one in report.decisions],
    }


class Answer(nn.Module):
    """A model with the manners of `transformers`."""

    def __init__(self) -> None:
        super().__init__()
        self.net = plain_network()

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.net(x)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


def first(given: list[Any]) -> Any:
    return given[0]


def by_transformers(rank: int, folder: Path) -> dict[str, Any]:
    """Train by transformers, in one go and from the checkpoint in the middle."""
    import transformers

    from resonax.torch.transformers import GuardCallback

    def fit(name: str, epochs: int, resume: str | None = None) -> Any:
        arguments = transformers.TrainingArguments(
            str(folder / name), num_train_epochs=epochs, max_grad_norm=0.0, disable_tqdm=True,
            lr_scheduler_type="constant", per_device_train_batch_size=1, save_strategy="epoch",
            train_sampling_strategy="sequential", logging_strategy="no", report_to="none",
            remove_unused_columns=False, use_cpu=True, ddp_backend="gloo", seed=2,
        )  # fmt: skip
        given = [rows(one, step) for step in range(32) for one in range(2)]
        model = Answer()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.95)
        trainer = transformers.Trainer(
            model,
            arguments,
            train_dataset=[{"x": x, "labels": y} for x, y in given],
            data_collator=first,
            optimizers=(optimizer, None),
        )
        guarding = GuardCallback(trainer, spacing=8, seed=rank)
        trainer.add_callback(guarding)
        trainer.train(resume_from_checkpoint=resume)
        return model, guarding.guard

    fit("half", 1)
    whole = fit("whole", 2)
    return compared(whole, fit("again", 2, str(folder / "half" / "checkpoint-32")))


def work(
    job: Callable[..., Any], rank: int, store: str, answers: Any, given: tuple[Any, ...]
) -> None:
    """Do a job as one of two processes that know each other by a file."""
    torch.set_num_threads(1)
    random.seed(rank)
    os.environ |= {
        "STORE": store, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost", "MASTER_PORT": "0",
    }  # fmt: skip
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    try:
        answers.put((rank, job(rank, *given)))
    except BaseException as error:
        import traceback

        answers.put((rank, RuntimeError("".join(traceback.format_exception(error)))))
        sys.exit(1)
    distributed.destroy_process_group()
