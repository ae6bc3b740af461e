"""The experiment: finds a prompt length, then runs interleaved trials of all questions, in random order.

Each trial draws two fresh prompts of equal length. A coin decides which of them the first caller sends; then the second
caller sends both, in random order. So without reuse the two answers differ only by chance, whatever the server is, and
however its load drifts. Independent of HTTP and of the statistics of verdicts.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from agentcho.lab.probe.endpoint import BUSY, TOO_LONG, Asking, Heard, Identity, ServerRefused, ServerSlow
from agentcho.lab.probe.findings import Question
from agentcho.protocol.progress import ProgressCallback, no_progress

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
"""Prompt lengths in words. The first one at which a caller's own hits are separate from misses is used."""
TRIED = 4
"""Trials per length."""
CALIBRATING = 1 / 3
"""The share of the bounds that finding a length may take."""
RATIO = 1.1
"""The minimum ratio of the fastest miss to the slowest hit."""
BRIEF, GREEDY = 8, 24
"""Words of a system prompt, and tokens of a greedy answer."""
FEWEST = 8
"""With fewer trials, nothing is said to be absent."""
PATIENCE = 10
"""The maximum of successive trials for which a server may be too busy."""
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
Trial = Callable[[], None]
Found = TypeVar("Found")


class Plan(NamedTuple):
    """What is asked: `questions` besides the control, `trials` of each, `prompts` for comparing greedy words. `lengths`
    of prompts are tried in turn, the shortest first."""

    questions: tuple[Question, ...]
    trials: int = 24
    prompts: int = 12
    lengths: tuple[int, ...] = LENGTHS


class Pair(NamedTuple):
    """A prompt that the server may have cached, and one that was never sent before."""

    hit: Heard
    miss: Heard


@dataclass
class Measured:
    """The answers. `refused`: questions that the server does not allow, and why. `ended`: why it ended before all
    trials were done."""

    words: int
    pairs: dict[Question, list[Pair]] = field(default_factory=dict)
    said: list[tuple[str, str, str]] = field(default_factory=list)
    refused: dict[Question, str] = field(default_factory=dict)
    discarded: int = 0
    ended: str | None = None


def measure(
    server: Asking, plan: Plan, dice: random.Random | None = None, tell: ProgressCallback = no_progress
) -> Measured:
    """Run the trials that the bounds of the server allow. `dice`: only for the order; words are never drawn from a
    seed, because a second probe would hit those of the first. `ServerRefused`: the very first requests fail, other than
    by being slow."""
    found = _Experiment(server, plan, dice or random.SystemRandom(), tell)
    found.run()
    return found.measured


