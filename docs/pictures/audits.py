"""Draw the audits of the guides, by running the code of their pages."""

import contextlib
import doctest
import io
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def main() -> None:
    """Write a picture for each guide."""
    for name in ("audit-epoch", "audit-no-shuffle", "audit-domains"):
        known: dict[str, Any] = {}
        text = (HERE.parent / f"{name}.md").read_text()
        with contextlib.redirect_stdout(io.StringIO()):
            for example in doctest.DocTestParser().get_examples(text, name):
                exec(compile(example.source, name, "single"), known)
        known["found"].plot().savefig(HERE / f"{name}.png", dpi=110)


if __name__ == "__main__":
    main()
