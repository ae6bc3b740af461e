"""The rules of an audit, one record per rule, with everything that any report format says about it.

A new rule needs a record here and a finder in `finders`. Independent of how violations are found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

RuleSubject = Literal["reader", "tool", "run"]
Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
HeadlineWord = Literal["LEAKS", "UNTRUSTED", "UNKNOWN"]
LedgerName = Literal["releases", "blockages"]


class Occurrences(int):
    """A count that formats with a noun: `{times:reading}` is "1 reading" or "2 readings"."""

    def __format__(self, noun: str) -> str:
        return f"{int(self)} {noun}{'' if self == 1 else 's'}"


ATTENDS = "{reader} attends to {id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PathWording:
    """What a rule says about each message on the path of a finding, as `str.format` templates. Their fields are the
    message's `id`, and `reader`, `owner` and `carrier`.

    Args:
        first: For the first message, usually the private one.
        step: For each message after it.
        end: For the last message and the reader that the finding is about.
    """

    first: str = "{id} is what {owner} kept private"
    step: str = "{id} attended to it"
    end: str = ATTENDS

    @property
    def attends(self) -> bool:
        """Whether the place of a finding is the line at which its reader attended to the path, rather than that of the
        path's last message."""
        return self.end == ATTENDS


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One rule.

    `sentence` and `of_run` are `str.format` templates with the fields `reader`, `owner`, `carrier`, `detail` and
    `times` (`{times:reading}`: "2 readings"); `doubt` has `times` and `count`, the number alone.

    Args:
        code: The id of the rule, never reused for another rule.
        level: The severity of a finding: `--fail-on` counts from a level upwards.
        title: The rule in a few words.
        subject: What the `reader` of a finding names: an agent that reads, a tool that was called, or nothing if the
            finding is about the run.
        meaning: What a finding of the rule means, in a sentence that fits every run.
        sentence: What one finding says.
        of_run: What a finding says that holds for every game because of the run's options. Empty: `sentence`.
        advice: What to do.
        in_code: Whether each line of code is fixed on its own. Otherwise the advice is given once, with all lines.
        headline: The headline of a report with a standing finding of this rule. Set for errors only.
        learner: Who can learn the owner's secret, as worded in the headline of leaks.
        doubt: The reason why an audit with such a finding is inconclusive if no error stands. Empty: it is not.
        beside: What a CLEAN or TEXTS CLEAN headline adds if such a finding stands. Empty: nothing.
        way: What is said about the messages on a finding's path.
        ledger: The list of a report that has each case; a terminal shows its counts in place of the findings.
    """

    code: str
    level: Level
    title: str
    subject: RuleSubject
    meaning: str
    sentence: str
    advice: str
    of_run: str = ""
    in_code: bool = False
    headline: HeadlineWord | None = None
    learner: str = "{reader}"
    doubt: str = ""
    beside: str = ""
    way: PathWording = PathWording()
    ledger: LedgerName | None = None


_ALL = (
    Rule(
        code="AC001",
        level="error",
        title="direct leak",
        subject="reader",
        meaning="An agent attends to a message whose audience does not include it.",
        sentence="{reader} reads private messages of {owner}: {times:reading}{detail}",
        advice=(
            "Leave the message out of the agent's view, or release its words as a new message to a wider audience."
        ),
        in_code=True,
        headline="LEAKS",
    ),
    Rule(
        code="AC002",
        level="error",
        title="transitive leak",
        subject="reader",
        meaning="An agent attends to an encoding that was made over messages which the agent may not read.",
        sentence="{reader} reads messages of {carrier} that carry private messages of {owner}: {times:reading}{detail}",
        advice="Run with leakage=enforce, which encodes the message again for its audience, or with mode=baseline.",
        headline="LEAKS",
    ),
    Rule(
        code="AC003",
        level="error",
        title="positional leak",
        subject="reader",
        meaning="A position that an agent can observe depends on messages that it may not read.",
        sentence=(
            "{reader} reads messages of {carrier} at positions that depend on private messages of {owner}: "
            "{times:reading}"
        ),
        advice="Place messages after ones that every reader may read, plus a constant; or leave positions out.",
        in_code=True,
        headline="LEAKS",
    ),
    Rule(
        code="AC004",
        level="error",
        title="unlabelled encoding",
        subject="reader",
        meaning="The record does not show what an encoding was made from.",
        sentence="it is unknown what {reader} reads in messages of {carrier}: {detail} ({times:time})",
        advice="Play the run again; a transcript that was edited or cut can prove nothing.",
        headline="UNKNOWN",
        doubt="it is unknown what {count} readings or encodings carried",
    ),
    Rule(
        code="AC005",
        level="warning",
        title="batches are outside the claim",
        subject="run",
        meaning=(
            "Enforcement ran in the fast profile, where rounding depends on what shares a forward pass. "
            "Log-probabilities can therefore reveal, to the token, how long hidden messages beside them are; words "
            "change only at near ties."
        ),
        sentence=(
            "leakage=enforce ran in the fast profile: rounding depends on what shares a forward pass, so "
            "log-probabilities can reveal how long hidden messages are, and words change at near ties"
        ),
        advice=(
            "Run with --deterministic to make the claim hold for every bit (engine vllm has no such profile); "
            "otherwise show log-probabilities to nobody."
        ),
    ),
    Rule(
        code="AC006",
        level="warning",
        title="the code acted on a secret",
        subject="run",
        meaning=(
            "The playing code had looked at messages (their words, that they were said, what failed because of them) "
            "before it acted in front of agents that may not read them; or a limit counts such messages. A text that "
            "contains the value of a private choice counts as such an act."
        ),
        sentence="the code had looked at private messages of {owner} before {times:message} to others: {detail}",
        of_run="when a game or an agent ends depends on everything that was said, private words included: {detail}",
        advice=(
            "Decide by what every listener may read, or release the words first; use announce(..., release=True) for "
            "what the rules of the game reveal."
        ),
        beside="the course of the game can reveal private messages",
        way=PathWording(step="{id} was asked for when the code had looked at it", end="{id} is said to others"),
    ),
    Rule(
        code="AC007",
        level="note",
        title="release",
        subject="run",
        meaning="An author spoke before a wider audience after reading what it may not read.",
        sentence="{carrier} spoke before others after reading private messages of {owner}: {times:release}{detail}",
        advice="None if intended: what an author says is its own act. The ledger lists each release.",
        ledger="releases",
        way=PathWording(step="{id} was said over it", end="{carrier} says {id} before others"),
    ),
    Rule(
        code="AC008",
        level="note",
        title="blockage",
        subject="reader",
        meaning="A prompt holds messages over which a later message was not encoded; a chat API would have done so.",
        sentence="{reader} reads messages not encoded over everything before them in its prompt: {times:time}",
        advice="None if intended; mode=baseline encodes every message over everything before it.",
        ledger="blockages",
        way=PathWording(first="{id} was not encoded over everything before it"),
    ),
    Rule(
        code="AC009",
        level="warning",
        title="cache timing across agents",
        subject="reader",
        meaning=(
            "An agent was served from a prefix that another one had encoded: response times reveal that it was there."
        ),
        sentence="the prefix cache served {reader} what {owner} had encoded, {times:time}: response times reveal this",
        advice="Do not let agents share a prefix cache, or keep prefixes apart by who may read them.",
    ),
    Rule(
        code="AC010",
        level="warning",
        title="plain role markers",
        subject="run",
        meaning=(
            "The model's chat template separates some messages only by text that anyone can write: there, the words "
            "of one agent can pass for those of another."
        ),
        sentence="the model's role markers are plain text: the words of one agent can pass for those of another",
        advice="Use a model whose template has special tokens between messages; `agentcho doctor` shows which do.",
    ),
    Rule(
        code="AC011",
        level="note",
        title="one client for several agents",
        subject="run",
        meaning=("One client of the server spoke for several agents, so it held the texts of all of them."),
        sentence=(
            "one client spoke for {detail}: it is trusted with all their texts, and the verdict covers encodings only"
        ),
        advice=(
            "None if that client is trusted with all texts: the verdict covers encodings only. Otherwise give each "
            "agent its own client and key."
        ),
    ),
    Rule(
        code="AC012",
        level="error",
        title="secret in the arguments of a call",
        subject="tool",
        meaning="An agent called a tool with arguments made from what not everyone who learns of them may know.",
        sentence="{carrier} revealed private messages of {owner} to {detail} by calling {reader}: {times:time}",
        advice=(
            "Run with leakage=enforce, which refuses such calls; call with a view without these messages, or with "
            "release=True if that is intended."
        ),
        in_code=True,
        headline="LEAKS",
        learner="who learns of calls of {reader}",
        way=PathWording(step="{id} calls {reader} with what was made from it", end="{carrier} calls {reader} by {id}"),
    ),
    Rule(
        code="AC013",
        level="error",
        title="effect of untrusted words",
        subject="tool",
        meaning=(
            "A call that changes something outside was made from the result of a tool that nobody vouches for: "
            "the author of that result may have decided what was done."
        ),
        sentence=(
            "{carrier} called {reader}, which changes something outside, over words of {owner} that nobody vouches "
            "for: {times:time}"
        ),
        advice=(
            "Run with leakage=enforce, which refuses such calls; call with a view without these messages, let "
            "another agent read them and choose, or call with release=True if that is intended."
        ),
        in_code=True,
        headline="UNTRUSTED",
        way=PathWording(
            first="{id} holds words that nobody vouches for",
            step="{id} calls {reader} with what was made from it",
            end="{carrier} calls {reader} by {id}",
        ),
    ),
    Rule(
        code="AC014",
        level="warning",
        title="call that nobody can account for",
        subject="tool",
        meaning="The record does not show what the arguments of a call were made from, or what its tool declares.",
        sentence="it is unknown what {carrier} called {reader} over: {detail} ({times:time})",
        advice="Play the run again; a transcript that was edited or cut can prove nothing.",
        doubt="it is unknown what the arguments of {times:tool call} were made from",
    ),
    Rule(
        code="AC015",
        level="warning",
        title="one server of tools for several agents",
        subject="reader",
        meaning=(
            "Agents called tools over one connection, and one of them told that server what another may not know; "
            "an audit cannot see what the server keeps."
        ),
        sentence=(
            "{reader} called the tool server {detail} over the connection of {owner}, who had told it what {reader} "
            "may not know: {times:time}"
        ),
        advice="Give each agent, or each group that may know the same, its own connection and server process.",
        way=PathWording(step="{id} tells the server what was made from it", end="{reader} calls the same server"),
    ),
    Rule(
        code="AC016",
        level="note",
        title="released call",
        subject="tool",
        meaning=(
            "A call ran although its arguments may come from untrusted words: the code allowed it with release=True."
        ),
        sentence="{carrier} was allowed to call {reader} over words of {owner} that nobody vouches for: {times:time}",
        advice="None if intended: somebody vouches for that call.",
        way=PathWording(
            first="{id} holds words that nobody vouches for",
            step="{id} calls {reader} with what was made from it",
            end="{carrier} calls {reader} by {id}",
        ),
    ),
    Rule(
        code="AC017",
        level="warning",
        title="more told than the budget",
        subject="reader",
        meaning="Typed releases can have told a reader more bits about an owner's secrets than leak_budget allows.",
        sentence="{reader} can have been told more of the secrets of {owner} than the budget: {detail}",
        advice=(
            "Run with words=refuse, which refuses what is above the budget; offer fewer choices, or ask less often."
        ),
    ),
    Rule(
        code="AC018",
        level="warning",
        title="words that nobody can account for",
        subject="run",
        meaning=(
            "In a run with a rule for words, a message does not record how much it can reveal of what its author had "
            "read."
        ),
        sentence="it is unknown how much can be learned from {times:message} of {carrier}: {detail}",
        advice=(
            "Play the run again; a transcript that was edited, cut or written by another version can prove nothing."
        ),
        doubt="it is unknown how much can be learned from {times:message}",
        way=PathWording(first="it is unknown how much {id} reveals", end="{carrier} says {id}"),
    ),
    Rule(
        code="AC019",
        level="warning",
        title="order reveals hidden lengths",
        subject="reader",
        meaning=(
            "Messages raced: which of them came out first depends on the lengths of messages that not all of their "
            "readers may read. Keys and values are not affected."
        ),
        sentence=(
            "{reader} can infer how long private messages of {owner} were from where messages of {carrier} come in the "
            "order: {times:message}"
        ),
        of_run="it is unknown what the order of messages reveals: messages were said side by side, and {detail}",
        advice=(
            "Let the agents play in lockstep (game.lockstep, or agentcho.run(..., lockstep=True)), or fix the order: "
            "by a round (game.together), or by awaiting one message before the next is asked for."
        ),
        beside="the order of messages can reveal how long private ones were",
        way=PathWording(step="{id} comes after it", end="{reader} sees where {id} stands among others"),
    ),
    Rule(
        code="AC020",
        level="note",
        title="user messages of a single agent",
        subject="run",
        meaning=(
            "In a society on a server, user messages are for all agents by rule. These stood in the prompts of a "
            "single agent, like a brief that is meant for nobody else."
        ),
        sentence="only {carrier} brought {times:user message} that others may read: {detail}",
        advice=(
            "None if others may read them. Otherwise make them private to their sender: serve with "
            "`--user-messages private`, or send the header `x-agentcho-user-messages: private`."
        ),
    ),
    Rule(
        code="AC021",
        level="note",
        title="the code may have acted on a secret",
        subject="run",
        meaning=(
            "A private choice or answer had been returned to the playing code before it acted in front of agents that "
            "may not read it. Nothing shows whether the code used it."
        ),
        sentence=(
            "the code had received a private choice or answer of {owner} before {times:message} to others: {detail}"
        ),
        advice=(
            "None if the code did not act on it; otherwise decide by what every listener may read, or release the "
            "words first."
        ),
        way=PathWording(step="{id} was asked for when the code had been given it", end="{id} is said to others"),
    ),
    Rule(
        code="AC022",
        level="note",
        title="answer that nobody else may read",
        subject="run",
        meaning=(
            "What an agent chooses or answers is private to it unless the call (`to`) or the agent (`audience`) gives "
            "an audience. None was given for these, so no other agent may read them."
        ),
        sentence="no other agent may read {times:answer} of {owner}, for which no audience was given: {detail}",
        advice="Pass `to=()` if they are private, otherwise an audience, such as `to='everyone'`; or release them.",
    ),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.code: rule for rule in _ALL})


def fingerprint(
    rule: str, scenario: str, reader: str | None, owner: str | None, carrier: str | None, file: str | None = None
) -> str:
    """32 hex digits that identify a finding. They depend on no lines, texts or counts, so edits do not change them."""
    framed = json.dumps([rule, scenario, reader, owner, carrier, *([] if file is None else [file])])
    return hashlib.sha256(framed.encode()).hexdigest()[:32]
