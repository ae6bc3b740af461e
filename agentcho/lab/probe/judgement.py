"""Verdicts on the answers of a server. Absence is only claimed of what would have been found: if hits could not be told
from misses, or too little was asked, a verdict is inconclusive.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from statistics import median
from typing import NamedTuple

from agentcho.audit.wording import many
from agentcho.lab.probe.endpoint import Asking
from agentcho.lab.probe.findings import BOUNDARIES, Comparison, ProbeReport, Question, Spent, Verdict, Words
from agentcho.lab.probe.trials import FEWEST, Measured, Pair
from agentcho.lab.stats import Sooner, clopper_pearson, holm, mcnemar, power, sooner, spread

ALPHA = 0.001
ENOUGH = 0.9
"""The minimum power at which reuse that was not seen counts as absent."""
SHARE = 0.1
"""A count of reused tokens is evidence if it exceeds that of every miss by this share of the prompt."""
STEADY = 0.05
"""If the p-value of greedy words is below this, hits changed them, not the server's own noise."""
SEED = 0
STEPS = 40


class Control(NamedTuple):
    """A caller's own hits. `level`: the p-value required of every test. `found`: they were told from misses by time.
    `power`: how often as many trials would find them; None: there are too few to say."""

    pairs: Sequence[Pair]
    level: float
    found: bool
    power: float | None

    @property
    def visible(self) -> bool:
        """Whether other hits can be compared with them: they were found, and not by luck."""
        return self.found and self.power is not None and self.power >= ENOUGH

    @property
    def gain(self) -> float:
        """The median seconds by which a hit comes sooner."""
        return median(_misses(self.pairs)) - median(_hits(self.pairs))


def judged(server: Asking, measured: Measured, alpha: float = ALPHA) -> ProbeReport:
    """The report of a probe."""
    pairs = measured.pairs
    others: list[Question] = [question for question in pairs if question != "control"]
    tests = {
        question: sooner(_hits(pairs[question]), _misses(pairs[question])) for question in pairs if pairs[question]
    }
    adjusted = _adjusted({question: tests[question] for question in others if question in tests})
    level = alpha / max(1, 2 * len(others))
    control = _control(pairs["control"], tests.get("control"), level)
    found = [_control_comparison(control, tests.get("control"))]
    for question in others:
        one = _compared(question, pairs[question], tests.get(question), adjusted.get(question))
        found.append(
            _decided(
                one=one, pairs=pairs[question], control=control, refused=measured.refused.get(question), alpha=alpha
            )
        )
    prompts = [pair.miss.prompt for pair in pairs["control"] if pair.miss.prompt is not None]
    return ProbeReport(
        version=version("agentcho"),
        url=server.url,
        model=server.model,
        prompt_words=measured.words,
        prompt_tokens=round(median(prompts)) if prompts else None,
        alpha=alpha,
        comparisons=tuple(found),
        words=_words(measured.said, control.found or found[0].reported > 0),
        spent=Spent(
            requests=server.requests,
            seconds=round(server.elapsed, 3),
            prompt_tokens=server.prompt_tokens,
            discarded=measured.discarded,
        ),
        ended=measured.ended,
    )


def _hits(pairs: Sequence[Pair]) -> list[float]:
    return [pair.hit.seconds for pair in pairs]


def _misses(pairs: Sequence[Pair]) -> list[float]:
    return [pair.miss.seconds for pair in pairs]


def _adjusted(tests: Mapping[Question, Sooner]) -> dict[Question, float]:
    """The smaller p-value of each question's two tests, after Holm's correction over all of them."""
    values = holm([p for test in tests.values() for p in test])
    return {question: min(values[2 * n : 2 * n + 2]) for n, question in enumerate(tests)}


def _control(pairs: Sequence[Pair], test: Sooner | None, level: float) -> Control:
    if test is None or len(pairs) < FEWEST:
        return Control(pairs, level, found=False, power=None)
    return Control(pairs, level, min(test) < level, power(_hits(pairs), _misses(pairs), level, SEED))


def _control_comparison(control: Control, test: Sooner | None) -> Comparison:
    one = _compared("control", control.pairs, test, None)
    verdict: Verdict = "seen" if control.visible else "inconclusive"
    if control.visible:
        reason = f"a caller's own hits come {_milliseconds(control.gain)} sooner"
    elif control.found:
        reason = (
            f"a caller's own hits come {_milliseconds(control.gain)} sooner, but so many trials find that "
            f"{control.power:.0%} of the time, which is too rare to compare others with them: give more trials (-n)"
        )
    elif len(control.pairs) < FEWEST:
        reason = f"only {many(len(control.pairs), 'trial')} finished in time, but {FEWEST} are needed"
    elif one.reported:
        reason = "the server says that it reuses a caller's own prompts, but its times do not show it"
    else:
        reason = "a caller's own prompt comes no sooner when it is sent again"
    return one.model_copy(update={"verdict": verdict, "reason": reason, "power": control.power})


