"""The messages of a run on disk: a line each once it has ended, and before that every piece of it as it is generated.

    transcript.jsonl  {"game": 0, "id": "alice.3", "kind": "decode", …}           a message that has ended
                      {"game": 0, "encodings": […]}                               encodings on no message's line
    heard.jsonl       {"game": 0, "id": "alice.3", "kind": "decode", …}           its first token was generated or, for
                                                                                  a model behind an API, it is requested
                      {"game": 0, "id": "alice.3", "tokens": [17], "text": "so"}  the piece that each step generated

Lines are appended whole, and the files can be read after a kill at any byte: readers drop a torn last line, and writers
cut it off before they append. A line of the transcript holds the message, all encodings, of any message, that were made
since the line before, with their receipts and cones, and its cost. A message of known text may have its line before any
call reads it: it then has no encoding there, and a later line has it. Encodings on a line of their own are read as part
of the message line before them. A message with pieces only was in progress when the process died.

That is format 2 (`agentcho-run/2`). Lines of format 1 will always be readable: there each message has its encoding and
its tokens, is complete, is of the first attempt, and does not name its engine and origin. A message of a model behind
an API has no tokens and no encoding, and its author read texts: those of its parents.

A seal stands for a long cone, so that the length of a line depends only on what an encoding was made over. It digests
the encoding's message, recipe, caller and positions, and the seals of everything it was made over. Readers compute
the cone again from these, and accept it only if the seal matches: a cone whose receipts were changed, its own or any
behind it, is empty, which every audit reports. Independent of how a run is played and of engines.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from agentcho.errors import RecordBroken
from agentcho.message import SAMPLED, Message, Words, audience
from agentcho.protocol.call import ContextEntry, EncodingId, Receipt
from agentcho.protocol.text_calls import TokensSpent
from agentcho.provenance.labels import EncodingRecord, MessageIndex, adds_up, attended_encodings
from agentcho.provenance.tool_sinks import is_step_id, offered_in, step_id
from agentcho.provenance.views import Act, Charge, Move
from agentcho.records.calls import tool_use, use_line
from agentcho.records.files import LineFile, encoded_lines, read_lines
from agentcho.records.line_models import (
    ActPart,
    ChargePart,
    EncodingPart,
    EncodingsLine,
    Ending,
    MessageLine,
    Origin,
    UsagePart,
    read,
)

MESSAGE, ENCODINGS = TypeAdapter(MessageLine), TypeAdapter(EncodingsLine)
LISTED = 64
"""A cone with at most this many messages is written out and has no seal."""


class MessageUsage(NamedTuple):
    """What one message cost.

    `encoded`: tokens of the encodings on its line; over all lines they sum to what was encoded, and to what would be if
    everybody read every short message. `reused`: tokens of context read from the store. `ttft`: seconds from submission
    to its first logits, or to the first piece of text, waiting included. `seconds`: from submission to its end.
    `spent`: what a model behind an API used for it, as reported by its server. `at`: seconds from the beginning of its
    game's attempt to its submission. `steps`: the numbers of three steps of its engine, which all games of a run share:
    that of its submission, that of its first token, and its last. None if unknown, or if nothing was submitted.
    """

    encoded: int
    reused: int
    ttft: float
    seconds: float
    spent: TokensSpent | None = None
    at: float | None = None
    steps: tuple[int, int, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON form on a line."""
        spent = None if self.spent is None else self.spent._asdict()
        line = self._asdict() | {"spent": spent}
        return {name: value for name, value in line.items() if value is not None}


