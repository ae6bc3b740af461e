"""The messages of one game: what each one reads and who may read it, and messages of known text.

A view is asked once per message, for metadata, and its answer is a read set that nothing widens. Independent of agents'
verbs and of sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from typing import Any

from agentcho.agent import Agent, Names, ViewLike
from agentcho.config import ReusePolicy
from agentcho.errors import AudienceError, ContextOverflow, LeakageError, LimitReached, RequestError, StoreFull
from agentcho.games.play.game_models import GameModel, KnownTextMessage
from agentcho.games.play.journal import Journal, RecordedLines
from agentcho.games.play.limits import GAME
from agentcho.games.play.roster import SCENARIO, Roster
from agentcho.games.play.rounds import Rounds
from agentcho.message import Audience, Kind, Message, Metadata, Words, audience, exact
from agentcho.protocol import value_checks
from agentcho.protocol.call import FramingPort
from agentcho.protocol.call_site import made_at
from agentcho.protocol.call_validation import checked_role
from agentcho.provenance.drafts import Draft
from agentcho.provenance.labels import LeakPaths
from agentcho.provenance.readable_messages import ReadableMessages
from agentcho.provenance.returned_values import CodeText
from agentcho.provenance.tool_sinks import ToolSinks
from agentcho.provenance.views import Act, After, History, Place, Read, ReadSet, ToolUse, View, granted, places_of


class Messages:
    """The messages of one game. `drafts` has every message by id, whether or not it is out."""

    def __init__(
        self,
        journal: Journal,
        recorded: RecordedLines,
        roster: Roster,
        rounds: Rounds,
        reuse: ReusePolicy,
    ) -> None:
        self._journal, self.recorded, self.roster = journal, recorded, roster
        self.rounds, self.taint = rounds, rounds.taint
        self.drafts = journal.resolver.drafts
        self._leaks = LeakPaths(reuse, self.drafts)
        self._sinks = ToolSinks(self.drafts, reuse.leakage)
        self._numbers: dict[str, int] = {}
        self.thoughts = Thoughts(self.drafts, self._add_hidden)
        self.unanswered: dict[str, list[KnownTextMessage]] = {}
        """By agent, results that say of a call of a tool that it was cancelled. Each is said before the agent reads the
        call."""

    @property
    def said(self) -> History:
        """The metadata of all messages that the running task can see, in order."""
        return self.rounds.visible()

    def message(self, id: str) -> Message:
        """Return a message once it is complete. Looking at its text is noted. Raises `KeyError` if there is none."""
        message = self.drafts[id].message
        if message is None:
            raise KeyError(id)
        return self.taint.track(message)

    def looked_up(self, id: str) -> Message:
        """Return a message for the playing code, which may not know that it exists. The question is noted."""
        self.probed(id)
        return self.message(id)

    def probed(self, id: str) -> None:
        """Note that the playing code asks for a message by its id."""
        draft = self.drafts.get(id)
        there = None if draft is None or draft.message is None else draft.metadata
        self.taint.probed(id, there, self._ended())

    def asked_for_thought(self, id: str) -> None:
        """Note that the playing code asks whether a message has a thought: it depends on all that its author has
        read."""
        thought = self.drafts[id].act.thought
        behind = self.drafts[id].metadata.parents if thought is None else (thought,)
        self.taint.notice(self.drafts[each].metadata for each in behind)

    def failed(self, author: str | None, error: Exception) -> None:
        """Note what the code learns from a failed verb of an agent: something about the messages that it may read.

        A limit of the whole game depends on all messages. An unknown name reveals what does not exist, and a refused
        read reveals what does.
        """
        whole = isinstance(error, AudienceError) or (isinstance(error, LimitReached) and error.who == GAME)
        named = error.path if isinstance(error, LeakageError) else ()
        behind = (
            each
            for each in self._ended()
            if whole or each.id in named or (author is not None and each.audience.includes(author))
        )
        self.taint.failed(error, behind)

    def cancelled(self, author: str) -> None:
        """Note that a verb of an agent was cancelled. The code learns that the agent's message takes longer."""
        drafts = (draft for draft in self.drafts.values() if draft.message is None)
        self.taint.notice(draft.metadata for draft in drafts if draft.metadata.author == author)

    def raced(self) -> None:
        """Note that the code asks whether the order of messages depended on their durations."""
        self.taint.notice(self._ended())

    def _ended(self) -> Iterator[Metadata]:
        """Return all complete messages, out or not."""
        return (draft.metadata for draft in self.drafts.values() if draft.message is not None)

    def own(self, author: str, message: object) -> Draft:
        """Return a finished message of an agent's own for a release, by its id, so that no code looks at its text.

        Raises `RequestError` if `message` is not a message, and `AudienceError` if it is not the author's.
        """
        if not isinstance(message, Message):
            raise RequestError(
                f"{author} cannot release {value_checks.type_name(message)}; give one of the agent's own messages"
            )
        known = self.drafts.get(id := exact(message.id))
        if known is None or known.message is None or known.metadata.author != author:
            raise AudienceError(
                f"{author} cannot release {id!r}, which is not a finished message of its own; give one of its own, or "
                "let its author release it"
            )
        return known

    def check_call(self, id: str, use: ToolUse, release: bool = False) -> None:
        """Check a tool call, message `id`, that is about to run. Raises `LeakageError` if it must not: see
        `ToolSinks.check`. The thought of the call itself is no source: it depends only on what its author had read."""
        draft = self.drafts[id]
        cone = self._journal.cone(draft)
        self._sinks.check(id, cone and cone - {draft.act.thought}, use, release)

    # -- messages before they are said ---------------------------------------------------------------------

    def audience(self, author: str, to: Names) -> Audience:
        """Return who may read what an agent says to `to`: these, and the agent itself."""
        given = audience(to, self.roster.agents)
        return given if given.members is None else Audience(given.members | {author})

    def reads(self, author: str, agent: Agent, wish: ViewLike, model: GameModel) -> ReadSet:
        """Ask the view once, with metadata alone, and return what the call reads, with the thoughts that its author
        reads.

        The messages that the agent may read are found only as far back as the view looks. Raises `LeakageError` if the
        agent must not read one of the messages.
        """
        self._answer(author)
        said = self.said
        if wish is not None and not isinstance(wish, View) and not callable(wish):
            raise RequestError(
                f"the view of a call is {value_checks.type_name(wish)}; give a View, or a function that returns one"
            )
        sees = partial(self.roster.sees, author)
        view = wish if isinstance(wish, View) else (wish or agent.view)(ReadableMessages(author, said, sees))
        reads = granted(author, view, lambda m: sees(m.id), said)
        if isinstance(wish, View):
            for read in reads.reads:
                self.taint.named(self.drafts[read.id].metadata)
        if path := self._leaks.leak_path(reads):
            raise LeakageError(author, path)
        awaited = self.taint.awaited(read.id for read in reads.reads) if isinstance(wish, View) else ()
        named = 0 < len(awaited) == len(reads.reads)
        return self.thoughts.with_thoughts(reads._replace(named=named, awaited=awaited), model)

    def _answer(self, author: str) -> None:
        """Publish the results of those cancelled calls of the agent that the running task can see."""
        if left := self.unanswered.pop(author, []):
            seen = {message.id for message in self.said}
            for told in left:
                if told.called[0] in seen:
                    self.put(told)
                else:
                    self.unanswered.setdefault(author, []).append(told)

    def readable(self, author: str) -> list[Metadata]:
        """Return everything that an agent may read at this point, for a person who plays it."""
        return [*ReadableMessages(author, self.said, partial(self.roster.sees, author))]

    def metadata(
        self, author: str, kind: Kind, role: Any, to: Audience, reads: ReadSet, id: str | None = None
    ) -> Metadata:
        """Return the metadata of the author's next message, or of one whose id is known."""
        who, parents = None if author == SCENARIO else author, tuple(read.id for read in reads.reads)
        return Metadata(self._next(author) if id is None else id, kind, role, who, to, parents)

    def reserve(self, author: str) -> str:
        """Return the id of the author's next message, which no other message gets."""
        id = self._next(author)
        self._numbers[author] = self._numbers.get(author, 0) + 1
        return id

    def _next(self, author: str) -> str:
        return f"{author}.{self._numbers.get(author, 0)}"

    def unnumbered(self, author: str, word: str) -> str:
        """Return the id of a message that is not numbered with the author's others."""
        ids = chain((f"{author}.{word}",), (f"{author}.{word}-{number}" for number in count(2)))
        return next(id for id in ids if id not in self.drafts)

    def provenance(self, to: Audience, reads: ReadSet, written: CodeText) -> Act:
        """Return how a message came about: the line that requested it, its positions, and what it may depend on.

        `written` is what the playing code wrote of it.
        """
        looked_at = {id: self.drafts[id].metadata.audience for id in self.taint.sources}
        places = places_of(reads)
        asked = places if any(place is not None for place in places) else ()
        tainted, order = self.taint.tainted_by(to, looked_at), self.rounds.order()
        if reads.awaited and not reads.named and order["after"] is not None:
            order["after"] = tuple(dict.fromkeys((*order["after"], *reads.awaited)))
        act = Act(made_at(), asked, tainted, reuse=reads.reuse, named=reads.named, **order)
        unproved, contained = self.taint.returned(tainted, written)
        return act._replace(unproved=unproved, contained=contained)

    def add(self, draft: Draft) -> None:
        """Add a message. Raises `ResumeMismatch` if a different one is recorded under its id."""
        author = draft.metadata.author or SCENARIO
        self._numbers[author] = self._numbers.get(author, 0) + (draft.metadata.id == self._next(author))
        self.drafts[draft.metadata.id] = draft
        self.recorded.check(draft)

    def _add_hidden(self, draft: Draft) -> None:
        self.roster.hide(draft.metadata.id)
        self.add(draft)

    # -- messages of known text --------------------------------------------------------------------------

    def put(self, told: KnownTextMessage) -> str:
        """Publish a message of known text. Its encoding is made for the first call that reads it, or earlier.

        A message that could not be encoded over what its author read is refused here, with an error for its author
        alone and nothing said.
        """
        draft, words = self.known(told)
        call, use, release = told.called
        act = self.provenance(told.to, told.reads, told.code_text)
        act = act._replace(call=call, use=use, release=release or told.by_rules)
        draft.act = act._replace(released=told.released, charge=told.charge)
        draft.begun = told.begun
        self.add(draft)
        self._journal.enter_known(draft, words)
        self.rounds.publish(draft.metadata, self.rounds.branch)
        self.rounds.precedence.said(draft.metadata.id, draft.act.after)
        if not told.reads.reads:
            model, make = told.model, partial(self._journal.prefetch, draft.metadata.id, told.model.resolver)
            model.choreographer.offer(self._journal, make)
        return draft.metadata.id

    async def encode(self, id: str, model: GameModel) -> None:
        """Encode a message of known text that is out, as the first call that reads it would.

        Nothing is done if each caller encodes the message in its own prompt. If there is no room now, the call that
        reads it tries again, and its caller gets the error.
        """
        exact = model.resolver.reuse.deterministic
        request = self._journal.prefetch(id, model.resolver, exact) if model.encodes else None
        if request is not None:
            with suppress(ContextOverflow, StoreFull):
                await model.choreographer.run(request)
            model.choreographer.release(self._journal.take_outdated())

    def known(self, told: KnownTextMessage) -> tuple[Draft, Words]:
        """Return the draft and the words of a message of known text. Raises an error if it cannot be said."""
        author, to, reads, model = told.author, told.to, told.reads, told.model
        text, known = value_checks.checked_text(told.text, "the text"), checked_role(told.role)
        metadata = self.metadata(author, "prefill", known, to, reads, told.id)
        name = author if known == "assistant" else None
        words = model.frames.frame(known, name, text, told.ids)
        if known == "system" and not told.first:
            words = _behind_others(words, model.frames.framing)
        draft = model.draft(metadata, text, name, reads)
        draft.said = told.said
        end = model.resolver.end_position(draft, len(words.tokens))
        if end > model.frames.context:
            raise ContextOverflow(end, model.frames.context, model.choreographer.name)
        return draft, words


