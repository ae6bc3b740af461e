"""Messages of models behind APIs: their prompts are audited, and no other message is ever mistaken for one of them."""

from __future__ import annotations

from typing import Any

import pytest

from agentcho.audit.audit import audit_entries
from agentcho.audit.formats.html import html
from agentcho.audit.formats.junit import junit
from agentcho.audit.formats.sarif import sarif
from agentcho.audit.notes import Seal
from agentcho.audit.report import AuditReport
from agentcho.audit.wording import headline
from agentcho.records.models import RecordedModels, is_endpoint

from .transcripts import KEY, Talk, subject

OWN = RecordedModels(frozenset({None}), frozenset({None}))
BESIDE = RecordedModels(frozenset({None, "far"}), frozenset({"far"}))


class Texts(Talk):
    """A game in which some agents speak through endpoints."""

    def text(self, id: str, to: str | list[str], parents: tuple[str, ...] = (), engine: str | None = None) -> None:
        """One message of an endpoint."""
        self.say(id, to, tokens=(), content=(0, 0), parents=parents)
        self.entries[-1] = self.entries[-1]._replace(encoding=None, made=(), engine=engine)


def judged(talk: Talk, models: RecordedModels = OWN, **changes: Any) -> AuditReport:
    return audit_entries(subject(**changes), {0: talk.entries}, Seal(KEY), models=models)


def whispers() -> Texts:
    """Alice keeps a secret, and speaks to Bob after reading it."""
    talk = Texts()
    talk.text("alice.0", ["alice"])
    talk.text("alice.1", "everyone", ("alice.0",))
    talk.text("bob.0", "everyone", ("alice.1",))
    return talk


def test_views_that_held_are_texts_clean_and_never_clean() -> None:
    report = judged(whispers())
    assert (report.conclusion, headline(report).word, report.exit_code("error")) == ("texts-clean", "TEXTS CLEAN", 0)
    assert (report.texts, report.clean_edges) == (3, 2)
    assert any("not what their servers keep" in reason for reason in report.reasons)
    assert not any(finding.rule == "AC005" for finding in report.findings)
    assert [release.author for release in report.releases] == ["alice"]


def test_a_direct_leak_into_a_prompt_is_a_leak() -> None:
    talk = whispers()
    talk.text("carol.0", "everyone", ("alice.1", "alice.0"))
    report = judged(talk, leakage="audit")
    assert (headline(report).word, report.exit_code("error")) == ("LEAKS", 1)
    (edge,) = report.edges
    assert (edge.reader, edge.recipe, edge.verdict, edge.secrets) == ("carol", "prompt", "direct", ("alice.0",))
    assert [finding.rule for finding in report.findings if finding.level == "error"] == ["AC001"]


def test_an_unfinished_answer_read_its_prompt_too() -> None:
    talk = whispers()
    talk.text("carol.0", "everyone", ("alice.0",))
    talk.change("carol.0", ended="died")
    report = judged(talk)
    assert headline(report).word == "LEAKS"
    assert report.unfinished[0].tokens == len(b"the words of carol.0")


def test_doubts_stay_doubts() -> None:
    assert judged(whispers(), lost=("game 1 has no outcome",)).conclusion == "inconclusive"
    talk = Texts()
    talk.text("alice.0", "everyone")
    assert judged(talk).conclusion == "inconclusive"


def test_texts_of_equal_length_have_digests_of_their_own() -> None:
    digests = {said.digest for said in judged(whispers()).drawn}
    assert len(digests) == 3


def unlabelled(talk: Talk, models: RecordedModels) -> list[str]:
    report = judged(talk, models)
    assert report.exit_code("error") != 0
    assert report.conclusion not in ("clean", "texts-clean")
    return [finding.message for finding in report.findings if finding.rule == "AC004"]


def test_a_run_of_one_local_model_has_no_texts() -> None:
    (told, *_) = unlabelled(whispers(), RecordedModels())
    assert "no record of what it was said over" in told


def test_a_model_that_is_not_listed_says_nothing_that_counts() -> None:
    talk = whispers()
    talk.change("bob.0", engine="elsewhere")
    (told,) = unlabelled(talk, OWN)
    assert "'elsewhere', which the record does not list" in told
    known = Talk()
    known.say("bob.0", "everyone", [known.say("alice.0", "everyone", kind="prefill")])
    known.change("alice.0", engine="elsewhere")
    assert unlabelled(known, RecordedModels())


