"""Messages, audiences, and the names in them: what was said, by whom, and who may read it.

A message is immutable. Its audience is fixed before its first token; to widen it, the same tokens are said again as a
new message. Names are checked here for live games, traces and records alike. A word from a user is converted to a plain
`str` before it decides anything, because a subclass can change between check and use. Independent of encodings, of
engines, and of how a message was generated.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import FrozenInstanceError, dataclass, field, replace
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args

from pydantic import AfterValidator

from agentcho.errors import AudienceError, nearest, shown

Kind = Literal["prefill", "decode"]
Role = Literal["system", "user", "assistant", "tool"]
"""Who a message is from, as models see it. "tool" is the result of a function that the model called."""
Part = Literal["part", "system-begin", "system-end", "user-begin", "user-end", "assistant-begin", "assistant-end"]
"""A piece of a message that is encoded in several. "user-begin" has the framing of a user's message before its words
and none after them, "user-end" has it only after them, and "part" has none. A server cuts prompts in this way; games do
not."""
MANY = 1 << 17
"""Maximum number of names in an audience."""
EVERYBODY = "everyone"
SCENARIO = "scenario"
DEFAULT_PROMPT = "default"
SAMPLED = ".sampled"
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters, marks and signs of other categories that are invisible too."""
CAST = re.compile(r"[a-z][a-z0-9_-]*")
T = TypeVar("T")


def is_default_prompt(id: str) -> bool:
    """Return whether this is the id of a chat template's default system prompt, for agents without one of their own.

    That an agent reads it tells that it has none of its own, which is private. Others are not told, and what they read
    of the agent's words is not encoded over it.
    """
    author, _, word = id.partition(".")
    return author == SCENARIO and word.partition("-")[0] == DEFAULT_PROMPT


def sample_of(id: str) -> str:
    """Return the id of the private sample of an answer in JSON that is then told in canonical spelling."""
    return f"{id}{SAMPLED}"


def told_as(id: str) -> str:
    """Return the id of the message that a private sample is told as, and other ids as they are."""
    return id.replace(SAMPLED, "")


def exact(word: object) -> str:
    """Return a word as a plain `str`. Raises `AudienceError` if it is not text."""
    if not isinstance(word, str):
        raise _unfit(word, f"it is of type {type(word).__name__}; {_own_name(word) or 'a name must be text'}")
    return str.__str__(word)


def agent_name(word: object) -> str:
    """Return a name that an agent may have, wherever it comes from. Raises `AudienceError` for another one."""
    said = exact(word)
    if not said.strip() or said != said.strip():
        raise _unfit(said, "it is empty, or begins or ends with a space")
    if BLANK.search(said) or any(unicodedata.category(char) in UNSEEN for char in said):
        raise _unfit(said, "it contains control characters or other invisible characters")
    if unicodedata.normalize("NFKC", said).casefold() in {SCENARIO, EVERYBODY}:
        raise _unfit(said, "that word is reserved")
    return said


def cast_name(word: object) -> str:
    """Return a name that an agent may have in a live game. It is short to write, and begins the ids of its messages."""
    said = agent_name(word)
    if not CAST.fullmatch(said):
        raise _unfit(said, "use a lower-case letter, followed by lower-case letters, digits, - and _")
    return said


def natural(name: str | None) -> tuple[tuple[tuple[int, str], ...], str]:
    """Return a key that sorts names by the numbers in them: agent2 before agent10, None first.

    Numbers are made of the digits 0 to 9. Names that differ only in leading zeros, such as agent1 and agent01, sort as
    text.
    """
    parts = enumerate(re.split("([0-9]+)", name or ""))  # odd indices are numbers
    return tuple(_counted(part) if place % 2 else (0, part) for place, part in parts), name or ""


def _counted(digits: str) -> tuple[int, str]:
    """Return a key for a number of any length, by which the longer one is larger."""
    bare = digits.lstrip("0")
    return len(bare), bare


def framed_as(role: str) -> tuple[str, bool, bool]:
    """Return the role whose framing a message of `role` has, whether it has the opening, and whether the closing."""
    whole, _, end = role.rpartition("-")
    if role == "part":
        return "user", False, False
    return (whole, end == "begin", end == "end") if role in get_args(Part) else (role, True, True)


