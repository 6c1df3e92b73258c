"""Put the claims of a run into the pages: ``python benchmarks/claims.py OUT``.

``OUT`` is the folder of ``resonax reproduce --scale paper``. Its table, ``claims.md``, goes between
the marks of docs/reproduce.md, and claim and outcome alone between those of README.md.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_MARKS = re.compile(r"(<!-- claims: benchmarks/claims.py -->\n).*?(<!-- end of claims -->)", re.S)


def _short(path: Path) -> str:
    """Return claims and outcomes, with how many there are of each."""
    claims = json.loads(path.read_bytes())["claims"]
    count = Counter(claim["outcome"] for claim in claims)
    words = ", ".join(f"{outcome} {number}" for outcome, number in count.most_common())
    rows = [f"| `{one['id']}` | {one['claim']} | {one['outcome']} |" for one in claims]
    head = [f"Of {len(claims)} claims: {words}.", "", "| id | claim | outcome |", "|---|---|---|"]
    return "\n".join([*head, *rows])


def _put(page: Path, text: str) -> None:
    new = f"\n{text.strip()}\n\n"
    found, count = _MARKS.subn(lambda marks: marks[1] + new + marks[2], page.read_text())
    if count != 1:
        sys.exit(f"{page} has no place for the claims")
    page.write_text(found)


def main() -> None:
    """Fill both pages."""
    out = Path(sys.argv[1])
    _put(_ROOT / "docs" / "reproduce.md", (out / "claims.md").read_text())
    _put(_ROOT / "README.md", _short(out / "claims.json"))


if __name__ == "__main__":
    main()
