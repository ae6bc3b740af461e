"""Messages, audiences, and the names in them: what was said, by whom, and who may read it.

What may name an agent is checked here, for live games, traces and records alike; a word of a user's becomes exactly a
`str` before it decides anything, for a subclass can answer one thing when it is checked and another when it is looked
up. A message is immutable. Its audience is fixed before its first token; to widen it is to say the same tokens
again as a new message. Does not know: encodings, engines, how a message came to be spoken.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import AfterValidator

from agentcho.errors import AudienceError, nearest, shown

Kind = Literal["prefill", "decode"]
Role = Literal["system", "user", "assistant", "tool"]
"""Who a message is from, for the model: "tool" is the result of a function that it called."""
Part = Literal["part", "system-begin", "system-end", "user-begin", "user-end", "assistant-begin", "assistant-end"]
"""A piece of a message that is encoded in several: "user-begin" has the framing of a user's message before its words
and none after them, "user-end" has it after them alone, and "part" has none. A server cuts prompts so; games do not."""
MANY = 1 << 17
"""Names that an audience may have."""
EVERYBODY = "everyone"
SCENARIO = "scenario"
DEFAULT_PROMPT = "default"
UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters, marks and signs of other kinds that nobody sees either."""
CAST = re.compile(r"[a-z][a-z0-9_-]*")


def is_default_prompt(id: str) -> bool:
    """Whether the message of this id is what a chat template writes for agents without a system prompt. That an agent
    reads it tells that it has none of its own, which is nobody else's: others are not told that it does, and what they
    read of its words is not encoded over it."""
    author, _, word = id.partition(".")
    return author == SCENARIO and word.partition("-")[0] == DEFAULT_PROMPT


def exact(word: object) -> str:
    """A word as nothing but its characters. `AudienceError`: it is no text."""
    if not isinstance(word, str):
        raise _unfit(word, f"it is of type {type(word).__name__}; a name must be text")
    return str.__str__(word)


def agent_name(word: object) -> str:
    """A name that an agent may have, wherever it comes from. `AudienceError`: it is none."""
    said = exact(word)
    if not said.strip() or said != said.strip():
        raise _unfit(said, "it is empty, or begins or ends with a space")
    if BLANK.search(said) or any(unicodedata.category(char) in UNSEEN for char in said):
        raise _unfit(said, "it contains control characters or other invisible characters")
    if unicodedata.normalize("NFKC", said).casefold() in {SCENARIO, EVERYBODY}:
        raise _unfit(said, "that word is reserved")
    return said


def cast_name(word: object) -> str:
    """A name that an agent may have in a live game: shorter to write, and the beginning of its messages' ids."""
    said = agent_name(word)
    if not CAST.fullmatch(said):
        raise _unfit(said, "use a lower-case letter, followed by lower-case letters, digits, - and _")
    return said


def natural(name: str | None) -> tuple[tuple[tuple[int, str], ...], str]:
    """The key that sorts names as people count: agent2 before agent10, what has no name first. Numbers are those of the
    digits 0 to 9; names that differ in nothing else, as agent1 and agent01, stand as their text does."""
    parts = enumerate(re.split("([0-9]+)", name or ""))  # those at odd places are numbers
    return tuple(_counted(part) if place % 2 else (0, part) for place, part in parts), name or ""


def _counted(digits: str) -> tuple[int, str]:
    """A number of any length: the longer one is the larger."""
    bare = digits.lstrip("0")
    return len(bare), bare


def framed_as(role: str) -> tuple[str, bool, bool]:
    """The role whose framing a message of `role` has, whether it has the opening, and whether it has the closing."""
    whole, _, end = role.rpartition("-")
    if role == "part":
        return "user", False, False
    return (whole, end == "begin", end == "end") if role in get_args(Part) else (role, True, True)


