"""Constraints on what a call may sample: exact choices, or JSON of a schema.

Choices are followed token by token. JSON goes through llguidance; a way to end the document is always kept within the
tokens that are left, so that what is said always parses. Does not know: logits, random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import llguidance.hf
import llguidance.numpy
import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from torch import Tensor

from agentcho.calls.call import Sampling
from agentcho.calls.tools import AnswerForm
from agentcho.engine.base import Constraint, Template
from agentcho.errors import RequestError


class Constraints:
    """Makes the constraints of calls, in the words of one template."""

    def __init__(self, template: Template, tokenizer: Any, vocabulary: int) -> None:
        self._content, self._stop = template.content, template.closing("assistant")[0]
        self._grammars = Grammars(tokenizer, vocabulary, self._stop)

    def of(self, sampling: Sampling, forms: Sequence[AnswerForm] = ()) -> Constraint | None:
        """The constraint of a call with choices, a JSON schema, or forms; None: it has none of these. `RequestError`:
        nothing can satisfy it."""
        if forms:
            return Forms([Formed(form, self._grammars, sampling.max_tokens) for form in forms])
        if sampling.choices is not None:
            return Choices([self._content.encode(c) for c in sampling.choices], self._stop, sampling.max_tokens)
        if sampling.json_schema is not None:
            return self._grammars.json(sampling.json_schema, sampling.max_tokens)
        return None


class Choices:
    """One of several token sequences. Where one sequence is the beginning of another, `stop` ends it."""

    def __init__(self, sequences: list[list[int]], stop: int, max_tokens: int) -> None:
        longest = max(map(len, sequences))
        if longest > max_tokens:
            raise RequestError(
                f"the longest choice has {longest} tokens and max_tokens is {max_tokens}; raise max_tokens", "sampling"
            )
        self._left = [tuple(sequence) for sequence in sequences]
        self._stop = stop

    @property
    def allowed(self) -> Tensor:
        """The next tokens of the choices that are still possible."""
        return torch.tensor(sorted({left[0] if left else self._stop for left in self._left}))

    @property
    def only(self) -> int | None:
        """The one id that all possible choices go on with."""
        return _only({left[0] if left else self._stop for left in self._left})

    @property
    def done(self) -> bool:
        """Whether one choice is said, and no other goes on."""
        return not any(self._left)

    def ahead(self) -> Choices:
        """A copy."""
        return copy(self)

    def follow(self, token: int) -> None:
        """See `take`."""
        self.take(token, 0)

    def take(self, token: int, left: int) -> int:
        """Keep the choices that go on with `token`."""
        if token != self._stop:
            self._left = [rest[1:] for rest in self._left if rest and rest[0] == token]
        return token


class Formed:
    """An answer in one form: ids, JSON, ids."""

    def __init__(self, form: AnswerForm, grammars: Grammars, max_tokens: int) -> None:
        self.lead, self._trail = list(form.lead), list(form.trail)
        self._json = grammars.json(form.schema, max_tokens, len(self.lead) + len(self._trail))

    @property
    def allowed(self) -> Tensor:
        """The ids that may come next."""
        if self.lead or (self._json.done and self._trail):
            return torch.tensor([self.lead[0] if self.lead else self._trail[0]])
        return self._json.allowed

    @property
    def only(self) -> int | None:
        """The one id that may come next."""
        if self.lead or (self._json.done and self._trail):
            return self.lead[0] if self.lead else self._trail[0]
        return self._json.only

    @property
    def done(self) -> bool:
        """Whether all of it is said."""
        return not self.lead and not self._trail and self._json.done

    def ahead(self) -> Formed:
        """A copy."""
        other = copy(self)
        other.lead, other._trail, other._json = [*self.lead], [*self._trail], self._json.ahead()
        return other

    def follow(self, token: int) -> None:
        """Note a token of this form."""
        if self.lead:
            self.lead.pop(0)
        elif self._json.done and self._trail:
            self._trail.pop(0)
        else:
            self._json.follow(token)

    def take(self, token: int, left: int) -> int:
        """Follow `token`, or say another, as `JsonConstraint` does."""
        if self.lead:
            return self.lead.pop(0)
        if self._json.done and self._trail:
            return self._trail.pop(0)
        return self._json.take(token, left - len(self._trail))


class Forms:
    """An answer in one of several forms, which is settled by their first ids; at most one has none before its JSON."""

    def __init__(self, forms: list[Formed]) -> None:
        self._left = forms

    @property
    def allowed(self) -> Tensor:
        """The next ids of the forms that are still possible."""
        if len(self._left) == 1:
            return self._left[0].allowed
        return torch.tensor(sorted({id for form in self._left for id in form.allowed.tolist()}))

    @property
    def only(self) -> int | None:
        """The one id that all possible forms go on with."""
        return self._left[0].only if len(self._left) == 1 else _only({*self.allowed.tolist()})

    @property
    def done(self) -> bool:
        """Whether all of one form is said."""
        return all(form.done for form in self._left)

    def ahead(self) -> Forms:
        """A copy."""
        return Forms([form.ahead() for form in self._left])

    def follow(self, token: int) -> None:
        """Keep the forms that go on with `token`."""
        self._keep(token)
        for form in self._left:
            form.follow(token)

    def _keep(self, token: int) -> None:
        led = [form for form in self._left if form.lead and form.lead[0] == token]
        self._left = led or [form for form in self._left if not form.lead]

    def take(self, token: int, left: int) -> int:
        """Keep the forms that go on with `token`."""
        self._keep(token)
        said = [form.take(token, left) for form in self._left]
        return said[0]


class Grammars:
    """Makes JSON constraints for one tokenizer; its tables are built at the first use."""

    def __init__(self, tokenizer: Any, vocabulary: int, stop: int) -> None:
        self._hf, self._vocabulary, self._stop = tokenizer, vocabulary, stop
        self._table: LLTokenizer | None = None

    def json(self, schema: dict[str, Any], max_tokens: int, around: int = 0) -> JsonConstraint:
        """A constraint for a schema, of whose tokens so many stand around the JSON. `RequestError`: the schema is not
        understood or needs more tokens."""
        if self._table is None:
            self._table = llguidance.hf.from_tokenizer(self._hf, self._vocabulary, self._stop)
        try:
            grammar = LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_flexible": False})
        except ValueError as error:
            raise RequestError(f"json_schema is not usable: {error}; simplify the schema", "sampling") from error
        matcher = LLMatcher(self._table, grammar)
        if matcher.is_error():
            raise RequestError(f"json_schema is not usable: {matcher.get_error()}; simplify the schema", "sampling")
        return JsonConstraint(matcher, self._vocabulary, self._stop, self._endings(), max_tokens, around)

    def _endings(self) -> list[int]:
        """Tokens of single characters in the order in which they bring a document to its end: a letter, the quote, then
        the closing marks."""
        backend = self._hf.backend_tokenizer
        return [backend.encode(mark, add_special_tokens=False).ids[-1] for mark in 'x"}],:0']


class JsonConstraint:
    """JSON of one schema. At every token the document can be ended within the budget."""

    def __init__(
        self, matcher: LLMatcher, vocabulary: int, stop: int, endings: list[int], max_tokens: int, around: int
    ) -> None:
        self._matcher, self._vocabulary, self._stop = matcher, vocabulary, stop
        self._letter, self._quote, *self._endings = endings
        self._ending = self._shortest(matcher, 1024)
        if self._ending is None or len(self._ending) + around > max_tokens:
            needed = "more than 1024" if self._ending is None else str(len(self._ending) + around)
            raise RequestError(
                f"the shortest answer found for json_schema takes {needed} tokens, max_tokens is {max_tokens}; raise "
                "max_tokens or make the model smaller",
                "sampling",
            )

    @property
    def allowed(self) -> Tensor:
        """The ids after which the document can still become valid JSON."""
        return _allowed(self._matcher, self._vocabulary)

    @property
    def only(self) -> int | None:
        """The one id after which the document can still become valid JSON."""
        return _only({*self.allowed[:2].tolist()})

    @property
    def done(self) -> bool:
        """Whether the document is whole, and nothing can follow."""
        return self._matcher.is_stopped() or self.allowed.tolist() == [self._stop]

    def ahead(self) -> JsonConstraint:
        """A copy."""
        other = copy(self)
        other._matcher = self._matcher.deep_copy()
        return other

    def follow(self, token: int) -> None:
        """Follow `token`, whether or not the document can then be ended in time."""
        if token != self._stop:
            self._matcher.consume_token(token)

    def take(self, token: int, left: int) -> int:
        """Follow `token` if the document can then still be ended with `left` - 1 tokens, else end it."""
        if token == self._stop:
            return token
        ahead = self._matcher.deep_copy()
        ahead.consume_token(token)
        ending = self._shortest(ahead, left - 1)
        if ending is None:
            if not self._ending:
                return self._stop
            token, ending = self._ending[0], self._ending[1:]
        self._ending = ending
        self._matcher.consume_token(token)
        return token

    def _shortest(self, matcher: LLMatcher, at_most: int) -> list[int] | None:
        """A short way to end the document, of at most so many tokens; None: none was found."""
        ahead, path = matcher.deep_copy(), list[int]()
        while not ahead.is_accepting():
            if len(path) == at_most or ahead.is_error():
                return None
            token = self._towards_end(ahead)
            ahead.consume_token(token)
            path.append(token)
        return path

    def _towards_end(self, matcher: LLMatcher) -> int:
        forced = matcher.compute_ff_tokens()
        if forced:
            return int(forced[0])
        allowed = _allowed(matcher, self._vocabulary).tolist()
        known = set(allowed)
        inside = self._letter in known  # in a string, where only a quote is not text
        endings = [self._quote] if inside and self._quote in known else self._endings
        return next((token for token in endings if token in known), allowed[0])


def _only(ids: set[int]) -> int | None:
    return next(iter(ids)) if len(ids) == 1 else None


def _allowed(matcher: LLMatcher, vocabulary: int) -> Tensor:
    """The ids that a matcher accepts next, in ascending order."""
    mask = llguidance.numpy.allocate_token_bitmask(1, vocabulary)
    llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[:vocabulary]
    return torch.from_numpy(bits.nonzero()[0])
