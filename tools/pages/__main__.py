"""`python -m tools.pages NAME [RESULTS PAGE]`: regenerates the page of this name from its result files, by default
docs/NAME.md from docs/results.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def main() -> None:
    """Write the page. `SystemExit`: there is no page of this name."""
    name, places = next(iter(sys.argv[1:]), ""), sys.argv[2:]
    known = sorted(file.stem for file in Path(__file__).parent.glob("*.py") if (DOCS / f"{file.stem}.md").exists())
    if name not in known:
        raise SystemExit(f"no page {name!r}; give one of {', '.join(known)}")
    sys.argv[1:] = places or [str(DOCS / "results"), str(DOCS / f"{name}.md")]
    import_module(f"tools.pages.{name}").main()


if __name__ == "__main__":
    main()
