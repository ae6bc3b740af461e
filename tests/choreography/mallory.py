"""A hostile game that tries to harm the others on its choreographer: invalid arguments for every verb.

Each act raises one of our errors, or, for those in `FINE`, is valid but cancelled or given up. Independent of engines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import anyio

from agentcho import Agent, Choreographer, Game, Prefill
from agentcho.choreography.requests import Request
from agentcho.message import Message
from agentcho.protocol.call import EncodingId
from agentcho.provenance.views import After, Read, View

from .attacks import LONE, Odd, attacks, unread, wrong_options
from .stage import speech

Act = Callable[["Mallory"], Awaitable[object]]
FINE = ("broken off", "given up at once")


class Talker(Agent):
    """An agent that some acts cast."""

    audience = "everyone"


class Mallory:
    """The hostile agent of one game, with a message of its own and two encodings."""

    def __init__(self, c: Choreographer, game: Game, agent: Agent, said: Message, ids: tuple[EncodingId, ...]) -> None:
        self.c, self.game, self.agent, self.said, self.ids = c, game, agent, said, ids


def acts() -> dict[str, Act]:
    """All of its acts by name."""
    found: dict[str, Act] = {f"call {name}": partial(_call, attack) for name, attack in attacks().items()}
    found |= {f"say {name}": partial(_say, wrong) for name, wrong in wrong_options().items()}
    return found | _requests() | _words() | _views() | _others()


async def _call(attack: Any, m: Mallory) -> object:
    calls, turn = attack(m.ids)
    return await m.c.run(Request(calls, (7,), turn=turn))


async def _say(options: dict[str, Any], m: Mallory) -> object:
    return await m.agent.say(**options)


def _raising(anything: object) -> None:
    raise ZeroDivisionError("nobody listens")


def _requests() -> dict[str, Act]:
    whole: Any = Request((Prefill("x"),), (7,))
    wrong: dict[str, Any] = {
        "no request": None,
        "a text": "say",
        "an order of nothing": whole._replace(order=(None,)),
        "an order of objects": whole._replace(order=(object(), 1)),
        "an order that is none": whole._replace(order=5),
        "an odd order": whole._replace(order=(Odd(2**64),)),
        "an unread order": whole._replace(order=unread()),
        "no ear": whole._replace(on_token=5),
        "no ear at the end": whole._replace(on_done="done"),
        "exact in words": whole._replace(exact="yes"),
        "an ear that fails": speech(3)._replace(on_token=_raising),
        "an ear that fails at the end": whole._replace(on_done=_raising),
        "an order of words among numbers, and no turn": whole._replace(order=("a", 1), turn=None),
    }
    return {f"request {name}": partial(_request, request) for name, request in wrong.items()}


async def _request(request: Any, m: Mallory) -> object:
    return await m.c.run(request)


def _words() -> dict[str, Act]:
    wrong: dict[str, Callable[[Any], Any]] = {
        "a lone prompt": lambda m: m.agent.say(prompt=LONE),
        "a prompt of numbers": lambda m: m.agent.say(prompt=5),
        "a lone header": lambda m: m.agent.say(header=LONE),
        "no header": lambda m: m.agent.say(header=None),
        "an option nobody has": lambda m: m.agent.think(loudness=3),
        "tell a lone one": lambda m: m.agent.tell(LONE),
        "tell a number": lambda m: m.agent.tell(5),
        "tell as a wizard": lambda m: m.agent.tell("x", role="wizard"),
        "tell as nobody": lambda m: m.agent.tell("x", role=None),
        "tell as a list": lambda m: m.agent.tell("x", role=[]),
        "announce a number": lambda m: m.game.announce(5),
        "announce a lone one": lambda m: m.game.announce(LONE),
        "announce as a wizard": lambda m: m.game.announce("x", role="wizard"),
        "announce to a number": lambda m: m.game.announce("x", to=5),
        "announce to nobody known": lambda m: m.game.announce("x", to=["nobody"]),
        "say to a number": lambda m: m.agent.say(to=5),
        "say to lists": lambda m: m.agent.say(to=[["mallory"]]),
        "say to a stranger": lambda m: m.agent.say(to="stranger"),
        "choose nothing": lambda m: m.agent.choose([]),
        "choose none": lambda m: m.agent.choose(None),
        "choose a text": lambda m: m.agent.choose("yes"),
        "choose numbers": lambda m: m.agent.choose([1, 2]),
        "choose a lone one": lambda m: m.agent.choose([LONE]),
        "choose what is unread": lambda m: m.agent.choose(unread()),
        "answer a number": lambda m: m.agent.answer(int),
        "answer nothing": lambda m: m.agent.answer(None),
        "release nothing": lambda m: m.agent.release(None),
        "release an id": lambda m: m.agent.release("mallory.0"),
        "release a forged one": lambda m: m.agent.release(replace(m.said, id="alice.0")),
        "release one of no name": lambda m: m.agent.release(replace(m.said, id=5)),
        "release to a number": lambda m: m.agent.release(m.said, to=5),
    }
    return dict(wrong)


def _views() -> dict[str, Act]:
    wrong: dict[str, Any] = {
        "a number": 5,
        "a text": "everything",
        "a list": ["mallory.0"],
        "of nothing": lambda readable: None,
        "of texts": lambda readable: View(("mallory.0",)),  # type: ignore[arg-type]
        "of numbers": View(5),  # type: ignore[arg-type]
        "unread": View(unread()),  # type: ignore[arg-type]
        "of strangers": View((Read("stranger.0"),)),
        "of no ids": View((Read(5),)),  # type: ignore[arg-type]
        "placed below": View((Read("mallory.0", -1),)),
        "placed past all bounds": View((Read("mallory.0", 10**5000),)),
        "placed in words": View((Read("mallory.0", "leftmost"),)),  # type: ignore[arg-type]
        "placed in truth": View((Read("mallory.0", True),)),
        "placed oddly": View((Read("mallory.0", Odd(5)),)),
        "placed after a stranger": View((Read("mallory.0", After("stranger.0")),)),
        "placed after by words": View((Read("mallory.0"),), After("mallory.0", "far")),  # type: ignore[arg-type]
        "placed far": View((Read("mallory.0", 10**6),)),
    }
    return {f"view {name}": partial(_view, view) for name, view in wrong.items()}


async def _view(view: Any, m: Mallory) -> object:
    return await m.agent.think(view=view)


def _others() -> dict[str, Act]:
    return {
        "cast a number": _later(lambda m: m.game.cast(5)),
        "cast in haste": _later(lambda m: m.game.cast(Talker, "hasty", priority="high")),
        "cast without rank": _later(lambda m: m.game.cast(Talker, "ranked", priority=None)),
        "cast a lone system": _later(lambda m: m.game.cast(Talker, "lonely", system=LONE)),
        "cast a system of numbers": _later(lambda m: m.game.cast(Talker, "counted", system=5)),
        "release what is not held": _later(lambda m: m.c.release([10**9])),
        "release a truth": _later(lambda m: m.c.release([True])),
        "release lists": _later(lambda m: m.c.release([[]])),
        "release a number": _later(lambda m: m.c.release(5)),
        "swap out a number": _later(lambda m: m.c.swap_out(5)),
        "speak out of turn": _hasty,
        "broken off": _broken_off,
        "given up at once": _given_up,
    }


def _later(do: Callable[[Any], object]) -> Act:
    async def act(m: Mallory) -> object:
        return do(m)

    return act


async def _hasty(m: Mallory) -> object:
    m.agent.priority = "high"  # type: ignore[assignment]
    try:
        return await m.agent.think(max_tokens=3)
    finally:
        m.agent.priority = 0


async def _broken_off(m: Mallory) -> object:
    """A request is cancelled while it runs."""
    with anyio.CancelScope() as scope:
        await m.c.run(speech(9)._replace(on_token=lambda text: scope.cancel()))
    return None


async def _given_up(m: Mallory) -> object:
    """A call is made and released."""
    made = await m.c.run(Request((Prefill("made and given up"),), (7,)))
    m.c.release([call.id for call in made.made])
    return None
