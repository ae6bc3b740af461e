"""Converts outcomes to rows and claims: what leaks, what reveals no more than the text, and what cannot be known.

An encoding without a shown leak counts as equivalent to the text only by an attack that succeeds on the author's
encoding in the same run; otherwise it is inconclusive, never clean. Independent of engines.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentcho.audit.measurement import Interval
from agentcho.lab.leaks.evidence import above_chance, equivalent, more, recovered
from agentcho.lab.leaks.result import Against, Claim, Outcome, Row, Verdict
from agentcho.lab.leaks.secrets import kind
from agentcho.lab.leaks.ways import AUTHOR, TEXT, way
from agentcho.lab.stats import clopper_pearson, holm

SHOWN = 0.001
"""A leak is shown by an adjusted p below this."""
SAME = 0.05
"""Equivalence is shown by a p below this. It is claimed only if all attacks that can tell show it, so it needs no
adjustment (an intersection-union test)."""
NOTHING = Interval(low=0.0, high=1.0, method="nothing was tested")
Key = tuple[str, str, str]


def judge(outcomes: Sequence[Outcome], seed: int) -> tuple[Row, ...]:
    """A row for each outcome, with its verdict."""
    tried = {_key(each): each for each in outcomes if each.unavailable is None}
    rows = {key: _row(each, seed) for key, each in tried.items()}
    tests = [(key, p) for key, row in rows.items() for p in _tests(tried[key], row)]
    adjusted = holm([p for _, p in tests])
    for (key, _), p in zip(tests, adjusted, strict=True):
        rows[key] = rows[key].model_copy(update={"p": min(rows[key].p, p)})
    for key, against in _against(tried).items():
        rows[key] = rows[key].model_copy(update={"text": against})
    found = (rows.get(_key(each)) or _unavailable(each) for each in outcomes)
    return tuple(_with_verdict(row, rows) for row in found)


def _tests(each: Outcome, row: Row) -> tuple[float, ...]:
    """The p-values of a row, to be adjusted. An exact test of symbols needs symbols that are guessed independently."""
    return (row.p_exact,) if each.symbols_chance is not None else (row.p_exact, row.p_symbols)


def _key(each: Outcome | Row) -> Key:
    return each.kind, each.way, each.attack


def _row(each: Outcome, seed: int) -> Row:
    of, tested = kind(each.kind), len(each.right)
    exact, symbols = sum(right == len(of.slots) for right in each.right), sum(each.right)
    bits = recovered(each.logq, each.entropy, seed)
    together, alone = each.symbols_chance, 1 / of.options
    return Row(
        kind=each.kind,
        way=each.way,
        attack=each.attack,
        tested=tested,
        exact=exact,
        share=clopper_pearson(exact, tested),
        chance=each.chance,
        p_exact=above_chance(exact, tested, each.chance),
        symbols=symbols,
        symbols_tested=tested * len(of.slots),
        symbols_chance=alone if together is None else together,
        p_symbols=above_chance(symbols, tested * len(of.slots), alone) if together is None else 1.0,
        p=1.0,
        entropy=each.entropy,
        bits=bits.middle,
        bits_interval=bits.interval,
        where=each.where,
        verdict="inconclusive",
        why="",
    )


def _unavailable(each: Outcome) -> Row:
    return Row(
        kind=each.kind,
        way=each.way,
        attack=each.attack,
        tested=0,
        exact=0,
        share=NOTHING,
        chance=0.0,
        p_exact=1.0,
        symbols=0,
        symbols_tested=0,
        symbols_chance=0.0,
        p_symbols=1.0,
        p=1.0,
        entropy=each.entropy,
        bits=0.0,
        bits_interval=NOTHING,
        where="",
        verdict="inconclusive",
        why="not tried",
        unavailable=each.unavailable,
    )


def _against(tried: dict[Key, Outcome]) -> dict[Key, Against]:
    """Each outcome compared with that of the text alone, for the same attack on the same secrets."""
    found: dict[Key, Against] = {}
    pairs = {
        key: (each, tried[each.kind, TEXT, each.attack])
        for key, each in tried.items()
        if each.way != TEXT and (each.kind, TEXT, each.attack) in tried
    }
    adjusted = holm([more(each.right, text.right) for each, text in pairs.values()])
    for (key, (each, text)), p in zip(pairs.items(), adjusted, strict=True):
        slots = len(kind(each.kind).slots)
        whole = equivalent([r == slots for r in each.right], [r == slots for r in text.right])
        parts = equivalent([r / slots for r in each.right], [r / slots for r in text.right])
        same = max(whole.p, parts.p)
        found[key] = Against(secrets=whole.difference, symbols=parts.difference, p_same=same, p_more=p)
    return found


def leaks(row: Row) -> bool:
    """Whether an attack is above chance, and above the text alone."""
    return row.p < SHOWN and row.text is not None and row.text.p_more < SHOWN


def _with_verdict(row: Row, rows: dict[Key, Row]) -> Row:
    verdict, why = _verdict(row, rows.get((row.kind, AUTHOR, row.attack)))
    text = rows.get((row.kind, TEXT, row.attack))
    if verdict == "no more than the text" and way(row.way).learns and text and _found(row) == _found(text):
        verdict, why = "inconclusive", "it equals the text: here it found nothing to learn from and encoded all anew"
    return row.model_copy(update={"verdict": verdict, "why": why})


def _found(row: Row) -> tuple[int, int, float]:
    return row.exact, row.symbols, row.bits


def _verdict(row: Row, author: Row | None) -> tuple[Verdict, str]:
    """The verdict on a row, and why."""
    if row.unavailable is not None:
        return "inconclusive", f"not tried: {row.unavailable}"
    if row.way == TEXT:
        return "no more than the text", "it is the text" + (", which tells by itself" if row.p < SHOWN else "")
    if row.text is None:
        return "inconclusive", "the text alone was not attacked beside it"
    if leaks(row):
        return "leaks", "above chance and above the text alone"
    if author is None or not leaks(author):
        return "inconclusive", "this attack does not succeed on the author's encoding in this run"
    if row.text.p_same < SAME:
        return "no more than the text", "within 3 points of the text alone, by an attack that succeeds on the author's"
    return "inconclusive", "neither shown to tell more than the text nor to be within 3 points of it"


def claims(rows: Sequence[Row]) -> tuple[Claim, ...]:
    """One claim for each reading mode except the text alone."""
    names = dict.fromkeys(row.way for row in rows if row.way != TEXT)
    return tuple(_claim(name, [row for row in rows if row.way == name]) for name in names)


def _claim(name: str, rows: Sequence[Row]) -> Claim:
    what = way(name).meaning
    shown = [row for row in rows if row.verdict == "leaks"]
    if shown:
        best = max(shown, key=lambda row: row.bits)
        kinds = ", ".join(dict.fromkeys(row.kind for row in shown))
        said = (
            f"{what} gives away {kinds}. The best attack, {best.attack}, reads {best.bits:.1f} of {best.entropy:.1f} "
            f"bits of {best.kind}, and {best.exact} of {best.tested} secrets whole"
        )
        return Claim(way=name, verdict="leaks", sentence=said)
    same = [row for row in rows if row.verdict == "no more than the text"]
    open_ = [row for row in rows if row.verdict == "inconclusive" and not row.why.startswith(("this attack", "not tr"))]
    unshown = sorted({row.kind for row in rows} - {row.kind for row in same})
    if same and not open_ and not unshown:
        attacks = ", ".join(dict.fromkeys(row.attack for row in same))
        said = (
            f"{what} gives away no more than the text alone, within 3 points, to the attacks that succeed on the "
            f"author's encoding: {attacks}"
        )
        return Claim(way=name, verdict="no more than the text", sentence=said)
    why = dict.fromkeys(row.why for row in rows if row.verdict == "inconclusive")
    about = f" about {', '.join(unshown)}" if unshown else ""
    return Claim(way=name, verdict="inconclusive", sentence=f"{what}: inconclusive{about}: {'; '.join(why)}")
