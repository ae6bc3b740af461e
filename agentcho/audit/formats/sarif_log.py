"""SARIF 2.1.0 logs of the findings of audits and the results of probes.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SarifObject = dict[str, Any]
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class SarifRule:
    """One rule of a log.

    Args:
        id: The id that results refer to.
        title: The rule in a few words.
        meaning: What a result of the rule means.
        level: error, warning or note.
        advice: What to do. None: no advice.
        tags: Words by which code hosts sort rules.
    """

    id: str
    title: str
    meaning: str
    level: str
    advice: str | None = None
    tags: tuple[str, ...] = ()

    def json(self) -> SarifObject:
        """The rule as a reporting descriptor."""
        described: SarifObject = {
            "id": self.id,
            "name": self.title.title().replace(" ", ""),
            "shortDescription": {"text": self.title.capitalize()},
            "fullDescription": {"text": self.meaning},
        }
        if self.advice is not None:
            described["help"] = {"text": self.advice}
        described["defaultConfiguration"] = {"level": self.level}
        if self.tags:
            described["properties"] = {"tags": list(self.tags)}
        return described


@dataclass(frozen=True, kw_only=True, slots=True)
class SarifExecution:
    """How the command ended.

    Args:
        exit_code: Its exit code.
        conclusion: Its conclusion in one word. It was successful unless that is "inconclusive".
        doubts: Why it was inconclusive.
        command: The command line that repeats it. Empty: unknown.
        arguments: The same, split, without the program name.
    """

    exit_code: int
    conclusion: str
    doubts: Sequence[str] = ()
    command: str = ""
    arguments: Sequence[str] = ()

    def json(self) -> SarifObject:
        """The execution as an invocation."""
        ended: SarifObject = {
            "executionSuccessful": self.conclusion != "inconclusive",
            "exitCode": self.exit_code,
            "exitCodeDescription": self.conclusion,
        }
        if self.command:
            ended |= {"commandLine": self.command, "arguments": list(self.arguments)}
        doubts = [{"message": {"text": doubt}, "level": "warning"} for doubt in self.doubts]
        return ended | {"toolExecutionNotifications": doubts}


def sarif_log(
    *,
    version: str,
    rules: Iterable[SarifRule],
    run_id: str,
    execution: SarifExecution,
    results: Iterable[SarifObject],
    properties: Mapping[str, Any],
) -> str:
    """The log of one run.

    Args:
        version: The version of agentcho.
        rules: All rules; results give the index of their rule here.
        run_id: The name of the kind of run, ending in a slash.
        execution: How the command ended.
        results: The findings as SARIF results.
        properties: Other properties of the run.

    Returns:
        The log as ASCII JSON, ending in a newline.
    """
    driver = {
        "name": "agentcho",
        "version": version,
        "semanticVersion": version,
        "rules": [rule.json() for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": run_id},
        "invocations": [execution.json()],
        "columnKind": "unicodeCodePoints",
        "results": list(results),
        "properties": dict(properties),
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=True) + "\n"
