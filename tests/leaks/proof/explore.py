"""Enumerates all workflows of a scope, and checks what reached whom.

Every call is checked when it is the last of a workflow: what its reader attends to, and every encoding that is made for
it, must depend exactly on what the rules, computed over bit sets, allow; and if something was hidden from its author,
the same call in a play with that swapped, and in one without it, must depend on exactly the same. Earlier calls were
checked in a shorter workflow, and do not depend on later ones. Independent of processes and files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from agentcho.config import ReusePolicy
from agentcho.reuse.first_k import FirstK

from .scope import Perms, Said, Scope
from .small import NAMES, Heard, Made, Play

WAYS = {
    "auto": ReusePolicy("choreographed", "enforce", "auto"),
    "never": ReusePolicy("choreographed", "enforce", "never"),
    "always": ReusePolicy("choreographed", "enforce", "always"),
    "deterministic": ReusePolicy("choreographed", "enforce", "auto", True),
    "repair first-k:2": ReusePolicy("choreographed", "enforce", repair=FirstK(2)),
    "repair full": ReusePolicy("choreographed", "enforce", repair="full"),
}
"""The reuse policies of a scope's calls."""


class Found(NamedTuple):
    """The number of `workflows` of full length, up to renaming agents, and `named` with all names; for these and
    shorter ones, the numbers of checked `calls` of agents and `encodings`, and of calls compared with `swapped` and
    with `absent` secrets. `violations` counts errors, and `told` describes the first few."""

    workflows: int = 0
    named: int = 0
    calls: int = 0
    encodings: int = 0
    swapped: int = 0
    absent: int = 0
    violations: int = 0
    told: tuple[str, ...] = ()

    def and_of(self, other: Found) -> Found:
        """The sum of both."""
        counts = Counter(self.counts)
        counts.update(other.counts)
        return Found(**counts, told=(*self.told, *other.told)[:MOST])

    @property
    def counts(self) -> dict[str, int]:
        """All numbers."""
        return {name: count for name, count in self._asdict().items() if name != "told"}


MOST, KEPT = 20, 10_000
"""How many violations are reported, and how many are stored."""


