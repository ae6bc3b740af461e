"""The report of an audit: frozen values, and their JSON in a versioned schema. Every output format is made from it.

The docstrings of its classes are the descriptions in `docs/audit.schema.json`. It contains texts of messages only on
request; otherwise `Said.digest` stands for them. Independent of how verdicts are found and shown.
"""

from __future__ import annotations

from itertools import chain, repeat
from typing import Literal

from agentcho.audit.measurement import Measurement
from agentcho.audit.rules import LEVELS, RULES, Level
from agentcho.records.frozen import Frozen

DOUBT = 3
"""The exit code of an audit in which something could not be judged."""
Verdict = Literal["clean", "direct", "transitive", "positional", "unlabelled"]
CallVerdict = Literal["clean", "told", "untrusted", "released", "unlabelled"]
FailOn = Literal["error", "warning", "note", "never"]
Status = Literal["new", "unchanged", "gone"]
Conclusion = Literal["clean", "texts-clean", "findings", "inconclusive"]
"""texts-clean: no view had a message that its reader may not read, and the caches of models behind APIs were not
seen."""


class Said(Frozen):
    """One message of the drawn game: what a graph needs, without its words.

    `digest` is an HMAC of its token ids, or of its words if it has none, under the run's key; `text` is set with
    `--reveal` only. `place` is the line of code that requested it, if known.
    """

    id: str
    kind: Literal["prefill", "decode"]
    role: str
    author: str | None
    audience: str | list[str]
    parents: tuple[str, ...]
    tokens: int
    digest: str
    text: str | None = None
    place: Place | None = None


class Edge(Frozen):
    """One reading: the agent `reader` attended to `encoding` of `message` while generating `call`.

    `secrets` are the messages in its cone that the reader may not read. `path` leads from `message` to the nearest of
    them, through the messages that were attended to on the way; `hops` is its number of steps, 0 for a direct leak.
    `recipe` is the kind of encoding. If the verdict is positional, `path` leads to the message whose position reveals
    something, and on to the message that it counts from, if known. If it is unlabelled, an unknown `message` is "#" and
    the encoding's id. `anchors` are the messages whose encodings corrected it (KVCOMM); they are in its cone too.
    `encoding` is 0 if there is none: the reading was refused, or was of text in the prompt of a model behind an API
    (`recipe` "prompt").
    """

    game: int
    reader: str
    call: str
    encoding: int
    message: str
    recipe: Literal["author", "audience", "baseline", "repaired", "prompt"]
    verdict: Verdict
    secrets: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    hops: int = 0
    anchors: tuple[str, ...] = ()


class Blockage(Frozen):
    """In the prompt of `call`, `missing` precede `message`, but the encoding that was read did not attend to them."""

    game: int
    reader: str
    call: str
    message: str
    missing: tuple[str, ...]


class Release(Frozen):
    """`author` sent `message` to `audience` after reading `sources`, which not all of that audience may read.

    `by` "rules": the playing code sent it (`author` is "scenario", or the agent in whose name), had looked at
    `sources`, and declared that the rules of the game tell it.
    `canonical` False: its token ids are not those of its text, so they can tell more than the text.
    """

    game: int
    message: str
    author: str
    audience: str | list[str]
    sources: tuple[str, ...]
    digest: str
    canonical: bool
    by: Literal["author", "rules"] = "author"


class Call(Frozen):
    """`caller` called a tool by `message`, and `result` is the message with its result (None: it was cancelled). The
    tool told the arguments to `audience` (everyone: the world); with `effect` it changed something outside.

    Verdicts: told: not all of that audience may know `secrets`, from which the arguments were made. untrusted: the call
    had an effect, and the `untrusted` messages may contain words of untrusted results. released: one of these, which
    was allowed. unlabelled: unknown.
    """

    game: int
    message: str
    result: str | None
    caller: str
    tool: str
    audience: str | list[str]
    effect: bool
    verdict: CallVerdict
    secrets: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()


class Unfinished(Frozen):
    """A message of which `tokens` tokens were streamed to the code or a person before its call was cancelled or failed,
    or its process died. Nobody reads it; what its author read for it is judged like any reading. For a model behind an
    API `tokens` counts bytes, because the tokens of a part are unknown."""

    game: int
    message: str
    author: str
    audience: str | list[str]
    ended: Literal["cancelled", "failed", "died"]
    tokens: int
    digest: str
    text: str | None = None


