"""What a check found, as JSON for a page: in parts while it grows, and whole at its end."""

from __future__ import annotations

from typing import Any

from resonax.checking.result import REMEDIES, Check, sentence
from resonax.core.objects import plain_values

__all__ = ["describe_check", "describe_finding"]


def describe_finding(name: str, finding: Any) -> dict[str, Any]:
    """Return one finding of a check that is not finished, by its name."""
    if name == "verdict":
        on_rows, on_more = finding
        return plain_values(
            {
                "verdict": on_rows.verdict,
                "sentence": f"{on_rows.verdict}: {on_rows.meaning()}.",
                "on_more": f"{on_more.meaning()}.",
                "rate": on_more.rate,
                "low": on_more.low,
                "high": on_more.high,
            }
        )
    if name == "shuffled":
        return plain_values({"shuffled": finding})
    if name == "rhythm":
        return {"rhythm": _rhythm(*finding)}
    assert name == "remedies"
    return {"remedies": _remedies(finding)}


def _rhythm(period: float | None, kind: str | None) -> dict[str, Any] | None:
    return None if period is None else {"period": period, "kind": kind}


def _remedies(remedies: Any) -> list[dict[str, Any]]:
    found = []
    for remedy in remedies:
        option = "momentum" if remedy.name == "fastest_momentum" else remedy.name
        value = remedy.value
        value = int(value) if value is not None and option == "batch" else value
        has = value is not None and option in ("momentum", "lr", "batch")
        found.append(
            {
                "name": remedy.name,
                "label": REMEDIES[remedy.name],
                "value": value,
                "sentence": f"{sentence(remedy)}.",
                "needed": remedy.needed,
                "confirmed": remedy.confirmed,
                "changes": {option: value} if has else {},
            }
        )
    return plain_values(found)


def describe_check(
    found: Check, name: str, code: dict[str, Any], *, whole: bool = True
) -> dict[str, Any]:
    """Return a check; not ``whole``, without the numbers of its pictures."""
    described = {
        "name": name,
        "check": found.to_dict(),
        "verdict": found.verdict,
        "sentence": f"{found.verdict}: {found.meaning()}.",
        "on_more": f"{found.on_more.meaning()}.",
        "explanation": found.explanation(),
        "rate": found.rate,
        "low": found.low,
        "high": found.high,
        "rhythm": _rhythm(found.period, found.rhythm),
        "remedies": _remedies(found.remedies),
        "order_proof": f"{found.order_proof.meaning('rows')}.",
        "notes": [f"{note.rstrip('.')}." for note in found.notes],
        "facts": dict(found.facts),
        "code": code,
    }
    return plain_values(described | _figure_data(found) if whole else described)


def _figure_data(found: Check) -> dict[str, Any]:
    data = found.dataset
    curves = None
    if "error" in data:
        curves = {
            "steps": data.step.values,
            "in_order": data.error.sel(order="chronological").values,
            "shuffled": data.error.sel(order="shuffled").values,
        }
    return {
        "map": {
            "x": {"name": "lr", "values": data.lr.values},
            "y": {"name": "momentum", "values": data.momentum.values},
            "rate": data.rate.transpose("momentum", "lr").values,
            "order_proof": data.order_proof.values,
        },
        "spectrum": {
            "periods": data.period.values,
            "power": data.power.values,
            "power_products": data.power_products.values,
            "tongues": data.tongues.values if "tongues" in data else [],
        },
        "trajectories": curves,
        "shuffled": data.shuffled.values,
    }
