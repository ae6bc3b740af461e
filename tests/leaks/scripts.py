"""Random scripts of plays, and the same scripts with everything that is hidden from one reader changed.

A script refers to its messages by number, so that it is still valid if one of them is never said.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from random import Random
from typing import Literal, NamedTuple

from agentcho.provenance.views import After, Place

from .stage import Plan, Talk

Change = Literal["words", "length", "absence"]
CAST = ("ann", "bob", "cid")
READER = "bob"


class Line(NamedTuple):
    """One message: `plan` reads others by number ("3"); lines of one `round` cannot read each other."""

    plan: Plan
    round: int


def script(random: Random, length: int = 12) -> list[Line]:
    """Agents plan, whisper and speak, in known and generated words, over messages that they may read; at the end the
    reader speaks once over everything it may read, and once over the same in another order."""
    lines: list[Line] = []
    for number in range(length):
        author = random.choice((*CAST, *CAST, None))
        generated = author is not None and random.random() < 0.6
        together = bool(lines) and generated and lines[-1].plan.generated and random.random() < 0.3
        round = lines[-1].round if together else number
        said = [line for line in lines if line.round != round]
        words = " ".join(["so"] * random.randint(1, 4)) + f" {number}"
        lines.append(Line(_plan(random, author, _audience(random, author), words, said, lines, generated), round))
    mine = _readable(READER, lines, lines)
    for number, order in ((length, mine), (length + 1, random.sample(mine, len(mine)))):
        reads = tuple((id, None) for id in order)
        lines.append(Line(Plan(READER, None, f"heard {number}", reads, generated=True), number))
    return lines


def _plan(
    random: Random,
    author: str | None,
    audience: frozenset[str] | None,
    words: str,
    said: Sequence[Line],
    lines: Sequence[Line],
    generated: bool,
) -> Plan:
    pool = _readable(author, said, lines) if author else []
    chosen = random.sample(pool, random.randint(min(1, len(pool)), min(5, len(pool))))
    reads = tuple((id, _place(random, chosen[:i])) for i, id in enumerate(chosen))
    return Plan(author, audience, words, reads, _place(random, chosen), generated)


def _audience(random: Random, author: str | None) -> frozenset[str] | None:
    if random.random() < 0.4:
        return None
    own = {author} if author else set[str]()
    return frozenset({*random.sample(CAST, random.randint(0, 2)), *own})


def _place(random: Random, before: Sequence[str]) -> Place:
    kind = random.random()
    if kind < 0.1:
        return random.randint(0, 50)
    return After(random.choice(before), random.randint(0, 3)) if kind < 0.25 and before else None


def _readable(agent: str, said: Sequence[Line], lines: Sequence[Line]) -> list[str]:
    return [str(lines.index(line)) for line in said if line.plan.audience is None or agent in line.plan.audience]


def hidden(lines: Sequence[Line]) -> list[int]:
    """The messages that the reader may not read."""
    out = []
    for number, (plan, _) in enumerate(lines):
        if plan.audience is not None and READER not in plan.audience:
            out.append(number)
    return out


def changed(lines: Sequence[Line], change: Change) -> dict[int, Line]:
    """The script with everything hidden changed: other words, longer ones, or absent, and then read by nobody."""
    secret = set(hidden(lines))
    kept = {n: line for n, line in enumerate(lines) if change != "absence" or n not in secret}
    for n in secret & kept.keys():
        plan = kept[n].plan
        text = " ".join("no" if word == "so" else "x" for word in plan.text.split())
        kept[n] = kept[n]._replace(plan=plan._replace(text=text if change == "words" else f"{text} and much more"))
    gone = {str(n) for n in secret if n not in kept}
    return {n: line._replace(plan=_without(line.plan, gone)) for n, line in kept.items()}


def _without(plan: Plan, gone: set[str]) -> Plan:
    def place(at: Place) -> Place:
        return None if isinstance(at, After) and at.id in gone else at

    return plan._replace(reads=tuple((id, place(at)) for id, at in plan.reads if id not in gone), at=place(plan.at))


def perform(talk: Talk, lines: dict[int, Line]) -> dict[int, str]:
    """Play a script; returns the ids of its messages by number."""
    ids: dict[int, str] = {}
    for _, group in groupby(sorted(lines.items()), key=lambda pair: pair[1].round):
        numbers, plans = [], []
        for number, line in group:
            numbers.append(number)
            plans.append(named(line.plan, ids))
        said = talk.speak(*plans) if plans[0].generated else [talk.put(plans[0])]
        ids.update(zip(numbers, said, strict=True))
    return ids


def named(plan: Plan, ids: dict[int, str]) -> Plan:
    """A plan with the ids of messages instead of their numbers."""

    def place(at: Place) -> Place:
        return After(ids[int(at.id)], at.plus) if isinstance(at, After) else at

    return plan._replace(reads=tuple((ids[int(id)], place(at)) for id, at in plan.reads), at=place(plan.at))
