"""`agentcho-trace/1`: one workflow per JSON line, with every text known, to replay on any engine.

A trace says who wrote what, for whom, over which parents. `exported` makes one from a transcript: the same messages, at
the positions at which they were read. Independent of engines and of how a workflow was or will be played.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentcho.errors import TRACE, RecordBroken, RecordNotFound
from agentcho.message import AgentName, Audience, Kind, Message, Part, Role, audience, exact
from agentcho.provenance.labels import EncodingRecord
from agentcho.provenance.views import Read, ReadSet, ReuseFor, absolute_positions
from agentcho.records.files import read_lines, write_output
from agentcho.records.transcript import TranscriptEntry, own_records

UNFINISHED = "unfinished: "
"""The prefix, before the run's status, of `meta["ended"]` of an unfinished game."""
Name = Annotated[str, Field(min_length=1), AfterValidator(exact)]
Lengths = Mapping[tuple[str | None, str], int]
"""The number of tokens of a message, by engine and message id."""
TokenId = Annotated[int, Field(ge=0)]


class TraceMessage(BaseModel):
    """One message. `header` only on a decode; `parents` in prompt order; `author` None for the scenario.

    `offsets` (one per parent) and `new_offset` are absolute positions, or None for right after the preceding message.
    `reuse` is that of the view it was said over: see `View`. `tokens` are all ids fed, framing and closing included;
    they override `text` if `tokenizer`, a digest, is the engine's own. `ended`: the decode is unfinished; these are its
    tokens so far, without closing ones, and no message has it as a parent. `content`: the (start, stop) of header and
    text in `tokens`, of a decode that lacks the frame of its role, because its template opened it differently.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Name
    kind: Kind
    role: Role | Part
    author: AgentName | None
    audience: Literal["everyone"] | tuple[AgentName, ...]
    parents: tuple[Name, ...]
    text: str
    header: str | None = None
    name: AgentName | None = None
    offsets: tuple[int | None, ...] | None = None
    new_offset: Annotated[int, Field(ge=0)] | None = None
    tokens: tuple[TokenId, ...] | None = None
    tokenizer: Name | None = None
    content: tuple[int, int] | None = None
    ended: Literal["cancelled", "failed", "died"] | None = None
    reuse: Literal["judge"] | None = None

    @property
    def readers(self) -> Audience:
        """Its audience as a value."""
        return audience(self.audience)

    def to_json(self) -> dict[str, Any]:
        """The message as a JSON object, without unset fields."""
        return self.model_dump(mode="json", exclude_unset=True)

    @model_validator(mode="after")
    def _fits(self) -> TraceMessage:
        faults = {
            "a decode needs a header (it may be empty)": self.kind == "decode" and self.header is None,
            "a prefill must not have a header": self.kind == "prefill" and bool(self.header),
            "a decode must have the role assistant": self.kind == "decode" and self.role != "assistant",
            "a decode needs an author who is in its audience": self.kind == "decode" and not self._own(),
            "offsets need one entry per parent": self.offsets is not None and len(self.offsets) != len(self.parents),
            "tokens need the digest of their tokenizer in `tokenizer`": self.tokens is not None
            and self.tokenizer is None,
            "content must be part of tokens": self.content is not None
            and not 0 <= self.content[0] <= self.content[1] <= len(self.tokens or ()),
        }
        for fault, found in faults.items():
            if found:
                raise ValueError(fault)
        return self

    def _own(self) -> bool:
        return self.author is not None and self.readers.includes(self.author)


class Workflow(BaseModel):
    """One workflow: its agents and its messages, each after its parents."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["agentcho-trace/1"]
    workflow: Name
    id: Name
    meta: dict[str, Any] = {}
    agents: tuple[AgentName, ...]
    messages: tuple[TraceMessage, ...]

    @model_validator(mode="after")
    def _fits_together(self) -> Workflow:
        cast, seen = set(self.agents), set[str]()
        if len(cast) < len(self.agents):
            raise ValueError("agents lists one agent twice")
        for message in self.messages:
            _check_place(message, cast, seen)
            seen.add(message.id)
        return self

    @property
    def unfinished(self) -> bool:
        """Whether its game did not come to an end; it holds the messages so far."""
        return str(self.meta.get("ended")).startswith(UNFINISHED)

    @property
    def whole(self) -> Workflow:
        """The workflow without unfinished messages, which no call read."""
        return self.model_copy(update={"messages": tuple(m for m in self.messages if m.ended is None)})

    def to_json(self) -> dict[str, Any]:
        """The line as a JSON object, without unset fields; `workflow` inverts it."""
        return self.model_dump(mode="json", exclude_unset=True)


def _check_place(message: TraceMessage, cast: set[str], seen: set[str]) -> None:
    named = () if message.audience == "everyone" else message.audience
    if message.id in seen:
        raise ValueError(f"message {message.id}: this id was used before")
    if late := [parent for parent in message.parents if parent not in seen]:
        raise ValueError(f"message {message.id}: parents must come earlier in the trace: {', '.join(late)}")
    if unknown := sorted({*named, *([message.author] if message.author else [])} - cast):
        raise ValueError(f"message {message.id}: names that are not listed in agents: {', '.join(unknown)}")


def workflow(given: Mapping[str, Any] | Workflow, where: str = "trace") -> Workflow:
    """Validate a workflow. Raises `RecordBroken`, which names the place and the fault, and quotes no text."""
    if isinstance(given, Workflow):
        return given
    try:
        return Workflow.model_validate(given)
    except ValidationError as error:
        raise _bad(where, error) from None


def _bad(where: str, error: ValidationError) -> RecordBroken:
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return RecordBroken(f"{where} {place}".strip(), first["msg"].removeprefix("Value error, "), TRACE)


