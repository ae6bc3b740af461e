"""A model behind a server that fulfills `TextPort`: each answer is checked, requested again where it is not what was
asked for, and retried where the server fails.

Independent of agents and audiences.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import anyio

from agentcho.config import API, ModelConfig
from agentcho.errors import AnswerInvalid, ContextOverflow, EndpointFailed, amount
from agentcho.integrations.endpoints.address import Address, ServerKey
from agentcho.integrations.endpoints.answer import CheckedAnswer, check_schema, checked
from agentcho.integrations.endpoints.faults import LONGEST_WAIT, AttemptFailed, Backoff
from agentcho.integrations.endpoints.pacing import RequestPacer
from agentcho.integrations.endpoints.request import body, cuts, enforced
from agentcho.integrations.endpoints.servers import Abilities
from agentcho.integrations.endpoints.text import Growing
from agentcho.integrations.endpoints.thoughts import Habit, Parted
from agentcho.integrations.endpoints.usage import AnswerBill, Prices, ServerUsage
from agentcho.integrations.endpoints.wire import Bound, Choice, Chunk, Progress, Wire
from agentcho.protocol.call import Stopped
from agentcho.protocol.text_calls import PromptMessage, TextCall, TextReply, TokensSpent
from agentcho.protocol.variables import of_option

NOTES = logging.getLogger("agentcho.notes")
"""Notes that a user of a command sees on standard error, whether or not there is a log."""
REPAIRS = 2
"""How many times an answer that is not what was asked for is requested again."""
TOKEN_BYTES = 64
"""Average bytes per token above which a server is taken to ignore the token limit."""
SPARE_BYTES = 4096
ENDED = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence"})
CUT = frozenset({"length", "max_tokens", "model_length"})
"""Servers' finish reasons for a complete answer (`ENDED`) and for one cut off at a limit (`CUT`)."""
BYTES_A_TOKEN = 3
"""Bytes per token assumed for a prompt until the server reports its token count."""


