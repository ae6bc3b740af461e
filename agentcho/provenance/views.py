"""Views: which messages an agent reads at a call, in which order, and where they are placed.

A view is the author's wish. `granted` makes of it one explicit, frozen list that nothing downstream can widen. It sees
metadata, never words: the schedule is public, so it must not depend on what a model wrote. `History` is what is out at
one moment, without a copy of any of it; `absolute_positions` turns the places that a view asks for into positions. Does
not know: encodings, engines.
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
    """Messages one after the other: nothing is ever taken out or changed. Where those of each reader stand is known, so
    that who reads few of many does not look at the others."""

    def __init__(self, messages: Iterable[Metadata] = ()) -> None:
        self.messages: list[Metadata] = []
        self.places: dict[str, int] = {}
        self._to_all: list[int] = []
        self._to_some: dict[str, list[int]] = {}
        for message in messages:
            self.add(message)

    def add(self, message: Metadata) -> None:
        """One more, at the end."""
        self.places[message.id] = place = len(self.messages)
        self.messages.append(message)
        if message.audience.members is None:
            self._to_all.append(place)
        else:
            for reader in message.audience.members:
                self._to_some.setdefault(reader, []).append(place)

    def backwards(self, reader: str, length: int) -> Iterator[Metadata]:
        """Those of the first `length` messages that a reader is in the audience of, the last one first."""
        places = (self._to_all, self._to_some.get(reader, []))
        down = (map(of.__getitem__, range(bisect_left(of, length) - 1, -1, -1)) for of in places)
        return map(self.messages.__getitem__, merge(*down, reverse=True))


class History(Sequence[Metadata]):
    """Some logs, each as far as it had come when this was made. Equals every sequence of the same messages."""

    def __init__(self, *logs: MessageLog, after: History | None = None) -> None:
        before: tuple[tuple[MessageLog, int], ...] = () if after is None else after._parts
        self._parts: tuple[tuple[MessageLog, int], ...] = (*before, *((log, len(log.messages)) for log in logs))

    @property
    def logs(self) -> tuple[MessageLog, ...]:
        """The logs, each as far as it has come by now."""
        return tuple(log for log, _ in self._parts)

    def find(self, id: str) -> Metadata | None:
        """The message of that id; None: it is not out."""
        for log, length in self._parts:
            place = log.places.get(id)
            if place is not None and place < length:
                return log.messages[place]
        return None

    def backwards(self, reader: str) -> Iterator[Metadata]:
        """The messages that a reader is in the audience of, the last one first."""
        return chain.from_iterable(log.backwards(reader, length) for log, length in reversed(self._parts))

    def open_to(self, audience: Audience) -> Iterator[Metadata]:
        """The messages that all of an audience may read, in order."""
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
    """A place in a view: right after the last token of message `id` of the same view, and `plus` positions further
    (above 0 it leaves a gap, below 0 it overlaps)."""

    id: str
    plus: int = 0


Place = int | After | Literal["rightmost"] | None
"""A position, or how it is found: `After` a message; "rightmost", right after the rightmost token of all that stands
before it in the view, where messages side by side have ended; None, right after the one before."""


class Read(NamedTuple):
    """One message of a view, by its id, and where its first token is placed: `at` is an absolute position, `After`
    another message of the view, "rightmost" (after the rightmost token of all that stands before it in the view), or
    None: right after the preceding message. `public`: read through the encoding that other readers read, by its author
    too; for a caller who cannot prove that it is the author."""

    id: str
    at: Place = None
    public: bool = False


ReuseFor = Literal["judge"]
"""What a call reads for, where that says which tokens of others' messages it encodes anew: see `View.reuse`."""


class View(NamedTuple):
    """What one call reads, in the order of its prompt. `new_at` places the new message, as `Read.at` does one that is
    read; None: right after the last.

    `reuse="judge"`: the call chooses between what it reads, and choices are where reuse shows first (arXiv
    2601.08343), so in choreographed mode what it reads of others is encoded anew for it, whatever `--repair` asks for.
    It says nothing in baseline mode, where all is encoded anew anyway, where what is reused stays in place, and of a
    model behind an API. None: as the run says."""

    reads: tuple[Read, ...]
    new_at: Place = None
    reuse: ReuseFor | None = None

    @classmethod
    def of(cls, messages: Iterable[Metadata | str | None], new_at: Place = None, reuse: ReuseFor | None = None) -> View:
        """A view of these messages, by id or metadata, in this order, each right after the one before. None is left
        out: it is the `brief` of an agent without a system prompt."""
        return cls(tuple(Read(m if isinstance(m, str) else m.id) for m in messages if m is not None), new_at, reuse)

    @classmethod
    def last(cls, messages: Iterable[Metadata], count: int, *, keep: Iterable[str | None] = ()) -> View:
        """The last `count` of these messages, after those whose ids are in `keep`, such as `self.brief`, which stand
        first and are not counted. `RequestError`: `count` is no number from 0."""
        kept, many = [id for id in keep if id is not None], checked_int(count, "the number of messages", 0)
        backwards = reversed(messages if isinstance(messages, Reversible) else list(messages))
        last = list(islice((m for m in backwards if m.id not in kept), many))
        return cls.of([*kept, *reversed(last)])

    @classmethod
    def of_roles(cls, messages: Iterable[Metadata], *roles: Role) -> View:
        """Those of these messages that are of one of these roles: "system", "user", "assistant" or "tool". What agents
        say is of role "assistant"; rules and questions are of role "user". `RequestError`: there is no such role."""
        wanted = {checked_role(role) for role in roles}
        return cls.of(m for m in messages if m.role in wanted)

    @classmethod
    def open_to(cls, messages: Iterable[Metadata], to: Audience | Iterable[str] | str) -> View:
        """Those of these messages that all of an audience may read, one's own words as these read them. Under a rule
        for words nothing of it is in the way of what is said to that audience. `AudienceError`: it is no audience."""
        whom = audience(to)
        listed = messages if isinstance(messages, History) else History(MessageLog(messages))
        return cls(tuple(Read(message.id, public=True) for message in listed.open_to(whom)))


