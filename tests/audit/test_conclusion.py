"""The conclusion of a report: exit codes, comparison with an earlier report, suppressions and their expiry."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from agentcho.audit import AuditReport, against, measured, read_suppressions, suppress
from agentcho.audit.report import Control, FailOn, Finding
from agentcho.errors import ConfigError

from .transcripts import Talk, audited, chain


def found(report: AuditReport, rule: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.rule == rule]


def clean(game: int = 0) -> Talk:
    talk = Talk(game)
    talk.say("bob.0", "everyone", [talk.say("alice.0", "everyone")])
    return talk


def test_exit_codes_never_call_doubt_clean() -> None:
    leaking, fine, lost = audited(chain()), audited(clean()), audited(clean(), lost=("game 1 has no outcome",))
    nothing, silent = audited(games=0), audited(Talk())
    levels: tuple[FailOn, ...] = ("error", "warning", "note", "never")
    assert [leaking.exit_code(level) for level in levels] == [1, 1, 1, 0]
    assert [fine.exit_code(level) for level in levels] == [0, 0, 0, 0]
    assert [lost.exit_code(level) for level in levels] == [3, 3, 3, 3]
    assert [nothing.exit_code("error"), silent.exit_code("error")] == [3, 3]
    assert [r.conclusion for r in (leaking, fine, lost, nothing, silent)] == ["findings", "clean"] + [
        "inconclusive"
    ] * 3
    assert fine.reasons == ("none of 1 readings carries what its reader may not read",)
    assert "not whole: game 1 has no outcome" in lost.reasons
    assert nothing.reasons == ("there is no game to audit",)


def test_a_control_that_did_not_fire_leaves_doubt_and_clears_nothing() -> None:
    dumb, fired = (
        Control(name="swap", fired=False, detail="logits did not move"),
        Control(name="s", fired=True, detail=""),
    )
    assert measured(audited(clean()), None, [fired]).conclusion == "clean"
    doubt = measured(audited(clean()), None, [fired, dumb])
    assert (doubt.conclusion, doubt.exit_code("error")) == ("inconclusive", 3)
    assert "a control did not fire: swap: logits did not move" in doubt.reasons
    assert measured(audited(chain()), None, [dumb]).exit_code("error") == 1


def test_findings_are_new_unchanged_or_gone() -> None:
    before, now = audited(chain()), audited(clean())
    same = against(before, before)
    assert {finding.status for finding in same.findings} == {"unchanged"}
    assert (same.conclusion, same.exit_code("error")) == ("findings", 1)
    better = against(now, before)
    assert {(f.rule, f.status) for f in better.findings if f.level == "error"} == {("AC002", "gone")}
    assert (better.conclusion, better.exit_code("note")) == ("clean", 0)
    assert {finding.status for finding in against(before, better).findings} == {"new"}, "what was gone came back"
    forged = chain()
    forged.forge("alice.1", cone=frozenset())
    assert against(now, audited(forged)).conclusion == "clean", "nothing is unlabelled any more"
    other = against(before, audited(chain(), scenario="walk"))
    assert any("another scenario, walk" in reason for reason in other.reasons)


ENTRY: dict[str, Any] = {"owner": "dana", "reason": "wanted here", "expires": date(2026, 11, 30)}
BOB: dict[str, Any] = {"rule": "AC002", "reader": "bob", "secret_of": "alice", "carrier": "alice"}


def written(folder: Path, *entries: dict[str, Any], more: str = "") -> Path:
    """Writes a file of suppressions."""
    file = folder / "suppressions.toml"
    tables = [
        "[[suppress]]\n"
        + "".join(f"{k} = {v.isoformat() if isinstance(v, date) else json.dumps(v)}\n" for k, v in e.items())
        for e in entries
    ]
    file.write_text("\n".join(tables) + more)
    return file


def test_a_suppressed_finding_stays_and_does_not_fail(tmp_path: Path) -> None:
    report = audited(chain())
    carol = next(f for f in report.findings if f.reader == "carol" and f.level == "error")
    by_names, by_print = ENTRY | BOB, ENTRY | {"fingerprint": carol.fingerprint}
    half = suppress(report, read_suppressions(written(tmp_path, by_names)), date(2026, 11, 30))
    assert [(f.reader, f.suppressed) for f in found(half, "AC002")] == [
        ("bob", "wanted here (dana, until 2026-11-30)"),
        ("carol", None),
    ]
    assert (half.conclusion, half.exit_code("error")) == ("findings", 1)
    both = suppress(report, read_suppressions(written(tmp_path, by_names, by_print)), date(2026, 11, 30))
    assert (both.conclusion, both.exit_code("error"), "2 findings suppressed" in both.reasons) == ("findings", 0, True)
    doubtful = audited(chain(), lost=("game 1 has no outcome",))
    both = suppress(doubtful, read_suppressions(written(tmp_path, by_names, by_print)), date(2026, 11, 30))
    assert (both.conclusion, both.exit_code("error"), both.exit_code("never")) == ("inconclusive", 3, 3)


def test_what_is_gone_is_not_suppressed_and_a_suppression_of_it_is_idle(tmp_path: Path) -> None:
    entries = read_suppressions(written(tmp_path, ENTRY | BOB))
    before = suppress(audited(chain()), entries, date(2026, 11, 1))
    now = suppress(against(audited(clean()), before), entries, date(2026, 11, 1))
    assert [(f.status, f.suppressed) for f in found(now, "AC002")] == [("gone", None)] * 2
    assert "suppression 1 of dana covers no finding: take it out" in now.reasons
    assert not any("suppressed" in reason for reason in now.reasons)


def test_an_expired_suppression_covers_nothing_and_is_said(tmp_path: Path) -> None:
    late = suppress(audited(chain()), read_suppressions(written(tmp_path, ENTRY | BOB)), date(2026, 12, 1))
    assert all(finding.suppressed is None for finding in late.findings)
    assert "suppression 1 of dana expired on 2026-11-30 and covers nothing any more" in late.reasons
    kept = measured(late, None)
    assert kept.reasons == late.reasons


@pytest.mark.parametrize("change", [{"reader": "eve"}, {"secret_of": "eve"}, {"carrier": "bob"}, {"rule": "AC001"}])
def test_a_suppression_matches_nothing_more_than_it_says(tmp_path: Path, change: dict[str, Any]) -> None:
    report = suppress(audited(chain()), read_suppressions(written(tmp_path, ENTRY | BOB | change)), date(2026, 11, 1))
    assert all(finding.suppressed is None for finding in report.findings)
    assert "suppression 1 of dana covers no finding: take it out" in report.reasons


def test_a_suppression_without_names_matches_a_finding_without_names(tmp_path: Path) -> None:
    file = written(tmp_path, ENTRY | {"rule": "AC005"}, ENTRY | {"rule": "AC002"})
    report = suppress(audited(chain(), leakage="enforce"), read_suppressions(file), date(2026, 11, 1))
    assert [f.rule for f in report.findings if f.suppressed] == ["AC005"]


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (BOB, "suppression 2: owner Field required"),
        (ENTRY | BOB | {"reason": " "}, "suppression 2: reason"),
        ({k: v for k, v in (ENTRY | BOB).items() if k != "expires"}, "expires Field required"),
        (ENTRY | BOB | {"expires": "soon"}, "expires"),
        (ENTRY, "neither a fingerprint nor a rule"),
        (ENTRY | BOB | {"fingerprint": "0" * 32}, "leave out rule"),
        (ENTRY | {"fingerprint": "xyz"}, "fingerprint"),
        (ENTRY | BOB | {"rule": "AC099"}, "rule"),
        (ENTRY | BOB | {"until": "x"}, "until"),
    ],
)
def test_a_suppression_that_says_too_little_is_refused_by_its_number(
    tmp_path: Path, entry: dict[str, Any], what: str
) -> None:
    with pytest.raises(ConfigError, match=rf"suppressions\.toml.*{what}"):
        read_suppressions(written(tmp_path, ENTRY | BOB, entry))


def test_a_file_that_is_no_list_of_suppressions_is_refused(tmp_path: Path) -> None:
    for text, what in (("[[supress]]\n", "holds supress"), ("suppress = 1\n", "not a list"), ("= 1", "cannot be read")):
        file = tmp_path / "bad.toml"
        file.write_text(text)
        with pytest.raises(ConfigError, match=rf"bad\.toml.*{what}"):
            read_suppressions(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_suppressions(tmp_path / "none.toml")


def test_doubts_are_not_ignored_with_the_findings() -> None:
    whole, torn = audited(chain()), audited(chain(), lost=("game 1 has no outcome",))
    assert (whole.exit_code("never"), torn.exit_code("never"), torn.exit_code("error")) == (0, 3, 1)


def test_what_is_read_directly_is_no_cover_for_the_secrets_of_others(tmp_path: Path) -> None:
    talk = Talk()
    hers = talk.say("carol.0", ["carol", "alice"])
    talk.say("bob.0", "everyone", [talk.say("alice.0", ["alice"], [hers])])
    report = audited(talk)
    assert [(f.rule, f.reader, f.owner, f.carrier, f.path) for f in report.findings if f.level == "error"] == [
        ("AC001", "bob", "alice", "alice", ("alice.0",)),
        ("AC002", "bob", "carol", "alice", ("alice.0", "carol.0")),
    ]
    accepted = written(tmp_path, ENTRY | BOB | {"rule": "AC001"})
    half = suppress(report, read_suppressions(accepted), date(2026, 11, 30))
    assert (half.conclusion, half.exit_code("error")) == ("findings", 1)
