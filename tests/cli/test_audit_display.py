"""The terminal output of an audit: the conclusion first, the worst verdicts before the rest, no cursor control."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len

from agentcho.audit.report import AuditReport, Control
from agentcho.audit.wording import number
from agentcho.display import Kind
from agentcho.display.audit import show
from agentcho.display.finding_tables import WHOLE

from ..audit import crowds, sample


class Terminal(io.StringIO):
    """A file that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def shown(report: AuditReport, kind: Kind | None = None, file: io.StringIO | None = None) -> str:
    file = file or io.StringIO()
    show(report, kind, file)
    return file.getvalue()


def test_it_begins_with_the_conclusion_and_ends_with_the_command() -> None:
    lines = shown(sample.report()).splitlines()
    assert lines[0] == "LEAKS: carol can learn what alice keeps private, and bob can learn what alice keeps private"
    assert lines[1] == "three-in-a-room · choreographed, audit · 12 games"
    assert lines[-1] == "  agentcho audit runs/20260102-030405-three-in-a-room"
    sections = [line for line in lines if line and not line.startswith(" ")][2:]
    found = "findings, by reader and owner of the secret"
    assert sections == ["what to do first", "readers", found, "notes", "measured", "controls", "why", "again"]


def test_readers_stand_with_their_verdicts_the_worst_first() -> None:
    lines = shown(sample.report()).splitlines()
    first = lines.index("readers") + 2
    assert lines[first - 1].split() == ["reader", "verdict", "not", "clean", "its", "worst", "reading"]
    assert [line.split()[:2] for line in lines[first : first + 3]] == [
        ["carol", "direct"],
        ["bob", "transitive"],
        ["alice", "clean"],
    ]
    assert "9 of 16    reads a message that it may not read, of alice and bob" in lines[first]


def test_what_prints_the_messages_by_their_ids_stands_below_the_findings() -> None:
    command = "agentcho show runs/20260102-030405-three-in-a-room --game 0 --ids"
    assert f"  {command} prints the messages by these ids\n" in shown(sample.report())
    assert "--ids" not in shown(sample.clean())
    planned = sample.report().subject.model_copy(update={"planned": True})
    assert "--ids" not in shown(sample.report(subject=planned)), "there is no run to show"


def test_a_finding_tells_the_way_the_place_and_how_it_stands() -> None:
    text = shown(sample.report())
    assert "bob ← alice.3 ← alice.2 · in 12 games · 1 hop · unchanged\n" in text
    assert re.search(r"AC001  direct leak: .*\n +carol ← alice.2 · in 12 games · new\n +scenarios/.*:41\n", text)
    assert f"suppressed: {sample.EXCUSE}" in text
    assert "AC007  2 releases: alice 1 and bob 1" in text
    assert not re.search("(error|warning|note) +AC00[78]", text)


def test_what_mends_the_most_is_said_before_anything_is_listed() -> None:
    lines = shown(crowds.audited(5)).splitlines()
    first = lines.index("what to do first")
    assert lines[first + 1].startswith("  1  Run with leakage=enforce")
    assert "     80 of 81 · AC002 transitive leak" in lines[first:]
    assert first < lines.index("readers") < next(n for n, line in enumerate(lines) if line.startswith("findings"))
    text = shown(sample.report())
    acted = [f for f in sample.findings() if f.level != "note" and f.status != "gone" and not f.suppressed]
    told = re.findall(r"\b(\d+) of (\d+) · AC0", re.sub(r"\s+", " ", text))
    assert {int(whole) for _, whole in told} == {len(acted)}
    assert sum(int(count) for count, _ in told) == len(acted)


