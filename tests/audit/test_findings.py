"""Findings: how they are merged over games, the notes beside leaks, and redaction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import agentcho
from agentcho import Agent, Game, Scenario, View
from agentcho.audit import RULES, AuditReport, audit_run, read_report
from agentcho.audit.formats.advice import actions
from agentcho.audit.report import Finding, Place
from agentcho.audit.rules import fingerprint
from agentcho.audit.subject import LIMITS, SOCIETY
from agentcho.audit.wording import headline, released
from agentcho.errors import RecordBroken
from agentcho.provenance.views import Act, After
from agentcho.records.record import find
from agentcho.testing import FakeEngine

from .transcripts import Talk, audited, chain


def found(report: AuditReport, rule: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == rule]


def one(report: AuditReport, rule: str) -> Finding:
    (finding,) = found(report, rule)
    return finding


def clean(game: int = 0) -> Talk:
    talk = Talk(game)
    talk.say("bob.0", "everyone", [talk.say("alice.0", "everyone")])
    return talk


def test_leaks_are_put_together_over_games_and_the_worst_is_told() -> None:
    second = Talk(1)
    secret = second.say("alice.0", ["alice"])
    second.say("alice.1", "everyone", [second.say("alice.2", "everyone", [secret])])
    second.say("bob.0", "everyone", [3])
    second.say("bob.1", "everyone", [2, 3])
    report = audited(second, chain(0), games=2)
    (bob, carol) = found(report, "AC002")
    assert (bob.reader, bob.owner, bob.carrier, bob.games, bob.edges) == ("bob", "alice", "alice", 2, 4)
    assert (bob.path, bob.hops, bob.secrets) == (("alice.1", "alice.0"), 1, ("alice.0",))
    assert bob.place == Place(file="play.py", line=3), "where Bob, in game 0, asked for what he said"
    assert (carol.carrier, carol.path) == ("bob", ("bob.0", "alice.1", "alice.0"))
    assert (report.conclusion, report.reasons[0]) == ("findings", "2 errors: AC002 2")
    assert (report.drawn_game, [said.id for said in report.drawn]) == (
        1,
        ["alice.0", "alice.2", "alice.1", "bob.0", "bob.1"],
    )


def test_of_equally_long_ways_the_one_to_most_secrets_is_told() -> None:
    talk = Talk()
    first, second = talk.say("alice.0", ["alice"]), talk.say("alice.1", ["alice"])
    few, most = talk.say("alice.2", "everyone", [first]), talk.say("alice.3", "everyone", [first, second])
    talk.say("bob.0", "everyone", [few, most, few])
    leak = one(audited(talk), "AC002")
    assert (leak.secrets, leak.path) == (("alice.0", "alice.1"), ("alice.3", "alice.0"))


def test_each_owner_of_a_secret_has_a_finding_with_its_own_path() -> None:
    talk = Talk()
    far, near = talk.say("alice.0", ["alice"]), talk.say("carol.0", ["carol"])
    talk.say("bob.0", "everyone", [talk.say("carol.1", "everyone", [talk.say("alice.1", "everyone", [far]), near])])
    by_owner = {finding.owner: finding for finding in found(audited(talk), "AC002") if finding.reader == "bob"}
    assert by_owner["alice"].path == ("carol.1", "alice.1", "alice.0")
    assert by_owner["carol"].path == ("carol.1", "carol.0")
    assert by_owner["alice"].secrets == ("alice.0",)


@pytest.mark.parametrize("secret", [{}, {"kind": "prefill", "role": "tool"}])
def test_of_equally_near_secrets_one_of_the_game_is_told_and_not_a_prompt(secret: dict[str, Any]) -> None:
    """Prompts and lists of functions are there in every game; a plan or a tool's result is what a user looks for."""
    talk = Talk()
    system = talk.say("alice.0", ["alice"], kind="prefill", role="system")
    asked = talk.say("alice.1", ["alice"], kind="prefill")
    found = talk.say("alice.2", ["alice"], **secret)
    talk.say("bob.0", "everyone", [talk.say("alice.3", "everyone", [system, asked, found])])
    leak = one(audited(talk), "AC002")
    assert (leak.secrets, leak.path) == (("alice.0", "alice.1", "alice.2"), ("alice.3", "alice.2"))


