"""What a page is made of: parts, each with a template, and pictures that lie in the page itself."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from resonax.core.markup import render
from resonax.store import Location, replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Part", "Picture", "draw", "frame", "number", "render_page", "sentence", "write_page"]


class Part(NamedTuple):
    """A section of a page: its id, its name, the template of its content, and what that needs."""

    key: str
    name: str
    template: str = "terms.html"
    value: Any = None
    small: str = ""  # words beside the name
    kind: str = "facts"  # of terms


class Picture(NamedTuple):
    """A PNG as a part of the page; ``dark`` is the same for a dark page."""

    key: str
    label: str
    alt: str
    caption: tuple[str, ...]  # paragraphs
    width: int
    height: int
    light: Markup
    dark: Markup | None


def render_page(kind: str, title: str, parts: Iterable[Part], **values: Any) -> str:
    """Return a page of parts; ``kind`` is the folder of its templates."""
    styles = ("page.css", "check.css") if kind == "check" else ("page.css",)
    return render(
        "page.html",
        title=title,
        styles=styles,
        head=f"{kind}/head.html",
        aside=f"{kind}/aside.html",
        parts=tuple(parts),
        **{"kept": None, **values},
    )


def write_page(text: str, path: Location) -> Location:
    """Write a page, whole or not at all; return its path."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return path


def frame(
    key: str, png: bytes, label: str, alt: str, caption: str, dark: bytes | None = None
) -> Picture:
    """Return a PNG with its words; an empty line of the caption begins a paragraph."""
    width, height = (size * 3 // 4 for size in struct.unpack(">II", png[16:24]))
    other = None if dark is None else _address(dark)
    paragraphs = tuple(caption.split("\n\n"))
    return Picture(key, label, alt, paragraphs, width, height, _address(png), other)


def draw(key: str, figure: Figure, alt: str, caption: str) -> Picture:
    """Return a figure as a picture for light and for dark pages; it is left dark."""
    from resonax.figures.dark import darken  # not above: a page of stored pictures draws none
    from resonax.figures.style import png_of

    light = png_of(figure)
    figure.set_layout_engine("none")  # everything has its place
    darken(figure)
    return frame(key, light, caption.partition(".")[0], alt, caption, png_of(figure))


def _address(png: bytes) -> Markup:
    return Markup(f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}")


def number(value: float) -> str:
    """Return a number with two digits and a true minus.

    Examples
    --------
    >>> number(-0.01886)
    '−0.019'
    """
    return f"{value:.2g}".replace("-", "−")


def sentence(words: str) -> str:
    """Return words with a capital at their beginning."""
    return words[:1].upper() + words[1:]
