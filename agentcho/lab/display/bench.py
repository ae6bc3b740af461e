"""The results of benchmarks as text tables: workflows by arm, games both ways, the cost of enforcement."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from agentcho.audit.wording import many
from agentcho.display.text_table import TextTable, plain
from agentcho.lab.bench.aims import Pair, pairs
from agentcho.lab.bench.arms import BASELINE, guessing, policy
from agentcho.lab.bench.bound import bound, bounded
from agentcho.lab.bench.games import BothWays
from agentcho.lab.bench.leakage import ARMS, LeakageBench
from agentcho.lab.bench.result import Result, Target
from agentcho.lab.bench.serving import PLAIN

GUESSED = ("without/with", "forwards", "baseline/it, both without", "both with")
"""The columns of `guesses` after the workflow and the reading mode."""


def workflows(result: Result) -> Iterator[TextTable]:
    """One table per subject, with one row per arm."""
    label = f"{result.model}, {result.numbers}"
    for subject in result.subjects:
        rows = tuple(row(result, subject, arm) for arm in result.arms)
        yield TextTable(f"{label}: {subject}", ("", *heads(result)), rows)


def guesses(result: Result) -> Iterator[TextTable]:
    """The gain of speculation, one row per subject and reading mode; nothing if no arm speculated."""
    rows = tuple(guessed(result, subject, pair) for subject in result.subjects for pair in pairs(result))
    if rows and result.stepwise:
        yield TextTable("guesses, end to end", ("", "", *GUESSED), rows, words=2)


def guessed(result: Result, subject: str, pair: Pair) -> tuple[str, ...]:
    """One reading mode with speculation: compared with itself without it, in time and forwards; and the ratio of the
    baseline to it, both without and both with speculation."""
    if not result.has(subject, *pair):
        return (subject, pair.plain, *[""] * len(GUESSED))
    ours = (result.ratio([subject], *pair, what).shown() for what in ("seconds", "forwards"))
    both = ((BASELINE, pair.plain), (guessing(BASELINE), pair.guessed))
    beside = (
        result.ratio([subject], *two, "seconds").shown() if two[0] != two[1] and result.has(subject, *two) else ""
        for two in both
    )
    return (subject, pair.plain, *ours, *beside)


def heads(result: Result) -> tuple[str, ...]:
    """The columns of `row` after the arm."""
    whole = ("end to end", "baseline/it", "waiting") if result.stepwise else ()
    share = ("new to both", "of the bound") if bounded(result) and not result.stepwise else ()
    return ("first token", "baseline/it", *share, *whole, "tokens", "KL", "same token", "")


def row(result: Result, subject: str, arm: str) -> tuple[str, ...]:
    """One arm: seconds to the first token and of the whole, both with the baseline's ratio, the share of time in which
    a call waits for its first token, the tokens fed, and the divergence of its words from the baseline's."""
    if not result.has(subject, arm):
        return (arm, result.why_not(subject, arm), *[""] * (len(heads(result)) - 1))
    found = [*against(result, subject, arm, "ttft", BASELINE)]
    if bounded(result) and not result.stepwise:
        found += _of_bound(result, subject, arm)
    if result.stepwise:
        waiting = f"{result.spread(subject, arm, 'prefill').middle:.0%}"
        found += (*against(result, subject, arm, "seconds", BASELINE), waiting)
    return (arm, *found, f"{result.spread(subject, arm, 'encoded').middle:.0f}", *_words(result, subject, arm))


def _of_bound(result: Result, subject: str, arm: str) -> tuple[str, str]:
    """For the baseline, the share of prompt tokens that are new to every reading mode; for other arms, the gain in time
    to first token as a share of the largest possible one, see `bound`."""
    if not result.values(subject, BASELINE, "new"):
        return ("", "")
    if arm == BASELINE:
        new, whole = (result.values(subject, BASELINE, what)[0] for what in ("new", "prompts"))
        return (f"{new:,.0f} of {whole:,.0f}", "")
    most = bound(result, [subject])
    return ("", f"{result.ratio([subject], BASELINE, arm, 'ttft').middle / most:.0%} of {most:.2f}")


def _words(result: Result, subject: str, arm: str) -> tuple[str, str, str]:
    """The divergence from the baseline, how often the likeliest token is the same, and the verdict on both."""
    reuse = policy(arm)
    if reuse is None or reuse.mode == BASELINE:
        return ("", "", "")
    words = result.words(subject, arm)
    if words == "unknown":
        return ("-", "-", "words not judged")
    kl, agree = (result.spread(subject, arm, what).middle for what in ("kl", "agree"))
    faster = result.has(subject, BASELINE) and result.ratio([subject], BASELINE, arm, _whole(result)).middle > 1
    said = "same words" if words == "same" else "fast, but changed" if faster else "changed"
    return (f"{kl:.4f}", f"{agree:.1%}", said)


