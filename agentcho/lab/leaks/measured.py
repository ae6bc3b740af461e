"""Attacks each kind of secret through each reading mode by each attack, and times first tokens in each mode.

Every outcome is saved beside the result file at once, so that an interrupted run can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

from pydantic import Field

from agentcho.errors import ConfigError
from agentcho.games.runs.replay import Replayed, replay
from agentcho.lab.bench.workflows import dilemma
from agentcho.lab.leaks import scene as scenes
from agentcho.lab.leaks.asked import asked
from agentcho.lab.leaks.collision import collision
from agentcho.lab.leaks.guesses import Case, Effort, Guess
from agentcho.lab.leaks.inversion import inversion
from agentcho.lab.leaks.probes import linear, mlp
from agentcho.lab.leaks.result import Cost, Outcome, Secrets
from agentcho.lab.leaks.scene import SECRET, Scene, Sentence, scene
from agentcho.lab.leaks.secrets import Split, Symbols, drawn, kind, split
from agentcho.lab.leaks.seen import seen
from agentcho.lab.leaks.ways import Way
from agentcho.lab.measure.play import Ids
from agentcho.lab.partial import PartialData, PartialResult, code_digest
from agentcho.lab.stats import spread
from agentcho.lab.timing import first_token, in_turns
from agentcho.protocol.progress import ProgressCallback

Attack = Callable[[Case], Guess | str]
ATTACKS: Mapping[str, Attack] = {
    "linear": linear,
    "mlp": mlp,
    "inversion": inversion,
    "collision": collision,
    "asked": asked,
}
"""All attacks by name."""
AT_ONCE = 1 << 20
"""A stride longer than any text."""
FOLDERS = ("lab/leaks", "lab/measure", "provenance", "engine", "reuse", "runner", "protocol")


class AttackOptions(NamedTuple):
    """What is measured: `kinds` of secrets, `ways` and `attacks` by name, on `n` secrets per kind."""

    kinds: tuple[str, ...]
    ways: tuple[Way, ...]
    attacks: tuple[str, ...]
    n: int
    sentence: Sentence
    earlier: int
    seed: int
    repeats: int
    effort: Effort

    def check(self) -> None:
        """`ConfigError`: unknown attack or kind, too few secrets of a kind, or a reading mode with nothing to learn
        from."""
        for attack in self.attacks:
            if attack not in ATTACKS:
                raise ConfigError(f"unknown attack {attack!r}; give one of {', '.join(ATTACKS)}")
        for each_way in self.ways:
            if each_way.learns and not self.earlier:
                raise ConfigError(
                    f"{each_way.name} learns from earlier reads, but there are none: it would encode everything anew, "
                    "as text does; give --earlier 1 or more, or leave it out"
                )
        for each in self.kinds:
            drawn(kind(each), self.n, self.seed)
        split(self.n, self.seed)

    @property
    def settings(self) -> dict[str, str]:
        """The settings that outcomes depend on."""
        free = {"kinds", "ways", "attacks", "repeats"}
        return {name: str(value) for name, value in self._asdict().items() if name not in free}


class LeaksPart(PartialData):
    """The content of the file: the outcome of each attack."""

    format: Literal["agentcho-bench-leaks-part/1"] = "agentcho-bench-leaks-part/1"
    outcomes: list[Outcome] = Field(default_factory=list)


class PartialLeaks(PartialResult[LeaksPart]):
    """The partial results."""

    data_type = LeaksPart
    by = "`agentcho bench leaks`"

    def known(self, of: str, way: Way, attack: str) -> bool:
        """Whether this outcome is saved."""
        return any((each.kind, each.way, each.attack) == (of, way.name, attack) for each in self.data.outcomes)

    def add(self, outcome: Outcome) -> None:
        """Add an outcome, and save."""
        self.data.outcomes.append(outcome)
        self.save()

    def outcomes(self, asked: AttackOptions) -> list[Outcome]:
        """The requested outcomes, in the order of kinds, modes and attacks."""
        known = {(each.kind, each.way, each.attack): each for each in self.data.outcomes}
        wanted = ((of, way.name, a) for of in asked.kinds for way in asked.ways for a in asked.attacks)
        return [known[key] for key in wanted if key in known]


class _Drawn(NamedTuple):
    """The secrets of one kind on one engine."""

    scene: Scene
    symbols: Symbols
    split: Split
    said: list[Ids] | None


def measure(engine: Any, asked: AttackOptions, kept: PartialLeaks, tell: ProgressCallback) -> tuple[Secrets, ...]:
    """Run the attacks that are not saved yet. `tell` receives the progress in attacks."""
    asked.check()
    found, place, of = list[Secrets](), 0, len(asked.kinds) * len(asked.ways) * len(asked.attacks)
    for name in asked.kinds:
        given = _draw(engine, asked, name, _telling(tell, name, place, of))
        found.append(_told(asked, given))
        for way in asked.ways:
            lacking = [attack for attack in asked.attacks if not kept.known(name, way, attack)]
            if lacking:
                case = _case(
                    engine=engine,
                    asked=asked,
                    given=given,
                    way=way,
                    told=_telling(tell, f"{name}, {way.name}", place, of),
                )
                for attack in lacking:
                    kept.add(_outcome(case, attack))
            place += len(asked.attacks)
    tell("attacks", of, of)
    return tuple(found)


def _telling(tell: ProgressCallback, what: str, place: int, of: int) -> Callable[[str], None]:
    """A callback that reports the work on one attack, or on what it needs."""
    return lambda doing: tell(f"attacks ({what}: {doing})", place, of)


def _draw(engine: Any, asked: AttackOptions, name: str, told: Callable[[str], None]) -> _Drawn:
    of, symbols = kind(name), drawn(kind(name), asked.n, asked.seed)
    said = None
    if asked.sentence == "natural":
        said = scenes.natural(
            engine=engine, kind=of, secrets=symbols, seed=asked.seed, told=lambda _: told("what Alice says")
        )
    return _Drawn(scene(of, engine, asked.earlier, asked.effort.templates), symbols, split(asked.n, asked.seed), said)


def _told(asked: AttackOptions, given: _Drawn) -> Secrets:
    of = given.scene.kind
    lengths = {len(play.by_id[SECRET].message.tokens) for play in given.scene.plays(given.symbols)}
    return Secrets(
        kind=of.name,
        size=of.size,
        entropy=of.entropy,
        symbols=len(of.slots),
        options=of.options,
        lengths=len(lengths),
        sentences=1 if given.said is None else len(set(given.said)),
    )


def _case(engine: Any, asked: AttackOptions, given: _Drawn, way: Way, told: Callable[[str], None]) -> Case:
    plays = given.scene.plays(given.symbols, given.said)
    looked = seen(engine=engine, plays=plays, before=given.scene.before, way=way, told=lambda _: told("encodings"))
    case = Case(
        engine=engine,
        scene=given.scene,
        way=way,
        symbols=given.symbols,
        split=given.split,
        seen=looked,
        seed=asked.seed,
        said=given.said,
        effort=asked.effort,
    )
    return replace(case, told=told)


def _outcome(case: Case, attack: str) -> Outcome:
    found = ATTACKS[attack](case)
    named: dict[str, Any] = {"kind": case.scene.kind.name, "way": case.way.name, "attack": attack}
    if isinstance(found, str):
        return Outcome(**named, unavailable=found)
    right = (found.symbols == case.of(case.split.test)).sum(axis=1)
    return Outcome(
        **named,
        right=tuple(int(each) for each in right),
        logq=tuple(float(each) for each in found.logq),
        entropy=found.entropy,
        chance=found.chance,
        where=found.where,
        symbols_chance=found.symbols_chance,
    )


def costs(engine: Any, asked: AttackOptions, tell: ProgressCallback) -> tuple[Cost, ...]:
    """Mean seconds to the first token in each reading mode, interleaved, on a game of random words; the text alone
    stands for reading it in one's own prompt (baseline)."""
    trace = dilemma(asked.seed)
    takes: dict[str, Callable[[Any], Replayed]] = {
        way.name: partial(_timed, engine, way._replace(policy=way.policy._replace(deterministic=False, shadow="auto")))
        for way in asked.ways
    }
    rounds = asked.repeats + 1
    found = in_turns(takes, [trace] * rounds, lambda done: tell("repeats (first tokens)", done + 1, rounds))
    seconds = {name: tuple(first_token(each) for each in taken) for name, taken in found.items()}
    return tuple(
        Cost(way=name, workflow=trace.id, seconds=each, spread=spread(each, asked.seed))
        for name, each in seconds.items()
    )


def _timed(engine: Any, way: Way, trace: Any) -> Replayed:
    return replay(trace, engine, way.policy, logits=False, stride=AT_ONCE)


def digest() -> str:
    """A digest of the source folders that a measurement runs."""
    return code_digest(FOLDERS)
