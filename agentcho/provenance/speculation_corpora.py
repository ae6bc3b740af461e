"""The corpora from which an agent's tokens may be drafted: the messages that are out and that it may read.

Each audience has its own corpus, and an agent only uses those of the audiences that it is in: the time taken shows how
often draft tokens are right, and must not reveal hidden messages. Messages of a move of a round are only used in that
move, until the round closes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from weakref import WeakKeyDictionary

from agentcho.message import Audience, Metadata
from agentcho.protocol.speculation_corpus import Corpus
from agentcho.provenance.drafts import Draft
from agentcho.provenance.views import History, MessageLog


class _Log:
    """The corpora of one log, by audience, up to the message number `taken`."""

    def __init__(self) -> None:
        self.taken = 0
        self._corpora = dict[Audience, Corpus]()
        self._read = dict[str, list[Corpus]]()

    def add(self, to: Audience, tokens: tuple[int, ...]) -> None:
        """Add a message. A corpus of a new audience also goes to known readers in that audience."""
        if to not in self._corpora:
            self._corpora[to] = Corpus()
            for reader, read in self._read.items():
                if to.includes(reader):
                    read.append(self._corpora[to])
        self._corpora[to].add(tokens)

    def of(self, reader: str) -> list[Corpus]:
        """The corpora that this agent may read."""
        if reader not in self._read:
            self._read[reader] = [each for to, each in self._corpora.items() if to.includes(reader)]
        return self._read[reader]


class Corpora:
    """The corpora of one game for one engine. `drafts` are its messages; those for which `spells` is false, because
    their ids are of another tokenizer, are left out."""

    def __init__(self, drafts: Mapping[str, Draft], spells: Callable[[Draft], bool]) -> None:
        self._drafts, self._spells = drafts, spells
        self._logs: WeakKeyDictionary[MessageLog, _Log] = WeakKeyDictionary()

    def of(self, reader: str | None, out: History) -> tuple[Corpus, ...]:
        """The corpora of the messages in `out` that this agent may read, in the order in which audiences were first
        addressed. They grow as more comes out. Empty if `reader` is None."""
        if reader is None:
            return ()
        return tuple(corpus for log in out.logs for corpus in self._taken_in(log).of(reader))

    def read(self, reader: str | None, ids: Iterable[str]) -> tuple[Corpus, ...]:
        """A corpus of those of these messages that this agent may read."""
        drafts = [self._drafts[id] for id in ids]
        readable = [each for each in drafts if reader is not None and each.metadata.audience.includes(reader)]
        return (Corpus(*(words for each in readable if (words := self._words(each)))),)

    def _taken_in(self, log: MessageLog) -> _Log:
        """The corpora of a log, with all its messages so far."""
        known = self._logs.setdefault(log, _Log())
        for message in islice(log.messages, known.taken, None):
            self._add(known, message)
        known.taken = len(log.messages)
        return known

    def _add(self, known: _Log, message: Metadata) -> None:
        if words := self._words(self._drafts[message.id]):
            known.add(message.audience, words)

    def _words(self, draft: Draft) -> tuple[int, ...]:
        """The ids of a message, framing included. Empty if they are of another tokenizer."""
        return draft.message.words.tokens if draft.message is not None and self._spells(draft) else ()