class TranscriptEntry(NamedTuple):
    """One message with its provenance.

    `made` are the records of the encodings on its line, of this message and of others. `encoding` is the id of this
    message's own encoding among them, or None: because the words were known beforehand and no call had read them yet
    (the encoding, once made, is in `made` of a later entry), or because the message is unfinished. `direct` are the
    messages that its author read without being in their audience.

    `ended` None: the message is complete. Otherwise it is unfinished: its tokens are those sampled before the call
    ended, the last record in `made` says which encodings they attended to, and its own encoding was dropped, so that no
    call reads it. `attempt` counts the starts of its game; the last attempt is the one that counts. `engine` names the
    model that said it, if that is not the run's own: its tokens are of that model's tokenizer. `origin` None: its words
    were known beforehand. A message of a model behind an API has no `tokens` and no `encoding`.
    """

    message: Message
    encoding: int | None
    made: tuple[EncodingRecord, ...]
    direct: tuple[str, ...]
    usage: MessageUsage
    act: Act = Act()
    ended: Ending | None = None
    attempt: int = 1
    engine: str | None = None
    origin: Origin | None = None

    @property
    def own(self) -> EncodingRecord | None:
        """The record of the message's own encoding, if this entry has it; for an unfinished message, the record that
        says what its tokens attended to."""
        if self.ended is not None:
            return next((record for record in reversed(self.made) if record.message == self.message.id), None)
        return next((record for record in self.made if record.id == self.encoding), None)

    @property
    def generated(self) -> tuple[int, int]:
        """The (start, stop) of the tokens that were generated for it. What follows a thought was generated together
        with the thought, and its tokens are counted there."""
        if self.act.thought is not None or self.message.sampled is None:
            return 0, 0
        return self.message.sampled

    def to_json(self, seals: Seals | None = None) -> dict[str, Any]:
        """The line as a JSON object; `from_json` inverts it. Optional fields at their defaults are left out. `seals`:
        those of the game's earlier lines, or None to list each cone in full."""
        message, words = self.message, self.message.words
        line = {
            "game": message.game,
            "id": message.id,
            "kind": message.kind,
            "role": message.role,
            "author": message.author,
            "audience": message.audience.to_json(),
            "parents": message.parents,
            "header": words.header,
            "text": words.text,
            "tokens": words.tokens or None,
            "content": words.content,
            "sampled": words.sampled,
            "name": message.name,
            "canonical": words.canonical,
            "offsets": message.offsets,
            "new_offset": message.new_offset,
            "stopped": words.stopped,
            "encoding": self.encoding,
            "encodings": _lines(self.made, seals),
            "direct": self.direct,
            "usage": self.usage.to_json(),
            "act": _act_line(self.act),
        }
        more: dict[str, Any] = {"stop_reason": words.stop_reason, "thought": words.thought, "ended": self.ended}
        more |= {"attempt": _later(self.attempt)}
        more |= {"engine": self.engine, "origin": self.origin}
        return line | {name: value for name, value in more.items() if value is not None}

    @classmethod
    def from_json(cls, line: dict[str, Any], seals: Seals | None = None) -> TranscriptEntry:
        """Read one line; `seals`: those of the game's earlier lines. Raises ValueError if it is not a message line."""
        said = read(MESSAGE, line)
        words = Words(
            header=said.header,
            text=said.text,
            tokens=said.tokens or (),
            content=said.content,
            sampled=said.sampled,
            stopped=said.stopped,
            canonical=said.canonical,
            thought=said.thought,
            stop_reason=said.stop_reason,
        )
        message = Message(
            id=said.id,
            game=said.game,
            kind=said.kind,
            role=said.role,  # type: ignore[arg-type]
            author=said.author,
            audience=audience(said.audience),
            parents=said.parents,
            words=words,
            name=said.name,
            offsets=said.offsets,
            new_offset=said.new_offset,
        )
        return cls(
            message=message,
            encoding=said.encoding,
            made=_records(said, seals),
            direct=said.direct,
            usage=_usage(said.usage),
            act=_act(said.act),
            ended=said.ended,
            attempt=said.attempt,
            engine=said.engine,
            origin=said.origin,
        )


def _act_line(act: Act) -> dict[str, Any]:
    """The JSON form of an act. Optional fields at their defaults are left out."""
    line = {"where": act.where, "places": act.places, "acted_on": act.tainted_by, "choices": act.choices}
    use = None if act.use is None else use_line(act.use)
    charge = None if act.charge is None else _charge_line(act.charge)
    more = {"call": act.call, "use": use, "release": act.release or None, "released": act.released, "charge": charge}
    read = {"shown": act.shown or None, "reuse": act.reuse, "thought": act.thought, "unproved": act.unproved or None}
    code = {"contained": act.contained or None, "unaddressed": act.unaddressed or None}
    order = {"after": act.after, "named": act.named or None, "moves": act.moves or None}
    return line | {name: value for name, value in (more | read | code | order).items() if value is not None}


