"""Views: which messages an agent reads at a call, in which order, and at which positions.

A view is what its author wants to read. `granted` turns it into one explicit, frozen list that nothing downstream can
widen. A view sees metadata and never text: the schedule is public, so it must not depend on what a model wrote.
`History` is a snapshot of the messages that are out, without copies. `absolute_positions` turns the places that a view
requests into positions. Independent of encodings and engines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Reversible, Sequence
from heapq import merge
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, overload

from agentcho.errors import AudienceError, RequestError, shown
from agentcho.message import Audience, Metadata, Role, audience, is_default_prompt
from agentcho.protocol.call_validation import checked_role
from agentcho.protocol.value_checks import checked_bool, checked_int, checked_list, checked_position, type_name


class MessageLog:
    """Messages in order. None is ever removed or changed.

    The places of each reader's messages are known, so that reading a few of many messages does not look at the others.
    """

    def __init__(self, messages: Iterable[Metadata] = ()) -> None:
        self.messages: list[Metadata] = []
        self.places: dict[str, int] = {}
        self._to_all: list[int] = []
        self._to_some: dict[str, list[int]] = {}
        for message in messages:
            self.add(message)

    def add(self, message: Metadata) -> None:
        """Append a message."""
        self.places[message.id] = place = len(self.messages)
        self.messages.append(message)
        if message.audience.members is None:
            self._to_all.append(place)
        else:
            for reader in message.audience.members:
                self._to_some.setdefault(reader, []).append(place)

    def backwards(self, reader: str, length: int) -> Iterator[Metadata]:
        """Yield those of the first `length` messages that a reader may read, the last one first."""
        places = (self._to_all, self._to_some.get(reader, []))
        down = (map(of.__getitem__, range(bisect_left(of, length) - 1, -1, -1)) for of in places)
        return map(self.messages.__getitem__, merge(*down, reverse=True))


class History(Sequence[Metadata]):
    """A snapshot of logs, each up to its length when this was made. It equals every sequence of the same messages."""

    def __init__(self, *logs: MessageLog, after: History | None = None) -> None:
        before: tuple[tuple[MessageLog, int], ...] = () if after is None else after._parts
        self._parts: tuple[tuple[MessageLog, int], ...] = (*before, *((log, len(log.messages)) for log in logs))

    @property
    def logs(self) -> tuple[MessageLog, ...]:
        """The logs as they are now."""
        return tuple(log for log, _ in self._parts)

    def find(self, id: str) -> Metadata | None:
        """Return the message with this id, or None if it is not out."""
        for log, length in self._parts:
            place = log.places.get(id)
            if place is not None and place < length:
                return log.messages[place]
        return None

    def backwards(self, reader: str) -> Iterator[Metadata]:
        """Yield the messages that a reader may read, the last one first."""
        return chain.from_iterable(log.backwards(reader, length) for log, length in reversed(self._parts))

    def open_to(self, audience: Audience) -> Iterator[Metadata]:
        """Yield the messages that all of an audience may read, in order."""
        return (message for message in History.__iter__(self) if message.audience.covers(audience))

    def __len__(self) -> int:
        return sum(length for _, length in self._parts)

    def __iter__(self) -> Iterator[Metadata]:
        return chain.from_iterable(islice(log.messages, length) for log, length in self._parts)

    @overload
    def __getitem__(self, place: int) -> Metadata: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Metadata, ...]: ...
    def __getitem__(self, place: int | slice) -> Metadata | tuple[Metadata, ...]:
        if isinstance(place, slice):
            return tuple(self)[place]
        left = range(len(self))[place]
        for log, length in self._parts:
            if left < length:
                return log.messages[left]
            left -= length
        raise IndexError(place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<History {', '.join(message.id for message in self)}>"


class After(NamedTuple):
    """A place in a view: right after the last token of another message of the same view.

    Args:
        id: Id of the other message, which must come earlier in the view.
        plus: Positions to add, in tokens. Above 0 leaves a gap, below 0 overlaps.
    """

    id: str
    plus: int = 0


Place = int | After | Literal["rightmost"] | None
"""A position, or how it is found: `After` a message; "rightmost", after the rightmost token of everything before it in
the view, where messages that were placed side by side end; None, right after the one before."""


class Read(NamedTuple):
    """One message of a view, and the position of its first token.

    Args:
        id: Id of the message.
        at: An absolute position in tokens; `After` another message of the view; "rightmost", after the rightmost token
            of everything before it in the view; or None, right after the message before it.
        public: Whether to read the message through the encoding that other readers use, even if its author reads it.
            For callers that cannot prove that they are the author.
    """

    id: str
    at: Place = None
    public: bool = False


ReuseFor = Literal["judge"]
"""The purpose of a call, if it decides which tokens of others' messages are computed again: see `View.reuse`."""