class ToolUse(NamedTuple):
    """Which tool gave a result, and what was declared of it: see `games.tools.tool.Declared`. `client`: the connection
    to a server of tools by which it was called; agents that have one in common can tell each other anything by it."""

    name: str
    audience: Audience
    effect: bool
    trusted: bool
    client: str | None = None


class Charge(NamedTuple):
    """What words that were said after reading what not all of their readers may read can tell of it: at most `bits`
    (None: there is no bound) to each of the readers that `owed` has for an owner of such secrets.

    `by`: one of so many choices; JSON of so many values, of `schema`; a release by the code's own decision; words that
    could be anything.
    """

    by: Literal["choices", "schema", "release", "words"]
    bits: float | None = None
    owed: tuple[tuple[str, tuple[str, ...]], ...] = ()
    schema: dict[str, Any] | None = None


class Move(NamedTuple):
    """A place in a simultaneous round: the `number` of the round in its game, and which of its moves, from 0, in the
    order in which they come out. `race`: the round was over when the first of its moves had ended."""

    round: int
    number: int
    race: bool = False


class Act(NamedTuple):
    """How a message came to be asked for.

    `where` is the line of the scenario's or agent's code, "file:number". `places` are the positions asked for,
    one a parent and then the message's own (empty: none was). `tainted_by` are the messages outside whose audience
    this one is read and whose words the playing code had looked at before; `unproved` are those of them of which it had
    no more than a value that a verb had returned, and nothing shows that it used that. `choices` are the texts that a
    constrained decode could become. `released` is the message whose words this one repeats before another audience.
    `charge` is there in runs that have a rule for words. `shown` are messages that the person who says this one was
    shown before and that it is not said over: a person does not forget. `reuse` is that of its view.

    `after` are the messages (ids) and rounds (numbers) whose end the code had awaited when it asked for this one, the
    nearest alone; `named`: and those that it reads, for the code named them. None: it is not known. `moves` are the
    moves of rounds that it was said in, the outermost first: it came out when the outermost had closed.

    `thought` is the message of what its author thought right before.

    Of the result of a tool: `call` is the message that called it, `use` says which tool that is, and `release` that the
    call was let run whatever its arguments were made from. Of another message of known text `release` says that the
    rules of the game tell it, whatever the playing code had looked at before.
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

    @property
    def by_rules(self) -> bool:
        """Whether the rules of the game tell it, as the code says."""
        return self.release and self.call is None and self.use is None


def shown_to(agent: str, message: Metadata, find: Callable[[str], Metadata | None]) -> Metadata:
    """What a view gets of a message that it may read: of another's only those parents that `find` finds and that all of
    the message's own audience may read, so that no view can depend on what else its author had read; nor on whether it
    has a system prompt of its own: see `is_default_prompt`."""
    if message.author == agent:
        return message
    parents = ((parent, find(parent)) for parent in message.parents if not is_default_prompt(parent))
    public = (id for id, known in parents if known is not None and known.audience.covers(message.audience))
    return message._replace(parents=tuple(public))


class ReadSet(NamedTuple):
    """What a call reads by its view, explicit and final. `caller` None is the scenario.

    `direct` are the ids in `reads` whose audience leaves the caller out (a direct leak, to record or refuse). `reuse`
    is that of its view. `named`: the call named its messages itself, instead of choosing among those that were out.
    """

    caller: str | None
    reads: tuple[Read, ...]
    new_at: Place
    direct: tuple[str, ...]
    reuse: ReuseFor | None = None
    named: bool = False


def granted(caller: str, view: View, sees: Callable[[Metadata], bool], said: History) -> ReadSet:
    """What a call reads of what its view names. `sees` is asked of what the view names alone: an agent does not see the
    system prompts of others, though nothing in them is secret.

    What the view names outside the caller's audience stays in, marked `direct`; what the caller is in the audience of
    and does not see is an `AudienceError`, and so is an id not said yet. Neither tells of what is hidden. Ids become
    exact words first, so that what is checked here is what is read.
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
    """A view read once, made anew of exact words and places. `RequestError`: it is no view."""
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
    """An id as nothing but its characters; what is no text names nothing that could have been said."""
    return str.__str__(id) if isinstance(id, str) else repr(id)


def _placed(place: Place) -> Place:
    """A place that is one. `RequestError`: it is none."""
    if isinstance(place, After):
        return After(_exact(place.id), checked_int(place.plus, "plus"))
    if place is None or (isinstance(place, str) and place == "rightmost"):
        return place
    return checked_position(place)


def _first(place: Place) -> Place:
    """The place of what nothing stands before: after the rightmost of nothing is where it stands anyway."""
    return None if place == "rightmost" else place


def places_of(reads: ReadSet) -> tuple[Place, ...]:
    """The places asked for, one a message and then the new one's."""
    return (*(read.at for read in reads.reads), reads.new_at)


def absolute_positions(reads: ReadSet, lengths: Sequence[int | None], first: int) -> list[int | None]:
    """Positions of all messages and then of the new one, as far as `lengths` (tokens, None: not known) tell;
    None beyond, which is right after the preceding one. `first` is where the first stands by default.

    `RequestError`: one is placed after a message that does not stand before it.
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