def _act(line: ActPart) -> Act:
    use = None if line.use is None else tool_use(line.use)
    act = Act(
        where=line.where,
        places=line.places,
        tainted_by=line.acted_on,
        choices=line.choices,
        call=line.call,
        use=use,
        release=line.release,
        released=line.released,
    )
    moves = tuple(Move(*move) for move in line.moves)
    act = act._replace(shown=line.shown, reuse=line.reuse, after=line.after, named=line.named, moves=moves)
    act = act._replace(
        thought=line.thought, unproved=line.unproved, contained=line.contained, unaddressed=line.unaddressed
    )
    return act if line.charge is None else act._replace(charge=_charge(line.charge))


def _charge_line(charge: Charge) -> dict[str, Any]:
    line = {"by": charge.by, "bits": charge.bits, "owed": dict(charge.owed)}
    return line if charge.schema is None else line | {"schema": charge.schema}


def _charge(line: ChargePart) -> Charge:
    return Charge(line.by, line.bits, tuple(line.owed.items()), line.of)


def _usage(line: UsagePart) -> MessageUsage:
    spent = None if line.spent is None else TokensSpent(**dict(line.spent))
    return MessageUsage(
        encoded=line.encoded,
        reused=line.reused,
        ttft=line.ttft,
        seconds=line.seconds,
        spent=spent,
        at=line.at,
        steps=line.steps,
    )


def _later(attempt: int) -> int | None:
    """The number of an attempt on a line; None for the first, which is left out."""
    return attempt if attempt > 1 else None


class EncodingsEntry(NamedTuple):
    """A line of encodings only: those of a game that were on no message's line at its end, and the tokens that were fed
    for them."""

    game: int
    made: tuple[EncodingRecord, ...]
    attempt: int = 1
    encoded: int = 0

    def to_json(self, seals: Seals | None = None) -> dict[str, Any]:
        """The line as a JSON object; `from_json` inverts it. `seals`: see `TranscriptEntry.to_json`."""
        line = {"game": self.game, "encodings": _lines(self.made, seals), "encoded": self.encoded}
        return line if self.attempt == 1 else line | {"attempt": self.attempt}

    @classmethod
    def from_json(cls, line: dict[str, Any], seals: Seals | None = None) -> EncodingsEntry:
        """Read one line. Raises ValueError if it is not a line of encodings."""
        alone = read(ENCODINGS, line)
        return cls(alone.game, _records(alone, seals), alone.attempt, alone.encoded)


def _records(line: EncodingsLine, seals: Seals | None) -> tuple[EncodingRecord, ...]:
    known = seals or Seals()
    return tuple(_opened(part, known) for part in line.encodings)


def _opened(part: EncodingPart, seals: Seals) -> EncodingRecord:
    """An encoding with its cone, listed or computed from its seal."""
    receipt = Receipt(
        context=seals.context(part.context), start=part.start, bos=int(part.bos), base=part.base, anchors=part.anchors
    )
    cone = frozenset[str]() if part.cone is None else part.cone
    record = EncodingRecord(
        id=part.id,
        message=part.message,
        caller=part.caller,
        recipe=part.recipe,
        receipt=receipt,
        cone=cone,
        engine=part.engine,
        respelled=part.respelled,
        also=part.also,
        tokens=part.tokens,
        apart=part.apart,
        opened=part.opened,
    )
    if part.seal is not None:
        return seals.open(record, part.seal)
    seals.listed(record)
    return record


def _lines(made: Iterable[EncodingRecord], seals: Seals | None) -> list[dict[str, Any]]:
    return [encoding_line(record, None if seals is None else seals.close(record)) for record in made]


def encoding_line(record: EncodingRecord, seal: str | None = None) -> dict[str, Any]:
    """The JSON form of an encoding: with its cone, or with the seal that stands for it."""
    receipt = record.receipt
    cone = {"cone": sorted(record.cone)} if seal is None else {"seal": seal}
    elsewhere = {} if record.engine is None else {"engine": record.engine}
    respelled = {"respelled": True} if record.respelled else {}
    anchors = {"anchors": receipt.anchors} if receipt.anchors else {}
    prompt = {"also": record.also, "tokens": record.tokens, "apart": record.apart, "opened": record.opened}
    rendered = {name: value for name, value in prompt.items() if value}
    return {
        "id": record.id,
        "message": record.message,
        "caller": record.caller,
        "recipe": record.recipe,
        "context": receipt.context,
        "start": receipt.start,
        "bos": begun(receipt),
        "base": receipt.base,
        **anchors,
        **cone,
        **elsewhere,
        **respelled,
        **rendered,
    }


