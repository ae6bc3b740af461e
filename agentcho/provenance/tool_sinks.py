"""What leaves a society by a call of a tool: who learns of its arguments, whose words were behind them, and whether an
effect outside may come of those.

A call is judged by its cone: all that could have influenced its arguments. Nothing in it may be unknown to whom the
tool tells them. Nothing in it may come from an untrusted result where the tool changes something outside: neither such
a result, nor what anybody said freely after reading one, however often it was passed on. A message that is one of
choices the code gave is no such message: nobody but the code has written its words. Does not know: tools, models,
encodings, texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from agentcho.config import Leakage
from agentcho.errors import SHOWN, LeakageError
from agentcho.message import EVERYONE, SCENARIO, Audience, Metadata
from agentcho.provenance.views import Act, ToolUse

NOBODY = Audience(frozenset())


class MessageOrigin(Protocol):
    """A message, and how it came to be."""

    @property
    def metadata(self) -> Metadata: ...
    @property
    def act(self) -> Act: ...


def undisclosed(cone: Iterable[str], to: Audience, known: Callable[[str], Audience]) -> tuple[str, ...]:
    """The messages of a cone that not all of an audience may know of. `known`: who may, of each."""
    return tuple(id for id in cone if not known(id).covers(to))


class TrustLabels:
    """Which messages of one game hold what nobody vouches for. `said` are its messages by id, none before those that it
    was said over; it grows.

    That is a function of who read what, so it is as public as the message: its readers may know that it was said over
    an untrusted result, though not which.
    """

    def __init__(self, said: Mapping[str, MessageOrigin]) -> None:
        self._said = said
        self._untrusted: dict[str, bool] = {}

    def untrusted(self, cone: Iterable[str]) -> tuple[str, ...]:
        """Those of a cone that hold such words."""
        return tuple(id for id in cone if self.is_untrusted(id))

    def is_untrusted(self, id: str) -> bool:
        """Whether a message is an untrusted result, or may repeat one. What lacks its parents' answers stands on a
        stack of our own."""
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
        """What a message may repeat the words of; of a choice, nothing. Of a result its call: a tool may say again what
        it was given; of a person's words all that the person was shown."""
        message = self._said[id]
        if message.act.choices:
            return
        yield from (*message.metadata.parents, *message.act.shown)
        yield from (id for id in (message.act.released, message.act.call) if id is not None)


class ToolCallRefusal(NamedTuple):
    """Why a call must not run: messages that not all who would learn of it may know, and untrusted ones."""

    secret: tuple[str, ...]
    untrusted: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.secret or self.untrusted)


class ToolSinks:
    """Those of one game. `said` are its messages by id; it grows."""

    def __init__(self, said: Mapping[str, MessageOrigin], leakage: Leakage) -> None:
        self._said, self._refusing = said, leakage != "audit"
        self._trust = TrustLabels(said)
        self._told: dict[str, Audience] = {}

    def known_to(self, id: str) -> Audience:
        """Who may know what a message says: who may read it, and of a call that ran who learned of its arguments."""
        whose, told = self._said[id].metadata.audience, self._told.get(id, NOBODY)
        if whose.members is None or told.members is None:
            return EVERYONE
        return Audience(whose.members | told.members)

    def judge(self, call: str, cone: Set[str], use: ToolUse) -> ToolCallRefusal:
        """What is wrong with a call of that cone, which has the call itself; under audit too."""
        behind = [id for id in self._said if id in cone and id != call]
        secret = undisclosed(behind, use.audience, self.known_to)
        return ToolCallRefusal(secret, self._trust.untrusted(behind) if use.effect else ())

    def check(self, call: str, cone: Set[str] | None, use: ToolUse, release: bool = False) -> None:
        """A call is about to run. `cone`: all that could have influenced its arguments; None: nobody knows, which is
        never clean. Unless it is refused, who learns of its arguments knows them from now on.

        `LeakageError` names the messages in the way, where leaks are refused and the call is no `release`."""
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
        """Messages with their authors, never their words; not more than one would look at."""
        named = [f"{id} (by {self._said[id].metadata.author or SCENARIO})" for id in ids[:SHOWN]]
        return ", ".join([*named, *([f"{len(ids) - SHOWN} more"] if len(ids) > SHOWN else [])])


_ALLOW = "or let this call pass with release=True, which audits list"
_UNKNOWN = "it is not known what its arguments were made from. Make the call again in this game"
_OPEN = (
    "If the tool tells nobody, declare it audience='nobody'; else call with a view without these (open_system=True "
    "opens an agent's system prompt)"
)
_EFFECT = "it changes something outside, and its arguments were made from"
_TRUST = "Call with a view without these, declare a tool whose results can be trusted as trusted=True"
