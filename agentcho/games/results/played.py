"""The results of a run: its games and their messages, in memory or read from a record.

Programs and notebooks read results here in one form, however the run was played. Independent of how games are played
and of the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agentcho.config import RunConfig, served
from agentcho.errors import AudienceError, ConfigError, GamesFailed
from agentcho.games.results.messages import MessageSource, RecordedMessages
from agentcho.games.results.rendering import html_facts, text_facts
from agentcho.games.results.table import Table
from agentcho.games.results.tables import COSTS, games_table, messages_table
from agentcho.games.results.usage import GameUsage, usage_of
from agentcho.message import Message, unassignable
from agentcho.records.readable_record import readable_by
from agentcho.records.record import GameOver, SavedRun
from agentcho.records.transcript import TranscriptEntry

TALK = "author", "audience", "header", "text"
Status = Literal["running", "done", "interrupted", "failed", "died"]


class Selected(NamedTuple):
    """A selection of messages: those of one author, those that one agent may read, or unfinished ones too."""

    agent: str | None = None
    readable_by: str | None = None
    unfinished: bool = False

    def of(self, said: MessageSource, number: int | None = None) -> list[TranscriptEntry]:
        """Return the selected messages of all games, or of one. Raises `AudienceError` if no agent has that name."""
        games = said.games
        for name in filter(None, (self.agent, self.readable_by)):
            if name not in (cast := said.cast):
                raise AudienceError(f"no agent named {name!r}", cast)
        found: Iterable[TranscriptEntry] = games.get(number, []) if number is not None else _all(games)
        if self.readable_by is not None:
            found = readable_by(found, self.readable_by)
        return [each for each in _with_thoughts([*found]) if self._chosen(each)]

    def _chosen(self, entry: TranscriptEntry) -> bool:
        whole = entry.ended is None or self.unfinished
        return whole and self.agent in (None, entry.message.author)


def _with_thoughts(entries: list[TranscriptEntry]) -> Iterator[TranscriptEntry]:
    """Yield messages with the thoughts of their authors, as far as these are among the entries."""
    known = {(each.message.game, each.message.id): each.message for each in entries}
    for entry in entries:
        thought = known.get((entry.message.game, entry.act.thought or ""))
        yield entry if thought is None else entry._replace(message=replace(entry.message, thoughts=thought))


def _all(games: Mapping[int, list[TranscriptEntry]]) -> Iterator[TranscriptEntry]:
    return (entry for number in sorted(games) for entry in games[number])


@unassignable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PlayedGame:
    """One game that is over.

    Attributes:
        number: Number of the game in its run, from 0.
        scores: Numbers that the scenario's `score` and `provenance` returned, by name.
        outcome: The scenario's outcome as JSON values. None if the game ended early.
        ended: The limit or the error that ended the game early. None if it did not.
        seconds: How long the game took, in seconds.
        error: Class and message of the error that ended the game. None if there was none.
        traceback: Traceback of that error. None if there was none.
        where: The line of your code that the error came through. None if it came through none.
        raced: Whether the order of the messages depended on which of several decodes ended first.
    """

    number: int
    scores: Mapping[str, float]
    outcome: Mapping[str, Any] | None
    ended: str | None
    seconds: float
    error: str | None
    traceback: str | None
    where: str | None
    raced: bool
    _said: MessageSource

    @property
    def usage(self) -> GameUsage:
        """Token counts of all messages of the game, unfinished ones included.

        It has `messages`, `encoded`, `reused` and `sampled`, and for models behind APIs `sent`, `cached`, `requests`
        and `price`.
        """
        return usage_of(self._said.games.get(self.number, []))

    def messages(
        self, agent: str | None = None, readable_by: str | None = None, unfinished: bool = False
    ) -> tuple[Message, ...]:
        """Return messages of the game, in the order in which they ended.

        They are read from the record when they are first asked for.

        Args:
            agent: Only messages of this author. None for all authors.
            readable_by: Only messages whose audience has this agent, each with those of its `parents` that the agent
                may know of. None for all.
            unfinished: Whether to include messages that were cancelled or failed, which no call read.

        Returns:
            The messages.

        Raises:
            AudienceError: No agent has that name.
            RecordBroken: The record is damaged.
        """
        return tuple(each.message for each in Selected(agent, readable_by, unfinished).of(self._said, self.number))

    def __repr__(self) -> str:
        return text_facts(f"game {self.number}", self._facts())

    def _repr_html_(self) -> str:
        said = messages_table(Selected().of(self._said, self.number), only=TALK)
        return html_facts(f"game {self.number}", self._facts()) + said._repr_html_()

    def _facts(self) -> dict[str, str]:
        told = {} if self.ended is None else {"ended early": self.error or self.ended}
        told |= {f"outcome {name}": str(value) for name, value in (self.outcome or {}).items() if value is not None}
        told |= {f"score {name}": f"{value:g}" for name, value in self.scores.items()}
        return told | {"took": f"{self.seconds:.1f} s"}


@unassignable
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Played:
    """A run that was played just now, or read from its record.

    Attributes:
        scenario: Name of the scenario.
        options: Options of the scenario.
        config: Configuration of the run.
        status: "done", "failed" or "interrupted"; "running" while a process plays the run; "died" if no process does
            and none said how it ended.
        games: The games that are over, by number.
        record: Folder of the record. None if there is none.
        steps: Forward passes of the engines while the run was played, other runs on the same engine included. None if
            it was read from a record.
        exceptions: The exceptions that ended games of a run played just now, by game. A record keeps only their text.
        model: The model of the engine that the run was played on. None if it is not known.
    """

    scenario: str
    options: Mapping[str, Any]
    config: RunConfig
    status: Status
    games: tuple[PlayedGame, ...]
    record: Path | None
    steps: int | None
    _said: MessageSource
    exceptions: Mapping[int, BaseException] = field(default_factory=dict)
    model: str | None = None

    @property
    def id(self) -> str | None:
        """The id of the run, which is the name of its folder. None if it has no record."""
        return None if self.record is None else self.record.name

    @property
    def interrupted(self) -> bool:
        """Whether the run was stopped before all games were over."""
        return self.status == "interrupted"

    @property
    def errors(self) -> dict[int, str]:
        """The errors that ended games, by number. Each has the line of your code if there is one, class and message."""
        return {game.number: _lined(game) for game in self.games if game.error is not None}

    def check(self) -> None:
        """Raise an error if errors ended games.

        Raises:
            GamesFailed: Errors ended games. It lists them.

        Example::

            agentcho.run("debate", games=100).check()
        """
        if self.errors:
            raise GamesFailed(self.errors, len(self.config.numbers), self.record)

    def game(self, number: int) -> PlayedGame:
        """Return one game.

        Args:
            number: Number of the game in the run, from 0.

        Returns:
            The game.

        Raises:
            ConfigError: There is no such game, or it is not over.
        """
        found = next((game for game in self.games if game.number == number), None)
        if found is None:
            raise ConfigError(
                f"game {number} is not over or not part of this run, which has {len(self.games)} finished games"
            )
        return found

    def messages(
        self, agent: str | None = None, readable_by: str | None = None, unfinished: bool = False
    ) -> tuple[Message, ...]:
        """Return messages of all games, those that are not over included.

        Args:
            agent: Only messages of this author. None for all authors.
            readable_by: Only messages whose audience has this agent, each with those of its `parents` that the agent
                may know of. None for all.
            unfinished: Whether to include messages that were cancelled or failed, which no call read.

        Returns:
            The messages.

        Raises:
            AudienceError: No agent has that name.
            RecordBroken: The record is damaged.
        """
        return tuple(each.message for each in Selected(agent, readable_by, unfinished).of(self._said))

    def table(
        self,
        what: Literal["games", "messages"] = "games",
        *,
        agent: str | None = None,
        readable_by: str | None = None,
        unfinished: bool = False,
    ) -> Table:
        """Return a table of games or of messages, which polars, pyarrow and pandas read as it is.

        Args:
            what: "games" for one row per game with its scores, outcome and costs; "messages" for one row per message.
            agent: For messages: as in `messages`.
            readable_by: For messages: as in `messages`. The table then has no costs, because they tell what the author
                read or thought.
            unfinished: For messages: as in `messages`.

        Returns:
            The table.

        Raises:
            ConfigError: There is no such table, or messages are selected in the table of games.
            AudienceError: No agent has that name.

        Example::

            frame = polars.DataFrame(played.table("messages", agent="ann"))
        """
        chosen = Selected(agent, readable_by, unfinished)
        if what == "messages":
            return messages_table(chosen.of(self._said), leave_out=() if readable_by is None else COSTS)
        if what != "games":
            raise ConfigError(f"there is no table {what!r}; give 'games' or 'messages'")
        if chosen != Selected():
            raise ConfigError(
                "agent, readable_by and unfinished apply to the table 'messages' only; give that table, or "
                "leave them out"
            )
        said = self._said.games
        return games_table(self.games, {game.number: usage_of(said.get(game.number, [])) for game in self.games})

    def __repr__(self) -> str:
        return text_facts(self._title(), self._facts())

    def _repr_html_(self) -> str:
        return html_facts(self._title(), self._facts()) + games_table(self.games)._repr_html_()

    def _title(self) -> str:
        config, model = self.config, self.model or self.config.model
        how = "texts" if served(config.model) else config.mode
        leakage = [] if config.mode == "baseline" else [config.leakage]
        return f"{self.scenario}: {self._count()} on {', '.join((model, how, *leakage))}, seed {config.seed}"

    def _count(self) -> str:
        over, of = len(self.games), len(self.config.numbers)
        games = f"{of} game{'' if of == 1 else 's'}"
        return games if over == of else f"{over} of {games}"

    def _facts(self) -> dict[str, str]:
        told: dict[str, str] = {"status": self.status}
        names = dict.fromkeys(name for game in self.games for name in game.scores)
        told |= {name: _summary([g.scores[name] for g in self.games if name in g.scores]) for name in names}
        early = [game for game in self.games if game.ended is not None]
        if early:
            told["ended early"] = "; ".join(f"game {game.number}: {game.error or game.ended}" for game in early[:3])
            told["ended early"] += f"; and {len(early) - 3} more" if len(early) > 3 else ""
        return told if self.record is None else told | {"record": str(self.record)}


def _lined(game: PlayedGame) -> str:
    """Return the error that ended a game, after its line of code."""
    return ": ".join(filter(None, (game.where, game.error)))


def _summary(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:g}"
    return f"mean {sum(values) / len(values):.4g}, {min(values):g} to {max(values):g}, {len(values)} games"


def played_games(games: Iterable[GameOver], said: MessageSource) -> tuple[PlayedGame, ...]:
    """Return finished games, by number."""
    ordered = sorted(games, key=lambda over: over.game)
    return tuple(
        PlayedGame(
            number=o.game,
            scores=o.score,
            outcome=o.outcome,
            ended=o.ended,
            seconds=o.seconds,
            error=o.error,
            traceback=o.traceback,
            where=o.where,
            raced=o.raced,
            _said=said,
        )
        for o in ordered
    )


def from_record(
    run: SavedRun, steps: int | None = None, exceptions: Mapping[int, BaseException] | None = None
) -> Played:
    """Return the results in a record. Raises `RecordBroken` for a damaged outcome; messages are not read yet."""
    info, said = run.info, RecordedMessages(run)
    games = played_games(run.finished().values(), said)
    status: Any = run.status
    told = info.scenario, info.options, info.config, status, games, run.path, steps, said, exceptions or {}
    return Played(*told, info.engine.get("model"))


def in_memory(
    scenario: str,
    options: Mapping[str, Any],
    config: RunConfig,
    games: Iterable[GameOver],
    said: MessageSource,
    steps: int | None = None,
    exceptions: Mapping[int, BaseException] | None = None,
    model: str | None = None,
) -> Played:
    """Return the results of a run without a record."""
    found, raised = played_games(games, said), exceptions or {}
    return Played(
        scenario=scenario,
        options=options,
        config=config,
        status="failed" if raised else "done",
        games=found,
        record=None,
        steps=steps,
        _said=said,
        exceptions=raised,
        model=model,
    )
