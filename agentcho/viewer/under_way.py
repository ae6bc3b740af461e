"""Reads the words of messages in progress from the lines that a run appends, without reading its record again.

Reading a whole record takes longer as it grows. This reads each line once, so the page gets tokens as they are
generated. Independent of HTTP and of encodings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from agentcho.message import audience
from agentcho.records.names import HEARD, TRANSCRIPT
from agentcho.viewer.compact_lists import Json

Key = tuple[int, int, str]
"""(game, attempt, message)."""


class AppendedLines:
    """The lines of a file that another process appends to, each returned once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def fresh(self) -> Iterator[Json]:
        """The complete lines since the last call. Lines that are not JSON objects are skipped: readers of the whole
        record report them."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        for raw in whole.splitlines():
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict):
                yield line


class _Begun(NamedTuple):
    """The line with which a message began, and the pieces of its text."""

    line: Json
    pieces: list[str]

    def json(self) -> Json:
        line = {name: self.line.get(name) for name in ("id", "role", "kind", "header")}
        to = audience(self.line["audience"]).members
        thought = {} if self.line.get("thought") is None else {"thought": True}
        names = {"by": self.line.get("author"), "to": None if to is None else sorted(to)}
        return line | names | thought | {"text": "".join(self.pieces)}


class UnderWay:
    """The messages of one record that have begun and not ended. `eyes`: only those by this agent, because it may read
    others' messages only once they are complete."""

    def __init__(self, path: Path, eyes: str | None = None) -> None:
        self._heard, self._said = AppendedLines(path / HEARD), AppendedLines(path / TRANSCRIPT)
        self._eyes = eyes
        self._begun: dict[Key, _Begun] = {}
        self._ended: set[Key] = set()
        self._count = 0
        self._lock = Lock()

    def words(self, game: int, attempt: int) -> tuple[int, list[Json]]:
        """The messages of an attempt that are in progress, in the order in which they began, and a number that changes
        whenever they may have changed."""
        with self._lock:
            for line in self._heard.fresh():
                self._take(line)
            for line in self._said.fresh():
                self._end(line)
            return self._count, [each.json() for key, each in self._begun.items() if key[:2] == (game, attempt)]

    def _take(self, line: Json) -> None:
        key = _key(line)
        if key is None or key in self._ended:
            return
        if "kind" not in line:
            if key in self._begun:
                self._begun[key].pieces.append(str(line.get("text", "")))
                self._count += 1
        elif self._shown(line):
            self._begun[key] = _Begun(line, [])
            self._count += 1

    def _shown(self, line: Json) -> bool:
        readers: Any = line.get("audience")
        if readers != "everyone" and not (isinstance(readers, list) and all(isinstance(each, str) for each in readers)):
            return False
        own = line.get("author") == self._eyes and self._eyes is not None
        return self._eyes is None or (own and audience(readers).includes(self._eyes))

    def _end(self, line: Json) -> None:
        key = _key(line)
        if key is not None:
            self._ended.add(key)
            self._count += self._begun.pop(key, None) is not None


def _key(line: Json) -> Key | None:
    """The key of a line, or None if it is not of a message."""
    match line:
        case {"game": int(game), "id": str(id)} if isinstance(line.get("attempt", 1), int):
            return game, line.get("attempt", 1), id
    return None