def called(cls: str) -> str:
    """Return the name of a scenario or an agent that has none, from the name of its class."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls).lower()


AgentName = Annotated[str, AfterValidator(agent_name)]


def _own_name(value: object) -> str:
    """Return what to give in place of an agent, which is an object with a name. Empty for other values."""
    name = getattr(value, "name", None)
    return f"give the agent's name, {name!r}" if isinstance(name, str) else ""


def _unfit(word: object, why: str) -> AudienceError:
    return AudienceError(f"{word!r} cannot name an agent: {why}")


def unassignable(cls: type[T]) -> type[T]:
    """Decorate a frozen dataclass with slots so that assigning any attribute raises `FrozenInstanceError`.

    By default only its fields do. The generated method passes other names, such as properties, to the class that had no
    slots yet, which raises a `TypeError` about `super`.
    """

    def refuse(self: object, name: str, *value: object) -> None:
        raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} {name!r}: the object is immutable")

    for method in ("__setattr__", "__delattr__"):
        setattr(cls, method, refuse)
    return cls


@unassignable
@dataclass(frozen=True, slots=True)
class Audience:
    """The agents that may read a message, by name.

    Args:
        members: Their names. None means everyone, agents that join later included. That is more than a list of all
            names, so only everyone covers everyone.
    """

    members: frozenset[str] | None

    def includes(self, agent: str) -> bool:
        """Return whether an agent may read the message.

        Args:
            agent: The agent's name.

        Returns:
            True if the agent is in the audience.
        """
        return self.members is None or agent in self.members

    def covers(self, other: Audience) -> bool:
        """Return whether every reader of `other`, now or later, is also a reader here (self ⊇ other).

        Args:
            other: Another audience.

        Returns:
            True if this audience covers `other`.
        """
        if self.members is None:
            return True
        return other.members is not None and other.members <= self.members

    def both(self, *others: Audience) -> Audience:
        """Return the audience of those who are in this audience and in all others.

        Args:
            *others: Other audiences.

        Returns:
            The intersection.
        """
        known = [each.members for each in (self, *others) if each.members is not None]
        return Audience(frozenset.intersection(*known)) if known else self

    def to_json(self) -> str | list[str]:
        """Return `"everyone"` or the sorted names, as transcripts and traces have them."""
        return "everyone" if self.members is None else sorted(self.members)

    def __str__(self) -> str:
        return "everyone" if self.members is None else ", ".join(sorted(self.members)) or "nobody"


EVERYONE = Audience(None)
"""The audience of all agents, those that join later included."""


def audience(names: Audience | Iterable[str] | str, cast: Iterable[str] | None = None) -> Audience:
    """Return an audience from what users write: `"everyone"`, one exact name, or several.

    With `cast`, every name must be in it, with its exact spelling. Otherwise every name must be one that an agent may
    have. The result is made of plain strings, so that nothing that is given can change it. Raises `AudienceError` for
    other names.
    """
    given = _members(names)
    if given is None:
        return EVERYONE
    if cast is None:
        return Audience(frozenset(agent_name(each) for each in given))
    members = frozenset(exact(each) for each in given)
    known = cast if isinstance(cast, Mapping | Set) else set(cast)  # a large cast is not copied
    if unknown := sorted(each for each in members if each not in known):
        raise AudienceError(_unknown(unknown, known), cast)
    return Audience(members)


FOR_EVERYONE = frozenset({"all", "anybody", "anyone", "everybody", "everyone", "public"})
"""Words that can be meant for the audience of all agents, in lower case."""


def _unknown(names: Sequence[str], cast: Iterable[str]) -> str:
    """Return what is wrong with names that no agent in the cast has."""
    told = f"no agent named {', '.join(map(shown, names))}"
    words = "an audience is 'everyone' or names of agents; pass words for the agent to answer as prompt=…"
    if any(" " in name for name in names):
        return f"{told}: {words}"
    if EVERYBODY in names:
        return "'everyone' is not an agent's name; give 'everyone' alone, not in a list"
    if names[0].lower() in FOR_EVERYONE:
        return f"{told}; write 'everyone' for all agents"
    like = nearest(names[0], cast) if len(names) == 1 else ""
    if like:
        return f"{told}; {like}"
    return told if all(map(CAST.fullmatch, names)) else f"{told}: {words}"


def _members(names: Audience | Iterable[str] | str) -> Iterable[str] | None:
    """Return the words of an audience in any form, or None for everyone."""
    if isinstance(names, Audience):
        return names.members
    if isinstance(names, str):
        return None if exact(names) == EVERYBODY else (names,)
    if not isinstance(names, Iterable):
        told = _own_name(names) or "give 'everyone', one name, or several names"
        raise AudienceError(f"a value of type {type(names).__name__} is not an audience: {told}")
    given = tuple(islice(names, MANY + 1))
    if len(given) > MANY:
        raise AudienceError(f"an audience has more than {MANY} names; give fewer, or 'everyone'")
    return given


class Metadata(NamedTuple):
    """What views and policies see of a message: everything but its text and its length.

    Attributes:
        id: Id of the message: its author and a number, such as "ann.3". Calls of tools before it begin with that id.
        kind: "prefill" for known text, "decode" for generated text.
        role: Role of the message for models.
        author: The agent that said it. None for the scenario.
        audience: Who may read it.
        parents: Ids of the messages that its author read, in prompt order.
    """

    id: str
    kind: Kind
    role: Role | Part
    author: str | None
    audience: Audience
    parents: tuple[str, ...]


class Words(NamedTuple):
    """What a message says, as text and as token ids.

    Attributes:
        header: The beginning that its author was given.
        text: What was said after the header, without framing and without a stop string.
        tokens: All ids that were fed, framing and closing included, BOS excluded.
        content: (start, stop) of header and text within `tokens`.
        sampled: (start, stop) of the sampled ids within `tokens`; (n, n) if nothing was sampled. None for a message of
            known text.
        stopped: What ended a decode: "stop", "stop_string", "stop_token", "max_tokens" or "forced".
        canonical: Whether the content ids are those that header and text encode to. Otherwise the ids say more than the
            text.
        stop_reason: The stop string, or the id of `stop_token_ids`, that ended a decode.
        thought: (start, stop) of the ids of a thought before the message, marks included. `text` is then the thought
            alone, and `tokens` also hold what was said after it.
        said: The message without its thought, until the two are separated. No record has it.
    """

    header: str
    text: str
    tokens: tuple[int, ...]
    content: tuple[int, int]
    sampled: tuple[int, int] | None = None
    stopped: str | None = None
    canonical: bool = True
    stop_reason: int | str | None = None
    thought: tuple[int, int] | None = None
    said: Words | None = None


@unassignable
@dataclass(frozen=True, slots=True)
class Message:
    """One finished message. Its text is not shown by `repr`.

    Attributes:
        id: Id of the message: its author and a number, such as "ann.3". Calls of tools before it begin with that id.
        game: Number of its game, from 0.
        kind: "prefill" for known text, "decode" for generated text.
        role: Role of the message for models: "system", "user", "assistant" or "tool".
        author: The agent that said it. None for the scenario.
        audience: Who may read it.
        parents: Ids of the messages that its author read, in prompt order.
        words: Its text and token ids. Each part can also be read from the message itself.
        name: The name that framing shows, if the chat template can. None for none.
        offsets: Positions in tokens that were asked for its parents, None for a parent right after the one before. None
            if no position was asked for.
        new_offset: Position in tokens that was asked for the message itself. None means right after its last parent.
        thoughts: The message of what its author thought first, on messages that a verb or a run's results returned.
            None if there is none.
    """

    id: str
    game: int
    kind: Kind
    role: Role | Part
    author: str | None
    audience: Audience
    parents: tuple[str, ...]
    words: Words
    name: str | None = None
    offsets: tuple[int | None, ...] | None = None
    new_offset: int | None = None
    thoughts: Message | None = field(default=None, compare=False)

    @property
    def thought(self) -> str:
        """What the author's model thought before it said this, if its template shows thoughts. Otherwise empty.

        If the thought used up all tokens, `text` is empty.
        """
        return "" if self.thoughts is None else self.thoughts.text

    @property
    def header(self) -> str:
        """The beginning that its author was given."""
        return self.words.header

    @property
    def text(self) -> str:
        """The text after the header."""
        return self.words.text

    @property
    def tokens(self) -> tuple[int, ...]:
        """All token ids that were fed (see `Words`)."""
        return self.words.tokens

    @property
    def content(self) -> tuple[int, int]:
        """(start, stop) of header and text within `tokens`."""
        return self.words.content

    @property
    def sampled(self) -> tuple[int, int] | None:
        """(start, stop) of the sampled ids within `tokens`. None for a message of known text."""
        return self.words.sampled

    @property
    def stopped(self) -> str | None:
        """What ended a decode ("stop", "stop_string", "stop_token", "max_tokens" or "forced"). None otherwise."""
        return self.words.stopped

    @property
    def canonical(self) -> bool:
        """Whether the content ids are those that header and text encode to."""
        return self.words.canonical

    def saying(self, **changes: Any) -> Message:
        """Return the same message with other words, by the names of `Words`."""
        return replace(self, words=self.words._replace(**changes))

    def __hash__(self) -> int:
        return hash((self.game, self.id))

    def __repr__(self) -> str:
        """Show who said what kind of message to whom, without its text."""
        return f"<{type(self).__name__} {self.id} of game {self.game}: {self.kind}, {self.role}, to {self.audience}>"

    @property
    def metadata(self) -> Metadata:
        """The message without its text and its length."""
        return Metadata(
            id=self.id, kind=self.kind, role=self.role, author=self.author, audience=self.audience, parents=self.parents
        )