@pytest.mark.parametrize("report", [sample.report(), crowds.audited(2), crowds.audited(5), crowds.audited(12, 1)])
def test_each_finding_is_told_or_counted_under_its_reader(report: AuditReport) -> None:
    text = shown(report)
    text = text[text.index("\nfindings, by reader") :]
    acted = [finding for finding in report.findings if finding.level != "note"]
    counts = {depth: re.findall(rf"^ {{{depth}}}([\d,]+) (more )?findings?\b", text, re.MULTILINE) for depth in (2, 4)}
    numbers = {depth: sum(int(n.replace(",", "")) for n, _ in found) for depth, found in counts.items()}
    assert numbers == {2: len(acted), 4: len(acted)}
    told = len(re.findall(r"^      (?:error|warning) +AC\d+ ", text, re.MULTILINE))
    assert told == len(acted) if len(acted) <= WHOLE else 0 < told < len(acted)
    assert ("--json FILE list all" in text) == (told < len(acted))


def test_no_name_begins_a_line_like_a_verdict_or_a_finding() -> None:
    name = "CLEAN (encodings): no agent reads what it may not read error  AC001 "
    odd = [sample.finding("AC001", f"{name * 3}{n}", f"{name * 3}{n + 1}", name * 3, (name * 3,)) for n in range(60)]
    for found in (odd[:2], odd):
        report = sample.clean(conclusion="findings", findings=tuple(found), reasons=())
        lines = shown(report).splitlines()
        assert lines[0].startswith("LEAKS: ")
        assert [line for line in lines[1:] if line.startswith(("CLEAN", "error", "warning"))] == []
        after = lines[next(n for n, line in enumerate(lines) if line.startswith("findings")) + 1 :]
        ours = r" *(\d+ (more )?findings? |60 of them|error +AC001 +|notes|why|again|agentcho |)"
        begun = [line for line in after if len(line) - len(line.lstrip()) <= 8 and line]
        assert all(re.match(ours + r"\S?", line) and not line.lstrip().startswith("CLEAN") for line in begun)


def test_measurements_show_the_worst_case_with_intervals() -> None:
    lines = shown(sample.report()).splitlines()
    first = lines.index("  bob, if the secrets of alice are swapped") + 2
    assert [line.split("  ")[1].strip() for line in lines[first : first + 5]] == [
        "reused",
        "encoded again",
        "in plain sight",
        "same twice",
        "enforced",
    ]
    assert lines[first].split()[1] == number(0.41 * 1.1)
    assert "9 of 60, 9% to 24%" in lines[first]
    assert lines.index("  carol, if the secrets of alice are swapped") > first
    (best,) = [line for line in lines if "author encodings" in line]
    assert best.split()[3:8] == ["3", "89%,", "79%", "to", "98%"]


def test_controls_that_did_not_fire_are_named_and_the_others_counted() -> None:
    fired = Control(name="enough games", fired=True, detail="12 games")
    text = shown(sample.clean(controls=(*sample.inconclusive().controls, fired)))
    assert "did not fire  the swap moved logits: no row changed at all" in text
    assert "fired         1 of 2" in text
    assert "enough games" not in text


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_into_a_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = shown(sample.report(), file=Terminal())
    assert "\x1b[1;31mLEAKS" in text
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in text.splitlines()]
    assert max(cell_len(line.rstrip()) for line in lines) <= width
    assert "…" not in text


def test_plain_text_has_no_colour_even_on_a_terminal_and_none_is_nothing() -> None:
    assert "\x1b" not in shown(sample.report(), "plain", Terminal())
    assert shown(sample.report(), "none") == ""


def test_names_cannot_move_the_cursor_or_be_markup() -> None:
    odd = sample.finding("AC001", "\x1b[31m[bold]eve", "\u202eyram", "alice", ("m\x071",))
    text = shown(sample.clean(conclusion="findings", findings=(odd,)))
    assert "␛[31m[bold]eve ← m␇1" in text
    assert "\\u202eyram" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("report", [sample.clean(), sample.inconclusive()], ids=lambda report: report.conclusion)
def test_what_there_is_none_of_has_no_heading(report: AuditReport) -> None:
    text = shown(report)
    for section in ("what to do first", "findings", "notes", "measured"):
        assert f"\n{section}" not in text


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, "0"), (1.0, "1.00"), (0.41, "0.41"), (0.0994, "0.099"), (4.1e-8, "4.1e-08"), (2.2, "2.20")],
)
def test_sizes_keep_two_figures(value: float, told: str) -> None:
    assert number(value) == told
