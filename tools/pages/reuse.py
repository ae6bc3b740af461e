"""Tables of the reuse methods within pages, from the registry: `python -m tools.pages.reuse PAGE…`.

A table is between `<!-- repairs -->` or `<!-- ways -->` and its end mark.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentcho.reuse.method import Method
from agentcho.reuse.registry import READINGS, SELECTIONS
from tools.pages.marks import put


def with_methods(page: str) -> str:
    """The page with the current methods between its marks."""
    page = put(page, "repairs", _table("--repair", "which tokens of each reused message are encoded again", SELECTIONS))
    return put(page, "ways", _table("--reuse", "how reused messages are read", READINGS))


def _table(option: str, head: str, methods: Sequence[type[Method]]) -> Iterator[str]:
    yield ""
    yield f"| `{option}` | {head} | source |"
    yield "| --- | --- | --- |"
    for method in methods:
        source = method.source
        told = "" if source is None else f"{source.title}, [arXiv {source.arxiv}](https://arxiv.org/abs/{source.arxiv})"
        yield f"| {', '.join(f'`{each}`' for each in method.examples)} | {method.about} | {told} |"
    yield ""


def main() -> None:
    """Rewrite each page."""
    parser = argparse.ArgumentParser(description="Write the reuse methods into pages that list them.")
    parser.add_argument("pages", type=Path, nargs="+")
    for page in parser.parse_args().pages:
        page.write_text(with_methods(page.read_text()))


if __name__ == "__main__":
    main()
