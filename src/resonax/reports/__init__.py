"""Reports: pages that stand alone. Here are the pieces that a page is made of."""

from __future__ import annotations

import base64
import html
import struct
from collections.abc import Iterable, Mapping
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, NamedTuple

from resonax.labels import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Part", "escape", "fold", "framed", "number", "page", "picture", "table", "terms"]

_LONGEST = 4000  # characters of one piece of text: no name can fill a page

_PAGE = Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>
$style</style></head>
<body><header><div>
$head
</div><div class="tally">
$aside
</div></header>
<div class="layout"><nav aria-label="On this page"><ul>
$links
</ul></nav>
<main>
$sections
</main></div></body></html>
""")


class Part(NamedTuple):
    """A section of a page: its name, its content, and small words beside the name."""

    name: str
    content: str
    small: str = ""


def escape(words: object) -> str:
    r"""Return words as HTML that shows them as they are: no mark-up, and no hidden characters.

    Examples
    --------
    >>> print(escape("<b>\u202eTSOC</b>"))
    &lt;b&gt;\u202eTSOC&lt;/b&gt;
    """
    return html.escape(plain(words, _LONGEST))


def page(
    title: str, head: str, aside: str, parts: Mapping[str, Part], styles: Iterable[str] = ()
) -> str:
    """Return a page of sections by their ids; those without content are left out.

    ``styles`` are style sheets of its own, beside that of all pages.
    """
    names = {
        key: escape(part.name) + (f" <small>{escape(part.small)}</small>" if part.small else "")
        for key, part in parts.items()
        if part.content
    }
    links = (f'<li><a href="#{escape(key)}">{name}</a></li>' for key, name in names.items())
    bodies = (
        f'<section id="{escape(key)}"><h2>{name}</h2>\n{parts[key].content}\n</section>'
        for key, name in names.items()
    )
    home = files("resonax.reports")
    return _PAGE.substitute(
        title=escape(title),
        style="".join(home.joinpath(name).read_text("utf-8") for name in ("page.css", *styles)),
        head=head,
        aside=aside,
        links="\n".join(links),
        sections="\n".join(bodies),
    )


def terms(pairs: Iterable[tuple[str, str]], kind: str = "facts") -> str:
    """Return names with what they are; both are escaped."""
    rows = (f"<div><dt>{escape(name)}</dt><dd>{escape(words)}</dd></div>" for name, words in pairs)
    return "\n".join([f'<dl class="{kind}">', *rows, "</dl>"])


def table(names: Iterable[str], rows: Iterable[str]) -> str:
    """Return a table whose rows become blocks on a small screen."""
    head = "".join(f'<th scope="col" role="columnheader">{escape(name)}</th>' for name in names)
    body = "\n".join(rows)
    return f"""<table class="blocks" role="table"><thead role="rowgroup"><tr role="row">{head}</tr>
</thead><tbody role="rowgroup">
{body}
</tbody></table>"""


def framed(
    key: str, png: bytes, label: str, alt: str, caption: str, dark: bytes | None = None
) -> str:
    """Return a PNG as a part of the page, shown at 3/4 of its pixels: sharp on fine screens.

    ``dark`` is the same picture for a dark page. The caption is HTML; the other words are escaped.
    """
    width, height = struct.unpack(">II", png[16:24])
    name, words = escape(key), escape(label)
    other = ""
    if dark is not None:
        other = f"""<source media="screen and (prefers-color-scheme: dark)" srcset="{_data(dark)}">
"""
    return f"""<figure>
<input type="checkbox" id="full-{name}"><label for="full-{name}">full size</label>
<div class="card{" both" if other else ""}" tabindex="0" role="region" aria-label="{words}">
<picture>{other}<img src="{_data(png)}" width="{width * 3 // 4}" height="{height * 3 // 4}"
 alt="{escape(alt)}"></picture></div>
<figcaption>{caption}</figcaption>
</figure>"""


def _data(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def picture(key: str, figure: Figure, alt: str, caption: str) -> str:
    """Return a figure as a part of the page, for light and for dark; it is left dark."""
    from resonax.figures import darken
    from resonax.figures.style import png_of

    light = png_of(figure)
    darken(figure)
    words = f"<p>{escape(caption)}</p>"
    return framed(key, light, caption.partition(".")[0], alt, words, png_of(figure))


def number(value: float) -> str:
    """Return a number with two digits and a true minus.

    Examples
    --------
    >>> number(-0.01886)
    '−0.019'
    """
    return f"{value:.2g}".replace("-", "−")


def fold(factor: float) -> str:
    """Return a factor that can be large.

    Examples
    --------
    >>> fold(67.2), fold(1.391e22)
    ('67', '1.4 × 10²²')
    """
    if factor < 1e4:
        return f"{factor:.2g}" if factor < 100 else f"{factor:,.0f}"
    mantissa, _, exponent = f"{factor:.1e}".partition("e+")
    raised = str(int(exponent)).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa} × 10{raised}"
