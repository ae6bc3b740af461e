"""The tables of a run: one row per game, or one row per message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentcho.games.results.arrow import Column
from agentcho.games.results.table import Table, column, number, spread
from agentcho.games.results.usage import GameUsage, sampled
from agentcho.records.transcript import TranscriptEntry


class Row(Protocol):
    """The properties of a finished game that its row needs; see `PlayedGame`."""

    @property
    def number(self) -> int: ...
    @property
    def scores(self) -> Mapping[str, float]: ...
    @property
    def outcome(self) -> Mapping[str, Any] | None: ...
    @property
    def ended(self) -> str | None: ...
    @property
    def seconds(self) -> float: ...
    @property
    def error(self) -> str | None: ...
    @property
    def raced(self) -> bool: ...


COSTS = "sampled", "encoded", "reused", "first_token", "seconds"
"""The columns of a message that reveal something about what its author read or thought."""


def games_table(games: Sequence[Row], usage: Mapping[int, GameUsage] | None = None) -> Table:
    """Return one row per game, with scores as `score.NAME` and fields of outcomes as `outcome.NAME`.

    Costs are included if `usage` has them.
    """
    names = dict.fromkeys(name for game in games for name in game.scores)
    scores = [column(f"score.{name}", [number(game.scores.get(name)) for game in games], "number") for name in names]
    return Table(
        [
            column("game", [game.number for game in games], "whole"),
            *scores,
            *spread("outcome", [game.outcome for game in games]),
            column("ended", [game.ended for game in games], "text"),
            column("error", [game.error for game in games], "text"),
            column("raced", [game.raced for game in games], "flag"),
            column("seconds", [game.seconds for game in games], "number"),
            *([] if usage is None else _usage([usage[game.number] for game in games])),
        ]
    )


def _usage(found: Sequence[GameUsage]) -> list[Column]:
    return [
        column(name, [getattr(each, name) for each in found], "number" if name == "price" else "whole")
        for name in GameUsage._fields
    ]


def messages_table(
    said: Sequence[TranscriptEntry], only: Sequence[str] | None = None, leave_out: Sequence[str] = ()
) -> Table:
    """Return one row per message, with all columns, `only` some of them, or without those in `leave_out`.

    The column `audience` has the names of the readers, or just "everyone".
    """
    found = [each for each in _message_columns(said) if only is None or each.name in only]
    return Table([each for each in found if each.name not in leave_out])


def _message_columns(said: Sequence[TranscriptEntry]) -> list[Column]:
    messages, usages = [entry.message for entry in said], [entry.usage for entry in said]
    audiences: list[Any] = [message.audience.to_json() for message in messages]
    return [
        column("game", [message.game for message in messages], "whole"),
        column("id", [message.id for message in messages], "text"),
        column("kind", [message.kind for message in messages], "text"),
        column("role", [message.role for message in messages], "text"),
        column("author", [message.author for message in messages], "text"),
        column("audience", [[each] if isinstance(each, str) else each for each in audiences], "texts"),
        column("parents", [list(message.parents) for message in messages], "texts"),
        column("header", [message.header for message in messages], "text"),
        column("text", [message.text for message in messages], "text"),
        column("stopped", [message.stopped for message in messages], "text"),
        column("ended", [entry.ended for entry in said], "text"),
        column("origin", [entry.origin for entry in said], "text"),
        column("model", [entry.engine for entry in said], "text"),
        column("tokens", [len(message.tokens) for message in messages], "whole"),
        column("sampled", [sampled(entry) for entry in said], "whole"),
        column("encoded", [usage.encoded for usage in usages], "whole"),
        column("reused", [usage.reused for usage in usages], "whole"),
        column("first_token", [usage.ttft for usage in usages], "number"),
        column("seconds", [usage.seconds for usage in usages], "number"),
    ]
