"""Groups of findings, the order of actions, and which part of a large game is drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from agentcho.audit.formats.advice import actions
from agentcho.audit.formats.drawing import draw
from agentcho.audit.formats.grouping import by_owner, by_reader, readers, square
from agentcho.audit.formats.html import html
from agentcho.audit.formats.part import FEW_LANES, FEW_MESSAGES, part
from agentcho.audit.report import AuditReport, Finding
from agentcho.audit.rules import RULES
from agentcho.audit.wording import headline, stands

from . import crowds, sample

REPORTS = [sample.report(), sample.clean(), crowds.audited(2), crowds.audited(5)]


def names(findings: Sequence[Finding]) -> list[str]:
    return sorted(finding.fingerprint for finding in findings)


@pytest.mark.parametrize("report", REPORTS, ids=range(len(REPORTS)))
def test_each_finding_is_in_one_group_of_each_grouping(report: AuditReport) -> None:
    whole = names(report.findings)
    readers = by_reader(report.findings)
    assert names([f for group in readers for f in group.findings]) == whole
    assert names([f for group in readers for inner in group.inner for f in inner.findings]) == whole
    assert names([f for group in by_owner(report.findings) for f in group.findings]) == whole
    for group in readers:
        assert {f.reader for f in group.findings} == {group.name}
        assert all(f.owner == inner.name for inner in group.inner for f in inner.findings)
    table = square(readers)
    assert sum(len(cell.findings) for row in table.rows for cell in row.cells if cell) == len(whole)
    assert sum(len(owner.findings) for owner in table.owners) == len(whole)


def test_what_is_gone_or_suppressed_stays_and_makes_no_group_worse() -> None:
    own = [f for f in sample.findings() if f.status == "gone" or f.suppressed]
    (group,) = by_reader(own)
    assert (group.worst, group.standing, len(group.findings)) == (None, 0, 2)


def test_each_error_and_warning_that_stands_is_in_one_action_and_errors_come_first() -> None:
    found = actions(sample.findings())
    acted = [f for f in sample.findings() if stands(f) and f.level != "note"]
    assert names([f for action in found for f in action.findings]) == names(acted)
    levels = [action.level for action in found]
    assert levels == sorted(levels)  # "error" sorts before "warning"
    assert {action.rule: action.places for action in found}["AC001"] == ((sample.HERE, 1),)


def test_the_action_that_mends_most_is_the_first() -> None:
    first, second = actions(crowds.audited(5).findings)
    assert (first.rule, second.rule) == ("AC002", "AC001")
    assert len(first.findings) > len(second.findings) == 1
    page = html(crowds.audited(5))
    assert page.index(RULES["AC002"].advice) < page.index("Leave the message out") < page.index('id="readers"')


def test_of_equally_many_findings_those_at_a_line_of_code_come_first() -> None:
    found = [sample.finding("AC005", None), sample.finding("AC006", None, "alice", place=sample.HERE)]
    assert [action.rule for action in actions(found)] == ["AC006", "AC005"]


def test_of_many_agents_names_stand_as_people_count() -> None:
    report = crowds.audited(12, rounds=1)
    page = html(report)
    assert page.index("<bdi>agent2</bdi>") < page.index("<bdi>agent10</bdi>")
    rows = [row.reader for row in readers(report) if row.verdict == "transitive"]
    assert rows == sorted(rows, key=lambda name: int(name.removeprefix("agent")))
    shown = [group.name for group in by_owner(readers_of(report))]
    assert shown == sorted(shown, key=lambda name: int((name or "").removeprefix("agent")))


def readers_of(report: AuditReport) -> list[Finding]:
    """One AC002 finding per owner, so that only names can order them."""
    return list({finding.owner: finding for finding in report.findings if finding.rule == "AC002"}.values())


def test_the_headline_of_many_readers_counts_them_and_names_the_first() -> None:
    word, sentence = headline(crowds.audited(20, rounds=1))[:2]
    assert word == "LEAKS"
    assert sentence == (
        "19 of 20 agents can learn what up to 19 others keep private: agent1, agent2, agent3 and 16 more"
    )
    direct = [sample.finding("AC001", f"agent{n}", "scenario") for n in (10, 9, 8, 7)]
    report = sample.report(findings=tuple(direct))
    assert headline(report).sentence == (
        "4 readers can learn what the scenario keeps private: agent7, agent8, agent9 and agent10"
    )
    assert headline(sample.report(findings=tuple(direct[:3]))).sentence.count("can learn what the scenario") == 3


def test_lines_of_code_are_mended_each_on_its_own_and_the_run_as_one() -> None:
    places = {"bob": sample.HERE, "carol": sample.PLAYER, "dan": sample.PLAYER}
    direct = [sample.finding("AC001", name, "alice", place=place) for name, place in places.items()]
    assert [len(action.findings) for action in actions(direct)] == [2, 1]
    passed = [sample.finding("AC002", f.reader, "alice", place=f.place) for f in direct]
    (once,) = actions(passed)
    assert once.places == ((sample.PLAYER, 2), (sample.HERE, 1))


def test_a_small_game_is_drawn_whole_and_of_a_large_one_the_worst_with_its_count() -> None:
    assert part(crowds.audited(5)).whole
    report = crowds.audited(20, rounds=1)
    drawn = part(report)
    edges = [edge for edge in report.edges if edge.game == report.drawn_game]
    assert len(drawn.edges) + drawn.more + drawn.unknown == len(edges)
    assert "direct" in {edge.verdict for edge in drawn.edges}
    assert 0 < len(drawn.said) <= FEW_MESSAGES
    assert len({said.author for said in drawn.said}) <= FEW_LANES
    assert f"{len(drawn.edges)} of {len(edges)} leaking readings" in html(report)
    picture = draw(report)
    assert all(n.x >= 0 and n.x + picture.box <= picture.width for n in picture.nodes)


def test_a_page_of_many_findings_lists_each_of_them() -> None:
    for report in (crowds.audited(5), crowds.audited(20, rounds=1)):
        page = html(report)
        listed = [f for f in report.findings if f.rule not in ("AC007", "AC008")]
        assert all(page.count(f.fingerprint) == 1 for f in listed[:: max(1, len(listed) // 50)])
        assert len(re.findall(r"\b[0-9a-f]{32}\b", page)) == len(listed)


def test_every_term_that_can_be_pressed_is_explained() -> None:
    page = html(sample.report())
    wanted = set(re.findall(r'popovertarget="([^"]+)"', page))
    assert {"term-cone", "term-encoding", "term-reading", "term-transitive", "rule-AC002"} <= wanted
    assert all(f'popover class="explained" id="{name}"' in page for name in wanted)
