"""The result of a reproduction of the paper in a versioned format: `agentcho-paper/1`."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import Field

from agentcho.config import Mode
from agentcho.lab.compare.comparison import Difference, Mean, Preference
from agentcho.lab.paper.sets import Data
from agentcho.lab.paper.tables import Adapted, Name
from agentcho.lab.stats import Spread
from agentcho.records.frozen import Frozen


class Score(Frozen):
    """One score of one row: its mean over games, the paper's figure if it prints one, and the paired difference from
    the row's reference; `holm` is over the differences of this score in this table."""

    mean: Mean
    paper: float | None = None
    difference: Difference | None = None


class HeldOut(Frozen):
    """How many tasks a trained row is compared on, how many of these occur verbatim in its traces, and the number of
    traces and epochs of its training. `chosen`: the score that selected its checkpoint, over `dev` games; None: the
    loss, over `dev` traces. `step` is the best one: 0 is an adapter that changes nothing.

    Files older than these fields have `dev` 0: 4 epochs, selected by the loss on a tenth of `traces`."""

    tasks: int
    seen: int
    traces: int
    step: int
    epochs: int = 4
    chosen: str | None = None
    dev: int = 0


class RowFound(Frozen):
    """One row. `games` is the requested number, `without` the number that ended without an outcome and are in no score.
    `digest` is that of its tasks. `left_out`: why it has no scores."""

    label: str
    scenario: str
    options: dict[str, Any]
    mode: Mode
    adapter: Adapted
    against: str | None
    tasks: str | None = None
    digest: str | None = None
    games: int = 0
    without: int = 0
    scores: dict[str, Score] = Field(default_factory=dict)
    held_out: HeldOut | None = None
    preferred: Preference | None = None
    left_out: str | None = None


class TableFound(Frozen):
    """A table of scores; `binary` names the scores that are 0 or 1 in every game."""

    name: Name
    title: str
    scores: tuple[str, ...]
    binary: tuple[str, ...]
    rows: tuple[RowFound, ...]
    notes: tuple[str, ...] = ()


class Timed(Frozen):
    """One reading mode on the same forced texts: seconds to the first token and to the end, and the baseline's ratio to
    them within each run, as medians over `runs`. `waiting` is the share of the time in which some call waits for its
    first token."""

    subject: str
    arm: str
    runs: int
    first: Spread
    seconds: Spread
    waiting: Spread
    first_ratio: Spread
    seconds_ratio: Spread


class TimesFound(Frozen):
    """A table of times. `left_out`: why it has no rows."""

    name: Name
    title: str
    rows: tuple[Timed, ...] = ()
    notes: tuple[str, ...] = ()
    left_out: str | None = None


class LoadedFound(Frozen):
    """The first games of a workflow played again, with their tasks in the form of a published set and through its
    `loader`: the number of games in which everything said is the same, and the means of a `score` without the loader
    and through it (None: no game ended with an outcome). `left_out`: why they were not played."""

    loader: str
    games: int = 0
    same: int = 0
    score: str = ""
    without: float | None = None
    through: float | None = None
    left_out: str | None = None


class SetFound(Frozen):
    """The tasks of one workflow: their source, those compared on and trained on, and how many one game draws. `loaded`:
    the result of the paper's loader, if the published sets themselves are not used."""

    scenario: str
    compared: str
    trained: str
    draws: int
    digest: str
    loaded: LoadedFound | None = None


class Phase(Frozen):
    """The seconds that one part of the work took, over all commands that worked on it."""

    name: str
    seconds: float


class PaperFound(Frozen):
    """The whole result. `top_p` None: the paper's value, which differs by table. `model` is the fingerprint of the
    model, `modules` the digest of the sources that ran. `left` are the phases that did not fit the budget. `digest`
    covers everything else, so that a changed figure is noticed."""

    format: Literal["agentcho-paper/1"] = "agentcho-paper/1"
    command: str
    quick: bool
    games: int
    seed: int
    temperature: float
    top_p: float | None
    max_tokens: int
    data: Data
    model: dict[str, str]
    machine: dict[str, str]
    modules: str
    judge: dict[str, str] = Field(default_factory=dict)
    tables: tuple[TableFound, ...] = ()
    times: tuple[TimesFound, ...] = ()
    sets: tuple[SetFound, ...] = ()
    phases: tuple[Phase, ...] = ()
    left: tuple[str, ...] = ()
    digest: str = ""

    def signed(self) -> PaperFound:
        """The same with its digest."""
        return self.model_copy(update={"digest": digest_of(self.model_dump(mode="json"))})


def digest_of(found: dict[str, Any]) -> str:
    """SHA-256 of a result as JSON without its `digest`; independent of the file's layout."""
    rest = {name: value for name, value in found.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
