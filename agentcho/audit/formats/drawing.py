"""Lays out the drawing of one game: one column per agent, time downwards, one edge per reading.

Edges are readings, readings that passed a secret on, or leaks. Colors and the SVG document are up to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from agentcho.audit.formats.part import DrawnPart, part
from agentcho.audit.report import AuditReport, Edge, Said, Verdict
from agentcho.message import SCENARIO, natural

ROW = 66.0
BOX_HEIGHT = 44.0
BOX_WIDTH = 176.0
SLIM = 142.0
NARROW = 194.0
WIDE = 360.0
PAGE = 1180.0
"""The smallest and largest width of a column (`NARROW`, `WIDE`), and the width of a page."""

ROOMY = 236.0
"""The column width from which boxes have the usual width; narrower columns have slim boxes."""

HEADS = 58.0
"""The height of the names above the columns, which stay in place while the drawing below is scrolled."""

TOP = 14.0
SIDE = 16.0
CROWDED = 250

Hearers = Literal["private", "some", "everyone"]
EdgeKind = Literal["reads", "carries", "leaks"]
EDGE_KINDS: tuple[EdgeKind, ...] = ("reads", "carries", "leaks")
EdgeKey = tuple[str, str]
"""An edge: the message read, and the message whose call reads it."""


class Box(NamedTuple):
    """One message as a box; `x` and `y` are its upper left corner. `secret`: it is a secret that leaked. `outer` is the
    side on which edges within its column run (1: right, -1: left), `bend` how far out they may go."""

    said: Said
    x: float
    y: float
    reach: Hearers
    audience: str
    secret: bool
    outer: float
    bend: float


class DrawnEdge(NamedTuple):
    """One edge, from the message read to the call that reads it; `path` is an SVG path, `anchors` are those of the
    `Edge`."""

    source: str
    target: str
    kind: EdgeKind
    verdict: Verdict
    path: str
    anchors: tuple[str, ...] = ()


class Lane(NamedTuple):
    """One agent's column; `x` is its middle."""

    name: str
    x: float
    width: float


class Drawing(NamedTuple):
    """The whole drawing: the drawn `part` of the game, in boxes of one width."""

    width: float
    height: float
    box: float
    lanes: tuple[Lane, ...]
    nodes: tuple[Box, ...]
    lines: tuple[DrawnEdge, ...]
    part: DrawnPart

    @property
    def dense(self) -> bool:
        """Whether there are so many edges of kind "reads" that they would hide the leaks."""
        return sum(line.kind == "reads" for line in self.lines) > CROWDED


class _Port(NamedTuple):
    """One end of an edge: its box, the side of the box, and the `y` of the other end's box."""

    node: str
    side: float
    other: float
    edge: EdgeKey
    outgoing: bool


def draw(report: AuditReport) -> Drawing:
    """Lay out the drawn game of a report."""
    shown = part(report)
    lanes = _lanes(shown.said, report.subject.agents)
    box = BOX_WIDTH if not lanes or lanes[0].width >= ROOMY else SLIM
    nodes = {node.said.id: node for node in _nodes(shown.said, lanes, {s for e in shown.edges for s in e.secrets}, box)}
    kinds = _kinds(shown.said, shown.edges)
    drawn = {key: kind for key, kind in kinds.items() if nodes.keys() >= set(key)}
    leaks = {(edge.message, edge.call): edge for edge in shown.edges}
    lines = sorted(_lines(drawn, leaks, nodes, box), key=lambda line: EDGE_KINDS.index(line.kind))
    bottom = max((node.y for node in nodes.values()), default=TOP) + BOX_HEIGHT + SIDE
    width = sum(lane.width for lane in lanes) + 2 * SIDE
    return Drawing(
        width=width,
        height=bottom,
        box=box,
        lanes=lanes,
        nodes=tuple(nodes.values()),
        lines=tuple(lines),
        part=shown,
    )


def _lanes(drawn: Sequence[Said], agents: Sequence[str]) -> tuple[Lane, ...]:
    """One column per agent that speaks, by name, after the scenario's if it has messages."""
    speaking = {said.author for said in drawn}
    known = sorted((agent for agent in agents if agent in speaking), key=natural)
    others = sorted(speaking - {None, *known}, key=natural)
    names = [*([SCENARIO] if None in speaking else []), *known, *map(str, others)]
    width = max(NARROW, min(WIDE, PAGE / max(len(names), 1)))
    return tuple(Lane(name, SIDE + width * (column + 0.5), width) for column, name in enumerate(names))