class View(NamedTuple):
    """What one call reads, in prompt order.

    Args:
        reads: The messages.
        new_at: Position of the new message, as `Read.at` gives it. None means right after the last one.
        reuse: "judge" for a call that chooses between what it reads. In choreographed mode such a call encodes the
            messages of others again instead of reusing them, whatever `repair` says, because choices are where reuse
            shows first (arXiv 2601.08343). It changes nothing in baseline mode, with reuse in place, and for models
            behind APIs. None means as the run says.
    """

    reads: tuple[Read, ...]
    new_at: Place = None
    reuse: ReuseFor | None = None

    @classmethod
    def of(cls, messages: Iterable[Metadata | str | None], new_at: Place = None, reuse: ReuseFor | None = None) -> View:
        """Return a view of messages in the given order, each right after the one before.

        Args:
            messages: Messages by id or metadata. None is skipped, such as the `brief` of an agent without a system
                prompt.
            new_at: As for `View`.
            reuse: As for `View`.

        Returns:
            The view.

        Example::

            def view(self, readable):
                return View.of(message for message in readable if message.role != "user")
        """
        return cls(tuple(Read(m if isinstance(m, str) else m.id) for m in messages if m is not None), new_at, reuse)

    @classmethod
    def last(cls, messages: Iterable[Metadata], count: int, *, keep: Iterable[str | None] = ()) -> View:
        """Return a view of the last messages, after some that are always kept.

        Args:
            messages: Messages in order.
            count: How many to take from the end, from 0.
            keep: Ids that come first and do not count, such as `self.brief`. None is skipped.

        Returns:
            The view.

        Raises:
            RequestError: `count` is not a whole number from 0.
        """
        kept, many = [id for id in keep if id is not None], checked_int(count, "the number of messages", 0)
        backwards = reversed(messages if isinstance(messages, Reversible) else list(messages))
        last = list(islice((m for m in backwards if m.id not in kept), many))
        return cls.of([*kept, *reversed(last)])

    @classmethod
    def of_roles(cls, messages: Iterable[Metadata], *roles: Role) -> View:
        """Return a view of the messages that have one of these roles.

        Agents say messages of role "assistant". Rules and questions have role "user".

        Args:
            messages: Messages in order.
            *roles: "system", "user", "assistant" or "tool".

        Returns:
            The view.

        Raises:
            RequestError: There is no such role.
        """
        wanted = {checked_role(role) for role in roles}
        return cls.of(m for m in messages if m.role in wanted)

    @classmethod
    def open_to(cls, messages: Iterable[Metadata], to: Audience | Iterable[str] | str) -> View:
        """Return a view of the messages that all of an audience may read.

        The agent's own messages are read as that audience reads them. A rule for words (`words=` of `RunConfig`) never
        refuses what is said to the audience over this view, unless it is said with tools whose list is private.

        Args:
            messages: Messages in order.
            to: The audience: "everyone", a name, several names, or an `Audience`.

        Returns:
            The view.

        Raises:
            AudienceError: `to` has a word that cannot name an agent.
        """
        whom = audience(to)
        listed = messages if isinstance(messages, History) else History(MessageLog(messages))
        return cls(tuple(Read(message.id, public=True) for message in listed.open_to(whom)))


class ToolUse(NamedTuple):
    """The tool that gave a result, and its declarations: see `games.tools.tool.Declared`.

    `client` is the connection to a server of tools that the call went over. Agents that share one can tell each other
    anything through it.
    """

    name: str
    audience: Audience
    effect: bool
    trusted: bool
    client: str | None = None


