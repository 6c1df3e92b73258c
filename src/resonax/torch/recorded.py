"""The audit of rows of a recording: a small model of torch is trained on them in their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from resonax.core.errors import ArgumentError, check_range, check_whole, suggest
from resonax.guards.audit import Audit
from resonax.torch.auditing import audit

__all__ = ["MODELS", "OPTIMIZERS", "audit_rows"]

MODELS = ("linear", "mlp")
OPTIMIZERS = ("heavy_ball", "torch", "nesterov", "sgd", "adam", "adamw")
_WIDTH = 32
_MOST = 4096  # steps
_MEASURED = "measured by training, not proved: of these rows, this start and these settings alone"


def audit_rows(
    inputs: np.ndarray,
    target: np.ndarray,
    *,
    model: str = "linear",
    optimizer: str = "adam",
    lr: float,
    momentum: float | None = None,
    beta2: float = 0.999,
    weight_decay: float = 0.0,
    batch: int = 1,
    epochs: int = 1,
    loss: str = "squared",
    seed: int = 0,
    notes: Sequence[str] = (),
    progress: bool = True,
) -> Audit:
    """Return the audit of rows in their order, for a model that is trained on them.

    Parameters
    ----------
    inputs, target
        The rows, (rows, d), and what to predict, (rows,).
    model
        ``linear``, or ``mlp``, a network of one hidden layer of 32 units.
    optimizer, lr, momentum, beta2, weight_decay
        The optimizer and its numbers; ``momentum`` is ``beta1`` of Adam, 0.9 if it is left out.
    batch, epochs
        Rows of a step, and passes over all rows.
    loss
        ``squared``, or ``logistic`` for a target of 0 and 1.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(512, 2))
    >>> found = audit_rows(rows, rows.sum(axis=1), lr=0.01, batch=4, progress=False)
    >>> found.order, found.harm
    ('random', 'none')
    """
    if model not in MODELS:
        raise suggest("model", model, MODELS)
    check_range("lr", lr)
    check_range("beta2", beta2)
    check_range("weight_decay", weight_decay)
    check_whole("batch", batch, low=1)
    check_whole("epochs", epochs, low=1)
    steps = len(inputs) // batch * epochs
    if steps < 64:
        raise ArgumentError(
            f"{len(inputs)} rows are {steps} steps of {batch} rows, and training needs 64 to be "
            "judged: give more rows, or a smaller batch"
        )
    x = torch.from_numpy(np.array(inputs, np.float32))
    y = torch.from_numpy(np.array(target, np.float32))[:, None]
    whole = len(x) // batch * batch
    batches = list(zip(x[:whole].split(batch), y[:whole].split(batch), strict=True))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = _model(model, x.shape[1])
    found = audit(
        batches, made, nn.MSELoss() if loss == "squared" else nn.BCEWithLogitsLoss(),
        _optimizer(optimizer, made, lr, momentum, beta2, weight_decay),
        steps=min(steps, _MOST), seed=seed, progress=progress,
    )  # fmt: skip
    said = [_MEASURED, *notes]
    if steps > _MOST:
        said.append(f"of {steps:,} steps the first {_MOST:,} were looked at")
    return replace(
        found,
        notes=(*said, *found.notes),
        settings={"model": model, **found.settings, "batch": batch},
    )


def _model(name: str, dim: int) -> nn.Module:
    if name == "linear":
        return nn.Linear(dim, 1)
    return nn.Sequential(nn.Linear(dim, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 1))


def _optimizer(
    name: str, model: nn.Module, lr: float, momentum: float | None, beta2: float, decay: float
) -> torch.optim.Optimizer:
    given: dict[str, Any] = {"lr": lr, "weight_decay": decay}
    if momentum is not None:
        check_range("momentum", momentum)
    if name in ("adam", "adamw"):
        kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
        return kind(
            model.parameters(), betas=(0.9 if momentum is None else momentum, beta2), **given
        )
    if name not in OPTIMIZERS:
        raise suggest("optimizer", name, OPTIMIZERS)
    if name == "nesterov":
        given["nesterov"] = True
    return torch.optim.SGD(model.parameters(), momentum=momentum or 0.0, **given)
