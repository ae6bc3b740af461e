"""A comparison from its request to its result: play every column, pair the games, hold the words against each other.

Does not know: the command line, the terminal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from agentcho.calls.call import EnginePort
from agentcho.config import RunConfig
from agentcho.errors import RecordBroken, ResumeMismatch
from agentcho.events import Counting
from agentcho.games.game import Forced
from agentcho.games.runtime import meet, tasks_of
from agentcho.lab.compare.columns import Column
from agentcho.lab.compare.comparison import Comparison, Preference, Request
from agentcho.lab.compare.costs import costs
from agentcho.lab.compare.fidelity import Arm, fidelity
from agentcho.lab.compare.judge import Pair, prefer
from agentcho.lab.compare.pairs import metrics
from agentcho.lab.compare.playing import Games, folder_of, forced_words, over, play_column
from agentcho.progress import Tell, counted
from agentcho.records.environment import machine, versions
from agentcho.records.files import replace_whole, writing
from agentcho.scenario import Judged, Scenario


class Adaptable(Protocol):
    """What a column with an adapter needs of an engine."""

    def adapted(self, adapter: str | None) -> EnginePort: ...


FILE = "request.json"


class Effort(NamedTuple):
    """On how many games words are held against the baseline's, on how many and how often costs are timed."""

    fidelity: int = 24
    timed: int = 4
    repeats: int = 3


def requested(scenario: Scenario, config: RunConfig, columns: tuple[Column, ...], model: dict[str, str]) -> Request:
    """What is asked for, whole. `TaskError` and its kin where the tasks are wrong."""
    tasks = tasks_of(scenario, config)
    return Request(
        scenario=scenario.name, options=scenario.options.model_dump(mode="json"), tasks=config.tasks or scenario.tasks,
        digest=None if tasks is None else tasks.digest, model=model, games=config.games, seed=config.seed,
        temperature=config.temperature, top_p=config.top_p, max_tokens=config.max_tokens, columns=columns,
    )  # fmt: skip


def claim(folder: Path, request: Request) -> None:
    """Make a folder this comparison's own. `ResumeMismatch`: it holds another one's games.

    More games, and more columns, of the same comparison may be asked for: what is there is used.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    if file.exists():
        try:
            earlier = Request.model_validate_json(file.read_bytes())
        except ValueError:
            raise RecordBroken(f"{file}:1", "is no request of a comparison") from None
        changed = [name for name in Request.model_fields if getattr(earlier, name) != getattr(request, name)]
        if other := [name for name in changed if name not in {"games", "columns"}]:
            raise ResumeMismatch.holds(folder, "the games of another comparison", other)
        if "columns" in changed and earlier.columns[0] != request.columns[0]:
            raise ResumeMismatch.holds(folder, "the games of another comparison", ["the first column"])
    replace_whole(file, request.model_dump_json(indent=1) + "\n")


def compare(
    scenario: Scenario, config: RunConfig, columns: tuple[Column, ...], engine: EnginePort, folder: Path,
    effort: Effort, command: str, tell: Tell, at_once: int | None = None, judge: EnginePort | None = None,
) -> Comparison:  # fmt: skip
    """Play what is not played yet, and compare. `folder` keeps all games. `judge` compares texts, where the scenario
    says which."""
    request = requested(scenario, config, columns, engine.fingerprint)
    claim(folder, request)
    played: dict[str, Games] = {}
    forced: dict[int, Forced] = {}
    arms = {column.name: Arm(column.config(config).reuse, _engine(engine, column)) for column in columns}
    there = sum(len(over(folder_of(folder, column), config.games)) for column in columns)
    counting = Counting(tell, config.games * len(columns), there)
    for column in columns:
        name = column.name
        counting.what = f"games ({name})"
        played[name] = play_column(
            scenario, column.config(config), arms[name].engine, folder_of(folder, column), forced, at_once, counting
        )
        forced = forced or forced_words(scenario, played[name])
        meet(engine, (entry for said in played[name].said.values() for entry in said))
    found = _compared(request, played, arms, engine, effort, command, tell)
    return found if judge is None else _judged(found, scenario, played, judge, tell)


def _engine(engine: EnginePort, column: Column) -> EnginePort:
    """The engine of a column: the model's own, or one through the column's adapter on the same weights."""
    if column.adapter is None:
        return engine
    return cast(Adaptable, engine).adapted(column.adapter)


def _judged(
    found: Comparison, scenario: Scenario, played: dict[str, Games], judge: EnginePort, tell: Tell
) -> Comparison:
    """The same with a judge's preferences."""
    texts = {name: _texts(scenario, games, found.request.games) for name, games in played.items()}
    first, *others = texts
    preferences: dict[str, Preference] = {}
    for name in others:
        pairs = [Pair(texts[first][n], texts[name][n]) for n in sorted(texts[first].keys() & texts[name].keys())]
        preferences[name] = prefer(judge, pairs, counted(tell, f"pairs judged ({name})", len(pairs)))
    return found.model_copy(update={"judge": judge.fingerprint, "preferences": preferences})


def _texts(scenario: Scenario, games: Games, count: int) -> dict[int, Judged]:
    """What is judged, by game."""
    outcomes = {n: games.finished[n].outcome for n in range(count)}
    judged = {n: scenario.judged(scenario.Outcome.model_validate(o)) for n, o in outcomes.items() if o is not None}
    return {n: text for n, text in judged.items() if text is not None}


def _compared(
    request: Request, played: dict[str, Games], arms: dict[str, Arm], engine: EnginePort, effort: Effort, command: str,
    tell: Tell,
) -> Comparison:  # fmt: skip
    numbers = range(request.games)
    scores = {
        name: {n: games.finished[n].score for n in numbers if games.finished[n].outcome is not None}
        for name, games in played.items()
    }
    words = [played[request.columns[0].name].workflows[n].whole for n in scores[request.columns[0].name]]
    held, timed = words[: effort.fidelity], words[: effort.timed]
    return Comparison(
        request=request, machine=machine() | versions(), command=command,
        without={name: request.games - len(found) for name, found in scores.items()},
        metrics=metrics(scores, request.seed),
        fidelity=fidelity(
            held, arms, engine, request.seed, counted(tell, "games held against the baseline's words", len(held))
        ) if held else {},
        costs=costs(
            timed, arms, effort.repeats, counted(tell, "games timed", effort.repeats * len(timed))
        ) if timed else {},
    )  # fmt: skip


def read_comparison(file: Path) -> Comparison:
    """A result file. `RecordBroken`: it is none."""
    try:
        return Comparison.model_validate(json.loads(file.read_bytes()))
    except ValueError:
        raise RecordBroken(f"{file}:1", "is no comparison of this version") from None
