"""The page of an audit: self-contained in one file, every edge drawn, words kept as text."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agentcho.audit.formats.drawing import BOX_HEIGHT, BOX_WIDTH, Drawing, draw
from agentcho.audit.formats.html import html as made
from agentcho.audit.formats.html import pairs
from agentcho.audit.measurement import Measurement
from agentcho.audit.report import AuditReport, Edge, Place, Said
from agentcho.lab.plots import plot_effects

from . import sample
from .transcripts import anchored, audited


@cache
def _drawn(report: str) -> str:
    return made(AuditReport.model_validate_json(report), plot_effects)


def html(report: AuditReport) -> str:
    """The page of a report, rendered once."""
    return _drawn(report.model_dump_json())


VOID = {"meta", "link", "br", "input", "hr", "img"}
SECTIONS = [
    *("first", "readers", "findings", "graph", "matrix", "effects", "probes", "ablations"),
    *("releases", "blockages", "controls", "environment", "reproduce"),
]
CASES = (sample.report(), sample.report(reveal=True), sample.clean(), sample.inconclusive())
EVIL = "\"'><script>alert(1)</script>{{ 7 * 7 }}\u202e\x00"


class Page(HTMLParser):
    """Every tag with its attributes, and the text between them. Asserts that all tags are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data

    def all(self, tag: str, cls: str = "") -> list[dict[str, str]]:
        """The attributes of every tag with a name and class."""
        return [a for name, a in self.tags if name == tag and (not cls or cls in a.get("class", "").split())]


def evil() -> AuditReport:
    """A report in which an agent and its messages have names that could break out of the markup."""
    said = (
        Said(
            id=EVIL, kind="decode", role="assistant", author=EVIL, audience=[EVIL], parents=(), tokens=3,
            digest="00", text=EVIL,
        ),
        Said(
            id="m1", kind="decode", role="assistant", author="bob", audience="everyone", parents=(EVIL,), tokens=3,
            digest="00",
        ),
    )  # fmt: skip
    edge = Edge(
        game=0, reader="bob", call="m1", encoding=1, message=EVIL, recipe="author", verdict="direct",
        secrets=(EVIL,), path=(EVIL,),
    )  # fmt: skip
    subject = sample.subject().model_copy(update={"agents": (EVIL, "bob"), "scenario": EVIL, "source": EVIL})
    return sample.report(
        subject=subject, drawn=said, edges=(edge,), findings=(sample.finding("AC001", "bob", EVIL, EVIL, (EVIL,)),)
    )


@pytest.mark.parametrize("report", CASES, ids=lambda report: report.conclusion)
def test_it_is_whole_and_in_order(report: AuditReport) -> None:
    text = html(report)
    assert text.startswith("<!doctype html>")
    page = Page(text)
    sections = [attributes["id"] for attributes in page.all("section")]
    assert sections == [name for name in SECTIONS if report.measurement or name not in ("probes", "ablations")]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("report", [*CASES, evil()], ids=lambda report: report.conclusion)
def test_it_asks_nobody_for_anything(report: AuditReport) -> None:
    text = html(report)
    page = Page(text)
    for _, attributes in page.tags:
        assert not {"src", "srcset", "action", "formaction", "background", "poster"} & attributes.keys()
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:,"))
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert "@import" not in text
    names = ("http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg")
    assert set(re.findall(r"\bhttps?://[^\"'\s<>)]+", text)) <= set(names)


