"""Invariants that must hold at any time in a play, computed only from what was said in it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from agentcho.provenance.labels import EncodingRecord
from agentcho.reuse.kvcomm import KVComm

from .stage import Talk


class Check:
    """Checks whatever is new since the last call; may be called at any time."""

    def __init__(self, talk: Talk) -> None:
        self._talk, self._world = talk, talk.world
        self._entries = 0
        self._records: set[int] = set()

    def __call__(self) -> None:
        for reader, record, public in self._talk.readings(self._entries):
            self._reading(reader, record, public)
        self._entries = len(self._talk.entries)
        for id, record in self._talk.records.items():
            if id not in self._records:
                self._record(record)
        self._records = set(self._talk.records)
        most = 2 if self._talk.resolver.enforcing else 1
        assert all(len(kept) <= most for kept in self._talk.storages().values())

    def _reading(self, reader: str, record: EncodingRecord, public: bool) -> None:
        """No reader attends to anything outside its view. It reads its own messages as their author, unless it asks to
        read them as others do, and others' messages as their whole audience does."""
        way, words = self._talk.reuse, self._talk.engine.words(record.id)
        if way.leakage != "audit":
            view = self._world.view(reader)
            assert record.cone <= view
            assert words <= self._talk.tokens(view)
        if record.recipe == "repaired":
            assert record.caller == reader
            assert public or self._world.said[record.message].author != reader
            if record.receipt.base is not None:
                assert self._base(reader, record, record.receipt.base, public) <= record.cone
        elif way.leakage == "enforce":
            once = record.recipe == "audience" and record.caller is not None
            mine = self._world.said[record.message].author == reader and not public and not once
            assert record.recipe == ("author" if mine else "audience")
            assert not once or (way.shadow != "never" and not way.deterministic)
            assert self._anew or record.cone == self._world.heard(reader, record.message, public)
        else:
            assert record.recipe == "author"
            assert self._anew or record.cone == self._world.reach(record.message)

    def _record(self, record: EncodingRecord) -> None:
        """The cone of every encoding, read or not, is exactly what was gathered and what reachability gives."""
        reached = {
            "audit": self._world.reach,
            "deny": self._world.reach,
            "enforce": self._world.public if record.recipe == "audience" else self._world.own,
        }[self._talk.reuse.leakage]
        assert self._talk.engine.words(record.id) == self._talk.tokens(record.cone)
        if record.recipe == "repaired":
            return
        if self._anew and record.recipe == "author":  # over messages encoded anew, and over anchors
            assert {record.message, *self._world.said[record.message].reads} <= record.cone
            may = self._world.view(record.caller or "")
            assert record.cone <= reached(record.message) | (self._carried(record) if self._anchored else may)
            assert self._talk.reuse.leakage != "deny" or record.cone <= reached(record.message)
        else:
            assert record.cone == reached(record.message)
        if record.recipe == "audience":
            self._compact(record)
        else:
            assert record.caller == self._world.said[record.message].author

    def _base(self, reader: str, record: EncodingRecord, base: int, public: bool) -> AbstractSet[str]:
        """The least cone of a repaired encoding: everything behind its base, whose keys and values it keeps."""
        if self._talk.reuse.leakage == "enforce":
            return self._world.heard(reader, record.message, public)
        return self._talk.records[base].cone if self._anew else self._world.reach(record.message)

    @property
    def _anew(self) -> bool:
        """Whether the context of a message may have been encoded anew, in full, in its author's prompt."""
        judged = any(plan.judges for plan in self._talk.plans.values())
        ways = (self._talk.reuse.repair, self._talk.reuse.judge if judged else None)
        return any(way == "full" or isinstance(way, KVComm) for way in ways)

    @property
    def _anchored(self) -> bool:
        """Whether anchors add what their caller had read for other messages, even outside its view."""
        return isinstance(self._talk.reuse.repair, KVComm) and self._talk.reuse.leakage != "enforce"

    def _carried(self, record: EncodingRecord) -> AbstractSet[str]:
        """Everything that its author, and transitively the authors it read, have read for any of their messages."""
        found, left = set[str](), [record.message]
        while left:
            if (id := left.pop()) not in found:
                found.add(id)
                author = self._world.said[id].author
                mine = (said for said in self._world.said.values() if author is not None and said.author == author)
                left += [*self._world.said[id].reads, *(read for said in mine for read in said.reads)]
        return found

    def _compact(self, record: EncodingRecord) -> None:
        """An audience encoding directly follows its contiguous context, whatever positions its author asked for. It has
        no caller, unless it is its author's own encoding too."""
        end = 1
        for entry in record.receipt.context:
            assert entry.offset == end
            end += entry.length
        assert record.receipt.start == end
        assert record.caller in (None, self._world.said[record.message].author)
        audience = self._world.said[record.message].audience
        for id in record.cone:
            other = self._world.said[id].audience
            assert other is None or (audience is not None and audience <= other)
