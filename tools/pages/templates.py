"""The part about real chat templates on the page on one's own model, from its result file: `python -m
tools.pages.templates docs/results docs/how-to/own-model.md`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.pages.render import arguments
from tools.templates.families import Kind
from tools.templates.result import Row, TemplatesResult

MARKED = re.compile(r"(<!-- templates -->\n\n).*?(\n\n<!-- end of templates -->)", re.DOTALL)
KINDS: dict[Kind, str] = {
    "real": "the model's own, from a package",
    "borrowed": "another model's, with its control tokens",
    "bytes": "single bytes, with its control tokens",
}


def part(found: TemplatesResult) -> str:
    """What was tried, the results by kind of tokenizer, and what was refused."""
    loaded = [row for row in found.rows if not row.refused]
    head = (
        f"`{found.command.partition(' --')[0]}` tried {len(found.rows)} templates of real models, found in packages "
        f"({', '.join(found.places)}), on {found.conversations} conversations each; {len(loaded)} load. *Plain*: the "
        "token ids of plain chats equal those of stock `apply_chat_template` in every conversation that it renders. "
        "*Thoughts*: the same in one more conversation, in which an earlier answer has thoughts, except for the marks "
        "of these, which stay text. *Agents*: the same when messages are framed one by one, as in games. *Functions*: "
        "of the templates whose format of calls was found, how many write a call, read it again, and have it in a "
        "conversation as in stock."
    )
    kinds = [[row for row in loaded if row.kind == kind] for kind in KINDS]
    lines = [*_wrapped(head), "", "| tokenizer | templates | plain | thoughts | agents | functions |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | --- |")
    lines += [_line(what, rows) for what, rows in zip(KINDS.values(), kinds, strict=True)]
    refused = list(_refused(found.rows))
    return "\n".join(
        [*lines, "", *_wrapped(" ".join(["Refused:", "; ".join(refused) + "."] if refused else []))]
    ).strip()


def _line(what: str, rows: list[Row]) -> str:
    rendered = [row for row in rows if row.of]
    functions = [row for row in rows if row.tools == "derived"]
    tried = "/".join(
        str(sum(map(bool, each)))
        for each in (
            [row.tools_written for row in functions],
            [row.tools_read for row in functions],
            [row.tools_listed for row in functions],
        )
    )
    cells = (
        str(len(rows)),
        _share(rendered, (row.plain == row.of for row in rendered)),
        _share(rendered, (row.thoughts != "other" for row in rendered)),
        _share(rendered, (row.agents == row.of for row in rendered)),
        f"{tried} of {len(functions)}",
    )
    return f"| {what} | {' | '.join(cells)} |"


def _share(rows: list[Row], those: Iterable[bool]) -> str:
    return f"{sum(those)} of {len(rows)}"


def _refused(rows: Iterable[Row]) -> Iterator[str]:
    """The templates that do not load, each with the reason."""
    for row in rows:
        if row.refused:
            yield f"{row.name} ({row.refused.partition(': ')[2]})"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 130, break_long_words=False, break_on_hyphens=False)


def page(results: Path, text: str) -> str:
    """The text of the page with the contents of `templates.json`, if that exists."""
    if not (file := results / "templates.json").exists():
        return text
    found = part(TemplatesResult.model_validate_json(file.read_bytes()))
    return MARKED.sub(lambda match: match[1] + found + match[2], text)


if __name__ == "__main__":
    given = arguments("real chat templates").parse_args()
    given.page.write_text(page(given.results, given.page.read_text()))
