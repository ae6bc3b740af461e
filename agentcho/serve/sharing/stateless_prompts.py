"""Requests without a society: exact reuse of equal beginnings of prompts, within one tenant and one cache salt.

Independent of HTTP, keys and agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import NamedTuple

from agentcho.choreography.choreographer import Choreographer
from agentcho.choreography.requests import FinishedCall, RequestResult
from agentcho.games.play.decode_turn import Place, run_decode
from agentcho.message import Words
from agentcho.protocol.call import Call, Decode, Sampling, SchedulingPriority
from agentcho.provenance.resolver import EXACT
from agentcho.serve.request import Answer, Answers, ChatRequest, Hear, TokenUsage
from agentcho.serve.sharing.answer_stream import AnswerStream, all_said
from agentcho.serve.sharing.prefix_tree import Node, PrefixTree
from agentcho.serve.sharing.request_prompt import (
    FramedMessage,
    RenderedChat,
    calls_in,
    chat_of,
    forms_of,
    room_for,
    samplings,
    thinks,
    tokenised,
)
from agentcho.serve.sharing.society import RetentionLimits

Prompt = Sequence[tuple[FramedMessage, Words]]


class AnswerOptions(NamedTuple):
    """How one answer is generated: its options, its stream, its priority, whether in the deterministic profile, and the
    prompt before it."""

    sampling: Sampling
    speech: AnswerStream
    turn: SchedulingPriority
    exact: bool
    chat: RenderedChat


class StatelessPrompts:
    """The prompts of one tenant under one cache salt. `salt` is secret: nothing is shared with holders of another salt.

    A prompt that runs in the deterministic profile attends only to what was encoded in that profile, because the bits
    of everything else depend on what was computed at the same time.
    """

    def __init__(self, choreographer: Choreographer, salt: str, keeping: RetentionLimits) -> None:
        self._choreographer, self._keeping, self._frames = choreographer, keeping, choreographer.frames
        self._trees = {False: PrefixTree(salt), True: PrefixTree(EXACT + salt)}  # least recently used first
        self._asked, self.used = 0, monotonic()

    @property
    def tokens(self) -> int:
        """The number of tokens encoded and held."""
        return sum(tree.tokens for tree in self._trees.values())

    async def answer(self, request: ChatRequest, hear: Hear, turn: SchedulingPriority, exact: bool = False) -> Answers:
        """Answer a request. `exact`: in the deterministic profile. If cancelled, its rows are freed at the next
        step."""
        chat = await tokenised(request, lambda: chat_of(request, self._frames))
        prompt = chat.messages
        lengths = sum(len(words.tokens) for _, words in prompt)
        room = room_for(request, lengths, None, self._frames, self._keeping.capacity, chat)
        options = samplings(request, room.most(request.max_tokens, self._keeping.most, request.least), self._frames)
        speeches = [AnswerStream(n, request, hear, self._frames) for n in range(request.choices)]
        tree = self._trees[exact] = self._trees.pop(exact)
        path = tree.find(prompt)
        tree.hold(path)
        try:
            said = await all_said(
                [
                    self._say(tree, path, prompt, request, AnswerOptions(sampling, speech, turn, exact, chat))
                    for sampling, speech in zip(options, speeches, strict=True)
                ]
            )
        finally:
            tree.let_go(path)
            self.used = monotonic()
            self.forget(self._keeping.tokens)
        answers = tuple(answer for answer, _ in said)
        completion, pondered = (
            sum(counted) for counted in zip(*((a.sampled, a.pondered) for a in answers), strict=True)
        )
        reused = min(reused for _, reused in said)
        return Answers(answers, TokenUsage(room.prompt, completion, reused, 0, pondered=pondered))

    def forget(self, tokens: int) -> None:
        """Drop the least recently used encodings until at most `tokens` tokens are held, or all others are in use."""
        for tree in self._trees.values():
            self._release(tree.forget(max(0, tokens - (self.tokens - tree.tokens))))

    async def _say(
        self, tree: PrefixTree, path: list[Node], prompt: Prompt, request: ChatRequest, how: AnswerOptions
    ) -> tuple[Answer, int]:
        """Generate one answer. Also returns how many tokens of its prompt were already encoded."""
        missing, chat = tree.calls(path, prompt, begins=how.chat.begins), how.chat
        made = dict(missing)
        parents = [made.get(node, node.id) for node in path]
        over = tuple(parent for parent in parents if parent is not None)
        forms = forms_of(request, self._frames)
        decode = Decode(
            "",
            over,
            sampling=how.sampling,
            salt=tree.salt,
            logprobs=request.logprobs,
            forms=forms,
            cut=True,
            opening=chat.opening,
            thinks=thinks(request, self._frames, chat.thinking),
            thinking=chat.thinking,
            begins=chat.begins,
        )
        fresh = set(made)  # less those that another request finishes first

        def done(result: RequestResult) -> None:
            for (node, _), call in zip(missing, result.made, strict=False):
                if (twin := tree.enter(node, call.id)) is not None:
                    fresh.discard(node)
                    self._release([twin])
            self._keep(tree, path, request, result.made[-1])

        self._asked += 1
        calls: tuple[Call, ...] = (*made.values(), decode)
        place = Place((self._asked,), how.turn, how.exact)
        result = await run_decode(self._choreographer, calls, place, how.speech.hooks(done))
        return how.speech.end(result.made[-1].words), sum(node.length for node in path if node not in fresh)

    def _keep(self, tree: PrefixTree, path: list[Node], request: ChatRequest, made: FinishedCall) -> None:
        """Keep the encoding of an answer for the request that quotes it, if it equals the encoding of the quotation. An
        answer after a thought does not, because it is quoted without the thought."""
        words, id = made.words, made.id
        if words.thought is not None:
            self._release([id])
            return
        before, calls = calls_in(words.text, request, self._frames)
        said = FramedMessage("assistant", words.text)
        if calls:
            text, tokens = self._frames.framing.tools.spoken(before, calls)
            said = FramedMessage("assistant", text, tokens=tokens)
        content = words.tokens[slice(*words.content)]
        quotable = words.canonical if said.tokens is None else said.tokens == content
        if quotable and said.words(self._frames).tokens != words.tokens:
            said = said._replace(whole=words.tokens)
        if not quotable or tree.add(path, said, words, id) is not None:
            self._release([id])

    def _release(self, ids: Sequence[int]) -> None:
        if held := self._choreographer.held(ids):
            self._choreographer.release(held)
