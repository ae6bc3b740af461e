"""The project's targets for the figures of a run. Targets without figures in the run are left out. Most are for the
shape with 0.6B parameters in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from agentcho.lab.bench.aims import aims
from agentcho.lab.bench.arms import AUDIT, BASELINE, CONTINUOUS, ENFORCE, GENERATE, guessing
from agentcho.lab.bench.peers.targets import targets
from agentcho.lab.bench.plans import DEBATE, TRACE, UNNAMED
from agentcho.lab.bench.result import Kind, Result, Target
from agentcho.lab.stats import Spread, spread
from agentcho.lab.yardstick import Words, worst
from tools.bench import society, stream
from tools.bench.vllm.targets import targets as vllm

STOCK = (GENERATE, CONTINUOUS)
FIRST = {"debate": 3.0, "tree-of-thoughts": 3.2, "parallel-debate": 9.0, f"{TRACE}prisoners-dilemma": 1.5}
"""First tokens, baseline over choreographed."""
SHAPE, DTYPE = "shape:qwen3-0.6b", "bfloat16"
OF_ENFORCE, NEVER_BELOW, SOMEWHERE, STOCK_LEAST = 0.85, 1.0, 2.2, 1.0
STEP, ROWS, OWN_SHARE, REQUESTS, GROWTH, STALL = 1.15, 1.3, 0.03, 5000.0, 4.0, 2.0
APART, APART_SMALL = 1.6, 1.4
"""A step of eight rows over a message each, divided by one of one row: with unrounded keys and values, and with those
in 8 bits."""
EXACT = 1.5
"""A step of eight rows in the deterministic profile, divided by one in the fast profile."""
NO_LATER = 1.0
AGENTS = 2.5
"""Agents in time, in the same bytes of keys and values, divided by the baseline's."""
FLAT, ROOM = 1.2, 8.0
"""For ten times as many agents: the cost of a message relative to that with few, and the total memory in GB."""

Judged = Mapping[tuple[str, str], Words]
"""The effect of ways of reading on the baseline's words, by workflow and arm, for results with random weights."""


def with_targets(result: Result, elsewhere: Judged = MappingProxyType({})) -> Result:
    """The result with the targets that it has figures for. `elsewhere`: what is known about the words of its arms, used
    if the result does not know itself."""
    kinds: dict[Kind, Callable[[Result], Iterator[Target]]] = {
        "workflows": partial(_workflows, elsewhere=elsewhere),
        "step": _step,
        "overhead": _overhead,
        "growth": _growth,
        "stall": _stall,
        "roofline": _nothing,
        "cost": _nothing,
        "serve": _nothing,
        "talk": _nothing,
        "stream": _stream,
        "room": _room,
        "peers": partial(_peers, elsewhere=elsewhere),
        "vllm": vllm,
    }
    return result.model_copy(update={"targets": tuple(kinds[result.bench](result))})


def _workflows(result: Result, elsewhere: Judged) -> Iterator[Target]:
    if result.sweep is None and not result.stepwise and _aimed_at(result):
        yield from _first(result, elsewhere)
    if result.stepwise:
        yield from _whole(result, elsewhere)
        yield from aims(result, partial(_words, result, elsewhere))
    for stock in STOCK:
        yield from _stock(result, stock, "ttft")
        if result.stepwise:
            yield from _stock(result, stock, "seconds")


def _aimed_at(result: Result) -> bool:
    """Whether the result is for the model that most targets are for."""
    return (result.model, result.numbers) == (SHAPE, DTYPE)


def _words(result: Result, elsewhere: Judged, subjects: Iterable[str], arm: str) -> Words:
    """The effect of an arm on the baseline's words in all of these subjects: by how close they are here, and by the
    comparison of their workflow, which also has scores. They count as changed if either finds a change."""
    plain = arm.replace(guessing(""), "")  # speculation changes no word
    return worst(
        combined(result.words(subject, arm), elsewhere.get((subject.removesuffix(UNNAMED), plain), "unknown"))
        for subject in subjects
    )


def combined(*judgements: Words) -> Words:
    """Combine several judgments of the same words. Unknown ones are ignored."""
    told = {*judgements} - {"unknown"}
    return worst(told) if told else "unknown"