def called(cls: str) -> str:
    """What a scenario or an agent is called that says no name, by that of its class."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls).lower()


AgentName = Annotated[str, AfterValidator(agent_name)]


def _unfit(word: object, why: str) -> AudienceError:
    return AudienceError(f"{word!r} cannot name an agent: {why}")


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
        return Audience(frozenset(agent_name(each) for each in given))
    members = frozenset(exact(each) for each in given)
    known = cast if isinstance(cast, Mapping | Set) else set(cast)  # nobody is looked at who is not named
    if unknown := sorted(each for each in members if each not in known):
        raise AudienceError(_unknown(unknown, known), cast)
    return Audience(members)


def _unknown(names: Sequence[str], cast: Iterable[str]) -> str:
    """What is wrong with names that nobody in the cast has."""
    told = f"no agent named {', '.join(map(shown, names))}"
    if any(" " in name for name in names):
        return f"{told}: an audience is 'everyone' or names of agents; pass words for the agent to answer as prompt=…"
    like = nearest(names[0], cast) if len(names) == 1 else ""
    return f"{told}; {like}" if like else told


def _members(names: Audience | Iterable[str] | str) -> Iterable[str] | None:
    """The words of an audience, in whatever form it came; None: everyone."""
    if isinstance(names, Audience):
        return names.members
    if isinstance(names, str):
        return None if exact(names) == EVERYBODY else (names,)
    if not isinstance(names, Iterable):
        raise AudienceError(f"{names!r} is not an audience: give 'everyone', one name, or several names")
    given = tuple(islice(names, MANY + 1))
    if len(given) > MANY:
        raise AudienceError(f"an audience has more than {MANY} names; give fewer, or 'everyone'", ())
    return given


class Metadata(NamedTuple):
    """What views and policies may see of a message: everything but its words and their length."""

    id: str
    kind: Kind
    role: Role | Part
    author: str | None
    audience: Audience
    parents: tuple[str, ...]


class Words(NamedTuple):
    """What a message says, in text and in token ids.

    `text` is what was said, without the `header` that its author was given, framing, and a stop string. `tokens` are
    all ids that were fed, framing and closing included, BOS not; within them, `content` is the (start, stop) of header
    and text, and `sampled` that of what was sampled: (n, n) where nothing was, None for a message of known text.
    `stopped` says what ended a decode, and `stop_reason` which stop string or which of its `stop_token_ids` did.
    `canonical`: the content ids are those that header and text encode to; otherwise the ids say more than the text
    does.

    `thought` is there where a model thought before it spoke: the (start, stop) of the ids of its thought, marks
    included. `text` is then the thought alone, while `tokens` also hold what was said after it. `said`: those words as
    a message without the thought, until the two are told apart; no record has them.
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


@dataclass(frozen=True, slots=True)
class Message:
    """One message that has ended.

    `parents` are the ids of the messages that its author read, in prompt order; `offsets` and `new_offset` the absolute
    positions that were asked for (None: right after the preceding message). `author` is None for messages of the
    scenario. `words` are what it says; each part of them can be read from the message itself. `thoughts` is the message
    of what its author thought before, on messages that a verb or a run's results gave (None: nothing).
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
        """What its author thought before it said this, where its model thinks in the open; mostly nothing. What a
        model thought until its tokens were used up is here too, and then `text` is empty."""
        return "" if self.thoughts is None else self.thoughts.text

    @property
    def header(self) -> str:
        """What its author was given to begin with."""
        return self.words.header

    @property
    def text(self) -> str:
        """What it says after its header."""
        return self.words.text

    @property
    def tokens(self) -> tuple[int, ...]:
        """All ids that were fed: see `Words`."""
        return self.words.tokens

    @property
    def content(self) -> tuple[int, int]:
        """The (start, stop) of header and text within `tokens`."""
        return self.words.content

    @property
    def sampled(self) -> tuple[int, int] | None:
        """The (start, stop) of what was sampled within `tokens`."""
        return self.words.sampled

    @property
    def stopped(self) -> str | None:
        """What ended a decode: "stop", "stop_string", "stop_token", "max_tokens", "forced"."""
        return self.words.stopped

    @property
    def canonical(self) -> bool:
        """Whether the content ids are those that header and text encode to."""
        return self.words.canonical

    def saying(self, **changes: Any) -> Message:
        """The same message with other words, by the names of `Words`."""
        return replace(self, words=self.words._replace(**changes))

    def __hash__(self) -> int:
        return hash((self.game, self.id))

    def __repr__(self) -> str:
        """Who, what and to whom, without the words."""
        return f"<{type(self).__name__} {self.id} of game {self.game}: {self.kind}, {self.role}, to {self.audience}>"

    @property
    def metadata(self) -> Metadata:
        """The message without its words."""
        return Metadata(
            id=self.id, kind=self.kind, role=self.role, author=self.author, audience=self.audience, parents=self.parents
        )
