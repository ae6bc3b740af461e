"""Measures the arms of the comparison with vLLM in turns: workflows, decode steps, first tokens over reused
messages.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter, process_time

from agentcho import Decode, Prefill, Sampling
from agentcho.engine.core import EngineCore
from agentcho.integrations.vllm.engine import VllmEngine
from agentcho.integrations.vllm.jobs import Job
from agentcho.lab.bench.measure import Timed, measure, runs_of
from agentcho.lab.bench.plans import Workload
from agentcho.lab.bench.result import Figures
from agentcho.lab.bench.workflows import random_words
from agentcho.lab.timing import alone
from agentcho.protocol.progress import ProgressCallback, part
from tools.bench.vllm.arms import Engines, arms
from tools.bench.vllm.names import FIRST, ON_VLLM, OWN, PLAIN, ROWS, step_of

BEHIND, SAID = 256, 48
"""The approximate number of tokens before each row of a decode step, and the number that it generates."""
MESSAGES, LENGTH, OWN_TOKENS = 8, 250, 64
"""For a first token: reused messages, tokens of each, and tokens of the prompt's own."""
OURS = {next(iter(ON_VLLM)): "vllm", next(iter(OWN)): "own"}
"""The arms whose steps are timed in addition to plain vLLM's, and the engine of each."""


def compare(
    on: Engines, subjects: Sequence[Workload], repeats: int, seed: int, tell: ProgressCallback
) -> list[Figures]:
    """Run every workload in all arms, then decode steps and first tokens in the arms that have them."""
    found, known = list[Figures](), arms(on)
    each = runs_of(known, repeats)
    of = (len(subjects) + len(ROWS) + 1) * each
    for number, subject in enumerate(subjects):
        timed = {
            name: Timed(partial(play, subject.warm), partial(play, subject.workflow)) for name, play in known.items()
        }
        found += measure(subject.name, timed, repeats, part(tell, number * each, of))
    for place, rows in enumerate(ROWS):
        told = part(tell, (len(subjects) + place) * each, of)
        found += measure(step_of(rows), _steps(on, rows, seed), repeats, told)
    return found + measure(FIRST, _firsts(on, seed), repeats, part(tell, (of - each), of))


def _steps(on: Engines, rows: int, seed: int) -> dict[str, Timed]:
    """The same ids in all arms: each row has the same number before it, and generates the same number."""
    framing, words = on.own.framing, _words(on.own, rows, seed)
    opening = framing.opening("assistant", None)
    prompts = [[*each[:BEHIND], *opening] for each in words]
    plain = partial(on.peer.step, prompts, [*words[0][:SAID]])
    ours = {name: partial(step, getattr(on, engine), words) for name, engine in OURS.items()}
    return {name: Timed(take, take) for name, take in {PLAIN: plain, **ours}.items()}


def _words(engine: EngineCore, rows: int, seed: int) -> list[tuple[int, ...]]:
    dice = random.Random(seed)
    return [tuple(engine.framing.content.encode(random_words(dice, BEHIND))) for _ in range(rows)]


@alone
def step(engine: EngineCore, words: Sequence[tuple[int, ...]]) -> dict[str, float]:
    """CPU seconds of a decode step with a row for each message."""
    rows = len(words)
    known = engine.prefill([Prefill("x", framed=each[:BEHIND]) for each in words])
    said = engine.submit([Decode(parents=[id], forced=words[0][:SAID]) for id in known])
    begun = set[int]()
    while len(begun) < rows:
        begun |= {spoken.id for spoken in engine.step().spoken}
    used, steps = process_time(), 0
    while not engine.idle:
        engine.step()
        steps += 1
    taken = process_time() - used
    engine.release([*said, *known])
    return {"step": taken / steps}


def _firsts(on: Engines, seed: int) -> dict[str, Timed]:
    """Messages in an order that changes from run to run. For plain vLLM the order is always the same, so that its
    prefix cache has them all."""
    dice = random.Random(seed)
    content = on.own.framing.content
    texts = [tuple(content.encode(random_words(dice, LENGTH)))[:LENGTH] for _ in range(MESSAGES)]
    header = random_words(dice, OWN_TOKENS // 3)
    prefix = [id for text in texts for id in text]
    tails = ([*content.encode(f"{number} {header}")][:OWN_TOKENS] for number in range(1_000_000))
    takes: dict[str, Callable[[], Mapping[str, float]]] = {PLAIN: partial(on.peer.first, prefix, tails)}
    takes |= {name: _Reader(getattr(on, engine), texts, header).first for name, engine in OURS.items()}
    return {name: Timed(take, take) for name, take in takes.items()}


class _Reader:
    """Reads messages that are encoded once."""

    def __init__(self, engine: EngineCore, texts: Sequence[tuple[int, ...]], header: str) -> None:
        self._engine, self._header, self._turn, self._copying = engine, header, 0, 0.0
        if isinstance(engine, VllmEngine):
            jobs = engine._runner.jobs
            jobs.load_kv = partial(self._timed, jobs.load_kv)
        self._known = engine.prefill([Prefill("x", framed=text) for text in texts])

    def first(self) -> dict[str, float]:
        """For a call that reads all messages in another order: seconds and CPU seconds to its first token, and the
        share of copying on engine vllm."""
        self._turn += 1
        turn = self._turn % len(self._known)
        order = [*self._known[turn:], *self._known[:turn]]
        began, used, self._copying = perf_counter(), process_time(), 0.0
        said = self._engine.submit(
            [Decode(parents=order, header=self._header, sampling=Sampling(max_tokens=1, temperature=0))]
        )
        while not self._engine.step().spoken:
            pass
        taken = {"ttft": perf_counter() - began, "cpu": process_time() - used}
        taken |= {"copied": self._copying / taken["ttft"]}
        while not self._engine.idle:
            self._engine.step()
        self._engine.release(said)
        return taken

    def _timed(self, load: Callable[[Job], None], job: Job) -> None:
        began = perf_counter()
        load(job)
        self._copying += perf_counter() - began
