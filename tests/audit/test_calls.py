"""The findings of an audit about tool calls, from hand-written transcripts."""

from __future__ import annotations

from typing import Any

import pytest

from agentcho.audit.formats.html import html
from agentcho.audit.formats.sarif import sarif
from agentcho.audit.report import AuditReport, Finding, Place
from agentcho.audit.wording import headline
from agentcho.message import EVERYONE, Audience
from agentcho.provenance.views import Act, ToolUse
from agentcho.records.calls import CallLine, use_line
from agentcho.records.line_models import UsePart

from .transcripts import Talk, audited

NOBODY = Audience(frozenset())
BOB = Audience(frozenset({"bob"}))
POST = ToolUse("post", EVERYONE, effect=True, trusted=True)
READ = ToolUse("read", NOBODY, effect=False, trusted=False)
ASK = ToolUse("ask", EVERYONE, effect=False, trusted=True)
LOOK = ToolUse("look", NOBODY, effect=False, trusted=True)


def result(talk: Talk, id: str, call: str | None, use: ToolUse | None, to: Any = ("alice",), **act: Any) -> int:
    """Adds the result of a call."""
    audience, said = to if to == "everyone" else list(to), Act(call=call, use=use, **act)
    made = talk.say(id, audience, [], "audience", author=None, kind="prefill", act=said)
    talk.change(id, origin="tool")
    return made


def found(report: AuditReport, *rules: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule in rules]


def call_over(secret_to: Any, use: ToolUse, **act: Any) -> Talk:
    """Alice calls a tool after reading one message, and gets its result."""
    talk = Talk()
    secret = talk.say("bob.0", secret_to)
    talk.say("alice.0", ["alice"], [secret])
    result(talk, "scenario.0", "alice.0", use, **act)
    return talk


def test_a_call_over_what_the_world_may_not_know_is_a_leak() -> None:
    report = audited(call_over(["alice", "bob"], POST))
    [finding] = found(report, "AC012")
    assert (finding.reader, finding.owner, finding.carrier, finding.secrets) == ("post", "bob", "alice", ("bob.0",))
    assert (finding.level, finding.path) == ("error", ("alice.0", "bob.0"))
    assert finding.places == (Place(file="play.py", line=2), Place(file="play.py", line=1))
    assert "by calling post" in finding.message
    assert report.exit_code("error") == 1
    assert headline(report).word == "LEAKS"
    assert [call.verdict for call in report.calls] == ["told"]


@pytest.mark.parametrize(
    ("to", "use"),
    [
        ("everyone", POST),
        (["alice", "bob"], LOOK),
        (["alice", "bob"], POST._replace(audience=BOB)),
    ],
)
def test_a_call_whose_arguments_tell_nobody_anything_new_is_clean(to: Any, use: ToolUse) -> None:
    report = audited(call_over(to, use))
    assert (report.conclusion, [call.verdict for call in report.calls]) == ("clean", ["clean"])
    assert "1 call of tools, 0 of them let run by a release" in report.reasons


def test_a_released_call_is_listed_as_a_release() -> None:
    report = audited(call_over(["alice", "bob"], POST, release=True))
    assert not found(report, "AC012")
    assert [(each.message, each.author, each.audience, each.sources) for each in report.releases] == [
        ("alice.0", "alice", "everyone", ("bob.0",))
    ]
    assert (report.conclusion, report.calls[0].verdict) == ("clean", "released")


def test_a_result_before_an_audience_wider_than_its_calls_cone_is_a_release() -> None:
    talk = Talk()
    talk.say("alice.0", ["alice"], [talk.say("bob.0", ["alice", "bob"])])
    result(talk, "scenario.0", "alice.0", LOOK, "everyone")
    report = audited(talk)
    assert [(each.message, each.audience, each.sources) for each in report.releases] == [
        ("scenario.0", "everyone", ("bob.0",))
    ]
    assert report.conclusion == "clean"


