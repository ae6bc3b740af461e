"""The games of a page that is served: numbered for good, and made into JSON once while they do not change.

Independent of HTTP, and of where the games come from.
"""

from __future__ import annotations

import json
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

from agentcho.viewer.compact_lists import Json
from agentcho.viewer.page_content import GameAttempt, PageContent, ShownGame

Key = tuple[int | None, GameAttempt | None]
"""The side of a game on a page of two runs, and its location in a record."""


class JsonPart(NamedTuple):
    """A part of an answer. Its version is a digest of the text, so it reveals nothing that the text does not."""

    version: str
    text: str

    @classmethod
    def of(cls, value: Any) -> JsonPart:
        """A value as JSON."""
        text = json.dumps(value)
        return cls(blake2b(text.encode(), digest_size=8).hexdigest(), text)


class LiveGame:
    """A game of a page. `number` stays the same when games are listed before it."""

    def __init__(self, number: int, shown: ShownGame) -> None:
        self.number = number
        self.shown = shown

    @cached_property
    def data(self) -> JsonPart:
        """What the page shows of the game."""
        return JsonPart.of(self.shown.data())


class LiveContent(NamedTuple):
    """The content of a page: its head, and its games by number, in the order of the head."""

    head: JsonPart
    games: dict[int, LiveGame]


class LiveGames:
    """All games that a page has had."""

    def __init__(self) -> None:
        self._known: dict[Key, LiveGame] = {}

    def content(self, read: PageContent) -> LiveContent:
        """The page's content. A game that is equal to what was read before keeps what was made of it."""
        games = [self._game(shown) for shown in read.talks]
        head: Json = PageContent(read.head, tuple(game.shown for game in games)).heads()
        return LiveContent(JsonPart.of(head), {game.number: game for game in games})

    def _game(self, shown: ShownGame) -> LiveGame:
        key = shown.head.get("side"), shown.of
        known = self._known.get(key)
        number = len(self._known) if known is None else known.number
        shown = shown._replace(head=shown.head | {"number": number})
        if known is not None and known.shown.basis == shown.basis:
            known.shown = known.shown._replace(head=shown.head)
            return known
        self._known[key] = LiveGame(number, shown)
        return self._known[key]
