"""The report of a check, for someone who trains and never heard of resonance."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from resonax.checking.answers import factor, pace
from resonax.checking.confirm import Remedy
from resonax.checking.result import Check
from resonax.figures.check import plot_panels
from resonax.labels import versions
from resonax.passes.intervals import BURST
from resonax.reports import Part, escape, number, page, picture, table, terms
from resonax.results import replacing

__all__ = ["render_check", "write_check"]

_SWING = """<p>With momentum, the weights of a model swing about the solution like a child on a
swing. Data that arrives in a rhythm pushes the swing, and where the pushes come in time, each swing
is wider than the last: the error grows, although the same rows in random order train well.</p>"""

_HEADINGS = {
    "diverges": "Training diverges",
    "converges": "Training converges",
    "marginal": "Training converges, after a rise",
}
_SIDES = {
    "diverges": "all of it lies above 0",
    "converges": "all of it lies below 0",
    "marginal": "it reaches to both sides of 0, so that it cannot be told",
}

# name: what it is, what to do, what is said where there is none
_REMEDIES = {
    "momentum": (
        "Largest safe momentum",
        "with your step size",
        "no momentum is safe with this step size, so lower that first",
    ),
    "lr": (
        "Largest safe step size",
        "with your momentum",
        "no step size that was tried is safe with this momentum, so lower that first",
    ),
    "batch": (
        "Smallest safe batch",
        "average the gradient of so many rows in one update",
        "no batch is safe that leaves enough steps to judge it",
    ),
    "shuffle_buffer": (
        "Smallest safe shuffle buffer",
        "hold so many rows ready, or more, and draw the next one from them at random",
        "even in random order, these rows are not safe with this step size and momentum",
    ),
    "fastest_momentum": (
        "Momentum that converges fastest",
        "of the safe ones, with your step size",
        "no momentum is safe with this step size",
    ),
}

_CAPTIONS = {
    "map": "Your setting among others. The colour says what becomes of an error at each momentum "
    "and step size, with these rows in this order: red grows, blue dies away, and on the black "
    "line it does neither. The dot is your setting; the triangles are the largest safe values on "
    "the lines through it.",
    "training": "The model, trained. Its squared error from zero weights on, with the rows in "
    "their order and shuffled; each mark of the scale is a power of ten.",
    "orders": "The same rows otherwise. Each dot is the growth in one variant of the rows: above "
    "the line the error grows, below it dies away. The bar is the interval of your rows.",
    "rhythms": "The rhythms in the data. A peak is a rhythm of that period, in the columns or in "
    "products of two of them, which are what pushes the weights.",
}
_SLOPE = " The dashed line is the growth that was measured without looking at the target."
_BELOW = " Below, rhythms are taken out of the rows, one band of periods after the other."
_BAND = " The shaded band is where theory expects growth of one pure rhythm of this strength."

_WORDS = (
    ("step", "one update of the weights"),
    ("step size, lr", "how far one update moves the weights; also called learning rate"),
    ("momentum", "how much of the last move is kept: the nearer to 1, the longer the swing"),
    (
        "growth per step",
        "each step multiplies the error by e to this power, on average: above 0 it grows, below 0 "
        "it dies away, and 0.007 doubles it in 100 steps",
    ),
    ("interval", "where the growth on more such rows lies, as far as so many steps can tell"),
    (
        "safe",
        f"no stretch of these rows lets an error grow more than {BURST:.0f} fold, it ends smaller "
        "after one pass and after many, and so it would on more such rows, as far as can be told",
    ),
    ("bounded", "the weights of the trained model stayed of the size of the solution"),
    ("sharp, soft", "just beyond a sharp boundary the error grows; beyond a soft one it may not"),
    ("period", "the number of steps after which a rhythm begins anew"),
    ("random phases", "each rhythm keeps its strength and begins at a random moment"),
    ("stretched in time", "rows are repeated or left out: all rhythms are slower or faster"),
)
_FEW = 7  # are enough where nothing grows


def write_check(check: Check, path: str | Path, command: str = "") -> Path:
    """Write the page of a check, whole or not at all; return its path."""
    text = render_check(check, command)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return Path(path)


def render_check(check: Check, command: str = "") -> str:
    """Return the page of a check: HTML that needs no other file and no network.

    ``command`` is what makes the page again.
    """
    calm = check.verdict == "converges"
    room = "For more room" if calm else "What would help"
    source = dict(check.facts).get("source", "data")
    words = _WORDS[:_FEW] if calm else _WORDS
    made = [("versions", ", ".join(f"{name} {version}" for name, version in versions().items()))]
    made += [("command", command)] if command else []
    parts = {
        "cause": Part("Why", "" if calm else _cause(check)),
        "remedies": Part(room if _unsafe(check) else "How far you can go", _remedies(check)),
        "pictures": Part("Pictures", _pictures(check, ("map", "training") if calm else _CAPTIONS)),
        "data": Part("Data and settings", _data(check)),
        "words": Part("Words", terms(words, "words")),
        "provenance": Part("Provenance", terms(made)),
    }
    title = f"{_HEADINGS[check.verdict]}: {source}"
    return page(title, _verdict(check, source), _asked(check), parts, ("check.css",))


def _verdict(check: Check, source: str) -> str:
    meaning, more = check.meaning(), check.on_more
    parts = [
        f'<p class="kicker">Check of {escape(source)}</p>',
        f'<h1 class="{check.verdict}">{_HEADINGS[check.verdict]}</h1>',
        f'<p class="lead">{escape(meaning[0].upper() + meaning[1:])}.</p>',
        f"<p>This is certain: the rows are given.{_one_pass(check)}</p>",
        f"<p><strong>{escape(more.meaning().capitalize())}.</strong> Growth per step: "
        f'<strong class="number">{number(more.rate)}</strong>, with a {100 * more.level:.4g}% '
        f"interval from {number(more.low)} to {number(more.high)}: {_SIDES[more.verdict]}.</p>",
    ]
    return "\n".join([*parts, _SWING] if check.cause == "order" else parts)


def _unsafe(check: Check) -> bool:
    return any(remedy.needed for remedy in check.remedies)


def _one_pass(check: Check) -> str:
    log = check.on_these_rows.log_pass_radius
    if log is None:
        return ""
    word = "multiplies" if log >= 0 else "divides"
    return f" Each further pass over them {word} an error by {factor(abs(log))} in the end."


def _asked(check: Check) -> str:
    names = {"lr": "step size, lr", "epochs": "passes", "intercept_lr": "lr of the bias"}
    kept = ("optimizer", "lr", "momentum", "batch", "epochs", "intercept_lr")
    chosen = [(names.get(key, key), check.settings.get(key)) for key in kept]
    facts = [(name, text) for name, text in check.facts if name in ("rows", "steps")]
    return terms([(name, str(value)) for name, value in chosen if value is not None] + facts)


def _cause(check: Check) -> str:
    shuffled = f"With the same rows in random order, an error {pace(check.shuffled_rate)}"
    if check.cause == "order" and check.period is None:
        text = f"The order of the rows. {shuffled}. No single rhythm is the cause."
    elif check.cause == "order":
        what = "values" if check.rhythm == "values" else "size"
        text = f"The order of the rows: a rhythm of {check.period:.3g} steps in their {what}. "
        text += f"{shuffled}."
    elif check.cause == "generic" and check.shuffled_low > 0:
        text = f"Not the order. {shuffled} as well: this step size with this momentum is too "
        text += "much for these rows, however they are ordered."
    elif check.cause == "generic":
        text = "Not the order, as far as so many steps can tell: shuffled rows do about the same."
    else:
        text = "An error does not end larger, so no cause was looked for."
    times = f"Shuffled, {check.dataset.sizes['shuffle']} times"
    ends = (check.shuffled_low, check.shuffled_high)
    rows = [
        _variant("In this order", "the rows as they are", check.rate, (check.low, check.high)),
        _variant(times, "no rhythm is left in them", check.shuffled_rate, ends),
        *_variants(check),
    ]
    evidence = table(("the same rows", "growth per step", "an error"), rows)
    return f'<p class="cause">{text}</p>\n{_theory(check)}{evidence}'


def _variants(check: Check) -> list[str]:
    data = check.dataset
    if "without_values" not in data:
        return []
    best = float(np.minimum(data.without_values.values, data.without_size.values).min())
    rate = data.attrs.get("without", best)
    name, how = "Without any one rhythm", "taken out and put back in random order: the best try"
    if check.period is not None:
        name = f"Without the rhythm of {check.period:.3g} steps"
        how = "what has about this period is put in random order, all else stays"
    phases, tempos = data.randomised.values, data.stretched.values
    ends = (float(phases.min()), float(phases.max()))
    grows = int(np.sum(tempos > 0))
    return [
        _variant(name, how, rate),
        _variant("With random phases", "rhythms as strong as before", float(phases.mean()), ends),
        _row(
            "Stretched in time",
            f"slower or faster, up to {float(data.stretch.max()):.2g} fold",
            f"<small>{number(tempos.min())} to {number(tempos.max())}</small>",
            f"grows at {grows} of {len(tempos)} tempos",
        ),
    ]


def _variant(name: str, how: str, rate: float, ends: tuple[float, float] | None = None) -> str:
    spread = f"<small>{number(ends[0])} to {number(ends[1])}</small>" if ends else ""
    sure = ends is None or ends[0] * ends[1] > 0
    kind = ("grows" if rate > 0 else "falls") if sure else "open"
    growth = f'<span class="number">{number(rate)}</span>{spread}'
    return _row(name, how, growth, f'<span class="{kind}">{pace(rate)}</span>')


def _row(name: str, how: str, growth: str, error: str) -> str:
    return f"""<tr role="row"><th scope="row" role="rowheader">{name}<small>{how}</small></th>