class Talker(Agent):
    """Says what it is asked to say."""

    role = "talker"


class Overheard(Scenario):
    """Alice's plan reaches Carol by what Alice and Bob say; the code then acts on the plan."""

    name = "overheard"

    async def play(self, game: Game) -> Scenario.Outcome:
        alice, bob, carol = (game.cast(Talker, name) for name in ("alice", "bob", "carol"))
        plan = await alice.think(max_tokens=3)  # line of the plan
        told = await alice.say(view=View.of([plan.id]), to="everyone", max_tokens=3)  # line of the talk
        more = await bob.say(view=View.of([told.id]), to="everyone", max_tokens=3)  # line of the gossip
        await carol.say(view=View.of([more.id]), to="everyone", max_tokens=3)  # line of the eavesdropper
        if plan.text:
            await game.announce("Alice has a plan.")  # line of the act
        return self.Outcome()


def marked(what: str) -> Place:
    """The line of this file with a comment."""
    lines = Path(__file__).read_text().splitlines()
    [line] = (number for number, line in enumerate(lines, start=1) if line.endswith(f"  # line of the {what}"))
    return Place(file="tests/audit/test_findings.py", line=line)


def test_each_message_of_a_path_has_the_line_that_asked_for_it(tmp_path: Path) -> None:
    agentcho.run(Overheard(), model="fake", leakage="audit", out=tmp_path, display="none")
    report = audit_run(find("last", tmp_path))
    bob, carol = found(report, "AC002")
    assert (bob.path, bob.place) == (("alice.1", "alice.0"), marked("gossip"))
    assert bob.places == (marked("talk"), marked("plan"))
    assert (carol.path, carol.place) == (("bob.0", "alice.1", "alice.0"), marked("eavesdropper"))
    assert carol.places == (marked("gossip"), marked("talk"), marked("plan"))
    acted = one(report, "AC006")
    assert (acted.path, acted.place) == (("scenario.0", "alice.0"), marked("act"))
    assert acted.places == (marked("act"), marked("plan"))
    assert all(len(finding.places) == len(finding.path) for finding in report.findings)


def test_lines_are_those_of_the_worst_game() -> None:
    far, near = Talk(0), Talk(1)
    for talk, file in ((far, "far.py"), (near, "near.py")):
        secret = talk.say("alice.0", ["alice"], act=Act(f"{file}:1"))
        told = talk.say("alice.1", "everyone", [secret], act=Act(f"{file}:2"))
        if talk is far:
            told = talk.say("alice.1a", "everyone", [told], act=Act(f"{file}:3"))
        talk.say("bob.0", "everyone", [told], act=Act(f"{file}:4"))
    leak = one(audited(far, near), "AC002")
    assert leak.path == ("alice.1", "alice.0")
    assert leak.places == (Place(file="near.py", line=2), Place(file="near.py", line=1))


@pytest.mark.parametrize("leaking", [1, 2])
def test_lines_are_those_of_the_attempt_that_leaked(leaking: int) -> None:
    entries = []
    for attempt in (1, 2):
        talk = Talk()
        secret = talk.say("alice.0", ["alice"], act=Act(f"attempt.py:{attempt}0"))
        talk.say("bob.0", "everyone", [secret] if attempt == leaking else [], act=Act(f"attempt.py:{attempt}1"))
        entries += [entry._replace(attempt=attempt) for entry in talk.entries]
    both = Talk()
    both.entries = entries
    leak = one(audited(both), "AC001")
    assert (leak.path, leak.places) == (("alice.0",), (Place(file="attempt.py", line=10 * leaking),))


