"""The built site in a real browser: what everyone can read, at a desk and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from browsing import open_tab

SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"
# Pages of the furo theme that hold nothing of ours.
MADE_BY_SPHINX = {"genindex.html", "py-modindex.html", "search.html"}
WIDTHS = {"light": {"width": 1280, "height": 900}, "dark": {"width": 390, "height": 844}}


def pages() -> list[str]:
    """Return the pages of the site that was built last; `make docs` builds it."""
    found = (path.relative_to(SITE) for path in SITE.rglob("*.html"))
    return sorted(
        str(path)
        for path in found
        if path.name not in MADE_BY_SPHINX and path.parts[0] not in ("_modules", "_static")
    )


@pytest.fixture(scope="module")
def tab():
    with open_tab(WIDTHS["light"]) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("theme", WIDTHS)
def test_every_page_can_be_read_by_everyone(tab, theme):
    """No violation of axe's rules, nothing wider than the window, a text for every picture."""
    from axe_playwright_python.sync_playwright import Axe

    assert len(pages()) > 30, "The site is not built: run `make docs`."
    tab.set_viewport_size(WIDTHS[theme])
    tab.emulate_media(color_scheme=theme)
    found = {}
    for page in pages():
        tab.goto((SITE / page).as_uri())
        broken = Axe().run(tab, options={"resultTypes": ["violations"]}).response["violations"]
        faults = [(each["id"], each["nodes"][0]["html"][:200]) for each in broken]
        if not tab.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            faults.append(("wider than the window", ""))
        # A thumbnail of the gallery stands beside its title, which a text would only repeat.
        images = tab.eval_on_selector_all(
            "article img:not(.sphx-glr-thumbcontainer > img)",
            "all => all.map(one => [one.alt, one.src])",
        )
        faults += [("picture without a text", source) for text, source in images if not text]
        if faults:
            found[page] = faults
    assert not found, "\n".join(f"{page}: {faults}" for page, faults in found.items())
