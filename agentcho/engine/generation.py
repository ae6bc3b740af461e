"""The text generation of one decode: the tokens that it feeds next, the draft tokens verified with them, and how it
continues and ends.

Independent of contexts, scheduling and forwards.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Listed
from itertools import zip_longest
from typing import Any, NamedTuple

from agentcho.engine.call_layout import FramedTokens, Layout, decoded, frame, thinking_of
from agentcho.engine.protocols import Row, Template, TokenConstraint
from agentcho.engine.speculation import MOST, NONE, CorpusIndexes, DraftTokens, Speculator
from agentcho.engine.thinking import ThoughtTracker
from agentcho.engine.token_rules import TokenRules
from agentcho.errors import CallFailed
from agentcho.message import Words
from agentcho.protocol.call import Decode, DecodeStarted, EncodingId, SampledToken, Sampling, Stopped


class TokenLimits(NamedTuple):
    """The tokens that unconstrained text may continue with: the ids in `among` (None: all except control tokens) and
    the `freed` control tokens, without those that are `barred`."""

    among: array[int] | None
    freed: tuple[int, ...]
    barred: tuple[int, ...]


class SamplingDraw(NamedTuple):
    """How a token is drawn: the sampling options, the index of the token in its message (from 0), and the allowed ids
    (None: any, within `limits` if given). `bent`: the options change logits, depending on the ids of the `prompt` and
    those generated so far (`said`)."""

    sampling: Sampling
    nth: int
    allowed: Any = None
    bent: bool = False
    prompt: frozenset[int] = frozenset()
    said: tuple[int, ...] = ()
    limits: TokenLimits | None = None


class Generation:
    """Generates one message, from its framing to its closing. It feeds the opening and the header, then each token that
    it is given, then the closing. `feed`: the ids that the next forward takes, followed by the draft tokens in
    `guessed`, which are not part of the message until they are accepted. With `indexes` it drafts tokens. `prompt`: the
    ids of all that the call reads, if its sampling depends on them.

    A decode that thinks feeds the opening, its thought, the ids that the template writes after it, and then the header.
    Constraints do not apply to thoughts, unless a script determines everything that the decode generates."""

    def __init__(
        self,
        id: EncodingId,
        call: Decode,
        placed: Layout,
        template: Template,
        constraint: TokenConstraint | None,
        indexes: CorpusIndexes | None = None,
        prompt: frozenset[int] = frozenset(),
    ) -> None:
        self._prompt, self._bent = prompt, call.sampling.bends
        self.id, self.call, self.receipt = id, call, placed.context.receipt
        self._framed, self._closing = placed.framed, placed.framed.closing
        self._stops, self._content = template.stops, template.content
        restricts = call.sampling.restricts and not call.is_whole
        self._allowance = TokenRules(call, template) if restricts else None
        self._ends = template.stops if self._allowance is None else self._allowance.ends
        self._thinker: ThoughtTracker | None = None
        self._header, self._ordinary = placed.framed.header, placed.framed
        self._thinking = thinking_of(call, template)
        if self._thinking is not None:
            opening = self._content.decode(placed.framed.opening)
            self._before_stream = self._content.stream()
            self._thinker = ThoughtTracker(self._thinking, opening, self._before_stream)
            self._header = tuple(self._content.encode(call.header))
            self._ordinary = frame(template, "assistant", call.name, self._header)
        self._behind = 0
        """Where in what was sampled the words after a thought begin, the header left out."""
        self._uncounted = 0
        """How many of the tokens sampled are none of those that the call may sample."""
        self._given: list[SampledToken] = []
        self._stream = template.content.stream(begun=bool(self._header))
        self._constraint, self._until, self._last = constraint, call.stop, call.last
        self.feed: tuple[int, ...] = placed.framed.begun
        self.sampled: list[int] = []
        self.logits: list[Row] = []
        self.stopped: Stopped | None = None
        self._text, self._shown = "", 0
        self._early = 0
        self._cut_at: int | None = None
        self._reason: int | str | None = None
        self.guessed: tuple[int, ...] = ()
        self._allowed: list[Any] = []
        self._guesser: Speculator | None = None
        plain = call.stride == 1 and not call.logits and call.logprobs is None and self._thinker is None
        if indexes is not None and call.corpora is not None and plain:
            self._guesser = Speculator(indexes, call.corpora, placed.framed.header)

    @property
    def wanted(self) -> Listed[int]:
        """The indices in the next feed of the tokens whose next-token logits are requested: the last one, while the
        decode waits for a token, and all draft tokens. If logits are kept: every token of its text, the last of these
        for the first closing token."""
        asks = self.stopped is None
        said = len(self.feed) - (0 if asks else len(self._closing))
        if self.call.logits and self.sampled:
            return range(said)
        return range(said - 1, said + len(self.guessed)) if asks else ()

    @property
    def script(self) -> tuple[int, ...]:
        """All ids that are certain to be in the message: framing, header, accepted tokens, and the closing once it has
        ended."""
        closing = () if self.stopped is None else self._closing
        return (*self._framed.begun, *self.sampled, *closing)

    @property
    def tokens(self) -> tuple[int, ...]:
        """All ids of the message if it ended now."""
        return (*self._framed.begun, *self.sampled, *self._closing)

    def guess(self) -> DraftTokens:
        """Draft the next tokens. NONE if there are none. Tokens that the constraint forces are certain."""
        self.guessed, self._allowed = (), []
        room = (self.call.last if self.call.forced is None else len(self.call.forced)) - len(self.sampled) - 1
        if self._guesser is None or self.stopped is not None or not self.sampled or room < 1:
            return NONE
        guess = self._guesser.guess(room)
        if self._constraint is None:
            return guess
        try:
            return self._constrained(self._constraint.ahead(), guess, room)
        except CallFailed:  # raised again when the token is drawn
            self._allowed.clear()
            return NONE

    def _constrained(self, ahead: TokenConstraint, guess: DraftTokens, room: int) -> DraftTokens:
        """The ids that a constraint forces next, if any, else the part of a draft that it admits."""
        certain = list[int]()
        while len(certain) < min(room, MOST) and not ahead.done and (only := ahead.only) is not None:
            if only in self._stops:
                break
            self._allowed.append(ahead.allowed)
            ahead.follow(only)
            certain.append(only)
        if certain:
            self._allowed.append(None if ahead.done else ahead.allowed)
            return DraftTokens(tuple(certain), 1.0)
        admitted = list[int]()
        for token in guess.tokens:
            allowed = ahead.allowed
            if ahead.done or token in self._stops or not self._admits(allowed, token):
                break
            self._allowed.append(allowed)
            ahead.follow(token)
            admitted.append(token)
        self._allowed.append(None if ahead.done else ahead.allowed)
        return guess._replace(tokens=tuple(admitted))

    def _admits(self, allowed: Any, token: int) -> bool:
        """Whether `allowed` admits a token. A script admits any token, because a model could generate it."""
        return isinstance(allowed, int) or token in allowed

    def draws(self) -> list[SamplingDraw]:
        """How to draw the next token, and the one after each draft token."""
        allowed: Listed[Any] = [None] * (len(self.guessed) + 1)
        if self._thinker is not None and not self._thinker.answers:
            allowed = [self._allowed_before(self._thinker)]
        elif self._constraint is not None:
            allowed = self._allowed if self.guessed else [self._constraint.allowed]
        if self._thinker is not None and self._thinker.now is None and self._header and not self.sampled:
            return [self._draw(-1, allowed[0])]  # decides on a thought, with other randomness than the first token
        return [self._draw(nth, allowed[nth]) for nth in range(len(self.guessed) + 1)]

    def _allowed_before(self, thinker: ThoughtTracker) -> Any:
        """The ids that may come next before the answer. In a thought, any. Before a thought, the mark that opens one or
        the beginning of the answer: its header, or what its constraint allows."""
        scripted = None if self._constraint is None or self.call.is_whole else self._constraint.allowed
        if thinker.now or not (self._header or self.call.is_whole):
            return scripted
        mark = thinker.next_of_mark(self.sampled)
        if self.sampled:
            return scripted if mark is None else mark if scripted is not None else [mark]
        if scripted is not None:
            return mark if scripted == mark else self._header[0]
        if self._header:
            return [self._header[0]] if mark is None else sorted({mark, self._header[0]})
        assert self._constraint is not None
        allowed = self._constraint.allowed
        return allowed if mark is None or isinstance(allowed, int) else allowed.also(mark)

    def _draw(self, nth: int, allowed: Any) -> SamplingDraw:
        """How to draw the token after `nth` draft tokens."""
        draw = SamplingDraw(self.call.sampling, len(self.sampled) + nth, allowed)
        if not self._bent and self._allowance is None:
            return draw
        said = (*self.sampled, *self.guessed[:nth])
        if self._bent:
            draw = draw._replace(bent=True, prompt=self._prompt, said=said)
        if (rules := self._allowance) is not None:
            thinks = self._thinking is not None and self._thinker is not None and self._thinker.now
            kept = (
                self._thinking.ends if thinks and self._thinking is not None else ()
            )  # ends the thought, not the message
            barred = tuple(id for id in rules.barred(said, len(said) - self._uncounted) if id not in kept)
            draw = draw._replace(limits=TokenLimits(rules.among, rules.freed, barred))
        return draw

    def forced(self) -> list[int] | None:
        """The next forced token, and one after each draft token: those of the text, then the first of the closing. None
        if tokens are sampled."""
        if self.call.forced is None:
            return None
        whole, done = (*self.call.forced, self._closing[0]), len(self.sampled)
        return [whole[min(done + nth, len(whole) - 1)] for nth in range(len(self.guessed) + 1)]

    def say(self, tokens: Listed[int | None], spoken: list[SampledToken]) -> int:
        """Accept the next token and each one after a draft token that equals the drawn one, and add them to `spoken`.
        Returns the number of fed draft tokens that are not part of the message. Raises `CallFailed` if no token can be
        drawn."""
        before, guessed, self.guessed = len(self.sampled), self.guessed, ()
        fed_again = False
        for token, next in zip_longest(tokens, guessed):
            if token is None and len(self.sampled) > before:
                fed_again = True  # the next forward draws it again, after the last accepted token
                break
            if token is None:
                raise CallFailed.sampling()
            said = self.accept(token)
            spoken += () if said is None else (said,)
            spoken += self._given
            self._given = []
            if self.stopped is not None or next is None or self.sampled[-1] != next:
                break
        added = self.sampled[before:]
        right = 0
        while right < len(guessed) and right < len(added) and guessed[right] == added[right]:
            right += 1
        if self._guesser is not None:
            self._guesser.say(added)
            if guessed:
                self._guesser.judge(len(guessed), right)
        if self.stopped is not None and right == len(added):  # its last token was already fed as a draft token
            self.feed = self._closing
        return len(guessed) - right + fed_again

    def accept(self, token: int) -> SampledToken | None:
        """Accept `token` as the next one and set the next feed. None if it ended the message and adds no text."""
        forced = self.call.forced
        if forced is not None:
            return self._repeat(token, forced)
        left = self._last - len(self.sampled) + self._uncounted
        if self._thinker is not None and not self._thinker.answers:
            return self._before(self._thinker, token, left)
        return self._answer(token, left)

    def _before(self, thinker: ThoughtTracker, token: int, left: int) -> SampledToken | None:
        """Accept the next token before the answer: one of a thought, one of the mark that opens it, or the first of an
        answer without a thought. If the answer must be complete (`is_whole`), a thought that is too long is closed."""
        unsure = thinker.now is None
        if unsure and not self.sampled and self._header and token == self._header[0]:
            thinker.begin()
            self._framed, self.feed = self._framed._replace(header=self._header), self._header
            return None
        if unsure and not self.sampled and self.call.is_whole and token != thinker.next_of_mark(()):
            thinker.begin()
            return self._answer(token, left)
        ends = () if self._thinking is None else self._thinking.ends
        if token in self._ends and (token,) != ends:
            if not (self.call.is_whole and thinker.now):
                return self._stop(token)
            self.feed = ()  # the answer must be complete: what would have ended the message ends the thought
            for end in ends:
                self._give(end)
                thinker.push(end, len(self.sampled) - 1)
            self._begin_answer()
            return None
        if self._constraint is not None and not self.call.is_whole:
            token = self._constraint.take(token, left)
        self.feed = (token,)
        self.sampled.append(token)
        nth, piece = len(self.sampled) - 1, thinker.push(token, len(self.sampled) - 1)
        if thinker.answers and not thinker.thought:
            self._text, self._stream = self._text + piece, self._before_stream
            return self._said(token, left)
        said = SampledToken(self.id, nth, token, piece, thought=thinker.now if unsure else True)
        if left <= 1 and thinker.now and self.call.is_whole:
            for end in ends:
                self._give(end)
                thinker.push(end, len(self.sampled) - 1)
        if thinker.answers:
            self._begin_answer()
        if thinker.now and self._is_last(token):
            self._reason = token
            self._end("stop_token", self.feed)
        elif left == 1 and not self.call.is_whole:
            self._end("max_tokens", self.feed)
        return said if thinker.thought or self.stopped is None else said._replace(text=self._show(), thought=False)

    def _begin_answer(self) -> None:
        """Feed the ids between a thought and the answer, and the header. An answer that must be complete (`is_whole`)
        has the whole token limit to itself."""
        given = (*self._thinking.behind, *self._header) if self._thinking is not None else ()
        for token in given:
            self._give(token)
        self._behind = len(self.sampled)
        self._uncounted = self._behind if self.call.is_whole else len(given)

    def _give(self, token: int) -> None:
        """Feed a token that the template writes."""
        self.sampled.append(token)
        self.feed = (*self.feed, token)
        self._given.append(SampledToken(self.id, len(self.sampled) - 1, token, "", thought=True))

    def _answer(self, token: int, left: int) -> SampledToken | None:
        """Accept the next token of the answer."""
        if self._constraint is not None:
            token = self._constraint.take(token, left)
        if token in self._ends:
            return self._stop(token)
        self.feed = (token,)
        self.sampled.append(token)
        if self._is_last(token):
            self._reason = token
            self._text += self._shown_end(token)
            self._end("stop_token", (token,))
            return SampledToken(self.id, len(self.sampled) - 1, token, self._show())
        self._text += self._stream.push(token)
        return self._said(token, left)

    def _stop(self, token: int) -> SampledToken | None:
        """End with a token that is not part of the text."""
        rules = self._allowance
        self._reason = None if rules is None else rules.reason(token)
        self._end("stop" if rules is None or token in rules.own else "stop_token", ())
        return self._tail()

    def _said(self, token: int, left: int) -> SampledToken:
        """Report a token of the answer, and end the message if it is the last one."""
        if self._stopped_by(self._counted):
            self._end("stop_string", (token,))
        elif self._constraint is not None and self._constraint.done:
            self._end("stop", (token,))
        elif left == 1:
            self._end("max_tokens", (token,))
        return SampledToken(self.id, len(self.sampled) - 1, token, self._show())

    def _repeat(self, token: int, forced: tuple[int, ...]) -> SampledToken | None:
        """Accept the next forced token, or `stride` of them at once."""
        done = len(self.sampled)
        if forced and self.call.stride > 1:
            self._say(forced[done : done + self.call.stride])
            if len(self.sampled) == len(forced):
                self._end("forced", self.feed)
            return SampledToken(self.id, done, forced[done], self._show())
        if done == len(forced):
            self._end("forced", ())
            return self._tail()
        if self._thinker is not None:
            return self._repeat_thought(self._thinker, token)
        self._say((token,))
        return SampledToken(self.id, done, token, self._show())

    def _repeat_thought(self, thinker: ThoughtTracker, token: int) -> SampledToken:
        """Accept a forced token, if some of them may be a thought and the ids that the template writes after it."""
        self.feed, done, unsure = (token,), len(self.sampled), thinker.now is None
        self.sampled.append(token)
        if not thinker.answers:
            piece = thinker.push(token, done)
            if thinker.answers and thinker.thought:
                given = 0 if self._thinking is None else len(self._thinking.behind)
                self._behind = done + 1 + given + len(self._header)
            elif thinker.answers:
                self._text, self._stream = self._text + piece, self._before_stream
                return SampledToken(self.id, done, token, self._show())
            return SampledToken(self.id, done, token, piece, thought=thinker.now if unsure else True)
        if done < self._behind:
            return SampledToken(self.id, done, token, "", thought=True)
        self._repeat_words(token)
        return SampledToken(self.id, done, token, self._show())

    def _say(self, tokens: tuple[int, ...]) -> None:
        self.feed = tokens
        for token in tokens:
            self.sampled.append(token)
            self._repeat_words(token)

    def _repeat_words(self, token: int) -> None:
        """Add a forced token to the text. The text is cut at the same place as when its tokens were sampled."""
        assert self.call.forced is not None
        last = len(self.sampled) == len(self.call.forced) and self._is_last(token)
        self._text += self._shown_end(token) if last else self._stream.push(token)
        if self._cut_at is None:
            self._stopped_by(self._counted)

    @property
    def _counted(self) -> int:
        """The number of generated tokens that count against the limit of the call."""
        return len(self.sampled) - self._uncounted

    def _is_last(self, token: int) -> bool:
        """Whether the last token is one of `stop_token_ids` and may end the text."""
        rules = self._allowance
        return rules is not None and token in rules.said_ends and rules.counts(self._counted)

    def _shown_end(self, token: int) -> str:
        """The text that a token of `stop_token_ids` adds."""
        return self._stream.push(token) if self.call.sampling.include_stop_str_in_output else ""

    def _end(self, why: Stopped, unfed: tuple[int, ...]) -> None:
        self.stopped, self.feed = why, unfed + self._closing
        if self._thinker is not None and self._thinker.now is None:
            self._text = self._thinker.text
            self._thinker.begin()
        self._text += self._stream.end()  # a character that stayed incomplete comes out as U+FFFD

    def _stopped_by(self, said: int) -> bool:
        """Whether the text contains a stop string. One that was complete before `min_tokens` tokens counts as text."""
        if not self._until:
            return False
        if self._allowance is not None and not self._allowance.counts(said):
            self._early = len(self._text)
            return False
        first: tuple[int, str] | None = None
        for stop in self._until:
            at = self._text.find(stop, max(0, self._early - len(stop) + 1))
            if at >= 0 and (first is None or at < first[0]):
                first = (at, stop)
        if first is None:
            return False
        at, self._reason = first
        self._cut_at = at + (len(first[1]) if self.call.sampling.include_stop_str_in_output else 0)
        return True

    def _show(self) -> str:
        """The new text that is certain to stay, because it cannot be part of a stop string."""
        end = len(self._text)
        if self._cut_at is not None:
            end = self._cut_at
        elif self._until and self.stopped is None:
            end -= self._doubtful()
        piece, self._shown = self._text[self._shown : end], max(self._shown, end)
        return piece

    def _doubtful(self) -> int:
        """The number of characters at the end of the text that may begin a stop string."""
        longest = max(map(len, self._until), default=1) - 1
        ends = range(min(longest, len(self._text)), 0, -1)
        return next((n for n in ends if any(stop.startswith(self._text[-n:]) for stop in self._until)), 0)

    def _tail(self) -> SampledToken | None:
        piece = self._show()
        return SampledToken(self.id, len(self.sampled) - 1, self.sampled[-1], piece) if piece else None

    @property
    def begun(self) -> DecodeStarted:
        """The ids fed before the first token, and the receipt of the context."""
        framed = self._framed._replace(content=(), closing=())
        return DecodeStarted(self.id, decoded(self.call, framed, "", None), self.receipt)

    def words(self) -> Words:
        """The words of the finished message."""
        text = self._text[: self._cut_at]
        if self._thinker is not None and self._thinker.thought:
            return self._thought(self._thinker, text)
        framed: FramedTokens = self._framed._replace(content=tuple(self.sampled))
        canonical = self._content.spells((*framed.header, *self.sampled), self.call.header + text)
        canonical = canonical or self._content.spells(self.sampled, text)
        words = decoded(self.call, framed, text, self.stopped, canonical)
        return words._replace(stop_reason=self._reason)

    def _thought(self, thinker: ThoughtTracker, text: str) -> Words:
        """The words of a thought, with those of the answer in `said`."""
        framed, ended = self._framed._replace(content=tuple(self.sampled)), thinker.ended
        begin = len(framed.opening)
        span = begin, begin + (len(self.sampled) if ended is None else ended)
        answer = () if ended is None else tuple(self.sampled[self._behind :])
        canonical = self._content.spells((*self._header, *answer), self.call.header + text)
        said = decoded(self.call, self._ordinary._replace(content=answer), text, self.stopped, canonical)
        said = said._replace(stop_reason=self._reason)
        whole = decoded(self.call, framed, thinker.text.strip(), self.stopped, canonical=False)
        return whole._replace(header="", thought=span, said=said, stop_reason=self._reason)
