"""Passes the output of one decode from the engine to the client.

Independent of prompts, societies and HTTP.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import anyio

from agentcho.choreography.requests import DecodePiece, RequestResult
from agentcho.games.play.decode_turn import TurnHooks
from agentcho.message import Words
from agentcho.protocol.call import FramePort
from agentcho.serve.request import Answer, AnswerDelta, ChatRequest, Hear, TokenLogprob
from agentcho.serve.sharing.request_prompt import calls_in, cut_off

T = TypeVar("T")


def new_id() -> str:
    """An unguessable message id."""
    return f"msg_{secrets.token_hex(12)}"


class AnswerStream:
    """Answer number `choice` of a request while it is generated. `id` is the id by which it can be quoted.
    `begun`: a token was sampled."""

    def __init__(self, choice: int, request: ChatRequest, hear: Hear, frames: FramePort) -> None:
        self._choice = choice
        self._request = request
        self._hear = hear
        self._frames = frames
        self.id = request.ids[choice] if request.ids else new_id()
        self._likely: list[TokenLogprob] = []
        self._unsure: list[DecodePiece] = []
        self._told = 0
        self.begun = False

    def hooks(self, done: Callable[[RequestResult], None], flush: Callable[[], None] | None = None) -> TurnHooks:
        """The callbacks for a decode turn. `done` and `flush`: see `TurnHooks`."""
        return TurnHooks(piece=self.piece, flush=flush, text=self.token, thought=self.thought, done=done)

    def piece(self, piece: DecodePiece) -> None:
        """Take in a sampled token. Tokens of a thought have no log-probabilities."""
        self.begun = True
        self._unsure.append(piece)
        if piece.thought is not None:
            said, self._unsure = self._unsure, []
            self._likely += (self._likelihood(each.likely) for each in said if each.likely and not piece.thought)

    def thought(self, text: str) -> None:
        """Pass on text of the model's thought before its answer."""
        self._hear(AnswerDelta(self._choice, "", thought=text))

    def token(self, text: str) -> None:
        """Pass on visible text, with the log-probabilities of all tokens since the text before."""
        fresh, self._told = tuple(self._likely[self._told :]), len(self._likely)
        self._hear(AnswerDelta(self._choice, text, fresh))

    def end(self, words: Words) -> Answer:
        """The complete answer, which is passed on too if other answers of the request may still be running."""
        answer = self._answer(words)
        if self._request.choices > 1:
            self._hear(AnswerDelta(self._choice, "", ended=answer))
        return answer

    def _answer(self, words: Words) -> Answer:
        """`words` are those of the thought together with those of the answer, if there is one."""
        thought, pondered = "", 0
        if words.said is not None:
            start, stop = words.sampled or (0, 0)
            thought = words.text
            pondered = stop - start
            words = words.said
            pondered -= len(words.tokens[slice(*(words.sampled or (0, 0)))])
        before, calls = calls_in(words.text, self._request, self._frames)
        start, stop = words.sampled or (0, 0)
        tokens, ended = words.tokens[start:stop], words.stopped or "stop"
        text = words.text
        if ended in ("stop_string", "stop_token", "max_tokens") and not calls:
            text = cut_off(text, self._request.tools, self._frames)
        asked = self._request.tools
        if ended == "max_tokens" and not calls and asked is not None and asked.choice in ("required", "named"):
            text = ""  # an incomplete call is neither a call nor text
        return Answer(
            id=self.id,
            text=text,
            ended=ended,
            tokens=tokens,
            calls=calls if self._request.parallel else calls[:1],
            before=before,
            likely=tuple(self._likely),
            reason=words.stop_reason,
            thought=thought,
            pondered=pondered,
        )

    def _likelihood(self, likely: tuple[tuple[int, float], ...]) -> TokenLogprob:
        said, *others = (TokenLogprob(token, self._bytes(token), logprob) for token, logprob in likely)
        return said._replace(others=tuple(others))

    def _bytes(self, token: int) -> bytes:
        return self._frames.framing.content.token_bytes(token, begins=not self._likely)


async def all_said(saying: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently and return their results. If one fails, the others are cancelled and its error is
    raised."""
    moves = list(saying)
    if len(moves) == 1:
        return [await moves[0]]
    found: dict[int, T] = {}

    async def run(place: int, move: Coroutine[Any, Any, T]) -> None:
        found[place] = await move

    try:
        async with anyio.create_task_group() as group:
            for place, move in enumerate(moves):
                group.start_soon(run, place, move)
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    return [found[place] for place in range(len(moves))]


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
