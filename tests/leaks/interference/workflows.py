"""Random workflows, written out before they are played, and the same with everything changed that one reader may not
read.

Everything public is fixed here: who speaks when and to whom, what each message reads, where it is placed, which calls
fail or are cancelled, and others' words that the reader may read. What somebody releases to the reader is public too.
Independent of encodings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

from ..looks import Look, Odds, looks

Kind = Literal["join", "announce", "streamed", "tell", "say", "release"]
Trouble = Literal["cancelled", "left", "refused", "forbidden", "faulty", "unsaid"]
Verb = Literal["say", "think", "choose", "answer", "stream"]
Change = Literal["swapped", "lengthened", "shortened", "absent"]
CHANGES: tuple[Change, ...] = ("swapped", "lengthened", "shortened", "absent")
TROUBLES: tuple[Trouble, ...] = ("cancelled", "left", "refused", "forbidden", "faulty", "unsaid")
VERBS: tuple[Verb, ...] = ("say", "say", "say", "think", "choose", "answer", "stream")
SCENARIO = "scenario"
WORDS = ("red", "oak", "sun", "ice", "fox", "sea")
NAMES = ("alice", "bob", "carol")
ODDS = Odds(read=0.7, gap=0.15, plus=3, constant=0.03, at=(20, 60), rightmost=0.07)


@dataclass(frozen=True)
class Act:
    """A planned message. `to` None is everyone. `prompt` is a private question before it; acts of one `round` are
    simultaneous; a release is `of` another act's words. With a `trouble` its call fails or is cancelled. If it `calls`,
    it calls a tool first, whose result has its words and audience. Streamed messages arrive in pieces."""

    number: int
    kind: Kind
    who: str
    to: tuple[str, ...] | None
    words: str
    view: tuple[Look, ...] = ()
    prompt: str | None = None
    round: int | None = None
    of: int | None = None
    verb: Verb = "say"
    trouble: Trouble | None = None
    calls: bool = False

    def heard_by(self, agent: str) -> bool:
        """Whether the agent is in the audience."""
        return self.to is None or agent in (*self.to, self.who)

    @property
    def header(self) -> str:
        """Identifies a generated message to an engine."""
        return f"{self.number}. "


@dataclass
class Writer:
    """Writes one workflow at random."""

    random: Random
    reader: str
    acts: list[Act] = field(default_factory=list)
    cast: list[str] = field(default_factory=list)
    out: list[Act] = field(default_factory=list)

    def write(self, steps: int) -> tuple[Act, ...]:
        """All agents join, one of them late; then they talk; at the end the reader speaks over all it may read."""
        for name in NAMES:
            self.join(name)
        for step in range(steps):
            if step == steps // 2:
                self.join("dave")
            self.step()
        view = tuple(Look(act.number) for act in self.out if act.heard_by(self.reader))
        self._put("say", self.reader, None, view)
        return tuple(self.acts)

    def join(self, name: str) -> None:
        """A new agent with a private system prompt, or with none."""
        self.cast.append(name)
        self.out.append(self._put("join", name, (name,)))

    def step(self) -> None:
        """One more act, or a round of two."""
        kind = self.random.choices(("announce", "tell", "say", "release", "round", "trouble"), (4, 4, 10, 2, 2, 3))[0]
        who = self.random.choice((*self.cast, self.reader if self.reader in self.cast else self.cast[0]))
        mine = [act for act in self.out if act.who == who and act.kind == "say"]
        if kind == "announce":
            way: Kind = "streamed" if self.random.random() < 0.3 else "announce"
            self.out.append(self._put(way, SCENARIO, self._audience()))
        elif kind == "tell":
            self.out.append(self._put("tell", who, self._audience(), self._view(who)))
        elif kind == "round":
            number, pair = len(self.acts), self.random.sample(self.cast, 2)
            self.out += [self._put("say", one, self._audience(), self._view(one), round=number) for one in pair]
        elif kind == "release" and mine:
            said = self.random.choice(mine)
            self.out.append(self._put("release", who, self._audience(), self._view(who), of=said.number))
        elif kind == "trouble":
            self._trouble(who)
        else:
            self.out.append(self._put("say", who, self._audience(), self._view(who)))

    def _trouble(self, who: str) -> None:
        trouble = self.random.choice(TROUBLES)
        view = self._view(who)
        if trouble == "forbidden":
            others = [act.number for act in self.out if not act.heard_by(who)]
            view = (*view, *(Look(number) for number in self.random.sample(others, min(1, len(others)))))
        self._put("say", who, self._audience(), view, trouble=trouble if len(view) or trouble != "forbidden" else None)

    def _put(
        self,
        kind: Kind,
        who: str,
        to: tuple[str, ...] | None,
        view: tuple[Look, ...] = (),
        round: int | None = None,
        of: int | None = None,
        trouble: Trouble | None = None,
    ) -> Act:
        number = len(self.acts)
        words = " ".join(self.random.choice(WORDS) for _ in range(self.random.randint(2, 5)))
        prompt = f"{number}? {self.random.choice(WORDS)} {self.random.choice(WORDS)}"
        asked = kind == "say" and self.random.random() < 0.25
        verb = self.random.choice(VERBS) if who == self.reader and kind == "say" and trouble is None else "say"
        calls = kind == "say" and verb == "say" and trouble is None and self.random.random() < 0.15
        act = Act(number, kind, who, to, words, view, prompt if asked else None, round, of, verb, trouble, calls)
        if verb in ("think", "choose", "answer"):
            act = replace(act, to=(who,))
        self.acts.append(act)
        return act

    def _audience(self) -> tuple[str, ...] | None:
        if self.random.random() < 0.45:
            return None
        return tuple(sorted(self.random.sample(self.cast, self.random.randint(0, len(self.cast) - 1))))

    def _view(self, who: str) -> tuple[Look, ...]:
        return looks(self.random, [act.number for act in self.out if act.heard_by(who)], ODDS)


def written(random: Random, reader: str, steps: int) -> tuple[Act, ...]:
    """A random workflow."""
    return Writer(random, reader).write(steps)


def hidden(acts: tuple[Act, ...], reader: str) -> frozenset[int]:
    """Acts whose words the reader may not read, and does not learn from a release."""
    told = set[int]()
    for act in reversed(acts):
        if act.of is not None and (act.heard_by(reader) or act.number in told):
            told.add(act.of)
    return frozenset(act.number for act in acts if not act.heard_by(reader) and act.number not in told)


def changed(acts: tuple[Act, ...], reader: str, change: Change) -> tuple[Act, ...]:
    """The workflow with everything changed that is hidden from the reader. Who joins is public; whether it has a system
    prompt, or is asked anything, is not."""
    secret = hidden(acts, reader)
    if change != "absent":
        return tuple(_other_words(act, act.number in secret, reader, WAYS[change]) for act in acts)
    kept = (act for act in acts if act.number not in secret or act.kind == "join")
    return tuple(_less(act, act.number in secret, reader) for act in kept)


def comparable(acts: tuple[Act, ...], change: Change) -> tuple[Act, ...]:
    """Leaves out calls that name hidden messages if these are to be absent: they would be different calls."""
    return tuple(act for act in acts if change != "absent" or act.trouble != "forbidden")


def _other_words(act: Act, secret: bool, reader: str, way: Callable[[str], str]) -> Act:
    asked = act.prompt is not None and act.who != reader
    prompt = way(act.prompt) if asked and act.prompt is not None else act.prompt
    return replace(act, words=way(act.words) if secret else act.words, prompt=prompt)


def _less(act: Act, secret: bool, reader: str) -> Act:
    prompt = act.prompt if act.who == reader else None
    return replace(act, words="" if secret else act.words, prompt=prompt)


def _swapped(words: str) -> str:
    moved = dict(zip(WORDS, WORDS[1:] + WORDS[:1], strict=True))
    return " ".join(moved.get(word, word) for word in words.split(" "))


def _lengthened(words: str) -> str:
    return words + " sea" * (3 + len(words) % 5)


def _shortened(words: str) -> str:
    return words.split(" ")[-1]


WAYS: dict[Change, Callable[[str], str]] = {"swapped": _swapped, "lengthened": _lengthened, "shortened": _shortened}