class Explorer:
    """Explores one scope with one policy. `problems` describes the violations. The readers' own plays are used only
    when something is hidden from them."""

    def __init__(self, scope: Scope, way: str = "auto") -> None:
        self.scope, self._way = scope, way
        policy = WAYS[way]
        self._plain = Play(policy, guarded=False)
        self._swapped = [Play(policy, True, reader, "others") for reader in range(scope.agents)]
        self._absent = [Play(policy, True, reader, "absent") for reader in range(scope.agents)]
        self._counts, self.problems = Counter[str](), list[str]()
        self._public, self._own, self._once = list[int](), list[int](), list[bool]()
        self._shadowed = policy.shadow != "never" and not policy.deterministic and policy.repair is None

    def explore(self, said: tuple[Said, ...], fixing: Perms) -> Found:
        """Explore all longer workflows that begin with `said`, which counts as checked."""
        self._counts, self.problems = Counter(), []
        self._public, self._own, self._once = [], [], []
        for number, one in enumerate(said):
            self._reach(said[:number], one)
        self._deeper(said, fixing)
        counts = {name: self._counts[name] for name in Found().counts}
        return Found(**counts, told=tuple(self.problems[:MOST]))

    def _deeper(self, said: tuple[Said, ...], fixing: Perms) -> None:
        last = len(said) == self.scope.messages - 1
        compared = set[tuple[int | None, tuple[int, ...]]]()
        for one, left in self.scope.after(said, fixing):
            fresh = (call := (one.who.author, one.reads)) not in compared
            compared.add(call)
            self._reach(said, one)
            self._check(said, one, fresh)
            if last:
                self._counts["workflows"] += 1
                self._counts["named"] += len(self.scope.renamings) // len(left)
            else:
                self._deeper((*said, one), left)
            self._public.pop()
            self._own.pop()
            self._once.pop()

    def _reach(self, said: tuple[Said, ...], one: Said) -> None:
        """What may reach all readers of a message, and its author: the rules of the design over bit sets. Also whether
        one encoding serves both."""
        own = public = 1 << len(said)
        author = one.who.author
        once = self._shadowed and author is not None and (one.who.everyone or one.who.readers != 1 << author)
        for read in one.reads:
            mine = said[read].who.author == one.who.author
            own |= self._own[read] if mine else self._public[read]
            if said[read].who.covers(one.who):
                public |= self._public[read]
                once = once and (not mine or self._once[read])
            else:
                once = False
        self._public.append(public)
        self._own.append(own)
        self._once.append(once)

    # -- one call ----------------------------------------------------------------------------------------

    def _check(self, said: tuple[Said, ...], one: Said, fresh: bool) -> None:
        """`fresh`: no call of this author over these messages was compared yet; the comparison ignores its audience."""
        if one.who.author is None:
            return
        self._counts["calls"] += 1
        whole, problems = (*said, one), list[str]()
        heard = self._said(self._plain, said, one, problems)
        if heard is not None:
            problems += [*self._read(whole, heard), *self._made(whole, heard)]
            if fresh and any(not each.who.includes(one.who.author) for each in said):
                problems += self._compared(said, one, heard)
        self._counts["violations"] += len(problems)
        if len(self.problems) < KEPT:
            self.problems += (f"{shown(whole)}: {problem}" for problem in problems)

    def _said(self, play: Play, said: tuple[Said, ...], one: Said, problems: list[str]) -> Heard | None:
        """Say one message in a play, and take it back; None if it was refused."""
        try:
            play.follow(said)
            heard = play.say(one)
            play.take_back()
        except AssertionError as refused:
            problems.append(str(refused))
            play._begin()
            return None
        return heard

    def _read(self, whole: tuple[Said, ...], heard: Heard) -> Iterator[str]:
        """What the caller attends to is for it, is exactly what it asked for, and is read through the encoding that the
        rules give."""
        reader = whole[-1].who.author
        assert reader is not None
        for record, reached in heard.context:
            number = int(record.message)
            for each, other in enumerate(whole):
                if reached >> each & 1 and not other.who.includes(reader):
                    yield f"message {each} reached agent {reader} through {record.recipe} of {number}"
            mine = whole[number].who.author == reader and not self._once[number]
            if record.recipe != "repaired" and record.recipe != ("author" if mine else "audience"):
                yield f"agent {reader} reads {number} through {record.recipe}"
        if [int(record.message) for record, _ in heard.context] != list(whole[-1].reads):
            yield "other messages are read than were asked for"

    def _made(self, whole: tuple[Said, ...], heard: Heard) -> Iterator[str]:
        """Each encoding is fit for all it is made for, and its cone is what went into it, which is exactly what may."""
        self._counts["encodings"] += len(heard.made)
        for made in heard.made:
            number, recipe = int(made.record.message), made.record.recipe
            if sum(1 << int(each) for each in made.record.cone) != made.reached:
                cone = ", ".join(sorted(made.record.cone))
                yield f"the cone of {recipe} of {number} is {cone}, and {made.reached:b} went into it"
            yield from self._unfit(whole, made)
            if recipe in ("author", "audience") and not self._way.startswith("repair"):
                may = self._own[number] if recipe == "author" else self._public[number]
                if made.reached != may:
                    yield f"{made.reached:b} went into {recipe} of {number}, and {may:b} may"

    def _unfit(self, whole: tuple[Said, ...], made: Made) -> Iterator[str]:
        whom = whole[int(made.record.message)].who
        for each, other in enumerate(whole):
            if not made.reached >> each & 1:
                continue
            if made.record.recipe == "audience":
                fit = other.who.covers(whom)
            else:
                fit = made.record.caller is None or other.who.includes(AGENTS[made.record.caller])
            if not fit:
                yield f"message {each} is in {made.record.recipe} of {made.record.message}"

    def _compared(self, said: tuple[Said, ...], one: Said, heard: Heard) -> Iterator[str]:
        """Compares the call with the same call when everything hidden from its author is swapped, or absent."""
        reader = one.who.author
        assert reader is not None
        for kind, plays in (("swapped", self._swapped), ("absent", self._absent)):
            problems = list[str]()
            other = self._said(plays[reader], said, one, problems)
            self._counts[kind] += 1
            yield from (f"{kind}: {problem}" for problem in problems)
            if other is not None and other.key != heard.key:
                yield f"with secrets {kind} agent {reader} is served something else"


AGENTS = {name: agent for agent, name in enumerate(NAMES)}


def shown(said: tuple[Said, ...]) -> str:
    """A workflow in one line: who says to whom, having read what."""
    lines = []
    for one in said:
        whom = "all" if one.who.everyone else "".join(str(a) for a in AGENTS.values() if one.who.includes(a))
        lines.append(f"{'-' if one.who.author is None else one.who.author}>{whom}{list(one.reads)}")
    return " ".join(lines)
