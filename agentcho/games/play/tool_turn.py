"""A turn of an agent that may call tools: calls, their results, and then the text.

Each call is a message that only the agent may read, constrained to the schemas of the tools. Each result is a message
of no agent. If the chat template marks calls, the beginning of the agent's text shows whether it calls; otherwise the
agent chooses first. Independent of how a call runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import anyio

from agentcho.agent import Agent, ToolWish, Utterance
from agentcho.errors import AnswerInvalid, ContextOverflow, RequestError, shown
from agentcho.games.play.game_models import KnownTextMessage
from agentcho.games.play.messages import Messages
from agentcho.games.play.tool_calls import CANCELLED, ToolCallAttempt, ToolCalls
from agentcho.games.play.toolbox import Toolbox
from agentcho.games.play.turn import Speech, Turns
from agentcho.games.tools.running import failed
from agentcho.games.tools.tool import Tool
from agentcho.message import EVERYONE, SCENARIO, Audience, Message
from agentcho.protocol import value_checks
from agentcho.protocol.call import ChatMessage
from agentcho.protocol.tools import AnswerForm, ToolCall, ToolsPort, made_up_id
from agentcho.provenance.tool_sinks import listing_id, result_id, step_id
from agentcho.provenance.views import Charge, Read, ReadSet, ToolUse

CALL, TEXT = "call", "answer"
WHICH = f"Before each message say which it will be: {CALL!r}, a call of a function, or {TEXT!r}, your answer in words."
"""For a model whose template has no format for calls."""
CALLS = 1 << 10
"""The most calls that may be allowed before a text."""
LEAST = 512
"""The number of tokens that a call may have even if the text is limited to fewer."""
UNREAD = ReadSet(None, (), None, ())


class OfferedTools(NamedTuple):
    """The tools that an agent may call now, by name, and how its model writes them."""

    tools: Mapping[str, Tool]
    writer: ToolsPort
    listing: str

    def forms(self, named: str | None) -> tuple[AnswerForm, ...]:
        """Return the ways to write one call."""
        return self.writer.forms([tool.form for tool in self.tools.values()], named)


class PendingResult(NamedTuple):
    """A pending result: its call, its tool, its readers, and what it may tell them. `ids` are its id and, for a call
    that is cancelled, the id of the result that only the caller reads."""

    call: str
    ids: tuple[str, str]
    use: ToolUse
    to: Audience
    charge: Charge | None


@dataclass
class ToolTurns:
    """The turns with tools of the agents of one game."""

    turns: Turns
    messages: Messages
    toolbox: Toolbox
    calls: ToolCalls
    listed: dict[tuple[object, ...], str] = field(default_factory=dict)

    async def speak(self, agent: Agent, asked: Utterance) -> Message:
        """Make calls of an agent with their results, and then its text; see `Agent.say`. People call no tools."""
        assert asked.tools is not None
        if self.turns.is_typed(agent):
            return await self.turns.speak(agent, asked)
        async with self.messages.rounds.act():
            author, wish = self.messages.roster.member(agent), _checked(asked.tools)
            tools = await self.toolbox.tools(author, wish.tools)
            if wish.choice not in ("auto", "required", *tools):
                there = ", ".join(tools)
                raise RequestError(f'tool_choice is {shown(wish.choice)}; give "auto", "required", or one of: {there}')
            speech = self.turns.begin(agent, asked)
            offer = self._offer(author, speech, tools)
            speech = speech._replace(reads=self._with(offer.listing, speech.reads))
            self.turns.permit(speech)
            return self.messages.taint.given(await _Talk(self, speech, offer, wish).play())

    def _offer(self, author: str, speech: Speech, tools: Mapping[str, Tool]) -> OfferedTools:
        """Return the tools, listed in a message that the agent reads and that no view shows.

        Only who learns the arguments of all these tools may read that message.
        """
        writer = speech.model.frames.framing.tools
        text, ids = writer.listing([tool.form for tool in tools.values()], "" if writer.auto else WHICH)
        to = self._told_of_all(author, [tool.declared.audience for tool in tools.values()])
        key = author, speech.model.choreographer.name, ids, text, to
        if key not in self.listed:
            id = listing_id(author, sum(each[0] == author for each in self.listed))
            said = (
                ChatMessage("system", text, tools=tuple(tool.form for tool in tools.values())) if writer.auto else None
            )
            self.messages.roster.hide(id)
            self.listed[key] = self.messages.put(
                KnownTextMessage(SCENARIO, "system", to, text, UNREAD, speech.model, ids, id=id, said=said)
            )
        return OfferedTools(tools, writer, self.listed[key])

    @staticmethod
    def _told_of_all(author: str, audiences: list[Audience]) -> Audience:
        """Return who learns the arguments of all tools, agents that have not joined included, and their caller."""
        known = [each.members for each in audiences if each.members is not None]
        return Audience(frozenset.intersection(*known) | {author}) if known else EVERYONE

    def _with(self, listing: str, reads: ReadSet) -> ReadSet:
        """Return the read set with the listing after the system prompts at its beginning."""
        place = 0
        while place < len(reads.reads) and self.messages.drafts[reads.reads[place].id].metadata.role == "system":
            place += 1
        return reads._replace(reads=(*reads.reads[:place], Read(listing), *reads.reads[place:]))


def _checked(wish: ToolWish) -> ToolWish:
    return wish._replace(
        choice=value_checks.checked_text(wish.choice, "tool_choice"),
        most=value_checks.checked_int(wish.most, "max_calls", 1, CALLS),
    )


class _Talk:
    """One `say` with tools.

    The model decides how many steps there are before its text. How many there were is private, so neither the number in
    the id of a later message nor its seed depends on it: the id of the text is reserved, and steps are numbered behind
    it.
    """

    def __init__(self, game: ToolTurns, speech: Speech, offer: OfferedTools, wish: ToolWish) -> None:
        self._game, self._offer, self._wish = game, offer, wish
        self._text = game.messages.reserve(speech.author)
        self._speech = speech._replace(id=self._text)
        self._steps = self._seeds = 0
        self._told = Counter[Audience]()
        self._author = speech.author
        self._own = Audience(frozenset({speech.author}))

    async def play(self) -> Message:
        """Make calls until there is a text, or until their maximum number."""
        choice = self._wish.choice
        for number in range(self._wish.most):
            asked = number == 0 and choice != "auto"
            if not asked and not await self._wants_call():
                break
            await self._call(choice if asked and choice != "required" else None)
            self._again()
        return await self._game.turns.say(self._speech)

    def _again(self) -> None:
        """Switch to the seed of the next step. Raises `LimitReached` if the agent has used up its limits."""
        turns, speech = self._game.turns, self._speech
        turns.check_limits(self._author)
        self._seeds += 1
        options = turns.sampling(self._author, speech.asked.sampling, speech.turn, self._seeds)
        self._speech = speech._replace(options=options)

    async def _wants_call(self) -> bool:
        """Return whether the agent calls a tool next. If the template marks calls, its text is begun to find out."""
        writer = self._offer.writer
        if writer.auto and self._speech.port is None:
            begun = await self._private(peek=True, max_tokens=self._opening())
            return begun.text.lstrip().startswith(writer.opening)
        chosen = await self._private(choices=(CALL, TEXT))
        self._again()
        return chosen.text == CALL

    def _opening(self) -> int:
        """Return how many tokens the opening of a call takes."""
        content, opening = self._speech.model.frames.framing.content, self._offer.writer.opening
        lead = self._offer.forms(None)[0].lead
        ways = (size for size in range(1, len(lead) + 1) if opening in content.decode(lead[:size]))
        return next(ways, None) or len(content.encode(opening))

    async def _private(
        self, forms: tuple[AnswerForm, ...] = (), peek: bool = False, hidden: bool = True, **options: Any
    ) -> Message:
        """Generate a message that nobody else may read. If it is `hidden`, no later message reads it either."""
        speech = self._speech
        only = {"choices": None, "json_schema": None, "stop": (), "stop_token_ids": ()} | options
        sampling = speech.options.model_copy(update=only)
        id = step_id(self._text, self._steps)
        self._steps += 1
        if hidden:
            self._game.messages.roster.hide(id)
        said = await self._game.turns.say(
            speech._replace(
                asked=speech.asked._replace(header="", on_token=None, tools=None),
                to=self._own,
                options=sampling.limited(sampling.max_tokens),
                forms=forms,
                peek=peek,
                id=id,
            )
        )
        known = self._game.messages.drafts[said.id].message  # untracked, because no user code looks at it
        assert known is not None
        return known

    async def _call(self, named: str | None) -> None:
        """Make one call, and its result. The agent's next message reads both."""
        if self._speech.port is not None and named is None and len(self._offer.tools) > 1:
            named = (await self._private(choices=tuple(self._offer.tools))).text  # servers take one object, not several
            self._again()
        forms, most = self._offer.forms(named), max(LEAST, self._speech.options.max_tokens)
        if self._speech.port is None:
            said = await self._private(forms, hidden=False, max_tokens=most)
        else:
            said = await self._private(hidden=False, json_schema=_plain(forms[0].schema or {}), max_tokens=most)
        before, written, made = self._read(said)
        tool = self._offer.tools[made.name]
        declared = tool.declared
        use = ToolUse(tool.name, declared.audience, declared.effect, declared.trusted, tool.client)
        results = declared.results
        to = self._own if results is None else self._game.messages.audience(self._author, results)
        ids = self._result_ids(said.id, to)
        calls = tuple(
            call._replace(id=call.id or made_up_id(ids[0] if call is made else f"{said.id} {place}"))
            for place, call in enumerate(written)
        )
        call = calls[written.index(made)]
        if self._offer.writer.auto:
            self._game.messages.drafts[said.id].said = ChatMessage("assistant", before, calls=calls)
        charge = self._game.turns.charge_result(self._speech._replace(to=to))
        self._game.messages.check_call(said.id, use, self._speech.asked.release)
        self._follow(said.id)
        pending = PendingResult(call=said.id, ids=ids, use=use, to=to, charge=charge)
        self._follow(await self._result(tool, call, pending))

    def _read(self, said: Message) -> tuple[str, tuple[ToolCall, ...], ToolCall]:
        """Return the text before the calls, all calls, and the one that is made."""
        before, calls = self._offer.writer.read(said.text)
        known = next((call for call in calls if call.name in self._offer.tools), None)
        if known is None:
            raise AnswerInvalid(
                f"{self._author} was forced to say something that is not a call of its tools ({said.id}); "
                "force a valid call"
            )
        return before, tuple(calls), known

    def _result_ids(self, call: str, to: Audience) -> tuple[str, str]:
        """Return the id of the result of a call, and its id if the call is cancelled, which only the caller reads."""
        own = f"{call}.result"
        if to == self._own:
            return own, own
        self._told[to] += 1
        return result_id(self._text, to, self._told[to] - 1), own

    def _follow(self, id: str) -> None:
        """Let the agent's next messages read that message too."""
        reads = self._speech.reads
        more = reads._replace(reads=(*reads.reads, Read(id, reads.new_at)), new_at=None)
        self._speech = self._speech._replace(reads=more)

    async def _result(self, tool: Tool, call: ToolCall, come: PendingResult) -> str:
        """Return the message with the result of a call: the recorded one, or that of a call that is made now.

        If the call is cancelled, the agent reads a result that says so before it next reads the call.
        """
        messages, writer, (id, own) = self._game.messages, self._offer.writer, come.ids
        release, text = self._speech.asked.release, failed("cancelled", CANCELLED).text
        cancelled, ids = writer.result(text, call.id, tool.name)
        told = KnownTextMessage(SCENARIO, "tool", self._own, cancelled, UNREAD, self._speech.model, ids, id=own)
        told = told._replace(called=(come.call, come.use, release), charge=come.charge)
        said = ChatMessage("tool", text, tool.name, call_id=call.id) if writer.auto else None
        told = told._replace(said=said)
        written = messages.recorded.result(id) or messages.recorded.result(own)
        try:
            if written is None:
                making = ToolCallAttempt(tool, call.arguments, come.call, self._author, come.use, release)
                returned = await self._game.calls.make(making)
                written = writer.result(returned.text, call.id, tool.name)
            elif written[0] == cancelled:
                await self._game.calls.wait(self._author)
        except anyio.get_cancelled_exc_class():
            messages.unanswered.setdefault(self._author, []).append(told)
            messages.taint.notice([messages.drafts[come.call].metadata])
            raise
        told = told._replace(id=id)
        try:
            return messages.put(self._saying(told, come.to, written))
        except ContextOverflow as error:
            text = failed("large", str(error)).text
            return messages.put(self._saying(told, come.to, writer.result(text, call.id, tool.name)))

    def _saying(
        self, told: KnownTextMessage, to: Audience, written: tuple[str, tuple[int, ...] | None]
    ) -> KnownTextMessage:
        """Return a result message with the given words."""
        text, ids, said = *written, told.said
        if said is not None:
            said = said._replace(text=self._offer.writer.returned(text, said.call_id, said.name or ""))
        return told._replace(to=to, text=text, ids=ids, said=said)


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without keywords that only agentcho's own grammar compiler reads."""
    return {key: value for key, value in json.loads(json.dumps(schema)).items() if not key.startswith("x-")}
