"""Runs all tasks and attacks of AgentDojo in several arms, suite by suite, on all cores."""

from __future__ import annotations

import hashlib
import secrets
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TYPE_CHECKING, NamedTuple

from agentcho.audit.audit import audit_entries
from agentcho.audit.notes import Seal
from agentcho.audit.report import AuditReport, Subject
from agentcho.config import Leakage
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.environment import machine_info, source_digests, versions
from tools.bench.dojo import installed
from tools.bench.dojo.labels import FILE, labels
from tools.bench.dojo.result import Benchmark, DojoResult, Found
from tools.bench.dojo.society import REPLY, Case, Offered, Ran

if TYPE_CHECKING:
    from tools.bench.dojo.cases import Scored

FOUND = {"AC012", "AC013"}


class Arm(NamedTuple):
    """One way to play all cases. `guarded`: replies to the user go through a tool with an effect. `typed`: one agent
    reads and chooses, another one acts."""

    name: str
    leakage: Leakage
    guarded: bool
    typed: bool = False


TYPED = (Arm("typed, replies too", "enforce", True, True), Arm("typed", "enforce", False, True))
ALONE = (
    Arm("enforced, replies too", "enforce", True),
    Arm("enforced", "enforce", False),
    Arm("audited", "audit", False),
)


class Part(NamedTuple):
    """One suite of one version in one arm. `tasks`, `attacks`: their numbers. `words`: tasks that are not done unless
    the user is told something."""

    version: str
    suite: str
    tasks: int
    attacks: int
    words: int
    found: Found


def measure(benchmarks: Sequence[str], command: str, tell: ProgressCallback) -> DojoResult:
    """Play everything; the arms with two agents only for the first of `cases.VERSIONS`. Takes minutes."""
    from tools.bench.dojo import cases

    here = versions() | machine_info() | source_digests()
    asked = [
        (version, arm) for version in benchmarks for arm in (*(TYPED if version == cases.VERSIONS[0] else ()), *ALONE)
    ]
    jobs = [(version, arm, suite) for version, arm in asked for suite in labels()]
    parts = _played(jobs, tell)
    return DojoResult(
        command=command,
        package=cases.package(),
        attack=cases.ATTACK,
        labels=hashlib.sha256(FILE.read_bytes()).hexdigest(),
        seed=0,
        environment=here,
        benchmarks=tuple(
            _benchmark(version, [parts[job] for job in jobs if job[0] == version]) for version in benchmarks
        ),
    )


Job = tuple[str, Arm, str]


def _played(jobs: Sequence[Job], tell: ProgressCallback) -> dict[Job, Part]:
    """Run every job on all cores, longest first."""
    found = dict[Job, Part]()
    with ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=_begin) as pool:
        waiting = {pool.submit(_part, *job): job for job in sorted(jobs, key=lambda job: not job[1].typed)}
        for done in as_completed(waiting):
            version, arm, suite = job = waiting[done]
            found[job] = done.result()
            tell(f"suites of {version} ({arm.name}, {suite})", len(found), len(jobs))
    return found


def _begin() -> None:
    warnings.simplefilter("ignore")
    installed()


def _part(version: str, arm: Arm, suite: str) -> Part:
    """Play one suite in one arm."""
    from tools.bench.dojo import cases, pair, society

    def play(case: Case, offered: Sequence[Offered]) -> Ran:
        if arm.typed:
            return pair.run(case, offered, arm.guarded)
        return society.run(case, offered, arm.leakage, arm.guarded)

    quiet, loud = list(cases.benign(version, suite, play)), list(cases.attacked(version, suite, play))
    words = sum(each.needs_words for each in quiet)
    return Part(version, suite, len(quiet), len(loud), words, _found(arm, suite, quiet, loud))


def _benchmark(version: str, parts: Sequence[Part]) -> Benchmark:
    """Combine the parts of one version."""
    arms = list(dict.fromkeys(part.found.arm for part in parts))
    first = [part for part in parts if part.found.arm == arms[0]]
    return Benchmark(
        version=version,
        tasks={part.suite: part.tasks for part in first},
        attacks={part.suite: part.attacks for part in first},
        words=sum(part.words for part in first),
        arms=tuple(_together([part.found for part in parts if part.found.arm == arm]) for arm in arms),
    )


def _together(found: Sequence[Found]) -> Found:
    """One arm over all suites."""
    merged: dict[str, object] = {}
    for name in ("useful", "kept", "through", "useful_attacked"):
        merged[name] = {suite: count for each in found for suite, count in getattr(each, name).items()}
    for name in ("by_words", "refused", "found"):
        merged[name] = sum(getattr(each, name) for each in found)
    names = tuple(name for each in found for name in each.got_through)
    bits = tuple(sorted(bits for each in found for bits in each.bits))
    return found[0].model_copy(update={**merged, "got_through": names, "bits": bits})


def _found(arm: Arm, suite: str, quiet: Sequence[Scored], loud: Sequence[Scored]) -> Found:
    through = [each for each in loud if each.through]
    called = [each for each in through if each.attack_calls]
    kept = [each for each in quiet if each.useful and not _calls(each.ran)]
    return Found(
        arm=arm.name,
        leakage=arm.leakage,
        guarded=arm.guarded,
        typed=arm.typed,
        useful={suite: sum(each.useful for each in quiet)},
        kept={suite: len(kept)},
        through={suite: len(through)},
        by_words=len(through) - len(called),
        useful_attacked={suite: sum(each.useful for each in loud)},
        refused=sum(len(each.ran.refused) for each in loud),
        found=sum(_has_finding(arm, each.ran) for each in called),
        got_through=tuple(f"{suite} {each.task} {each.attack}" for each in called) if arm.typed else (),
        bits=tuple(_charged(arm, each.ran) for each in kept) if arm.typed else (),
    )


def _calls(ran: Ran) -> int:
    """The number of tool calls that did not run, not counting the reply."""
    return sum(each.tool != REPLY for each in ran.refused)


def _has_finding(arm: Arm, ran: Ran) -> bool:
    """Whether an audit of the transcript finds what got through."""
    return bool(FOUND & {finding.rule for finding in _audited(arm, ran).findings})


def _charged(arm: Arm, ran: Ran) -> float:
    """The maximum number of bits that a reader was told about an owner's secrets, according to the ledger of words.
    Asserts that everything has a bound and nothing is unaccounted for."""
    ledger = _audited(arm, ran).words
    assert ledger is not None
    assert not ledger.unaccounted
    assert all(row.bounded for row in ledger.rows)
    return round(max((row.bits for row in ledger.rows), default=0.0), 1)


def _audited(arm: Arm, ran: Ran) -> AuditReport:
    subject = Subject(
        scenario="agentdojo",
        source="",
        mode="choreographed",
        leakage=arm.leakage,
        deterministic=False,
        planned=False,
        games=1,
        agents=("reader", "actor") if arm.typed else ("assistant",),
        environment={},
        reproduce="",
        words="refuse" if arm.typed else None,
    )
    return audit_entries(subject, {0: ran.entries}, Seal(secrets.token_bytes(32)))
