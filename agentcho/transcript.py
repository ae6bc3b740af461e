"""The transcript: one JSON line a finished message, appended whole, readable after a kill at any byte.

A line holds the message, the encodings its call made with their receipts and cones, and what it cost. The
last line of a file may be torn (a kill); it is dropped on reading and cut before more is appended. Does not
know: how a run is played, engines, the terminal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from agentcho.disk import writing
from agentcho.errors import RecordBroken
from agentcho.message import Audience, Message, audience
from agentcho.names import name
from agentcho.provenance import EncodingRecord
from agentcho.request import ContextEntry, Receipt
from agentcho.visibility import After, Place


class Usage(NamedTuple):
    """What one message cost.

    `encoded`: tokens fed for the encodings of its line; over all lines they sum to what was encoded. `reused`:
    tokens of context read from the store. `ttft`: seconds from submission to its first row, waiting included.
    `seconds`: from submission to its end.
    """

    encoded: int
    reused: int
    ttft: float
    seconds: float


class Act(NamedTuple):
    """How a message came to be asked for.

    `where` is the line of the scenario's or agent's code, "file:number". `places` are the positions asked for,
    one a parent and then the message's own (empty: none was). `acted_on` are the messages outside whose audience
    this one is heard and whose words the playing code had looked at before. `choices` are the texts that a
    constrained decode could become.
    """

    where: str | None = None
    places: tuple[Place, ...] = ()
    acted_on: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


class Entry(NamedTuple):
    """One finished message with its provenance.

    `encoding` is the id of its own encoding, `made` the records of all encodings that the call made, among them
    its own. `direct` are the messages it read outside its author's audience.
    """

    message: Message
    encoding: int
    made: tuple[EncodingRecord, ...]
    direct: tuple[str, ...]
    usage: Usage
    act: Act = Act()

    @property
    def own(self) -> EncodingRecord:
        """The record of its own encoding."""
        return next(record for record in self.made if record.id == self.encoding)

    def to_json(self) -> dict[str, Any]:
        """The line as a JSON object; `from_json` inverts it."""
        m = self.message
        return {
            "game": m.game, "id": m.id, "kind": m.kind, "role": m.role, "author": m.author,
            "audience": m.audience.to_json(), "parents": list(m.parents), "header": m.header, "text": m.text,
            "tokens": list(m.tokens), "content": list(m.content), "sampled": m.sampled and list(m.sampled),
            "name": m.name, "canonical": m.canonical,
            "offsets": m.offsets and list(m.offsets), "new_offset": m.new_offset, "stopped": m.stopped,
            "encoding": self.encoding, "encodings": [_record_json(r) for r in self.made],
            "direct": list(self.direct), "usage": self.usage._asdict(), "act": _act_json(self.act),
        }  # fmt: skip

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Entry:
        """Read one line. KeyError, TypeError or ValueError where it is no message line."""
        message = Message(
            id=line["id"], game=line["game"], kind=line["kind"], role=line["role"], author=_who(line["author"]),
            audience=audience(line["audience"] if line["audience"] == "everyone" else list(line["audience"])),
            parents=tuple(line["parents"]), header=line["header"], text=line["text"],
            tokens=tuple(line["tokens"]), content=tuple(line["content"]),
            sampled=line["sampled"] and tuple(line["sampled"]), name=_who(line["name"]),
            offsets=line["offsets"] and tuple(line["offsets"]),
            new_offset=line["new_offset"], stopped=line["stopped"], canonical=line["canonical"],
        )  # fmt: skip
        made = tuple(_record(r) for r in line["encodings"])
        usage, act = Usage(**line["usage"]), _act(line["act"])
        return cls(message, line["encoding"], made, tuple(line["direct"]), usage, act)


def _who(word: str | None) -> str | None:
    """An agent's name as a line has it; None: the scenario, or nobody."""
    return None if word is None else name(word)


def _record_json(record: EncodingRecord) -> dict[str, Any]:
    receipt = record.receipt
    return {
        "id": record.id, "message": record.message, "caller": record.caller, "recipe": record.recipe,
        "context": [list(entry) for entry in receipt.context], "start": receipt.start, "bos": receipt.bos,
        "base": receipt.base, "cone": sorted(record.cone),
    }  # fmt: skip


def _record(line: dict[str, Any]) -> EncodingRecord:
    context = tuple(ContextEntry(*entry) for entry in line["context"])
    return EncodingRecord(
        line["id"], line["message"], _who(line["caller"]), line["recipe"],
        Receipt(context, line["start"], line["bos"], line.get("base")), frozenset(line["cone"]),
    )  # fmt: skip


def _act_json(act: Act) -> dict[str, Any]:
    places = [list(place) if isinstance(place, After) else place for place in act.places]
    return act._asdict() | {"places": places, "acted_on": list(act.acted_on), "choices": list(act.choices)}


def _act(line: dict[str, Any]) -> Act:
    places = tuple(After(*place) if isinstance(place, list) else place for place in line["places"])
    return Act(line["where"], places, tuple(line["acted_on"]), tuple(line["choices"]))


class Lines:
    """An append-only file of JSON lines. Each `append` is one write of one whole line, flushed to the kernel.

    Opening cuts a torn last line. Use as a context manager; closing twice is a no-op.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1
        with writing(path):
            if path.exists():
                _cut_torn_line(path)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._size = os.fstat(self._file).st_size

    def append(self, line: dict[str, Any]) -> None:
        """Write one line. Safe against a kill: it is there whole, or torn and ignored by readers. `CannotWrite`: it is
        not there at all."""
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode()
        size = len(data)
        with writing(self.path):
            try:
                while data:
                    data = data[os.write(self._file, data) :]
            except OSError:
                with suppress(OSError):  # a device has no size
                    os.ftruncate(self._file, self._size)
                raise
        self._size += size

    def close(self) -> None:
        """Flush to the disk and close."""
        if self._file >= 0:
            file, self._file = self._file, -1
            with writing(self.path):
                try:
                    os.fsync(file)
                finally:
                    os.close(file)

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _cut_torn_line(path: Path) -> None:
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every whole line. A last line without its newline is a kill's and is skipped;
    any other line that is no JSON object is `RecordBroken`."""
    data = path.read_bytes()
    for number, raw in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            line = json.loads(raw)
        except ValueError:
            raise RecordBroken(path, number, "not a JSON line") from None
        if not isinstance(line, dict):
            raise RecordBroken(path, number, "not a JSON object")
        yield number, line


def read_transcript(path: Path) -> Iterator[Entry]:
    """The entries of a transcript in the order they ended."""
    for number, line in read_lines(path):
        try:
            yield Entry.from_json(line)
        except (KeyError, TypeError, ValueError) as error:
            what = f"not a message line ({type(error).__name__}: {error})"
            raise RecordBroken(path, number, what) from None


def audiences(entries: list[Entry]) -> dict[str, Audience]:
    """Audience by message id, for `provenance.readers`."""
    return {entry.message.id: entry.message.audience for entry in entries}
