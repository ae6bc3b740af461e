"""The ledger of words: recomputed from what a run wrote and never below what the run charged, and how it treats lines
that lack a valid account of themselves."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from math import log2
from typing import Any

import pytest

from agentcho import Agent, Game, View
from agentcho.audit.audit import audit_entries
from agentcho.audit.formats.html import html
from agentcho.audit.formats.sarif import sarif
from agentcho.audit.notes import Seal
from agentcho.audit.report import AuditReport, Told
from agentcho.display.audit import _bits, show
from agentcho.records.transcript import TranscriptEntry, has_earlier_ids
from tests.leaks.words.test_owed import game_of
from tests.leaks.words.test_rule import COLOURS, Vote, rehearse, whispered

from .transcripts import KEY, subject

NAMES = ("alice", "bob", "carol")


def audited(entries: Any, words: Any = "refuse", budget: float | None = None, **changes: Any) -> AuditReport:
    about = subject(agents=NAMES, leakage="enforce", words=words, leak_budget=budget, **changes)
    games = entries if isinstance(entries, dict) else {0: list(entries)}
    return audit_entries(about.model_copy(update={"games": len(games)}), games, Seal(KEY))


async def talk(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
    """Alice is told a word, and says three things after reading it; Bob repeats one of them."""
    secret = View.of([await whispered(game)])
    await alice.choose(COLOURS, to="bob", view=secret)
    await alice.choose(["yes", "no"], to="everyone", view=secret)
    await alice.answer(Vote, to=["carol"], view=secret, header="Say: ")
    await bob.choose(["yes", "no"], to="carol", view=View.of(["alice.0"]))


REPLIES = {"alice": ["red", "yes", '{"whom": "bob", "doubt": 3}'], "bob": ["no"]}


@pytest.fixture(scope="module")
def said() -> tuple[TranscriptEntry, ...]:
    """The transcript of that game."""
    return tuple(TranscriptEntry.from_json(entry.to_json()) for entry in rehearse(talk, REPLIES).entries)


def rows(report: AuditReport) -> dict[tuple[str, str], float]:
    assert report.words is not None
    return {(row.owner, row.reader): row.bits for row in report.words.rows}


@pytest.mark.parametrize(
    ("revealed", "budget", "told"), [(1, None, "1 bit"), (6.4594, None, "6.459 bits"), (1.0, 1, "1 of 1 bit")]
)
def test_one_bit_is_singular(revealed: float, budget: float | None, told: str) -> None:
    assert _bits(revealed, budget) == told


def test_the_ledger_is_worked_out_from_the_transcript_alone(said: tuple[TranscriptEntry, ...]) -> None:
    report = audited(said)
    assert rows(report) == pytest.approx(
        {
            ("alice", "bob"): log2(3) + 1,
            ("alice", "carol"): 1 + log2(22) + 1,
            ("alice", "everyone"): 1.0,
        }
    )
    assert (report.conclusion, report.words and report.words.unaccounted) == ("clean", 0)
    assert "words=refuse: at most 6.459 bits to one reader about one owner in a game" in report.reasons


def test_a_run_without_a_rule_has_no_ledger(said: tuple[TranscriptEntry, ...]) -> None:
    report = audited(said, None)
    assert report.words is None
    assert not [finding for finding in report.findings if finding.rule in ("AC017", "AC018")]


def test_what_is_above_the_budget_is_found(said: tuple[TranscriptEntry, ...]) -> None:
    report = audited({0: said, 1: said}, "track", 2.6)
    over = [finding for finding in report.findings if finding.rule == "AC017"]
    assert [(finding.reader, finding.owner, finding.games) for finding in over] == [("carol", "alice", 2)]
    assert over[0].edges == 2
    assert "6.459 bits in a game, of 2.6 given" in over[0].message
    assert report.exit_code("error") == 0
    assert report.exit_code("warning") == 1
    assert report.words is not None
    assert [row.over for row in report.words.rows] == [True, False, False]
    assert [row.games for row in report.words.rows] == [2, 2, 2]


def charged(entry: TranscriptEntry, **changes: Any) -> TranscriptEntry:
    assert entry.act.charge is not None
    return entry._replace(act=entry.act._replace(charge=entry.act.charge._replace(**changes)))


def choices(entry: TranscriptEntry, *texts: str) -> TranscriptEntry:
    return entry._replace(act=entry.act._replace(choices=texts))


def saying(entry: TranscriptEntry, **changes: Any) -> TranscriptEntry:
    return entry._replace(message=entry.message.saying(**changes))


def test_records_whose_private_samples_have_numbers_of_their_own_are_of_an_earlier_version(
    said: tuple[TranscriptEntry, ...],
) -> None:
    assert not has_earlier_ids(said)
    numbered = [e._replace(act=e.act._replace(released="alice.1")) if e.act.released else e for e in said]
    assert has_earlier_ids(numbered)


CHOICE, RETOLD = "alice.0", "alice.2"
BROKEN: list[tuple[str, Callable[[TranscriptEntry], TranscriptEntry], str]] = [
    (CHOICE, lambda e: e._replace(act=e.act._replace(charge=None)), "does not say how much it can tell"),
    (CHOICE, lambda e: charged(e, bits=0.0), "was charged 0.0 bits, but can tell 1.58"),
    (CHOICE, lambda e: charged(e, bits=None), "was charged None bits"),
    (CHOICE, lambda e: charged(e, owed=()), "was not charged for what it tells bob"),
    (CHOICE, lambda e: charged(e, by="words"), "is not restricted, although the run refuses such messages"),
    (CHOICE, lambda e: charged(e, by="schema"), "does not say which values it could take"),
    (CHOICE, lambda e: choices(e, *COLOURS, "grey"), "was charged 1.58"),
    (CHOICE, lambda e: choices(e, "grey", "white", "black"), "is not one of its choices"),
    (CHOICE, lambda e: choices(e), "is not one of its choices"),
    (CHOICE, lambda e: saying(e, canonical=False), "can tell more than the text"),
    (CHOICE, lambda e: e._replace(made=(), encoding=None), "no record of what it was said over"),
    (RETOLD, lambda e: charged(e, schema=None), "does not say which values it could take"),
    (RETOLD, lambda e: charged(e, schema={"type": "boolean"}), "is not JSON that its schema admits"),
    (RETOLD, lambda e: charged(e, schema={"type": "string"}), "is not JSON that its schema admits"),
    (RETOLD, lambda e: charged(e, schema={"type": "object", "properties": 5}), "is not JSON that its schema admits"),
    (RETOLD, lambda e: charged(e, schema={"type": "string", "maxLength": "x"}), "is not JSON that its schema admits"),
    (RETOLD, lambda e: saying(e, text='Say: {"doubt": 3, "whom": "bob"}'), "in canonical spelling"),
    (RETOLD, lambda e: saying(e, text='{"doubt":3,"whom":"bob"}'), "does not say which values it could take"),
    (RETOLD, lambda e: e._replace(act=e.act._replace(released="alice.9")), "which does not come before it"),
    (RETOLD, lambda e: e._replace(act=e.act._replace(released=RETOLD)), "which does not come before it"),
]


@pytest.mark.parametrize(("id", "change", "why"), BROKEN, ids=[why[:40] for _, _, why in BROKEN])
def test_a_line_that_does_not_account_for_itself_is_no_0_bits(
    said: tuple[TranscriptEntry, ...], id: str, change: Callable[[TranscriptEntry], TranscriptEntry], why: str
) -> None:
    report = audited([change(entry) if entry.message.id == id else entry for entry in said])
    unknown = [finding for finding in report.findings if finding.rule == "AC018"]
    assert why in unknown[0].message
    assert report.words is not None
    assert report.words.unaccounted == sum(finding.edges for finding in unknown) > 0
    assert report.conclusion in ("inconclusive", "findings")
    assert report.exit_code("error") != 0


def test_a_schema_that_nobody_can_count_is_no_0_bits(said: tuple[TranscriptEntry, ...]) -> None:
    free = {"type": "object", "properties": {"whom": {"type": "string"}, "doubt": {"type": "integer"}}}
    schema = free | {"additionalProperties": False}
    report = audited([charged(e, schema=schema) if e.message.id == RETOLD else e for e in said])
    assert "cannot be counted: it allows unlimited" in next(f.message for f in report.findings if f.rule == "AC018")
    assert report.conclusion == "inconclusive"


def test_without_its_lines_a_game_is_no_cleaner(said: tuple[TranscriptEntry, ...]) -> None:
    """A missing line reduces nothing that another line reveals."""
    report = audited([entry for entry in said if entry.message.id != "scenario.0"])
    assert report.conclusion != "clean"
    assert report.words is not None
    assert report.words.unaccounted


def test_free_words_and_releases_have_no_bound() -> None:
    async def script(game: Game, alice: Agent, bob: Agent, carol: Agent) -> None:
        secret = View.of([await whispered(game)])
        await alice.say(to="bob", view=secret)
        mine = await alice.think(view=secret)
        await alice.release(mine, to="carol")
        await alice.say(to="carol", view=secret, release=True)
        await bob.choose([mine.text, "no"], to="everyone", view=View(()))

    played = rehearse(script, {"alice": ["One.", "Two.", "Three."], "bob": ["no"]}, words="track")
    report = audited(played.entries, "track")
    assert report.words is not None
    told = {(row.owner, row.reader): (row.bits, row.free, row.passed, row.acts) for row in report.words.rows}
    assert told == {
        ("alice", "bob"): (0, 1, 0, 0),
        ("alice", "carol"): (0, 0, 2, 1),
        ("alice", "everyone"): (0, 0, 0, 1),
    }
    assert [row.bounded for row in report.words.rows] == [False, False, True]
    assert report.reasons[1].endswith("about one owner in a game; no bound for 2 of 3 pairs")


@pytest.mark.parametrize("leakage", ["enforce", "audit"])
def test_what_is_worked_out_again_is_what_was_charged(leakage: str) -> None:
    for seed in range(8):
        played = game_of(seed, leakage)
        about = {"agents": (*NAMES, "dora"), "leakage": leakage}
        report = audit_entries(subject(**about, words="track"), {0: played.entries}, Seal(KEY))
        assert not [finding for finding in report.findings if finding.rule == "AC018"], seed
        expected: dict[tuple[str, str], float] = {}
        for charge in (entry.act.charge for entry in played.entries):
            for owner, readers in () if charge is None else charge.owed:
                for reader in readers:
                    assert charge is not None
                    expected[owner, reader] = expected.get((owner, reader), 0.0) + (charge.bits or 0.0)
        found = {pair: bits for pair, bits in rows(report).items() if bits and pair[1] != "dora"}
        assert found == pytest.approx({pair: b for pair, b in expected.items() if b and pair[1] != "dora"}), seed


def test_every_format_has_the_ledger(said: tuple[TranscriptEntry, ...]) -> None:
    report = audited(said, "track", 2.6)
    out = StringIO()
    show(report, "plain", out)
    assert "alice → carol" in out.getvalue()
    assert "6.459 of 2.6 bits" in " ".join(out.getvalue().split())
    assert "In no number of bits: whether and when" in " ".join(out.getvalue().split())
    page = html(report)
    assert "Ledger of words" in page
    assert "over the budget" in page
    assert "AC017" in str(sarif(report))
    assert AuditReport.model_validate_json(report.model_dump_json()) == report
    assert "Ledger of words" not in html(audited(said, None))


def test_a_hostile_name_does_no_harm_in_the_ledger(said: tuple[TranscriptEntry, ...]) -> None:
    report = audited(said)
    assert report.words is not None
    row = Told(owner="<script>alert(1)</script>\x1b[2J", reader="bob\n", bits=1, game=0, games=1)
    strange = report.model_copy(update={"words": report.words.model_copy(update={"rows": (row,)})})
    out = StringIO()
    show(strange, "plain", out)
    assert "\x1b" not in out.getvalue()
    assert "<script>alert(1)" not in html(strange)