def _first(result: Result, elsewhere: Judged) -> Iterator[Target]:
    for name, least in FIRST.items():
        for arm, bound in ((AUDIT, least), (ENFORCE, OF_ENFORCE * least)):
            subjects = [s for s in result.chosen(BASELINE, arm) if s.removesuffix(UNNAMED) == name or _game_of(s, name)]
            parts = [[s for s in subjects if s.endswith(UNNAMED) == unnamed] for unnamed in (False, True)]
            found = [(result.ratio(part, BASELINE, arm, "ttft"), part[0]) for part in parts if part]
            if found:
                reached, lesser = min(found, key=lambda each: each[0].middle)
                note = lesser if len(found) > 1 else ""
                words = _words(result, elsewhere, subjects, arm)
                what = f"first token, {name}: baseline ÷ {arm}"
                yield Target(what=what, bound=bound, reached=reached, note=note, words=words)


def _game_of(subject: str, name: str) -> bool:
    """Whether the subject is one of several games of the trace file `name`."""
    return subject.startswith(f"{name} ")


def _whole(result: Result, elsewhere: Judged) -> Iterator[Target]:
    for arm in (AUDIT, ENFORCE):
        subjects = result.chosen(BASELINE, arm)
        found = {subject: result.ratio([subject], BASELINE, arm, "seconds") for subject in subjects}
        if not found:
            continue
        words = _words(result, elsewhere, subjects, arm)
        yield _least(result, BASELINE, arm, "seconds", NEVER_BELOW).model_copy(update={"words": words})
        if result.sweep is not None:
            most = max(_lesser(found), key=lambda subject: found[subject].middle)
            what = f"end to end, somewhere in a sweep: baseline ÷ {arm}"
            at_most = _words(result, elsewhere, [most], arm)
            yield Target(what=what, bound=SOMEWHERE, reached=found[most], note=most, words=at_most)


def _lesser(found: Mapping[str, Spread]) -> list[str]:
    """Of two subjects that differ only in how their prompts begin, the one with the smaller gain."""
    least: dict[str, str] = {}
    for subject in sorted(found, key=lambda each: found[each].middle):
        least.setdefault(subject.removesuffix(UNNAMED), subject)
    return list(least.values())


def _stock(result: Result, stock: str, measured: str) -> Iterator[Target]:
    subjects = result.chosen(BASELINE, stock)
    if subjects:
        whole = result.ratio(subjects, stock, BASELINE, measured)
        yield Target(what=f"{_name(measured)}, all together: {stock} ÷ baseline", bound=STOCK_LEAST, reached=whole)
        yield _least(result, stock, BASELINE, measured, STOCK_LEAST)


def _name(measured: str) -> str:
    return "first token" if measured == "ttft" else "end to end"


def _least(result: Result, arm: str, to: str, measured: str, bound: float) -> Target:
    """The target for the worst of all subjects that have both arms."""
    found = {subject: result.ratio([subject], arm, to, measured) for subject in result.chosen(arm, to)}
    least = min(found, key=lambda subject: found[subject].middle)
    what = f"{_name(measured)}, the least of all: {arm} ÷ {to}"
    return Target(what=what, bound=bound, reached=found[least], note=least)


def _step(result: Result) -> Iterator[Target]:
    if _aimed_at(result) and result.has("1 row", "agentcho", "stock"):
        reached = result.ratio(["1 row"], "agentcho", "stock", "seconds")
        yield Target(
            what="a decode step, 1 row: agentcho ÷ stock cached forward", bound=STEP, most=True, reached=reached
        )
    apart = APART if result.kv_dtype is None else APART_SMALL
    whole = result.model_copy(update={"kv_dtype": None})
    for rows, what, bound in (
        ("8 rows", "8 rows over one message", ROWS),
        ("8 rows apart", "8 rows over a message each", apart),
    ):
        aimed = _aimed_at(whole if bound == apart else result)
        if aimed and result.has("1 row", "agentcho") and result.has(rows, "agentcho"):
            pairs = zip(*(result.values(subject, "agentcho", "seconds") for subject in (rows, "1 row")), strict=True)
            reached = spread([many / one for many, one in pairs], result.seed)
            yield Target(what=f"a decode step: {what} ÷ 1 row", bound=bound, most=True, reached=reached)
        if result.has(rows, "deterministic", "agentcho"):
            reached = result.ratio([rows], "deterministic", "agentcho", "seconds")
            yield Target(what=f"a decode step, {what}: deterministic ÷ fast", bound=EXACT, most=True, reached=reached)


