"""Put the claims of a run into docs/reproduce.md: ``python benchmarks/claims.py OUT``.

``OUT`` is the folder of ``resonax reproduce --scale paper``. Its table, ``claims.md``, goes between
the marks of docs/reproduce.md.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_MARKS = re.compile(r"(<!-- claims: benchmarks/claims.py -->\n).*?(<!-- end of claims -->)", re.S)


def _put(page: Path, text: str) -> None:
    new = f"\n{text.strip()}\n\n"
    found, count = _MARKS.subn(lambda marks: marks[1] + new + marks[2], page.read_text())
    if count != 1:
        sys.exit(f"{page} has no place for the claims")
    page.write_text(found)


def main() -> None:
    """Fill the page."""
    out = Path(sys.argv[1])
    _put(_ROOT / "docs" / "reproduce.md", (out / "claims.md").read_text())


if __name__ == "__main__":
    main()
