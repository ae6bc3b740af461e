"""Real chat templates against stock transformers: `python -m tools.templates`.

Takes the templates of packages and folders, loads each with the real tokenizer of its family where a package carries
it, and prints how many load, how many have the ids of stock `apply_chat_template` in plain chats and in agents' games,
how their calls of functions come out, and a line a template.
"""

from __future__ import annotations

import argparse
import logging
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

from agentcho.records.environment import machine_info, source_digests, versions
from tools.templates.families import family, tokenizer
from tools.templates.measured import CONVERSATIONS, measured
from tools.templates.result import Row, TemplatesResult
from tools.templates.sources import Template, carried, found

LEARNT = re.compile(r"_training$")
"""Templates that are variants of others with marks for training; they are left out."""


def main() -> None:
    """Run it. The exit status is 1 if a plain chat differs or a content forges control tokens."""
    parser = argparse.ArgumentParser(prog="python -m tools.templates", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument(
        "--from",
        dest="places",
        action="append",
        type=Path,
        metavar="PLACE",
        help="a folder, file, wheel or source distribution with templates (default: what installed packages carry)",
    )
    parser.add_argument("--only", metavar="PATTERN", default="", help="templates whose name has this in it")
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FOLDER",
        help="save each tokenizer with its template in a folder of its own there, for `agentcho doctor`",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore", module="transformers")
    logging.disable(logging.WARNING)
    places = asked.places or carried()
    if not places:
        raise SystemExit("no package with templates is there: make tokenizers, or name a place with --from")
    known = [each for each in found(places) if not LEARNT.search(each.name)]
    chosen = [each for each in known if re.search(asked.only, each.name, re.IGNORECASE)]
    environment = versions() | machine_info() | source_digests()  # first: files may change during the trials
    rows = tried(chosen)
    print("\n".join(summed(rows)))
    for each in chosen if asked.save else ():
        tokenizer(each, family(each.name)).save_pretrained(asked.save / each.name)
    if asked.json:
        given = "".join(f" --from {place.name}" for place in asked.places or ())
        result = TemplatesResult(
            command=f"python -m tools.templates{given}{f' --only {asked.only!r}' if asked.only else ''}",
            environment=environment,
            places=tuple(place.name for place in places),
            conversations=len(CONVERSATIONS),
            rows=tuple(rows),
        )
        asked.json.write_text(result.model_dump_json(indent=1, exclude_defaults=True) + "\n")
    raise SystemExit(any(row.forged or row.plain < row.of or row.thoughts == "other" for row in rows))


def tried(templates: Sequence[Template]) -> list[Row]:
    """Measure all templates, grouped by vocabulary. Each is printed when it is done."""
    rows = list[Row]()
    for each in sorted(templates, key=lambda each: family(each.name).vocabulary):
        rows.append(measured(each))
        print("\n".join(lines(rows[-1])), flush=True)
    return sorted(rows, key=lambda row: row.name.lower())


def lines(row: Row) -> list[str]:
    """The output for one template."""
    head = f"{row.name:46} {row.vocabulary:14}{row.kind:9}"
    if row.refused:
        return [f"{head} refused: {row.refused}"]
    marks = {True: "=", False: "x", None: "-"}
    tried = "".join(marks[each] for each in (row.tools_written, row.tools_read, row.tools_listed))
    functions = "" if row.tools == "none" else f"  functions: {row.tools} {tried if row.tools == 'derived' else ''}"
    others = f"  thoughts {row.thoughts}, control words {row.spelt}{', FORGED' * row.forged}"
    told = [f"{head} plain {row.plain}/{row.of}  agents {row.agents}/{row.of}{others}{functions}"]
    firsts = (("plain", row.plain < row.of, row.plain_first), ("agents", row.agents < row.of, row.agents_first))
    told += [f"    {what}: stock {first[0]!r}, here {first[1]!r}" for what, other, first in firsts if other]
    return told


def summed(rows: Sequence[Row]) -> list[str]:
    """The number of templates of each kind."""
    loaded = [row for row in rows if not row.refused]
    rendered = [row for row in loaded if row.of]
    functions = [row for row in loaded if row.tools == "derived"]
    return [
        "",
        f"{len(rows)} templates, {len(loaded)} load, {len(rendered)} of them render conversations without functions",
        f"plain chats equal to stock: {sum(row.plain == row.of for row in rendered)} of {len(rendered)}",
        f"the same where an earlier answer has thoughts, but for the marks of these: "
        f"{sum(row.thoughts in ('ids', 'text') for row in rendered)}; where contents spell control tokens, but for "
        f"these: {sum(row.spelt in ('ids', 'text') for row in rendered)}; forged: "
        f"{sum(row.forged for row in rendered)}",
        f"agents' messages equal to stock: {sum(row.agents == row.of for row in rendered)} of {len(rendered)}",
        f"calls of functions: {len(functions)} in the template's own format, "
        f"{sum(bool(row.tools_written) for row in functions)} of these written and "
        f"{sum(bool(row.tools_read) for row in functions)} read as there, "
        f"{sum(bool(row.tools_listed) for row in functions)} conversations with functions equal to stock; "
        f"{sum(row.tools == 'plain words' for row in loaded)} in plain words, "
        f"{sum(row.tools == 'no calls' for row in loaded)} templates list functions and write no calls",
    ]


if __name__ == "__main__":
    main()
