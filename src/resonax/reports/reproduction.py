"""The report of a reproduction: one page that stands alone, and the claims as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from resonax.checks import StoreError
from resonax.reports import Part, escape, framed, page, terms
from resonax.results import make_folder, replacing
from resonax.sweeps.judgement import (
    OUTCOMES,
    Case,
    Claim,
    interval_text,
    measured_text,
)

__all__ = [
    "Report",
    "Section",
    "claims_table",
    "plain_claims",
    "render",
    "write_claims",
    "write_report",
]


@dataclass(frozen=True)
class Section:
    """One figure of the paper made again, with what is to be known of it."""

    id: str
    title: str
    paper: str  # which figure of the paper, "Fig. 2a"
    caption: str
    figure: Path  # a PNG, which is put into the page
    readings: tuple[tuple[str, str], ...]  # name and explanation, where the paper leaves a choice
    seconds: float | None  # None where the data was stored already
    cells: int | None = None  # simulated cells
    runs: int | None = None  # independent runs of each cell
    dark: Path | None = None  # the figure for dark pages, if there is one
    deviations: tuple[str, ...] = ()  # where it departs from the paper, or the paper is silent


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

_HEAD = Template("""<p class="kicker">Reproduction, $scale scale</p>
<h1>Can the order of the data make training diverge?</h1>
<p class="lead">Momentum makes the weights of a model swing like a pendulum. Data that arrives in a
rhythm pushes that pendulum, and at certain periods it pushes in time: the error grows
exponentially, although the same data in random order trains well.</p>
<p>Banman, Peet-Pare, Hegde, Fyshe and White say when, in <cite>Resonance in Weight Space: Covariate
Shift Can Drive Divergence of SGD with Momentum</cite> (ICLR 2022). Here are their figures, made
again, and their claims, each judged by a measured number and a threshold.</p>""")


def render(report: Report) -> str:
    """Return the page: HTML that needs no other file and no network."""
    facts = [
        ("scale", f"{report.scale}. {_SCALES.get(report.scale, '')}"),
        ("seed", str(report.seed)),
        ("device", report.device),
        ("time", _duration(report.seconds)),
        ("versions", ", ".join(f"{name} {number}" for name, number in report.versions.items())),
        ("command", report.command),
    ]
    command = " ".join(f"<span>{escape(word)}</span>" for word in report.command.split(" "))
    again = f'<p class="aside">Make it again:</p><pre tabindex="0"><code>{command}</code></pre>'
    parts = {
        "words": Part("Words", terms(_WORDS, "words")),
        "claims": Part("Claims", _claims_table(report.claims)),
        **{one.id: Part(one.title, _section(one), one.paper) for one in report.sections},
        "provenance": Part("Provenance", terms(facts)),
    }
    return page(
        "Resonance in weight space: the figures and claims, made again",
        _HEAD.substitute(scale=escape(report.scale)),
        f"{_tally(report)}\n{again}",
        parts,
    )


def write_report(report: Report, folder: Path) -> Path:
    """Write the page as ``report.html``, whole or not at all; return its path."""
    return _write(render(report), make_folder(folder) / "report.html")


def plain_claims(claims: Iterable[Claim], *, scale: str, seed: int) -> list[dict[str, Any]]:
    """Return claims as JSON has them, each with the scale and the seed that it was made with.

    JSON has no word for a measured figure that is infinite or no number: it becomes null.
    """
    return [_plain({**claim.to_dict(), "scale": scale, "seed": seed}) for claim in claims]


def write_claims(claims: Iterable[Mapping[str, Any]], folder: Path) -> Path:
    """Write plain claims to ``claims.json``, whole or not at all; return its path.

    Claims that are there and were not judged now are kept. A table of all stands beside, in
    ``claims.md``.
    """
    path = make_folder(folder) / "claims.json"
    merged = {claim["id"]: claim for claim in [*_read_claims(path), *claims]}
    text = json.dumps(list(merged.values()), indent=2, ensure_ascii=False, allow_nan=False)
    _write(claims_table(merged.values()), path.with_suffix(".md"))
    return _write(text + "\n", path)


def _read_claims(path: Path) -> list[dict[str, Any]]:
    try:
        stored = json.loads(path.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        stored = None
    wanted = {"id", "holds", "outcome", "level", "cases", "scale", "seed"}
    if not isinstance(stored, list) or not all(
        isinstance(one, dict) and wanted <= one.keys() for one in stored
    ):
        raise StoreError(f"{path} holds no claims: delete it and run the same command again")
    return stored


def claims_table(claims: Iterable[Mapping[str, Any]]) -> str:
    """Return plain claims as a table in Markdown, with the command that made them.

    Each row has the first case with the outcome of its claim.
    """
    claims = list(claims)
    made = {f"--scale {claim['scale']} --seed {claim['seed']}": 0 for claim in claims}
    lines = [
        f"Made by {' and '.join(f'`resonax reproduce {how}`' for how in made)}.",
        "",
        "| claim | what was measured | measured | interval | claimed | outcome | level |",
        "|---|---|---|---|---|---|---|",
    ]
    for claim in claims:
        deciding = [case for case in claim["cases"] if case["decides"]]
        same = next(case for case in deciding if case["holds"] is claim["holds"])
        worst = Case.from_dict(same)
        cells = (
            f"`{claim['id']}`",
            worst.case,
            measured_text(worst),
            interval_text(worst),
            f"{worst.comparison} {worst.threshold:g}",
            claim["outcome"] if claim["holds"] else f"**{claim['outcome']}**",
            f"{claim['level']:g}" if claim["level"] else "exact",
        )
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _write(text: str, path: Path) -> Path:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return path


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, str | int):
        return value
    return float(value) if math.isfinite(value) else None


def _tally(report: Report) -> str:
    if not report.claims:
        return "<p>No claim was judged in this run.</p>"
    holding = sum(claim.holds is True for claim in report.claims)
    words = f"{holding} of {_count(len(report.claims), 'claim')}"
    lines = [f"<strong>{words}</strong> hold at the {escape(report.scale)} scale."]
    for outcome in (False, None):
        ids = [escape(claim.id) for claim in report.claims if claim.holds is outcome]
        if ids:
            names = ", ".join(f'<a href="#claim-{name}">{name}</a>' for name in ids)
            lines.append(f"{_outcome(outcome, len(ids))}: {names}.")
    text = "".join(f"<p>{line}</p>\n" for line in lines)
    return f'{text}<p class="aside">{_SCALES.get(report.scale, "")}</p>'


def _claims_table(claims: tuple[Claim, ...]) -> str:
    if not claims:
        return "<p>None was judged in this run.</p>"
    names = ("id", "claim", "measured", "threshold", "outcome")
    head = "".join(f'<th scope="col" role="columnheader">{name}</th>' for name in names)
    rows = "\n".join(_claim(claim) for claim in claims)
    return f"""<p>A claim holds when every case that decides does, and does not when one does not;