class Charge(NamedTuple):
    """What words can tell about what their author had read and not all of their readers may read.

    Attributes:
        by: What bounds it: one of several "choices", JSON of a "schema" with that many values, a "release" by the
            code's own decision, or "words" that could be anything.
        bits: At most this many bits to each of the readers in `owed`. None for no bound.
        owed: For an owner of such secrets, the readers who may learn of them.
        schema: The JSON schema. None for the others.
    """

    by: Literal["choices", "schema", "release", "words"]
    bits: float | None = None
    owed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    schema: dict[str, Any] | None = None


class Move(NamedTuple):
    """A place in a simultaneous round.

    Attributes:
        round: Number of the round in its game.
        number: Which of its moves, from 0, in the order in which they come out.
        race: Whether the round was over when its first move had ended.
    """

    round: int
    number: int
    race: bool = False


class Act(NamedTuple):
    """How a message was requested.

    Attributes:
        where: The line of the scenario's or agent's code, "file:number".
        places: Requested positions, one per parent and then the message's own. Empty if none were requested.
        tainted_by: Messages that the code had looked at, and that not all readers of this one may read.
        choices: The texts that a constrained decode could become.
        call: For the result of a tool, the message that called it.
        use: For the result of a tool, the tool.
        release: For the result of a tool, whether the call could run whatever its arguments were made from. For another
            message of known text, whether the rules of the game tell it, whatever the code had looked at.
        released: The message whose words this one repeats before another audience.
        charge: What it can tell, in runs with a rule for words.
        shown: Messages that the person who writes this one was shown before, beside those that it reads, because a
            person does not forget.
        reuse: As for `View`.
        after: Messages (ids) and rounds (numbers) whose end the code had awaited, the nearest only. None if it is
            unknown.
        named: Whether the code also named the messages that this one reads.
        moves: The moves of rounds in which it was made, the outermost first. It came out when the outermost had closed.
        thought: The message of what its author thought right before.
        unproved: Those in `tainted_by` of which the code had only a value that a verb returned, and nothing shows that
            it used the value.
        contained: Those in `tainted_by` of which the code had only a value that a verb returned, and what the code
            wrote in this message contains the value.
        unaddressed: Whether it is a choice or an answer for which neither the call nor the agent gave an audience, so
            that it is private.
    """

    where: str | None = None
    places: tuple[Place, ...] = ()
    tainted_by: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    call: str | None = None
    use: ToolUse | None = None
    release: bool = False
    released: str | None = None
    charge: Charge | None = None
    shown: tuple[str, ...] = ()
    reuse: ReuseFor | None = None
    after: tuple[str | int, ...] | None = None
    named: bool = False
    moves: tuple[Move, ...] = ()
    thought: str | None = None
    unproved: tuple[str, ...] = ()
    contained: tuple[str, ...] = ()
    unaddressed: bool = False

    @property
    def by_rules(self) -> bool:
        """Whether the rules of the game tell it, as the code says."""
        return self.release and self.call is None and self.use is None


def shown_to(agent: str, message: Metadata, find: Callable[[str], Metadata | None]) -> Metadata:
    """Return what a view sees of a message that it may read.

    Of a message of another author it sees only those parents that `find` finds and that the message's whole audience
    may read. No view can then depend on what else the author had read, nor on whether the author has a system prompt:
    see `is_default_prompt`.
    """
    if message.author == agent:
        return message
    parents = ((parent, find(parent)) for parent in message.parents if not is_default_prompt(parent))
    public = (id for id, known in parents if known is not None and known.audience.covers(message.audience))
    return message._replace(parents=tuple(public))


class ReadSet(NamedTuple):
    """What a call reads, explicit and final.

    Attributes:
        caller: The agent that reads. None for the scenario.
        reads: The messages.
        new_at: The place of the new message.
        direct: Ids in `reads` whose audience lacks the caller: a direct leak, to record or to refuse.
        reuse: As for `View`.
        named: Whether the call named its messages itself, instead of choosing among those that were out.
        awaited: Those of its messages that the call named itself.
    """

    caller: str | None
    reads: tuple[Read, ...]
    new_at: Place
    direct: tuple[str, ...]
    reuse: ReuseFor | None = None
    named: bool = False
    awaited: tuple[str, ...] = ()