def _nodes(drawn: Sequence[Said], lanes: Sequence[Lane], secrets: set[str], box: float) -> Iterator[Box]:
    columns = {lane.name: (number, lane) for number, lane in enumerate(lanes)}
    rows = _rows(drawn)
    for said in drawn:
        reach, audience = _reach(said)
        number, lane = columns[said.author or SCENARIO]
        outer = -1.0 if 2 * number + 1 < len(lanes) else 1.0
        x = lane.x - box / 2
        y = TOP + ROW * rows[said.id]
        yield Box(
            said=said,
            x=x,
            y=y,
            reach=reach,
            audience=audience,
            secret=said.id in secrets,
            outer=outer,
            bend=0.65 * (lane.width - box),
        )


def _rows(drawn: Sequence[Said]) -> dict[str, int]:
    """The row of each message: below its parents and its author's earlier messages, never above an earlier message."""
    rows: dict[str, int] = {}
    lowest: dict[str | None, int] = {}
    now = 0
    for said in drawn:
        above = [rows[parent] for parent in said.parents if parent in rows]
        now = max([now, lowest.get(said.author, -1) + 1, *(row + 1 for row in above)])
        rows[said.id] = lowest[said.author] = now
    return rows


def _reach(said: Said) -> tuple[Hearers, str]:
    if isinstance(said.audience, str):
        return "everyone", f"to {said.audience}"
    if set(said.audience) <= {said.author}:
        return "private", "private"
    return "some", "to " + ", ".join(sorted({*said.audience} - {said.author}, key=natural))


def _kinds(drawn: Iterable[Said], edges: Iterable[Edge]) -> dict[EdgeKey, EdgeKind]:
    """The kind of each edge; the worst if there are several."""
    kinds: dict[EdgeKey, EdgeKind] = {(parent, said.id): "reads" for said in drawn for parent in said.parents}
    for edge in edges:
        for call, read in zip(edge.path, edge.path[1:], strict=False):
            kinds[read, call] = "carries"
    return kinds | {(edge.message, edge.call): "leaks" for edge in edges}


def _lines(
    kinds: dict[EdgeKey, EdgeKind], leaks: dict[EdgeKey, Edge], nodes: dict[str, Box], box: float
) -> Iterator[DrawnEdge]:
    heights = _heights([port for key in kinds for port in _ports(key, nodes)])
    for (source, target), kind in kinds.items():
        ends = heights[(source, target), True], heights[(source, target), False]
        path = _path(nodes[source], nodes[target], box, *ends)
        edge = leaks.get((source, target))
        verdict, anchors = ("clean", ()) if edge is None else (edge.verdict, edge.anchors)
        yield DrawnEdge(source=source, target=target, kind=kind, verdict=verdict, path=path, anchors=anchors)


def _sides(source: Box, target: Box) -> tuple[float, float]:
    """The sides of the boxes where an edge ends: those that face each other, or the outer sides within a column."""
    if source.x == target.x:
        return source.outer, source.outer
    facing = 1.0 if target.x > source.x else -1.0
    return facing, -facing


def _ports(key: EdgeKey, nodes: dict[str, Box]) -> Iterator[_Port]:
    source, target = (nodes[id] for id in key)
    out, into = _sides(source, target)
    yield _Port(node=key[0], side=out, other=target.y, edge=key, outgoing=True)
    yield _Port(node=key[1], side=into, other=source.y, edge=key, outgoing=False)


def _heights(ports: Iterable[_Port]) -> dict[tuple[EdgeKey, bool], float]:
    """The distance of each end from the top of its box: ends at one side are spread, in order of their other ends."""
    sides: dict[tuple[str, float], list[_Port]] = {}
    for port in ports:
        sides.setdefault((port.node, port.side), []).append(port)
    found = {}
    for at in sides.values():
        for number, port in enumerate(sorted(at, key=lambda port: (port.other, port.outgoing)), start=1):
            found[port.edge, port.outgoing] = BOX_HEIGHT * number / (len(at) + 1)
    return found


def _path(source: Box, target: Box, box: float, out: float, into: float) -> str:
    side, other = _sides(source, target)
    x1 = source.x + box * (side > 0)
    y1 = source.y + out
    x2 = target.x + box * (other > 0)
    y2 = target.y + into
    if source.x == target.x:
        bend = side * min(16 + 9 * (y2 - y1) / ROW, source.bend)
        c1 = x1 + bend
        c2 = x2 + bend
    else:
        bend = max(40.0, abs(x2 - x1) / 2)
        c1 = x1 + side * bend
        c2 = x2 + other * bend
    return f"M{x1:.1f} {y1:.1f}C{c1:.1f} {y1:.1f} {c2:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
