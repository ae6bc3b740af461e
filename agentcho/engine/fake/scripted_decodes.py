"""Scripts for the decodes of the fake engine: the tokens of each, and how it ends. Independent of engines and steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from math import ceil
from typing import NamedTuple

from agentcho.engine.content_tokenizer import THOUGHTS
from agentcho.engine.fake.fake_text import babble, comply
from agentcho.engine.fake.toy_tokenizer import Vocabulary
from agentcho.errors import RequestError
from agentcho.protocol.call import Decode, Sampling
from agentcho.protocol.tools import AnswerForm

FILLER = "and so on"
"""The text of an empty script that may not end yet."""
Reply = Callable[[Decode, str], str]


class Script(NamedTuple):
    """The functions that return the texts of decodes; see `FakeEngine`."""

    reply: Reply | None
    answer: Reply | None

    def text(self, call: Decode, prompt: str) -> str:
        """The text of a decode over this prompt."""
        if call.is_whole:
            return (self.answer or comply)(call, prompt)
        return (self.reply or babble)(call, prompt)


class Scripted:
    """A `protocols.TokenConstraint` that allows one token at a time: the next of the script, and `stop` after the last
    one. `abrupt`: the message ends with the last token of the script, without `stop`."""

    def __init__(self, script: Sequence[int], stop: int, abrupt: bool) -> None:
        self._script = script
        self._stop = stop
        self._abrupt = abrupt
        self._said = 0

    @property
    def allowed(self) -> int:
        """The only id that may come next."""
        return self._script[self._said] if self._said < len(self._script) else self._stop

    @property
    def only(self) -> None:
        """None, because a script stands for a model that could generate any token."""
        return

    def ahead(self) -> Scripted:
        """A copy."""
        return copy(self)

    def follow(self, token: int) -> None:
        """See `take`."""
        self.take(token, 0)

    @property
    def done(self) -> bool:
        """Whether the script is over and no token can follow."""
        return self._abrupt and self._said == len(self._script)

    def take(self, token: int, left: int) -> int:
        """Note a sampled token, and return it."""
        self._said += 1
        return token


def scripted(call: Decode, text: str, words: Vocabulary, stop: int) -> Scripted:
    """The script of a decode that generates `text`. Raises `RequestError` if the text does not meet the call's
    constraint."""
    script, sampling = _spelt(call, text, words), call.sampling
    if call.forms and all(form.schema is not None or [*form.lead] != script for form in call.forms):
        form = form_of(call, text)
        script = [*form.lead, *script, *form.trail]
    if call.forms or sampling.json_schema is not None:
        if len(script) > sampling.max_tokens and not call.cut:
            raise _unsayable(f"the shortest answer takes {len(script)} tokens, but max_tokens is {sampling.max_tokens}")
        return Scripted(script, stop, abrupt=True)
    if sampling.choices is None:
        return Scripted(_long_enough(script, sampling, words), stop, abrupt=False)
    known = [words.encode(choice) for choice in sampling.choices]
    if (longest := max(map(len, known))) > sampling.max_tokens and not call.cut:
        raise _unsayable(f"the longest choice takes {longest} tokens, but max_tokens is {sampling.max_tokens}")
    if script not in known:
        choices = ", ".join(map(repr, sampling.choices))
        raise _unsayable("the scripted answer is not one of the choices", f"give one of {choices}")
    goes_on = any(len(other) > len(script) and other[: len(script)] == script for other in known)
    return Scripted(script, stop, abrupt=not goes_on)


def _long_enough(script: list[int], sampling: Sampling, words: Vocabulary) -> list[int]:
    """A script, repeated up to the minimum number of tokens of the text if it is shorter."""
    least = sampling.max_tokens if sampling.ignore_eos else sampling.min_tokens
    if len(script) >= least:
        return script
    once = script or words.encode(FILLER)
    return (once * ceil(least / len(once)))[:least]


def _spelt(call: Decode, text: str, words: Vocabulary) -> list[int]:
    """The ids of a decode's text. The mark that ends a thought is encoded by itself, and the answer begins after it."""
    thought, mark, said = text.partition(THOUGHTS[1]) if call.thinks else (text, "", "")
    return [*words.encode(thought), *words.encode(mark), *words.encode(said.lstrip())]


def form_of(call: Decode, text: str) -> AnswerForm:
    """The form in which a decode writes this JSON: the first one with a schema if the text has a name, as a call does,
    else the last one."""
    return [form for form in call.forms if form.schema is not None][0 if '"name"' in text else -1]


def _unsayable(what: str, fix: str = "raise it") -> RequestError:
    return RequestError(f"{what}; {fix}", "sampling")
