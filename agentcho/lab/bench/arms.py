"""The arms of a benchmark: each plays one workflow with every text forced, on the same weights.

Three arms are the engine's own modes. Each also exists with speculation; two also exist in the deterministic profile
and with repair. Two arms are the library's: `generate`, batch by batch, with the best cache reuse that a careful user
would write, and continuous batching with prefix sharing, where each call is submitted as soon as its parents have
ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

from agentcho.config import ReusePolicy
from agentcho.errors import ConfigError
from agentcho.games.runs.replay import awaited, replay
from agentcho.lab.bench.played import CallTimes, WorkflowTimes
from agentcho.lab.bench.prompts import Prompt, prompts
from agentcho.lab.timing import alone
from agentcho.protocol.call import EnginePort
from agentcho.records.trace import Workflow
from agentcho.reuse.registry import parsed_repair, usual_repairs

AUDIT = "choreographed:audit"
ENFORCE = "choreographed:enforce"
BASELINE = "baseline"
GENERATE, CONTINUOUS = "generate", "generate_batch"
Arm = Callable[[Any, Workflow, bool], WorkflowTimes]
"""`(engine, workflow, stepwise)`. If not stepwise, a text is fed `STRIDE` tokens per step after its first token, or all
at once in the library's arms."""
OURS: dict[str, Mapping[str, Any]] = {
    AUDIT: {"leakage": "audit"},
    ENFORCE: {"leakage": "enforce"},
    BASELINE: {"mode": "baseline", "leakage": "audit"},
}


def exactly(arm: str) -> str:
    """The name of a choreographed arm in the deterministic profile."""
    return f"{arm}:deterministic"


EXACT: dict[str, Mapping[str, Any]] = {
    exactly(name): {**OURS[name], "deterministic": True} for name in (AUDIT, ENFORCE)
}
"""Timed only if requested."""


def guessing(arm: str) -> str:
    """The name of one of our arms with speculation; a repair is kept."""
    way, repairs, repair = arm.partition("+")
    return f"{way}:speculate{repairs}{repair}"


def is_guessing(arm: str) -> bool:
    """Whether an arm speculates."""
    return arm.partition("+")[0] in GUESSING


def with_guesses(named: Iterable[str]) -> list[str]:
    """These arms, each of ours followed by the same with speculation."""
    found = ((arm, guessing(arm)) if arm.partition("+")[0] in OURS else (arm,) for arm in named)
    return [*dict.fromkeys(arm for both in found for arm in both)]


GUESSING: dict[str, Mapping[str, Any]] = {guessing(name): {**OURS[name], "speculate": True} for name in OURS}
"""Timed only if requested: on random words there is little to guess."""
REPAIRING = tuple(name for way in (AUDIT, ENFORCE) for name in (way, guessing(way)))
STRIDE = 16
"""Tokens of a text fed per step if only first tokens are timed: takes a tenth of the time, and decodes still run beside
prefills."""
ROOM = 1 << 15
"""The maximum of tokens that continuous batching keeps: about what fits in the engine's own store."""
USUAL = (*OURS, GENERATE, CONTINUOUS)
"""The arms that are timed if none is named."""


def arms() -> dict[str, Arm]:
    """All arms by name, without those that repair."""
    ours = {name: partial(_replayed, options) for name, options in (OURS | EXACT | GUESSING).items()}
    return {**ours, GENERATE: alone(_generate), CONTINUOUS: alone(_continuous)}


def arm(name: str) -> Arm:
    """An arm by its name; `choreographed:enforce+first-k:16` is one that repairs. `ConfigError`: unknown arm."""
    known, (way, repairs, repair) = arms(), name.partition("+")
    if way not in known or (repairs and way not in REPAIRING):
        raise ConfigError(
            f"unknown arm {name!r}; give one of {', '.join(known)}, or one that repairs, such as "
            f"{ENFORCE}+{usual_repairs()[0]}"
        )
    if not repairs:
        return known[way]
    try:
        return partial(_replayed, {**(OURS | GUESSING)[way], "repair": parsed_repair(repair)})
    except ValueError as error:
        raise ConfigError(f"unknown arm {name!r}: {error}") from None


