"""The generated parts of docs/scenarios/*.md: `python -m tools.scenario_pages` writes the tables of options anew, and
with `--play` the transcripts and audits too, on the bundled model.

Does not know: the text around these parts, which is written by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from agentcho.cli import main
from agentcho.games.runs import library

DOCS = Path(__file__).parents[1] / "docs" / "scenarios"
WIDTH, MOST = 84, 24
"""Maximum characters per line, and maximum lines, of a transcript on a page."""
SHORT = {
    "parallel-debate": ("rounds=2",),
    "prisoners-dilemma": ("rounds=1",),
    "tree-of-thoughts": ("branches=3", "voters=2"),
}
"""Options that make a game short enough for a page."""


def options(name: str) -> str:
    """The options of a scenario as a table, from its pydantic model."""
    fields: dict[str, FieldInfo] = library.scenario(name).Options.model_fields
    if not fields:
        return "This scenario has no options."
    rows = (
        f"| `{key}` | {_values(field)} | `{field.default}` | {field.description or ''} |"
        for key, field in fields.items()
    )
    return "\n".join(["| `--set` | values | default | |", "| --- | --- | --- | --- |", *rows])


def _values(field: FieldInfo) -> str:
    low, high = (_bound(field, name) for name in ("ge", "le"))
    return _type(field.annotation) + (
        f", {low} to {high}" if high is not None else "" if low is None else f", from {low}"
    )


def _bound(field: FieldInfo, name: str) -> Any:
    return next((getattr(limit, name) for limit in field.metadata if hasattr(limit, name)), None)


def _type(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, UnionType):
        return " or ".join(_type(part) for part in parts)
    if origin is Annotated:
        return _type(parts[0])
    words = {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "none"}
    return words.get(annotation, getattr(annotation, "__name__", str(annotation)))


def command(*words: str, exits: tuple[int, ...] = (0,)) -> str:
    """The standard output of a command of `agentcho`."""
    heard, before = StringIO(), sys.argv
    sys.argv = ["agentcho", *words]
    try:
        with redirect_stdout(heard):
            main()
    except SystemExit as end:
        if (end.code or 0) not in exits:
            raise
    finally:
        sys.argv = before
    return heard.getvalue()


def play(name: str, leakage: str, out: Path) -> str:
    """Play one game into a folder of runs, and return the command that does so."""
    sets = [word for each in SHORT.get(name, ()) for word in ("--set", each)]
    words = ["run", name, *sets, "--seed", "1", "--leakage", leakage, "--deterministic"]
    command(*words, "--display", "none", "--out", str(out))
    return " ".join(["agentcho", *words])


def transcript(text: str) -> str:
    """The output of `agentcho show` for one game, without its costs, shortened for a page."""
    lines = text.splitlines()[1:]
    after = lines.index("outcome")
    talk, outcome = [line for line in lines[:after] if line], lines[after + 1 :]
    told = pairs(outcome[: outcome.index("")])
    wide = max(len(key) for key, _ in told)
    shown = [*talk[:MOST], *([f"[… {len(talk) - MOST} more]"] if len(talk) > MOST else [])]
    shown += ["", "outcome", *(f"  {key:<{wide}}  {value}" for key, value in told)]
    return "\n".join(line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…" for line in shown)


def pairs(lines: Iterable[str]) -> list[tuple[str, str]]:
    """The names and values of an outcome. A line without a name continues the value before it."""
    found: list[tuple[str, str]] = []
    for line in lines:
        name, *value = re.split(r"  +", line.strip(), maxsplit=1)
        if value or not found:
            found.append((name, "".join(value)))
        else:
            found[-1] = found[-1][0], f"{found[-1][1]} {name}"
    return found


def readers(text: str) -> str:
    """The verdict of an audit, and its table of readers."""
    first, *blocks = text.split("\n\n")
    verdict = " ".join(line.strip() for line in first.splitlines() if " · " not in line)
    return "\n\n".join([verdict, *(block for block in blocks if block.startswith("readers\n"))])


def played(name: str) -> Iterator[tuple[str, str]]:
    """The parts of a page that need a game."""
    with TemporaryDirectory() as folder:
        out = Path(folder)
        asked = play(name, "enforce", out)
        shown = transcript(command("show", "last", "--out", folder))
        clean = readers(command("audit", "last", "--out", folder))
        yield "transcript", f"`{asked}` on the bundled model:\n\n```text\n{shown}\n```"
        play(name, "audit", out)
        found = readers(command("audit", "last", "--out", folder, exits=(0, 1)))
    told = "With `--leakage {}`, `agentcho audit last` reports for this game:\n\n```text\n{}\n```"
    yield "audit", "\n\n".join((told.format("audit", found), told.format("enforce", clean)))


def parts(name: str, *, games: bool) -> Iterator[tuple[str, str]]:
    yield "options", options(name)
    if games:
        yield from played(name)


def written(page: str, part: str, text: str) -> str:
    """The page with one part replaced."""
    begins, ends = f"<!-- {part} -->", f"<!-- end of {part} -->"
    before, found, rest = page.partition(begins)
    if not found or ends not in rest:
        raise SystemExit(f"the page has no place for its {part}: {begins} … {ends}")
    return f"{before}{begins}\n\n{text}\n\n{ends}{rest.partition(ends)[2]}"


def write() -> None:
    """Write the pages."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("names", nargs="*", help="of scenarios; default: all that have a page")
    asked.add_argument("--play", action="store_true", help="play each twice, and write what was said and found")
    given = asked.parse_args()
    for page in sorted(path for path in DOCS.glob("*.md") if path.stem != "index"):
        if not given.names or page.stem in given.names:
            for part, text in parts(page.stem, games=given.play):
                page.write_text(written(page.read_text(), part, text))


if __name__ == "__main__":
    write()