def granted(caller: str, view: View, sees: Callable[[Metadata], bool], said: History) -> ReadSet:
    """Return what a call reads, from what its view names.

    A message outside the caller's audience stays in, marked as `direct`. A message that the caller may read but does
    not see, and an id that has not been said, raise `AudienceError`. Neither tells anything about hidden messages.
    `sees` is asked only about messages that the view names: an agent does not see the system prompts of others,
    although nothing in them is secret. Ids become plain strings first, so that what is checked is what is read.
    """

    def theirs() -> Iterator[str]:
        return (m.id for m in said if m.audience.includes(caller) and sees(m))

    view = _plain(view)
    direct = []
    for read in view.reads:
        known = said.find(read.id)
        if known is None:
            raise AudienceError(f"{caller}'s view names {read.id!r}, which has not been said", theirs(), "it may read")
        if not known.audience.includes(caller):
            direct.append(read.id)
        elif not sees(known):
            why = "which is the system prompt of other agents"
            raise AudienceError(f"{caller}'s view names {read.id!r}, {why}", theirs(), "it may read")
    if reads := view.reads:
        reads = (reads[0]._replace(at=_first(reads[0].at)), *reads[1:])
    return ReadSet(
        caller=caller,
        reads=reads,
        new_at=view.new_at if reads else _first(view.new_at),
        direct=tuple(direct),
        reuse=view.reuse,
    )


def _plain(view: object) -> View:
    """Return a copy of a view, read once, of plain strings and places. Raises `RequestError` if it is not a view."""
    if not isinstance(view, View):
        raise RequestError(f"the view of a call is {type_name(view)}; give a View, or a function that returns one")
    reads = checked_list(view.reads, "the reads of a view")
    for read in reads:
        if not isinstance(read, Read):
            raise RequestError(
                f"one of the reads of a view is {type_name(read)}; give a Read, or build the view with View.of"
            )
    plain = (Read(_exact(read.id), _placed(read.at), checked_bool(read.public, "public of a Read")) for read in reads)
    if view.reuse not in (None, "judge"):
        raise RequestError(f'reuse of a view is {shown(view.reuse)}; give "judge", or leave it out')
    return View(tuple(plain), _placed(view.new_at), None if view.reuse is None else "judge")


def _exact(id: str) -> str:
    """Return an id as a plain `str`. A value that is not text names nothing that could have been said."""
    return str.__str__(id) if isinstance(id, str) else repr(id)


def _placed(place: Place) -> Place:
    """Return a place. Raises `RequestError` for another value."""
    if isinstance(place, After):
        return After(_exact(place.id), checked_int(place.plus, "plus"))
    if place is None or (isinstance(place, str) and place == "rightmost"):
        return place
    return checked_position(place)


def _first(place: Place) -> Place:
    """Return the place of a message that nothing precedes, where "rightmost" has no meaning."""
    return None if place == "rightmost" else place


def places_of(reads: ReadSet) -> tuple[Place, ...]:
    """Return the requested places, one per message and then the new one's."""
    return (*(read.at for read in reads.reads), reads.new_at)


def absolute_positions(reads: ReadSet, lengths: Sequence[int | None], first: int) -> list[int | None]:
    """Return the positions of all messages and then of the new one, as far as `lengths` are known.

    `lengths` are in tokens, None if unknown. A position is None if it cannot be known, which means right after the
    message before. `first` is the default position of the first message. Raises `RequestError` if a message is placed
    after one that does not precede it.
    """
    ends: dict[str, int | None] = {}
    end: int | None = first
    positions = list[int | None]()
    for read, length in zip(reads.reads, lengths, strict=True):
        start = _position(read.at, end, ends)
        positions.append(start)
        end = ends[read.id] = None if start is None or length is None else start + length
    return [*positions, _position(reads.new_at, end, ends)]


def _position(place: Place, end: int | None, ends: dict[str, int | None]) -> int | None:
    match place:
        case None:
            return end
        case int():
            return place
        case "rightmost":
            known = [each for each in ends.values() if each is not None]
            return end if not ends else max(known) if len(known) == len(ends) else None
        case After(id, plus):
            counted = ends.get(id)
            if counted is None:
                raise RequestError.offsets(
                    f"a message is placed after {id!r}, which does not come before it in the view"
                )
            return counted + plus
