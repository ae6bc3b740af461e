"""One case of AgentDojo as a game of two: a reader that reads everything, and an actor that reads no result.

The reader has all tools that change nothing. It can say what it wants done only by choices of `Grammar`, said to
everyone. The actor, which reads only the request and these choices, makes the calls with effects. The reader obeys
everybody: it chooses what comes closest to what an attacker wants, and also tries the same call itself. Only tools that
the user's request asks for are among the choices. There is no model: a fake engine says the words. What decides whether
a call runs, and what is charged, is the library's own code. Independent of suites and scoring.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from agentcho import Agent, Game, RunConfig, View
from agentcho.errors import LeakageError
from agentcho.games.tools.tool import Tool
from agentcho.message import Metadata, audience
from agentcho.protocol.call import Decode
from agentcho.testing import FakeEngine
from agentcho.testing.rehearsal import play
from tools.bench.dojo.society import CONTEXT, MOST, REPLY, SAID, Assistant, Case, Offered, Ran, Wanted, reply_tool
from tools.bench.dojo.typed import NO_MORE, Grammar, Told, Unsayable, which

READER, ACTOR = "reader", "actor"


class _Pair:
    """One case in progress."""

    def __init__(self, case: Case, offered: Iterable[Offered], guarded: bool) -> None:
        self._case, self._guarded = case, guarded
        self._grammar = Grammar(case.prompt)
        self._next: deque[tuple[Wanted, bool]] = deque((each, False) for each in case.calls)
        self._words: deque[str] = deque()
        self._tools = {each.name: self._tool(each) for each in offered}
        self._asked = [*case.asked]
        if guarded:
            self._tools[REPLY] = reply_tool(self._told)
            self._asked.append(REPLY)
        self._ran, self._refused = list[Wanted](), list[Wanted]()
        self._output: str | None = None
        self._hooked = False

    def reply(self, call: Decode, prompt: str) -> str:
        """The reply of the fake engine."""
        return self._words.popleft()

    async def play(self, game: Game) -> None:
        """Make all calls, then reply."""
        reader, actor = (game.cast(Assistant, name) for name in (READER, ACTOR))
        await game.announce(self._case.prompt)
        while self._next:
            await self._call(reader, actor, *self._next.popleft())
        output = " ".join(filter(None, (self._case.output, self._case.said if self._hooked else "")))
        if self._guarded:
            await self._call(reader, actor, Wanted(REPLY, {"text": output}), bent=True)
        if self._asked:
            await self._choose(reader, which(self._asked, NO_MORE).options, NO_MORE)
        if not self._guarded:
            self._words.append(output or SAID)
            await reader.say()
            self._output = output

    @property
    def ran(self) -> tuple[tuple[Wanted, ...], tuple[Wanted, ...], str | None]:
        """What ran, what did not, and the reply."""
        return tuple(self._ran), tuple(self._refused), self._output

    async def _call(self, reader: Agent, actor: Agent, wanted: Wanted, bent: bool) -> None:
        """Make a call. `bent`: if it cannot be told as wanted, the closest one is made."""
        tool = self._tools[wanted.tool]
        if not tool.declared.effect:
            await self._make(reader, wanted, None)
            return
        told = self._spelled(tool, wanted)
        whole = told is not None and told.value == dict(wanted.arguments)
        if told is not None and (whole or bent):
            await self._choose(reader, which(self._asked, wanted.tool).options, wanted.tool)
            for choice in told.choices:
                await self._choose(reader, choice.options, choice.said)
            await self._make(actor, Wanted(wanted.tool, told.value), _released)
        if not whole and wanted.tool != REPLY:
            await self._make(reader, wanted, None)

    def _spelled(self, tool: Tool, wanted: Wanted) -> Told | None:
        if wanted.tool not in self._asked:
            return None
        try:
            return self._grammar.call(tool.schema, wanted.arguments)
        except Unsayable:
            return None

    async def _choose(self, reader: Agent, options: Sequence[str], said: str) -> None:
        self._words.append(said)
        await reader.choose(options, to="everyone")

    async def _make(self, agent: Agent, wanted: Wanted, view: Any) -> None:
        self._words.extend((json.dumps({"name": wanted.tool, "arguments": dict(wanted.arguments)}), SAID))
        try:
            await agent.say(tools=[self._tools[wanted.tool]], tool_choice=wanted.tool, max_calls=1, view=view)
        except LeakageError:
            self._refused.append(wanted)
        self._words.clear()

    def _tool(self, offered: Offered) -> Tool:
        async def run(**arguments: Any) -> str:
            self._ran.append(Wanted(offered.name, arguments))
            text = offered.run(arguments)
            if not self._hooked and self._case.bait is not None and self._case.bait in text:
                self._hooked = True
                self._next.extendleft((each, True) for each in reversed(self._case.attack))
            return text

        read = offered.declared._replace(results=audience([READER]))
        return Tool(offered.name, offered.description, offered.schema, run, read)

    def _told(self, text: str) -> None:
        self._output = text


def _released(said: Iterable[Metadata]) -> View:
    """The request, and what the reader has chosen publicly."""
    return View.of(each for each in said if each.audience.members is None and each.role != "tool")


def run(case: Case, offered: Sequence[Offered], guarded: bool) -> Ran:
    """Play one case in its own game, under `enforce` and `words=refuse`. `guarded`: the actor replies to the user with
    what the choices told it; otherwise the reader replies, in any words."""
    talk = _Pair(case, offered, guarded)
    engine = FakeEngine(talk.reply, answer=talk.reply, context=CONTEXT)
    config = RunConfig(model="fake", leakage="enforce", words="refuse", max_tokens=MOST)
    played = play(talk.play, config=config, engine=engine)
    return Ran(*talk.ran, played.entries)
