"""The report of a check, for readers who do not know resonance."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from resonax.checking.result import Check
from resonax.core.labels import versions
from resonax.figures.check import plot_panels
from resonax.reports.page import Part, Picture, draw, number, render_page, sentence, write_page
from resonax.rows.answers import factor, pace
from resonax.rows.intervals import BURST
from resonax.store import check_folder

__all__ = ["render_check", "write_check"]

_HEADINGS = {
    "diverges": "Training diverges",
    "converges": "Training converges",
    "rises": "Training is harmed on the way",
}

# name: what it is, and what to do
_REMEDIES = {
    "momentum": (
        "Largest safe momentum",
        "with your step size",
    ),
    "lr": (
        "Largest safe step size",
        "with your momentum",
    ),
    "batch": (
        "Smallest safe batch",
        "average the gradient of so many rows in one update",
    ),
    "shuffle_buffer": (
        "Smallest safe shuffle buffer",
        "hold so many rows ready, or more, and draw the next one from them at random",
    ),
    "fastest_momentum": (
        "Momentum that converges fastest",
        "of the safe ones, with your step size",
    ),
}

_CAPTIONS = {
    "map": "Your setting among others. The colour says what becomes of the distance from the best "
    "weights at each momentum and step size, with these rows in this order: red grows, blue falls, "
    "and on the black line it does neither. The dot is your setting; the triangles are the largest "
    "safe values on the lines through it.",
    "training": "The model, trained. Its squared error from zero weights on, with the rows in "
    "their order and shuffled; each mark of the scale is a power of ten.",
    "orders": "Surrogates of the rows. Each dot is the growth in one variant of the rows: above "
    "the line the distance grows, below it falls. The bar is the interval of your rows.",
    "rhythms": "The rhythms in the data. A peak is a rhythm of that period, in the columns or in "
    "products of two of them, which are what pushes the weights.",
}
_SLOPE = " The dashed line is the growth that was measured without looking at the target."
_BELOW = " Below, the rhythms of one band of periods are removed from the rows, band after band."
_BAND = " The shaded band is where theory expects growth of one pure rhythm of this strength."

_WORDS = (
    ("step", "one update of the weights"),
    (
        "distance",
        "that of the weights from the best ones, as far as it is due to where they began: the "
        "difference of two runs on the same rows",
    ),
    ("step size, lr", "how far one update moves the weights; also called learning rate"),
    ("momentum", "how much of the last move is kept: the nearer to 1, the longer the swing"),
    (
        "growth per step",
        "each step multiplies the distance by e to this power, on average: above 0 it grows, "
        "below 0 it falls, and 0.007 doubles it in 100 steps",
    ),
    ("interval", "where the growth on further data like this lies, as far as these can tell"),
    (
        "safe",
        f"in no stretch of these rows the distance grows more than {BURST:.0f}-fold, it ends "
        "smaller after one pass and after many, and so it would on further data like this, as far "
        "as can be told",
    ),
    ("bounded", "the weights of the trained model stayed of the size of the solution"),
    ("conservative", "the value is safe, and values just beyond it may be safe too"),
    ("period", "the number of steps after which a rhythm begins anew"),
    ("random phases", "each rhythm keeps its strength and begins at a random moment"),
    ("stretched in time", "rows are repeated or left out: all rhythms are slower or faster"),
)
_FEW = 8  # are enough where nothing grows


class _Variant(NamedTuple):
    """The growth in one variant of the rows, and what else is said of it."""

    name: str
    how: str
    rate: float | None
    ends: tuple[float, float] | None = None
    words: str = ""

    @property
    def kind(self) -> str:
        assert self.rate is not None
        if self.ends is not None and self.ends[0] * self.ends[1] <= 0:
            return "open"
        return "grows" if self.rate > 0 else "falls"


def write_check(check: Check, path: str | Path, command: str = "") -> Path:
    """Write the page of a check, whole or not at all; return its path."""
    path = check_folder(path)  # before anything is drawn
    write_page(render_check(check, command), path)
    return path


def render_check(check: Check, command: str = "") -> str:
    """Return the page of a check: HTML that needs no other file and no network.

    ``command`` is what makes the page again.
    """
    calm, unsafe = check.verdict == "converges", any(one.needed for one in check.remedies)
    room = "For more room" if calm else "What would help"
    made = [("versions", ", ".join(f"{name} {version}" for name, version in versions().items()))]
    made += [("command", command)] if command else []
    pictures = _pictures(check, ("map", "training") if calm else tuple(_CAPTIONS))
    parts = [
        Part("cause", "Why", "check/cause.html"),
        Part("remedies", room if unsafe else "How far you can go", "check/remedies.html"),
        Part("pictures", "Pictures", "check/pictures.html", pictures),
        Part("data", "Data and settings", "check/data.html", _facts(check)),
        Part("words", "Words", value=_WORDS[:_FEW] if calm else _WORDS, kind="words"),
        Part("provenance", "Provenance", value=made),
    ]
    left_out = {"cause": calm, "pictures": not pictures}
    bands = check.dataset.tongues.values.tolist() if check.dataset.sizes.get("tongue") else []
    source = dict(check.facts).get("source", "data")
    return render_page(
        "check",
        f"{_HEADINGS[check.verdict]}: {source}",
        [part for part in parts if not left_out.get(part.key)],
        check=check,
        source=source,
        heading=_HEADINGS[check.verdict],
        log_pass_radius=check.on_these_rows.log_pass_radius,
        asked=_asked(check),
        variants=_variants(check),
        bands=bands,
        in_band=any(low <= (check.period or 0) <= high for low, high in bands),
        unsafe=unsafe,
        remedy_words=_REMEDIES,
        number=number,
        pace=pace,
        factor=factor,
        sentence=sentence,
    )


def _asked(check: Check) -> list[tuple[str, str]]:
    names = {"lr": "step size, lr", "epochs": "passes", "intercept_lr": "lr of the bias"}
    kept = ("optimizer", "lr", "momentum", "batch", "epochs", "intercept_lr")
    chosen = [(names.get(key, key), check.settings.get(key)) for key in kept]
    facts = [(name, text) for name, text in check.facts if name in ("rows", "steps")]
    return [(name, str(value)) for name, value in chosen if value is not None] + facts


def _rise(log: float) -> str:
    return f"rises up to {factor(log)}-fold on the way"


def _variants(check: Check) -> list[_Variant]:
    """Return the growth of the same rows in their order and otherwise."""
    data = check.dataset
    times = f"Shuffled, {data.sizes['shuffle']} times"
    shuffled = (check.shuffled_low, check.shuffled_high)
    found = [
        _Variant(
            "In this order",
            "the rows as they are",
            check.rate,
            (check.low, check.high),
            _rise(check.on_these_rows.log_rise),
        ),
        _Variant(
            times,
            "no rhythm is left in them",
            check.shuffled_rate,
            shuffled,
            _rise(check.log_shuffled_rise),
        ),
    ]
    if "without_values" not in data:
        return found
    best = float(np.minimum(data.without_values.values, data.without_size.values).min())
    name, how = "Without any one rhythm", "taken out and put back in random order: the best try"
    if check.period is not None:
        name = f"Without the rhythm of {check.period:.3g} steps"
        how = "what has about this period is put in random order, all else stays"
    phases, tempos = data.randomised.values, data.stretched.values
    ends = (float(phases.min()), float(phases.max()))
    return [
        *found,
        _Variant(name, how, data.attrs.get("without", best)),
        _Variant("With random phases", "rhythms as strong as before", float(phases.mean()), ends),
        _Variant(
            "Stretched in time",
            f"slower or faster, up to {float(data.stretch.max()):.2g} fold",
            None,
            (float(tempos.min()), float(tempos.max())),
            f"grows at {int(np.sum(tempos > 0))} of {len(tempos)} tempos",
        ),
    ]


def _pictures(check: Check, names: tuple[str, ...]) -> list[Picture]:
    data, captions = check.dataset, dict(_CAPTIONS)
    captions["training"] += _SLOPE if check.verdict == "diverges" else ""
    captions["rhythms"] += _BELOW if "without_values" in data else ""
    captions["rhythms"] += _BAND if data.sizes.get("tongue") else ""
    settings, period = check.settings, check.period
    alts = {
        "map": f"Map over step size and momentum. At {settings['lr']:g} and "
        f"{settings['momentum']:g}, your setting, the distance {pace(check.rate)}.",
        "training": "Curves of the squared error over the steps, in order and shuffled.",
        "orders": f"Growth of {number(check.rate)} in order and {number(check.shuffled_rate)} "
        "shuffled, with other variants of the rows.",
        "rhythms": "Spectrum of the rows over the period."
        + (f" The rhythm of {period:.3g} steps is marked." if period else ""),
    }
    drawn = plot_panels(check, names)
    return [draw(key, figure, alts[key], captions[key]) for key, figure in drawn.items()]


def _facts(check: Check) -> list[tuple[str, str]]:
    given = (f"{key} {value}" for key, value in check.settings.items() if value is not None)
    facts = [(name.partition(" (")[0], text) for name, text in check.facts]
    return [*facts, ("settings", ", ".join(given))]