def test_a_message_without_a_line_has_none_beside_others_that_have_one() -> None:
    talk = Talk()
    secret = talk.say("alice.0", ["alice"], act=Act(None))
    talk.say("bob.0", "everyone", [talk.say("alice.1", "everyone", [secret])])
    leak = one(audited(talk), "AC002")
    assert (leak.path, leak.places) == (("alice.1", "alice.0"), (Place(file="play.py", line=2), None))
    talk.say("bob.1", "everyone", [secret], act=Act("not a line"))
    direct = one(audited(talk), "AC001")
    assert (direct.place, direct.path, direct.places) == (None, ("alice.0",), (None,))


def test_private_words_of_the_scenario_have_the_scenario_as_owner() -> None:
    talk = Talk()
    talk.say("bob.0", "everyone", [talk.say("secret", ["alice"], author=None, kind="prefill")])
    leak = one(audited(talk), "AC001")
    assert (leak.owner, leak.carrier, leak.hops) == ("scenario", "scenario", 0)


def test_positional_and_unlabelled_leaks_are_errors() -> None:
    talk = Talk()
    talk.say("alice.0", ["alice"])
    odd = talk.say("alice.1", "everyone", act=Act(None, (After("alice.0"),)))
    talk.say("bob.0", "everyone", [odd])
    positional = one(audited(talk), "AC003")
    assert (positional.level, positional.owner, positional.path) == ("error", "alice", ("alice.1", "alice.0"))
    talk = chain()
    talk.forge("alice.1", cone=frozenset({"alice.1"}))
    report = audited(talk)
    assert [(f.reader, f.carrier) for f in found(report, "AC004")] == [("bob", "alice"), ("carol", "bob")]
    assert "it is unknown what 2 readings or encodings carried" in report.reasons


def test_a_forged_record_that_nobody_reads_is_found_too() -> None:
    talk = clean()
    talk.forge("bob.0", cone=frozenset({"bob.0"}))
    unread = one(audited(talk), "AC004")
    assert (unread.reader, unread.carrier, unread.edges) == (None, "bob", 1)
    assert unread.place == Place(file="play.py", line=2)
    talk.change("bob.0", made=())
    assert "bob.0 has no record of its own" in one(audited(talk), "AC004").message
    talk = clean()
    talk.drop("alice.0")
    assert [f.reader for f in found(audited(talk), "AC004")] == ["bob"], "told once, by who reads it"


def test_readers_and_matrix_say_the_worst_and_never_a_mean() -> None:
    talk = clean()
    for number in range(1, 9):
        talk.say(f"bob.{number}", "everyone", [1])
    talk.say("bob.9", "everyone", [talk.say("alice.1", ["alice"])])
    report = audited(talk, agents=("alice", "bob", "eve"))
    bob, alice, eve = report.readers
    assert (bob.reader, bob.verdict, bob.readings, bob.leaking, bob.secrets_of) == ("bob", "direct", 10, 1, ("alice",))
    assert (alice.verdict, alice.readings, eve.verdict, eve.readings) == ("clean", 0, "clean", 0)
    (cell,) = report.matrix
    assert (cell.reader, cell.author, cell.verdict, cell.readings, cell.leaking) == ("bob", "alice", "direct", 10, 1)
    assert (len(report.edges), report.clean_edges) == (1, 9)