def test_who_learned_of_a_call_knows_it() -> None:
    talk = Talk()
    first = talk.say("alice.0", ["alice"], [talk.say("bob.0", "everyone")])
    result(talk, "scenario.0", "alice.0", ASK)
    talk.say("alice.1", ["alice"], [first])
    result(talk, "scenario.1", "alice.1", ASK)
    assert audited(talk).conclusion == "clean"
    talk.change("scenario.0", act=Act(call="alice.0", use=LOOK))
    assert found(audited(talk), "AC012")[0].secrets == ("alice.0",)


# -- calls without a result ----------------------------------------------------------------------------------


def cut(use: ToolUse, secret_to: Any = ("alice", "bob"), call: str = "alice.0", **more: Any) -> AuditReport:
    """Alice calls a tool after reading one message; the call is begun and cancelled."""
    talk = Talk()
    talk.say("alice.0", ["alice"], [talk.say("bob.0", list(secret_to))])
    line = CallLine(game=0, call=call, tool=use.name, use=UsePart(**use_line(use)), **more)
    return audited(talk, begun={(0, 1): [line]})


def test_a_call_that_was_cancelled_told_what_one_that_ended_would_have() -> None:
    report = cut(POST)
    [finding] = found(report, "AC012")
    assert (finding.reader, finding.owner, finding.carrier, finding.secrets) == ("post", "bob", "alice", ("bob.0",))
    assert [(call.message, call.result, call.verdict) for call in report.calls] == [("alice.0", None, "told")]
    assert report.conclusion == "findings"


def test_a_call_that_was_cancelled_and_told_nobody_anything_new_is_clean() -> None:
    report = cut(LOOK)
    assert (report.conclusion, [call.verdict for call in report.calls]) == ("clean", ["clean"])


def test_a_call_that_was_cancelled_may_have_been_a_release() -> None:
    report = cut(POST, release=True)
    assert [(each.message, each.audience, each.sources) for each in report.releases] == [
        ("alice.0", "everyone", ("bob.0",))
    ]


def test_a_call_that_was_begun_by_no_message_cannot_be_accounted_for() -> None:
    report = cut(LOOK, call="alice.7")
    assert [call.verdict for call in report.calls] == ["unlabelled"]
    assert "the call alice.7 does not say which call it came from" in found(report, "AC014")[0].message


def test_a_call_with_a_result_is_judged_once() -> None:
    line = CallLine(game=0, call="alice.0", tool="post", use=UsePart(**use_line(POST)))
    assert len(audited(call_over("everyone", POST), begun={(0, 1): [line]}).calls) == 1


# -- trust ---------------------------------------------------------------------------------------------------


def effect_over(read: ToolUse, effect: ToolUse, **act: Any) -> Talk:
    """Alice reads the result of one tool and then calls another."""
    talk = Talk()
    talk.say("alice.0", ["alice"], [talk.say("bob.0", "everyone")])
    read_here = result(talk, "scenario.0", "alice.0", read, "everyone")
    talk.say("alice.1", ["alice"], [read_here])
    result(talk, "scenario.1", "alice.1", effect, **act)
    return talk


def test_an_effect_over_an_untrusted_result_is_an_error() -> None:
    report = audited(effect_over(READ, POST))
    [finding] = found(report, "AC013")
    assert (finding.reader, finding.owner, finding.carrier) == ("post", "tool read", "alice")
    assert finding.secrets == ("scenario.0",)
    assert headline(report).word == "UNTRUSTED"
    assert [call.verdict for call in report.calls] == ["clean", "untrusted"]


@pytest.mark.parametrize(("read", "effect"), [(LOOK, POST), (READ, ASK)])
def test_trusted_results_and_calls_without_effect_are_in_nobodys_way(read: ToolUse, effect: ToolUse) -> None:
    assert audited(effect_over(read, effect)).conclusion == "clean"


def test_a_released_effect_is_a_note() -> None:
    report = audited(effect_over(READ, POST, release=True))
    [note] = found(report, "AC016")
    assert (note.level, note.reader, report.conclusion) == ("note", "post", "clean")
    assert report.exit_code("note") == 1


