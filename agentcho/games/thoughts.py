"""What a model thinks before it says something: a message of its own in the game, which its author alone may read, or
all who may read what is said.

The two are told apart as they come. The thought is on record as what the model generated, the answer in it; what is
said is a message of those words without the thought, framed as if there had been none. No view shows the thought. Who
may read it reads it in the place of what was said, if the template leaves the thoughts of earlier answers where they
were, or if they are shared. Does not know: what marks a thought, who listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from agentcho.choreography.handle import Piece, Result, Unfinished
from agentcho.events import Began, FirstToken, Sink, Token
from agentcho.flow.draft import Draft
from agentcho.flow.views import After, Place, Read, ReadSet
from agentcho.games.journal import Journal, Making
from agentcho.games.models import GameModel
from agentcho.message import Audience, Words
from agentcho.records.lines import Ending
from agentcho.records.transcript import Usage

NOTHING = Usage(0, 0, 0.0, 0.0)


def thought_of(id: str) -> str:
    """The id of the thought before a message."""
    return f"{id}.thought"


@dataclass
class Thoughts:
    """Those of one game. `drafts` are its messages by id. `add` lets there be a message, which no view is to show."""

    drafts: dict[str, Draft]
    add: Callable[[Draft], None]

    def begin(self, draft: Draft, shared: bool = False) -> Draft:
        """The message of the thought before that of `draft`, from its first token on."""
        id, author = thought_of(draft.metadata.id), draft.metadata.author
        to = draft.metadata.audience if shared else Audience(frozenset({author} if author else ()))
        metadata = draft.metadata._replace(id=id, audience=to)
        thought = replace(draft, metadata=metadata, text="", act=draft.act._replace(choices=()))
        self.add(thought)
        draft.act = draft.act._replace(thought=id)
        return thought

    def with_thoughts(self, reads: ReadSet, model: GameModel) -> ReadSet:
        """A read set that has thoughts where its caller reads them, on its model."""
        shown = {read.id: self._shown(reads.caller, read, model) for read in reads.reads}
        if all(len(ids) == 1 and ids[0] == id for id, ids in shown.items()):
            return reads
        found = [each for read in reads.reads for each in _in_place(read, shown)]
        direct = tuple(id for read in reads.direct for id in shown.get(read, (read,)))
        return reads._replace(reads=tuple(found), new_at=_placed(reads.new_at, shown), direct=direct)

    def _shown(self, caller: str | None, read: Read, model: GameModel) -> tuple[str, ...]:
        """What a message is read as: itself, its thought with it inside, or, where that is text alone, both."""
        draft = self.drafts[read.id]
        thought = self.drafts.get(draft.act.thought or "")
        if thought is None or thought.message is None or caller is None:
            return (read.id,)
        if not thought.metadata.audience.includes(caller):
            return (read.id,)
        if caller == draft.metadata.author and not read.public:
            if thought.framed is None or not self._keeps(model):
                return (read.id,)
        elif not thought.metadata.audience.covers(draft.metadata.audience):
            return (read.id,)
        whole = model.encodes and thought.framed is not None and model.resolver.spells(thought)
        return (thought.metadata.id,) if whole else (thought.metadata.id, read.id)

    def _keeps(self, model: GameModel) -> bool:
        """Whether its template leaves the thoughts of earlier answers where they were."""
        thinking = model.frames.framing.thinking
        return thinking is not None and thinking.kept


def _in_place(read: Read, shown: dict[str, tuple[str, ...]]) -> Iterator[Read]:
    """What is read in the place of a message, the first of it where that was to stand."""
    for place, id in enumerate(shown[read.id]):
        yield read._replace(id=id, at=_placed(read.at, shown) if place == 0 else None)


def _placed(place: Place, shown: dict[str, tuple[str, ...]]) -> Place:
    return After(shown.get(place.id, (place.id,))[-1], place.plus) if isinstance(place, After) else place


class Parting:
    """One message as it comes, and the thought before it, if there is one: to the record, each under its own id.

    Args:
        game: The number of the game.
        draft: The message.
        making: What its request makes.
        begin: Makes the message of the thought.
        journal: Of the game.
        sink: Hears events.
        begun: Called with the id of each message whose first token has come.
    """

    def __init__(
        self,
        game: int,
        draft: Draft,
        making: Making,
        *,
        begin: Callable[[Draft], Draft],
        journal: Journal,
        sink: Sink,
        begun: Callable[[str], object] = id,
    ) -> None:
        self._game = game
        self.draft = draft
        self._making = making
        self._begin = begin
        self._journal = journal
        self._sink = sink
        self._begun = begun
        self._waiting: list[Piece] = []
        self.thought: Draft | None = None
        self._answer: str | None = None

    def piece(self, said: Piece) -> None:
        """Take in a piece. What may be the mark before a thought waits until that is known."""
        self._waiting.append(said)
        if said.thought is None:
            return
        if said.thought and self.thought is None:
            self.thought = self._begin(self.draft)
            metadata = self.thought.metadata
            author, audience = metadata.author or "", metadata.audience
            self._sink(
                Began(
                    game=self._game,
                    id=metadata.id,
                    author=author,
                    kind="decode",
                    audience=audience,
                    header="",
                    thought=True,
                )
            )
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._tell(each)

    def _tell(self, said: Piece) -> None:
        own = self.thought or self.draft
        if said.opening is not None:
            self._begun(own.metadata.id)
            opening = said.opening if self.thought is None else _bare(said.opening, said.opening.own.words.text)
            self._sink(FirstToken(self._journal.first_token(self._making, own, opening)))
        behind = self.thought is not None and not said.thought
        self._sink(Token(self._game, own.metadata.id, "" if behind else said.text, said.token))
        if behind and said.text:
            self._speak(said.text)

    def _speak(self, text: str) -> None:
        """Words after a thought: they are a message of their own, and their tokens the thought's."""
        id = self.draft.metadata.id
        if self._answer is None:
            self._answer = ""
            self._begun(id)
            self._sink(FirstToken(self._journal.text_begun(self.draft, self._words(None), NOTHING)))
        self._answer += text
        self._sink(Token(self._game, id, text))

    def done(self, result: Result) -> None:
        """The message is whole."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._tell(each)
        if self.thought is None:
            self._journal.enter(self._making, self.draft, result)
            return
        words = result.made[len(self._making.missing)].words.said
        assert words is not None
        self._making.on.enter_thought(result.made[len(self._making.missing)].id, self.thought.metadata.id)
        self._journal.enter(self._making, self.thought, result)
        self._journal.enter_answer(self.draft, words)

    def dropped(self, said: Unfinished) -> None:
        """The message was given up; what was said of it is all that there is."""
        if self.thought is None:
            self._journal.enter_dropped(self._making, self.draft, said)
            return
        self._journal.enter_dropped(self._making, self.thought, _bare(said, said.own.words.text))
        ended: Ending = said.ended or "failed"
        self._journal.enter_text(self.draft, self._words(None), NOTHING, ended)

    def _words(self, stopped: str | None) -> Words:
        return Words(
            header=self.draft.text, text=self._answer or "", tokens=(), content=(0, 0), sampled=(0, 0), stopped=stopped
        )


def _bare(said: Unfinished, text: str) -> Unfinished:
    """What was generated so far, as a thought: without the header, which comes behind it. Whether it has ended does not
    matter of what nobody reads."""
    words = said.own.words
    words = words._replace(header="", text=text, thought=words.content)
    return said._replace(own=said.own._replace(words=words))