def policy(name: str) -> ReusePolicy | None:
    """The reuse policy of an arm of ours; None: it is not ours."""
    way, repairs, repair = name.partition("+")
    options = (OURS | EXACT | GUESSING).get(way)
    return None if options is None else ReusePolicy(**options, repair=parsed_repair(repair) if repairs else None)


def _replayed(options: Mapping[str, Any], engine: EnginePort, workflow: Workflow, stepwise: bool) -> WorkflowTimes:
    replayed = replay(workflow, engine, logits=False, stride=1 if stepwise else STRIDE, **options)
    needs, calls = _awaited(workflow), dict[str, CallTimes]()
    for id, needed in needs.items():  # parents come before children
        ready, said = _ready(needed, calls), replayed[id]
        calls[id] = CallTimes(ready, ready + said.ttft, ready + said.seconds)
    return WorkflowTimes(calls, replayed.encoded, replayed.steps)


def _generate(engine: Any, workflow: Workflow, stepwise: bool) -> WorkflowTimes:
    """Play the workflow in batches: a batch is all calls whose parents ended before it was formed."""
    from agentcho.lab.bench.peers.generate import Forced, Generating, stock_attention

    said = prompts(workflow, engine.framing)
    needs = _awaited(workflow)
    calls = dict[str, CallTimes]()
    stop = engine.framing.end
    with stock_attention(engine.network):
        stock, began = Generating(engine.network, stop, stepwise), perf_counter()
        while len(calls) < len(said):
            batch = [said[id] for id, needed in needs.items() if id not in calls and needed <= calls.keys()]
            heard = stock.batch([Forced(call.author, call.prompt, call.text) for call in batch])
            ready = {call.id: _ready(needs[call.id], calls) for call in batch}
            for call, (first, ended) in zip(batch, heard, strict=True):
                calls[call.id] = CallTimes(ready[call.id], first - began, ended - began)
    return WorkflowTimes(calls, stock.encoded)


def _continuous(engine: Any, workflow: Workflow, stepwise: bool) -> WorkflowTimes:
    """Submit each call as soon as everything that it reads has ended."""
    from agentcho.lab.bench.peers.continuous import Continuous
    from agentcho.lab.bench.peers.generate import Forced, stock_attention

    said = prompts(workflow, engine.framing)
    needs = _awaited(workflow)
    calls = dict[str, CallTimes]()
    stop = engine.framing.end
    room, network = _room(said), engine.network
    with (
        stock_attention(network),
        Continuous(network=network, stop=stop, tokens=room, calls=len(said), stepwise=stepwise) as stock,
    ):
        began, given = perf_counter(), set[str]()
        while len(calls) < len(said):
            for id in [id for id in said if id not in given and needs[id] <= calls.keys()]:
                given.add(id)
                stock.submit(id, Forced(said[id].author, said[id].prompt, said[id].text))
            id, (first, ended) = stock.next()
            calls[id] = CallTimes(_ready(needs[id], calls), first - began, ended - began)
    return WorkflowTimes(calls, stock.encoded)


def _awaited(workflow: Workflow) -> dict[str, frozenset[str]]:
    needs = awaited(workflow)
    return {message.id: needs[message.id] for message in workflow.messages if message.kind == "decode"}


def _ready(needed: frozenset[str], calls: Mapping[str, CallTimes]) -> float:
    return max((calls[other].ended for other in needed), default=0.0)


def _room(said: Mapping[str, Prompt]) -> int:
    """The tokens of all calls without sharing, at most `ROOM`; beyond that, pages are reused."""
    return min(ROOM, sum(len(call.prompt) + len(call.text) + 64 for call in said.values()))
