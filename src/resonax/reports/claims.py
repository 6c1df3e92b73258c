"""Claims as JSON, and as a table in Markdown."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from resonax.core.errors import StoreError
from resonax.core.objects import plain_values
from resonax.reports.page import write_page
from resonax.store import Location, make_folder
from resonax.store.files import UNSEALED, read_sealed, seal
from resonax.sweeps.judgement import (
    Case,
    Claim,
    deciding_case,
    interval_text,
    measured_text,
)

_LOG = logging.getLogger("resonax")

__all__ = ["claims_table", "plain_claims", "read_claims", "write_claims"]


def plain_claims(claims: Iterable[Claim], *, scale: str, seed: int) -> list[dict[str, Any]]:
    """Return claims as JSON has them, each with the scale and the seed that it was made with.

    JSON has no word for a measured figure that is infinite or no number: it becomes null.
    """
    return plain_values([{**claim.to_dict(), "scale": scale, "seed": seed} for claim in claims])


def write_claims(claims: Iterable[Mapping[str, Any]], folder: Location) -> Location:
    """Write plain claims to ``claims.json``, whole and with a checksum; return its path.

    Claims that are there and were not judged now are kept, unless the file is damaged. A table of
    all stands beside, in ``claims.md``.
    """
    path = make_folder(folder) / "claims.json"
    try:
        stored = read_claims(path)
    except StoreError as error:
        _LOG.warning("%s for claims that are not judged now: the file is written anew", error)
        stored = []
    merged = {claim["id"]: claim for claim in [*stored, *claims]}
    table = {"sha256": UNSEALED, "claims": list(merged.values())}
    text = json.dumps(table, indent=2, ensure_ascii=False, allow_nan=False)
    write_page(claims_table(merged.values()), path.with_suffix(".md"))
    return write_page(seal(text.encode() + b"\n").decode(), path)


def read_claims(path: Location) -> list[dict[str, Any]]:
    """Return the plain claims of a file, none where it is not there.

    One that has changed since it was written, in whatever way, is an error.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{path} could not be read: {error.strerror}") from None
    try:
        stored = (read_sealed(data) or {})["claims"]
        claims_table(stored)  # what has no row there is no claim
        return stored
    except (AttributeError, LookupError, TypeError, ValueError):
        raise StoreError(
            f"{path} is damaged, or not what this version of resonax wrote: run "
            "`resonax reproduce` again"
        ) from None


def claims_table(claims: Iterable[Mapping[str, Any]]) -> str:
    """Return plain claims as a table in Markdown, with the command that made them.

    Each row has the first case with the outcome of its claim, and the outcome under each reading.
    """
    claims = list(claims)
    made = {f"--scale {claim['scale']} --seed {claim['seed']}": 0 for claim in claims}
    lines = [
        f"Made by {' and '.join(f'`resonax reproduce {how}`' for how in made)}.",
        "",
        "| claim | what was measured | measured | interval | claimed | outcome | significance |",
        "|---|---|---|---|---|---|---|",
    ]
    for claim in claims:
        worst = deciding_case(map(Case.from_dict, claim["cases"]), claim["holds"])
        outcome = claim["outcome"] if claim["holds"] else f"**{claim['outcome']}**"
        for reading, one in claim.get("readings", {}).items():
            outcome += f"; {reading}: {one}"
        cells = (
            f"`{claim['id']}`",
            worst.case,
            measured_text(worst),
            interval_text(worst),
            f"{worst.comparison} {worst.threshold:g}",
            outcome,
            f"{claim['significance']:g}" if claim["significance"] else "exact",
        )
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"
