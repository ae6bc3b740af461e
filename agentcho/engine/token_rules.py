"""Restricts the next tokens of free text, and what ends it, by the options of its call: `stop_token_ids`, `min_tokens`,
`ignore_eos`, `bad_words` and `allowed_token_ids`, with vLLM's meaning.

The options have no effect on choices, JSON and tool calls, which follow their constraint. One difference from vLLM: a
token that ends messages by itself is never part of one, so `ignore_eos` excludes it instead of keeping it in the text.
Independent of logits, stop strings and sampling.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from agentcho.engine.protocols import Content, Template
from agentcho.errors import RequestError
from agentcho.protocol.call import Decode


class TokenRules:
    """The rules of one decode of free text.

    - `ends`: ids that end the text and are not part of it. `said_ends`: ids that end it as its last token.
    - `freed`: control tokens that no message may contain, but that this text may end with.
    - `among`: the only ids that may be sampled (None: any), as an array of 64-bit integers.

    Raises `RequestError` if a bad word cannot be tokenised, or if no allowed token can be the first one.
    """

    def __init__(self, call: Decode, template: Template) -> None:
        sampling, own = call.sampling, frozenset(template.stops)
        named, samples = frozenset(sampling.stop_token_ids), call.forced is None
        ignored = own - named if sampling.ignore_eos else frozenset[int]()
        control = named & template.content.forbidden
        self.own = own - ignored
        self.ends = own - ignored | control
        self.said_ends = named - control - own
        self.freed = tuple(sorted(control - own))
        self._ignored, self._all_ends = tuple(sorted(ignored)), tuple(sorted(own | named))
        self._reported = named if sampling.ignore_eos else named - own
        self._least = sampling.min_tokens
        self._bad = _bad_words(sampling.bad_words, template.content) if samples else ()
        self.among: array[int] | None = None
        if sampling.allowed_token_ids is not None and samples:
            self.among = array("q", sorted(set(sampling.allowed_token_ids)))
            self._check(frozenset(self.among), template.content)

    def counts(self, said: int) -> bool:
        """Whether the last of `said` tokens may end the text, by itself or because it completes a stop string."""
        return said > self._least

    def barred(self, said: Sequence[int], counted: int) -> tuple[int, ...]:
        """The ids that may not be sampled after the ids `said`, of which `counted` count."""
        barred = [*(self._all_ends if counted < self._least else self._ignored)]
        for *before, last in self._bad:
            if len(before) <= len(said) and [*said[len(said) - len(before) :]] == before:
                barred.append(last)
        return tuple(barred)

    def reason(self, token: int) -> int | None:
        """The id to report as stop reason of a message that ended with this token. None if it ended by itself."""
        return token if token in self._reported else None

    def _check(self, among: frozenset[int], content: Content) -> None:
        """Raise `RequestError` if none of the allowed ids can be the first token."""
        never = content.forbidden - self.ends | {word[0] for word in self._bad if len(word) == 1}
        if among <= never.union(self._all_ends if self._least else self._ignored):
            raise RequestError(
                "allowed_token_ids has no token that can be generated: all its tokens are control tokens, bad words, "
                "or would end the message despite min_tokens or ignore_eos; allow other tokens",
                "sampling",
                "allowed_token_ids",
            )


def _bad_words(words: Sequence[str], content: Content) -> tuple[tuple[int, ...], ...]:
    """The token ids of each word as written, and after a blank if that gives another first token and the same number of
    tokens, as in vLLM."""
    found = dict[tuple[int, ...], None]()
    for word in dict.fromkeys(words):
        try:
            bare, spaced = (tuple(content.encode(blank + word.lstrip())) for blank in ("", " "))
        except RequestError as error:
            raise RequestError(f"bad_words: {error}", "sampling", "bad_words") from error
        found[bare] = None
        if len(spaced) == len(bare) and spaced[0] != bare[0]:
            found[spaced] = None
    return tuple(found)
