"""The report of a reproduction: one page that stands alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from resonax.core.errors import StoreError
from resonax.reports.page import Part, Picture, frame, render_page, write_page
from resonax.store import Location, make_folder
from resonax.sweeps.experiment import Experiment
from resonax.sweeps.judgement import DEPENDS, OUTCOMES, Claim, interval_text, measured_text

__all__ = ["Report", "Section", "render", "write_report"]


@dataclass(frozen=True)
class Section:
    """One figure of the paper made again, with what is to be known of it."""

    experiment: Experiment
    figure: Location  # a PNG, which is put into the page
    dark: Location | None = None  # the figure for dark pages, if there is one
    seconds: float | None = None  # that were computed now; None where all was stored already

    def picture(self) -> Picture:
        """Return the figure with its words."""
        of = self.experiment
        alt = f"{of.title} ({of.paper} of the paper), explained in the caption"
        dark = _png(self.dark) if self.dark else None
        return frame(of.id, _png(self.figure), of.title, alt, of.caption, dark)


@dataclass(frozen=True)
class Report:
    """All that the page shows."""

    sections: tuple[Section, ...]
    claims: tuple[Claim, ...]
    scale: str  # "smoke" or "paper"
    seed: int
    device: str
    versions: Mapping[str, str]
    seconds: float  # of the whole run
    command: str  # the command that makes it again


_SCALES = {
    "smoke": "A small scale, for a quick look: fewer cells and runs than in the paper. What these "
    "data cannot tell is not decided.",
    "paper": "The scale of the paper.",
}

_WORDS = (
    ("step size, η", "how far one update moves the weights"),
    ("momentum, μ", "how much of the last move is kept: the nearer to 1, the longer the swing"),
    ("period, T", "the number of updates after which the inputs begin anew"),
    (
        "radius, ρ",
        "what one period multiplies the error by: above 1 it grows, below 1 it dies away",
    ),
    ("response", "what a simulated run is measured by, such as its distance from the solution"),
    ("iid", "inputs drawn independently at each step: the same data without any rhythm"),
)


def render(report: Report) -> str:
    """Return the page: HTML that needs no other file and no network."""
    scale_words = _SCALES.get(report.scale, "")
    facts = [
        ("scale", f"{report.scale}. {scale_words}"),
        ("seed", str(report.seed)),
        ("device", report.device),
        ("time", _duration(report.seconds)),
        ("versions", ", ".join(f"{name} {number}" for name, number in report.versions.items())),
        ("command", report.command),
    ]
    pairs = ((section, section.experiment) for section in report.sections)
    figures = (
        Part(record.id, record.title, "reproduction/figure.html", section, record.paper)
        for section, record in pairs
    )
    return render_page(
        "reproduction",
        "Resonance in weight space: the figures and claims, made again",
        (
            Part("words", "Words", value=_WORDS, kind="words"),
            Part("claims", "Claims", "reproduction/claims.html"),
            *figures,
            Part("provenance", "Provenance", value=facts),
        ),
        report=report,
        scale_words=scale_words,
        tally={
            outcome: [claim for claim in report.claims if claim.outcome == outcome]
            for outcome in (*OUTCOMES.values(), DEPENDS)
        },
        measured_text=measured_text,
        interval_text=interval_text,
        count=_count,
        duration=_duration,
    )


def write_report(report: Report, folder: Location) -> Location:
    """Write the page as ``report.html``, whole or not at all; return its path."""
    return write_page(render(report), make_folder(folder) / "report.html")


def _png(path: Location) -> bytes:
    data = path.read_bytes()
    if not data.startswith(b"\x89PNG\r\n\x1a\n") or len(data) < 24:
        raise StoreError(f"the figure {path} is not a PNG: the report shows no other")
    return data


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.2g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
