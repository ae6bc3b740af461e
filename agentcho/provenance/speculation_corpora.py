"""What the words of an agent may be guessed from: the messages that are out and that it may read.

Of each audience there is a corpus of its own, and an agent draws from those of the audiences that it is in, and from
nothing else: how often guesses are right can be timed, and must tell of nothing that is hidden. What a move of a round
has said is drawn from in that move alone, until the round closes. Does not know: how guesses are made, encodings.
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
    """The corpora of one log, by audience, as far as it has been taken in."""

    def __init__(self) -> None:
        self.taken = 0
        self._corpora = dict[Audience, Corpus]()
        self._read = dict[str, list[Corpus]]()

    def add(self, to: Audience, tokens: tuple[int, ...]) -> None:
        """A message is out. A new audience is for those of whom was asked before, too."""
        if to not in self._corpora:
            self._corpora[to] = Corpus()
            for reader, read in self._read.items():
                if to.includes(reader):
                    read.append(self._corpora[to])
        self._corpora[to].add(tokens)

    def of(self, reader: str) -> list[Corpus]:
        """What this agent may read."""
        if reader not in self._read:
            self._read[reader] = [each for to, each in self._corpora.items() if to.includes(reader)]
        return self._read[reader]


class Corpora:
    """The corpora of one game for one engine. `drafts` are its messages; those that it does not `spells` in the ids of
    this engine are left out."""

    def __init__(self, drafts: Mapping[str, Draft], spells: Callable[[Draft], bool]) -> None:
        self._drafts, self._spells = drafts, spells
        self._logs: WeakKeyDictionary[MessageLog, _Log] = WeakKeyDictionary()

    def of(self, reader: str | None, out: History) -> tuple[Corpus, ...]:
        """What this agent may read of what is `out`, in the order in which audiences were first spoken to. The corpora
        grow as more comes out. None: nobody, who reads nothing."""
        if reader is None:
            return ()
        return tuple(corpus for log in out.logs for corpus in self._taken_in(log).of(reader))

    def read(self, reader: str | None, ids: Iterable[str]) -> tuple[Corpus, ...]:
        """A corpus of these messages, as far as this agent may read them."""
        drafts = [self._drafts[id] for id in ids]
        readable = [each for each in drafts if reader is not None and each.metadata.audience.includes(reader)]
        return (Corpus(*(words for each in readable if (words := self._words(each)))),)

    def _taken_in(self, log: MessageLog) -> _Log:
        """The corpora of a log, with all that is in it by now."""
        known = self._logs.setdefault(log, _Log())
        for message in islice(log.messages, known.taken, None):
            self._add(known, message)
        known.taken = len(log.messages)
        return known

    def _add(self, known: _Log, message: Metadata) -> None:
        if words := self._words(self._drafts[message.id]):
            known.add(message.audience, words)

    def _words(self, draft: Draft) -> tuple[int, ...]:
        """The ids of a message, those of its framing too; none where they are of another tokenizer."""
        return draft.message.words.tokens if draft.message is not None and self._spells(draft) else ()
