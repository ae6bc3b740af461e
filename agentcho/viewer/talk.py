"""One attempt at a game in the page's form: messages, encodings, and what reached each agent.

The audit determines what reached whom, and which encodings are unaccounted for. Field names are short, because there
are many lines; only the page's own script reads them. Independent of files and HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agentcho.audit.reach import Reach, reach
from agentcho.audit.verdict import GameVerdict
from agentcho.message import Audience, Message, natural
from agentcho.provenance.labels import EncodingRecord
from agentcho.provenance.views import Act
from agentcho.records.calls import use_line
from agentcho.records.models import LOCAL, RecordedModels
from agentcho.records.transcript import TranscriptEntry
from agentcho.viewer.compact_lists import Contexts, Json, runs
from agentcho.viewer.costs import game_costs, rows
from agentcho.viewer.prompts import CallPrompt, prompts


def talk(
    entries: Sequence[TranscriptEntry], cast: Mapping[str, str], models: RecordedModels = LOCAL, measured: bool = True
) -> Json:
    """The data of one attempt at a game; `cast` is role by agent. With `measured` false its costs are unknown."""
    return _Talk(entries, cast, models, prompts(entries) if measured else {}).json()


def agents_of(entries: Iterable[TranscriptEntry]) -> list[str]:
    """Every agent that speaks or is addressed by name, in order of appearance."""
    found: dict[str, None] = {}
    for entry in entries:
        message = entry.message
        found |= dict.fromkeys([] if message.author is None else [message.author])
        found |= dict.fromkeys(sorted(message.audience.members or (), key=natural))
    return list(found)


class _Talk:
    def __init__(
        self,
        entries: Sequence[TranscriptEntry],
        cast: Mapping[str, str],
        models: RecordedModels,
        known: Mapping[str, CallPrompt],
    ) -> None:
        self._prompts = known
        self._entries = entries
        self._cast = cast
        self._verdict = GameVerdict(entries[0].message.game if entries else 0, entries, models=models)
        self._place = {entry.message.id: place for place, entry in enumerate(entries)}
        self._agents = agents_of(entries)
        self._seat = {name: seat for seat, name in enumerate(self._agents)}
        records = [record for record in self._verdict.cones.records.values() if record.message in self._place]
        self._records = {record.id: number for number, record in enumerate(records)}
        self._contexts = Contexts()

    def json(self) -> Json:
        found = reach(self._verdict)
        return {
            "agents": [self._agent(name, found.get(name, Reach())) for name in self._agents],
            "messages": [self._message(entry) for entry in self._entries],
            "encodings": [self._encoding(self._verdict.cones.records[id]) for id in self._records],
            "costs": rows(game_costs(self._entries, self._prompts), self._seat),
        }

    def _agent(self, name: str, own: Reach) -> Json:
        """An agent, with the data for its view: see `Reach`. The number of a message without a line is -1."""
        place = self._place
        numbers = self._records
        reached = [
            [place[m], how.verdict, place.get(how.call, -1), place.get(how.through, -1)]
            for m, how in own.reached.items()
        ]
        brought = [[numbers[id], each.verdict] for id, each in own.brought.items() if id in numbers]
        return {
            "name": name,
            "role": self._cast.get(name, ""),
            "verdict": own.worst,
            "readings": own.readings,
            "unclean": own.unclean,
            "read": runs(place[m] for m in own.read if m in place),
            "reached": sorted(reached),
            "brought": brought,
            "felt": sorted(place[m] for m in own.felt if m in place),
        }

    def _message(self, entry: TranscriptEntry) -> Json:
        message = entry.message
        usage = entry.usage
        act = entry.act
        sampled = entry.generated[1] - entry.generated[0] if message.sampled and message.tokens else None
        more = {
            "header": message.header,
            "tokens": len(message.tokens),
            "sampled": sampled,
            "stopped": message.stopped,
            "ended": entry.ended,
            "origin": entry.origin,
            "where": act.where,
            **_asked(act),
            "at": _rounded(usage.at),
            "first": _rounded(usage.ttft),
            "took": _rounded(usage.seconds),
            "steps": usage.steps,
            "encoded": usage.encoded,
            "reused": usage.reused,
            "spent": None if usage.spent is None else usage.spent._asdict(),
            "own": self._own(entry),
            "reads": self._reads(entry),
            "engine": entry.engine,
            "direct": [self._place[id] for id in entry.direct if id in self._place],
            "shown": [self._place[id] for id in act.shown if id in self._place],
            **self._prompt(message.id),
        }
        return said(message, self._seat) | {name: value for name, value in more.items() if value}

    def _prompt(self, id: str) -> Json:
        return self._prompts[id].json() if id in self._prompts else {}

    def _own(self, entry: TranscriptEntry) -> int | None:
        """The number of the message's own encoding plus one, because 0 is left out."""
        number = None if entry.own is None else self._records.get(entry.own.id)
        return None if number is None else number + 1

    def _reads(self, entry: TranscriptEntry) -> list[int] | None:
        """The messages that its author asked to read, or None if these are the ones that its own encoding attended
        to."""
        own = entry.own
        over = () if own is None else own.receipt.context
        records = self._verdict.cones.records
        attended = [message for piece in over if piece.id in records for message in records[piece.id].messages]
        if attended == list(entry.message.parents):
            return None
        return [self._place[id] for id in entry.message.parents if id in self._place]

    def _encoding(self, record: EncodingRecord) -> Json:
        number = self._records[record.id]
        records = self._records
        receipt = record.receipt
        readers = self._verdict.cones.messages[record.message].audience if record.caller is None else None
        key = (record.caller, record.recipe, readers, record.engine)
        more = {
            "by": None if record.caller is None else self._seat.get(record.caller, -1) + 1,
            "base": None if receipt.base is None else records.get(receipt.base, -1) + 1,
            "anchors": [records.get(id, -1) for id in receipt.anchors],
            "fault": self._verdict.cones.fault(record.id),
            "engine": record.engine,
        }
        line = {
            "of": self._place[record.message],
            "recipe": record.recipe,
            "start": receipt.start,
            "bos": receipt.bos,
            "context": self._contexts.grown(number, key, receipt.context).flat(records),
        }
        return line | {name: value for name, value in more.items() if value}


def _asked(act: Act) -> Json:
    """How a message was requested: its choices, tool call and declaration, release, and charge."""
    charge = act.charge
    return {
        "choices": list(act.choices),
        "call": act.call,
        "use": None if act.use is None else use_line(act.use),
        "release": act.release,
        "released": act.released,
        "charge": None if charge is None else {"by": charge.by, "bits": charge.bits, "owed": dict(charge.owed)},
    }


def said(message: Message, seat: Mapping[str, int]) -> Json:
    """What every reader of a message knows of it: its words and metadata."""
    by = None if message.author is None else seat[message.author]
    line = {"id": message.id, "by": by, "to": _audience(message.audience, seat), "role": message.role}
    line |= {"kind": message.kind, "text": message.text}
    return line if message.words.thought is None else line | {"thought": True}


def _audience(audience: Audience, seat: Mapping[str, int]) -> list[int] | None:
    return None if audience.members is None else sorted(seat[name] for name in audience.members)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 5)
