"""Random workflows, written out before they are played: who says what to whom after reading what, and at which places.

Everything public about a workflow (order, audiences, views, places) is fixed here, so that the same workflow can be
played again with other hidden words, or without them. Independent of encodings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal, Protocol

from ..looks import Look, Odds, looks

Kind = Literal["join", "announce", "tell", "say"]
SCENARIO = "scenario"
WORDS = ("red", "oak", "sun", "ice", "fox", "sea")
"""All of the same length, in letters and in bytes."""
ODDS = Odds(read=0.8, gap=0.2, plus=5, constant=0.05, at=(100, 200))


class Swap(Protocol):
    """Returns other words for the act of that number, or None if it is never said."""

    def __call__(self, number: int, words: str) -> str | None: ...


@dataclass(frozen=True)
class Act:
    """A planned message. `to` None is everyone. `prompt` is a private question before it; acts of one `round` are
    simultaneous. If its author `judges`, what it reads is repaired."""

    number: int
    kind: Kind
    who: str
    to: tuple[str, ...] | None
    words: str
    view: tuple[Look, ...] = ()
    prompt: str | None = None
    round: int | None = None
    judges: bool = False

    def heard_by(self, agent: str) -> bool:
        """Whether the agent is in the audience."""
        return self.to is None or agent in (*self.to, self.who)


def secret_of(acts: Iterable[Act], reader: str, swap: Swap) -> tuple[Act, ...]:
    """The workflow with all words swapped that `reader` may not read; everything public stays."""
    swapped = (_swapped(act, reader, swap) for act in acts)
    return tuple(act for act in swapped if act is not None)


def _swapped(act: Act, reader: str, swap: Swap) -> Act | None:
    prompt = act.prompt if act.prompt is None or act.who == reader else swap(act.number, act.prompt)
    if act.heard_by(reader):
        return replace(act, prompt=prompt)
    words = swap(act.number, act.words)
    if words is None and act.kind == "join":  # who joins is public; whether it has a system prompt is not
        return replace(act, words="")
    return None if words is None else replace(act, words=words, prompt=prompt)


def same_length(number: int, words: str) -> str:
    """Other words with the same number of tokens."""
    moved: Mapping[str, str] = dict(zip(WORDS, WORDS[1:] + WORDS[:1], strict=True))
    return " ".join(moved.get(word, word) for word in words.split(" "))


def other_length(number: int, words: str) -> str:
    """Longer words, by amounts that depend on the number."""
    return words + " and" * (1 + number % 5) + " so on"


def absent(number: int, words: str) -> None:
    """None: the act is never said."""


@dataclass
class Writer:
    """Writes one workflow at random."""

    random: Random
    acts: list[Act] = field(default_factory=list)
    cast: list[str] = field(default_factory=list)
    out: list[Act] = field(default_factory=list)

    def words(self) -> str:
        """Four words."""
        return " ".join(self.random.choice(WORDS) for _ in range(4))

    def join(self, name: str) -> None:
        """A new agent with a private system prompt."""
        self.cast.append(name)
        self._put("join", name, (name,), publish=True)

    def audience(self) -> tuple[str, ...] | None:
        """Everyone, or some agents, perhaps only the author."""
        if self.random.random() < 0.4:
            return None
        return tuple(sorted(self.random.sample(self.cast, self.random.randint(0, len(self.cast) - 1))))

    def step(self) -> None:
        """One more act, or a round of two."""
        match self.random.choices(("announce", "tell", "say", "round"), (2, 2, 4, 1))[0]:
            case "announce":
                self._put("announce", SCENARIO, self.audience(), publish=True)
            case "tell":
                who = self.random.choice(self.cast)
                self._put("tell", who, self.audience(), self._view(who), publish=True)
            case "say":
                self.say(self.random.choice(self.cast))
            case _:
                self._round()

    def say(self, who: str, to: tuple[str, ...] | Literal["any"] | None = "any") -> None:
        """A decode, sometimes after a private question."""
        prompt = self.words() if self.random.random() < 0.3 else None
        self._put("say", who, self.audience() if to == "any" else to, self._view(who), prompt, publish=True)

    def _round(self) -> None:
        number = len(self.acts)
        pair = self.random.sample(self.cast, 2)
        moves = [self._put("say", who, self.audience(), self._view(who), round=number) for who in pair]
        self.out += moves

    def _put(
        self,
        kind: Kind,
        who: str,
        to: tuple[str, ...] | None,
        view: tuple[Look, ...] = (),
        prompt: str | None = None,
        round: int | None = None,
        publish: bool = False,
    ) -> Act:
        number = len(self.acts)
        act = Act(number, kind, who, to, f"{number}. {self.words()}", view, prompt and f"{number}? {prompt}", round)
        self.acts.append(act)
        if publish:
            self.out.append(act)
        return act

    def _view(self, who: str) -> tuple[Look, ...]:
        return looks(self.random, [act.number for act in self.out if act.heard_by(who)], ODDS)


def workflow(seed: int, steps: int = 7) -> tuple[Act, ...]:
    """Three agents that talk, and a fourth that joins late; at the end each speaks once more."""
    writer = Writer(Random(seed))
    for name in ("alice", "bob", "carol"):
        writer.join(name)
    for step in range(steps):
        if step == steps // 2:
            writer.join("dave")
        writer.step()
    for name in writer.cast:
        writer.say(name, None)
    return tuple(writer.acts)


def chain(hops: int) -> tuple[Act, ...]:
    """Alice knows a secret and speaks to everyone; each agent after her reads only the public words of the one before;
    the last one is `hops` hops from the secret."""
    names = ("alice", "bob", "carol", "dave")[: hops + 1]
    joins = [Act(n, "join", name, (name,), "" if n else "red oak sun ice") for n, name in enumerate(names)]
    says = [Act(10 + n, "say", name, None, f"{n}. so", (Look(10 + n - 1 if n else 0),)) for n, name in enumerate(names)]
    return (*joins, *says)