class Place(Frozen):
    """A line of a scenario, agent or policy, or of a trace."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Finding(Frozen):
    """One thing to fix, over all games: a rule, the agents concerned, and the place.

    `secrets` and `path` are those of the worst edge (most direct, then most secrets); `games` counts games and
    `edges` readings that show it. `places` are the lines of code that requested the messages of `path`, in its order;
    None: unknown, as in a trace. `messages` are the messages in the worst game by which the code acted after it had
    looked at secrets. `fingerprint` depends on rule, scenario, reader, author of the secret and carrier, and for acts
    of the code on the file, but not on lines or texts: findings of several lines of a file share it. `status` is
    relative to a baseline report, `suppressed` the reason of a suppression.
    """

    rule: str
    level: Level
    message: str
    reader: str | None = None
    owner: str | None = None
    carrier: str | None = None
    secrets: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    hops: int = 0
    games: int = 0
    edges: int = 0
    place: Place | None = None
    fingerprint: str
    status: Status | None = None
    suppressed: str | None = None
    messages: tuple[str, ...] = ()
    places: tuple[Place | None, ...] = ()

    @property
    def steps(self) -> tuple[tuple[str, Place | None], ...]:
        """The messages of `path`, each with its line. Reports of earlier versions have no lines."""
        return tuple(zip(self.path, chain(self.places, repeat(None)), strict=False))


class ReaderVerdict(Frozen):
    """One agent: the worst verdict of its readings, their number, and the owners of the secrets that they carried."""

    reader: str
    verdict: Verdict
    readings: int
    leaking: int
    secrets_of: tuple[str, ...]


class Cell(Frozen):
    """One reader and one author: the worst verdict of their `readings` over all games; `leaking` are not clean."""

    reader: str
    author: str
    verdict: Verdict
    readings: int
    leaking: int


class Told(Frozen):
    """How much one reader may have learned about the secrets of one owner, over all games: at most `bits` by typed
    releases in game `game`, the worst one (`over`: more than the budget). `typed` counts these releases.

    Not counted in bits: `free` messages with unrestricted words, `passed` messages that the code let pass or released
    itself, and `acts` of the code after it had looked at such secrets.
    """

    owner: str
    reader: str
    bits: float
    game: int
    games: int
    typed: int = 0
    free: int = 0
    passed: int = 0
    acts: int = 0
    over: bool = False

    @property
    def bounded(self) -> bool:
        """Whether the bits bound everything that words of agents can have told."""
        return not (self.free or self.passed)


class WordsLedger(Frozen):
    """The rule of a run for words, its budget in bits, and what was told. `unaccounted` counts messages for which it is
    unknown how much they tell."""

    rule: Literal["track", "refuse"]
    budget: float | None
    rows: tuple[Told, ...]
    unaccounted: int = 0


class Control(Frozen):
    """A check that the audit could have detected an effect. `fired` False makes the audit inconclusive."""

    name: str
    fired: bool
    detail: str


class Subject(Frozen):
    """What was audited, and the command that audits it again.

    `planned`: there were no receipts; the real resolver was run on a symbolic engine. `lost` says what is missing from
    the record. `environment` has versions and keyed digests. `words` and `leak_budget`: see `RunConfig`.
    """

    scenario: str
    source: str
    mode: Literal["baseline", "choreographed"]
    leakage: Literal["audit", "enforce", "deny"]
    deterministic: bool
    planned: bool
    games: int
    lost: tuple[str, ...] = ()
    agents: tuple[str, ...]
    environment: dict[str, str]
    reproduce: str
    words: Literal["track", "refuse"] | None = None
    leak_budget: float | None = None


class AuditReport(Frozen):
    """The report of one audit. `edges` has every reading that is not clean; `clean_edges` counts the others.

    `drawn` has the messages of the game with the worst readings, `drawn_game` is its number. `texts` counts the
    messages generated by models behind APIs, `calls` lists the tool calls. Schema: `agentcho-audit/1`.
    """

    format: Literal["agentcho-audit/1"] = "agentcho-audit/1"
    subject: Subject
    conclusion: Conclusion
    reasons: tuple[str, ...]
    readers: tuple[ReaderVerdict, ...]
    matrix: tuple[Cell, ...]
    findings: tuple[Finding, ...]
    edges: tuple[Edge, ...]
    clean_edges: int
    blockages: tuple[Blockage, ...]
    releases: tuple[Release, ...]
    drawn_game: int | None
    drawn: tuple[Said, ...]
    measurement: Measurement | None = None
    controls: tuple[Control, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    texts: int = 0
    words: WordsLedger | None = None
    calls: tuple[Call, ...] = ()

    def exit_code(self, fail_on: FailOn) -> int:
        """Return 0 if clean, 1 for findings at or above `fail_on` that no suppression covers, 3 if something could not
        be judged. Findings take precedence; an audit with doubts never returns 0, even if findings are ignored."""
        counted = () if fail_on == "never" else LEVELS[: LEVELS.index(fail_on) + 1]
        if any(f.level in counted and not f.suppressed and f.status != "gone" for f in self.findings):
            return 1
        return DOUBT if self._is_doubtful else 0

    @property
    def _is_doubtful(self) -> bool:
        """Whether something could not be judged. Findings take precedence in the conclusion, which then does not tell
        it."""
        if self.conclusion != "findings":
            return self.conclusion == "inconclusive"
        unknown = any(RULES[finding.rule].doubt and finding.status != "gone" for finding in self.findings)
        return unknown or bool(self.subject.lost) or not all(control.fired for control in self.controls)
