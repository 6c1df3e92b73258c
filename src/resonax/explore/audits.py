"""Kept audits, as JSON for a page: the `.json` and `.html` files of `resonax audit`.

A file may come from anybody. Its text is data here, a page writes it as text, and a report is
searched for the audit that lies in it, never shown as HTML. Functions run in a thread of `work`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from resonax.core.errors import StoreError
from resonax.core.labels import printable
from resonax.core.objects import format_short, plain_values
from resonax.explore.errors import RequestError
from resonax.guards.audit import Audit
from resonax.reports.audit import CAUSES, answers_of, heading_of
from resonax.store.saved import kind_of, load

__all__ = ["audit_names", "describe_audit", "show_audit"]

_ENDINGS = (".json", ".html", ".htm")
_MAX_TEXT = 4000  # characters of one text, as in reports


def audit_names(home: Path) -> list[str]:
    """Return the names of the audits in a folder, or of the one file that was named."""
    if home.is_file():
        return [home.name]
    files = (path for path in home.iterdir() if path.suffix.lower() in _ENDINGS and path.is_file())
    return sorted(path.name for path in files if kind_of(path) == "Audit")


def show_audit(check: Callable[..., None], home: str, name: str) -> dict[str, Any]:
    """Return the report of an audit: what was found in words, and the numbers of its pictures."""
    if name not in audit_names(Path(home)):
        raise RequestError("There is no such audit in this folder.", 404)
    path = Path(home) if Path(home).is_file() else Path(home) / name
    check()
    return describe_audit(path)


def describe_audit(path: Path) -> dict[str, Any]:
    """Read the audit of a file; raise `StoreError` if it holds none, or is damaged."""
    audit = load(path)
    if not isinstance(audit, Audit):
        raise StoreError(
            f"{path} holds no audit: name a file that `resonax audit --out` or `--html` wrote"
        )
    try:
        return _describe(audit, path)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise StoreError(
            f"{path} is damaged, or not an audit that this version of resonax saved: make it "
            "again, or name another"
        ) from None


def _describe(audit: Audit, path: Path) -> dict[str, Any]:
    cause = ""
    if audit.cause is not None:
        cause = f"{CAUSES[audit.cause]}: {audit.reason}."
    facts = [("steps", f"{audit.steps:d}"), ("trained on copies", f"{audit.work:.0f} steps")]
    facts += [(name, format_short(value)) for name, value in audit.settings.items()]
    elsewhere = ("cause", "cure", "rhythm")
    details = [pair for pair in audit.details() if pair[0] not in elsewhere]
    described = {
        "name": path.name,
        "heading": heading_of(audit),
        "harmful": audit.is_harmful,
        "sentence": f"{audit.verdict()}.",
        "cause": cause,
        "answers": answers_of(audit),
        "cures": [cure.text for cure in audit.cures],
        "details": details,
        "facts": facts,
        "runs": _runs(audit),
        "batches": {"steps": audit.steps, "values": audit.series.T, "period": audit.period},
        "code": _code(path),
    }
    return _shown(plain_values(described))


def _runs(audit: Audit) -> dict[str, Any] | None:
    if not audit.marks:
        return None
    steps, own, *mixed = np.array([audit.marks, audit.own, *audit.mixed], dtype=float)
    low, high = audit.loss_limits()
    lost = audit.lost_steps
    arrow = None
    if lost is not None and lost.low > 0 and lost.own <= high:
        arrow = {"position": lost.position, "loss": lost.own, "text": f"{lost.lost:.0f} steps lost"}
    return {
        "steps": steps,
        "own": own,
        "mixed": mixed,
        "low": low,
        "high": high,
        "arrow": arrow,
    }


def _code(path: Path) -> dict[str, str | None]:
    lines = ("import resonax as rx\n", f"found = rx.load({str(path)!r})", "print(found)")
    return {"python": "\n".join((*lines, "figure = found.plot()\n")), "command": None}


def _shown(value: Any) -> Any:
    """Return values whose texts hold no characters that cannot be shown, and are not endless."""
    if isinstance(value, str):
        return "\n".join(printable(line, _MAX_TEXT) for line in value.split("\n"))
    if isinstance(value, list):
        return [_shown(part) for part in value]
    if isinstance(value, dict):
        return {name: _shown(part) for name, part in value.items()}
    return value