class Endpoint:
    """A model behind a server. See `TextPort`."""

    def __init__(self, config: ModelConfig, name: str, address: Address, key: ServerKey) -> None:
        self._config = config
        self._name = name
        self._address = address
        self._key = key
        self._model = config.model.removeprefix(API)
        self._abilities, self._prices = Abilities.of(config), Prices.of(config)
        variables = of_option(config.chat_template_kwargs)
        self._templated = {"chat_template_kwargs": variables} if variables else {}
        self.habit = Habit(False if self._abilities.parts else None)
        self._pace = RequestPacer(config.concurrency, config.requests_per_minute, config.tokens_per_minute)
        self._wire = Wire(address, key, config.concurrency)
        self.backoff, self._random = Backoff(), Random()
        self._told_of_nothing = False
        if not self._abilities.kind.samples:
            NOTES.warning("%s takes no temperature, top_p or stop strings: they are not sent", self._model)

    @property
    def name(self) -> str:
        """The name that the run gives the model."""
        return self._name

    @property
    def vendor(self) -> str:
        """Who sees what is sent: as configured, or else host and port."""
        return self._config.vendor or f"{self._address.host}:{self._address.port}"

    @property
    def context(self) -> int | None:
        """The number of positions, None if the configuration does not give it."""
        return self._config.context

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """What a record stores about the model."""
        return {"model": self._config.model, "server": self._config.server, "address": self._address.url}

    def __repr__(self) -> str:
        return f"<model {self._model} at {self._address.url}>"

    async def aclose(self) -> None:
        """Close all connections."""
        await self._wire.aclose()

    async def ask(self, call: TextCall) -> TextReply:
        """Ask for an answer. `EndpointFailed`: the server refuses, or fails and may not be asked again.
        `AnswerInvalid`: no answer was what was asked for. `RequestError`: the server cannot be asked for that.
        `ContextOverflow`: it reports more tokens than the configured context has."""
        check_schema(call.sampling)
        asking = _Asking(call, AnswerBill(self._prices), self._config.retries)
        try:
            return await self._answer(asking)
        except BaseException:
            if call.on_spent is not None and asking.bill.requests:
                call.on_spent(asking.bill.spent)
            raise

    async def _answer(self, asking: _Asking) -> TextReply:
        call = asking.call
        for _ in range(REPAIRS + 1):
            heard = await self._heard(asking)
            found = checked(call.sampling, heard.text, heard.stopped != "max_tokens")
            if heard.is_nothing:
                self._tell_of_nothing(call, found)
            if not found.fault:
                return asking.reply(heard, found)
            asking.repair(heard, found)
        raise AnswerInvalid(
            f"model {self.name} at {self._address.url} gave {REPAIRS + 1} answers, none of which was "
            f"{_wanted(call)}. Ask for something simpler, or use a server that can enforce the form of "
            "answers (can)"
        )

    def _tell_of_nothing(self, call: TextCall, found: CheckedAnswer) -> None:
        """Tell that the limit ended an answer before it began. `AnswerInvalid`: it may not be empty; asking again would
        end in the same way."""
        what = (
            f"model {self.name} at {self._address.url} used up max_tokens ({call.sampling.max_tokens}) before its "
            "answer began, as models that think do"
        )
        if found.fault:
            raise AnswerInvalid(f"{what}; raise max_tokens")
        if not self._told_of_nothing:
            self._told_of_nothing = True
            NOTES.warning("%s, so its message is empty; raise --max-tokens", what)

    async def _heard(self, asking: _Asking) -> _Heard:
        """Receive one complete answer, valid or not. Failed attempts are retried, unless text of one was already passed
        on."""
        attempt = 0
        while True:
            heard = _Heard(asking, self._parted(asking))
            try:
                await self._attempt(asking, heard)
            except AttemptFailed as failed:
                wait = self._wait(failed, attempt)
                if wait is None or asking.retries == 0 or heard.shown:
                    raise self._told(failed) from None
            else:
                return heard
            asking.retries, attempt = asking.retries - 1, attempt + 1
            await anyio.sleep(wait)

    def _parted(self, asking: _Asking) -> Parted:
        """The splitter that separates the model's thought from its answer."""
        goes_on = bool(asking.call.header) and "header" in self._abilities.can
        return Parted(self.habit, goes_on, enforced(asking.call.sampling, self._abilities))

    async def _attempt(self, asking: _Asking, heard: _Heard) -> None:
        """Send the request once, when its turn comes."""
        sent = body(self._model, asking.now, self._abilities, asking.complaint, thinks=heard.may_think)
        sent |= self._templated
        sampling = asking.call.sampling
        size = sum(len(message["content"].encode("utf-8", "replace")) for message in sent["messages"])
        bound = Bound(self._config.timeout, sampling.max_tokens * TOKEN_BYTES + SPARE_BYTES)
        async with self._pace.turn(size / BYTES_A_TOKEN + sampling.max_tokens) as begun:
            asking.bill.requests += 1
            try:
                await self._wire.hear(sent, bound, heard.hear)
                self._check_context(heard)
                heard.end()
            finally:
                asking.bill.add(heard.usage)
                said = len(heard.text.encode("utf-8", "replace"))
                begun.amount = heard.usage.tokens if heard.usage else (size + said) / BYTES_A_TOKEN

    def _check_context(self, heard: _Heard) -> None:
        """`ContextOverflow`: the server generated past the model's context because it does not check it."""
        limit = self._config.context
        if limit is not None and heard.usage is not None and heard.usage.tokens > limit:
            raise ContextOverflow(heard.usage.tokens, limit)

    def _wait(self, failed: AttemptFailed, attempt: int) -> float | None:
        """Return the seconds before a failed attempt is repeated, None for never. While a server asks for a pause, no
        request is sent to it."""
        if not failed.again:
            return None
        if failed.wait is not None and failed.wait > LONGEST_WAIT:
            failed.told = (
                f"it asks for a pause of {amount(failed.wait, 'seconds')}, and the longest pause is {LONGEST_WAIT:g}"
            )
            return None
        if failed.wait:
            self._pace.close_for(failed.wait)
        return self.backoff.seconds(attempt, failed.wait, self._random)

    def _told(self, failed: AttemptFailed) -> EndpointFailed:
        failed.told = self._key.out_of(failed.told)
        return failed.error(f"model {self.name}: {self._address.url}")


