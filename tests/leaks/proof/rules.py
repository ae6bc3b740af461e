"""The rules by which calls read messages under enforcement, written independently: who may read what, what is refused,
through which encoding a message is read, what an encoding is made over and where that is placed, for whom it is fit,
and what a guard admits; also the rule of `deny`, and that of cache salts.

They model `agentcho/provenance`: each rule names the code that it models. That the two agree is tested (`test_tie`),
not proved. Not covered: words, engines, the choice of tokens to repair, several models in a run, rules for words,
taint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from .terms import Terms, Thing, Truth

Kind = Literal["author", "audience"]
"""E(m), made over what its author read, or X(m), made for its audience."""
KINDS: tuple[Kind, ...] = ("author", "audience")
Cone = Callable[[Kind, Thing, Thing], Truth]
"""Whether a message is in the cone of an encoding (of which kind, of which message)."""
Marked = Callable[[Kind, Thing, Thing], Truth]
"""Whether an audience is among the labels of an encoding."""


class Rules:
    """The rules of one workflow."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    # -- who may read what -------------------------------------------------------------------------------

    def audience(self, message: Thing) -> Thing:
        """The audience of a message."""
        return self.terms.attribute("audience", message)

    def includes(self, audience: Thing, agent: Thing) -> Truth:
        """`Audience.includes`."""
        t = self.terms
        return t.either(t.relation("everyone", audience), t.relation("member", agent, audience))

    def covers(self, wide: Thing, narrow: Thing) -> Truth:
        """`Audience.covers`: everyone is wider than any list of names, because agents may join."""
        t = self.terms

        def inside(agent: Thing) -> Truth:
            return t.implies(t.relation("member", agent, narrow), t.relation("member", agent, wide))

        by_name = t.both(t.no(t.relation("everyone", narrow)), t.every("agent", inside))
        return t.either(t.relation("everyone", wide), by_name)

    def may_read(self, agent: Thing, message: Thing) -> Truth:
        """Whether an agent is in the audience of a message."""
        return self.includes(self.audience(message), agent)

    def refused(self, call: Thing) -> Truth:
        """`LeakPaths.leak_path` under enforce: the call's author reads a message that is not for it."""
        t = self.terms

        def leaks(agent: Thing, read: Thing) -> Truth:
            caller = t.both(t.relation("wrote", agent, call), t.relation("reads", call, read))
            return t.both(caller, t.no(self.may_read(agent, read)))

        return t.some("agent", lambda agent: t.some("message", lambda read: leaks(agent, read)))

    # -- which encoding is read --------------------------------------------------------------------------

    def own(self, call: Thing, read: Thing) -> Truth:
        """`Resolver._own`: the call's author reads a message as its author."""
        t = self.terms
        both = t.some("agent", lambda a: t.both(t.relation("wrote", a, call), t.relation("wrote", a, read)))
        return t.both(both, t.no(t.relation("aside", call, read)))

    def serves(self, kind: Kind, call: Thing, read: Thing) -> Truth:
        """`Resolver._recipe`: whether a call reads a message through its encoding of that kind. A message with `once`
        has only the audience encoding."""
        t = self.terms
        own = t.both(self.own(call, read), t.no(t.relation("once", read)))
        return own if kind == "author" else t.no(own)

    def once(self, message: Thing) -> Truth:
        """`Resolver._made_once`: whether E(m) and X(m) would be made alike, so that one encoding serves as both."""
        t = self.terms
        said = t.some("agent", lambda agent: t.relation("wrote", agent, message))
        heard = t.no(t.same(self.audience(message), t.attribute("own", message)))

        def same(read: Thing) -> Truth:
            alike = t.both(self.public(message, read), self.serves("audience", message, read))
            return t.implies(t.relation("reads", message, read), alike)

        return t.both(said, heard, t.no(t.relation("asked", message)), t.every("message", same))

    def public(self, message: Thing, read: Thing) -> Truth:
        """`Resolver._public_parents`: a read of a message that all of the message's readers may read."""
        t = self.terms
        return t.both(t.relation("reads", message, read), self.covers(self.audience(read), self.audience(message)))

    def over(self, kind: Kind, message: Thing, below: Kind, read: Thing) -> Truth:
        """`Resolver._over`: whether an encoding is made over that of kind `below` of another message."""
        t = self.terms
        if kind == "author":
            return t.both(t.relation("reads", message, read), self.serves(below, message, read))
        return self.public(message, read) if below == "audience" else t.either()

    def place(self, kind: Kind, message: Thing, read: Thing) -> Thing:
        """`Resolver._author_call`, `_audience_call`: its position, as the author asked or the default."""
        return self.terms.attribute("placed", message, read) if kind == "author" else self.terms.attribute("default")

    def clearance(self, kind: Kind, message: Thing) -> Thing:
        """For whom an encoding is made: its class and the audience its guard checks (`Resolver._salt`, `_guard`)."""
        return self.terms.attribute("own", message) if kind == "author" else self.audience(message)

    def repaired(self, read: Thing) -> Truth:
        """`Resolver._context_of_others`: whether a message that comes first in a prompt is repaired there."""
        return self.terms.some("message", lambda parent: self.public(read, parent))

    def base(self, kind: Kind) -> bool:
        """`Resolver._repair`: whether another's message is repaired from its encoding of that kind."""
        return kind == "audience"

    # -- consequences ------------------------------------------------------------------------------------

    def in_cone(self, kind: Kind, message: Thing, other: Thing, cone: Cone) -> Truth:
        """`Ledger.record`: whether another message could have influenced an encoding, from the cones of its context."""
        t = self.terms

        def through(read: Thing) -> Truth:
            return t.either(*(t.both(self.over(kind, message, b, read), cone(b, read, other)) for b in KINDS))

        return t.either(t.same(other, message), t.some("message", through))

    def labelled(self, kind: Kind, message: Thing, audience: Thing, marked: Marked) -> Truth:
        """`Guard.admit`: the audiences of all that could have influenced an encoding, from the labels of its
        context."""
        t = self.terms

        def through(read: Thing) -> Truth:
            return t.either(*(t.both(self.over(kind, message, b, read), marked(b, read, audience)) for b in KINDS))

        return t.either(t.same(audience, self.audience(message)), t.some("message", through))

    def denied(self, call: Thing, hears: Callable[[Thing, Thing], Truth]) -> Truth:
        """`LeakPaths.leak_path` under deny: the author reads what is not for it, or a message with that behind it."""
        t = self.terms

        def leaks(agent: Thing, read: Thing) -> Truth:
            caller = t.both(t.relation("wrote", agent, call), t.relation("reads", call, read))
            return t.both(caller, t.no(hears(agent, read)))

        return t.some("agent", lambda agent: t.some("message", lambda read: leaks(agent, read)))

    def hears(self, agent: Thing, message: Thing, hears: Callable[[Thing, Thing], Truth]) -> Truth:
        """`LeakPaths._readers_of`: whether a message, and everything behind it, is for an agent."""
        t = self.terms
        behind = t.every("message", lambda read: t.implies(t.relation("reads", message, read), hears(agent, read)))
        return t.both(self.may_read(agent, message), behind)


