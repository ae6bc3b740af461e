"""Sentences of figures within pages, from their result files: `python -m tools.pages.sentences docs/results
docs/how-to/societies.md`. Each stands between `<!-- NAME -->` and `<!-- end of NAME -->`.

Does not know: how anything was found.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

from agentcho.lab.bench.result import read_result
from tools.bench import kv, stream
from tools.pages.render import arguments

SENTENCES: Mapping[str, Callable[[Path], str]] = {
    "stream": lambda file: stream.sentence(read_result(file)),
    "kv": lambda file: kv.sentence(json.loads(file.read_text())),
}
"""By name, which is that of the result file too."""


def with_sentences(page: str, results: Path) -> str:
    """The page with the current sentences between their marks."""
    for name, sentence in SENTENCES.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if begin in page:
            lines = textwrap.wrap(sentence(results / f"{name}.json"), 130, break_on_hyphens=False)
            before, _, rest = page.partition(begin)
            page = before + "\n".join([begin, *lines, end]) + rest.partition(end)[2]
    return page


def main() -> None:
    """Write it anew."""
    given = arguments("what it says").parse_args()
    given.page.write_text(with_sentences(given.page.read_text(), given.results))


if __name__ == "__main__":
    main()
