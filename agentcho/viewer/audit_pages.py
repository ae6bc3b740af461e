"""Page content for inputs and results of audits: a file of traces, or the JSON of a report.

A trace has words and no receipts: its games are planned, as `agentcho audit` plans them under `--leakage audit`. A
report has the verdicts on one game and, unless they were revealed, no words. Independent of records of runs and of
HTML.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from agentcho.audit.planned import plan
from agentcho.audit.report import AuditReport, Edge, Said
from agentcho.audit.verdict import WORST
from agentcho.audit.wording import headline
from agentcho.errors import ConfigError, RecordBroken
from agentcho.message import natural
from agentcho.records.names import INFO, LINES
from agentcho.records.trace import read_traces
from agentcho.records.transcript import MessageUsage
from agentcho.viewer.compact_lists import Json
from agentcho.viewer.page_content import FORMAT, PageContent, PageSelection, ShownGame
from agentcho.viewer.reader_view import readable, reader_view
from agentcho.viewer.talk import talk

KINDS = "a run, a folder of runs, the .json of a comparison, a sweep or an audit, or a file of traces (.jsonl)"
UNMEASURED = MessageUsage(0, 0, 0.0, 0.0)
"""The usage of a planned message: what planning it used is not what its run used."""
WHOLE = (INFO, "request.json")
"""A folder with one of these files is a record, a comparison or a sweep."""


def of_file(file: Path, chosen: PageSelection) -> PageContent:
    """The games of a file of traces, or of a report. Raises `RecordBroken` if it is neither, with what to give instead,
    and `ConfigError` if it has no such game."""
    if file.name in (INFO, *LINES) and (file.parent / INFO).is_file():
        raise RecordBroken(file, "is one file of a record", _instead(file))
    return of_traces(file, chosen) if file.suffix == ".jsonl" else of_report(file, chosen)


def _instead(file: Path) -> str:
    """What to give instead of a file that cannot be shown by itself."""
    whole = any((file.parent / name).is_file() for name in WHOLE)
    return f"give its folder, {file.parent}" if whole else f"give {KINDS}"


def of_traces(file: Path, chosen: PageSelection) -> PageContent:
    """The games of a file of traces. Raises `RecordBroken` if it is not one, and `ConfigError` if there is no such
    game."""
    found = list[ShownGame]()
    for game, trace in enumerate(read_traces(file)):
        ended = {message.id: message.ended for message in trace.messages}
        planned = plan(trace, "choreographed", "audit").entries
        entries = [entry._replace(ended=ended[entry.message.id], usage=UNMEASURED) for entry in planned]
        head: Json = {"title": f"game {game} {trace.id}", "group": "", "messages": len(entries)}
        data = partial(talk, entries, {}, measured=False)
        if chosen.eyes is not None:
            head |= {"title": f"game {game}", "messages": len(readable(entries, chosen.eyes))}
            data = partial(reader_view, entries, chosen.eyes, {})
        if chosen.game in (None, game):
            found.append(ShownGame(head, data))
    if not any(one.head["messages"] for one in found):
        raise ConfigError(f"{file} has no such game, or none of its messages may be read by this agent")
    facts = [] if chosen.eyes is not None else [["planned as", "--leakage audit"]]
    head = {"title": file.stem, "run": "traces", "status": "", "started": "", "facts": facts, "eyes": chosen.eyes}
    return PageContent({"format": FORMAT} | head, tuple(found))


def of_report(file: Path, chosen: PageSelection) -> PageContent:
    """The game that a report draws. Raises `RecordBroken` if the file is not a report, and `ConfigError` if another
    game or an agent's eyes are requested."""
    try:
        report = AuditReport.model_validate_json(file.read_bytes())
    except ValueError:
        raise RecordBroken(file, "cannot be shown as a page", _instead(file)) from None
    if chosen.eyes is not None or chosen.game not in (None, report.drawn_game):
        raise ConfigError(
            f"{file} is a report, which shows one game as a whole; give the run itself to choose a game "
            "or an agent (--eyes)"
        )
    subject = report.subject
    facts = [["mode", subject.mode], ["leakage", subject.leakage], ["conclusion", headline(report).brief]]
    head: Json = {"format": FORMAT, "title": subject.scenario, "run": "audit", "status": "", "started": ""}
    head |= {"facts": facts, "eyes": None, "wordless": all(said.text is None for said in report.drawn)}
    title = f"game {report.drawn_game}, which has the worst findings"
    return PageContent(
        head, (ShownGame({"title": title, "group": "", "messages": len(report.drawn)}, partial(_drawn, report)),)
    )


def _drawn(report: AuditReport) -> Json:
    spoken = [said.author for said in report.drawn if said.author]
    heard = [name for said in report.drawn if not isinstance(said.audience, str) for name in said.audience]
    names = dict.fromkeys([*sorted(report.subject.agents, key=natural), *spoken, *heard])
    seat = {name: number for number, name in enumerate(names)}
    place = {said.id: number for number, said in enumerate(report.drawn)}
    messages = [_said(said, seat, place) for said in report.drawn]
    edges = [edge for edge in report.edges if edge.game == report.drawn_game and edge.call in place]
    agents = [_agent(name, [edge for edge in edges if edge.reader == name], place, report) for name in names]
    return {"agents": agents, "messages": messages, "encodings": []}


class ReachedSecret(NamedTuple):
    """A message that reached an agent that may not read it, in the page's form: numbers of messages; `through` is the
    one that was read, or -1 if it is not drawn."""

    secret: int
    verdict: str
    call: int
    through: int


def _agent(name: str, edges: Iterable[Edge], place: dict[str, int], report: AuditReport) -> Json:
    reached: dict[int, ReachedSecret] = {}
    for edge in sorted(edges, key=lambda edge: WORST.index(edge.verdict)):
        for secret in (each for each in edge.secrets if each in place):
            through = place.get(edge.message, -1)
            way = ReachedSecret(place[secret], edge.verdict, call=place[edge.call], through=through)
            reached.setdefault(place[secret], way)
    row = next((row for row in report.readers if row.reader == name), None)
    counts = (0, 0, "clean") if row is None else (row.readings, row.leaking, row.verdict)
    about = dict(zip(("readings", "unclean", "verdict"), counts, strict=True))
    return {"name": name, "role": "", "read": [], "reached": sorted(reached.values()), "brought": []} | about


def _said(said: Said, seat: dict[str, int], place: dict[str, int]) -> Json:
    everyone = isinstance(said.audience, str)
    to = None if everyone else sorted(seat[name] for name in said.audience)
    line = {"id": said.id, "by": None if said.author is None else seat[said.author], "to": to, "role": said.role}
    words = said.text if said.text is not None else f"digest {said.digest}"
    reads = [place[parent] for parent in said.parents if parent in place]
    where = {} if said.place is None else {"where": str(said.place)}
    return line | {"kind": said.kind, "text": words, "tokens": said.tokens, "reads": reads} | where
