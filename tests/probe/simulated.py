"""A simulated server that computes nothing and has its own clock; the test decides what it shares."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import inf

from agentcho.lab.probe.endpoint import Heard, Identity, ServerRefused
from agentcho.lab.probe.trials import GREEDY

MISS, HIT, NOISE = 0.1, 0.03, 0.01


class Simulated:
    """Hits take `HIT` seconds, misses `MISS`, both with noise.

    - `kept`: the fields of the identity (key, salt) that must be equal for a request to hit another one's prompt.
    - `beyond`: user messages are reused behind any system prompt. `tells`: hits are counted; `hides`: they take as long
      as misses. `wanders`: half of the greedy answers change by themselves; `moves`: a hit changes them.
    - `slows`: twice the words take four times as long.
    """

    url, model = "http://127.0.0.1:1/v1", "m"

    def __init__(self, *kept: str, **how: bool) -> None:
        self.kept, self.how = kept, how
        self.dice = random.Random(7)
        self.requests, self.prompt_tokens, self.elapsed = 0, 0, 0.0
        self.most, self.longest, self.noise = 10_000, 10_000, NOISE
        self.seconds = inf
        self.faults: dict[int, ServerRefused] = {}
        self.seen: set[tuple[object, ...]] = set()
        self.asked: list[tuple[Identity, str]] = []

    @property
    def left(self) -> float:
        return self.seconds - self.elapsed

    def allows(self, requests: int, share: float = 1.0) -> bool:
        return self.requests + requests <= self.most * share and self.elapsed < self.seconds * share

    def rest(self, seconds: float) -> None:
        self.elapsed += seconds

    def ask(self, messages: Sequence[Mapping[str, str]], who: Identity, most: int = 1) -> Heard:
        self.requests += 1
        text = messages[-1]["content"]
        self.asked.append((who, text))
        if (fault := self.faults.get(self.requests)) is not None:
            raise fault
        if who.salt is not None and self.how.get("saltless"):
            raise ServerRefused("no such field", 422)
        if len(text.split()) > self.longest:
            raise ServerRefused("too long", 400)
        return self._answer(messages, who, most)

    def _answer(self, messages: Sequence[Mapping[str, str]], who: Identity, most: int) -> Heard:
        text = messages[-1]["content"]
        read = [each["content"] for each in messages]
        read = read[-1:] if self.how.get("beyond") else read
        place = (*(getattr(who, name) for name in self.kept), *read)
        hit = place in self.seen and "nothing" not in self.how
        self.seen.add(place)
        quick = hit and not self.how.get("hides")
        seconds = (HIT if quick else MISS) + self.dice.uniform(0, self.noise)
        seconds *= (len(text.split()) / 64) ** 2 if self.how.get("slows") else 1
        self.elapsed += seconds
        changed = hit if self.how.get("moves") else "wanders" in self.how and self.dice.random() < 0.5
        words = "b" if changed else "a"
        tokens = 4 * sum(len(each.split()) for each in read)
        cached = (tokens if hit else 4) if self.how.get("tells") else None
        return Heard(seconds, words if most == GREEDY else "a", tokens, cached)
