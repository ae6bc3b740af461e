"""The page of an audit in a real browser: it renders completely, and the console stays empty."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path

import pytest

from agentcho.audit.formats.drawing import draw
from agentcho.audit.formats.html import LEAVES, html
from agentcho.audit.report import AuditReport, Edge, Said
from agentcho.lab.plots import plot_effects

from . import crowds, sample
from .browser import Opened, opened, pictured
from .test_html import evil

pytestmark = pytest.mark.browser
NARROW = "--window-size=500,900"
CLICKS = """<script>
const seen = [];
const on = (what) => document.querySelectorAll("svg.graph " + what + ".on").length;
for (const button of document.querySelectorAll("button.show:not([hidden])")) {
  button.click();
  seen.push([on("path.line"), on("path.leaks"), on("g.node")].join("-"));
}
const node = document.querySelector('g.node[data-id="alice.3"]');
node.dispatchEvent(new PointerEvent("pointerenter"));
seen.push(["near", on("path.line"), on("g.node")].join("-"));
node.dispatchEvent(new PointerEvent("pointerleave"));
seen.push(["left", on("path.line"), on("g.node")].join("-"));
document.body.dataset.seen = seen.join(" ");
</script>"""


def shown(text: str, folder: Path, *options: str) -> Opened:
    page = folder / "report.html"
    page.write_text(text, encoding="utf-8")
    return opened(page, folder, *options)


def crowd() -> AuditReport:
    """Eight agents, eighty messages; every message after the first round reads all earlier ones."""
    names = [f"agent{number}" for number in range(8)]
    said = tuple(
        Said(
            id=f"m{n}",
            kind="decode",
            role="assistant",
            author=names[n % 8],
            audience=[names[n % 8]] if n < 8 else "everyone",
            parents=tuple(f"m{p}" for p in range(n)) if n > 7 else (),
            tokens=9,
            digest="00",
        )
        for n in range(80)
    )
    edges = tuple(
        Edge(
            game=0, reader=names[n % 8], call=f"m{n}", encoding=n, message=f"m{n - 1}", recipe="author",
            verdict="transitive", secrets=("m0",), path=(f"m{n - 1}", "m0"), hops=1,
        )
        for n in range(9, 80)
    )  # fmt: skip
    subject = sample.subject().model_copy(update={"agents": tuple(names)})
    return sample.report(subject=subject, drawn=said, edges=edges)


@pytest.mark.parametrize(
    ("report", "options"),
    [(sample.report(reveal=True), (NARROW,)), (sample.inconclusive(), ()), (evil(), ()), (crowd(), ())],
)
def test_it_draws_and_logs_nothing(report: AuditReport, options: tuple[str, ...], tmp_path: Path) -> None:
    page = shown(html(report, plot_effects), tmp_path, *options)
    assert page.console == []
    drawing = draw(report)
    assert page.told("lines") == len(drawing.lines) > 0
    assert page.told("leaks") == sum(line.kind == "leaks" for line in drawing.lines)
    assert page.told("nodes") == len(drawing.nodes) > 0
    assert page.told("empty") == 0
    plots = 0 if report.measurement is None else 2
    assert page.dom.count('data-height="') == 1 + plots


def test_the_ways_of_findings_can_be_shown(tmp_path: Path) -> None:
    text = html(sample.report())
    policy = text[text.index("<meta http-equiv") : text.index(">", text.index("<meta http-equiv")) + 1]
    page = shown(text.replace(policy, "").replace("</body>", CLICKS + "</body>"), tmp_path)
    assert page.console == []
    seen = page.dom[page.dom.index('data-seen="') + 11 :].split('"')[0].split()
    # direct leak to carol; alice.2 via alice.3 to bob; alice.1 via bob.2 to carol; alice.0 via alice.3 to carol
    assert seen == ["1-1-2", "2-1-3", "2-1-3", "2-1-3", "near-6-7", "left-0-0"]


FITS = """<script>
const wrong = [];
const say = (each) => wrong.push(each.tagName + "." + (each.getAttribute("class") || each.id));
for (const details of document.querySelectorAll("details")) details.open = true;
if (document.documentElement.scrollWidth > innerWidth) say(document.documentElement);
for (const each of document.querySelectorAll("body *"))
  if (!each.parentElement.closest(".frame, .wide, svg") && each.getBoundingClientRect().right > innerWidth + 1)
    say(each);
