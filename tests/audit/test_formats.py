"""Every rule in every format: each agrees with the rule's record, and none passes where another fails."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from datetime import date
from html import unescape
from pathlib import Path
from string import Formatter
from xml.etree import ElementTree

import pytest

from agentcho.audit.finders import Evidence, FindingKey, gathered
from agentcho.audit.formats import WRITERS, WriteOptions
from agentcho.audit.formats.advice import actions
from agentcho.audit.formats.csv import COLUMNS, sheet
from agentcho.audit.formats.html import html
from agentcho.audit.formats.junit import junit
from agentcho.audit.formats.sarif import sarif
from agentcho.audit.judgement import concluded, read_report, read_suppressions, suppress
from agentcho.audit.report import AuditReport, FailOn, Place
from agentcho.audit.rules import LEVELS, RULES, Rule
from agentcho.audit.wording import headline
from agentcho.cli.outputs import Outputs
from tools.pages.rules import with_rules

from ..cli.test_audit_display import shown
from . import sample

ROOT = Path(__file__).parents[2]
PAGES = ("docs/how-to/read-a-report.md", "docs/how-to/sinks.md")
LISTS = ("docs/leakage.md", "docs/how-to/read-a-report.md")
FAIL_ON: tuple[FailOn, ...] = ("error", "warning", "note", "never")
WHO = {"reader": ("bob", "alice"), "tool": ("search", "alice"), "run": (None, "alice")}
"""The reader or tool that a finding is about, and the owner of the secret, by the subject of the rule."""


def broken(rule: Rule) -> AuditReport:
    """A run in which one rule is broken once."""
    reader, owner = WHO[rule.subject]
    key = FindingKey(rule.code, reader=reader, owner=owner, carrier="carol")
    evidence = Evidence(game=0, rank=(0,), place=sample.HERE, detail="a detail")
    found = gathered(sample.SCENARIO, {key: [evidence]})
    calm = sample.clean(subject=sample.subject().model_copy(update={"lost": ()}))
    return concluded(calm.model_copy(update={"findings": tuple(found)}))


def counted(report: AuditReport, fail_on: FailOn) -> tuple[int, int]:
    """The numbers of failures and errors in the JUnit document of a report."""
    suites = ElementTree.fromstring(junit(report, fail_on))
    return int(suites.get("failures", "")), int(suites.get("errors", ""))


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_every_format_knows_every_rule(rule: Rule, tmp_path: Path) -> None:
    report = broken(rule)
    [finding] = report.findings

    text = " ".join(shown(report).split())
    assert f"{rule.code} {finding.message}" in text
    assert (f"{rule.code} {rule.title}" in text) == (rule.level != "note")

    page = html(report)
    explained = page[page.index(f'id="rule-{rule.code}"') :].partition("</div>")[0]
    assert rule.title in explained
    assert all(escaped(words) in explained for words in (rule.meaning, rule.advice))
    assert escaped(finding.message) in page

    (tmp_path / "report.json").write_text(report.model_dump_json())
    assert read_report(tmp_path / "report.json") == report

    [run] = json.loads(sarif(report))["runs"]
    [result] = run["results"]
    declared = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert (result["ruleId"], result["level"], result["message"]["text"]) == (rule.code, rule.level, finding.message)
    assert (declared["id"], declared["defaultConfiguration"]["level"]) == (rule.code, rule.level)
    assert (declared["fullDescription"]["text"], declared["help"]["text"]) == (rule.meaning, rule.advice)

    [row] = csv.DictReader(io.StringIO(sheet(report)))
    assert list(row) == list(COLUMNS)
    assert [row[name] for name in ("rule", "level", "title", "message", "meaning", "advice")] == [
        *(rule.code, rule.level, rule.title, finding.message, rule.meaning, rule.advice)
    ]

    suites = ElementTree.fromstring(junit(report, "note"))
    [case] = [each for each in suites.iter("testcase") if each.find("failure") is not None]
    assert (case.get("name") or "").startswith(f"{rule.code} {rule.title}: {finding.reader or 'the run'}")
    assert rule.advice in (case[0].text or "")


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_no_writer_leaves_a_rule_out(rule: Rule, name: str) -> None:
    report = broken(rule)
    text = WRITERS[name](report, WriteOptions(fail_on="note"))
    assert rule.code in text
    assert report.findings[0].message in unescape(text).replace('\\"', '"').replace('""', '"')


@pytest.mark.parametrize(
    ("released", "said"),
    [(0, "CLEAN (encodings)"), (1, "CLEAN (encodings); words: 1 release"), (2, "CLEAN (encodings); words: 2 releases")],
)
def test_no_format_says_clean_without_what_of_and_how_many_words_were_released(released: int, said: str) -> None:
    report = sample.clean(releases=sample.report().releases[:released])
    whole = "; ".join(filter(None, ("no agent reads what it may not read", said.partition("; ")[2])))
    assert headline(report).brief == said
    assert shown(report).startswith(f"CLEAN (encodings): {whole}\n")
    page = html(report)
    assert f">CLEAN (encodings)</p>\n<h1>{whole}</h1>" in page
    suites = ElementTree.fromstring(junit(report))
    assert [each.get("value") for each in suites.iter("property") if each.get("name") == "verdict"] == [said]
    assert [each.text for each in suites.iter("system-out")] == [f"CLEAN (encodings): {whole}"]
    assert json.loads(sarif(report))["runs"][0]["properties"]["verdict"] == said


def test_every_file_that_can_be_asked_for_has_a_writer_and_every_writer_an_option() -> None:
    assert set(Outputs._fields) == set(WRITERS)


def test_the_code_of_a_rule_stands_in_the_table_and_where_it_is_found_alone() -> None:
    package = ROOT / "agentcho"
    written = (path for path in package.rglob("*") if path.suffix in (".py", ".jinja", ".js", ".css", ".toml", ".md"))
    named = {path.relative_to(package).as_posix() for path in written if re.search(r"AC\d{3}(?!\d)", path.read_text())}
    assert named == {"audit/rules.py", "audit/finders.py"}


@pytest.mark.parametrize(("sign", "writer"), [("sarif-schema-2.1.0", "sarif_log.py"), ('"testsuites"', "junit.py")])
def test_a_format_is_written_in_one_place(sign: str, writer: str) -> None:
    package = ROOT / "agentcho"
    holders = [path.relative_to(package).as_posix() for path in package.rglob("*.py") if sign in path.read_text()]
    assert holders == [f"audit/formats/{writer}"]


def test_every_rule_is_found_somewhere() -> None:
    source = ast.parse((ROOT / "agentcho" / "audit" / "finders.py").read_text())
    words = {node.value for node in ast.walk(source) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert {word for word in words if re.fullmatch(r"AC\d{3}", word)} == set(RULES)


@pytest.mark.parametrize("fail_on", FAIL_ON)
@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_junit_fails_where_the_exit_code_does(rule: Rule, fail_on: FailOn) -> None:
    report = broken(rule)
    code, (failures, errors) = report.exit_code(fail_on), counted(report, fail_on)
    assert errors == (code == 3 or report.conclusion == "inconclusive")
    if fail_on == "never":  # the only difference: "never" silences the exit code, but not the document
        assert (code, failures) == (3 if rule.doubt else 0, rule.level == "error")
    else:
        assert failures == (rule.level in LEVELS[: LEVELS.index(fail_on) + 1])
        assert code == (1 if failures else 3 if errors else 0)
    assert json.loads(sarif(report, fail_on))["runs"][0]["invocations"][0]["exitCode"] == code


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_what_is_accepted_is_green_in_both(rule: Rule, tmp_path: Path) -> None:
    report = broken(rule)
    (tmp_path / "accepted.toml").write_text(
        f'[[suppress]]\nfingerprint = "{report.findings[0].fingerprint}"\nowner = "dana"\nreason = "wanted"\n'
        "expires = 2027-01-31\n"
    )
    accepted = suppress(report, read_suppressions(tmp_path / "accepted.toml"), date(2027, 1, 1))
    failures, errors = counted(accepted, "note")
    assert (accepted.exit_code("note"), failures, errors) == ((3, 0, 1) if rule.doubt else (0, 0, 0))


ACTS = {"AC006", "AC007", "AC012", "AC013", "AC015", "AC016", "AC018", "AC019", "AC021"}
"""Rules whose path of messages does not say that they attended to each other."""


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_sarif_says_of_a_path_what_the_rule_is_about(rule: Rule) -> None:
    reader, owner = WHO[rule.subject]
    key = FindingKey(rule.code, reader=reader, owner=owner, carrier="carol")
    path = ("alice.3", "alice.2")
    evidence = Evidence(game=0, rank=(0,), secrets=path[1:], path=path, place=sample.HERE)
    found = gathered(sample.SCENARIO, {key: [evidence]})
    [result] = json.loads(sarif(sample.clean(findings=tuple(found))))["runs"][0]["results"]
    [flow] = result["codeFlows"][0]["threadFlows"]
    first, step, end = (each["location"]["message"]["text"] for each in flow["locations"])
    assert "alice.2" in first
    assert "alice.3" in step
    assert rule.code not in ACTS or "attend" not in end
    assert rule.code not in ACTS - {"AC018"} or "attend" not in step
    [about] = result["locations"][0]["logicalLocations"]
    assert about["kind"] == ("tool" if rule.subject == "tool" else "agent")


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_a_record_says_what_reports_need(rule: Rule) -> None:
    report = broken(rule)
    assert (rule.headline is not None) == (rule.level == "error")
    assert headline(report).word == (rule.headline or ("INCONCLUSIVE" if rule.doubt else "CLEAN"))
    assert [action.advice for action in actions(report.findings)] == ([] if rule.level == "note" else [rule.advice])
    fields = {name for _, name, _, _ in Formatter().parse(rule.sentence + rule.of_run) if name}
    assert fields <= {"reader", "owner", "carrier", "detail", "times"}


def test_codes_ascend() -> None:
    assert list(RULES) == sorted(RULES)
    assert all(re.fullmatch(r"AC\d{3}", code) for code in RULES)


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_the_rules_as_they_are(page: str) -> None:
    text = (ROOT / page).read_text()
    assert with_rules(text) == text, "run `make rules`"
    assert "<!-- rules" in text


@pytest.mark.parametrize("page", LISTS)
def test_pages_that_list_rules_list_all_of_them(page: str) -> None:
    text = (ROOT / page).read_text()
    assert all(f"| {rule.code} | {rule.level} | {rule.title} |" in text for rule in RULES.values()), "run `make rules`"


PATH = ("bob.3", "alice.3", "alice.2")
PLAYER = Place(file="agents/player.py", line=17)


def leaking(rule: str, *places: Place | None, reader: str | None = "bob", place: Place | None = None) -> AuditReport:
    """A report with one finding, whose path has these lines."""
    one = sample.finding(rule, reader, "alice", "bob", PATH, place=place or sample.HERE, places=places)
    return sample.clean(conclusion="findings", findings=(one,))


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (leaking("AC002", sample.HERE, PLAYER, PLAYER), {sample.HERE: "bob and bob.3", PLAYER: "alice.3 and alice.2"}),
        (leaking("AC002", PLAYER, None, PLAYER), {sample.HERE: "bob", PLAYER: "bob.3 and alice.2"}),
        (leaking("AC002", None, None, None), {sample.HERE: ""}),
        (leaking("AC002"), {sample.HERE: ""}),
        (leaking("AC006", sample.HERE, PLAYER, None, reader=None), {sample.HERE: "bob.3", PLAYER: "alice.3"}),
        (leaking("AC019", sample.HERE, PLAYER, None), {sample.HERE: "bob.3", PLAYER: "alice.3"}),
    ],
)
def test_each_line_of_a_path_is_told_once_with_what_was_asked_for_there(
    report: AuditReport, told: dict[Place, str]
) -> None:
    lines = [(f"{place.file}:{place.line}", names) for place, names in told.items()]
    text = [line.strip() for line in shown(report).splitlines()]
    at = next(number for number, line in enumerate(text) if "bob.3 ← alice.3 ← alice.2" in line) + 1
    assert [re.split(r" {2,}", line) for line in text[at : at + len(lines)]] == [list(filter(None, e)) for e in lines]
    assert not text[at + len(lines)].startswith(("scenarios/", "agents/"))

    suites = ElementTree.fromstring(junit(report, "note"))
    [case] = [each for each in suites.iter("testcase") if each.find("failure") is not None]
    ours = [line.removeprefix("  at: ") for line in (case[0].text or "").splitlines() if line.startswith("  at: ")]
    assert ours == [f"{place} ({names})" if names else place for place, names in lines]


def test_a_sheet_has_the_line_of_each_message() -> None:
    for places, told in (
        ((sample.HERE, None, PLAYER), "scenarios/three_in_a_room.py:41; ?; agents/player.py:17"),
        ((None, None, None), ""),
        ((), ""),
    ):
        [row] = csv.DictReader(io.StringIO(sheet(leaking("AC002", *places))))
        assert (row["path"], row["places"]) == ("bob.3 alice.3 alice.2", told)


def test_no_cell_is_a_formula() -> None:
    odd = sample.finding("AC001", '=HYPERLINK("x")', "@alice", "-carol", ("m1",))
    [row] = csv.DictReader(io.StringIO(sheet(sample.clean(findings=(odd,)))))
    assert (row["reader"], row["owner"], row["carrier"]) == ('\'=HYPERLINK("x")', "'@alice", "'-carol")


def escaped(words: str) -> str:
    """Words as they appear, escaped, in a page."""
    return words.replace("&", "&amp;").replace("'", "&#39;").replace('"', "&#34;").replace("<", "&lt;")
