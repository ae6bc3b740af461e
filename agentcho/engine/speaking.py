"""Turns the rows of logits of a forward into the next tokens of its decodes. Independent of scheduling."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Listed
from typing import NamedTuple

from agentcho.engine.call_layout import Segment
from agentcho.engine.forward_plan import FaultAttribution, ForwardPlan, LogprobRequest
from agentcho.engine.generation import SamplingDraw
from agentcho.engine.protocols import Row
from agentcho.engine.runner_port import Runner
from agentcho.engine.sequence import Sequence
from agentcho.protocol.call import CallFailure, DecodeStarted, EncodingId, SampledToken

Tokens = Listed[int | None]
"""The next token of a decode, then one after each of its draft tokens. None if none can be drawn, or the message has
ended."""


class Asking(NamedTuple):
    """A decode that requested rows of logits: those of its next token, and of the one after each draft token."""

    row: Sequence
    logits: Listed[Row]


class Speaker:
    """Draws tokens for decodes, and passes them on. A decode that fails is passed to `cancel`."""

    def __init__(self, runner: Runner, blame: FaultAttribution, cancel: Callable[[Iterable[EncodingId]], None]) -> None:
        self._runner, self._blame, self._cancel = runner, blame, cancel

    def asking(self, plan: ForwardPlan, order: list[Segment], logits: Listed[Row]) -> list[Asking]:
        """The decodes that requested rows of logits, in the order of the rows. Keeps all rows of a decode that keeps
        its logits."""
        of = dict[int, Sequence]()
        for row, segment in plan.rows:
            of[id(segment)] = row
        asking, begin = list[Asking](), 0
        for segment in order:
            if segment.wanted:
                row, end = of[id(segment)], begin + len(segment.wanted)
                if row.speech.call.logits:
                    row.speech.logits += self._runner.keep(logits[begin:end])
                if row.speech.call.logprobs is not None:
                    plan.weighed[row.id] = LogprobRequest(
                        logits[end - 1], len(row.speech.sampled), row.speech.call.logprobs
                    )
                asking.append(Asking(row, logits[end - 1 - len(row.speech.guessed) : end]))
                begin = end
        return asking

    def choose(self, asking: list[Asking], exact: bool) -> list[Tokens]:
        """The next tokens of each of these decodes."""
        tokens, free = list[Tokens](), list[int]()
        for place, (row, _) in enumerate(asking):
            forced = row.speech.forced()
            tokens.append([None] if forced is None else forced)
            if row.speech.stopped is None and forced is None:
                free.append(place)
        stride = 1 if exact else max(1, len(free))
        for begin in range(0, len(free), stride):
            places = free[begin : begin + stride]
            for place, drawn in zip(places, self._drawn([asking[place] for place in places]), strict=True):
                tokens[place] = drawn
        return tokens

    def _drawn(self, asking: list[Asking]) -> list[Tokens]:
        """Draw tokens for these decodes. If drawing for all together fails, it is done for each alone. None if that
        fails too, or no token can be drawn."""
        lines, draws = list[Row](), list[SamplingDraw]()
        try:
            for row, logits in asking:
                lines += logits
                draws += row.speech.draws()
            drawn = iter(self._runner.sample(lines, draws))
            return [[next(drawn) for _ in logits] for _, logits in asking]
        except BaseException as error:  # a panic of the grammar library is not an `Exception`
            self._blame.of(error)
            return [[None]] if len(asking) == 1 else [self._drawn([each])[0] for each in asking]

    def say(
        self, asking: list[Asking], tokens: list[Tokens], failed: list[CallFailure]
    ) -> tuple[list[SampledToken], list[DecodeStarted], int]:
        """Give each decode its tokens. Returns the accepted tokens, the decodes that accepted their first token, and
        the number of wrong draft tokens."""
        spoken, begun, dropped = list[SampledToken](), list[DecodeStarted](), 0
        for (row, _), drawn in zip(asking, tokens, strict=True):
            speech = row.speech
            if speech.stopped is not None:
                continue
            mute = not speech.sampled
            try:
                if wrong := speech.say(drawn, spoken):
                    assert row.slot is not None
                    self._runner.slots.retract(row.slot, wrong)
                    row.retract(wrong)
                    dropped += wrong
            except BaseException as error:
                self._cancel([row.id])
                failed.append(CallFailure(row.id, self._blame.of(error)))
            if mute and speech.sampled:
                begun.append(speech.begun)
        return spoken, begun, dropped
