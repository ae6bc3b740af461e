"""The sentence on streams in the page on societies, from its result file: `python -m tools.pages.stream docs/results
docs/how-to/societies.md`.

Does not know: how it was found.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from agentcho.lab.bench.result import read_result
from tools.bench.stream import sentence
from tools.pages.render import arguments

BEGIN, END = "<!-- stream -->", "<!-- end of stream -->"
"""The marks around it."""


def with_sentence(page: str, results: Path) -> str:
    """The page with the current sentence between its two marks."""
    lines = textwrap.wrap(sentence(read_result(results / "stream.json")), 130, break_on_hyphens=False)
    return re.sub(f"{BEGIN}\n.*?{END}", lambda old: "\n".join([BEGIN, *lines, END]), page, flags=re.DOTALL)


def main() -> None:
    """Write it anew."""
    given = arguments("stream").parse_args()
    given.page.write_text(with_sentence(given.page.read_text(), given.results))


if __name__ == "__main__":
    main()