where the intervals have both sides it is not decided. The level is the most that the chance of a
wrong word may be. Each row shows the first case with the outcome of its claim; open it for all of
them.</p>
<div class="scroll" tabindex="0" role="region" aria-label="Claims">
<table class="claims" role="table"><thead role="rowgroup"><tr role="row">{head}</tr></thead>
{rows}
</table></div>"""


def _claim(claim: Claim) -> str:
    worst, name = claim.worst, escape(claim.id)
    cases = "\n".join(_case(case) for case in claim.cases)
    level = f"{claim.level:g}" if claim.level else "there is no chance in these figures"
    about = [
        ("measured", claim.quantity),
        ("why this threshold", claim.reason),
        ("error level", level),
    ]
    about += [("note", claim.note)] if claim.note else []
    more = f"{_count(len(claim.cases), 'case')}, {'reason and note' if claim.note else 'reason'}"
    return f"""<tbody id="claim-{name}" role="rowgroup">
<tr role="row"><th scope="row" role="rowheader"><code>{name}</code></th>
<td role="cell" class="claim">{escape(claim.claim)}</td>
<td role="cell" class="measured" data-label="measured"><span class="number">{measured_text(worst)}
</span> <small>{_between(worst)}</small> <small>{escape(worst.case)}</small></td>
<td role="cell" class="number" data-label="threshold">{_threshold(worst)}</td>
<td role="cell" class="outcome">{_outcome(claim.holds)}</td></tr>
<tr role="row" class="more"><td role="cell" colspan="5"><details><summary>{more}</summary>
{terms(about)}
<div class="scroll" tabindex="0" role="region" aria-label="Cases of {name}"><table class="cases">
<thead><tr><th scope="col">case</th><th scope="col">measured</th><th scope="col">interval</th>
<th scope="col">threshold</th><th scope="col">outcome</th></tr></thead>
<tbody>{cases}</tbody></table></div></details></td></tr>
</tbody>"""


def _case(case: Case) -> str:
    outcome = _outcome(case.holds) + ("" if case.decides else " <small>(only shown)</small>")
    return f"""<tr><th scope="row">{escape(case.case)}</th><td class="number">{measured_text(case)}
</td><td class="number">{interval_text(case)}</td><td class="number">{_threshold(case)}</td>
<td>{outcome}</td></tr>"""


def _between(case: Case) -> str:
    return f"({interval_text(case)})" if case.interval else ""


_MARKS = {True: ("holds", "✓"), False: ("fails", "✗"), None: ("open", "?")}


def _outcome(holds: bool | None, count: int = 1) -> str:
    style, mark = _MARKS[holds]
    words = "do not hold" if holds is False and count > 1 else OUTCOMES[holds]
    return f'<span class="{style}"><span aria-hidden="true">{mark}</span> {words}</span>'


def _threshold(case: Case) -> str:
    sign = {">=": "≥", "<=": "≤"}.get(case.comparison, case.comparison)
    return f"{escape(sign)} {case.threshold:g}"


def _section(section: Section) -> str:
    caption = "\n".join(f"<p>{escape(part)}</p>" for part in section.caption.split("\n\n"))
    alt = f"{section.title} ({section.paper} of the paper), explained in the caption"
    dark = _png(section.dark) if section.dark else None
    shown = framed(section.id, _png(section.figure), section.title, alt, caption, dark)
    seconds = section.seconds
    facts = ["Stored already" if seconds is None else f"Computed in {_duration(seconds)}"]
    facts += [] if section.cells is None else [_count(section.cells, "cell")]
    facts += [] if section.runs is None else [f"{_count(section.runs, 'run')} of each"]
    more = (
        f"<h3>How the paper was read</h3>\n{terms(section.readings)}\n" if section.readings else ""
    )
    items = "\n".join(f"<li>{escape(text)}</li>" for text in section.deviations)
    if items:
        more += f"<h3>Where it departs from the paper</h3>\n<ul>\n{items}\n</ul>\n"
    return f"""{shown}
{more}<p class="aside">{", ".join(facts)}.</p>"""


def _png(path: Path) -> bytes:
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