def test_a_fingerprint_depends_on_names_alone() -> None:
    first, again = Talk(0), chain(7)
    secret = first.say("alice.0", ["alice"], text="something else")
    said = first.say("alice.3", "everyone", [secret], act=Act("elsewhere.py:99"))
    first.say("bob.0", "everyone", [said, said])
    mine = one(audited(first), "AC002").fingerprint
    assert mine == next(f.fingerprint for f in audited(again).findings if f.reader == "bob")
    assert mine == fingerprint("AC002", "talk", "bob", "alice", "alice")
    others = [("AC001", "talk", "bob", "alice", "alice"), ("AC002", "walk", "bob", "alice", "alice")]
    others += [("AC002", "talk", "eve", "alice", "alice"), ("AC002", "talk", "bob", "eve", "alice")]
    assert (
        len({mine, *(fingerprint(*other) for other in others), fingerprint("AC002", "talk", "bob", "alice", "eve")})
        == 6
    )
    assert fingerprint("AC006", "a", None, "b", "c") != fingerprint("AC006", "a", "b", None, "c")
    assert len(mine) == 32


def test_a_release_has_its_sources_and_a_finding_by_owner() -> None:
    talk = Talk()
    own, told = talk.say("alice.0", ["alice"]), talk.say("bob.0", ["alice"])
    talk.say("alice.1", ["bob"], [told])
    talk.say("alice.2", "everyone", [own], parents=("bob.0", "alice.0"), canonical=False)
    talk.say("rules", "everyone", [own], author=None, kind="prefill")
    report = audited(talk)
    (release,) = report.releases
    assert (release.message, release.author, release.audience, release.canonical) == (
        "alice.2",
        "alice",
        "everyone",
        False,
    )
    assert release.sources == ("alice.0", "bob.0")
    assert [(f.owner, f.carrier, f.path, f.level) for f in found(report, "AC007")] == [
        ("alice", "alice", ("alice.2", "alice.0"), "note"),
        ("bob", "alice", ("alice.2", "bob.0"), "note"),
    ]
    assert all("token ids of 1 are not those of their text" in f.message for f in found(report, "AC007"))


def test_a_release_is_found_by_what_was_attended_even_if_the_parents_hide_it() -> None:
    talk = Talk()
    talk.say("alice.1", "everyone", [talk.say("alice.0", ["alice"])], parents=())
    (release,) = audited(talk).releases
    assert (release.sources, release.canonical) == (("alice.0",), True)
    assert "token ids" not in one(audited(talk), "AC007").message


def test_what_an_author_says_over_its_own_encodings_is_said_over_all_that_is_behind_them() -> None:
    talk = Talk()
    plan = talk.say("alice.0", ["alice"])
    known = talk.say("alice.1", "everyone", [plan], kind="prefill")
    spoken = talk.say("alice.2", "everyone", [known])
    talk.say("alice.3", "everyone", [spoken])
    talk.say("bob.0", "everyone", [talk.also("alice.3")])
    talk.say("alice.4", "everyone", [spoken], kind="prefill")
    report = audited(talk)
    assert [(each.message, each.sources) for each in report.releases] == [
        (message, ("alice.0",)) for message in ("alice.1", "alice.2", "alice.3")
    ]
    assert [(each.owner, each.carrier) for each in found(report, "AC007")] == [("alice", "alice")]


def test_a_leak_to_a_reader_is_no_release_of_that_reader() -> None:
    talk = Talk()
    spoken = talk.say("alice.1", "everyone", [talk.say("alice.0", ["alice"])])
    talk.say("alice.2", "everyone", [talk.say("bob.0", "everyone", [spoken])])
    report = audited(talk)
    assert [finding.reader for finding in found(report, "AC002")] == ["bob"]
    assert [each.message for each in report.releases] == ["alice.1"]


def test_an_author_that_reads_its_own_words_alone_is_listed_though_it_thought(tmp_path: Path) -> None:
    class Alone(Scenario):
        name = "alone"

        async def play(self, game: Game) -> Scenario.Outcome:
            alice = game.cast(Talker, "alice")
            plan = await alice.think()
            said = await alice.say(to="everyone", view=View.of([plan.metadata]))
            await alice.say(to="everyone", view=View.of([said.metadata]))
            return self.Outcome()

    for engine in (FakeEngine(), FakeEngine(lambda call, prompt: "<think> hm </think> hello", thinks=True)):
        agentcho.run(Alone(), engine=engine, model="fake", leakage="enforce", out=tmp_path, display="none")
        report = audit_run(find("last", tmp_path))
        assert report.conclusion == "clean"
        assert ["alice.0" in each.sources for each in report.releases] == [True] * 2


