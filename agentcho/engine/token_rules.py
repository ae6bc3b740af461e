"""What a free text may say next, and what ends it, by the options of its call: `stop_token_ids`, `min_tokens`,
`ignore_eos`, `bad_words` and `allowed_token_ids`, with vLLM's meaning.

A choice, JSON and a call of a tool are said as their constraint has them: there these options say nothing. One thing is
not as in vLLM: a token that ends messages by itself is never a part of one, so `ignore_eos` rules it out instead of
keeping it in the text. Does not know: logits, stop strings, how tokens are drawn.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from agentcho.engine.protocols import Content, Template
from agentcho.errors import RequestError
from agentcho.protocol.call import Decode


class TokenRules:
    """The rules of one decode, which says free text.

    - `ends`: ids that end the text, and are none of it. `said_ends`: ids that end it as its last token.
    - `freed`: control tokens that no message may contain, and that this text may end with.
    - `among`: the only ids that may be sampled (None: any), as an array of 64-bit integers.

    Raises `RequestError`: a bad word cannot be tokenised, or nothing that is allowed can be said.
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
        """Whether the last of so many tokens may end the text, by itself or because a stop string is whole now."""
        return said > self._least

    def barred(self, said: Sequence[int], counted: int) -> tuple[int, ...]:
        """The ids that may not be sampled after these, of which so many count."""
        barred = [*(self._all_ends if counted < self._least else self._ignored)]
        for *before, last in self._bad:
            if len(before) <= len(said) and [*said[len(said) - len(before) :]] == before:
                barred.append(last)
        return tuple(barred)

    def reason(self, token: int) -> int | None:
        """The id that a message which ended with it is said to have ended by; None: the message came to its own end."""
        return token if token in self._reported else None

    def _check(self, among: frozenset[int], content: Content) -> None:
        """`RequestError`: none of the ids that are allowed can be the first token."""
        never = content.forbidden - self.ends | {word[0] for word in self._bad if len(word) == 1}
        if among <= never.union(self._all_ends if self._least else self._ignored):
            raise RequestError(
                "allowed_token_ids has no token that can be generated: all its tokens are control tokens, bad words, "
                "or would end the message despite min_tokens or ignore_eos; allow other tokens",
                "sampling",
                "allowed_token_ids",
            )


def _bad_words(words: Sequence[str], content: Content) -> tuple[tuple[int, ...], ...]:
    """The token ids of each word as it stands, and behind a blank where that makes another first token and as many of
    them: so vLLM has it."""
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
