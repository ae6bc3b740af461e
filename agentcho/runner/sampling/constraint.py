"""Constraints on what a call may sample: one of several choices, or JSON of a schema.

Choices are followed token by token. JSON goes through llguidance; in parallel a short ending of the document is kept
that fits into the remaining tokens: if a sampled token would leave no room for any ending, the document is ended by the
kept one instead. Independent of logits, of random numbers, and of how endings are found.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import reduce
from itertools import islice
from math import inf
from operator import or_
from typing import Any

from llguidance import LLMatcher

from agentcho.engine.protocols import Template, TokenConstraint
from agentcho.errors import CallFailed, RequestError
from agentcho.protocol.call import Sampling
from agentcho.protocol.tools import AnswerForm
from agentcho.runner.sampling.endings import DocumentEnding, DocumentEndings
from agentcho.runner.sampling.grammar import grammar
from agentcho.runner.sampling.pattern_hints import hints
from agentcho.runner.sampling.token_bytes import TokenBytes
from agentcho.runner.sampling.token_mask import TokenMask

KEPT = 64
"""The number of schemas whose grammars are cached, least recently used dropped first."""
DROPPED = 3
"""The number of suffixes of a known ending that are tried as the next one: with none of its first tokens dropped, with
one, and so on."""


class Constraints:
    """Makes the constraints of calls for one template."""

    def __init__(self, template: Template, tokenizer: Any, vocabulary: int) -> None:
        self._content, self._stop = template.content, template.end
        self._grammars = Grammars(tokenizer, vocabulary, self._stop)

    def of(self, sampling: Sampling, forms: Sequence[AnswerForm] = (), begun: bool = False) -> TokenConstraint | None:
        """The constraint of a call with choices, a JSON schema, or forms, or None if it has none of these. `begun`: the
        message has a header. Raises `RequestError` if nothing can satisfy it."""
        if forms:
            return FormsConstraint(self._usable(forms, sampling.max_tokens))
        if sampling.choices is not None:
            encode = self._content.encode_behind if begun else self._content.encode
            sequences = [encode(choice) for choice in sampling.choices]
            return ChoiceConstraint(sequences, self._stop, sampling.max_tokens, self._grammars.vocabulary)
        if sampling.json_schema is not None:
            return self._grammars.json(sampling.json_schema, sampling.max_tokens)
        return None

    def _usable(self, forms: Sequence[AnswerForm], max_tokens: int) -> list[FormConstraint]:
        """The forms that can be generated at all. Raises `RequestError` if none can."""
        found, errors = list[FormConstraint](), list[RequestError]()
        for form in forms:
            try:
                found.append(FormConstraint(form, self._grammars, max_tokens, self._stop))
            except RequestError as error:
                errors.append(error)
        if not found:
            raise errors[0]
        return found


class ChoiceConstraint:
    """One of several token sequences. If one sequence is a prefix of another, `stop` ends it."""

    def __init__(self, sequences: list[list[int]], stop: int, max_tokens: int, vocabulary: int) -> None:
        longest = max(map(len, sequences))
        if longest > max_tokens:
            raise RequestError(
                f"the longest choice has {longest} tokens, but max_tokens is {max_tokens}; raise max_tokens", "sampling"
            )
        self._left = [tuple(sequence) for sequence in sequences]
        self._stop, self._vocabulary = stop, vocabulary

    @property
    def allowed(self) -> TokenMask:
        """The next tokens of the choices that are still possible."""
        return TokenMask.of(self._next, self._vocabulary)

    @property
    def only(self) -> int | None:
        """The next id, if all possible choices agree on it; else None."""
        ids = self._next
        return next(iter(ids)) if len(ids) == 1 else None

    @property
    def _next(self) -> set[int]:
        return {left[0] if left else self._stop for left in self._left}

    @property
    def done(self) -> bool:
        """Whether one choice is complete, and no other continues."""
        return not any(self._left)

    def ahead(self) -> ChoiceConstraint:
        """A copy."""
        return copy(self)

    def follow(self, token: int) -> None:
        """See `take`."""
        self.take(token, 0)

    def take(self, token: int, left: int) -> int:
        """Keep the choices that continue with `token`."""
        if token != self._stop:
            self._left = [rest[1:] for rest in self._left if rest and rest[0] == token]
        return token


class FormConstraint:
    """An answer in one form: leading ids, JSON if there is a schema, trailing ids."""

    def __init__(self, form: AnswerForm, grammars: Grammars, max_tokens: int, stop: int) -> None:
        self.lead, self._trail, self._stop = list(form.lead), list(form.trail), stop
        around = len(self.lead) + len(self._trail)
        self._json = None if form.schema is None else grammars.json(form.schema, max_tokens, around, lenient=True)
        self._vocabulary = grammars.vocabulary

    @property
    def _fixed(self) -> int | None:
        """The one id that may come next outside the JSON, or None inside it."""
        if self.lead:
            return self.lead[0]
        if self._json is not None and not self._json.done:
            return None
        return self._trail[0] if self._trail else self._stop

    @property
    def allowed(self) -> TokenMask:
        """The ids that may come next."""
        if (fixed := self._fixed) is not None:
            return TokenMask.of([fixed], self._vocabulary)
        assert self._json is not None
        return self._json.allowed

    @property
    def only(self) -> int | None:
        """The one id that may come next, or None."""
        fixed = self._fixed
        return fixed if fixed is not None or self._json is None else self._json.only

    @property
    def done(self) -> bool:
        """Whether the answer is complete."""
        return not self.lead and not self._trail and (self._json is None or self._json.done)

    def admits(self, token: int) -> bool:
        """Whether a token may come next."""
        return token in self.allowed

    def ahead(self) -> FormConstraint:
        """A copy."""
        other = copy(self)
        other.lead, other._trail = [*self.lead], [*self._trail]
        other._json = None if self._json is None else self._json.ahead()
        return other

    def follow(self, token: int) -> None:
        """Advance by a token of this form."""
        if self.lead:
            self.lead.pop(0)
        elif self._json is not None and not self._json.done:
            self._json.follow(token)
        elif self._trail:
            self._trail.pop(0)

    def take(self, token: int, left: int) -> int:
        """Follow `token`, or replace it as `JsonConstraint` does; return the token taken."""
        if self.lead:
            return self.lead.pop(0)
        if self._json is not None and not self._json.done:
            return self._json.take(token, left - len(self._trail))
        return self._trail.pop(0) if self._trail else self._stop


class FormsConstraint:
    """An answer in one of several forms. Forms that do not match the tokens so far are dropped."""

    def __init__(self, forms: list[FormConstraint]) -> None:
        self._left = forms

    @property
    def allowed(self) -> TokenMask:
        """The next ids of the forms that are still possible."""
        return reduce(or_, (form.allowed for form in self._left))

    @property
    def only(self) -> int | None:
        """The next id, if all possible forms agree on it; else None."""
        return self._left[0].only if len(self._left) == 1 else self.allowed.only

    @property
    def done(self) -> bool:
        """Whether one form is complete, and no other continues."""
        return all(form.done for form in self._left)

    def ahead(self) -> FormsConstraint:
        """A copy."""
        return FormsConstraint([form.ahead() for form in self._left])

    def follow(self, token: int) -> None:
        """Keep the forms that continue with `token`."""
        self._keep(token)
        for form in self._left:
            form.follow(token)

    def _keep(self, token: int) -> None:
        if len(self._left) > 1:
            self._left = [form for form in self._left if form.admits(token)]

    def take(self, token: int, left: int) -> int:
        """Keep the forms that continue with `token`. A form that must replace it to end in time is dropped, unless all
        must; then those that agree with the first are kept. Returns the token taken."""
        self._keep(token)
        said = [(form, form.take(token, left)) for form in self._left]
        told = token if any(each == token for _, each in said) else said[0][1]
        self._left = [form for form, each in said if each == told]
        return told


class CompiledGrammar:
    """A grammar: a matcher at its beginning, and the endings of its documents."""

    def __init__(self, matcher: LLMatcher, endings: DocumentEndings) -> None:
        self.matcher, self.endings = matcher, endings
        empty = endings.document()
        self._more = empty.endings()
        self._whole = list(islice(self._more, 1))
        endings.begin_with(empty)  # no later: how far others let `whole` search must not matter

    def whole(self) -> Iterator[bytes | None]:
        """Whole documents, as `DocumentEnding.endings` yields them for an empty document. Each is searched for once."""
        yield from self._whole
        for path in self._more:
            self._whole.append(path)
            yield path


class Grammars:
    """Makes JSON constraints for one tokenizer; its tables are built on first use."""

    def __init__(self, tokenizer: Any, vocabulary: int, stop: int) -> None:
        self.vocabulary = vocabulary
        self._tokenizer, self._stop = tokenizer, stop
        self._spelling: TokenBytes | None = None
        self._compiled: dict[tuple[str, bool], CompiledGrammar] = {}

    def json(self, schema: dict[str, Any], max_tokens: int, around: int = 0, lenient: bool = False) -> JsonConstraint:
        """A constraint for a schema; `around` of the tokens surround the JSON. `lenient`: parts of the schema that a
        grammar cannot enforce are left out. Raises `RequestError` if the schema cannot be used, or needs more
        tokens."""
        if self._spelling is None:
            self._spelling = TokenBytes(self._tokenizer, self.vocabulary, self._stop)
        return JsonConstraint(self._grammar(schema, lenient, self._spelling), self._spelling, max_tokens, around)

    def _grammar(self, schema: dict[str, Any], lenient: bool, spelling: TokenBytes) -> CompiledGrammar:
        key = json.dumps(schema), lenient
        found = self._compiled.pop(key, None)
        if found is None:
            made = grammar(schema, lenient)
            matcher = LLMatcher(spelling.table, made)
            if matcher.is_error():
                raise RequestError(f"json_schema is not usable: {matcher.get_error()}; simplify it", "sampling")
            found = CompiledGrammar(matcher, DocumentEndings(made, spelling.letters, hints(schema)))
        self._compiled[key] = found
        if len(self._compiled) > KEPT:
            del self._compiled[next(iter(self._compiled))]
        return found


class JsonConstraint:
    """JSON of one schema. `ending` is the shortest known ending of the document, in tokens, or None if none is known,
    since the search is bounded (`endings.STEPS`). A known ending always fits into the remaining tokens."""

    def __init__(self, compiled: CompiledGrammar, spelling: TokenBytes, max_tokens: int, around: int) -> None:
        self._compiled, self._spelling = compiled, spelling
        self._matcher = compiled.matcher.deep_copy()
        self._said = bytearray()
        self._document: DocumentEnding | None = None
        self._allowed: TokenMask | None = None
        self._next_search = inf
        room = max_tokens - around
        self.ending, hopeless = self._shortest(compiled.whole(), room)
        if hopeless:
            raise RequestError(
                "the model's tokens cannot spell any JSON that fits json_schema; change the schema", "sampling"
            )
        if self.ending is not None and len(self.ending) > room:
            needed = len(self.ending) + around
            raise RequestError(
                f"the shortest answer found for json_schema takes {needed} tokens, but max_tokens is {max_tokens}; "
                f"raise max_tokens to {needed} or more",
                "sampling",
            )

    @property
    def allowed(self) -> TokenMask:
        """The ids after which the document can still become valid JSON."""
        if self._allowed is None:
            self._allowed = TokenMask.after(self._matcher, self._spelling.size, self._spelling.known)
            self._check()
        return self._allowed

    @property
    def only(self) -> int | None:
        """The one id after which the document can still become valid JSON, or None."""
        return self.allowed.only

    @property
    def done(self) -> bool:
        """Whether the document is complete, and nothing can follow."""
        return self._matcher.is_stopped() or self.allowed.only == self._spelling.stop

    def ahead(self) -> JsonConstraint:
        """A copy."""
        other = copy(self)
        other._matcher, other._said, other._document = self._matcher.deep_copy(), bytearray(self._said), None
        return other

    def follow(self, token: int) -> None:
        """Follow `token`, whether or not the document can then be ended in time."""
        if token != self._spelling.stop:
            self._consume(token)
            self._note(token)

    def take(self, token: int, left: int) -> int:
        """Follow `token`. If no ending exists after it, or the shortest one found takes more than `left` - 1 tokens,
        continue with the previously known ending instead, if there is one. Returns the token taken."""
        if token == self._spelling.stop:
            return token
        known = self.ending
        self._consume(token)
        ending, hopeless = self._after(token, left - 1)
        too_long = ending is not None and len(ending) > left - 1
        if known is not None and (hopeless or too_long):
            self._matcher.rollback(1)
            self._allowed = None
            if not known:
                return self._spelling.stop
            token, ending = known[0], known[1:]
            self._consume(token)
        self.ending = None if ending is None or len(ending) >= left else ending
        self._note(token)
        return token

    def _consume(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._allowed = None
        self._check()

    def _check(self) -> None:
        """Raise `CallFailed` if the matcher has given up, after which it would call any document complete."""
        if self._matcher.is_error():
            raise CallFailed.constraint(self._matcher.get_error())

    def _note(self, token: int) -> None:
        said = self._spelling.of(token)
        self._said += said
        if self._document is not None:
            self._document.follow(said)

    def _after(self, token: int, room: int) -> tuple[tuple[int, ...] | None, bool]:
        """An ending of the document after a token that the matcher has followed: the known one if it still applies."""
        for drop in range(DROPPED if self.ending is not None else 0):
            rest = (self.ending or ())[drop:]
            ended = self._matcher.validate_tokens([*rest, self._spelling.stop])
            if len(rest) <= room and ended == len(rest) + 1:
                return rest, False
        if room > self._next_search:
            return None, False
        found, hopeless = self._search(self._spelling.of(token), room, thorough=False)
        self._next_search = room // 2 if found is None else inf
        return found, hopeless

    def _search(self, behind: bytes, room: int, thorough: bool) -> tuple[tuple[int, ...] | None, bool]:
        """The shortest ending found after these bytes, and whether there is none; the search stops at the first that
        fits."""
        if self._document is None:
            self._document = self._compiled.endings.document()
            self._document.follow(self._said)
        found = self._shortest(self._document.endings(behind, thorough), room)
        if self._document.broken:
            self._document = None
        return found

    def _shortest(self, paths: Iterable[bytes | None], room: int) -> tuple[tuple[int, ...] | None, bool]:
        """The first of these paths that fits, in tokens, or else the shortest, and whether there is none at all."""
        best: tuple[int, ...] | None = None
        for path in paths:
            if path is None:
                return best, best is None
            tokens = self._spelling.tokens(path)
            if tokens is not None and (best is None or len(tokens) < len(best)):
                best = tokens
            if best is not None and len(best) <= room:
                break
        return best, False
