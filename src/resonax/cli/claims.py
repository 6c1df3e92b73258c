"""What the terminal shows of the claims."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from resonax.cli.show import show_line
from resonax.experiments.judgement import Claim, measured_text

__all__ = ["show_claims"]

_NARROWEST = 18  # characters left to the words of the table, at the least


def show_claims(claims: Sequence[Claim], console: Console) -> None:
    """Print a table of the claims, then a line for each that does not hold.

    Ids and numbers are never cut or broken: the words between them wrap, and on a terminal too
    narrow even for that the lines run over.
    """
    rows = [
        (
            claim.id,
            claim.quantity,
            measured_text(claim.worst),
            f"{claim.worst.comparison} {claim.worst.threshold:g}",
            "holds" if claim.holds else "does not",
        )
        for claim in claims
    ]
    names = ("claim", "what was measured", "measured", "threshold", "holds")
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    widths[1] = min(widths[1], max(_NARROWEST, console.width - sum(widths) + widths[1] - 8))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), width=sum(widths) + 8)
    for name, width in zip(names, widths, strict=True):
        wraps = name == names[1]
        right = "right" if name == "measured" else "left"
        table.add_column(name, width=width, no_wrap=not wraps, justify=right)
    for *cells, outcome in rows:
        colour = "green" if outcome == "holds" else "bold red"
        table.add_row(*map(Text, cells), Text(outcome, colour))
    if claims:
        console.print(table, crop=False)
    failing = [claim for claim in claims if not claim.holds]
    show_line(f"{len(claims) - len(failing)} of {len(claims)} claims hold.", console)
    for claim in failing:
        worst = claim.worst
        figure = f"{measured_text(worst)}, not {worst.comparison} {worst.threshold:g}"
        show_line(f"{claim.id} does not hold ({worst.case}: {figure}). {claim.note}", console)
