"""The report of an audit of a loader, for readers who do not know resonance."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from resonax.core.labels import versions
from resonax.core.objects import format_short
from resonax.figures.audit import plot_audit
from resonax.guards.audit import Audit
from resonax.reports.page import Part, draw, render_page, sentence, write_page
from resonax.store import check_folder
from resonax.store.saved import saved_text

__all__ = ["CAUSES", "answers_of", "heading_of", "write_audit"]

CAUSES = {
    "resonance": "momentum and the order together",
    "forgetting": "what was learned is forgotten before it comes again",
    "step": "the step is too large in any order",
    "phase": "the step is too large for a part of the order",
    "unclear": "these runs cannot tell why",
}

_WORDS = (
    ("step", "one update of the weights"),
    ("order", "random: the batches cannot be told from the same batches in random order"),
    (
        "lost steps",
        "the run is placed on the path that runs on the same rows in random order take: so many "
        "steps less would have been enough for them",
    ),
    (
        "interval",
        "where the lost steps lie, as runs on mixed rows differ among each other: 99% of them",
    ),
    ("effective step", "lr / (1 - momentum) of SGD, lr of Adam: how far a steady gradient moves"),
    (
        "resonance",
        "mixed rows and each part of the order alone train well, and with less momentum at the "
        "same effective step most of the harm is gone",
    ),
    ("forgetting", "less momentum at the same effective step does not help"),
    ("part of the order", "batches of one phase of the rhythm, or that are alike"),
)

_CAPTION = (
    "The runs, and the batches. Above, the loss on a sample of all rows: of copies on the batches "
    "in their order, and on the same rows mixed. Below, numbers of each batch (of labels, lengths, "
    "features and gradients) from blue to red: in a random order no pattern is seen."
)


def write_audit(audit: Audit, path: str | Path, command: str = "") -> Path:
    """Write the page of an audit, whole or not at all; return its path.

    The audit itself lies in the page, so that `resonax.load` and ``resonax explore`` read it there.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from resonax.guards.audit import audit_order
    >>> from resonax.guards.batch_order import find_order
    >>> series = np.arange(100.0)[:, None]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = write_audit(audit_order(find_order(series), series), f"{folder}/audit.html")
    ...     "ordered" in made.read_text()
    True
    """
    path = check_folder(path)
    write_page(render_audit(audit, command), path)
    return path


def render_audit(audit: Audit, command: str = "") -> str:
    """Return the page of an audit: HTML that needs no other file and no network."""
    made = [("versions", ", ".join(f"{name} {version}" for name, version in versions().items()))]
    made += [("command", command)] if command else []
    picture = draw("audit", plot_audit(audit), _alt(audit), _CAPTION)
    facts = [("steps", f"{audit.steps}"), ("trained on copies", f"{audit.work:.0f} steps")]
    facts += [(name, format_short(value)) for name, value in audit.settings.items()]
    parts = [
        Part("pictures", "Pictures", "check/pictures.html", [picture]),
        Part("found", "What was found", value=audit.details()),
        Part("settings", "Settings", value=facts),
        Part("words", "Words", value=_WORDS, kind="words"),
        Part("provenance", "Provenance", value=made),
    ]
    heading = heading_of(audit)
    return render_page(
        "audit",
        heading,
        [part for part in parts if part.value],
        audit=audit,
        heading=heading,
        colour="diverges" if audit.is_harmful else "converges",
        cause_words=CAUSES.get(audit.cause or "", ""),
        asked=answers_of(audit),
        sentence=sentence,
        kept=Markup(saved_text(audit)),  # without any < or >
    )


def heading_of(audit: Audit) -> str:
    """Return order and harm as the head of a page."""
    if audit.cause == "step":
        return "The step is too large in any order"
    order = {"random": "random", "ordered": "not random", "repeated": "the same in each epoch"}
    text = f"The order is {order[audit.order]}"
    return text if audit.harm in (None, "none") else f"{text}, and {audit.harm}"


def answers_of(audit: Audit) -> list[tuple[str, str]]:
    """Return what was found in single words: order, harm, cause, period and lost steps."""
    found = [("order", audit.order)]
    found += [("harm", audit.harm)] if audit.harm else []
    found += [("cause", audit.cause)] if audit.cause else []
    found += [("period", f"{audit.period:.3g} steps")] if audit.period else []
    if audit.lost_steps is not None and audit.cause != "step":
        found.append(("lost steps", f"{audit.lost_steps.lost:.0f} of {audit.steps}"))
    return found


def _alt(audit: Audit) -> str:
    return f"Loss of copies over the steps, in order and mixed. {audit.verdict()}."
