"""Checks tool calls as sinks of information: who learns of the arguments, whose words influenced them, and whether they
may cause an effect outside.

A call is judged by its cone: all messages that could have influenced its arguments. All who learn of the arguments must
be allowed to know every message in it. If the tool has an effect outside, no message in it may come from an untrusted
result: neither the result itself, nor free text by anyone who read it, over any number of steps. A choice among texts
of the code is exempt, because the code wrote its words. Independent of tools, models, encodings and texts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from agentcho.config import Leakage
from agentcho.errors import SHOWN, LeakageError
from agentcho.message import EVERYBODY, EVERYONE, SCENARIO, Audience, Metadata
from agentcho.provenance.views import Act, ToolUse

NOBODY = Audience(frozenset())
LISTING = "tools"
"""The part of the id of a list of tools between the agent and the number."""
MOST = 60
"""The letters of names of readers in the id of a result. More names are a digest."""
STEP = "step"
"""The part of the id of a call, or of the choice to make one, between the id of the text that follows and the
number."""


class MessageOrigin(Protocol):
    """A message, and how it was requested."""

    @property
    def metadata(self) -> Metadata: ...
    @property
    def act(self) -> Act: ...


def undisclosed(cone: Iterable[str], to: Audience, known: Callable[[str], Audience]) -> tuple[str, ...]:
    """The messages of a cone that not all of an audience may know. `known` returns who may know a message."""
    return tuple(id for id in cone if not known(id).covers(to))


def listing_id(caller: str, number: int) -> str:
    """The id of the list of an agent's tools that was made after `number` others."""
    return f"{caller}.{LISTING}{number}"


def step_id(text: str, number: int) -> str:
    """The id of the message, a call or the choice to make one, that was `number`-th before a text with that id."""
    return f"{text}.{STEP}{number}"


def result_id(text: str, to: Audience, number: int) -> str:
    """The id of a result that other agents may read. It names and counts only what they know: themselves, and `number`
    results for them before it and before the text with that id."""
    names = [EVERYBODY] if to.members is None else sorted(to.members)
    readers = "+".join(names)
    if len(readers) > MOST:
        readers = f"{len(names)}-{hashlib.blake2b(readers.encode(), digest_size=8).hexdigest()}"
    return f"{text}.{readers}-{number}.result"


def is_step_id(id: str) -> bool:
    """Whether this is the id of a call, or of the choice to make one."""
    return re.search(rf"\.{STEP}[0-9]+\Z", id) is not None


def offered_in(caller: str, parents: Iterable[str]) -> frozenset[str]:
    """The lists of an agent's tools among the messages that one of its calls was directly generated over.

    Whoever learns the arguments of a call may learn what its own list says: to offer a tool beside others permits it.
    """
    lists = re.compile(rf"{re.escape(caller)}\.{LISTING}\d+")
    return frozenset(id for id in parents if lists.fullmatch(id))


class TrustLabels:
    """Which messages of one game may contain untrusted words. `said` are its messages by id, each after those that it
    was generated over; it grows.

    This is a function of who read what, so it is as public as the message: its readers may know that it depends on an
    untrusted result, though not on which.
    """

    def __init__(self, said: Mapping[str, MessageOrigin]) -> None:
        self._said = said
        self._untrusted: dict[str, bool] = {}

    def untrusted(self, cone: Iterable[str]) -> tuple[str, ...]:
        """The messages of a cone that may contain untrusted words."""
        return tuple(id for id in cone if self.is_untrusted(id))

    def is_untrusted(self, id: str) -> bool:
        """Whether a message is an untrusted result, or may repeat one. Uses an explicit stack instead of recursion."""
        waiting = [id]
        while waiting:
            lacking = [each for each in self._sources(waiting[-1]) if each not in self._untrusted]
            if waiting[-1] in self._untrusted or not lacking:
                here = waiting.pop()
                self._untrusted[here] = self._is(here)
            else:
                waiting += lacking
        return self._untrusted[id]

    def _is(self, id: str) -> bool:
        use = self._said[id].act.use
        return (use is not None and not use.trusted) or any(self._untrusted[each] for each in self._sources(id))

    def _sources(self, id: str) -> Iterator[str]:
        """The messages whose words a message may repeat: none for a choice; for a result also its call, because a tool
        may repeat its arguments; for a person's words also all that the person was shown."""
        message = self._said[id]
        if message.act.choices:
            return
        yield from (*message.metadata.parents, *message.act.shown)
        yield from (id for id in (message.act.released, message.act.call) if id is not None)