def test_a_local_message_renamed_to_an_endpoint_is_found_out_by_all_that_it_has() -> None:
    for changes, told in (
        ({}, "has token ids or an encoding"),
        ({"encoding": None}, "has token ids or an encoding"),
        ({"encoding": None, "made": ()}, "has token ids or an encoding"),
        ({"made": ()}, "no record of its own encoding"),
    ):
        talk = Texts()
        talk.say("bob.0", "everyone", [talk.say("alice.0", "everyone")])
        talk.change("bob.0", engine="far", **changes)
        assert any(told in each for each in unlabelled(talk, BESIDE))
    talk = Texts()
    first = talk.say("alice.0", "everyone")
    talk.say("bob.0", "everyone", [first])
    message = talk.entries[0].message.saying(tokens=(), content=(0, 0))
    talk.change("alice.0", engine="far", message=message, encoding=None, made=())
    assert any("there is no record of it" in told for told in unlabelled(talk, BESIDE))


@pytest.mark.parametrize("hidden", [False, True])
def test_a_line_that_stands_twice_hides_nothing(hidden: bool) -> None:
    talk = whispers()
    talk.text("carol.0", "everyone", ("alice.0",) if hidden else ("alice.1",))
    talk.text("carol.0", "everyone", ("alice.1",))
    report = judged(talk)
    assert report.exit_code("error") == 1
    assert {"AC004"} | ({"AC001"} if hidden else set()) == {f.rule for f in report.findings if f.level == "error"}


def test_a_parent_without_a_line_or_with_two_is_unlabelled() -> None:
    talk = whispers()
    talk.drop("alice.0")
    assert any("alice.0 has no lines" in told for told in unlabelled(talk, OWN))
    talk = whispers()
    talk.text("alice.0", "everyone")
    assert any("alice.0 has 2 lines" in told for told in unlabelled(talk, OWN))


def test_a_local_reader_of_a_text_reads_it_through_its_encoding_for_its_audience() -> None:
    talk = Texts()
    talk.text("alice.0", "everyone", engine="far")
    talk.say("bob.0", "everyone", [talk.also("alice.0")])
    (theirs,), (own,) = talk.entries[0].made, talk.entries[1].made
    talk.change("alice.0", made=())
    talk.change("bob.0", made=(theirs, own))
    report = judged(talk, BESIDE)
    assert (report.conclusion, report.texts) == ("texts-clean", 1)
    assert any(finding.rule == "AC005" for finding in judged(talk, BESIDE, leakage="enforce").findings)


@pytest.mark.parametrize("origin", ["human", "tool"])
def test_what_a_person_or_a_tool_said_was_said_over_what_it_read(origin: Any) -> None:
    talk = Texts()
    secret = talk.say("alice.0", ["alice"])
    talk.say("alice.1", "everyone", [secret])
    talk.text("bob.0", "everyone", ("alice.1",))
    talk.change("bob.0", origin=origin)
    assert judged(talk, RecordedModels()).conclusion == "texts-clean"
    talk.text("carol.0", "everyone", ("alice.0",))
    talk.change("carol.0", origin=origin)
    assert headline(judged(talk, RecordedModels())).word == "LEAKS"


def test_what_a_tool_said_has_no_encoding() -> None:
    talk = Texts()
    secret = talk.say("alice.0", ["alice"])
    talk.say("dave.0", "everyone", [secret])
    talk.change("dave.0", origin="tool")
    assert unlabelled(talk, RecordedModels())


def test_what_a_person_said_through_a_loaded_model_is_judged_as_anybodys_words() -> None:
    talk = Texts()
    secret = talk.say("alice.0", ["alice"])
    talk.say("dave.0", "everyone", [talk.say("alice.1", "everyone")])
    talk.change("dave.0", origin="human")
    assert judged(talk, RecordedModels()).conclusion == "clean"
    talk.say("erin.0", "everyone", [secret])
    talk.change("erin.0", origin="human")
    assert headline(judged(talk, RecordedModels())).word == "LEAKS"
    talk.change("erin.0", encoding=None, made=())
    assert unlabelled(talk, RecordedModels())


def test_a_model_with_weights_is_no_endpoint_whatever_it_says() -> None:
    said = {"model": "m", "kind": "endpoint"}
    assert is_endpoint(said)
    for more in ({"kind": "other"}, {"weights": "w"}, {"tokenizer": "t"}):
        assert not is_endpoint(said | more)
    assert not is_endpoint({"model": "m"})


def test_every_format_says_the_same_word() -> None:
    report = judged(whispers())
    assert "texts-clean" in report.model_dump_json()
    assert '"exitCodeDescription": "texts-clean"' in sarif(report)
    assert 'value="texts-clean"' in junit(report)
    assert "<title>TEXTS CLEAN" in html(report)
    assert 'class="word TEXTS CLEAN"' in html(report)