def test_what_others_encode_it_over_is_no_release_of_the_author() -> None:
    talk = Talk()
    secret = talk.say("bob.0", ["bob"])
    talk.say("alice.0", "everyone")
    talk.also("alice.0", [secret], "baseline", caller="bob")
    talk.also("alice.0", [secret])
    assert audited(talk).releases == ()


def test_only_everyone_covers_everyone() -> None:
    talk = Talk()
    named = talk.say("alice.0", ["alice", "bob"])
    talk.say("alice.1", ["bob"], [named])
    talk.say("alice.2", "everyone", [named])
    assert [release.message for release in audited(talk).releases] == ["alice.2"]


def test_blockages_are_what_a_prompt_holds_and_an_encoding_did_not_attend_to() -> None:
    talk = Talk()
    rules = talk.say("rules", "everyone", author=None, kind="prefill")
    one_, two = talk.say("alice.0", "everyone", [rules]), talk.say("alice.1", "everyone", [1, 2])
    alone = talk.say("carol.0", "everyone")
    talk.say("bob.0", "everyone", [rules, one_, alone, two])
    mine = talk.also("bob.0", [rules, alone], recipe="baseline", caller="bob")
    report = audited(talk)
    assert [(b.reader, b.call, b.message, b.missing) for b in report.blockages] == [
        ("bob", "bob.0", "carol.0", ("rules", "alice.0")),
        ("bob", "bob.0", "alice.1", ("carol.0",)),
    ]
    note = one(report, "AC008")
    assert (note.reader, note.level, note.edges, note.path) == ("bob", "note", 2, ("carol.0",))
    assert mine
    assert report.conclusion == "clean"


def test_enforcement_in_the_fast_profile_is_a_warning() -> None:
    for changes, there in (
        ({"leakage": "enforce"}, True),
        ({"leakage": "enforce", "deterministic": True}, False),
        ({"leakage": "audit"}, False),
        ({"leakage": "deny"}, False),
        ({"leakage": "enforce", "mode": "baseline"}, False),
    ):
        report = audited(clean(), **changes)
        assert [f.level for f in found(report, "AC005")] == ["warning"] * there
        assert (report.conclusion, report.exit_code("error"), report.exit_code("warning")) == ("clean", 0, int(there))


def test_a_limit_counts_private_words_and_is_a_warning_where_a_claim_is_made() -> None:
    limits = {LIMITS: "game_tokens 40"}
    cases: list[tuple[dict[str, Any], int]] = [
        ({"leakage": "enforce"}, 1),
        ({"leakage": "deny"}, 1),
        ({"leakage": "audit"}, 0),
        ({"mode": "baseline"}, 0),
    ]
    for changes, there in cases:
        warned = found(audited(clean(), environment=limits, **changes), "AC006")
        assert [(f.level, "game_tokens 40" in f.message) for f in warned] == [("warning", True)] * there
    assert not found(audited(clean(), leakage="enforce"), "AC006")


def asked(game: int, *prompts: tuple[str, list[str]]) -> Talk:
    """A game of a society on a server: each agent speaks after reading the user messages of its prompt. Equal texts are
    one message."""
    talk, there = Talk(game), dict[str, int]()
    for number, (agent, prompt) in enumerate(prompts):
        for words in prompt:
            if words not in there:
                id = f"scenario.{len(there)}"
                there[words] = talk.say(id, "everyone", author=None, kind="prefill", text=words, caller=agent)
        talk.say(f"{agent}.{number}", "everyone", [there[words] for words in prompt])
    return talk


SERVED = {SOCIETY: "agentcho serve"}


