"""The books of a game: which encodings there are, their cones, and a line for each message that is whole.

Does not know: how requests are made, what is out and who may read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentcho.choreographer import Made, Result
from agentcho.config import Mode
from agentcho.events import Ended, Sink
from agentcho.limits import Meter
from agentcho.message import Message
from agentcho.provenance import EncodingRecord, Ledger, Recipe
from agentcho.resolver import Missing, Resolver, Utterance
from agentcho.transcript import Entry, Usage


class Books:
    """One game's. `held` are the ids of all its encodings, to be released with it."""

    def __init__(self, game: int, mode: Mode, meter: Meter, sink: Sink) -> None:
        self._game, self._meter, self._sink = game, meter, sink
        self._recipe: Recipe = "baseline" if mode == "baseline" else "author"
        self.resolver = Resolver(mode)
        self._ledger = Ledger()
        self.held: list[int] = []

    def enter(self, missing: Sequence[Missing], utterance: Utterance | None, result: Result, caller: str) -> None:
        """Take in the encodings of a finished request (what it lacked, then its own message, if any)."""
        again: list[EncodingRecord] = []
        for lack, made in zip(missing, result.made, strict=False):
            record = self._record(lack.message, lack.path, made, caller)
            lacked = self.resolver.utterances[lack.message]
            if lacked.message is None:
                lacked.message = self._message(lacked, made)
                self._write(lacked, (record,), result, (made,))
            else:
                again.append(record)
        if utterance is not None:
            self._enter_own(utterance, again, result, caller)

    def _enter_own(self, utterance: Utterance, again: list[EncodingRecord], result: Result, caller: str) -> None:
        made, id = result.made[-1], utterance.metadata.id
        path = (*(read.id for read in utterance.reads.reads), id)
        utterance.message = self._message(utterance, made)
        record = self._record(id, path, made, caller)
        self._meter.count(utterance.message)
        self._write(utterance, (*again, record), result, result.made)

    def _record(self, message: str, path: tuple[str, ...], made: Made, caller: str) -> EncodingRecord:
        """`caller` is whose prompt a baseline encoding stands in; an author's encoding is its author's."""
        author = self.resolver.utterances[message].metadata.author
        whose = caller if self._recipe == "baseline" else author
        record = self._ledger.record(made.id, message, whose, self._recipe, made.receipt)
        self.resolver.enter(message, self._recipe, path, made.id)
        self.resolver.bos = made.receipt.bos
        self.held.append(made.id)
        return record

    def _message(self, utterance: Utterance, made: Made) -> Message:
        data, words, reads = utterance.metadata, made.words, utterance.reads
        places = tuple(read.at if isinstance(read.at, int) else None for read in reads.reads)
        return Message(
            id=data.id, game=self._game, kind=data.kind, role=data.role, author=data.author, audience=data.audience,
            parents=data.parents, header=words.header, text=words.text, tokens=words.tokens, content=words.content,
            sampled=words.sampled, name=words.name, stopped=words.stopped,
            offsets=places if any(place is not None for place in places) else None,
            new_offset=reads.new_at if isinstance(reads.new_at, int) else None,
        )  # fmt: skip

    def _write(
        self, utterance: Utterance, made: tuple[EncodingRecord, ...], result: Result, calls: Iterable[Made]
    ) -> None:
        """Tell the sink of a message that is whole. What a request made for it counts as encoded, not reused."""
        assert utterance.message is not None
        fresh = {call.id for call in result.made}
        reused = sum(e.length for e in made[-1].receipt.context if e.id not in fresh)
        usage = Usage(sum(len(call.words.tokens) for call in calls), reused, result.ttft, result.seconds)
        self._sink(Ended(Entry(utterance.message, made[-1].id, made, utterance.reads.direct, usage)))
