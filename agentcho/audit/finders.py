"""Finds violations of each rule in the readings, releases, blockages and acts of all games, grouped by what a user
would fix.

A new rule needs a record in `rules` and a finder here: a generator of evidence, registered with `@finder`.
Independent of earlier reports and suppressions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from types import MappingProxyType
from typing import NamedTuple

from agentcho.audit import order
from agentcho.audit.calls import GameCalls, JudgedCall
from agentcho.audit.facts import CodeLines, Facts
from agentcho.audit.report import Finding, Place, Verdict
from agentcho.audit.rules import LEVELS, RULES, Occurrences, fingerprint
from agentcho.audit.subject import CLIENTS, LIMITS, MARKERS, SOCIETY
from agentcho.audit.verdict import GameVerdict, Reading, RevealedSecrets, line_of
from agentcho.audit.wording import listed
from agentcho.audit.words import above_budget
from agentcho.message import EVERYONE, SCENARIO, Audience
from agentcho.provenance.labels import EncodingRecord
from agentcho.records.transcript import TranscriptEntry, by_attempt

LEAKS: dict[Verdict, str] = {"direct": "AC001", "transitive": "AC002", "positional": "AC003", "unlabelled": "AC004"}


@dataclass(frozen=True, slots=True)
class FindingKey:
    """What one finding is about: its rule, the agents concerned, and the file. Lines of a file have separate findings
    with the same fingerprint, because edits must not change a fingerprint."""

    rule: str
    reader: str | None = None
    owner: str | None = None
    carrier: str | None = None
    file: str | None = None
    line: Place | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """One case of a finding. The finding describes the case with the lowest `rank`.

    Args:
        game: The game in which it occurred.
        rank: The sort key, worst case lowest; the game alone if all cases are alike.
        secrets: The messages that the agent concerned may not read.
        path: The path from the reader to the nearest of them.
        place: The line of code that requested it.
        detail: The value of `detail` in the rule's sentence.
        of_run: Whether it holds for every game because of the options of the run.
        messages: The messages of that game that caused it.
        attempt: The attempt at the game. None: the last one that has the messages of the path.
    """

    game: int
    rank: tuple[int, ...]
    secrets: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    place: Place | None = None
    detail: str = ""
    of_run: bool = False
    messages: tuple[str, ...] = ()
    attempt: int | None = None


Cases = Iterator[tuple[FindingKey, Evidence]]
Finder = Callable[[Facts], Cases]
FINDERS: list[Finder] = []
"""All finders, in the order of this file."""


class AttemptEncoding(NamedTuple):
    """Identifies an encoding across attempts, whose ids overlap."""

    game: int
    attempt: int
    id: int


def findings(facts: Facts) -> list[Finding]:
    """All findings, in report order."""
    cases: dict[FindingKey, list[Evidence]] = {}
    for find in FINDERS:
        for key, evidence in find(facts):
            cases.setdefault(key, []).append(evidence)
    return sorted(gathered(facts.subject.scenario, cases, facts.code), key=_order)


def finder(find: Finder) -> Finder:
    """Register a function as a finder."""
    FINDERS.append(find)
    return find


def gathered(
    scenario: str, cases: Mapping[FindingKey, list[Evidence]], code: CodeLines = MappingProxyType({})
) -> Iterator[Finding]:
    """One finding for each key. `code` has the lines of the messages on paths."""
    for key, evidence in cases.items():
        worst = min(evidence, key=lambda one: one.rank)
        rule = RULES[key.rule]
        sentence = rule.of_run if worst.of_run and rule.of_run else rule.sentence
        if key.reader is not None and key.reader == key.carrier:
            sentence = sentence.replace("messages of {carrier}", "its own messages")
        names = {
            "reader": key.reader or "an agent",
            "owner": key.owner or "others",
            "carrier": key.carrier or "nobody",
        }
        yield Finding(
            rule=key.rule,
            level=rule.level,
            reader=key.reader,
            owner=key.owner,
            carrier=key.carrier,
            message=sentence.format(**names, times=Occurrences(len(evidence)), detail=worst.detail),
            secrets=worst.secrets,
            path=worst.path,
            places=tuple(code.get((worst.game, worst.attempt, id)) for id in worst.path),
            hops=max(len(worst.path) - 1, 0),
            place=worst.place,
            messages=worst.messages,
            games=len({one.game for one in evidence}),
            edges=len(evidence),
            fingerprint=fingerprint(
                key.rule, scenario, reader=key.reader, owner=key.owner, carrier=key.carrier, file=key.file
            ),
        )


def _order(finding: Finding) -> tuple[int, tuple[str, ...]]:
    """Level, rule and names."""
    names = (finding.reader or "", finding.owner or "", finding.carrier or "")
    return LEVELS.index(finding.level), (finding.rule, *names)


@finder
def leaks(facts: Facts) -> Cases:
    """AC001 to AC004, and AC009: one finding per rule, reader, owner of the secret and author of the carrier."""
    seen = set[AttemptEncoding]()
    for reading in facts.readings:
        edge = reading.edge
        seen.add(AttemptEncoding(edge.game, reading.attempt, edge.encoding))
        if edge.verdict == "unlabelled":
            unknown = Evidence(game=edge.game, rank=(edge.game,), place=reading.place, detail=reading.fault or "")
            yield FindingKey("AC004", reader=edge.reader, carrier=reading.author), unknown
        for share in reading.shares:
            through = edge.verdict == "direct" and len(share.path) > 1
            rule = LEAKS["transitive" if through else edge.verdict]
            key = FindingKey(rule, reader=edge.reader, owner=share.owner, carrier=reading.author)
            yield key, _leaked(reading, share)
        if reading.cached is not None:
            hit = Evidence(game=edge.game, rank=(edge.game,), place=reading.place)
            yield FindingKey("AC009", reader=edge.reader, owner=reading.cached), hit
    for verdict in facts.verdicts:
        yield from _unread(verdict, seen)


def _leaked(reading: Reading, share: RevealedSecrets) -> Evidence:
    return Evidence(
        game=reading.edge.game,
        rank=(len(share.path), -len(share.secrets), reading.edge.game),
        secrets=share.secrets,
        path=share.path,
        place=reading.place,
        detail=" (refused before anything was computed)" if reading.refused else "",
        attempt=reading.attempt,
    )


def _unread(verdict: GameVerdict, seen: set[AttemptEncoding]) -> Cases:
    """Encodings with unknown cones that appear in no reading, neither as reader nor as read."""
    for id, fault in verdict.cones.roots.items():
        record = verdict.cones.records.get(id)
        shown = AttemptEncoding(verdict.game, verdict.attempt, id) in seen
        if shown or (record is not None and _reported(verdict, record)):
            continue
        message = verdict.cones.messages.get(record.message) if record else None
        carrier = message.author or SCENARIO if message else None
        detail = fault if id < 0 else f"encoding {id}: {fault}"
        evidence = Evidence(game=verdict.game, rank=(verdict.game,), place=verdict.place(id), detail=detail)
        yield FindingKey("AC004", carrier=carrier), evidence


def _reported(verdict: GameVerdict, record: EncodingRecord) -> bool:
    """Whether a reading by the call of this encoding is already reported as unlabelled."""
    return verdict.reader(record) is not None and any(verdict.cones.fault(piece.id) for piece in record.receipt.context)


@finder
def limits_and_profile(facts: Facts) -> Cases:
    """Findings that hold for every game because of the options of the run.

    AC005: enforcement was requested in a profile whose batches it does not cover. AC006: a limit counts messages that
    some of the agents it stops, or their readers, may not read. AC010: any author can write the end of one message and
    the beginning of another. AC011: the server cannot see what passes between agents of one client.
    """
    subject = facts.subject
    reused = subject.mode == "choreographed"
    limits = subject.environment.get(LIMITS)
    found: dict[FindingKey, str] = {}
    if reused and subject.leakage != "audit" and limits is not None:
        found[FindingKey("AC006", carrier="limits")] = limits
    if reused and facts.encoded and subject.leakage == "enforce" and not subject.deterministic:
        found[FindingKey("AC005")] = ""
    if subject.environment.get(MARKERS) == "plain":
        found[FindingKey("AC010")] = ""
    if (several := subject.environment.get(CLIENTS)) is not None:
        found[FindingKey("AC011")] = several
    for key, detail in found.items():
        for game in range(max(1, subject.games)):
            yield key, Evidence(game=game, rank=(game,), detail=detail, of_run=True)


@finder
def acts(facts: Facts) -> Cases:
    """AC006 and AC021: messages requested after the code had read words that some of their readers may not read, by
    owner of these words and by line. Messages that the rules of a game call for are listed as releases instead."""
    found: dict[FindingKey, dict[int, list[Evidence]]] = {}
    for game, entries in facts.games.items():
        authors = {entry.message.id: entry.message.author or SCENARIO for entry in entries}
        for entry in entries:
            if not entry.act.by_rules:
                for key, evidence in _acted(game, entry, authors):
                    found.setdefault(key, {}).setdefault(game, []).append(evidence)
    for key, games in found.items():
        for cases in games.values():
            said = tuple(dict.fromkeys(each.path[0] for each in cases))
            told = listed([each.detail for each in {each.path[0]: each for each in cases}.values()])
            for each in cases:
                yield key, replace(each, messages=said, detail=told)


def _acted(game: int, entry: TranscriptEntry, authors: Mapping[str, str]) -> Cases:
    """The evidence of one message, by owner of the words that the code had looked at."""
    act = entry.act
    place = line_of(act.where)
    # a message cancelled before its first word has no line; its id names its author
    owners = {id: authors.get(id) or id.partition(".")[0] or SCENARIO for id in act.tainted_by}
    unproved, quoted = set(act.unproved), set(act.contained)
    for owner in sorted(set(owners.values())):
        own = [id for id in act.tainted_by if owners[id] == owner]
        proved = tuple(id for id in own if id not in unproved)
        secrets = proved or tuple(own)
        file = PurePath(place.file).name if place else ""
        key = FindingKey("AC006" if proved else "AC021", owner=owner, file=file, line=place)
        contained = [id for id in secrets if id in quoted]
        what = (
            f"{entry.message.id} (its text contains the value of {listed(contained)})"
            if contained
            else entry.message.id
        )
        path = (entry.message.id, secrets[0])
        evidence = Evidence(
            game=game,
            rank=(game,),
            secrets=secrets,
            path=path,
            place=place,
            detail=what,
            attempt=entry.attempt,
        )
        yield key, evidence


@finder
def unaddressed(facts: Facts) -> Cases:
    """AC022: finished choices and answers for which no audience was given, by agent and line, in games of several
    agents. Those that were released afterwards are left out."""
    if len(facts.subject.agents) < 2:
        return
    for game, entries in facts.games.items():
        attempt = by_attempt(entries)[-1]
        released = {entry.act.released for entry in attempt}
        found = defaultdict[FindingKey, list[str]](list)
        for entry in attempt:
            if entry.act.unaddressed and entry.ended is None and entry.message.id not in released:
                place = line_of(entry.act.where)
                file = PurePath(place.file).name if place else ""
                key = FindingKey("AC022", owner=entry.message.author, file=file, line=place)
                found[key].append(entry.message.id)
        for key, said in found.items():
            detail = listed(said) + (f" of game {game}" if len(facts.games) > 1 else "")
            evidence = Evidence(game=game, rank=(game,), place=key.line, detail=detail, messages=tuple(said))
            for _ in said:
                yield key, evidence


@finder
def user_messages(facts: Facts) -> Cases:
    """AC020: user messages in a society of several agents that only one of them sent. The parents of an answer stood in
    the prompt that its agent sent, so the lines of answers show who sent what, in records of every version. The same
    words in another game of the society count as the same message."""
    if SOCIETY not in facts.subject.environment:
        return
    messages = {(game, entry.message.id): entry.message for game, entries in facts.games.items() for entry in entries}
    agents = set[str]()
    senders = defaultdict[tuple[str, str], set[str]](set)
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
    for (game, agent), found in alone.items():
        where = f" of game {game}" if len(facts.games) > 1 else ""
        rank = (-len(found), game)
        evidence = Evidence(game=game, rank=rank, secrets=tuple(found), detail=listed(found) + where)
        for _ in found:
            yield FindingKey("AC020", carrier=agent), evidence


def _of_a_user(role: str) -> bool:
    """Whether a role is that of a user message or of a part of one."""
    return role in ("user", "user-begin", "part", "user-end")


@finder
def races(facts: Facts) -> Cases:
    """AC019: what the order of messages reveals to agents. A game that does not record what was awaited is reported if
    messages were generated concurrently in it."""
    for game, entries in facts.games.items():
        for said in by_attempt(entries):
            if not order.known(said):
                if game in facts.side_by_side and order.overlapped(said):
                    unknown = "the record does not say what was awaited"
                    yield FindingKey("AC019"), Evidence(game=game, rank=(game,), detail=unknown, of_run=True)
                continue
            lines = {entry.message.id: entry for entry in said}
            for raced in order.raced(said, facts.subject.agents):
                entry = lines[raced.message]
                carrier = entry.message.author or SCENARIO
                evidence = Evidence(
                    game=game,
                    rank=(-len(raced.secrets), game),
                    secrets=raced.secrets,
                    path=(raced.message, raced.secrets[0]),
                    place=line_of(entry.act.where),
                    attempt=entry.attempt,
                )
                yield FindingKey("AC019", reader=raced.reader, owner=raced.owner, carrier=carrier), evidence


@finder
def releases(facts: Facts) -> Cases:
    """AC007: authors that spoke to a wider audience after reading private messages. Releases by the rules of a game are
    acts of the code, and are listed without a finding."""
    authors = {(game, e.message.id): e.message.author or SCENARIO for game, said in facts.games.items() for e in said}
    cases: dict[FindingKey, list[Evidence]] = {}
    strange: Counter[FindingKey] = Counter()
    for release in (each for each in facts.releases if each.by == "author"):
        owners: dict[str, list[str]] = {}
        for source in release.sources:
            owners.setdefault(authors[release.game, source], []).append(source)
        for owner, sources in owners.items():
            key = FindingKey("AC007", owner=owner, carrier=release.author)
            strange[key] += not release.canonical
            evidence = Evidence(
                game=release.game,
                rank=(int(release.canonical), release.game),
                secrets=tuple(sources),
                path=(release.message, sources[0]),
                place=facts.lines.get((release.game, release.message)),
            )
            cases.setdefault(key, []).append(evidence)
    for key, found in cases.items():
        count = strange[key]
        ids = f"; the token ids of {count} are not those of their text and say more than it does" if count else ""
        for evidence in found:
            yield key, replace(evidence, detail=ids)


@finder
def blockages(facts: Facts) -> Cases:
    """AC008: one finding per reader."""
    for blockage in facts.blockages:
        evidence = Evidence(
            game=blockage.game,
            rank=(-len(blockage.missing), blockage.game),
            path=(blockage.message,),
            place=facts.lines.get((blockage.game, blockage.call)),
        )
        yield FindingKey("AC008", reader=blockage.reader), evidence


@finder
def tool_calls(facts: Facts) -> Cases:
    """AC012 to AC016: tool calls, by tool, owner of the words in their cones, and caller."""
    for game in facts.calls:
        for call in game.calls:
            yield from _call(call, game)
        yield from _shared_servers(game)


def _call(call: JudgedCall, game: GameCalls) -> Cases:
    """The evidence of one call: one piece per owner of the secret or untrusted words."""
    tool = "a tool" if call.use is None else call.use.name
    if call.cone is None or call.use is None:
        unknown = Evidence(game=call.game, rank=(call.game,), place=call.place, detail=call.fault)
        yield FindingKey("AC014", reader=tool, carrier=call.caller), unknown
        return
    told = "the world" if call.use.audience == EVERYONE else str(call.use.audience)
    rules = {"AC016": call.untrusted} if call.release else {"AC012": call.secret, "AC013": call.untrusted}
    for rule, messages in rules.items():
        owners: dict[str, list[str]] = {}
        for id in messages:
            owners.setdefault(game.whose(id), []).append(id)
        for owner, ids in owners.items():
            evidence = Evidence(
                game=call.game,
                rank=(-len(ids), call.game),
                secrets=tuple(ids),
                path=(call.call, ids[0]),
                place=call.place,
                detail=told,
                attempt=game.attempt,
            )
            yield FindingKey(rule, reader=tool, owner=owner, carrier=call.caller), evidence


def _shared_servers(game: GameCalls) -> Cases:
    """AC015: what one agent told a tool server, and another agent that called over the same connection, earlier or
    later, may not know: what a server keeps, and when it returns it, is unknown."""
    servers: dict[str, list[JudgedCall]] = {}
    for call in game.calls:
        if call.use is not None and call.use.client is not None:
            servers.setdefault(call.use.client, []).append(call)
    for server, calls in servers.items():
        for told in calls:
            for reader in sorted({call.caller for call in calls} - {told.caller}):
                hidden = game.unknown_to(Audience(frozenset({reader})), told)
                if hidden:
                    evidence = Evidence(
                        game=told.game,
                        rank=(-len(hidden), told.game),
                        secrets=hidden,
                        path=(told.call, hidden[0]),
                        place=told.place,
                        detail=server,
                        attempt=game.attempt,
                    )
                    yield FindingKey("AC015", reader=reader, owner=told.caller, carrier=server), evidence


@finder
def budgets(facts: Facts) -> Cases:
    """AC017: owners and readers between whom the words of a game can reveal more than the budget."""
    given = facts.subject.leak_budget
    for (owner, reader), game, bits in above_budget(facts.words, given):
        detail = f"{bits:.4g} bits in a game, of {given:g} given"
        yield (
            FindingKey("AC017", reader=reader, owner=owner),
            Evidence(game=game, rank=(-round(1000 * bits), game), detail=detail),
        )


@finder
def unaccounted_words(facts: Facts) -> Cases:
    """AC018: messages that do not account for their words."""
    for game in facts.words:
        for doubt in game.doubts:
            evidence = Evidence(
                game=doubt.game,
                rank=(doubt.game,),
                path=(doubt.message,),
                place=doubt.place,
                detail=doubt.why,
                attempt=game.attempt,
            )
            yield FindingKey("AC018", carrier=doubt.author), evidence
