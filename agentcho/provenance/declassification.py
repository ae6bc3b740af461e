"""Bounds how much an agent's words may reveal, about whose secrets, and to whom. Bounds depend on who read what, and on
how many texts are possible, never on the text itself.

A message blocks an audience if the words are generated over it and not all of the audience may read it. A secret is
such a message, or one that its words may repeat: what its author had read, transitively, as far as the reader may not
read it. Words that could be one of n texts reveal at most log2(n) bits of all secrets together to a reader
(min-entropy, whatever the reader knew before), and each owner of a secret is charged in full; charges of one owner and
one reader add up. Independent of sampling, texts and records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import log2
from typing import Any, NamedTuple

from agentcho.config import ReusePolicy, RunConfig, WordsRule
from agentcho.errors import SHOWN, LeakageError
from agentcho.message import EVERYBODY, SCENARIO, Audience, Metadata
from agentcho.protocol.call import Sampling
from agentcho.protocol.regex_cardinality import Uncountable
from agentcho.protocol.schema_cardinality import admitted_values, canonical, contains, count
from agentcho.provenance.drafts import Draft
from agentcho.provenance.labels import Cone, MessageIndex
from agentcho.provenance.planned_reach import PlannedReach
from agentcho.provenance.tool_sinks import NOBODY, undisclosed
from agentcho.provenance.views import Charge, ReadSet

Owed = tuple[tuple[str, tuple[str, ...]], ...]
"""For each owner of secrets, the readers who may learn of them."""
LEAST = 1e-9
"""Tolerance for sums of logarithms, in bits."""


def owner_of(message: Metadata) -> str:
    """The owner of a message as a secret: its author; for a message of the scenario, its audience."""
    if message.author is not None:
        return message.author
    return str(message.audience) if message.audience.members else SCENARIO


def readers_of(to: Audience, author: str | None, cast: Iterable[str]) -> list[str]:
    """The readers of an author's message to an audience, without the author. For a public message they include
    "everyone", which stands for readers of public messages alone."""
    names = {*cast, EVERYBODY} if to.members is None else set(to.members)
    return sorted(names - {author})


class SecretReach:
    """What one reader may learn from words that were generated over given messages. `audience` returns who may read a
    message, `sources` the messages that its words may repeat, all of them earlier."""

    def __init__(self, audience: Callable[[str], Audience], sources: Callable[[str], Iterable[str]]) -> None:
        self._audience = audience
        self._sources = sources
        self._roll = MessageIndex()
        self._known: dict[tuple[str, str], Cone] = {}

    def told(self, over: Iterable[str], reader: str) -> Cone:
        """The messages that the reader may not read and that words over these messages may reveal."""
        bits = 0
        for id in self._hidden(over, reader):
            bits |= self._behind(id, reader).bits
        return Cone(self._roll, bits)

    def _hidden(self, ids: Iterable[str], reader: str) -> Iterator[str]:
        return (id for id in ids if not self._audience(id).includes(reader))

    def _behind(self, id: str, reader: str) -> Cone:
        """A message that the reader may not read, and all such messages that it may repeat. Uses an explicit stack,
        because a chain of messages may be as long as a game."""
        waiting, known = [id], self._known
        while waiting:
            here = waiting[-1]
            over = [] if (here, reader) in known else [*self._hidden(self._sources(here), reader)]
            if lacking := [each for each in over if (each, reader) not in known]:
                waiting += lacking
                continue
            known.setdefault((here, reader), self._roll.cone(here, (known[each, reader] for each in over)))
            waiting.pop()
        return known[id, reader]


@lru_cache(maxsize=1024)
def _bits(schema: str) -> float:
    return log2(count(admitted_values(json.loads(schema))) or 1)


def schema_bits(schema: Mapping[str, Any]) -> float:
    """The bits that canonical JSON of a schema can reveal: log2 of the number of values that it admits. Raises
    `Uncountable` if that is unknown."""
    return _bits(json.dumps(schema, sort_keys=True))


def sampling_bits(options: Sampling) -> Charge:
    """The maximum that text sampled with these options can reveal. Raises `Uncountable` if there is no bound."""
    if options.choices is not None:
        return Charge("choices", log2(len(set(options.choices))))
    if options.json_schema is not None:
        return Charge("schema", schema_bits(options.json_schema), schema=options.json_schema)
    raise Uncountable("its text is not restricted")


def canonical_json(text: str, schema: Mapping[str, Any]) -> str | None:
    """JSON text in its canonical spelling. None if it is not JSON, or the schema does not admit it."""
    try:
        value = json.loads(text)
        return canonical(value) if contains(admitted_values(schema), value) else None
    except (RecursionError, ValueError):
        return None


class DisclosureBudget:
    """The charges of one game, by owner of secrets and reader. `budget` is in bits (None: unlimited)."""

    def __init__(self, budget: float | None = None) -> None:
        self.budget = budget
        self._bits: dict[tuple[str, str], float] = {}
        self._readers: set[str] = set()

    def left(self, owner: str, reader: str) -> float | None:
        """The bits that a reader may still learn of an owner's secrets. A new reader counts as having read all public
        messages."""
        here = (owner, reader if reader in self._readers else EVERYBODY)
        return None if self.budget is None else self.budget - self._bits.get(here, 0.0)

    def add(self, charge: Charge, readers: Iterable[str]) -> None:
        """Add a charge. `readers` are all who may read the message."""
        for reader in readers:
            self._meet(reader)
        for owner, told in charge.owed:
            for reader in told:
                self._bits[owner, reader] = self._bits.get((owner, reader), 0.0) + (charge.bits or 0.0)

    def _meet(self, reader: str) -> None:
        if reader not in self._readers:
            self._readers.add(reader)
            public = {owner: bits for (owner, whom), bits in self._bits.items() if whom == EVERYBODY}
            self._bits |= {(owner, reader): bits for owner, bits in public.items()}


class PlannedDisclosure(NamedTuple):
    """A message that an agent is about to generate over `reads`, and over the private message `prompt`, if any.
    `release`: the code lets it pass in any case. `shown`: messages that a person who writes it was shown before, and
    does not forget. `result`: it is the result of a tool for a call that was made over all that."""

    author: str
    to: Audience
    reads: ReadSet
    options: Sampling
    prompt: str | None = None
    release: bool = False
    shown: tuple[str, ...] = ()
    result: bool = False


class DisclosureRule:
    """The rule of one game for words. `drafts` are its messages by id, `cast` its agents by name; both grow.

    The budget is spent when a message is requested, whatever its outcome. Whether it is refused depends on how much
    each reader was told, which is public like the schedule, and not on words.
    """

    def __init__(
        self,
        rule: WordsRule,
        budget: float | None,
        reuse: ReusePolicy,
        drafts: Mapping[str, Draft],
        cast: Collection[str],
    ) -> None:
        self._rule = rule
        self._drafts = drafts
        self._cast = cast
        encoded = reuse if reuse.mode == "choreographed" else ReusePolicy()  # a baseline is judged as under enforce
        self._reach = PlannedReach(encoded, drafts)
        self._secrets = SecretReach(self._audience, self._sources)
        self._spent = DisclosureBudget(budget)

    def _audience(self, id: str) -> Audience:
        return self._drafts[id].metadata.audience

    def _sources(self, id: str) -> Iterator[str]:
        """The messages that the words of a message may repeat: all that it was sampled over, all that a person had
        read, the message that it releases, the call of a result. Known text is the code's own."""
        draft = self._drafts[id]
        if draft.metadata.kind == "decode":
            yield from self._reach.of(draft.reads)
        if draft.human and draft.metadata.author is not None:
            yield from (*self._read_before(id, draft.metadata.author), *draft.act.shown)
        yield from (each for each in (draft.act.released, draft.act.call) if each is not None)

    def _read_before(self, id: str, who: str) -> Iterator[str]:
        """The messages that a person may have read before this message."""
        for each, draft in self._drafts.items():
            if each == id:
                return
            if draft.metadata.audience.includes(who):
                yield each

    def charge(self, saying: PlannedDisclosure) -> Charge | None:
        """Charge what a message may reveal, and return the charge. None if nothing blocks it. Raises `LeakageError` as
        `check` does."""
        charge = self.check(saying)
        if charge is not None:
            self._spent.add(charge, readers_of(saying.to, saying.author, self._cast))
        return charge

    def check(self, saying: PlannedDisclosure) -> Charge | None:
        """The charge of a message before any of it is generated. Charges nothing. If the rule refuses, raises
        `LeakageError` if there is no bound on what it may reveal, or if the bound exceeds the remaining budget."""
        author, to = saying.author, saying.to
        others = to if to.members is None else Audience(to.members - {author})
        over = [*dict.fromkeys((*self._reach.of(saying.reads), *saying.shown))]
        blocking = undisclosed(over, others, self._audience)
        private = saying.prompt is not None and others != NOBODY
        if not blocking and not private:
            return None
        own = [author] if private else []
        owed = self._owed(over, author, to, own)
        if saying.release:
            return Charge("release", owed=owed)
        try:
            if saying.result:
                raise Uncountable("a tool can repeat the words that it was given")
            charge = sampling_bits(saying.options)._replace(owed=owed)
        except Uncountable as error:
            if self._rule == "refuse":
                raise self._refusal(saying, [*blocking, *([saying.prompt or ""] * private)], error) from None
            return Charge("words", owed=owed)
        self._afford(charge, saying)
        return charge

    def release(self, author: str, to: Audience, id: str) -> Charge | None:
        """The charge for message `id`, whose words the code releases to another audience. It has no bound, and audits
        list it. None if there is nothing to list."""
        owed = self._owed([id, *self._sources(id)], author, to)
        return Charge("release", owed=owed) if owed else None

    def _refusal(self, saying: PlannedDisclosure, blocking: Iterable[str], why: Uncountable) -> LeakageError:
        """The error, which only names those blocking messages that the author may know of."""
        author, prompt = saying.author, saying.prompt
        known = [id for id in blocking if id == prompt or self._audience(id).includes(author)]
        named = [f"{id} ({self._by(id) if id != prompt else 'its prompt'})" for id in known]
        behind = ", ".join([*named[:SHOWN], *([f"{len(named) - SHOWN} more"] if len(named) > SHOWN else [])])
        who = "everyone" if saying.to.members is None else "everyone to whom it is said"
        those = f"not {who} may read what is read for it ({behind or 'by way of what others had read'})"
        if saying.result:
            return refused(author, f"it calls a tool whose result others are to read, {those}. {_ALONE}", known)
        return refused(author, f"{those}, and {why}. {_OPEN}", known)

    def _by(self, id: str) -> str:
        return f"by {self._drafts[id].metadata.author or SCENARIO}"

    def _owed(self, over: Collection[str], author: str, to: Audience, own: Iterable[str] = ()) -> Owed:
        """The owners of secrets that words over these messages may reveal, and for each the readers who may learn of
        them."""
        found: dict[str, list[str]] = {}
        for reader in readers_of(to, author, self._cast):
            secrets = self._secrets.told(over, reader)
            for owner in {*own, *(owner_of(self._drafts[id].metadata) for id in secrets)}:
                found.setdefault(owner, []).append(reader)
        return tuple((owner, tuple(found[owner])) for owner in sorted(found))

    def _afford(self, charge: Charge, saying: PlannedDisclosure) -> None:
        """Raise `LeakageError` if the rule refuses and the budget of an owner and a reader is too small."""
        pairs = ((owner, reader) for owner, readers in charge.owed for reader in readers)
        lefts = [(left, *pair) for pair in pairs if (left := self._spent.left(*pair)) is not None]
        left, owner, reader = min(lefts, default=(None, "", ""))
        if self._rule == "refuse" and left is not None and charge.bits is not None and charge.bits > left + LEAST:
            whose = owner if self._sees(saying, owner) else "others"
            raise refused(
                saying.author,
                f"it can tell {reader} {charge.bits:.4g} bits about secrets of {whose}, but only "
                f"{max(0.0, left):.4g} of the {self._spent.budget:g} bits of leak_budget are left. Offer "
                "fewer choices, or raise leak_budget",
            )

    def _sees(self, saying: PlannedDisclosure, owner: str) -> bool:
        """Whether the author may know whose secret it is, because it reads one of that owner."""
        drafts = (self._drafts[id].metadata for id in self._reach.of(saying.reads))
        return owner == saying.author or any(
            owner_of(each) == owner and each.audience.includes(saying.author) for each in drafts
        )


_LISTED = "or let it pass with release=True, which audits list"
_ALONE = f"Declare no results= of the tool, so that its caller alone reads them, {_LISTED}"
_OPEN = (
    "Read what they may read and nothing else (View.open_to), say it by choose or by an answer with bounds, which are "
    f"charged, {_LISTED}"
)


def refused(author: str, why: str, messages: Sequence[str] = ()) -> LeakageError:
    """The error of words that are not sampled. `why` says what they may reveal about `messages`, and what to do."""
    error = LeakageError(author, messages)
    error.args = (f"{author} may not say this: {why}",)
    return error


def disclosure_rule(
    config: RunConfig, reuse: ReusePolicy, drafts: Mapping[str, Draft], cast: Collection[str]
) -> DisclosureRule | None:
    """The rule of a game with this configuration. None if it has none."""
    if config.words is None:
        return None
    return DisclosureRule(rule=config.words, budget=config.leak_budget, reuse=reuse, drafts=drafts, cast=cast)
