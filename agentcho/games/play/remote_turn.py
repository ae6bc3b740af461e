"""One message that a model behind an API generates, from the request to the journal.

Every piece is recorded before any code sees it, however the message ends. Independent of HTTP and of audiences.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from time import perf_counter

import anyio
import anyio.lowlevel
from pydantic import ValidationError

from agentcho.errors import AgentchoError, AnswerInvalid, CallbackFailed
from agentcho.events import Sink
from agentcho.games.play.decode_turn import TextRecorder
from agentcho.games.play.journal import Journal, KnownText
from agentcho.message import Words
from agentcho.protocol.text_calls import TextCall, TextPort, TextReply, TokensSpent
from agentcho.provenance.drafts import Draft
from agentcho.records.line_models import Ending, SpentPart
from agentcho.records.transcript import MessageUsage

LONE = re.compile("[\ud800-\udfff]")
"""Lone surrogates, which JSON can contain and UTF-8 cannot encode."""


class TextTurn:
    """One message of a game on a model behind an API.

    `flush` records what `sink` received, and `listen` gets the visible text after that. `begin_thought` makes the
    message of the thought before it, which exists once this one is complete.
    """

    def __init__(
        self,
        game: int,
        draft: Draft,
        journal: Journal,
        sink: Sink,
        flush: Callable[[], None] | None,
        listen: Callable[[str], None] | None,
        begin_thought: Callable[[Draft], Draft],
    ) -> None:
        self._draft = draft
        self._journal = journal
        self._flush = flush
        self._listen = listen
        self._begin_thought = begin_thought
        self.thought: Draft | None = None
        self._asked, self._first = perf_counter(), 0.0
        self._record = TextRecorder(game, draft, journal, sink)
        self._error: BaseException | None = None
        self._lost: TokensSpent | None = None
        self._over = False
        self._scope = anyio.CancelScope()

    async def ask(self, port: TextPort, call: TextCall) -> None:
        """Ask for the message, and enter it in the journal once it is complete.

        If the message is given up, the journal has the part that was shown, even if that is empty: its prompt was sent,
        so its author has read it.

        Raises:
            AgentchoError: The endpoint raises it.
            AnswerInvalid: The answer is none of the choices, or differs from the part that was shown.
            CallbackFailed: `listen` raises.
        """
        self._begin()
        try:
            reply = await self._answer(port, call)
        except BaseException as error:
            self._give_up("cancelled" if isinstance(error, anyio.get_cancelled_exc_class()) else "failed")
            raise
        usage = MessageUsage(encoded=0, reused=0, ttft=reply.first, seconds=reply.seconds, spent=_reported(reply.spent))
        self._over = True
        self._enter_thought(reply.thought)
        self._journal.enter_text(self._draft, self._record.words(reply.stopped), usage)

    async def say(self, known: KnownText, thought: KnownText | None = None) -> None:
        """Say known words, after a `thought` if there was one, without asking the model."""
        await anyio.lowlevel.checkpoint()
        self._begin()
        self.hear(known.text)
        if self._error is not None:
            if self._record.text:
                self._give_up("failed")
            raise self._error
        self._enter_thought("" if thought is None else thought.text)
        self._journal.enter_text(self._draft, self._record.words(known.stopped), known.usage)

    def _enter_thought(self, text: str) -> None:
        """Enter the thought before the message, if there was one."""
        if text:
            self.thought = self._begin_thought(self._draft)
            words = Words(
                header="", text=LONE.sub("\ufffd", text), tokens=(), content=(0, 0), sampled=(0, 0), thought=(0, 0)
            )
            self._journal.enter_text(self.thought, words, MessageUsage(0, 0, 0.0, 0.0))

    async def _answer(self, port: TextPort, call: TextCall) -> TextReply:
        reply: TextReply | None = None
        try:
            with self._scope:
                reply = await port.ask(replace(call, on_text=self.hear, on_spent=self._lose))
                self._lose(reply.spent)  # unless it is entered
                self._check(reply, port, call)
        except Exception:
            if self._error is None:
                raise
        if self._error is not None:
            raise self._error
        assert reply is not None
        return reply

    def _check(self, reply: TextReply, port: TextPort, call: TextCall) -> None:
        """Check that the answer is one of the choices, and agrees with the part that was shown."""
        text, choices = LONE.sub("\ufffd", reply.text), call.sampling.choices
        if choices is not None and text not in choices:
            raise AnswerInvalid(f"the answer of {port.name} is not one of the choices; rephrase the prompt")
        if not self._record.text:
            self.hear(text)
        elif self._record.text != text:
            raise AnswerInvalid(
                f"the final text of {port.name} differs from the text that it streamed; report this error"
            )

    def hear(self, text: str) -> None:
        """Record a piece of the text, then pass it to the listener.

        If the listener raises, the message is given up. Pieces after the end are dropped.
        """
        if self._over or self._error is not None or not text:
            return
        try:
            self._hear(LONE.sub("\ufffd", text))
            if self._listen is not None:
                self._listen(LONE.sub("\ufffd", text))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._error = error if isinstance(error, AgentchoError) else CallbackFailed("on_token", error)
            self._scope.cancel()

    def _lose(self, spent: TokensSpent) -> None:
        """Note what an answer cost that does not come."""
        self._lost = _reported(spent)

    def _begin(self) -> None:
        """Record what the message reads, before any of it is sent."""
        self._record.begin(self._usage())
        self._write()

    def _hear(self, text: str) -> None:
        self._first = self._first or perf_counter()
        self._record.add(text)
        self._write()

    def _write(self) -> None:
        if self._flush is not None:
            self._flush()

    def _give_up(self, ended: Ending) -> None:
        self._over = True
        with suppress(Exception):  # the error that ended the message matters more
            self._record.drop(self._usage(), ended)

    def _usage(self) -> MessageUsage:
        now = perf_counter()
        return MessageUsage(0, 0, (self._first or now) - self._asked, now - self._asked, spent=self._lost)


def _reported(spent: TokensSpent) -> TokensSpent:
    """Return the usage that a server reports, or none if it is not valid for a record."""
    try:
        SpentPart(**spent._asdict())
    except ValidationError:
        return TokensSpent()
    return spent
