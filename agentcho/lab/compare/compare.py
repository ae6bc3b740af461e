"""Runs a comparison from its request to its result: plays every column, pairs the games, compares the words.

`ExtraMissing` if the libraries of `agentcho[lab]` are not installed. Independent of the command line and the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from agentcho.audit.wording import many
from agentcho.errors import RecordBroken, ResumeMismatch, ScenarioError
from agentcho.events import Counting
from agentcho.extras import require
from agentcho.games.play.turn import Forced
from agentcho.games.runs.runtime import teach_recorded_words
from agentcho.lab.collect import Games, Playing, adapted, check_same, completed, over
from agentcho.lab.compare.columns import Column
from agentcho.lab.compare.comparison import ANEW, Comparison, ComparisonRequest, Cost, Fidelity, Preference
from agentcho.lab.compare.costs import costs
from agentcho.lab.compare.fidelity import Arm, fidelity
from agentcho.lab.compare.judge import JudgePort, TextPair, prefer
from agentcho.lab.compare.pairs import metrics, up_to_date
from agentcho.message import told_as
from agentcho.protocol.call import EnginePort
from agentcho.protocol.progress import ProgressCallback, counted
from agentcho.records.environment import machine_info, source_digests, versions
from agentcho.records.files import replace_whole, write_errors
from agentcho.records.trace import Workflow
from agentcho.records.transcript import TranscriptEntry
from agentcho.scenario import Judged, Scenario

require("to compare and to measure", "lab")
FILE = "request.json"
ANOTHER = "the games of another comparison"


class Effort(NamedTuple):
    """The number of games for fidelity and for timing, and the repeats of the timing."""

    fidelity: int = 24
    timed: int = 4
    repeats: int = 3


@dataclass(frozen=True)
class Comparing:
    """One comparison: the games of `playing` in every column. `folder` keeps their records."""

    playing: Playing
    columns: tuple[Column, ...]
    folder: Path
    tell: ProgressCallback
    effort: Effort

    @property
    def request(self) -> ComparisonRequest:
        """The request that determines what the games are."""
        return ComparisonRequest(**self.playing.asked, games=self.playing.config.games, columns=self.columns)

    def claim(self) -> None:
        """Claim the folder for this comparison. `ResumeMismatch`: it has the games of another one.

        The same comparison with more games or more columns is allowed, and reuses existing games.
        """
        request = self.request
        with write_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / FILE
        if file.exists():
            try:
                earlier = ComparisonRequest.model_validate_json(file.read_bytes())
            except ValueError:
                raise RecordBroken(f"{file}:1", "is not a request of a comparison") from None
            more = {"games", "columns"}
            check_same(self.folder, ANOTHER, earlier.model_dump(exclude=more), request.model_dump(exclude=more))
            if earlier.columns[0] != request.columns[0]:
                raise ResumeMismatch.holds(self.folder, ANOTHER, ["the first column"])
        replace_whole(file, request.model_dump_json(indent=1) + "\n")

    def run(self, command: str, judge: JudgePort | None = None) -> Comparison:
        """Play the missing games, and compare. `command`: the command line that repeats this; `judge`: compares texts
        of scenarios that offer some."""
        self.claim()
        config, engine = self.playing.config, self.playing.engine
        for column in self.columns:  # an adapter that does not fit is refused before games are played
            with _own(engine, column):
                pass
        played = self._played()
        scores = {name: self._scores(games) for name, games in played.items()}
        first, measured = self.columns[0].name, any(self.effort[:2])
        words = _spoken(first, [played[first].workflows[n].whole for n in scores[first]]) if measured else []
        if measured and self.playing.here is not None:
            engine = self.playing.here()
        with self._arms(engine, self.columns if measured else ()) as arms:
            divergence = self._fidelity(words[: self.effort.fidelity], arms, engine)
            spent = self._costs(words[: self.effort.timed], arms)
        return Comparison(
            request=self.request,
            machine=machine_info() | versions() | source_digests(),
            command=command,
            without={name: config.games - len(found) for name, found in scores.items()},
            metrics=metrics(scores, config.seed),
            fidelity=divergence,
            costs=spent,
            judge={} if judge is None else judge.fingerprint,
            preferences={} if judge is None else self._preferences(played, judge),
            calls={name: count for name, games in played.items() if (count := _calls(games, config.games))},
        )

    @contextmanager
    def _arms(self, engine: EnginePort, columns: Sequence[Column]) -> Iterator[dict[str, Arm]]:
        """Columns by name, with one engine for all that have the same adapter. Engines with adapters are closed."""
        config, engines = self.playing.config, dict[str | None, EnginePort]()
        with ExitStack() as kept:
            for column in columns:
                if column.adapter not in engines:
                    engines[column.adapter] = kept.enter_context(_own(engine, column))
            yield {column.name: Arm(column.config(config).policy, engines[column.adapter]) for column in columns}

    def _played(self) -> dict[str, Games]:
        """The games of all columns. Columns after the first are forced to the first one's words where the scenario
        pairs them. The engine of a column with an adapter is closed after it: its store fills as games are played."""
        config, engine = self.playing.config, self.playing.engine
        there = sum(len(over(column.folder(self.folder), config.games)) for column in self.columns)
        counting = Counting(self.tell, config.games * len(self.columns), there)
        played, forced = dict[str, Games](), dict[int, Forced]()
        for column in self.columns:
            counting.what = f"games ({column.name})"
            with _own(engine, column) as own:
                playing = self.playing._replace(config=column.config(config), engine=own)
                games = played[column.name] = completed(playing, column.folder(self.folder), forced, counting)
            forced = forced or forced_words(self.playing.scenario, games)
            teach_recorded_words(engine, (entry for said in games.said.values() for entry in said))
        return played

    def _scores(self, games: Games) -> dict[int, Mapping[str, float]]:
        """The scores of the games that have an outcome, by game."""
        finished = {number: games.finished[number] for number in range(self.playing.config.games)}
        return {number: over.score for number, over in finished.items() if over.outcome is not None}

    def _fidelity(self, words: Sequence[Workflow], arms: Mapping[str, Arm], engine: EnginePort) -> dict[str, Fidelity]:
        if not words:
            return {}
        told = counted(self.tell, "games held against the baseline's words", len(words))
        return fidelity(workflows=words, arms=arms, engine=engine, seed=self.playing.config.seed, tell=told)

    def _costs(self, words: Sequence[Workflow], arms: Mapping[str, Arm]) -> dict[str, Cost]:
        if not words:
            return {}
        repeats = self.effort.repeats
        return costs(words, arms, repeats, counted(self.tell, "games timed", repeats * len(words)))

    def _preferences(self, played: Mapping[str, Games], judge: JudgePort) -> dict[str, Preference]:
        """The judge's preferences between each column's texts and the first column's."""
        scenario, count = self.playing.scenario, self.playing.config.games
        texts = {name: judged_texts(scenario, games, count) for name, games in played.items()}
        first, *others = texts
        found: dict[str, Preference] = {}
        for name in others:
            pairs = [
                TextPair(texts[first][n], texts[name][n]) for n in sorted(texts[first].keys() & texts[name].keys())
            ]
            found[name] = prefer(judge, pairs, counted(self.tell, f"pairs judged ({name})", len(pairs)))
        return found


