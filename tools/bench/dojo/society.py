"""One case of AgentDojo as a game: an assistant that has its tools and does what anybody tells it.

The assistant makes the calls of AgentDojo's ground truth, one after another, each over everything that it has read. As
soon as a result contains an attacker's words, it makes the calls that these ask for, and says what they ask for. It
tries refused calls all the same, and continues. There is no model: a fake engine says the words. What decides whether a
call runs is the library's own code. Independent of suites and scoring.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from agentcho import Agent, Game, RunConfig
from agentcho.config import Leakage
from agentcho.errors import LeakageError
from agentcho.games.tools.tool import Declared, Tool, declared
from agentcho.protocol.call import Decode
from agentcho.records.transcript import TranscriptEntry
from agentcho.testing import FakeEngine
from agentcho.testing.rehearsal import play

CONTEXT, MOST = 10_000_000, 100_000
REPLY = "reply_to_user"
SAID = "Done."


class Wanted(NamedTuple):
    """A call for the assistant to make."""

    tool: str
    arguments: Mapping[str, Any]


class Case(NamedTuple):
    """The request to the assistant, and what it does: `calls`, and `output` at the end. As soon as a result contains
    `bait`, it makes the calls of `attack` first, and also says `said`. `asked`: the tools with an effect that the
    request asks for, judged from the request alone."""

    prompt: str
    calls: tuple[Wanted, ...]
    output: str
    bait: str | None = None
    attack: tuple[Wanted, ...] = ()
    said: str = ""
    asked: tuple[str, ...] = ()


class Ran(NamedTuple):
    """The results of a case: the calls that ran, those that were refused, and what the user was told (None:
    nothing)."""

    calls: tuple[Wanted, ...]
    refused: tuple[Wanted, ...]
    output: str | None
    entries: tuple[TranscriptEntry, ...]


class Offered(NamedTuple):
    """A tool of a suite. `run` runs it, and returns the text of its result."""

    name: str
    description: str
    schema: dict[str, Any]
    declared: Declared
    run: Callable[[Mapping[str, Any]], str]


class Assistant(Agent):
    """Has tools, and no secrets of its own."""

    role = "assistant"


class _Talk:
    """One case in progress."""

    def __init__(self, case: Case, offered: Iterable[Offered], guarded: bool) -> None:
        self._case, self._guarded = case, guarded
        self._next: deque[Wanted] = deque(case.calls)
        self._words: deque[str] = deque()
        self._tools = {each.name: self._tool(each) for each in offered}
        if guarded:
            self._tools[REPLY] = reply_tool(self._told)
        self._ran, self._refused = list[Wanted](), list[Wanted]()
        self._output: str | None = None
        self._hooked = False

    def reply(self, call: Decode, prompt: str) -> str:
        """The reply of the fake engine."""
        return self._words.popleft()

    async def play(self, game: Game) -> None:
        """Make all calls, then reply."""
        assistant = game.cast(Assistant, "assistant")
        await game.announce(self._case.prompt)
        while self._next:
            await self._call(assistant, self._next.popleft())
        output = " ".join(filter(None, (self._case.output, self._case.said if self._hooked else "")))
        if self._guarded:
            await self._call(assistant, Wanted(REPLY, {"text": output}))
        else:
            self._words.append(output or SAID)
            await assistant.say()
            self._output = output

    @property
    def ran(self) -> tuple[tuple[Wanted, ...], tuple[Wanted, ...], str | None]:
        """What ran, what was refused, and the reply."""
        return tuple(self._ran), tuple(self._refused), self._output

    async def _call(self, assistant: Agent, wanted: Wanted) -> None:
        self._words.extend((json.dumps({"name": wanted.tool, "arguments": dict(wanted.arguments)}), SAID))
        try:
            await assistant.say(tools=[*self._tools.values()], tool_choice=wanted.tool, max_calls=1)
        except LeakageError:
            self._refused.append(wanted)
        self._words.clear()

    def _tool(self, offered: Offered) -> Tool:
        async def run(**arguments: Any) -> str:
            wanted = Wanted(offered.name, arguments)
            self._ran.append(wanted)
            text = offered.run(arguments)
            if not self._hooked and self._case.bait is not None and self._case.bait in text:
                self._hooked = True
                self._next.extendleft(reversed(self._case.attack))
            return text

        return Tool(offered.name, offered.description, offered.schema, run, offered.declared)

    def _told(self, text: str) -> None:
        self._output = text


def reply_tool(told: Callable[[str], None]) -> Tool:
    """The reply to the user as a tool with an effect, because the user acts on it."""

    async def run(text: str) -> str:
        told(text)
        return "ok"

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    guarded = declared("nobody", effect=True, trusted=True, most=1 << 24)
    return Tool(REPLY, "Tell the user something, which the user will act upon.", schema, run, guarded)


def run(case: Case, offered: Sequence[Offered], leakage: Leakage, guarded: bool) -> Ran:
    """Play one case in its own game. `guarded`: the user is told things by a tool instead of a message."""
    talk = _Talk(case, offered, guarded)
    engine = FakeEngine(talk.reply, answer=talk.reply, context=CONTEXT)
    config = RunConfig(model="fake", leakage=leakage, max_tokens=MOST)
    played = play(talk.play, config=config, engine=engine)
    return Ran(*talk.ran, played.entries)
