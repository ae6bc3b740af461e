"""The advice of findings as a list of actions, sorted by level and number of findings.

A rule about the code has one action per line of code; a rule about the run has one action.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from agentcho.audit.report import Finding, Place
from agentcho.audit.rules import LEVELS, RULES, Level
from agentcho.audit.wording import stands


class Action(NamedTuple):
    """One thing to do: the advice of one rule, for one line of code or for the whole run. `places` are the lines of its
    findings with the number of findings of each, most first; empty: no line is known."""

    rule: str
    findings: tuple[Finding, ...]

    @property
    def advice(self) -> str:
        return RULES[self.rule].advice

    @property
    def level(self) -> Level:
        return RULES[self.rule].level

    @property
    def places(self) -> tuple[tuple[Place, int], ...]:
        counts = Counter(finding.place for finding in self.findings if finding.place is not None)
        return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0].file, item[0].line)))

    @property
    def placeless(self) -> int:
        """The number of its findings without a known line."""
        return sum(finding.place is None for finding in self.findings)


def actions(findings: Iterable[Finding]) -> tuple[Action, ...]:
    """The actions for the standing errors and warnings, each of which is in exactly one action. Errors come first, then
    the actions with the most findings, and of equally many those at a line of code."""
    found: dict[tuple[str, Place | None], list[Finding]] = {}
    for finding in findings:
        if stands(finding) and finding.level != "note":
            place = finding.place if RULES[finding.rule].in_code else None
            found.setdefault((finding.rule, place), []).append(finding)
    return tuple(sorted((Action(rule, tuple(own)) for (rule, _), own in found.items()), key=_order))


def _order(action: Action) -> tuple[int, int, bool, str, str, int]:
    place = action.places[0][0] if action.places else Place(file="", line=0)
    whole_run = not action.places
    return LEVELS.index(action.level), -len(action.findings), whole_run, action.rule, place.file, place.line