for (const svg of document.querySelectorAll("svg.graph, svg.heads")) {
  const box = svg.getBBox(), view = svg.viewBox.baseVal;
  if (box.x < -1 || box.y < -1 || box.x + box.width > view.width + 1 || box.y + box.height > view.height + 1) say(svg);
  const around = svg.parentElement;
  if (around.scrollWidth + 1 < view.width || Math.abs(svg.getScreenCTM().a - 1) > 0.001) say(svg);
}
for (const node of document.querySelectorAll("g.node")) {
  const rect = node.querySelector("rect").getBBox();
  for (const text of node.querySelectorAll("text")) {
    const box = text.getBBox();
    if (box.x < rect.x || box.x + box.width > rect.x + rect.width) say(text);
  }
}
for (const wide of document.querySelectorAll(".frame, .wide"))
  if (wide.scrollWidth > wide.clientWidth && getComputedStyle(wide).overflowX !== "auto") say(wide);
document.body.dataset.wrong = "[" + [...new Set(wrong)].join(" ") + "]";
document.body.dataset.listed = document.querySelectorAll("ul.findings > li, details.rest tbody tr").length;
document.querySelector("[popovertarget=term-reading]").click();
document.body.dataset.told = document.querySelector("#term-reading").matches(":popover-open");
</script>"""


@pytest.mark.parametrize("window", ["1280,900", "500,900"])
@pytest.mark.parametrize(
    "made", [*(partial(crowds.audited, agents) for agents in (2, 5, 20)), evil], ids=["0", "1", "2", "3"]
)
def test_nothing_is_clipped_and_no_finding_is_left_out(
    made: Callable[[], AuditReport], window: str, tmp_path: Path
) -> None:
    report = made()
    text = html(report)
    policy = text[text.index("<meta http-equiv") : text.index(">", text.index("<meta http-equiv")) + 1]
    page = shown(text.replace(policy, "").replace("</body>", FITS + "</body>"), tmp_path, f"--window-size={window}")
    assert page.console == []
    assert 'data-wrong="[]"' in page.dom, re.findall(r'data-wrong="[^"]*"', page.dom)
    assert f'data-listed="{sum(f.rule not in LEAVES for f in report.findings)}"' in page.dom
    assert 'data-told="true"' in page.dom


PHONE = """<!doctype html><iframe style="width: 400px; height: 900px" srcdoc="{}"></iframe><script>
const frame = document.querySelector("iframe");
frame.onload = () => {{
  const inside = frame.contentWindow;
  document.body.dataset.wrong = inside.innerWidth + " wide: " + inside.document.body.dataset.wrong;
}};
</script>"""
"""A page in a frame, because no window of a headless browser is narrower than 500 pixels."""
LONG = "agent-" + "of-a-very-long-name-" * 6


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    "made",
    [
        partial(crowds.audited, 5),
        partial(crowds.audited, 20, rounds=1),
        partial(sample.report, findings=(sample.finding("AC001", LONG, LONG),)),
    ],
    ids=["5", "20", "long"],
)
def test_on_a_telephone_nothing_is_wider_than_the_screen(
    made: Callable[[], AuditReport], theme: str, tmp_path: Path
) -> None:
    report = made()
    text = html(report).replace('<html lang="en">', f'<html lang="en" data-theme="{theme}">')
    policy = text[text.index("<meta http-equiv") : text.index(">", text.index("<meta http-equiv")) + 1]
    text = text.replace(policy, "").replace("</body>", FITS + "</body>")
    page = shown(PHONE.format(escape(text)), tmp_path)
    assert page.console == []
    assert re.findall(r'data-wrong="([^"]*)"', page.dom) == ["400 wide: []"]


def test_the_browser_does_complain_where_there_is_something_to_complain_of(tmp_path: Path) -> None:
    calls = '<script>fetch("https://example.invalid/")</script></body>'
    assert shown(html(sample.clean()).replace("</body>", calls), tmp_path).console
    shown_twice = shown("<!doctype html><p>x<script>console.warn('hm')</script>", tmp_path)
    assert len(shown_twice.console) == 1


def test_it_is_drawn_without_its_script(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    text = re.sub(r"<script>.*?</script>", "", html(sample.report()), flags=re.DOTALL)
    alone = "<style>header, #first, #readers, #findings { display: none; }</style></head>"
    page.write_text(text.replace("</head>", alone), encoding="utf-8")
    seen = pictured(page, tmp_path)
    red = (seen[..., 0] > 0.7) & (seen[..., 1] < 0.3) & (seen[..., 2] < 0.3)
    assert red.sum() > 1000  # the edges of leaks are red
