"""Prose that quotes a measured number agrees with the result files.

Every sentence of the README and of hand-written pages with a number that looks measured (times, shares, seconds) is
listed in `FROM_FILES`, and recomputed from its files, or in `NO_RESULTS`, because it is a setting, a limit or an
example. A new sentence is in neither, and fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = (
    "README.md",
    "docs/index.md",
    "docs/serve.md",
    "docs/quickstart.md",
    "docs/concepts.md",
    "docs/clients.md",
    "docs/inside-servers.md",
    *(f"docs/how-to/{page.name}" for page in sorted((DOCS / "how-to").glob("*.md"))),
    "tools/pages/leakage.md.jinja",
    "tools/pages/speed.md.jinja",
    "tools/pages/speed-tables.md.jinja",
    "tools/pages/agentleak.md.jinja",
    "tools/pages/comparisons.md.jinja",
)
AUDIT = "choreographed:audit"
ENGINES = {
    "sets": "on the symbolic engine",
    "fake": "on the fake engine",
    "model": "on a tiny model, compared bit by bit",
}
MEASURED = re.compile(
    r"(?<![\w.])\d[\d,.]*\s?(?:%|percent\b|times\b|ms\b|s\b|seconds\b|minutes\b|hours\b|points\b|nats\b)"
    r"|\b\d[\d,]* of (?:the )?\d[\d,]*\b"
    r"|\b(?:\d[\d,]*|all \d+) (?:swaps|workflows|pairs|mutants|secrets|ways)\b"
)


def read(name: str) -> Any:
    return json.loads((DOCS / "results" / name).read_bytes())


def agentleak() -> str:
    offices = read("agentleak.json")["workflows"]
    leaking = {
        way: sum(any(said != "clean" for said in office["verdicts"][way].values()) for office in offices)
        for way in ("audit", "enforce")
    }
    swaps = [swap for office in offices for swap in office["swaps"] if swap["way"] == "enforce"]
    assert leaking == {"audit": len(offices), "enforce": 0}
    assert not any(swap["differing"] for swap in swaps)
    return (
        f"Production models played {len(offices)} office workflows in which two agents hold a vault of private records "
        f"that a third may not read. Replayed word by word on the understudy, all {len(offices)} leak under `audit` "
        f"and none under `enforce`; there, {len(swaps)} swaps of a vault changed no bit of what other agents read"
    )


def probed() -> str:
    rows = [row for file in ("leaks.json", "leaks-earlier.json") for row in read(file)["rows"]]
    linear = [row for row in rows if row["attack"] == "linear" and row["way"] not in ("audience", "text")]
    (tested,) = {row["tested"] for row in linear}
    return f"a linear probe recovered at least {min(row['exact'] for row in linear)} of {tested} codes, names, plans or"


def judges() -> str:
    """No way other than full re-encoding keeps 99% of the choices of every task."""
    rows = [row for row in read("judge.json")["rows"] if row["way"] not in ("baseline", "full")]
    kept = {row["way"]: min(each["all"]["share"] for each in rows if each["way"] == row["way"]) for row in rows}
    assert max(kept.values()) < 0.99
    return "no cheaper method that was measured kept 99% of a judge's choices in every task, as the tables below show."


def judges_cost() -> str:
    assert min(row["anew"] for row in read("judge.json")["rows"] if row["way"] == "full") > 0.3
    return "it costs more than 30% of what is read."


def rounded() -> str:
    """64 one-byte numbers plus a scale of the original width."""
    halves, singles = (64 * width / (64 + width) for width in (2, 4))
    return f"So the same bytes hold {halves:.2f} times the tokens of bfloat16 and {singles:.2f} of float32"


def lengths() -> str:
    (row,) = (row for row in read("neighbours.json")["rows"] if (row["dtype"], row["profile"]) == ("float32", "fast"))
    return f"{row['right']} of {len(row['lengths'])} lengths in float32)"


def hours() -> str:
    took = sum(phase["seconds"] for phase in read("paper.json")["phases"]) / 3600
    return f"the checkpoint by loss) it took {took:.1f} hours"


def mutants() -> str:
    fates = [each["killed_by"] for each in read("mutants.json")["mutants"]]
    return f"in {len(fates)} ways, and the tests notice {sum(bool(killer) for killer in fates)} of them"


def swapped() -> str:
    engines = read("interference.json")["engines"]
    assert not any(engine["told"] for engine in engines.values())
    counts = (
        f"{engines[name]['compared']:,} workflows {what}, 0 in which the reader saw a difference"
        for name, what in ENGINES.items()
    )
    return "; ".join(counts)


def left_out() -> str:
    parted = sum(engine["parted"] for engine in read("interference.json")["engines"].values())
    return f"{parted} further pairs could not be compared, because the schedule itself differed"


def answered() -> str:
    means = read("compare-multi-qa.json")["metrics"][0]["means"]
    baseline, audit, tuned = (means[way]["value"] for way in ("baseline", AUDIT, f"{AUDIT}@tuned"))
    return (
        f"right in {baseline:.1%} of games in the baseline, and in {audit:.1%} under `audit`. An "
        f"[adapter](docs/how-to/tune.md) brings that back to {tuned:.1%}"
    )


def unrepaired() -> str:
    means = read("compare-multi-qa-repair-parallel.json")["metrics"][0]["means"]
    games = read("compare-multi-qa-repair-parallel.json")["request"]["games"]
    repaired = {way: each["value"] for way, each in means.items() if "+" in way}
    assert max(repaired.values()) == repaired[f"{AUDIT}+full"]
    right = [round(games * each) for each in (means["baseline"]["value"], repaired[f"{AUDIT}+full"])]
    return f"of {games} games, all answers are right in {right[0]} in the baseline, and in {right[1]} with `full`"


def reused() -> str:
    rows = read("real-fidelity.json")["rows"]
    kept = sorted(row["same"]["value"] for row in rows if row["column"] == "choreographed:audit")
    return f"`audit` keeps the likeliest token in {100 * kept[0]:.1f} to {100 * kept[-1]:.1f}% of places"


def recalled() -> str:
    metric = read("real-task-recall-serial.json")["metrics"][0]
    columns = ("baseline", "choreographed:audit", "choreographed:enforce")
    baseline, audit, enforce = (metric["means"][column]["value"] for column in columns)
    means = read("real-task-recall-serial-long.json")["metrics"][0]["means"]
    tuned, reference = (means[f"{way}@recall-long-enforce"]["value"] for way in ("choreographed:enforce", "baseline"))
    return (
        f"the baseline answers {baseline:.3f} of the questions correctly, `audit` {audit:.3f} and `enforce` "
        f"{enforce:.3f}; with an adapter, `enforce` {tuned:.3f} and the baseline {reference:.3f}"
    )


def given_away() -> str:
    found = read("real-leaks-natural.json")
    (entropy,) = (each["entropy"] for each in found["secrets"] if each["kind"] == "codes")
    best = dict[str, Any]()
    for row in found["rows"]:
        if row["kind"] == "codes" and row["unavailable"] is None:
            best[row["way"]] = max(best.get(row["way"], row), row, key=lambda each: each["bits"])
    low, high = best["audience"]["bits_interval"]["low"], best["audience"]["bits_interval"]["high"]
    return (
        f"gave away {best['reuse']['bits']:.1f} of {entropy:.1f} bits of a code by reused encodings, and "
        f"{best['audience']['bits']:.1f} ({low:.1f} to {high:.1f}) by those of `enforce`; the words alone told "
        f"{best['text']['bits']:.1f}"
    )


FROM_FILES = {
    "docs/leakage.md": (mutants, swapped, left_out),
    "README.md": (answered, agentleak, probed, reused, recalled, given_away),
    "docs/how-to/memory.md": (rounded,),
    "docs/serve.md": (lengths,),
    "docs/how-to/repair.md": (unrepaired, judges, judges_cost),
    "docs/how-to/paper.md": (hours,),
}
"""Sentences that are computed from result files; each function gives one sentence or its beginning."""
ELSEWHERE = {
    "docs/how-to/tune.md": "of the 400 questions of 200 games of multi-qa, 187 (47%) stand word for word in 300 games",
}
"""Sentences that another test computes."""
NO_RESULTS = {
    "docs/serve.md": ("at least 1 and at most 60 seconds",),
    "docs/how-to/paper.md": ("All of it takes about 6 hours", "it is a bit more than 2 hours"),
    "docs/how-to/tune.md": ("5 to 12 times less than ours would be there",),
    "docs/how-to/benchmark.md": (
        "Below 0.01 nats a row says",
        "it takes 2,000 secrets of each kind",
        "shown to be within 3 points of it",
    ),
    "docs/how-to/probe.md": (
        "in 9 of 10 such probes at least",
        "An answer is given up after 60 seconds without a byte",
        "(in fewer than 9 of 10 such probes)",
    ),
    "docs/how-to/sweep.md": ("have 95 % intervals", "below 20 pairs the table says so"),
    "docs/how-to/tools.md": ("has not listed its tools within 30 seconds",),
    "tools/pages/leakage.md.jinja": (
        "such reuse moved Bob's cooperation from 72.8% to 46.7%",
        "makes one in some 20 minutes on two cores",
        "one of the same length (95% interval)",
    ),
    "tools/pages/speed-tables.md.jinja": (
        "with a 95% bootstrap interval",
        "its next tokens within 0.01 nats",
        "Single runs here differ by some 10 %",
        "if 95 of 100 first tokens come within the limit",
    ),
    "tools/pages/comparisons.md.jinja": (
        "intervals are of 95%",
        "the 15% of tokens whose values deviate most",
        "within 0.01 nats a token",
    ),
}
"""Beginnings or parts of sentences whose numbers are not our measurements."""


def sentences(page: str) -> Iterator[str]:
    """The prose of a page, without code, tables and generated parts."""
    text = (ROOT / page).read_text()
    text = re.sub(r"<!-- (\w+) -->.*?<!-- end of \1 -->", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"\{\{.*?\}\}", "X", re.sub(r"\{%.*?%\}", "", text, flags=re.DOTALL), flags=re.DOTALL)
    for part in re.split(r"\n\n|\n(?=- )", text):
        if not part.lstrip().startswith("|"):
            yield from re.split(r"(?<=[.:;]) ", " ".join(part.split()))


@pytest.mark.parametrize("page", FROM_FILES)
def test_what_is_said_of_results_is_what_their_files_say(page: str) -> None:
    told = " ".join((ROOT / page).read_text().split())
    for said in FROM_FILES[page]:
        assert said() in told


@pytest.mark.parametrize("page", PAGES)
def test_every_number_that_looks_measured_is_checked_or_is_no_result(page: str) -> None:
    checked = " ".join(said() for said in FROM_FILES.get(page, ())) + ELSEWHERE.get(page, "")
    known = NO_RESULTS.get(page, ())
    numbers = {sentence: MEASURED.findall(sentence) for sentence in sentences(page)}
    new = [
        sentence
        for sentence, found in numbers.items()
        if found and not all(each in checked for each in found) and not any(each in sentence for each in known)
    ]
    assert new == [], "work them out from a result file in FROM_FILES, or name them in NO_RESULTS"
    told = " ".join((ROOT / page).read_text().split())
    assert [each for each in known if each not in told] == [], "NO_RESULTS names what is no longer there"


def test_where_a_sentence_is_forced_what_enforce_reuses_is_what_the_text_gives() -> None:
    """So the page says that no attack could have found more."""
    told = " ".join((DOCS / "leakage.md").read_text().split())
    for file in ("leaks.json", "leaks-earlier.json"):
        found = read(file)
        assert found["sentence"] == "forced"
        rows = {(row["kind"], row["way"], row["attack"]): (row["exact"], row["symbols"]) for row in found["rows"]}
        ways = {way: {key[::2]: row for key, row in rows.items() if key[1] == way} for way in ("audience", "text")}
        assert ways["audience"] == ways["text"] != {}
    assert told.count("no attack could have found more") == 2