def _compared(question: Question, pairs: Sequence[Pair], test: Sooner | None, adjusted: float | None) -> Comparison:
    """The numbers of one question, without a verdict."""
    return Comparison(
        question=question,
        verdict="inconclusive",
        reason="",
        trials=len(pairs),
        hit=spread(_hits(pairs)) if pairs else None,
        miss=spread(_misses(pairs)) if pairs else None,
        ks_p=None if test is None else test.ks,
        mann_whitney_p=None if test is None else test.mann_whitney,
        adjusted_p=adjusted,
        reported=_reported(pairs),
    )


def _reported(pairs: Sequence[Pair]) -> int:
    """The number of trials in which the server itself reports much more reuse than for any miss."""
    ground = max((pair.miss.cached or 0 for pair in pairs), default=0)
    return sum((pair.hit.cached or 0) - ground > SHARE * (pair.hit.prompt or 0) for pair in pairs if pair.hit.cached)


def _decided(one: Comparison, pairs: Sequence[Pair], control: Control, refused: str | None, alpha: float) -> Comparison:
    """The verdict on one question, with its reason: findings first, then what prevents a claim of absence."""
    found: Verdict = "shared" if one.question in BOUNDARIES else "seen"
    if one.reported:
        told = f"the server itself reports the reuse in {one.reported} of {many(one.trials, 'trial')}"
        return _with(one, found, told)
    if one.adjusted_p is not None and one.adjusted_p < alpha:
        gain = _milliseconds(median(_misses(pairs)) - median(_hits(pairs)))
        return _with(one, found, f"first tokens come {gain} sooner, adjusted p = {one.adjusted_p:.1e}")
    if refused is not None:
        return _with(one, "inconclusive", refused)
    if one.trials < FEWEST:
        told = f"only {many(one.trials, 'trial')} finished in time, but {FEWEST} are needed"
        return _with(one, "inconclusive", told)
    if not control.visible:
        return _with(one, "inconclusive", "a hit could not have been distinguished from a miss; see the control")
    return _absent(one, pairs, control)


def _absent(one: Comparison, pairs: Sequence[Pair], control: Control) -> Comparison:
    """Not seen, if the tests would have found hits like the control's among this question's own misses."""
    misses = _misses(pairs)
    moved = median(misses) - median(_misses(control.pairs))
    strength = power([hit + moved for hit in _hits(control.pairs)], misses, control.level, SEED)
    one = one.model_copy(update={"power": strength, "least": _least(misses, control)})
    if strength < ENOUGH:
        told = f"hits as fast as the control's would have been found {strength:.0%} of the time, which is too rare"
        return _with(one, "inconclusive", told)
    told = f"hits as fast as the control's would have been found {strength:.0%} of the time"
    return _with(
        one,
        "not seen",
        told if one.least is None else f"{told}, and a gain of {_milliseconds(one.least)} 9 times out of 10",
    )


def _least(misses: Sequence[float], control: Control) -> float | None:
    """The smallest gain, up to twice the control's, that would have been found 9 times of 10."""

    def gain(step: int) -> float:
        return 2 * control.gain * step / STEPS

    def found(step: int) -> bool:
        return power([seconds - gain(step) for seconds in misses], misses, control.level, SEED) >= ENOUGH

    step = bisect_left(range(STEPS + 1), True, lo=1, key=found)
    return gain(step) if step <= STEPS else None


def _with(one: Comparison, verdict: Verdict, reason: str) -> Comparison:
    return one.model_copy(update={"verdict": verdict, "reason": reason})


def _words(said: Sequence[tuple[str, str, str]], hits: bool) -> Words:
    changed = sum(first != second for first, second, _ in said)
    unsteady = sum(second != third for _, second, third in said)
    alone = sum(first != second and second == third for first, second, third in said)
    p = mcnemar(alone, sum(first == second and second != third for first, second, third in said))
    verdict, reason = _words_verdict(said=said, changed=changed, unsteady=unsteady, p=p, hits=hits)
    interval = clopper_pearson(changed, len(said))
    return Words(
        verdict=verdict,
        reason=reason,
        prompts=len(said),
        changed=changed,
        unsteady=unsteady,
        p=p,
        interval=interval,
    )


def _words_verdict(
    said: Sequence[tuple[str, str, str]], changed: int, unsteady: int, p: float, hits: bool
) -> tuple[Verdict, str]:
    of = many(len(said), "prompt")
    if not any(words for each in said for words in each):
        return "inconclusive", "nothing was said"
    if not hits:
        return "inconclusive", "it is unknown whether anything was reused; see the control"
    if changed == 0:
        most = clopper_pearson(0, len(said)).high
        return "not seen", f"the same words with and without a hit for all of {of} (95 %: at most {most:.0%} change)"
    told = f"a hit changed the words for {changed} of {of}, a second hit for {unsteady}"
    return ("seen", told) if p < STEADY else ("inconclusive", f"{told}; this is as frequent as chance")


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"