def begun(receipt: Receipt) -> bool | int:
    """The JSON form of the tokens that every context begins with: whether there is one, or the number of several."""
    return receipt.bos if receipt.bos > 1 else receipt.bos == 1


def read_transcript(path: Path, seals: AllSeals | None = None) -> list[TranscriptEntry]:
    """The entries of a transcript in the order of their lines, including encodings on lines of their own (`carry`).
    `seals`, given empty, receives those of all games."""
    entries: list[TranscriptEntry] = []
    seals = AllSeals() if seals is None else seals
    for number, line in read_lines(path):
        try:
            known = seals[line["game"], line.get("attempt", 1)]
            if "id" in line:
                entries.append(TranscriptEntry.from_json(line, known))
            else:
                carry(entries, EncodingsEntry.from_json(line, known))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            what = f"not a valid line of a message ({type(error).__name__}: {error})"
            raise RecordBroken(f"{path}:{number}", what) from None
    return entries


class Seals:
    """The seals and cones of one attempt at one game, in the order in which its encodings were made."""

    def __init__(self) -> None:
        self._roll = MessageIndex()
        self._known: dict[EncodingId, tuple[str, Set[str]]] = {}
        self._pieces = _Pieces()

    def context(self, pieces: Iterable[tuple[int, int, int]]) -> tuple[ContextEntry, ...]:
        """A context as it was read. A piece in many contexts is one shared object: a long game has millions of pieces,
        and nearly all of them are in the preceding context too."""
        return tuple(map(self._pieces.__getitem__, pieces))

    def close(self, record: EncodingRecord) -> str | None:
        """Register an encoding that is being written. Returns its seal if that can stand for its cone, or None if the
        cone has to be listed."""
        over = self._over(record.receipt)
        if over is None:
            return None
        seal = _seal(record, over)
        self._known[record.id] = seal, record.cone
        whole = adds_up(record.cone, record.message, (cone for _, cone in over), record.also)
        return seal if whole and len(record.cone) > LISTED else None

    def open(self, record: EncodingRecord, seal: str) -> EncodingRecord:
        """A record that was written with a seal, with its cone computed again; with an empty cone if the seal does not
        match."""
        over = self._over(record.receipt)
        if over is None or _seal(record, over) != seal:
            return record._replace(cone=frozenset())
        cone = self._roll.cone(record.message, map(self._roll.of, [cone for _, cone in over]), record.also)
        self._known[record.id] = seal, cone
        return record._replace(cone=cone)

    def listed(self, record: EncodingRecord) -> None:
        """Register an encoding whose cone is listed in the file."""
        over = self._over(record.receipt)
        if over is not None:
            self._known[record.id] = _seal(record, over), self._roll.of(record.cone)

    def _over(self, receipt: Receipt) -> list[tuple[str, Set[str]]] | None:
        """Seals and cones of the encodings that a call attended to, or None if one of them is unknown."""
        try:
            return list(map(self._known.__getitem__, attended_encodings(receipt)))
        except KeyError:
            return None


class _Pieces(dict[tuple[int, int, int], ContextEntry]):
    """Pieces of contexts, each made on first use."""

    def __missing__(self, piece: tuple[int, int, int]) -> ContextEntry:
        return self.setdefault(piece, ContextEntry._make(piece))


def _seal(record: EncodingRecord, over: list[tuple[str, Set[str]]]) -> str:
    receipt = record.receipt
    places = [(offset, length) for _, offset, length in receipt.context]
    made = (record.message, record.recipe, record.caller, receipt.start, begun(receipt), receipt.base is None)
    elsewhere = () if record.engine is None and not record.respelled else (record.engine, record.respelled)
    anchored = (len(receipt.anchors),) if receipt.anchors else ()
    prompt = record.also, record.tokens, record.apart, record.opened
    rendered = prompt if any(prompt) else ()
    whole = repr(((*made, *elsewhere, *anchored, *rendered), places, [seal for seal, _ in over])).encode(
        "utf-8", "surrogatepass"
    )
    return hashlib.blake2b(whole, digest_size=8, person=b"agentcho.cone").hexdigest()