class ToolCallRefusal(NamedTuple):
    """Why a call must not run: messages that not all who would learn of its arguments may know, and untrusted ones."""

    secret: tuple[str, ...]
    untrusted: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.secret or self.untrusted)


class ToolSinks:
    """Checks the tool calls of one game. `said` are its messages by id; it grows."""

    def __init__(self, said: Mapping[str, MessageOrigin], leakage: Leakage) -> None:
        self._said, self._refusing = said, leakage != "audit"
        self._trust = TrustLabels(said)
        self._told: dict[str, Audience] = {}

    def known_to(self, id: str) -> Audience:
        """Who may know the words of a message: its audience, and all who learned of the arguments of a call."""
        whose, told = self._said[id].metadata.audience, self._told.get(id, NOBODY)
        if whose.members is None or told.members is None:
            return EVERYONE
        return Audience(whose.members | told.members)

    def judge(self, call: str, cone: Set[str], use: ToolUse) -> ToolCallRefusal:
        """The objections to a call with this cone, which includes the call itself. Also used under audit."""
        behind = [id for id in self._said if id in cone and id != call]
        made = self._said[call].metadata
        offered = offered_in(made.author or SCENARIO, made.parents)
        secret = undisclosed((id for id in behind if id not in offered), use.audience, self.known_to)
        return ToolCallRefusal(secret, self._trust.untrusted(behind) if use.effect else ())

    def check(self, call: str, cone: Set[str] | None, use: ToolUse, release: bool = False) -> None:
        """Check a call that is about to run. `cone`: all that could have influenced its arguments. None means unknown,
        which never counts as clean. Unless the call is refused, all who learn of its arguments know them from now on.

        Raises `LeakageError`, which names the blocking messages, if leaks are refused and the call is no `release`."""
        if self._refusing and not release:
            caller = self._said[call].metadata.author or SCENARIO
            if cone is None:
                raise LeakageError.sink(caller, use.name, f"{_UNKNOWN}. {_ALLOW}", ())
            refused = self.judge(call, cone, use)
            if refused.secret:
                whom = "the world" if use.audience == EVERYONE else str(use.audience)
                why = f"{whom} would learn of its arguments, and may not know {self._named(refused.secret)}"
                raise LeakageError.sink(caller, use.name, f"{why}. {_OPEN}, {_ALLOW}", refused.secret)
            if refused.untrusted:
                why = f"{_EFFECT} {self._named(refused.untrusted)}, where words of untrusted results may stand"
                raise LeakageError.sink(caller, use.name, f"{why}. {_TRUST}, {_ALLOW}", refused.untrusted)
        self._told[call] = use.audience

    def _named(self, ids: Sequence[str]) -> str:
        """At most `SHOWN` messages with their authors, never with their words."""
        named = [f"{id} (by {self._said[id].metadata.author or SCENARIO})" for id in ids[:SHOWN]]
        return ", ".join([*named, *([f"{len(ids) - SHOWN} more"] if len(ids) > SHOWN else [])])


_ALLOW = "or let this call pass with release=True, which audits list"
_UNKNOWN = "it is not known what its arguments were made from. Make the call again in this game"
_OPEN = (
    "If the tool tells nobody, declare it audience='nobody'; else call with a view without these and without what was "
    "made from them (open_system=True opens an agent's system prompt)"
)
_EFFECT = "it changes something outside, and its arguments were made from"
_TRUST = "Call with a view without these, declare a tool whose results can be trusted as trusted=True"