def test_user_messages_that_one_agent_alone_brought_are_named() -> None:
    talk = asked(0, ("ann", ["price?", "brief of ann"]), ("bob", ["price?"]), ("ann", ["price?", "brief of ann", "go"]))
    [note] = found(audited(talk, environment=SERVED), "AC020")
    assert (note.level, note.carrier, note.secrets, note.edges) == ("note", "ann", ("scenario.1", "scenario.2"), 2)
    assert note.message == "only ann brought 2 user messages that others may read: scenario.1 and scenario.2"
    assert not found(audited(talk), "AC020"), "a scenario's own messages are what it says"
    assert not found(audited(asked(0, ("ann", ["price?", "brief"])), environment=SERVED), "AC020")


def test_what_another_agent_brought_in_another_game_of_the_society_is_nobodys_alone() -> None:
    talks = asked(0, ("ann", ["price?", "brief"])), asked(1, ("bob", ["price?"]), ("ann", ["brief"]))
    [note] = found(audited(*talks, environment=SERVED), "AC020")
    assert (note.carrier, note.games) == ("ann", 2)
    assert "scenario.1 of game" in note.message


def test_a_step_that_was_cancelled_before_its_first_token_belongs_to_its_agent() -> None:
    talk = Talk()
    talk.say("bob.0", "everyone", act=Act("talk.py:7", tainted_by=("erin.0.step0",)))
    assert one(audited(talk), "AC006").owner == "erin"


def test_acting_on_hidden_words_is_a_warning_for_each_owner_and_line() -> None:
    talk = Talk()
    talk.say("alice.0", ["alice"])
    talk.say("dave.0", ["dave"])
    talk.say("bob.0", "everyone", act=Act("scenarios/talk.py:7", tainted_by=("alice.0", "dave.0")))
    talk.say("carol.0", "everyone", act=Act("scenarios/talk.py:7", tainted_by=("alice.0",)))
    talk.say("bob.1", "everyone", act=Act("scenarios/talk.py:9", tainted_by=("alice.0",)))
    talk.say("bob.2", "everyone", act=Act(None, tainted_by=("alice.0",)))
    report = audited(talk)
    seven, nine, nowhere, dave = found(report, "AC006")
    assert (seven.level, seven.owner, seven.carrier, seven.edges) == ("warning", "alice", None, 2)
    assert (seven.messages, seven.secrets, seven.path) == (("bob.0", "carol.0"), ("alice.0",), ("bob.0", "alice.0"))
    assert seven.message.endswith("before 2 messages to others: bob.0 and carol.0")
    places = [finding.place and finding.place.line for finding in (seven, nine, nowhere, dave)]
    assert (places, dave.owner) == ([7, 9, None, 7], "dave")
    assert seven.fingerprint == nine.fingerprint == fingerprint("AC006", "talk", None, "alice", None, "talk.py")
    assert nowhere.fingerprint == fingerprint("AC006", "talk", None, "alice", None, "")
    [advice] = [action for action in actions(report.findings) if action.rule == "AC006"]
    assert (len(advice.findings), [count for _, count in advice.places], advice.placeless) == (4, [2, 1], 1)


def test_a_value_that_nothing_shows_to_be_used_is_a_note() -> None:
    talk = Talk()
    talk.say("alice.0", ["alice"])
    talk.say("alice.1", ["alice"])
    both = ("alice.0", "alice.1")
    talk.say("bob.0", "everyone", act=Act("talk.py:7", tainted_by=both, unproved=both))
    talk.say("bob.1", "everyone", act=Act("talk.py:7", tainted_by=both, unproved=both[:1]))
    report = audited(talk)
    note, warning = one(report, "AC021"), one(report, "AC006")
    assert (note.level, note.messages, note.secrets) == ("note", ("bob.0",), both)
    assert (warning.level, warning.messages, warning.secrets) == ("warning", ("bob.1",), ("alice.1",))
    assert warning.message.endswith("to others: bob.1")


