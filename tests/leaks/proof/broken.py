"""Variants of the model with one rule left out or changed, each with the theorem that must then be refuted: a proof
that holds without a rule would not be about that rule. Independent of solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .rules import KINDS, Kind, Rules, Salting
from .terms import Thing, Truth


class AllParents(Rules):
    """X(m) is made over all that m read."""

    def public(self, message: Thing, read: Thing) -> Truth:
        """See `Rules`."""
        return self.terms.relation("reads", message, read)


class AuthorsParents(Rules):
    """X(m) is made over all that is for its author."""

    def public(self, message: Thing, read: Thing) -> Truth:
        """See `Rules`."""
        t = self.terms
        own = self.covers(self.audience(read), t.attribute("own", message))
        return t.both(t.relation("reads", message, read), own)


class OnAuthors(Rules):
    """X(m) is made over its parents as their authors made them."""

    def over(self, kind: Kind, message: Thing, below: Kind, read: Thing) -> Truth:
        """See `Rules`."""
        if kind == "author":
            return super().over(kind, message, below, read)
        return self.public(message, read) if below == "author" else self.terms.either()


class Roster(Rules):
    """Everyone is all who are there by now."""

    def covers(self, wide: Thing, narrow: Thing) -> Truth:
        """See `Rules`."""
        t = self.terms

        def inside(agent: Thing) -> Truth:
            return t.implies(self.includes(narrow, agent), self.includes(wide, agent))

        return t.every("agent", lambda agent: t.implies(t.relation("there", agent), inside(agent)))


class AnyName(Rules):
    """One reader in common is enough."""

    def covers(self, wide: Thing, narrow: Thing) -> Truth:
        """See `Rules`."""
        t = self.terms
        return t.some("agent", lambda agent: t.both(self.includes(wide, agent), self.includes(narrow, agent)))


class AsAuthors(Rules):
    """Everyone reads a message as its author does."""

    def own(self, call: Thing, read: Thing) -> Truth:
        """See `Rules`."""
        return self.terms.both()


class WhereClean(Rules):
    """Others get the author's encoding where its author had read nothing in secret."""

    def serves(self, kind: Kind, call: Thing, read: Thing) -> Truth:
        """See `Rules`."""
        t = self.terms
        clean = t.every("message", lambda r: t.implies(t.relation("reads", read, r), self.public(read, r)))
        own = t.either(self.own(call, read), clean)
        return own if kind == "author" else t.no(own)


class OnceAnyway(Rules):
    """One encoding is E(m) and X(m), whatever else its author read."""

    def once(self, message: Thing) -> Truth:
        """See `Rules`."""
        t = self.terms
        return t.some("agent", lambda agent: t.relation("wrote", agent, message))


class OnceAsOthersSaid(Rules):
    """One encoding is both where others had said once what its author read."""

    def once(self, message: Thing) -> Truth:
        """See `Rules`."""
        t = self.terms

        def said(read: Thing) -> Truth:
            return t.implies(t.relation("reads", message, read), t.relation("once", read))

        return t.both(super().once(message), t.every("message", said))


class OnceWhereAsked(Rules):
    """One encoding is both, at whatever places its author asked for."""

    def once(self, message: Thing) -> Truth:
        """See `Rules`."""
        t = self.terms

        def same(read: Thing) -> Truth:
            alike = t.both(self.public(message, read), self.serves("audience", message, read))
            return t.implies(t.relation("reads", message, read), alike)

        return t.every("message", same)


class NothingRefused(Rules):
    """A call may read anything."""

    def refused(self, call: Thing) -> Truth:
        """See `Rules`."""
        return self.terms.either()

    def denied(self, call: Thing, hears: Callable[[Thing, Thing], Truth]) -> Truth:
        """See `Rules`."""
        return self.terms.either()


class AuthorsPlaces(Rules):
    """X(m) stands where the author of m had placed what it read."""

    def place(self, kind: Kind, message: Thing, read: Thing) -> Thing:
        """See `Rules`."""
        return self.terms.attribute("placed", message, read)


class ForAuthors(Rules):
    """X(m) is made for the author of m alone."""

    def clearance(self, kind: Kind, message: Thing) -> Thing:
        """See `Rules`."""
        return self.terms.attribute("own", message)


class RepairedByHidden(Rules):
    """What stands first is repaired where its author had read anything at all."""

    def repaired(self, read: Thing) -> Truth:
        """See `Rules`."""
        return self.terms.some("message", lambda parent: self.terms.relation("reads", read, parent))


class RepairedFromAuthors(Rules):
    """Another's message is repaired from what its author made of it."""

    def base(self, kind: Kind) -> bool:
        """See `Rules`."""
        return kind == "author"


class OwnLabel(Rules):
    """A guard looks at the message and not at what it is made over."""

    def labelled(self, kind: Kind, message: Thing, audience: Thing, marked: Callable[..., Truth]) -> Truth:
        """See `Rules`."""
        return self.terms.same(audience, self.audience(message))


class FirstHop(Rules):
    """A cone ends at what was attended to."""

    def in_cone(self, kind: Kind, message: Thing, other: Thing, cone: Callable[..., Truth]) -> Truth:
        """See `Rules`."""
        t = self.terms
        over = (self.over(kind, message, below, other) for below in KINDS)
        return t.either(t.same(other, message), *over)


class DirectlyDenied(Rules):
    """Deny asks for what is read and not for what stands behind it."""

    def hears(self, agent: Thing, message: Thing, hears: Callable[[Thing, Thing], Truth]) -> Truth:
        """See `Rules`."""
        return self.may_read(agent, message)


class LastSalt(Salting):
    """A salt is of the last message of a request."""

    def counted(self, request: Thing, message: Thing) -> Truth:
        """See `Salting`."""
        return self.last(request, message)


class SaltedAsReaders(Salting):
    """Who reads what is not for it shares with those who may."""

    def alone(self, request: Thing) -> Truth:
        """See `Salting`."""
        return self.terms.either()


class Broken(NamedTuple):
    """Rules that differ from the code's, and the theorem that does not hold for them."""

    refuted: str
    rules: type[Rules] = Rules
    salting: type[Salting] = Salting

    @property
    def name(self) -> str:
        """The docstring of the broken rules, as it is printed in the result."""
        kind = self.rules if self.rules is not Rules else self.salting
        return (kind.__doc__ or "").removesuffix(".")


BROKEN = (
    Broken("made fit", AllParents),
    Broken("made fit", AuthorsParents),
    Broken("made fit", OnAuthors),
    Broken("made fit", Roster),
    Broken("made fit", AnyName),
    Broken("made fit", AsAuthors),
    Broken("made fit", NothingRefused),
    Broken("served fit", AsAuthors),
    Broken("served fit", NothingRefused),
    Broken("served fit", ForAuthors),
    Broken("served alike", AllParents),
    Broken("served alike", AuthorsParents),
    Broken("served alike", OnAuthors),
    Broken("served alike", AsAuthors),
    Broken("served alike", WhereClean),
    Broken("served alike", AuthorsPlaces),
    Broken("once alike", OnceAsOthersSaid),
    Broken("made once", OnceAnyway),
    Broken("made once", OnceWhereAsked),
    Broken("repaired fit", RepairedFromAuthors),
    Broken("repaired fit", NothingRefused),
    Broken("repaired alike", RepairedByHidden),
    Broken("guarded", OwnLabel),
    Broken("guarded", FirstHop),
    Broken("denied", DirectlyDenied),
    Broken("denied", NothingRefused),
    Broken("salted", salting=LastSalt),
    Broken("salted", salting=SaltedAsReaders),
)