class AllSeals(defaultdict[tuple[int, int], Seals]):
    """The seals of every game, by its number and its attempt."""

    def __init__(self, entries: Iterable[TranscriptEntry] = ()) -> None:
        super().__init__(Seals)
        for entry in entries:
            for record in entry.made:
                self.of(entry).listed(record)

    def of(self, entry: TranscriptEntry) -> Seals:
        """The seals of an entry's game."""
        return self[entry.message.game, entry.attempt]


def carry(entries: list[TranscriptEntry], alone: EncodingsEntry) -> None:
    """Add encodings that are on no message's line to the last entry of their game. Raises KeyError if it has no
    entry."""
    for place in reversed(range(len(entries))):
        entry = entries[place]
        if (entry.message.game, entry.attempt) == (alone.game, alone.attempt):
            usage = entry.usage._replace(encoded=entry.usage.encoded + alone.encoded)
            entries[place] = entry._replace(made=(*entry.made, *alone.made), usage=usage)
            return
    raise KeyError(alone.game)


def by_attempt(entries: Iterable[TranscriptEntry]) -> list[list[TranscriptEntry]]:
    """The entries of one game, attempt by attempt; a game without entries has one empty attempt."""
    found: dict[int, list[TranscriptEntry]] = {}
    for entry in entries:
        found.setdefault(entry.attempt, []).append(entry)
    return [found[attempt] for attempt in sorted(found)] or [[]]


def own_records(entries: Sequence[TranscriptEntry]) -> dict[str, EncodingRecord]:
    """For each message of one game the record of its own encoding, or else of the first that was made of it on the
    engine where it was said, or anywhere. A message that nobody read has none."""
    found: dict[str, EncodingRecord] = {}
    said_on = {entry.message.id: entry.engine for entry in entries}
    made = [record for entry in entries for record in entry.made]
    for record in sorted(made, key=lambda each: each.engine != said_on.get(each.message)):
        found.setdefault(record.message, record)
    for entry in entries:
        if entry.own is not None:
            found[entry.message.id] = entry.own
    return found


class HeardLines:
    """Writes `heard.jsonl`: lines collect in memory until the next `flush`, which writes them at once."""

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path)
        self._noted: list[dict[str, Any]] = []
        self._attempts: dict[int, int] = {}

    def begun(self, entry: TranscriptEntry, seals: Seals | None = None) -> None:
        """Add a message whose first token was generated; `seals` are those of its game."""
        self._attempts[entry.message.game] = entry.attempt
        self._noted.append(entry.to_json(seals))

    def said(self, game: int, id: str, token: int | None, text: str) -> None:
        """Add a piece of a message that a step generated: a token, if any, and the text that it adds."""
        attempt = self._attempts.get(game, 1)
        again = {"attempt": attempt} if attempt > 1 else {}
        self._noted.append({"game": game, "id": id, "tokens": [] if token is None else [token], "text": text, **again})

    def flush(self) -> None:
        """Write the collected lines. They are with the kernel when this returns."""
        noted, self._noted = self._noted, []
        if noted:
            self._lines.write(encoded_lines(noted))

    def close(self) -> None:
        """Flush to the disk and close."""
        try:
            self.flush()
        finally:
            self._lines.close()


def has_earlier_ids(entries: Iterable[TranscriptEntry]) -> bool:
    """Return whether an earlier version recorded these messages of a game, which had other ids there: steps before a
    text with tools, and private samples of charged answers in JSON, were numbered as messages."""
    said = {entry.message.id: entry for entry in entries}
    return any(_has_earlier_id(entry, said) for entry in said.values())


def _has_earlier_id(entry: TranscriptEntry, said: Container[str]) -> bool:
    message, act = entry.message, entry.act
    if act.call is not None and not is_step_id(act.call):
        return True
    if act.charge is not None and act.charge.by == "schema" and not (act.released or SAMPLED).endswith(SAMPLED):
        return True
    if message.kind != "decode" or not offered_in(message.author or "", message.parents):
        return False
    text = message.id.removesuffix(".thought").removesuffix(SAMPLED)
    return not is_step_id(text) and step_id(text, 0) not in said
