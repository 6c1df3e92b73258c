"""HTML from the templates in ``resonax/templates``: what is filled in is escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from resonax.core.labels import plain

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["render"]

_LONGEST = 4000  # characters of one piece of text: no name can fill a page


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: Any) -> Any:
        return value if isinstance(value, Markup | int) else plain(value, _LONGEST)

    return Environment(
        loader=PackageLoader("resonax"),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: Any) -> str:
    r"""Return a template with values filled in: no mark-up in them counts, nothing is hidden.

    Examples
    --------
    >>> page = render("result.html", kind="Check", words="", summary={"source": "<b>\u202eTSOC"})
    >>> "&lt;b&gt;\\u202eTSOC" in page, "<b>" in page
    (True, False)
    """
    return _environment().get_template(template).render(values)