def judged_texts(scenario: Scenario, games: Games, count: int) -> dict[int, Judged]:
    """The texts of the first `count` games that a judge compares, by game."""
    outcomes = {n: games.finished[n].outcome for n in range(count)}
    judged = {n: scenario.judged(scenario.Outcome.model_validate(o)) for n, o in outcomes.items() if o is not None}
    return {n: text for n, text in judged.items() if text is not None}


def _spoken(column: str, games: Sequence[Workflow]) -> list[Workflow]:
    """The games in which an agent says anything: only generated words can be forced in other columns, and timed.
    `ScenarioError`: there are games, and none has any."""
    found = [game for game in games if any(message.kind == "decode" for message in game.messages)]
    if games and not found:
        raise ScenarioError(
            f"nothing to compare: no agent generated a message in the {many(len(games), 'game')} of {column}; let "
            "`play` await verbs of agents, as in `await ann.say()`, or compare the scores alone with --fidelity-games "
            "0 --timed-games 0 (in Python fidelity_games=0, timed_games=0)"
        )
    return found


def _calls(games: Games, count: int) -> int:
    """The number of tool calls in the first `count` games of a column."""
    return sum(entry.act.call is not None for number in range(count) for entry in games.said[number])


@contextmanager
def _own(engine: EnginePort, column: Column) -> Iterator[EnginePort]:
    """The engine of a column: the model's own, or for a while one with the column's adapter on the same weights.
    `AdapterError`: the adapter has changed since the column was made."""
    with adapted(engine, column.adapter) as own:
        column.check_adapter()
        yield own


def forced_words(scenario: Scenario, games: Games) -> dict[int, Forced]:
    """The token ids of the messages that the scenario pairs, by game: what is said after the header."""
    found: dict[int, Forced] = {}
    for number, said in games.said.items():
        whole = [entry for entry in said if entry.ended is None and entry.message.kind == "decode"]
        named = [(entry.message.metadata._replace(id=told_as(entry.message.id)), entry) for entry in whole]
        found[number] = {data.id: _words(entry) for data, entry in named if scenario.paired(data)}
    return found


def _words(entry: TranscriptEntry) -> tuple[int, ...]:
    message = entry.message
    assert message.sampled is not None
    return message.tokens[message.sampled[0] : min(message.sampled[1], message.content[1])]


def read_comparison(file: Path) -> Comparison:
    """Read a result file. `RecordBroken`: it is not a comparison."""
    try:
        return up_to_date(Comparison.model_validate(json.loads(file.read_bytes())))
    except ValueError:
        raise RecordBroken(f"{file}:1", "is not a comparison of this version", ANEW) from None
