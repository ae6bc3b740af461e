"""All tasks and attacks of AgentDojo, in several arms. Does not know: the terminal, what a result looks like."""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentcho.audit.audit import audit_entries
from agentcho.audit.notes import Seal
from agentcho.audit.report import Subject
from agentcho.config import Leakage
from agentcho.progress import Tell
from agentcho.records.environment import machine, versions
from tools.bench.dojo import cases
from tools.bench.dojo.labels import FILE
from tools.bench.dojo.result import Benchmark, Counts, DojoResult, Found
from tools.bench.dojo.society import REPLY, Ran, run

FOUND = {"AC012", "AC013"}


class Arm(NamedTuple):
    """One way to play all cases. `guarded`: what the user is told goes through a tool with an effect."""

    name: str
    leakage: Leakage
    guarded: bool


ARMS = (
    Arm("enforced, replies too", "enforce", True),
    Arm("enforced", "enforce", False),
    Arm("audited", "audit", False),
)


def measure(benchmarks: Sequence[str], command: str, tell: Tell) -> DojoResult:
    """Play everything; minutes."""
    here = versions() | machine()
    found = tuple(_benchmark(version, tell) for version in benchmarks)
    return DojoResult(
        command=command,
        package=cases.package(),
        attack=cases.ATTACK,
        labels=hashlib.sha256(FILE.read_bytes()).hexdigest(),
        seed=0,
        environment=here,
        benchmarks=found,
    )


def _benchmark(version: str, tell: Tell) -> Benchmark:
    arms = list[Found]()
    for done, arm in enumerate(ARMS):
        tell(f"arms of {version} ({arm.name})", done, len(ARMS))
        play = lambda case, offered, arm=arm: run(case, offered, arm.leakage, arm.guarded)  # noqa: E731
        quiet, loud = list(cases.benign(version, play)), list(cases.attacked(version, play))
        arms.append(_found(arm, quiet, loud))
    tasks = Counter(each.suite for each in quiet)
    words = sum(each.needs_words for each in quiet)
    return Benchmark(
        version=version, tasks=tasks, attacks=Counter(e.suite for e in loud), words=words, arms=tuple(arms)
    )


def _found(arm: Arm, quiet: list[cases.Scored], loud: list[cases.Scored]) -> Found:
    through = [each for each in loud if each.through]
    called = [each for each in through if each.attack_calls]
    return Found(
        arm=arm.name,
        leakage=arm.leakage,
        guarded=arm.guarded,
        useful=_by_suite(quiet, lambda each: each.useful),
        kept=_by_suite(quiet, lambda each: each.useful and not _calls(each.ran)),
        through=_by_suite(loud, lambda each: bool(each.through)),
        by_words=len(through) - len(called),
        useful_attacked=_by_suite(loud, lambda each: each.useful),
        refused=sum(len(each.ran.refused) for each in loud),
        found=sum(_audited(arm, each.ran) for each in called),
    )


def _by_suite(scored: list[cases.Scored], holds: Callable[[cases.Scored], bool]) -> Counts:
    return {suite: sum(holds(each) for each in scored if each.suite == suite) for suite in _suites(scored)}


def _suites(scored: list[cases.Scored]) -> list[str]:
    return list(dict.fromkeys(each.suite for each in scored))


def _calls(ran: Ran) -> int:
    """How many calls of tools were refused, the reply not counted."""
    return sum(each.tool != REPLY for each in ran.refused)


def _audited(arm: Arm, ran: Ran) -> bool:
    """Whether an audit of the transcript finds what got through."""
    subject = Subject(
        scenario="agentdojo",
        source="",
        mode="choreographed",
        leakage=arm.leakage,
        deterministic=False,
        planned=False,
        games=1,
        agents=("assistant",),
        environment={},
        reproduce="",
    )
    report = audit_entries(subject, {0: ran.entries}, Seal(secrets.token_bytes(32)))
    return bool(FOUND & {finding.rule for finding in report.findings})