def _behind_others(words: Words, framing: FramingPort) -> Words:
    """Return a system message without the preamble that only the first one has."""
    (start, stop), later, first = words.content, framing.later, framing.opening("system", None)
    if later is None or words.tokens[:start] != first:
        return words
    moved = len(later) - start
    return words._replace(tokens=later + words.tokens[start:], content=(start + moved, stop + moved))


def thought_of(id: str) -> str:
    """Return the id of the thought before a message."""
    return f"{id}.thought"


@dataclass
class Thoughts:
    """The thoughts of models before they speak, as messages that no view shows.

    A thought may be read by its author only, or by everybody who may read the message. A reader reads it in place of
    the message if the template keeps the thoughts of earlier answers, or if it is shared.

    Attributes:
        drafts: The messages of one game by id.
        hide: Called with each thought as soon as it is in `drafts`.
    """

    drafts: dict[str, Draft]
    hide: Callable[[Draft], None] | None = None

    def begin(self, draft: Draft, shared: bool = False) -> Draft:
        """Return the message of the thought before that of `draft`, from its first token on.

        A thought is no answer. One that is not shared is read by nobody before whom the code could act.
        """
        id, author = thought_of(draft.metadata.id), draft.metadata.author
        to = draft.metadata.audience if shared else Audience(frozenset({author} if author else ()))
        metadata = draft.metadata._replace(id=id, audience=to)
        act = draft.act._replace(choices=(), unaddressed=False)
        act = act if shared else act._replace(tainted_by=(), unproved=(), contained=())
        thought = replace(draft, metadata=metadata, text="", act=act)
        self.drafts[id] = thought
        if self.hide is not None:
            self.hide(thought)
        draft.act = draft.act._replace(thought=id)
        return thought

    def with_thoughts(self, reads: ReadSet, model: GameModel) -> ReadSet:
        """Return a read set with the thoughts that its caller reads on its model."""
        shown = {read.id: self._shown(reads.caller, read, model) for read in reads.reads}
        if all(len(ids) == 1 and ids[0] == id for id, ids in shown.items()):
            return reads
        found = [each for read in reads.reads for each in _in_place(read, shown)]
        direct = tuple(id for read in reads.direct for id in shown.get(read, (read,)))
        return reads._replace(reads=tuple(found), new_at=_placed(reads.new_at, shown), direct=direct)

    def _shown(self, caller: str | None, read: Read, model: GameModel) -> tuple[str, ...]:
        """Return what is read for a message: itself, its thought, which includes it, or both if the thought is text."""
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
        """Return whether a model's template keeps the thoughts of earlier answers."""
        thinking = model.frames.framing.thinking
        return thinking is not None and thinking.kept


def _in_place(read: Read, shown: dict[str, tuple[str, ...]]) -> Iterator[Read]:
    """Yield what is read in place of a message, the first at the place of the message."""
    for place, id in enumerate(shown[read.id]):
        yield read._replace(id=id, at=_placed(read.at, shown) if place == 0 else None)


def _placed(place: Place, shown: dict[str, tuple[str, ...]]) -> Place:
    return After(shown.get(place.id, (place.id,))[-1], place.plus) if isinstance(place, After) else place
