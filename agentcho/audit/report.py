"""The report of an audit: frozen values and their JSON of a versioned schema. Every output format is made from it.

Does not know: how a verdict is found, how it is drawn. Texts of messages are in it only if they were asked for;
otherwise `Said.digest` stands for them.
"""

from __future__ import annotations

from typing import Literal

from agentcho.audit.measurement import Measurement
from agentcho.records.frozen import Frozen

Verdict = Literal["clean", "direct", "transitive", "positional", "unlabelled"]
CallVerdict = Literal["clean", "told", "untrusted", "released", "unlabelled"]
Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
FailOn = Literal["error", "warning", "note", "never"]
Status = Literal["new", "unchanged", "gone"]
Conclusion = Literal["clean", "texts-clean", "findings", "inconclusive"]
"""texts-clean: no view had what is not for its reader, and of what models behind APIs computed nothing was seen."""


class Said(Frozen):
    """One message of the game that is drawn: what a graph needs, not its words.

    `digest` is an HMAC of its token ids under the run's key; `text` is there with `--reveal` alone. `place` is the
    line of code that asked for it, where that is known.
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
    """One agent's reading of one encoding: `reader`, speaking `call`, attended to `encoding` of `message`.

    `secrets` are the messages in its cone that the reader may not read. `path` leads from `message` to the
    nearest of them, through the messages that were attended to on the way; `hops` is its length in steps, 0 for
    a direct leak. `recipe` tells which kind of encoding it was. positional: `path` leads to the message whose place
    tells something, and on to what it counts from, where that is known. unlabelled: a `message` that is not known
    is "#" and the encoding's id. `anchors` are the messages by whose encodings it was corrected (KVCOMM): they are
    behind it as what it attended to is. `encoding` 0: there is none, for the reading was refused, or was of a text, in
    the prompt of a model behind an API (`recipe` "prompt").
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
    """In the prompt of `call` stand `missing` before `message`; the encoding that was read did not attend to them."""

    game: int
    reader: str
    call: str
    message: str
    missing: tuple[str, ...]


class Release(Frozen):
    """`author` put `message` before `audience` after reading `sources`, which that audience may not read.

    `by` "rules": the playing code said it (`author` is "scenario", or the agent in whose name), had looked at
    `sources`, and says that the rules of the game tell it.
    `canonical` False: its token ids are not those of its text, so they say more than one sees.
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
    """`caller` called a tool by `message`, and `result` came of it (None: it was cancelled). The tool told the
    arguments to `audience` (everyone: the world); with `effect` it changed something outside.

    told: not all of that audience may know `secrets`, of which the arguments were made. untrusted: the call had an
    effect, and in `untrusted` words of results may stand that nobody vouches for. released: that was let pass.
    unlabelled: it cannot be told.
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
    """A message of which `tokens` tokens were streamed to the code or a person, and whose call was then cancelled or
    failed, or whose process died. Nobody reads it; what its author read for it is judged like any reading. Of a model
    behind an API nobody knows the tokens of a part: there they are its bytes."""

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


class Finding(Frozen):
    """One thing to fix, over all games: a rule, who is concerned, and where it comes from.

    `secrets` and `path` are those of the worst edge (most direct, then most secrets); `games` counts games and
    `edges` readings that show it. `messages` are those of the worst game by which the code acted on what it had looked
    at. `fingerprint` depends on rule, scenario, reader, secret's author and carrier, and of acts of the code on the
    file, not on lines or texts: findings of several lines of a file have the same. `status` is against a baseline,
    `suppressed` the reason of a suppression.
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


class ReaderVerdict(Frozen):
    """One agent: the worst verdict of all its readings, how many there were, and whose secrets they carried."""

    reader: str
    verdict: Verdict
    readings: int
    leaking: int
    secrets_of: tuple[str, ...]


class Cell(Frozen):
    """Reader against author: the worst verdict of `readings`, over all games; `leaking` of them leak."""

    reader: str
    author: str
    verdict: Verdict
    readings: int
    leaking: int


class Told(Frozen):
    """What one reader may have been told of the secrets of one owner, over all games: at most `bits` by typed releases
    in game `game`, where it was the most (`over`: more than the budget). `typed` counts these releases.

    Beside them, and in no number of bits: `free` messages whose words could be anything, `passed` ones that the code
    let pass or released itself, and `acts` of the code after it had looked at such secrets.
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
        """Whether the bits are all that its agents' words can have told."""
        return not (self.free or self.passed)


class WordsLedger(Frozen):
    """The rule of a run for words, its budget in bits, and what was told. `unaccounted` counts messages of which it is
    not known how much they tell."""

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

    `planned`: there were no receipts; the real resolver was run on a symbolic engine. `lost` are games whose
    transcript is not whole. `environment` has versions and keyed digests. `words` and `leak_budget`: see `RunConfig`.
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
    """The whole. `edges` holds every reading that is not clean; `clean_edges` counts the others.

    `drawn` is the game with the worst findings, `drawn_game` its number. `texts` counts the messages that were said by
    models behind APIs, `calls` lists the calls of tools. Schema: `agentcho-audit/1`.
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
        """0 clean, 1 findings at or above `fail_on` that no suppression covers, 3 inconclusive. Findings win:
        what was found is found. Never 0 where the audit is inconclusive."""
        counted = () if fail_on == "never" else LEVELS[: LEVELS.index(fail_on) + 1]
        if any(f.level in counted and not f.suppressed and f.status != "gone" for f in self.findings):
            return 1
        return 3 if self.conclusion == "inconclusive" else 0
