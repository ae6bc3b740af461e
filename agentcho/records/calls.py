"""Tool calls on disk: a line before each call is made, and one when it has ended.

    calls.jsonl  {"game": 0, "call": "alice.3.step0", "tool": "pay", "use": {…}}          it is about to be made
                 {"game": 0, "call": "alice.3.step0", "ended": "returned", "seconds": 0.2}  it has ended

A call without a second line was in progress when the process died, or when it was cancelled. Its arguments and its
result are messages of the transcript. Independent of what tools do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from agentcho.errors import RecordBroken
from agentcho.message import audience
from agentcho.provenance.views import ToolUse
from agentcho.records.files import LineFile, read_lines
from agentcho.records.line_models import Attempt, Count, Line, UsePart, read


class CallLine(Line):
    """A call before it is made, or once it has `ended`. `idempotent`: it may be made twice. `use`: what its tool
    declares (None in older records); `release`: the call is allowed whatever its arguments were made from."""

    game: Count
    call: str
    tool: str | None = None
    idempotent: bool = False
    use: UsePart | None = None
    release: bool = False
    ended: str | None = None
    seconds: float | None = None
    attempt: Attempt = 1

    def to_json(self) -> dict[str, Any]:
        """The line, without fields at their defaults."""
        return self.model_dump(exclude_defaults=True, mode="json")


LINE = TypeAdapter(CallLine)


class CallLines:
    """Writes `calls.jsonl`, which is created by the first call. A line is with the kernel when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: LineFile | None = None

    def write(self, line: CallLine) -> None:
        """Append a line."""
        self._lines = self._lines or LineFile(self._path)
        self._lines.append(line.to_json())

    def close(self) -> None:
        """Flush to the disk and close."""
        if self._lines is not None:
            self._lines.close()


def begun_calls(path: Path, every: bool = False) -> dict[int, frozenset[str]]:
    """The calls that were begun, by game, except those that may be made twice; with `every` all of them."""
    found = defaultdict[int, set[str]](set)
    for call in begun_lines(path):
        if every or not call.idempotent:
            found[call.game].add(call.call)
    return {game: frozenset(calls) for game, calls in found.items()}


def begun_lines(path: Path) -> Iterator[CallLine]:
    """The lines that precede calls. None if there is no file."""
    for number, line in read_lines(path) if path.exists() else ():
        try:
            call = read(LINE, line)
        except ValueError as error:
            raise RecordBroken(f"{path}:{number}", f"not a valid line of a call ({error})") from None
        if call.tool is not None:
            yield call


def use_line(use: ToolUse) -> dict[str, Any]:
    """A tool's declaration, as JSON."""
    return use._asdict() | {"audience": use.audience.to_json()}


def tool_use(line: UsePart) -> ToolUse:
    """A tool's declaration, from its part of a line."""
    return ToolUse(**dict(line) | {"audience": audience(line.audience)})
