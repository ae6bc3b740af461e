"""Pairs of plays: a workflow, and the same with everything changed that is hidden from one reader. The reader's
journals must be equal, entry by entry.

A case is drawn entirely from its seed: the workflow, the reader, the change, the way of playing, the room. Pairs whose
plays publish different messages (for example, because a longer secret fills its author's own context, so that it says
nothing in public) do not share a public schedule: the schedule itself reveals something. They count as parted and are
replaced by other cases. If agents play concurrently, the schedule is their own, and every difference counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from random import Random
from typing import Any, Literal, NamedTuple

import anyio

from agentcho import Limits, RunConfig
from agentcho.config import Leakage, Mode, Shadowing

from .play import Schedule, Seen, play
from .workflows import CHANGES, NAMES, Act, Change, changed, comparable, written

Room = Literal["roomy", "short", "tight", "adapted"]
SHADOWS: tuple[Shadowing, ...] = ("auto", "never", "always")
REPAIRS = (None, None, None, "first-k:2", "top-k:0.5", "full")
ENFORCED: tuple[tuple[Mode, Leakage, int], ...] = (
    ("choreographed", "enforce", 7),
    ("choreographed", "deny", 1),
    ("baseline", "enforce", 1),
    ("baseline", "deny", 1),
)
"""Modes and policies, with weights for drawing cases. An audited baseline is left out: it refuses no direct leak."""


@dataclass(frozen=True)
class Case:
    """One pair to be played."""

    seed: int
    reader: str
    change: Change
    config: RunConfig
    room: Room
    acts: tuple[Act, ...]
    beside: bool
    schedule: Schedule = "written"

    @property
    def what(self) -> tuple[str, ...]:
        """The properties that are counted for it."""
        config = self.config
        shadow = "deterministic" if config.deterministic else f"shadow {config.shadow}"
        kind = f"{config.mode} {config.leakage}"
        calls, comes = any(act.calls for act in self.acts), any(act.kind == "streamed" for act in self.acts)
        more = f"room {self.room}", f"beside {self.beside}", f"calls {calls}", f"streamed {comes}"
        return kind, self.change, f"repair {config.repair}", shadow, *more


class Verdict(NamedTuple):
    """The result of one pair: None if it parted, else the first difference of the journals (empty: none)."""

    case: Case
    apart: str | None
    entries: int


def drawn(
    seed: int, rooms: Iterable[Room], exact: bool, leakage: Leakage | None = None, schedule: Schedule = "written"
) -> Case:
    """The case of a seed. `exact`: only in the deterministic profile; `leakage`: this one, in choreographed mode.

    What deny refuses depends on the graph of messages, so nothing is absent under it. A baseline is always
    deterministic: otherwise a reader may read an author's last bits. With concurrent agents the number of messages is
    public, so nothing is absent, no limit on messages ends a game, and there are more acts, and room for them.
    """
    random = Random(seed)
    reader = random.choice((*NAMES, "dave"))
    mode, way, _ = random.choices(ENFORCED, [weight for _, _, weight in ENFORCED])[0]
    if leakage is not None:
        mode, way = "choreographed", leakage
    free, counted = schedule != "written", way == "deny" and mode != "baseline"
    change = random.choice([change for change in CHANGES if change != "absent" or not (free or counted)])
    repair = None if mode == "baseline" else random.choice(REPAIRS)
    deterministic = exact or mode == "baseline" or random.random() < 0.3
    shadow = random.choice(SHADOWS[: 2 if deterministic else 3])
    in_place = mode == "choreographed" and repair is None and random.random() < 0.1
    reuse = "rotate" if not in_place else "ape" if random.random() < 0.5 else "in-place"
    limits = Limits(agent_messages=3) if change != "absent" and random.random() < 0.15 and not free else Limits()
    config = RunConfig(
        mode=mode, leakage=way, shadow=shadow, deterministic=deterministic, repair=repair,
        reuse=reuse,
        temperature=1.0, max_tokens=random.randint(2, 4) + 12 * free, limits=limits,
    )  # fmt: skip
    acts = comparable(written(random, reader, random.randint(3, 8) + 8 * free), change)
    room, beside = random.choice(tuple(rooms)), random.random() < 0.2
    return Case(seed, reader, change, config, room, acts, beside, schedule)


async def judged(case: Case, engine: Callable[[Room], Any]) -> Verdict:
    """Play a case twice, the second time with hidden messages changed, and beside another game if the case says so."""
    first = await play(engine(case.room), case.acts, case.reader, case.config, (), case.schedule)
    other, beside = changed(case.acts, case.reader, case.change), case.acts if case.beside else ()
    second = await play(engine(case.room), other, case.reader, case.config, beside, case.schedule)
    if first.out != second.out and case.schedule == "written":
        return Verdict(case, None, 0)
    return Verdict(case, "; ".join(differences(first, second)), len(first.journal))


def differences(first: Seen, second: Seen) -> Iterator[str]:
    """The first difference between two journals, if any."""
    for number, (one, other) in enumerate(zip_longest(first.journal, second.journal)):
        if one != other:
            yield f"entry {number}: {one} and {other}"
            return


class Result(NamedTuple):
    """The result of many cases: how many were compared and how many parted, what they covered, and what the reader
    could tell apart."""

    compared: int
    parted: int
    entries: int
    covered: Mapping[str, int]
    told: tuple[str, ...]


def compared(
    count: int,
    seeds: Iterator[int],
    engine: Callable[[Room], Any],
    rooms: tuple[Room, ...],
    exact: bool = False,
    leakage: Leakage | None = None,
    most: int = 20,
    schedule: Schedule = "written",
) -> Result:
    """Play pairs until `count` were compared, or `most` of them were told apart."""

    async def work() -> Result:
        done = parted = entries = 0
        covered, told = Counter[str](), list[str]()
        while done < count and len(told) < most:
            verdict = await judged(drawn(next(seeds), rooms, exact, leakage, schedule), engine)
            if verdict.apart is None:
                parted += 1
                continue
            done, entries = done + 1, entries + verdict.entries
            covered.update(verdict.case.what)
            if verdict.apart:
                told.append(f"seed {verdict.case.seed} ({', '.join(verdict.case.what)}): {verdict.apart}")
        return Result(done, parted, entries, covered, tuple(told))

    return anyio.run(work)