def _overhead(result: Result) -> Iterator[Target]:
    for subject in result.subjects:
        if _aimed_at(result) and (shares := result.values(subject, "choreographer", "share")):
            what = f"the choreographer's own share of wall time, {subject}"
            yield Target(what=what, bound=OWN_SHARE, most=True, reached=spread(shares, result.seed))
        if rates := result.values(subject, "choreographer", "requests a second"):
            yield Target(what=f"requests a second, {subject}", bound=REQUESTS, reached=spread(rates, result.seed))


def _growth(result: Result) -> Iterator[Target]:
    if result.arms == (society.ARM,):
        yield from _society(result)
        return
    for arm in result.arms:
        if arm != BASELINE and len(result.subjects) > 1 and _aimed_at(result):
            reached = growth(result, arm)
            ends = f"{result.subjects[0]} to {result.subjects[-1]}"
            note = f"baseline: {growth(result, BASELINE).shown()}" if BASELINE in result.arms else ""
            what = f"growth of the first token's time, {ends}: {arm}"
            yield Target(what=what, bound=GROWTH, most=True, reached=reached, note=note)


def _society(result: Result) -> Iterator[Target]:
    """Flat: with ten times as many agents, a message takes at most `FLAT` times as much."""
    few, *_, many = [*result.subjects, result.subjects[-1]]
    for what, name in (("seconds", "time"), ("memory", "memory")):
        if few != many:
            least = min(result.values(few, society.ARM, what))
            reached = spread([each / least for each in result.values(many, society.ARM, what)], result.seed)
            yield Target(what=f"{name} a message, {many} ÷ {few}", bound=FLAT, most=True, reached=reached)
    most = spread([each / 1e9 for each in result.values(many, society.ARM, "peak")], result.seed)
    yield Target(what=f"memory of the process in GB, {many}", bound=ROOM, most=True, reached=most)


def growth(result: Result, arm: str) -> Spread:
    """The last subject's time to a first token divided by the first subject's, within a repeat."""
    ends = (result.values(subject, arm, "ttft") for subject in (result.subjects[-1], result.subjects[0]))
    return spread([long / short for long, short in zip(*ends, strict=True)], result.seed)


def _stall(result: Result) -> Iterator[Target]:
    """Targets for the budget that minimizes the larger of the two ratios, that of the stall and that of the wait."""
    arms = result.arms[1:]
    alone = next((arm for arm in arms if arm.endswith(" alone")), None)
    both = [
        (
            _stalled(result, arm),
            None if alone is None else result.ratio(result.subjects, arm, alone, "prefill"),
            arm,
        )
        for arm in arms
        if arm != alone
    ]
    stalled, waited, arm = min(both, key=lambda each: max(found.middle for found in each[:2] if found is not None))
    yield Target(what=f"95% of times between tokens, {arm} ÷ undisturbed", bound=STALL, most=True, reached=stalled)
    if waited is not None:
        yield Target(what=f"the prefill, {arm} ÷ {alone}", bound=STALL, most=True, reached=waited)


def _stalled(result: Result, arm: str) -> Spread:
    """Times between tokens during a prefill, divided by those right before and after it."""
    times = (result.values(result.subjects[0], arm, what) for what in ("p95", "without"))
    return spread([during / without for during, without in zip(*times, strict=True)], result.seed)


def _peers(result: Result, elsewhere: Judged) -> Iterator[Target]:
    def words(subjects: list[str], arm: str) -> Words:
        """The effect according to the comparison of the workflow. A subject named by a number of agents is a debate."""
        debates = {f"{count} agents" for count in range(2, 65)}
        known = (DEBATE if name in debates else name for name in (each.removesuffix(UNNAMED) for each in subjects))
        return worst(elsewhere.get((name, arm), "unknown") for name in known)

    return targets(result, words)


def _stream(result: Result) -> Iterator[Target]:
    for what in (stream.CLOSE, stream.PIECE):
        reached = result.ratio(result.subjects, stream.STREAMED, stream.WHOLE, what)
        name = f"first token {what}: {stream.STREAMED} ÷ {stream.WHOLE}"
        yield Target(what=name, bound=NO_LATER, most=True, reached=reached)


def _room(result: Result) -> Iterator[Target]:
    for arm in (AUDIT, ENFORCE):
        for subject in result.chosen(BASELINE, arm):
            if min(result.values(subject, BASELINE, "agents")) > 0:
                reached, words = result.ratio([subject], arm, BASELINE, "agents"), result.words(subject, arm)
                what = f"agents in the same bytes, {subject}: {arm} ÷ {BASELINE}"
                yield Target(what=what, bound=AGENTS, reached=reached, words=words)


def _nothing(result: Result) -> Iterator[Target]:
    return iter(())