def targets(result: Result) -> Iterator[TextTable]:
    """The targets, the reached figures, and the verdicts."""
    rows = tuple(
        (each.what, asked(each), each.reached.shown(digits(each.bound)), result.verdict(each), each.note)
        for each in result.targets
    )
    if rows:
        yield TextTable("targets", ("", "asked", "reached", "", ""), rows)


def asked(target: Target) -> str:
    """The bound of a target as a condition."""
    return f"{'≤' if target.most else '≥'} {target.bound:g}"


def digits(bound: float) -> int:
    """The number of decimals that distinguish a figure from its bound."""
    return 0 if bound >= 100 else 4 if bound < 0.1 else 2


def _whole(result: Result) -> str:
    """The quantity that was timed: whole workflows, or only first tokens."""
    return "seconds" if result.stepwise else "ttft"


def against(result: Result, subject: str, arm: str, what: str, *others: str) -> tuple[str, ...]:
    """Seconds, and the ratios of others to them."""
    ratios = (
        result.ratio([subject], other, arm, what).shown() if result.has(subject, other) else "" for other in others
    )
    return (f"{result.spread(subject, arm, what).shown(3)} s", *ratios)


def serving(result: Result) -> Iterator[TextTable]:
    """One table per workflow, with one row per server and way of asking it."""
    times = ("first token", "plain/it", "tokens/s", "it/plain")
    counts = ("prompts", "reused", "exactly", "by message", "words as plain")
    for subject in result.subjects:
        rows = tuple(served(result, subject, arm) for arm in result.arms)
        yield TextTable(f"{result.model}, {result.numbers}: {subject}", ("", *times, *counts), rows)


def served(result: Result, subject: str, arm: str) -> tuple[str, ...]:
    """One server and way of asking it: times and speeds, each with the ratio to the server without a society, then
    tokens of prompts and the shares of them that were reused."""
    if not result.has(subject, arm):
        return (arm, result.why_not(subject, arm), *[""] * 8)
    beside = result.has(subject, PLAIN)
    first = f"{result.spread(subject, arm, 'ttft').shown(0, 1000)} ms"
    waits = result.ratio([subject], PLAIN, arm, "ttft").shown() if beside else ""
    rate = result.spread(subject, arm, "rate").shown(1)
    speeds = result.ratio([subject], arm, PLAIN, "rate").shown() if beside else ""
    prompts = middle(result, subject, arm, "prompt", shown=".0f")
    shares = (middle(result, subject, arm, what, shown=".0%") for what in ("spared", "exact", "reused", "same"))
    return (arm, first, waits, rate, speeds, prompts, *shares)


def middle(result: Result, subject: str, arm: str, what: str, *, shown: str) -> str:
    """A median in this format; a dash if the server does not report it."""
    return format(result.spread(subject, arm, what).middle, shown) if result.values(subject, arm, what) else "-"


def games(found: BothWays) -> str:
    """Both ways, and their ratio."""
    ways = {
        "at once": (found.together, found.together_steps),
        "one after another": (found.apart, found.apart_steps),
    }
    rows = tuple(
        (way, f"{seconds:.1f} s", str(steps), f"{seconds / found.games:.2f} s")
        for way, (seconds, steps) in ways.items()
    )
    table = plain(TextTable(many(found.games, "game"), ("", "time", "steps", "a game"), rows))
    ratio = f"ratio {found.together / found.apart:.3f}"
    return f"{table}\n  {ratio}; {found.same} of {found.games} outcomes the same"


def leakage(found: LeakageBench) -> str:
    """Two tables: first tokens and throughput."""
    times = TextTable(
        f"{found.model}: mean time to first token",
        ("", *ARMS, "enforce/audit", "baseline/enforce", "encoded"),
        tuple(_first_tokens(found)),
    )
    speeds = TextTable(
        f"{found.model}: tokens a second while speaking",
        ("", "no shadow", "shadow", "ratio"),
        tuple(
            (each.workflow, f"{median(each.plain):.1f}", f"{median(each.shadowed):.1f}", each.ratio.shown("-"))
            for each in found.throughput
        ),
    )
    return f"{plain(times)}\n\n{plain(speeds)}"


def _first_tokens(found: LeakageBench) -> Iterator[tuple[str, ...]]:
    for each in found.first:
        seconds = (f"{1000 * median(each.seconds[arm]):.0f} ms" for arm in ARMS)
        ratios = (each.ratio(*both).shown("-") for both in (("enforce", "audit"), ("baseline", "enforce")))
        yield (each.workflow, *seconds, *ratios, "/".join(str(each.encoded[arm]) for arm in ARMS))
