"""A message of the scenario whose text comes in pieces, from a person who types or a page that loads.

The text is encoded while the rest is still to come, so that the message is ready when it is complete. Each state of the
text is encoded as the whole message will be, and takes over the keys of the state before. The finished message
therefore has the token ids, positions and place that it would have had at once. Independent of the source of the text.
"""

from __future__ import annotations

import anyio.lowlevel

from agentcho.choreography.requests import Request
from agentcho.engine.call_layout import in_common
from agentcho.errors import ContextOverflow, ScenarioError, StoreFull
from agentcho.games.play.game_models import KnownTextMessage
from agentcho.games.play.messages import Messages
from agentcho.protocol.call import EncodingId, SchedulingPriority
from agentcho.protocol.value_checks import checked_text
from agentcho.provenance.drafts import Draft, PartialEncoding

LEAST = 256
"""Least number of characters to encode at a time."""
SHARE = 16
"""At least one sixteenth of the text so far is encoded at a time. Each time, the keys of the text so far are copied, so
this keeps the work in proportion to the text."""


class Streamed:
    """A message that comes in pieces. `Game.streamed` makes it.

    Attributes:
        id: The id of the message, once the stream is closed. None before.
    """

    def __init__(self, messages: Messages, told: KnownTextMessage, game: int, ahead: bool) -> None:
        self._messages = messages
        self._told = told
        self._game = game
        self._ahead = ahead
        self._pieces: list[str] = []
        self._sources = set[str]()
        self._length = self._encoded = self._fed = 0
        self._begun: EncodingId | None = None
        self._tokens: tuple[int, ...] = ()
        self._closed = False
        self.id: str | None = None

    @property
    def text(self) -> str:
        """The text that was written so far. Whoever reads it knows what the tasks that wrote it had looked at."""
        self._messages.taint.looked(self._sources)
        return "".join(self._pieces)

    async def write(self, piece: str) -> None:
        """Add a piece of text. It may wait for an engine step, but never for a reader.

        Args:
            piece: The text.

        Raises:
            RequestError: `piece` is not text.
            ScenarioError: The stream is closed.
        """
        await anyio.lowlevel.checkpoint()
        if self._closed:
            raise ScenarioError("the stream of a message is closed; write inside its `async with`")
        self._pieces.append(checked_text(piece, "a piece of a stream"))
        self._sources |= self._messages.taint.sources
        self._length += len(piece)
        fresh = self._length - self._encoded
        if self._ahead and fresh >= LEAST and fresh * SHARE >= self._encoded:
            await self._encode()

    async def close(self) -> str:
        """Publish the message for its whole audience, and encode the rest of it. `Game.streamed` calls it.

        Returns:
            The id of the message.

        Raises:
            ContextOverflow: The text does not fit the model's context.
        """
        self._closed = True
        begun = None if self._begun is None else PartialEncoding(self._begun, self._tokens, self._fed)
        self.id = self._messages.taint.give(self._messages.put(self._told._replace(text=self.text, begun=begun)))
        self._begun = None
        await self._messages.encode(self.id, self._told.model)
        return self.id

    def give_up(self) -> None:
        """Drop what was encoded, unless the message is out."""
        self._closed = True
        if self._begun is not None:
            self._told.model.choreographer.release([self._begun])
            self._begun = None

    async def _encode(self) -> None:
        """Encode the text so far. If it does not fit, the error is raised when the stream is closed or when the message
        is read."""
        model, self._encoded = self._told.model, self._length
        call = model.resolver.beginning(self._draft(), self._begun)
        order, turn = (self._game, "", self._fed), SchedulingPriority(str(self._game))
        try:
            result = await model.choreographer.run(Request((call,), order, turn=turn, exact=False))
        except (ContextOverflow, StoreFull):
            self._ahead = False
            return
        [made] = result.made
        before, self._begun = self._begun, made.id
        self._fed += len(made.words.tokens) - in_common(made.words.tokens, self._tokens)
        self._tokens = made.words.tokens
        if before is not None:
            model.choreographer.release([before])

    def _draft(self) -> Draft:
        """Return the message in its current state."""
        told = self._told
        metadata = self._messages.metadata(told.author, "prefill", told.role, told.to, told.reads)
        return told.model.draft(metadata, "".join(self._pieces), None, told.reads)