def test_a_text_that_contains_a_private_value_is_said_to() -> None:
    talk = Talk()
    talk.say("alice.0", ["alice"])
    talk.say("alice.1", ["alice"])
    both = ("alice.0", "alice.1")
    talk.say("bob.0", "everyone", act=Act("talk.py:7", tainted_by=both, contained=both[1:]))
    talk.say("bob.1", "everyone", act=Act("talk.py:7", tainted_by=both))
    warning = one(audited(talk), "AC006")
    assert warning.message.endswith("bob.0 (its text contains the value of alice.1) and bob.1")


def test_a_clean_headline_adds_that_the_code_acted_on_private_messages() -> None:
    """Encodings are clean, and what was private may have been announced."""
    talk = clean()
    talk.say("alice.1", ["alice"])
    talk.say("bob.1", "everyone", act=Act("talk.py:7", tainted_by=("alice.1",), contained=("alice.1",)))
    told = headline(audited(talk))
    assert told.word == "CLEAN"
    assert told.sentence == "no agent reads what it may not read; the course of the game can reveal private messages"
    assert headline(audited(clean())).sentence == "no agent reads what it may not read"


def test_answers_for_which_no_audience_was_given_are_a_note_by_line() -> None:
    talks = [Talk(0), Talk(1)]
    for talk in talks:
        asked, other = Act("talk.py:7", unaddressed=True), Act("talk.py:8", unaddressed=True)
        talk.say("alice.0", ["alice"], act=asked)
        talk.say("alice.1", ["alice"], act=asked)
        talk.say("alice.2", ["alice"], act=Act("talk.py:7", choices=("yes", "no")))  # to=() was given
        talk.say("bob.0", ["bob"], act=other)
        talk.say("bob.1", "everyone", act=Act(released="bob.0"))
        talk.say("bob.2", ["bob"], act=other)
        talk.change("bob.2", ended="cancelled")
    note = one(audited(*talks), "AC022")
    assert (note.level, note.owner, note.carrier, note.edges) == ("note", "alice", None, 4)
    assert note.place is not None
    assert (note.place.file, note.place.line, note.messages) == ("talk.py", 7, ("alice.0", "alice.1"))
    assert "4 answers of alice" in note.message
    assert note.message.endswith(": alice.0 and alice.1 of game 0")


def test_of_a_game_that_was_begun_again_the_last_attempt_counts() -> None:
    talk, asked = Talk(), Act("talk.py:7", unaddressed=True)
    talk.say("alice.0", ["alice"], act=asked)
    talk.say("alice.1", ["alice"], act=asked)
    talk.change("alice.1", attempt=2)
    assert one(audited(talk), "AC022").messages == ("alice.1",)


def test_answers_of_who_plays_alone_are_no_finding() -> None:
    talk = Talk()
    talk.say("alice.0", ["alice"], act=Act(unaddressed=True))
    assert not found(audited(talk, agents=("alice",)), "AC022")


def test_what_the_rules_of_the_game_tell_is_a_release_and_no_finding() -> None:
    talk = Talk()
    told: dict[str, Any] = {"author": None, "kind": "prefill"}
    talk.say("bob.0", "everyone", [talk.say("alice.0", ["alice"])])
    talk.say("scenario.0", "everyone", act=Act("talk.py:7", tainted_by=("alice.0",), release=True), **told)
    talk.say("scenario.1", "everyone", act=Act("talk.py:8", release=True), **told)
    talk.say("scenario.2", "everyone", act=Act("talk.py:9", tainted_by=("alice.0",)), **told)
    report = audited(talk)
    assert one(report, "AC006").messages == ("scenario.2",)
    [release] = [each for each in report.releases if each.by == "rules"]
    assert (release.message, release.author, release.sources) == ("scenario.0", "scenario", ("alice.0",))
    assert released(report) == "words: 2 releases, 1 by the rules of the game"
    assert [finding.carrier for finding in found(report, "AC007")] == ["bob"]
    assert report.conclusion == "findings", "it leaks all the same"