<td role="cell" data-label="growth per step">{growth}</td>
<td role="cell" data-label="an error">{error}</td></tr>"""


def _theory(check: Check) -> str:
    """Say how the period compares with what theory expects of a pure rhythm."""
    if check.period is None or not check.dataset.sizes.get("tongue"):
        return ""
    bands = check.dataset.tongues.values
    listed = " and ".join(f"{low:.3g} to {high:.3g}" for low, high in bands)
    inside = any(low <= check.period <= high for low, high in bands)
    end = "and this one is there" if inside else "so that more than this rhythm takes part here"
    return f"""<p>Of a single, pure rhythm of this strength, theory expects growth at periods from
{listed} steps, {end}.</p>\n"""


def _remedies(check: Check) -> str:
    lead = "Each of these is enough alone, and the other settings stay as they are."
    if not _unsafe(check):
        lead = "Your setting is safe: nothing has to change."
    elif check.verdict != "diverges":
        lead = "Nothing has to change, but with any one of these no stretch of the rows lets an "
        lead += f"error grow more than {BURST:.0f} fold."
    if all(remedy.confirmed is None for remedy in check.remedies):
        lead += " There is no target, so no model was trained with them."
    names = ("setting", "value", "an error then", "just beyond", "trained with it")
    return f"<p>{lead}</p>\n{table(names, map(_remedy, check.remedies))}"


def _remedy(remedy: Remedy) -> str:
    name, how, none = _REMEDIES[remedy.name]
    start = f'<tr role="row"><th scope="row" role="rowheader">{name}'
    if remedy.value is None:
        none = "So few rows cannot tell one" if remedy.unknown else f"There is none: {none}"
        return f'{start}</th><td role="cell" colspan="4">{none}.</td></tr>'
    setting = "momentum" if remedy.name == "fastest_momentum" else remedy.name
    value = f"<code>{setting} = {remedy.value:.4g}</code>"
    value += " or more" if remedy.least else ""
    if remedy.name == "shuffle_buffer" and remedy.value <= 1:
        value, how = "none is needed", "the rows can stay in their order"
    beyond = "–"
    if setting == remedy.name and remedy.past is not None:
        outcome = "may not grow: soft" if remedy.soft else "grows: sharp"
        beyond = f"{outcome} <small>at {remedy.past:.4g}</small>"
    tried = '<span class="{}"><span aria-hidden="true">{}</span> {}</span>'
    run = "–" if remedy.confirmed is None else tried.format("holds", "✓", "stayed bounded")
    if remedy.confirmed is False:
        run = tried.format("fails", "✗", "did not stay bounded")
    return f"""{start}<small>{how}</small></th><td role="cell" data-label="value">{value}</td>
