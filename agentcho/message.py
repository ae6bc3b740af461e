"""Messages and audiences: what was said, by whom, and who may read it.

A message is immutable. Its audience is fixed before its first token; to widen it is to say the same tokens
again as a new message. Does not know: encodings, engines, how a message came to be spoken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

from agentcho.errors import AudienceError
from agentcho.names import EVERYBODY, exact, name

Kind = Literal["prefill", "decode"]
Role = Literal["system", "user", "assistant"]
MANY = 1 << 17
"""Names that an audience may have."""


@dataclass(frozen=True, slots=True)
class Audience:
    """The agents that may read a message, by name. `members=None` means everyone, agents that join later included: it
    is more than the list of all names, and only everyone covers everyone.
    """

    members: frozenset[str] | None

    def includes(self, agent: str) -> bool:
        """Whether the agent of that name may read the message."""
        return self.members is None or agent in self.members

    def covers(self, other: Audience) -> bool:
        """Whether every reader of `other`, now or later, is also a reader here (self ⊇ other)."""
        if self.members is None:
            return True
        return other.members is not None and other.members <= self.members

    def both(self, *others: Audience) -> Audience:
        """The audience of those who are in this audience and in all `others`."""
        known = [each.members for each in (self, *others) if each.members is not None]
        return Audience(frozenset.intersection(*known)) if known else self

    def to_json(self) -> str | list[str]:
        """`"everyone"` or the sorted names: the form in transcripts and traces."""
        return "everyone" if self.members is None else sorted(self.members)

    def __str__(self) -> str:
        return "everyone" if self.members is None else ", ".join(sorted(self.members)) or "nobody"


EVERYONE = Audience(None)
"""The audience of all agents, those that join later included."""


def audience(names: Audience | Iterable[str] | str, cast: Iterable[str] | None = None) -> Audience:
    """Read an audience as users write it: `"everyone"`, one exact name, or several.

    With `cast`, every name must be in it; a substring or another spelling is an `AudienceError`. Without, each must be
    one that an agent may have. What comes out is made anew, of exact words: nothing that is given can change it.
    """
    given = _members(names)
    if given is None:
        return EVERYONE
    if cast is None:
        return Audience(frozenset(name(each) for each in given))
    members = frozenset(exact(each) for each in given)
    if unknown := members - set(cast):
        raise AudienceError(f"no agent named {', '.join(map(repr, sorted(unknown)))}", cast)
    return Audience(members)


def _members(names: Audience | Iterable[str] | str) -> Iterable[str] | None:
    """The words of an audience, in whatever form it came; None: everyone."""
    if isinstance(names, Audience):
        return names.members
    if isinstance(names, str):
        return None if exact(names) == EVERYBODY else (names,)
    if not isinstance(names, Iterable):
        raise AudienceError(f"{names!r} cannot name agents: give 'everyone', a name, or several")
    given = tuple(islice(names, MANY + 1))
    if len(given) > MANY:
        raise AudienceError(f"an audience of more than {MANY} names", ())
    return given


class Metadata(NamedTuple):
    """What views and policies may see of a message: everything but its words and their length."""

    id: str
    kind: Kind
    role: Role
    author: str | None
    audience: Audience
    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """One finished message.

    `tokens` are all ids fed, framing and closing included, BOS not; within them, `content` is the (start, stop)
    of header and text, `sampled` of what was sampled. `parents` are the ids of the messages its author read, in
    prompt order; `offsets` and `new_offset` the absolute positions asked for (None: right after the preceding
    one). `author` is None for messages of the scenario. `stopped` says what ended a decode: "stop",
    "stop_string", "max_tokens", "forced". `canonical`: the content ids are those that header and text encode to;
    otherwise the ids say more than the text does.
    """

    id: str
    game: int
    kind: Kind
    role: Role
    author: str | None
    audience: Audience
    parents: tuple[str, ...]
    header: str
    text: str
    tokens: tuple[int, ...]
    content: tuple[int, int]
    sampled: tuple[int, int] | None = None
    name: str | None = None
    offsets: tuple[int | None, ...] | None = None
    new_offset: int | None = None
    stopped: str | None = None
    canonical: bool = True

    def __hash__(self) -> int:
        return hash((self.game, self.id))

    def __repr__(self) -> str:
        """Who, what and to whom, without the words."""
        return f"<{type(self).__name__} {self.id} of game {self.game}: {self.kind}, {self.role}, to {self.audience}>"

    @property
    def metadata(self) -> Metadata:
        """The message without its words."""
        return Metadata(self.id, self.kind, self.role, self.author, self.audience, self.parents)