def test_untrusted_words_stay_so_in_what_others_say_of_them() -> None:
    talk = Talk()
    talk.say("alice.0", ["alice"], [talk.say("bob.0", "everyone")])
    read = result(talk, "scenario.0", "alice.0", READ)
    talk.say("alice.1", "everyone", [read])
    heard = talk.also("alice.1", [])
    talk.say("bob.1", ["bob"], [heard])
    result(talk, "scenario.1", "bob.1", POST, ("bob",))
    [finding] = found(audited(talk), "AC013")
    assert (finding.owner, finding.carrier, finding.secrets) == ("alice", "bob", ("alice.1",))
    talk.change("alice.1", act=Act(choices=("yes", "no")))
    assert not found(audited(talk), "AC013")


# -- incomplete records --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act", [Act(), Act(call="alice.0"), Act(use=ASK), Act(call="alice.9", use=ASK), Act(call="scenario.9", use=ASK)]
)
def test_a_result_that_does_not_say_where_it_comes_from_is_never_clean(act: Act) -> None:
    talk = call_over("everyone", ASK)
    talk.change("scenario.0", act=act)
    report = audited(talk)
    assert (report.conclusion, report.exit_code("error")) == ("inconclusive", 3)
    assert found(report, "AC014")
    assert headline(report).word == "INCONCLUSIVE"


def test_a_call_without_its_record_is_never_clean() -> None:
    talk = call_over("everyone", ASK)
    talk.change("alice.0", encoding=None, made=())
    assert audited(talk).conclusion != "clean"
    assert found(audited(talk), "AC014")


def test_words_that_stand_before_their_sources_are_never_trusted() -> None:
    talk = call_over("everyone", POST)
    message = talk.entries[0].message
    talk.change("bob.0", act=Act(released="bob.7"), message=message)
    report = audited(talk)
    assert report.conclusion == "inconclusive"
    assert "it is not known whose words" in found(report, "AC014")[0].message


# -- servers -------------------------------------------------------------------------------------------------


def two_callers(client: str, other: str, to: Any) -> Talk:
    talk, use = Talk(), LOOK
    talk.say("alice.0", ["alice"], [talk.say("alice.9", to)])
    result(talk, "scenario.0", "alice.0", use._replace(client=client))
    talk.say("bob.0", ["bob"], [talk.say("bob.9", "everyone")])
    result(talk, "scenario.1", "bob.0", use._replace(client=other), ("bob",))
    return talk


def test_a_server_that_agents_of_different_clearance_share_is_a_finding() -> None:
    report = audited(two_callers("files", "files", ["alice"]))
    [finding] = found(report, "AC015")
    assert (finding.reader, finding.owner, finding.carrier, finding.level) == ("bob", "alice", "files", "warning")
    assert not found(audited(two_callers("files", "files", "everyone")), "AC015")
    assert not found(audited(two_callers("files", "files 2", ["alice"])), "AC015")


def test_the_list_that_a_call_was_chosen_from_is_no_secret_of_who_learns_its_arguments() -> None:
    """Neither from those who share its server nor from those who may read its result."""
    talk, use = Talk(), LOOK._replace(client="files", audience=EVERYONE)
    for name in ("alice", "bob"):
        talk.say(f"{name}.0", [name], [talk.say(f"{name}.tools0", [name])])
        result(talk, f"scenario.{name}", f"{name}.0", use, (name,))
    assert not found(audited(talk), "AC015")
    other = Talk()
    other.say("alice.0", ["alice"], [other.say("alice.tools0", ["alice"])])
    result(other, "scenario.0", "alice.0", use, ("alice", "bob"))
    assert not found(audited(other), "AC007")


CASES = (call_over(["alice", "bob"], POST), effect_over(READ, POST), call_over("everyone", ASK))


@pytest.mark.parametrize("talk", CASES)
def test_calls_are_in_every_format(talk: Talk) -> None:
    report = audited(talk)
    assert all(finding.rule in sarif(report) and finding.rule in html(report) for finding in report.findings)
    assert 'id="calls"' in html(report)
    assert AuditReport.model_validate_json(report.model_dump_json()) == report
