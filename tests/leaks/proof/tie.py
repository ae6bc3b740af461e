"""Compares the rules of the model with the code: random workflows are played by the real resolver, journal and guards
on an engine of sets, and each rule, computed over what was said, must agree with what the code did.

Compared are: refusals, the encodings through which each message is read and their order, positions, cones, for whom
each encoding is made and labelled, and which cache salts are equal. Independent of solvers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import combinations, groupby
from random import Random
from typing import NamedTuple

from agentcho.config import Leakage, ReusePolicy
from agentcho.message import Metadata
from agentcho.protocol.call import DEFAULT_PRIORITY, Call, EncodingId, SchedulingPriority
from agentcho.provenance.labels import EncodingRecord, LeakPaths, ReadGuard
from agentcho.provenance.prefix_cache_salts import cache_salts
from agentcho.provenance.views import History, MessageLog, View, granted

from ..scripts import CAST, Line, named, script
from ..sets import Sets
from ..stage import Plan, Talk
from .rules import KINDS, Kind, Rules, Salting
from .terms import Finite, Thing, Told

WAYS = (
    ReusePolicy("choreographed", "enforce", "auto"),
    ReusePolicy("choreographed", "enforce", "always"),
    ReusePolicy("choreographed", "enforce", "never"),
    ReusePolicy("choreographed", "enforce", "auto", True),
)
CALL = "call"
"""The id of a hypothetical call."""
KEY = b"a key of sixteen bytes or more"


class Noted(Sets):
    """An engine of sets that remembers each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[EncodingId, Call] = {}

    def submit(self, calls: Sequence[Call], turn: SchedulingPriority = DEFAULT_PRIORITY) -> tuple[EncodingId, ...]:
        """See `Sets`."""
        ids = super().submit(calls, turn)
        self.calls.update(zip(ids, calls, strict=True))
        return ids


class Tied(NamedTuple):
    """The number of comparisons of each kind, and where code and model differ."""

    compared: Counter[str]
    differ: list[str]


def aside(random: Random, lines: Sequence[Line]) -> list[Line]:
    """A script in which authors read some of their own messages as others do."""

    def some(plan: Plan) -> Plan:
        mine = [id for id in plan.ids if plan.author is not None and lines[int(id)].plan.author == plan.author]
        return plan._replace(public=frozenset(id for id in mine if random.random() < 0.3))

    return [line._replace(plan=some(line.plan)) for line in lines]


def played(random: Random, length: int, way: ReusePolicy) -> Talk:
    """Plays a random workflow; what nobody read is encoded at the end."""
    talk, lines, ids = Talk(Noted(), way), aside(random, script(random, length)), dict[int, str]()
    for _, group in groupby(enumerate(lines), key=lambda pair: pair[1].round):
        numbers, plans = [], []
        for number, line in group:
            whole = named(line.plan, ids)
            numbers.append(number)
            plans.append(whole._replace(public=frozenset(ids[int(id)] for id in line.plan.public)))
        said = talk.speak(*plans) if plans[0].generated else [talk.put(plans[0])]
        ids.update(zip(numbers, said, strict=True))
    talk._encode(list(talk.world.said))
    return talk


def told(talk: Talk, rules: type[Rules] = Rules) -> dict[str, Told]:
    """What was said in a play, for the model. Positions relative to another message are left to the code. If shadows
    are made, messages with `once` have none."""
    said = dict[str, Told]()
    shadowed = talk.reuse.shadow != "never" and not talk.reuse.deterministic
    for id, one in talk.world.said.items():
        plan = talk.plans[id]
        places = {read: at if isinstance(at, int) else None for read, at in plan.reads}
        reads = tuple((read, places[read]) for read in one.reads)
        asked = plan.at is not None or any(at is not None for _, at in plan.reads)
        said[id] = Told(one.author, one.audience, reads, one.public, asked)
        once = shadowed and plan.generated and rules(Finite(said, frozenset(CAST))).once(id)
        said[id] = said[id]._replace(once=once)
    return said


class Model:
    """The rules over one play."""

    def __init__(self, said: Mapping[str, Told], rules: type[Rules] = Rules) -> None:
        self.terms = Finite(said, frozenset(CAST))
        self.rules = rules(self.terms)
        self.audiences = {one.readers for one in said.values()}
        self.in_cone: Callable[[Kind, Thing, Thing], bool] = cache(self._in_cone)
        self.marked: Callable[[Kind, Thing, Thing], bool] = cache(self._marked)
        self.hears: Callable[[Thing, Thing], bool] = cache(self._hears)

    def _in_cone(self, kind: Kind, message: Thing, other: Thing) -> bool:
        return bool(self.rules.in_cone(kind, message, other, self.below(kind, message, self.in_cone)))

    def _marked(self, kind: Kind, message: Thing, audience: Thing) -> bool:
        return bool(self.rules.labelled(kind, message, audience, self.below(kind, message, self.marked)))

    def below(self, kind: Kind, message: Thing, asked: Callable[..., bool]) -> Callable[[Kind, Thing, Thing], bool]:
        """The answer for an encoding's context; False for anything else, which no rule needs, so that the recursion
        ends."""

        def answer(below: Kind, read: Thing, thing: Thing) -> bool:
            return bool(self.rules.over(kind, message, below, read)) and asked(below, read, thing)

        return answer

    def _hears(self, agent: Thing, message: Thing) -> bool:
        reads = [read for read, _ in self.terms.said[message].reads]
        return bool(self.rules.hears(agent, message, lambda a, m: m in reads and self.hears(a, m)))

    def context(self, kind: Kind, message: str) -> list[tuple[Kind, str]]:
        """The context of an encoding, in order."""
        reads = [read for read, _ in self.terms.said[message].reads]
        return [(below, read) for read in reads for below in KINDS if self.rules.over(kind, message, below, read)]

    def cone(self, kind: Kind, message: str) -> set[str]:
        """Everything that could have influenced an encoding."""
        return {other for other in self.terms.said if self.in_cone(kind, message, other)}

    def labels(self, kind: Kind, message: str) -> set[frozenset[str] | None]:
        """The audiences of these messages."""
        return {audience for audience in self.audiences if self.marked(kind, message, audience)}