class _Experiment:
    def __init__(self, server: Asking, plan: Plan, dice: random.Random, tell: ProgressCallback) -> None:
        self._server = server
        self._plan = plan
        self._dice = dice
        self._tell = tell
        self.measured = Measured(plan.lengths[0], pairs={question: [] for question in ("control", *plan.questions)})
        self._busy = 0

    def run(self) -> None:
        try:
            self._begin()
        except ServerSlow as error:
            self.measured.ended = str(error)
            return
        try:
            self._calibrate()
            self._rounds()
        except ServerRefused as error:  # answers up to here are judged
            self.measured.ended = str(error)

    def _begin(self) -> None:
        """One untimed request of each caller: opens connections, and tests whether it may ask."""
        asked: Sequence[Question] = ("control", *self._plan.questions)
        for question in asked:
            if not self._server.allows(1):
                return
            who = callers(question)[1]
            try:
                self._server.ask(prompt(question, drawn(self.measured.words)), who)
            except ServerRefused as error:
                if question != "salts" or error.status not in TOO_LONG:
                    raise
                self.measured.refused[question] = "the server does not accept cache_salt"

    def _calibrate(self) -> None:
        """Find the first prompt length at which hits can be told from misses; else the longest that fits the context
        and the bounds, and leaves time for enough trials."""
        took = dict[int, float]()
        for words in self._plan.lengths:
            began = self._server.elapsed
            if not self._server.allows(3 * TRIED, CALIBRATING):
                break
            try:
                found = [pair for _ in range(TRIED) if (pair := self._tried("control", words)) is not None]
            except ServerRefused as error:
                if error.status in TOO_LONG and words > self._plan.lengths[0]:
                    break
                raise
            if len(found) < TRIED:
                break
            self.measured.words = words
            if apart(found):
                return
            took[words] = (self._server.elapsed - began) / TRIED
        trials = FEWEST * (len(self.measured.pairs) + 1)  # the greedy ones too
        fit = (words for words in took if took[words] * trials <= self._server.left)
        self.measured.words = max(fit, default=self._plan.lengths[0])

    def _rounds(self) -> None:
        plan = self._plan
        open_ = [question for question in self.measured.pairs if question not in self.measured.refused]
        for number in range(plan.trials):
            self._tell("rounds", number, plan.trials)
            trials: list[Trial] = [self._comparing(question) for question in open_]
            if number < plan.prompts:
                trials.append(self._greedy)
            self._dice.shuffle(trials)
            for trial in trials:
                trial()
                if self.measured.ended is not None:
                    return

    def _comparing(self, question: Question) -> Trial:
        def trial() -> None:
            pair = self._tried(question, self.measured.words)
            if pair is not None:
                self.measured.pairs[question].append(pair)

        return trial

    def _tried(self, question: Question, words: int) -> Pair | None:
        """One trial. None: the bounds do not allow it, or the server is too busy."""
        return self._whole(lambda: self._pair(question, words))

    def _greedy(self) -> None:
        asked = prompt("control", drawn(self.measured.words))
        said = self._whole(lambda: [self._server.ask(asked, Identity(), GREEDY).text for _ in range(3)])
        if said is not None:
            self.measured.said.append((said[0], said[1], said[2]))

    def _whole(self, trial: Callable[[], Found]) -> Found | None:
        """A trial of three requests; discarded as a whole if the server was too busy for one."""
        if not self._server.allows(3):
            self.measured.ended = "the bounds on requests and seconds were reached (--requests, --seconds)"
            return None
        try:
            found = trial()
        except ServerRefused as error:
            if error.status not in BUSY or self._busy == PATIENCE:
                raise
            self._busy += 1
            self.measured.discarded += 1
            self._server.rest(error.wait)
            return None
        self._busy = 0
        return found

    def _pair(self, question: Question, words: int) -> Pair:
        first, second = callers(question)
        texts = [drawn(words), drawn(words)]
        known = self._dice.randrange(2)
        self._server.ask(prompt(question, texts[known]), first)
        heard: dict[int, Heard] = {}
        for number in self._dice.sample((0, 1), 2):
            heard[number] = self._server.ask(prompt(question, texts[number]), second)
        return Pair(heard[known], heard[1 - known])


def callers(question: Question) -> tuple[Identity, Identity]:
    """The caller that sends a prompt first, and the caller that is timed."""
    if question == "salts":
        return Identity(0, secrets.token_hex(16)), Identity(0, secrets.token_hex(16))
    return Identity(), Identity(1 if question == "keys" else 0)


def prompt(question: Question, text: str) -> list[dict[str, str]]:
    """The messages of a request. Those of "beyond" begin with a system prompt that no other request has."""
    before = [{"role": "system", "content": drawn(BRIEF)}] if question == "beyond" else []
    return [*before, {"role": "user", "content": text}]


def drawn(words: int) -> str:
    """Made-up words that were never sent before."""
    parts = random.Random(secrets.randbits(256)).choices(SYLLABLES, k=3 * words)
    return " ".join("".join(parts[at : at + 3]) for at in range(0, len(parts), 3))


def apart(pairs: Sequence[Pair]) -> bool:
    """Whether every hit came clearly sooner than every miss."""
    hits, misses = [pair.hit.seconds for pair in pairs], [pair.miss.seconds for pair in pairs]
    return RATIO * max(hits) < min(misses)
