"""Code shared by all pages that are generated from result files."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from agentcho.audit.wording import many
from tools.pages.marks import keeping_age


def render(name: str, **values: Any) -> str:
    """Render a page from its template next to this file. A template line that ends in \\ is joined with the next
    one."""
    template = (Path(__file__).parent / f"{name}.md.jinja").read_text().replace("\\\n", "")
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)  # Markdown written here, not HTML
    environment.filters["many"] = many
    return environment.from_string(template).render(**values)


def arguments(what: str) -> argparse.ArgumentParser:
    """The argument parser of a program that writes the page on `what`: the folder of results, and the page."""
    parser = argparse.ArgumentParser(description=f"Write the page on {what} from its result files.")
    parser.add_argument("results", type=Path)
    parser.add_argument("page", type=Path)
    return parser


def write(page: Callable[[Path], str], what: str) -> None:
    """Read the arguments and write the page."""
    given = arguments(what).parse_args()
    rewrite(given.page, page(given.results))


def rewrite(file: Path, page: str) -> None:
    """Write a generated page. What the old one says about the age of its figures is kept until `make pages`."""
    file.write_text(keeping_age(page, file.read_text() if file.exists() else ""))


def commit_of(machine: Mapping[str, str]) -> str:
    """The commit that a result was measured at, and whether its files had changed since."""
    commit, _, changed = machine["commit"].partition("-")
    return f"{commit[:10]}{', modified' if changed else ''}"