def tied(seed: int, length: int = 8, rules: type[Rules] = Rules) -> Tied:
    """Compares code and model on one random workflow."""
    random = Random(seed)
    talk = played(random, length, WAYS[seed % len(WAYS)])
    counts, differ = Counter[str](workflows=1), list[str]()
    model = Model(told(talk, rules), rules)
    of_play = (*_encodings(talk, model), *_repairs(talk, model))
    for what, code, said in (*of_play, *_refusals(random, talk, rules), *_salts(random, talk, rules)):
        counts[what.partition(" ")[0]] += 1
        if code != said:
            differ.append(f"seed {seed}: {what}: the code has {code}, the model {said}")
    return Tied(counts, differ)


Check = tuple[str, object, object]
"""What is compared, what the code did, what the model says."""


def _encodings(talk: Talk, model: Model) -> Iterator[Check]:
    assert isinstance(talk.engine, Noted)
    for record in talk.records.values():
        kind, message = record.recipe, record.message
        assert kind == "author" or kind == "audience"
        over = [(talk.records[e.id].recipe, talk.records[e.id].message) for e in record.receipt.context]
        yield f"contexts {kind} of {message}", over, model.context(kind, message)
        yield f"cones {kind} of {message}", set(record.cone), model.cone(kind, message)
        yield from _places(record, kind, model)
        call, whom = talk.engine.calls[record.id], model.rules.clearance(kind, message)
        guard = call.guard
        assert isinstance(guard, ReadGuard)
        yield f"clearances {kind} of {message}", guard._clearance.members, whom
        words = json.dumps("everyone" if whom is None else sorted(whom))
        yield f"classes {kind} of {message}", call.salt.endswith(words), True
        labels = {label.audience.members for label in guard._labels[record.id]}
        yield f"labels {kind} of {message}", labels, model.labels(kind, message)


def _places(record: EncodingRecord, kind: Kind, model: Model) -> Iterator[Check]:
    """If the model has no position, an audience encoding has a contiguous context. If an author asked for no position,
    or for one relative to another message, the code determines it."""
    end = 1
    for entry, (_, read) in zip(record.receipt.context, model.context(kind, record.message), strict=False):
        place = model.rules.place(kind, record.message, read)
        if place is not None or kind == "audience":
            yield f"places {kind} of {record.message}, {read}", entry.offset, end if place is None else place
        end = entry.offset + entry.length


def _repairs(talk: Talk, model: Model) -> Iterator[Check]:
    for id, draft in talk.resolver.drafts.items():
        yield f"repairs {id}", bool(talk.resolver._context_of_others(draft)), model.rules.repaired(id)


def _may_read(agent: str, message: Metadata) -> bool:
    return message.audience.includes(agent)


def _refusals(random: Random, talk: Talk, rules: type[Rules]) -> Iterator[Check]:
    """Random calls by any agent over any messages."""
    drafts, said = talk.resolver.drafts, told(talk)
    history = History(MessageLog(draft.metadata for draft in drafts.values()))
    for _ in range(4):
        caller, ids = random.choice(CAST), random.sample(list(said), min(len(said), random.randint(1, 3)))
        reads = granted(caller, View.of(ids), partial(_may_read, caller), history)
        asked = Model({**said, CALL: Told(caller, None, tuple((id, None) for id in ids))}, rules)
        ways: tuple[tuple[Leakage, object], ...] = (
            ("enforce", asked.rules.refused(CALL)),
            ("deny", asked.rules.denied(CALL, asked.hears)),
        )
        for leakage, refused in ways:
            path = LeakPaths(ReusePolicy("choreographed", leakage), drafts).leak_path(reads)
            yield f"refusals {leakage} of {caller} over {ids}", bool(path), refused


def _salts(random: Random, talk: Talk, rules: type[Rules]) -> Iterator[Check]:
    """Random requests by any agent, compared in pairs."""
    drafts, model = talk.resolver.drafts, Model(told(talk), rules)
    requests = []
    for _ in range(4):
        ids = random.sample(list(drafts), min(len(drafts), random.randint(1, 2)))
        requests.append((random.choice(CAST), ids))
    salting = Salting(model.rules, lambda q, a: q[0] == a, lambda q, m: m in q[1], lambda q, m: m == q[1][-1])
    for one, other in combinations(requests, 2):
        salts = {cache_salts([drafts[id].metadata for id in ids], who, key=KEY)[-1] for who, ids in (one, other)}
        yield f"salts of {one} and {other}", len(salts) == 1, salting.salt_is_one(one, other)