<td role="cell" data-label="an error then">{"–" if remedy.rate is None else pace(remedy.rate)}</td>
<td role="cell" data-label="just beyond">{beyond}</td>
<td role="cell" data-label="trained with it">{run}</td></tr>"""


def _pictures(check: Check, names: tuple[str, ...] | dict[str, str]) -> str:
    data, captions = check.dataset, dict(_CAPTIONS)
    captions["training"] += _SLOPE if check.verdict == "diverges" else ""
    captions["rhythms"] += _BELOW if "without_values" in data else ""
    captions["rhythms"] += _BAND if data.sizes.get("tongue") else ""
    settings, period = check.settings, check.period
    alts = {
        "map": f"Map over step size and momentum. At {settings['lr']:g} and "
        f"{settings['momentum']:g}, your setting, an error {pace(check.rate)}.",
        "training": "Curves of the squared error over the steps, in order and shuffled.",
        "orders": f"Growth of {number(check.rate)} in order and {number(check.shuffled_rate)} "
        "shuffled, with other variants of the rows.",
        "rhythms": "Spectrum of the rows over the period."
        + (f" The rhythm of {period:.3g} steps is marked." if period else ""),
    }
    drawn = {name: figure for name, figure in plot_panels(check).items() if name in names}
    return "\n".join(picture(key, drawn[key], alts[key], captions[key]) for key in drawn)


def _data(check: Check) -> str:
    notes = "".join(f"<li>{escape(note)}</li>\n" for note in check.notes)
    given = (f"{key} {value}" for key, value in check.settings.items() if value is not None)
    facts = [(name.partition(" (")[0], text) for name, text in check.facts]
    listed = f'<ul class="notes">\n{notes}</ul>\n' if notes else ""
    return listed + terms([*facts, ("settings", ", ".join(given))])
