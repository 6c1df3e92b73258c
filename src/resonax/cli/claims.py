"""What the terminal shows of the claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from resonax.cli.show import show_line
from resonax.sweeps.judgement import (
    DEPENDS,
    OUTCOMES,
    Claim,
    interval_text,
    measured_text,
    readings_text,
)

__all__ = ["show_claims", "tally"]

_NARROWEST = 18  # characters left to the words of the table, at the least
_COLOURS = {
    OUTCOMES[True]: "green",
    OUTCOMES[False]: "bold red",
    OUTCOMES[None]: "yellow",
    DEPENDS: "cyan",
}
_SHORT = {OUTCOMES[False]: "does not", DEPENDS: "depends"}


def tally(claims: Sequence[Claim]) -> str:
    """Return how many claims have which outcome, in one sentence.

    Examples
    --------
    >>> from resonax.sweeps.judgement import Case
    >>> tally([Claim("a", "", "", "", (Case("b", 1.0, ">", 0.0),), significance=0.0)])
    '1 of 1 claim holds.'
    """
    found = Counter(claim.outcome for claim in claims)
    many = len(claims) != 1
    text = f"{found['holds']} of {len(claims)} claim{'s hold' if many else ' holds'}"
    if count := found["does not hold"]:
        text += f", {count} {'do' if count > 1 else 'does'} not"
    if count := found["not decided"]:
        text += f", {count} {'are' if count > 1 else 'is'} not decided"
    if count := found[DEPENDS]:
        text += f", {count} depend{'' if count > 1 else 's'} on the reading"
    return f"{text}."


def show_claims(claims: Sequence[Claim], console: Console) -> None:
    """Print a table of the claims, then a line for each that does not hold or is not decided.

    Ids and numbers are never cut or broken: the words between them wrap, and on a terminal too
    narrow even for that the lines run over.
    """
    rows = [
        (
            claim.id,
            claim.quantity,
            measured_text(claim.worst),
            f"{claim.worst.comparison} {claim.worst.threshold:g}",
            _SHORT.get(claim.outcome, claim.outcome),
        )
        for claim in claims
    ]
    names = ("claim", "what was measured", "measured", "threshold", "outcome")
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    widths[1] = min(widths[1], max(_NARROWEST, console.width - sum(widths) + widths[1] - 8))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), width=sum(widths) + 8)
    for name, width in zip(names, widths, strict=True):
        wraps = name == names[1]
        right = "right" if name == "measured" else "left"
        table.add_column(name, width=width, no_wrap=not wraps, justify=right)
    for claim, (*cells, outcome) in zip(claims, rows, strict=True):
        table.add_row(*map(Text, cells), Text(outcome, _COLOURS[claim.outcome]))
    if claims:
        console.print(table, crop=False)
    show_line(tally(claims), console)
    for claim in claims:
        if claim.holds:
            continue
        worst = claim.worst
        figure = measured_text(worst)
        figure += f" ({interval_text(worst)})" if worst.interval else ""
        verb = "is " if claim.outcome == OUTCOMES[None] else ""
        line = f"{claim.id} {verb}{claim.outcome}"
        if claim.outcome == DEPENDS:
            line += f" ({readings_text(claim)})"
        limit = f"{worst.comparison} {worst.threshold:g}"
        show_line(f"{line}: {worst.case}: {figure}, claimed {limit}. {claim.note}".strip(), console)