def read_traces(path: Path) -> list[Workflow]:
    """Every workflow of a file. Raises `RecordBroken` for an invalid line, and `RecordNotFound` if there is no file."""
    if not path.is_file():
        remedy = "`agentcho show RUN --trace FILE` writes one"
        raise RecordNotFound(path.name, path.parent, remedy=remedy, what="traces (agentcho-trace/1)")
    return [workflow(line, f"{path}:{number}") for number, line in read_lines(path, TRACE)]


def write_traces(path: Path, workflows: Iterable[Workflow]) -> None:
    """Write a file of workflows, one per line, atomically if it is a regular file."""
    write_output(path, "".join(json.dumps(each.to_json(), ensure_ascii=False) + "\n" for each in workflows))


def trace_message(
    message: Message,
    tokenizer: str | None,
    ended: str | None = None,
    reuse: ReuseFor | None = None,
    opened: bool = False,
) -> TraceMessage:
    """One message of a transcript in trace form. `tokenizer` is the digest of the run's tokenizer. `opened`: see
    `EncodingRecord`."""
    known = tokenizer is not None and bool(message.tokens) and message.words.thought is None
    fields = {
        "id": message.id,
        "kind": message.kind,
        "role": message.role,
        "audience": message.audience.to_json(),
        "parents": message.parents,
        "text": message.text,
        "header": message.header if message.kind == "decode" else None,
        "name": message.name,
        "offsets": message.offsets,
        "new_offset": message.new_offset,
        "ended": ended,
        "reuse": reuse,
        "tokens": message.tokens if known else None,
        "tokenizer": tokenizer if known else None,
        "content": message.content if known and opened else None,
    }
    fields = {"author": message.author} | {name: value for name, value in fields.items() if value is not None}
    try:
        return TraceMessage.model_validate(fields)
    except ValidationError as error:
        raise _bad(f"message {message.id}", error) from None


def exported(
    scenario: str,
    id: str,
    meta: dict[str, Any],
    cast: Iterable[str],
    entries: Sequence[TranscriptEntry],
    tokenizer: str | None,
    others: Mapping[str, str | None] = MappingProxyType({}),
) -> Workflow:
    """One game as a workflow. `tokenizer` is the digest of the tokenizer of its tokens, and `others` are those of
    models beside the run's own, by name."""
    lengths, own = _lengths(entries, elsewhere=bool(others)), own_records(entries)
    answers = {e.act.thought: e.message.id for e in entries if e.act.thought is not None and e.message.tokens}
    spelled: dict[str | None, str | None] = {None: tokenizer}
    spelled.update(others)
    line = {
        "format": "agentcho-trace/1",
        "workflow": scenario,
        "id": id,
        "meta": meta,
        "agents": sorted({*cast, *_named(entries)}),
        "messages": [
            trace_message(
                _apart(_placed(entry, made, lengths), answers),
                spelled.get(entry.engine),
                entry.ended,
                entry.act.reuse,
                opened=made is not None and made.opened,
            ).to_json()
            for entry in entries
            for made in (own.get(entry.message.id),)
        ],
    }
    return workflow(line, id)


def _apart(message: Message, answers: Mapping[str, str]) -> Message:
    """The message with thoughts and their `answers` as separate parents: a trace has only the words of a thought,
    without what was said after it."""
    if not any(parent in answers for parent in message.parents):
        return message
    parents, offsets = list[str](), list[int | None]()
    for parent, offset in zip(message.parents, message.offsets or (None,) * len(message.parents), strict=True):
        parents += [parent, answers[parent]] if parent in answers else [parent]
        offsets += [offset, None] if parent in answers else [offset]
    return replace(message, parents=tuple(parents), offsets=None if message.offsets is None else tuple(offsets))


def _lengths(entries: Sequence[TranscriptEntry], elsewhere: bool) -> Lengths:
    """The known lengths: of each message where it was said and, with `elsewhere`, wherever it was read."""
    found = {(entry.engine, entry.message.id): len(entry.message.tokens) for entry in entries}
    records = {record.id: record for entry in entries for record in entry.made} if elsewhere else {}
    for record in records.values():
        there = ((records[read.id].message, read.length) for read in record.receipt.context if read.id in records)
        found |= {(record.engine, message): length for message, length in there}
    return found


def _placed(entry: TranscriptEntry, made: EncodingRecord | None, lengths: Lengths) -> Message:
    """The message with the positions at which it was really made, unless these are consecutive; with the requested
    positions if its only encodings are in a prompt of their reader (baseline runs, repairs), or if it has none."""
    message = entry.message
    if made is None or made.recipe in ("baseline", "repaired"):
        return _asked(entry, 0 if made is None else made.receipt.bos, lengths)
    end, plain = made.receipt.bos, True
    for _, offset, length in made.receipt.context:
        plain &= offset == end
        end = offset + length
    if plain and made.receipt.start == end:
        return message
    offsets = tuple(read.offset for read in made.receipt.context)
    return replace(message, offsets=offsets, new_offset=made.receipt.start)


def _asked(entry: TranscriptEntry, bos: int, lengths: Lengths) -> Message:
    """The message with the positions that its requested places resolve to."""
    message, places = entry.message, entry.act.places
    if not any(place is not None for place in places):
        return message
    reads = tuple(Read(id, at) for id, at in zip(message.parents, places, strict=False))
    known = [lengths.get((entry.engine, id)) for id in message.parents]
    read_set = ReadSet(message.author, reads, places[-1], ())
    *offsets, start = absolute_positions(read_set, known, bos)
    return replace(message, offsets=tuple(offsets), new_offset=start)


def _named(entries: Iterable[TranscriptEntry]) -> set[str]:
    names = {e.message.author for e in entries if e.message.author is not None}
    return names.union(*(e.message.audience.members or () for e in entries))