def test_the_policy_allows_the_one_script_and_no_network() -> None:
    text = html(sample.report())
    (policy,) = [a["content"] for a in Page(text).all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy
    assert text.index("Content-Security-Policy") < text.index("<script>")


WAY = re.compile(r'<li><div><span class="(\w+)[^"]*"><bdi>([^<]*)</bdi></span>(?:<code>([^<]*)</code>)?</div></li>')
PLACES = (sample.HERE, None)


@pytest.mark.parametrize(
    ("rule", "reader", "places", "way", "where"),
    [
        ("AC002", "bob", PLACES, [("alice.2", ""), ("alice.3", str(sample.HERE)), ("bob", str(sample.PLAYER))], 0),
        ("AC002", "bob", (), [("alice.2", ""), ("alice.3", ""), ("bob", "")], 1),
        ("AC019", "bob", PLACES[::-1], [("alice.2", str(sample.HERE)), ("alice.3", ""), ("bob", "")], 1),
        ("AC006", None, (sample.PLAYER, None), [("alice.2", ""), ("alice.3", str(sample.PLAYER))], 0),
    ],
)
def test_each_step_of_a_way_has_its_line_and_no_line_is_told_twice(
    rule: str, reader: str | None, places: tuple[Place | None, ...], way: list[tuple[str, str]], where: int
) -> None:
    path = ("alice.3", "alice.2")
    leak = sample.finding(rule, reader, "alice", "alice", path, place=sample.PLAYER, places=places)
    text = html(sample.clean(conclusion="findings", findings=(leak,)))
    assert [(name, place) for _, name, place in WAY.findall(text)] == way
    assert text.count("<dt>where</dt>") == where


def test_findings_of_one_line_each_have_their_lines_too() -> None:
    many = [
        sample.finding("AC002", "bob", "alice", f"c{n}", (f"c{n}.1", "alice.2"), place=sample.HERE, places=PLACES)
        for n in range(13)
    ]
    text = html(sample.clean(conclusion="findings", findings=tuple(many)))
    assert text.count(f"<td><code>{sample.HERE}</code> bob and c") == 1


def test_every_reading_of_the_game_is_drawn_and_leaks_in_red() -> None:
    report = sample.report()
    page = Page(html(report))
    lines = {(a["data-source"], a["data-target"]): a["class"] for a in page.all("path", "line") if "data-source" in a}
    read = {(parent, said.id) for said in report.drawn for parent in said.parents}
    assert read <= lines.keys()
    leaks = {(edge.message, edge.call) for edge in report.edges if edge.game == 0}
    assert {key for key, cls in lines.items() if "leaks" in cls.split()} == leaks
    carried = {("alice.2", "alice.3"), ("alice.0", "alice.3"), ("alice.1", "bob.2")}
    assert {key for key, cls in lines.items() if "carries" in cls.split()} == carried
    assert {a["data-id"] for a in page.all("g", "node") if "data-id" in a} == {said.id for said in report.drawn}
    assert "could not be drawn" not in page.words


@pytest.mark.slow
def test_a_leak_of_what_is_in_no_transcript_is_said() -> None:
    lost = sample.edges()[0].model_copy(update={"message": "#12", "path": (), "verdict": "unlabelled"})
    assert "1 leaking reading could not be drawn" in Page(html(sample.report(edges=(*sample.edges(), lost)))).words


def test_the_worst_stands_first_and_each_verdict_is_a_word() -> None:
    page = Page(html(sample.report()))
    classes = [a["class"] for a in page.all("li") if a.get("class") in ("direct", "transitive", "clean")]
    assert classes == ["direct", "transitive", "clean"]
    assert page.words.index("LEAKS") < page.words.index("Verdict per reader")
    assert "carol can learn what alice keeps private, and bob can learn what alice keeps private" in page.words


@pytest.mark.parametrize(
    ("report", "word", "sentence"),
    [
        (sample.clean(), "CLEAN (encodings)", "no agent reads what it may not read"),
        (sample.inconclusive(), "INCONCLUSIVE", "a control did not fire: the swap moved logits: no row changed at all"),
        (
            sample.report(findings=sample.findings()[4:5], measurement=None),
            "SUPPRESSED",
            "every leak found is suppressed",
        ),
        (
            sample.report(findings=sample.findings()[5:6], measurement=None),
            "UNKNOWN",
            "it is unknown what bob reads",
        ),
    ],
)
def test_the_headline_is_the_conclusion(report: AuditReport, word: str, sentence: str) -> None:
    words = Page(html(report)).words
    head = words[: words.index("Verdict per reader")]
    assert re.search(rf"\b{re.escape(word)}\s+{re.escape(sentence)}", head)


def test_words_stay_words() -> None:
    text = html(evil())
    page = Page(text)
    assert len(page.all("script")) == 1
    assert "<script>alert(1)</script>{{ 7 * 7 }}\\u202e\\u0000" in page.words
    assert "\u202e" not in text
    assert "\x00" not in text


def test_words_of_messages_are_there_only_when_they_are_revealed() -> None:
    assert sample.SENTINEL not in html(sample.report())
    page = Page(html(sample.report(reveal=True)))
    assert f"<b>alice.2</b> & {sample.SENTINEL}" in page.words
    assert page.all("b", sample.SENTINEL) == []


def test_no_agents_and_no_games_are_a_page_too() -> None:
    empty = sample.clean(readers=(), matrix=(), drawn=(), drawn_game=None)
    assert "There is no game to draw." in Page(html(empty)).words


def test_many_readings_are_put_aside_so_that_leaks_are_seen() -> None:
    said = [
        Said(
            id=f"m{n}",
            kind="decode",
            role="assistant",
            author="bob",
            audience="everyone",
            parents=tuple(f"m{p}" for p in range(n)),
            tokens=1,
            digest="00",
        )
        for n in range(30)
    ]
    page = Page(html(sample.clean(drawn=tuple(said))))
    assert [a for a in page.all("input") if a["id"] == "only" and "checked" in a]
    assert page.all("svg", "dense")
    assert [a for a in Page(html(sample.report())).all("input") if "checked" in a] == []


def boxes(drawing: Drawing) -> list[tuple[float, float]]:
    return [(node.x, node.y) for node in drawing.nodes]


def test_boxes_stand_apart_in_the_columns_of_their_authors_and_time_runs_down() -> None:
    report = sample.report()
    drawing = draw(report)
    at = {node.said.id: node for node in drawing.nodes}
    assert len(set(boxes(drawing))) == len(report.drawn)
    for line in drawing.lines:
        assert at[line.target].y >= at[line.source].y + BOX_HEIGHT
    rows = [node.y for node in drawing.nodes]
    assert rows == sorted(rows)
    middles = {lane.name: lane.x for lane in drawing.lanes}
    assert list(middles) == ["scenario", "alice", "bob", "carol"]
    assert all(node.x + BOX_WIDTH / 2 == middles[node.said.author or "scenario"] for node in drawing.nodes)
    assert all(x >= 0 and x + BOX_WIDTH <= drawing.width for x, _ in boxes(drawing))


@pytest.mark.slow
def test_a_plot_shows_zero_as_zero_and_takes_the_colour_of_the_page() -> None:
    measurement = sample.measurement()
    first, *_ = pairs(measurement, plot_effects)
    assert (first.reader, first.owner) == ("bob", "alice")
    svg = first.plot
    assert svg.startswith('<svg class="plot"')
    assert "currentColor" in svg
    assert {"0", "1", "0.1", "enforced", "total variation"} <= set(re.findall(r">([^<>]+)</text>", svg))
    assert svg == plot_effects(first.effects, measurement)


def test_nothing_but_zeros_can_be_plotted() -> None:
    nothing = [sample.effect("bob", "alice", "same-length", "enforce", 0.0)]
    measurement = Measurement(deterministic=True, model="m", seed=0, games=1, noise=0.0, effects=tuple(nothing))
    assert "enforced" in plot_effects(nothing, measurement)


def test_the_parts_of_the_page_ship_with_the_package() -> None:
    page = Path(made.__code__.co_filename).parent / "page"
    assert {path.name for path in page.iterdir()} >= {"report.html.jinja", "style.css", "script.js", "graph.svg.jinja"}


def test_an_edge_says_what_corrected_the_encoding_that_was_read() -> None:
    text = html(audited(anchored()))
    assert "<title>bob.0 reads alice.0: transitive leak; corrected by the encodings of carol.1</title>" in text
    assert "corrected by" not in html(sample.report())
