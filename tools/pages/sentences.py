"""Sentences with figures within pages, from their result files: `python -m tools.pages.sentences docs/results
docs/how-to/societies.md`. Each is between `<!-- NAME -->` and `<!-- end of NAME -->`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from agentcho.lab.bench.result import read_result
from tools.bench import delta, kv, stream, threads
from tools.pages.render import arguments


def of_threads(found: Mapping[str, Any]) -> str:
    """The time of a game on a busy machine: on one thread, on all, and with the number that agentcho chooses."""
    times = threads.Times(found["seconds"], found["busy"])
    scenario, model = found["command"].split(" threads ")[1].split(" --model ")
    default, every = (_spread(times.ratios(arm)) for arm in (threads.DEFAULT, threads.ALL))
    one = times.seconds[threads.ONE]
    return (
        f"With another process on {times.busy} cores, `agentcho run {scenario} --model {model.split()[0]}` took "
        f"{median(one):.1f} s on one thread, including start-up. On the chosen number it took {default} times "
        f"as long, and on all threads {every} times. Each is the median (minimum to maximum) of {len(one)} paired "
        f"turns. Measured on {found['machine']}, {found['system']}, Python {found['python']}, torch "
        f"{found['torch']}, at `{found['commit'][:12]}`: `{found['command']}`."
    )


def _spread(numbers: Sequence[float]) -> str:
    return f"{median(numbers):.2f} ({min(numbers):.2f} to {max(numbers):.2f})"


SENTENCES: Mapping[str, Callable[[Path], str]] = {
    "stream": lambda file: stream.sentence(read_result(file)),
    "delta": lambda file: delta.sentence(json.loads(file.read_text())),
    "kv": lambda file: kv.sentence(json.loads(file.read_text())),
    "threads": lambda file: of_threads(json.loads(file.read_text())),
}
"""By name, which is also that of the result file."""


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
    """Rewrite the page."""
    given = arguments("what it says").parse_args()
    given.page.write_text(with_sentences(given.page.read_text(), given.results))


if __name__ == "__main__":
    main()