class Salting:
    """`provenance.prefix_cache_salts.cache_salts`: requests, each by an agent that `asked`, over messages that it
    `holds`."""

    def __init__(
        self,
        rules: Rules,
        asked: Callable[[Thing, Thing], Truth],
        holds: Callable[[Thing, Thing], Truth],
        last: Callable[[Thing, Thing], Truth],
    ) -> None:
        self.rules, self.terms = rules, rules.terms
        self.asked, self.holds, self.last = asked, holds, last

    def for_all(self, request: Thing) -> Truth:
        """Whether everything in a request is for everyone."""
        t = self.terms
        return t.every("message", lambda m: t.implies(self.counted(request, m), self._everyone(m)))

    def clears(self, request: Thing, agent: Thing) -> Truth:
        """Whether an agent may read everything in a request."""
        t, may_read = self.terms, self.rules.may_read
        return t.every("message", lambda m: t.implies(self.counted(request, m), may_read(agent, m)))

    def counted(self, request: Thing, message: Thing) -> Truth:
        """Whether a message counts for the salt of its request: all do."""
        return self.holds(request, message)

    def alone(self, request: Thing) -> Truth:
        """Whether a salt includes who asks, because it may not read all of its own request."""
        t = self.terms
        return t.some("agent", lambda a: t.both(self.asked(request, a), t.no(self.clears(request, a))))

    def salt_is_one(self, one: Thing, other: Thing) -> Truth:
        """Whether two requests have the same salt."""
        t = self.terms
        agents = t.every("agent", lambda a: t.same(self.clears(one, a), self.clears(other, a)))
        whole = t.both(agents, t.same(self.for_all(one), self.for_all(other)))
        whose = t.every("agent", lambda a: t.same(self.asked(one, a), self.asked(other, a)))
        status = t.both(t.same(self.alone(one), self.alone(other)), t.either(t.no(self.alone(one)), whose))
        return t.both(whole, status)

    def _everyone(self, message: Thing) -> Truth:
        return self.terms.relation("everyone", self.rules.audience(message))
