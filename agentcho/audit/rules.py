"""The rules of an audit: their names, levels and meanings.

Does not know: how violations are found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from agentcho.audit.report import Level


class Rule(NamedTuple):
    """One rule. `title` names it in a few words, `meaning` says what a finding of it tells, `remedy` what to do."""

    id: str
    level: Level
    title: str
    meaning: str
    remedy: str


_ALL = (
    Rule(
        "AC001",
        "error",
        "direct leak",
        "An agent attends to a message whose audience leaves it out.",
        "Leave the message out of the agent's view, or release its words as a new message to a wider audience.",
    ),
    Rule(
        "AC002",
        "error",
        "transitive leak",
        "An agent attends to an encoding that was made over messages which the agent may not read.",
        "Run with leakage=enforce, which encodes the message again for its audience, or with mode=baseline.",
    ),
    Rule(
        "AC003",
        "error",
        "positional leak",
        "A position that an agent can feel depends on what it may not read.",
        "Place messages after ones that every reader may read, plus a constant; or leave positions out.",
    ),
    Rule(
        "AC004",
        "error",
        "unlabelled encoding",
        "It cannot be told what an encoding was made from.",
        "Play the run again; a transcript that was edited or cut can prove nothing.",
    ),
    Rule(
        "AC005",
        "warning",
        "batches are outside the claim",
        "Enforcement ran in the fast profile, where the rows of a batch may change each other's last bits.",
        "Run with --deterministic to make the claim hold for every bit.",
    ),
    Rule(
        "AC006",
        "warning",
        "schedule depends on a secret",
        "The playing code had looked at words before it acted in front of agents that may not read them.",
        "Decide by what every hearer may read, or release the words first.",
    ),
    Rule(
        "AC007",
        "note",
        "release",
        "An author spoke before a wider audience after reading what it may not read.",
        "Nothing, if it was meant: what an author says is the author's act. The ledger lists each release.",
    ),
    Rule(
        "AC008",
        "note",
        "blockage",
        "In a prompt stand messages that a later one was not encoded over, as a chat API would have done.",
        "Nothing, if it was meant; mode=baseline encodes every message over all that stand before it.",
    ),
    Rule(
        "AC009",
        "warning",
        "cache timing across agents",
        "An agent was served from a prefix that another one had encoded: the time it takes tells that it was there.",
        "Do not let agents share a prefix cache, or keep prefixes apart by who may read them.",
    ),
    Rule(
        "AC010",
        "warning",
        "plain role markers",
        "In the model's chat template nothing stands between some messages but what a text can spell: there, what one "
        "agent says can pass for what another said.",
        "Use a model whose template has special tokens between messages; `agentcho doctor` says which.",
    ),
    Rule(
        "AC011",
        "note",
        "one client for several agents",
        "One client of the server spoke for several agents, and so it had the texts of all of them in its hands.",
        "Nothing, where that client is trusted with all texts: the verdict is of encodings alone. Else give each agent "
        "a client and a key of its own.",
    ),
    Rule(
        "AC012",
        "error",
        "secret in the arguments of a call",
        "An agent called a tool with arguments that were made from what not all who learn of them may know.",
        "Run with leakage=enforce, which refuses such calls; call with a view without these messages, or with "
        "release=True where that is meant.",
    ),
    Rule(
        "AC013",
        "error",
        "effect of untrusted words",
        "A call that changes something outside was made from the result of a tool that nobody vouches for: whoever "
        "wrote that may have decided what was done.",
        "Run with leakage=enforce, which refuses such calls; call with a view without these messages, let another "
        "agent read them and choose, or call with release=True where that is meant.",
    ),
    Rule(
        "AC014",
        "warning",
        "call that nobody can account for",
        "It cannot be told what the arguments of a call were made from, or what its tool declares.",
        "Play the run again; a transcript that was edited or cut can prove nothing.",
    ),
    Rule(
        "AC015",
        "warning",
        "one server of tools for several agents",
        "Agents called tools over one connection, and what one of them told that server not all of the others may "
        "know: what it keeps no audit sees.",
        "Give each agent, or all that may know the same, a connection and a process of the server of their own.",
    ),
    Rule(
        "AC016",
        "note",
        "released call",
        "A call was let run although untrusted words may stand behind its arguments: its code had said release=True.",
        "Nothing, if it was meant: somebody vouches for that call.",
    ),
    Rule(
        "AC017",
        "warning",
        "more told than the budget",
        "Typed releases can have told a reader more bits about an owner's secrets than leak_budget gives.",
        "Run with words=refuse, which refuses what is above the budget; offer fewer choices, or ask less often.",
    ),
    Rule(
        "AC018",
        "warning",
        "words that nobody can account for",
        "In a run with a rule for words, a message does not account for how much it can tell of what its author had "
        "read.",
        "Play the run again; a transcript that was edited, cut or written by another version can prove nothing.",
    ),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.id: rule for rule in _ALL})


def fingerprint(
    rule: str, scenario: str, reader: str | None, owner: str | None, carrier: str | None, file: str | None = None
) -> str:
    """32 hex digits that name a finding. They depend on no lines, texts or counts, so that edits do not change them."""
    framed = json.dumps([rule, scenario, reader, owner, carrier, *([] if file is None else [file])])
    return hashlib.sha256(framed.encode()).hexdigest()[:32]
