"""A finished game as input of the measurements: its messages as token ids, with authors, audiences and parents.

Read from the entries of a transcript or from a workflow of a trace. Independent of encodings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any, NamedTuple, Protocol

from agentcho.games.runs.trace_framing import traced
from agentcho.message import Message
from agentcho.protocol.call import EnginePort
from agentcho.provenance.views import Place, Read, ReadSet, ReuseFor
from agentcho.records.trace import TraceMessage, Workflow
from agentcho.records.transcript import TranscriptEntry

WORD = re.compile(r"[A-Za-z]+")
SHORT = 48
"""The maximum length of a constrained answer of a trace, in characters."""
Ids = tuple[int, ...]


class MeasuredPort(EnginePort, Protocol):
    """The engine as measurements see it: the rows of known texts (`Engine.score`), and the keys and values of
    encodings."""

    @property
    def framing(self) -> Any: ...
    @property
    def score(self) -> Callable[..., Any]: ...
    def cached(self, id: int) -> Any: ...


class Line(NamedTuple):
    """One message. `headed`: the number of content ids that belong to its header. `places` as in `Act`, one per parent
    and then its own, or empty. `choices` are the texts it could have become, if known; `reuse` is that of the view it
    was said over."""

    message: Message
    headed: int
    places: tuple[Place, ...] = ()
    choices: tuple[str, ...] = ()
    reuse: ReuseFor | None = None

    @property
    def content(self) -> Ids:
        """The ids of header and text."""
        return self.message.tokens[self.message.content[0] : self.message.content[1]]

    @property
    def reads(self) -> ReadSet:
        """What its author read."""
        *places, own = self.places or (None,) * (len(self.message.parents) + 1)
        reads = tuple(Read(id, at) for id, at in zip(self.message.parents, places, strict=True))
        return ReadSet(caller=self.message.author, reads=reads, new_at=own, direct=(), reuse=self.reuse)

    def saying(self, content: Ids) -> Line:
        """The same message with other content; its framing stays."""
        start, stop = self.message.content
        tokens = (*self.message.tokens[:start], *content, *self.message.tokens[stop:])
        return self._replace(message=self.message.saying(tokens=tokens, content=(start, start + len(content))))

    def reading(self, kept: Iterable[str]) -> Line:
        """The same message over only those parents that are in `kept`, without gaps between them."""
        wanted = set(kept)
        reads = [read for read in self.reads.reads if read.id in wanted]
        places = (*(read.at for read in reads), self.reads.new_at) if self.places else ()
        return self._replace(message=replace(self.message, parents=tuple(r.id for r in reads)), places=places)


class Play(NamedTuple):
    """One game, in the order it was said. `kind` names the kind of its secrets, if known."""

    lines: tuple[Line, ...]
    kind: str | None = None

    @property
    def by_id(self) -> dict[str, Line]:
        """The messages by id."""
        return {line.message.id: line for line in self.lines}

    @property
    def agents(self) -> tuple[str, ...]:
        """Everyone who said something."""
        return tuple(sorted({line.message.author for line in self.lines if line.message.author is not None}))

    def decodes(self, author: str) -> tuple[Line, ...]:
        """The agent's decodes, in order."""
        return tuple(line for line in self.lines if line.message.author == author and line.message.kind == "decode")

    def hidden(self, owner: str, reader: str) -> tuple[Line, ...]:
        """The messages of `owner` that `reader` may not read."""
        own = (line for line in self.lines if line.message.author == owner)
        return tuple(line for line in own if not line.message.audience.includes(reader))

    def saying(self, words: Mapping[str, Ids]) -> Play:
        """The same game with other content in these messages."""
        lines = (line.saying(words[line.message.id]) if line.message.id in words else line for line in self.lines)
        return self._replace(lines=tuple(lines))

    def behind(self, ids: Iterable[str]) -> frozenset[str]:
        """These messages and all their transitive parents."""
        known = self.by_id
        seen = set[str]()
        left = list(ids)
        while left:
            id = left.pop()
            if id not in seen:
                seen.add(id)
                left += known[id].message.parents
        return frozenset(seen)


def of_entries(entries: Sequence[TranscriptEntry], kind: str | None = None) -> Play:
    """A game of a transcript, without incomplete messages, which are in no prompt."""
    return Play(tuple(_line(entry) for entry in entries if entry.ended is None), kind)


def _line(entry: TranscriptEntry) -> Line:
    message = entry.message
    headed = 0 if message.sampled is None else message.sampled[0] - message.content[0]
    return Line(
        message=message,
        headed=max(headed, 0),
        places=entry.act.places,
        choices=entry.act.choices,
        reuse=entry.act.reuse,
    )


