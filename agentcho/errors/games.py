"""What ends a game, and what is wrong with a scenario or its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from agentcho.errors.base import AgentchoError

SHOWN = 20
"""So many failed games are told one by one."""


class LimitReached(AgentchoError):
    """A limit ended a game. `Game` records it as an outcome; it is no failure."""

    def __init__(self, limit: str, who: str, value: float) -> None:
        super().__init__(f"{who} reached the limit of {value:g} {limit}; raise it in the limits to go on longer")
        self.limit, self.who, self.value = limit, who, value


class GamesFailed(AgentchoError):
    """Errors ended games of a run; the others are whole. `failed` says of each game what, and where."""

    code = 1

    def __init__(self, failed: Mapping[int, str], of: int, record: Path | None = None) -> None:
        games = [f"game {game}: {' '.join(what.split())}" for game, what in sorted(failed.items())]
        games[SHOWN:] = [f"… and {len(games) - SHOWN} more"] if len(games) > SHOWN else []
        head = [] if of == 1 else [f"{len(failed)} of {of} games ended by an error"]
        where = [] if record is None else [f"tracebacks: {record / 'outcomes.jsonl'}"]
        self.lines = (*head, *(games if head else [each.partition(": ")[2] for each in games]), *where)
        super().__init__("; ".join(self.lines))


class RunStopped(AgentchoError):
    """The code of a game ended more than its own game; `how` says by what."""

    code = 1

    def __init__(self, how: str) -> None:
        super().__init__(
            f"the code of a game stopped the whole run: {how}. Let it raise in `play`, which ends that game alone; "
            "what was over is kept, and --resume goes on"
        )


class ResumeMismatch(AgentchoError):
    """A game that was begun again departs from what is recorded of it. `how` quotes nobody."""

    code = 1

    def __init__(self, game: int, message: str, how: str) -> None:
        super().__init__(
            f"game {game} departs from its record: {message} {how}. Its code, or what it draws on, is not what it was; "
            "undo that, or play the run anew"
        )
        self.game, self.message = game, message


class AnswerInvalid(AgentchoError):
    """A constrained answer parsed, and the pydantic model still refused its values."""

    def __init__(self, model: str, fields: Iterable[str]) -> None:
        super().__init__(
            f"the answer fits the JSON schema of {model} and fails its own validators at: "
            f"{', '.join(fields)}. Put the rule into the schema (enum, ge, le, pattern), or ask again"
        )


class ChoiceLost(AgentchoError):
    """What somebody said who had to choose is none of the choices: it was put into its mouth."""

    def __init__(self, agent: str) -> None:
        super().__init__(
            f"{agent} was made to say what is none of its choices; force words that are one of them, or none"
        )


class ScenarioError(AgentchoError):
    """A scenario cannot be found, read or set up."""


class ScenarioNotFound(ScenarioError):
    """No path and no scenario or agent of that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no {name!r} here; known: {', '.join(sorted(known))}. Give one of these or a .py file")


class ScenarioBroken(ScenarioError):
    """A scenario's file does not parse, does not import, or defines no scenario."""

    def __init__(self, path: Path, line: int | None, what: str) -> None:
        where = f"{path}:{line}" if line else str(path)
        super().__init__(f"{where}: {what}")


class BadOption(ScenarioError):
    """`--set` names an option that the scenario has not, or gives it a value it cannot take."""

    def __init__(self, scenario: str, what: str, options: Iterable[str]) -> None:
        super().__init__(f"{scenario}: {what}. Its options: {', '.join(options)}")


class AlreadyThere(ScenarioError):
    """A copy would overwrite a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} exists already; move it away, or copy to another folder")


class BadOutcome(ScenarioError):
    """`play` of a scenario returned what is no outcome."""

    def __init__(self, scenario: str, returned: object, awaited: bool = True) -> None:
        what = "None" if returned is None else f"a {type(returned).__name__}"
        what = f"returned {what}" if awaited else "is no coroutine; write `async def play(self, game)`"
        super().__init__(
            f"play of {scenario} {what}; let it return its Outcome, as in `return self.Outcome(...)`, with "
            "what came of the game as fields of a nested `class Outcome(agentcho.Scenario.Outcome)`"
        )


class BadTasks(ScenarioError, ValueError):
    """A task set that cannot be read; `line` counts from 1, None: the whole."""

    def __init__(self, source: str, line: int | None, what: str) -> None:
        where = f"{source}:{line}" if line else source
        super().__init__(f"tasks {where}: {what}")


class TasksUnwanted(ScenarioError):
    """A run names tasks, and its scenario takes none."""

    def __init__(self, scenario: str) -> None:
        super().__init__(f"{scenario} takes no tasks; leave --tasks out, or set `tasks` in the scenario")


class TasksTooFew(ScenarioError):
    """A task set is shorter than what the games of a run draw."""

    def __init__(self, tasks: str, size: int, games: int, each: int) -> None:
        super().__init__(
            f"{tasks} has {size} tasks, and {games} games draw {each} each, {games * each} in all; "
            f"play at most {size // max(1, each)} games, or give more tasks"
        )


class TasksSpent(ScenarioError):
    """A game draws more tasks than its scenario's `draws` says."""

    def __init__(self, asked: int, left: int) -> None:
        super().__init__(f"a game draws {asked} tasks and has {left} left; let `draws` of the scenario say how many")
