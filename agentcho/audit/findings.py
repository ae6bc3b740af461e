"""Findings: the readings, releases, blockages and acts of all games, grouped by what a user would fix.

Does not know: how a verdict was found, earlier reports, suppressions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from agentcho.audit import order
from agentcho.audit.calls import Called, GameCalls
from agentcho.audit.report import Blockage, Finding, Place, Release, Subject, Verdict, WordsLedger
from agentcho.audit.rules import RULES, Times, fingerprint
from agentcho.audit.subject import CLIENTS, LIMITS, MARKERS, SOCIETY
from agentcho.audit.verdict import GameVerdict, Reading, Share, line_of
from agentcho.audit.wording import listed
from agentcho.audit.words import GameWords
from agentcho.flow.labels import EncodingRecord
from agentcho.message import EVERYONE, SCENARIO
from agentcho.records.transcript import Entry, by_attempt

LEAKS: dict[Verdict, str] = {"direct": "AC001", "transitive": "AC002", "positional": "AC003", "unlabelled": "AC004"}


class Who(NamedTuple):
    """The key of a finding: its rule, who is concerned, and the file."""

    rule: str
    reader: str | None = None
    owner: str | None = None
    carrier: str | None = None
    file: str | None = None


class Shown(NamedTuple):
    """One piece of evidence for a finding. The finding describes the piece with the lowest `rank`."""

    game: int
    rank: tuple[int, ...]
    secrets: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    place: Place | None = None
    detail: str = ""


Evidence = dict[Who, list[Shown]]
Lines = Mapping[tuple[int, str], Place | None]
"""The line of code, or of a trace, by game and message."""
Seen = set[tuple[int, int, int]]
"""Encodings that have a reading, by game, attempt and id: ids of different attempts are different encodings."""


def gathered(scenario: str, evidence: Evidence, of_run: bool = False) -> Iterator[Finding]:
    """One finding for each key of the evidence. `of_run`: it holds of every game by the options of the run."""
    for who, shown in evidence.items():
        worst = min(shown, key=lambda one: one.rank)
        code, reader, owner, carrier, _ = who
        rule = RULES[code]
        sentence = rule.of_run if of_run and rule.of_run else rule.sentence
        names = {"reader": reader or "an agent", "owner": owner or "others", "carrier": carrier or "nobody"}
        yield Finding(
            rule=code,
            level=rule.level,
            reader=reader,
            owner=owner,
            carrier=carrier,
            message=sentence.format(**names, times=Times(len(shown)), detail=worst.detail),
            secrets=worst.secrets,
            path=worst.path,
            hops=max(len(worst.path) - 1, 0),
            place=worst.place,
            games=len({one.game for one in shown}),
            edges=len(shown),
            fingerprint=fingerprint(code, scenario, *who[1:]),
        )


def leaks(scenario: str, readings: Iterable[Reading], verdicts: Sequence[GameVerdict]) -> list[Finding]:
    """AC001 to AC004, and AC009: one a rule, reader, owner of the secret and author of what carried it."""
    evidence: Evidence = {}
    seen: Seen = set()
    for reading in readings:
        edge = reading.edge
        seen.add((edge.game, reading.attempt, edge.encoding))
        if edge.verdict == "unlabelled":
            evidence.setdefault(Who("AC004", edge.reader, None, reading.author), []).append(_unknown(reading))
        for share in reading.shares:
            who = Who(LEAKS[edge.verdict], edge.reader, share.owner, reading.author)
            evidence.setdefault(who, []).append(_shown(reading, share))
        if reading.cached is not None:
            shown = Shown(edge.game, (edge.game,), place=reading.place)
            evidence.setdefault(Who("AC009", edge.reader, reading.cached), []).append(shown)
    for verdict in verdicts:
        _loose(verdict, seen, evidence)
    return list(gathered(scenario, evidence))


def _shown(reading: Reading, share: Share) -> Shown:
    detail = " (refused before anything was computed)" if reading.refused else ""
    rank = (len(share.path), -len(share.secrets), reading.edge.game)
    return Shown(reading.edge.game, rank, share.secrets, share.path, reading.place, detail)


def _unknown(reading: Reading) -> Shown:
    return Shown(reading.edge.game, (reading.edge.game,), place=reading.place, detail=reading.fault or "")


def _loose(verdict: GameVerdict, seen: Seen, evidence: Evidence) -> None:
    """Encodings with unknown cones that no reading shows: nobody reads them, and they read nothing."""
    for id, fault in verdict.cones.roots.items():
        record = verdict.cones.records.get(id)
        if (verdict.game, verdict.attempt, id) in seen or (record is not None and _told(verdict, record)):
            continue
        message = verdict.cones.messages.get(record.message) if record else None
        who = Who("AC004", None, None, message.author or SCENARIO if message else None)
        detail = fault if id < 0 else f"encoding {id}: {fault}"
        shown = Shown(verdict.game, (verdict.game,), place=verdict.place(id), detail=detail)
        evidence.setdefault(who, []).append(shown)


def _told(verdict: GameVerdict, record: EncodingRecord) -> bool:
    """Whether readings by the call of this encoding are unlabelled already."""
    return verdict.reader(record) is not None and any(verdict.cones.fault(piece.id) for piece in record.receipt.context)


def acts(scenario: str, games: Mapping[int, Sequence[Entry]]) -> list[Finding]:
    """AC006: messages that were requested after the code had read words which some of their readers may not read, by
    file."""
    evidence: Evidence = {}
    for game, entries in games.items():
        authors = {entry.message.id: entry.message.author or SCENARIO for entry in entries}
        for entry in entries:
            place = line_of(entry.act.where)
            file = PurePath(place.file).name if place else ""
            # a message that was cancelled before its first word is on no line: its id has its author
            owners = {id: authors.get(id) or id.rpartition(".")[0] or SCENARIO for id in entry.act.tainted_by}
            for owner in sorted(set(owners.values())):
                who = Who("AC006", None, owner, entry.message.author or SCENARIO, file)
                secrets = tuple(id for id in entry.act.tainted_by if owners[id] == owner)
                shown = Shown(game, (game,), secrets, (entry.message.id, *secrets[:1]), place)
                evidence.setdefault(who, []).append(shown)
    return list(gathered(scenario, evidence))


def ordered(
    scenario: str, agents: Iterable[str], games: Mapping[int, Sequence[Entry]], side_by_side: Container[int]
) -> list[Finding]:
    """AC019: what the order of messages tells `agents`. Of games that do not say what was awaited it is said where
    messages were said `side_by_side` there."""
    evidence: Evidence = {}
    unknown: Evidence = {}
    for game, entries in games.items():
        for said in by_attempt(entries):
            if not order.known(said):
                if game in side_by_side and order.overlapped(said):
                    shown = Shown(game, (game,), detail="the record does not say what was awaited")
                    unknown.setdefault(Who("AC019"), []).append(shown)
                continue
            lines = {entry.message.id: entry for entry in said}
            for told in order.raced(said, agents):
                entry = lines[told.message]
                who = Who("AC019", told.reader, told.owner, entry.message.author or SCENARIO)
                rank, path = (-len(told.secrets), game), (told.message, told.secrets[0])
                shown = Shown(game, rank, told.secrets, path, line_of(entry.act.where))
                evidence.setdefault(who, []).append(shown)
    return [*gathered(scenario, evidence), *gathered(scenario, unknown, of_run=True)]


def released(
    scenario: str, releases: Iterable[Release], lines: Lines, games: Mapping[int, Sequence[Entry]]
) -> list[Finding]:
    """AC007: authors that spoke before a wider audience after reading private messages."""
    authors = {(game, e.message.id): e.message.author or SCENARIO for game, said in games.items() for e in said}
    evidence: Evidence = {}
    strange: Counter[Who] = Counter()
    for release in releases:
        owners: dict[str, list[str]] = {}
        for source in release.sources:
            owners.setdefault(authors[release.game, source], []).append(source)
        for owner, sources in owners.items():
            who = Who("AC007", None, owner, release.author)
            strange[who] += not release.canonical
            rank, path = (int(release.canonical), release.game), (release.message, sources[0])
            place = lines.get((release.game, release.message))
            evidence.setdefault(who, []).append(Shown(release.game, rank, tuple(sources), path, place))
    for who, count in strange.items():
        ids = f"; the token ids of {count} are not those of their text and say more than it does" if count else ""
        evidence[who] = [shown._replace(detail=ids) for shown in evidence[who]]
    return list(gathered(scenario, evidence))


def called(scenario: str, calls: Iterable[GameCalls]) -> list[Finding]:
    """AC012 to AC016: calls of tools, by tool, whose words were behind them, and who called."""
    evidence: Evidence = {}
    for game in calls:
        for call in game.calls:
            for who, shown in _call(call, game):
                evidence.setdefault(who, []).append(shown)
        for who, shown in _shared(game):
            evidence.setdefault(who, []).append(shown)
    return list(gathered(scenario, evidence))


def _call(call: Called, game: GameCalls) -> Iterator[tuple[Who, Shown]]:
    """What is found of one call: one piece of evidence for each of those whose words are in the way."""
    tool = "a tool" if call.use is None else call.use.name
    if call.cone is None or call.use is None:
        shown = Shown(call.game, (call.game,), place=call.place, detail=call.fault)
        yield Who("AC014", tool, None, call.caller), shown
        return
    told = "the world" if call.use.audience == EVERYONE else str(call.use.audience)
    rules = {"AC016": call.untrusted} if call.release else {"AC012": call.secret, "AC013": call.untrusted}
    for rule, messages in rules.items():
        owners: dict[str, list[str]] = {}
        for id in messages:
            owners.setdefault(game.whose(id), []).append(id)
        for owner, ids in owners.items():
            shown = Shown(call.game, (-len(ids), call.game), tuple(ids), (call.call, ids[0]), call.place, told)
            yield Who(rule, tool, owner, call.caller), shown


def _shared(game: GameCalls) -> Iterator[tuple[Who, Shown]]:
    """AC015: what one agent told a server of tools, and another one that called over the same connection may not know,
    now or before: nobody knows what a server keeps, or when it says it."""
    servers: dict[str, list[Called]] = {}
    for call in game.calls:
        if call.use is not None and call.use.client is not None:
            servers.setdefault(call.use.client, []).append(call)
    for server, calls in servers.items():
        for told in calls:
            for reader in sorted({call.caller for call in calls} - {told.caller}):
                hidden = tuple(id for id in game.behind(told) if not game.known_to(id).includes(reader))
                if hidden:
                    rank = (-len(hidden), told.game)
                    shown = Shown(told.game, rank, hidden, (told.call, hidden[0]), told.place, server)
                    yield Who("AC015", reader, told.caller, server), shown


def told(subject: Subject, ledger: WordsLedger | None, games: Iterable[GameWords]) -> list[Finding]:
    """AC017: rows of the ledger above the budget. AC018: messages that do not account for their words."""
    evidence: Evidence = {}
    for row in () if ledger is None else ledger.rows:
        if row.over:
            detail = f"{row.bits:.4g} bits in a game, of {subject.leak_budget:g} given"
            shown = Shown(row.game, (row.game,), detail=detail)
            evidence[Who("AC017", row.reader, row.owner)] = [shown] * row.games
    for doubt in (each for game in games for each in game.doubts):
        shown = Shown(doubt.game, (doubt.game,), (), (doubt.message,), doubt.place, doubt.why)
        evidence.setdefault(Who("AC018", carrier=doubt.author), []).append(shown)
    return list(gathered(subject.scenario, evidence))


def blocked(scenario: str, blockages: Iterable[Blockage], lines: Lines) -> list[Finding]:
    """AC008: one a reader."""
    evidence: Evidence = {}
    for each in blockages:
        place = lines.get((each.game, each.call))
        shown = Shown(each.game, (-len(each.missing), each.game), (), (each.message,), place)
        evidence.setdefault(Who("AC008", each.reader), []).append(shown)
    return list(gathered(scenario, evidence))


def brought(subject: Subject, games: Mapping[int, Sequence[Entry]]) -> list[Finding]:
    """AC020: user messages in a society of several agents that only one of them has brought. What an agent has said
    something over stood in the prompt that it sent: so the lines of answers say who brought what, in records of every
    version. The same words in another game of the society are the same message."""
    if SOCIETY not in subject.environment:
        return []
    messages = {(game, entry.message.id): entry.message for game, entries in games.items() for entry in entries}
    agents, senders = set[str](), defaultdict[tuple[str, str], set[str]](set)
    for (game, _), said in messages.items():
        if said.kind == "decode" and said.author is not None:
            agents.add(said.author)
            for read in (messages[game, id] for id in said.parents if (game, id) in messages):
                senders[read.role, read.text].add(said.author)
    alone = defaultdict[tuple[int, str], list[str]](list)
    for (game, id), sent in messages.items():
        by = senders[sent.role, sent.text]
        if sent.author is None and _of_a_user(sent.role) and len(by) == 1 < len(agents):
            alone[game, next(iter(by))].append(id)
    evidence: Evidence = {}
    for (game, agent), found in alone.items():
        where = f" of game {game}" if len(games) > 1 else ""
        shown = Shown(game, (-len(found), game), tuple(found), detail=listed(found) + where)
        evidence.setdefault(Who("AC020", carrier=agent), []).extend([shown] * len(found))
    return list(gathered(subject.scenario, evidence))


def _of_a_user(role: str) -> bool:
    """Whether a message of no agent is what a user said, or a part of that."""
    return role in ("user", "user-begin", "part", "user-end")


def of_the_run(subject: Subject, encoded: bool = True) -> list[Finding]:
    """What holds of every game, by how the run was played. `encoded`: whether anything was encoded in it.

    AC005: enforcement was claimed, in a profile whose batches it does not cover. AC006: a bound on the whole game
    counts what some of those whom it ends may not read. AC010: whoever writes can write a message's end and another's
    beginning. AC011: what passes between agents of one client is not the server's to see.
    """
    reused, limits = subject.mode == "choreographed", subject.environment.get(LIMITS)
    found: dict[Who, str] = {}
    if reused and subject.leakage != "audit" and limits is not None:
        found[Who("AC006", carrier="limits")] = limits
    if reused and encoded and subject.leakage == "enforce" and not subject.deterministic:
        found[Who("AC005")] = ""
    if subject.environment.get(MARKERS) == "plain":
        found[Who("AC010")] = ""
    if (several := subject.environment.get(CLIENTS)) is not None:
        found[Who("AC011")] = several
    games = range(max(1, subject.games))
    evidence = {who: [Shown(game, (game,), detail=detail) for game in games] for who, detail in found.items()}
    return list(gathered(subject.scenario, evidence, of_run=True))