def test_the_result_of_a_call_that_was_let_run_is_not_told_by_the_rules() -> None:
    talk = Talk()
    talk.say("alice.0", ["alice"])
    talk.say("bob.0", "everyone")
    act = Act("talk.py:7", tainted_by=("alice.0",), call="bob.0", release=True)
    talk.say("bob.1", "everyone", kind="prefill", act=act)
    assert one(audited(talk), "AC006").messages == ("bob.1",)


def test_a_prefix_that_another_agent_had_encoded_is_a_warning() -> None:
    talk = Talk()
    rules = talk.say("rules", "everyone", author=None, kind="prefill", recipe="baseline", caller="alice")
    ours = talk.also("rules", recipe="baseline")
    talk.say("alice.0", "everyone", [rules], recipe="baseline", caller="alice")
    talk.say("bob.0", "everyone", [rules, ours], recipe="baseline", caller="bob")
    report = audited(talk, mode="baseline")
    timing = one(report, "AC009")
    assert (timing.level, timing.reader, timing.owner, timing.edges) == ("warning", "bob", "alice", 1)
    assert (report.conclusion, report.exit_code("error"), report.exit_code("warning")) == ("clean", 0, 1)


def test_raw_offsets_are_counted() -> None:
    talk = Talk()
    one_ = talk.say("alice.0", "everyone")
    talk.say("bob.0", "everyone", [(one_, 5)], start=9, act=Act(None, (5, 9)))
    talk.say("bob.1", "everyone", [(one_, 5)], offsets=(5,))
    report = audited(talk)
    assert (report.subject.environment["raw offsets"], report.conclusion) == ("3", "clean")


def test_no_text_is_in_the_report_unless_it_is_to_be_revealed() -> None:
    talk = chain()
    hidden, shown = audited(talk).model_dump_json(), audited(talk, reveal=True).model_dump_json()
    assert "words of" not in hidden
    assert all(f"the words of {entry.message.id}" in shown for entry in talk.entries)


def test_digests_are_keyed() -> None:
    mine, again, other = audited(chain()), audited(chain()), audited(chain(), key=b"other")
    digests = [
        [said.digest for said in report.drawn] + [r.digest for r in report.releases] for report in (mine, again, other)
    ]
    assert digests[0] == digests[1]
    assert not set(digests[0]) & set(digests[2])
    assert len(set(digests[0])) == 4
    assert all(len(digest) == 16 for digest in digests[0])


def test_a_report_is_its_json(tmp_path: Path) -> None:
    report, file = audited(chain()), tmp_path / "report.json"
    file.write_text(report.model_dump_json())
    assert read_report(file) == report
    newer = report.model_dump_json().replace("AC002", "AC999")
    cases = ("{}", "subject"), ("nonsense", "JSON"), ('{"format": "agentcho-audit/2"}', "format"), (newer, "AC999")
    for text, what in cases:
        file.write_text(text)
        with pytest.raises(RecordBroken, match=what):
            read_report(file)
    earlier = report.model_dump(mode="json")
    for finding in earlier["findings"]:
        del finding["places"]
    file.write_text(json.dumps(earlier))
    [first, *_] = read_report(file).findings
    assert (first.places, first.steps) == ((), (("alice.1", None), ("alice.0", None)))
    with pytest.raises(RecordBroken, match=r"none\.json.*cannot be read"):
        read_report(tmp_path / "none.json")


def test_a_rule_keeps_its_level() -> None:
    levels = {"error": (1, 2, 3, 4, 12, 13), "warning": (5, 6, 9, 10, 14, 15, 17, 18, 19), "note": (7, 8, 11, 16)}
    kept = {f"AC{n:03}": level for level, numbers in levels.items() for n in numbers}
    assert {code: RULES[code].level for code in kept} == kept