def of_workflow(workflow: Workflow, engine: MeasuredPort, game: int = 0) -> Play:
    """A game of a trace: with its token ids if they are from the engine's tokenizer, else with those of its text."""
    kind = workflow.meta.get("strategy", None)
    lines = tuple(_traced(message, engine, game) for message in workflow.whole.messages)
    return Play(lines, None if kind is None and "strategy" not in workflow.meta else str(kind))


def _traced(message: TraceMessage, engine: MeasuredPort, game: int) -> Line:
    ours = message.tokenizer == engine.fingerprint.get("tokenizer")
    said = traced(message, engine.framing, game, message.tokens if ours else None)
    headed = len(engine.framing.content.encode(message.header or ""))
    placed = message.offsets is not None or message.new_offset is not None
    places = (*(message.offsets or (None,) * len(message.parents)), message.new_offset) if placed else ()
    return Line(said, headed, places, reuse=message.reuse)


def guess_choices(plays: Sequence[Play]) -> tuple[Play, ...]:
    """Infer the choices of slots where a trace does not record them, if the texts of nearly all games are one of a few
    single-word answers, in any spelling: the text with each of these words in turn."""
    said: dict[Slot, list[str | None]] = {}
    for play in plays:
        for slot, line in slots(play).items():
            said.setdefault(slot, []).append(_single(line))
    few = {slot: words for slot, answers in said.items() if (words := _few(answers))}
    return tuple(play._replace(lines=tuple(_choosing(play, few))) for play in plays)


def _single(line: Line) -> str | None:
    """The only word of a short generated text."""
    words = WORD.findall(line.message.text)
    return words[0] if len(words) == 1 and len(line.message.text) <= SHORT and line.message.kind == "decode" else None


def _few(answers: Sequence[str | None]) -> tuple[str, ...]:
    """Two to four different words, each in its most frequent spelling; empty if answers have another form."""
    spelled = Counter(word for word in answers if word is not None)
    words = {word.upper(): word for word, _ in sorted(spelled.items(), key=lambda item: (item[1], item[0]))}
    usual = 4 * spelled.total() >= 3 * len(answers)
    return tuple(words[key] for key in sorted(words)) if usual and 2 <= len(words) <= 4 else ()


def _choosing(play: Play, few: Mapping[Slot, tuple[str, ...]]) -> Iterable[Line]:
    for slot, line in slots(play).items():
        if line.choices or slot not in few or _single(line) is None:
            yield line
        else:
            yield line._replace(choices=tuple(WORD.sub(word, line.message.text) for word in few[slot]))


class Slot(NamedTuple):
    """The place of a message in any game of its kind: the nth with this author, kind, role, audience and header."""

    author: str | None
    kind: str
    role: str
    audience: str
    header: str
    nth: int


def slots(play: Play) -> dict[Slot, Line]:
    """The messages of a game by their slot, in order."""
    found: dict[Slot, Line] = {}
    for line in play.lines:
        m = line.message
        slot = Slot(author=m.author, kind=m.kind, role=m.role, audience=str(m.audience), header=m.header, nth=0)
        while slot in found:
            slot = slot._replace(nth=slot.nth + 1)
        found[slot] = line
    return found


class Pair(NamedTuple):
    """Who reads, and whose secrets may come through."""

    reader: str
    owner: str


def pairs(plays: Sequence[Play]) -> tuple[Pair, ...]:
    """All pairs in which, in some game, the owner wrote a message that the reader may not read, leaking or not."""
    agents = sorted({agent for play in plays for agent in play.agents})
    every = (Pair(reader, owner) for reader, owner in permutations(agents, 2))
    return tuple(pair for pair in every if any(play.hidden(pair.owner, pair.reader) for play in plays))


def compared(play: Play, pair: Pair) -> tuple[Line, ...]:
    """The reader's decodes from the first that the owner's messages reached, directly or through others; all of them if
    none was reached."""
    known, said = play.by_id, play.decodes(pair.reader)
    reached = [any(known[id].message.author == pair.owner for id in play.behind(d.message.parents)) for d in said]
    return said[reached.index(True) :] if True in reached else said


def through_to(play: Play, pair: Pair) -> frozenset[str]:
    """The owner's secrets that reach, through reused encodings, what the reader reads."""
    return reaching(play, pair.reader, (line.message.id for line in play.hidden(pair.owner, pair.reader)))


def reaching(play: Play, reader: str, messages: Iterable[str]) -> frozenset[str]:
    """Those of the messages that reach, through parents, what a reader reads."""
    return play.behind(id for line in play.decodes(reader) for id in line.message.parents).intersection(messages)