class _Asking:
    """A call in progress: its current form, the bill of its requests, and the retries that are left."""

    def __init__(self, call: TextCall, bill: AnswerBill, retries: int) -> None:
        self.call, self.now, self.bill, self.retries = call, call, bill, retries
        self.complaint = ""
        self.began, self.first = anyio.current_time(), 0.0
        constrained = call.sampling.choices is not None or call.sampling.json_schema is not None
        self.on_text = None if constrained else call.on_text

    def begins(self) -> None:
        """Note that the first piece of an answer has come."""
        self.first = self.first or anyio.current_time() - self.began

    def repair(self, heard: _Heard, found: CheckedAnswer) -> None:
        """Ask again, and say what was wrong with the answer."""
        said = PromptMessage("assistant", None, f"{self.call.header}{heard.text}", own=True)
        sampling = self.now.sampling.model_copy(update={"seed": self.now.sampling.seed + 1})
        self.now = replace(self.call, messages=(*self.call.messages, said), sampling=sampling)
        self.complaint = found.fault

    def reply(self, heard: _Heard, found: CheckedAnswer) -> TextReply:
        """Return the accepted answer. If its text was not streamed, it is passed to `on_text` whole. If the server
        reported no usage for this answer, the reports of earlier attempts are left out."""
        if self.on_text is None and self.call.on_text is not None and found.text:
            self.call.on_text(found.text)
        spent = self.bill.spent if heard.usage is not None else TokensSpent(requests=self.bill.requests)
        seconds = anyio.current_time() - self.began
        return TextReply(found.text, heard.stopped, spent, self.first, seconds, heard.thought.strip())


class _Heard:
    """What one attempt has received."""

    def __init__(self, asking: _Asking, parted: Parted) -> None:
        self._asking, self._on_text = asking, asking.on_text
        self._parted = parted
        sampling = asking.call.sampling
        self._growing = Growing(asking.call.header, cuts(sampling), sampling.include_stop_str_in_output)
        self._choice: Choice | None = None
        self._apart = ""
        self.usage: ServerUsage | None = None
        self.shown = False

    @property
    def text(self) -> str:
        """The text so far."""
        return self._growing.text

    @property
    def thought(self) -> str:
        """The model's thought so far."""
        return self._apart or self._parted.thought

    @property
    def may_think(self) -> bool:
        """Whether a thought may precede the answer in the same text."""
        return self._parted.may_think

    @property
    def stopped(self) -> Stopped:
        """What ended the answer."""
        if self._growing.cut:
            return "stop_string"
        if self._choice is not None and self._choice.finish_reason in CUT:
            return "max_tokens"
        stop = self._choice and (self._choice.stop_reason or self._choice.matched_stop)
        sampling = self._asking.call.sampling
        if isinstance(stop, int):
            return "stop_token" if stop in sampling.stop_token_ids else "stop"
        return "stop_string" if stop is not None and stop in sampling.stop else "stop"

    @property
    def is_nothing(self) -> bool:
        """Whether the limit ended the answer before it began."""
        return self.stopped == "max_tokens" and not self.text.strip()

    def hear(self, chunk: Chunk) -> Progress:
        """Take in one event. Returns "all" if the server continues after a stop string, so that nothing more is
        needed."""
        self.usage = chunk.usage or self.usage
        behind = self._growing.cut
        for choice in chunk.choices:
            self._hear(choice)
        if behind and any(choice.delta.content for choice in chunk.choices):
            return "all"
        return "more" if self._choice is None else "ended"

    def _hear(self, choice: Choice) -> None:
        if choice.index:
            raise AttemptFailed("gave several answers although one was requested")
        if choice.delta.refusal or choice.finish_reason == "content_filter":
            raise AttemptFailed("refused to answer (refusal or content_filter)")
        if apart := choice.delta.reasoning_content or choice.delta.reasoning or "":
            self._apart += apart
            self._parted.apart()
        if choice.delta.content:
            self._asking.begins()
            self._show(self._growing.add(self._parted.add(choice.delta.content)))
        if choice.finish_reason:
            self._choice = choice

    def end(self) -> None:
        """Finish after the last event. `AttemptFailed`: an answer does not end like this."""
        reason = None if self._choice is None else self._choice.finish_reason
        if reason is None and not self._growing.cut:
            raise AttemptFailed("broke off its answer", again=True)
        if reason not in {None, *ENDED, *CUT}:
            said = f" ({reason})" if re.fullmatch(r"\w{1,32}", str(reason)) else ""
            raise AttemptFailed(
                f"ended its answer for a reason other than a stop or its limit{said}", again=reason == "abort"
            )
        self._show(self._growing.add(self._parted.end(cut=self.stopped != "stop")))
        self._show(self._growing.end())
        self._asking.begins()

    def _show(self, text: str) -> None:
        if text and self._on_text is not None:
            self.shown = True
            self._on_text(text)


def _wanted(call: TextCall) -> str:
    if call.sampling.choices is not None:
        return f"one of {len(call.sampling.choices)} choices"
    return "JSON of a schema"
