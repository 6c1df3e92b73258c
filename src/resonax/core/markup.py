"""HTML from the templates in ``resonax/templates``: what is filled in is escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from resonax.core.labels import printable

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["render"]

_MAX_CHARACTERS = 4000  # characters of one piece of text: no name can fill a page


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        return value if isinstance(value, Markup | int) else printable(value, _MAX_CHARACTERS)

    return Environment(
        loader=PackageLoader("resonax"),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: Any) -> str:
    r"""Return a template with values filled in, in which mark-up is escaped.

    Examples
    --------
    >>> page = render("result.html", kind="Check", words="", summary={"source": "<b>\u202eTSOC"})
    >>> "&lt;b&gt;\\u202eTSOC" in page, "<b>" in page
    (True, False)
    """
    return _environment().get_template(template).render(values)
