"""Games on engines and behind APIs, killed at any event: the record up to then is never called clean, can be resumed,
and lacks nothing that anybody read."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentcho import Agent, Game, RunConfig
from agentcho.audit import AuditReport, audit_run
from agentcho.errors import LeakageError
from agentcho.events import Event
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.message import Message
from agentcho.protocol.call import EnginePort
from agentcho.records.record import SavedRun
from agentcho.records.writer_lock import NAME
from agentcho.testing import FakeEndpoint, FakeEngine

from .stage import Script, Scripted

NAMES = ("ann", "bob", "eve")
AUDIENCES: tuple[Any, ...] = ("everyone", ["ann"], ["bob"], ["ann", "bob"], [])
WAYS = (("choreographed", "enforce"), ("choreographed", "deny"), ("baseline", "audit"))


def talk(dice: random.Random) -> Script:
    """A random game: who speaks, through which model, how and to whom; some messages are cut short or refused."""
    models, verbs = ("default", "near", "far", "other"), ("say", "say", "tell", "ask", "round", "release", "cut")
    turns = [tuple(map(dice.choice, (NAMES, models, verbs, AUDIENCES))) for _ in range(dice.randrange(3, 14))]

    async def script(game: Game) -> None:
        agents = {name: game.cast(Agent, name, system=f"You are {name}.") for name in NAMES}
        said: dict[str, Message] = {}
        for name, model, verb, to in turns:
            agents[name].model = model
            with suppress(LeakageError):
                await turn(game, agents, name, verb, to, said)

    async def turn(
        game: Game, agents: dict[str, Agent], name: str, verb: str, to: Any, said: dict[str, Message]
    ) -> None:
        agent, other = agents[name], agents[NAMES[NAMES.index(name) - 1]]
        match verb:
            case "tell":
                await agent.tell("Known words.", to=to)
            case "round":
                await game.together(agent.say(to=to), other.say(to="everyone"))
            case "release" if name in said:
                await agent.release(said[name], to="everyone")
            case "cut":
                with anyio.move_on_after(0):
                    await agent.say(to=to)
            case _:
                said[name] = await agent.say(to=to, prompt="Why?" if verb == "ask" else None)

    return script


def models() -> dict[str, Any]:
    return {"near": FakeEngine(), "far": FakeEndpoint(vendor="A"), "other": FakeEndpoint(vendor="B", name="b")}


def unlabelled(report: AuditReport) -> bool:
    return any(finding.rule == "AC004" for finding in report.findings)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 60))])
def test_what_was_killed_is_not_clean_and_goes_on(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    script, at, (mode, leakage) = talk(dice), dice.randrange(1, 120), dice.choice(WAYS)
    config: Any = {"model": "fake", "mode": mode, "leakage": leakage, "allow_vendor": ("A", "B"), "max_tokens": 6}
    heard, killed = list[Event](), tmp_path / "killed"

    def hear(event: Event) -> None:
        heard.append(event)
        if len(heard) == at:
            [record] = (tmp_path / "runs").iterdir()
            shutil.copytree(record, killed)
            (killed / NAME).unlink()

    engine: EnginePort = FakeEngine()
    played = play(
        RunRequest(
            Scripted(script), RunConfig(**config), engine=engine, others=models(), sink=hear, out=tmp_path / "runs"
        )
    )
    assert not played.errors
    assert played.record is not None
    whole = SavedRun(played.record)
    asked = any(entry.engine in ("far", "other") and entry.message.kind == "decode" for entry in whole.entries())
    assert audit_run(whole).conclusion in {"texts-clean" if asked else "clean", "inconclusive"}
    if killed.exists():
        left = audit_run(SavedRun(killed))
        assert (left.conclusion, unlabelled(left)) == ("inconclusive", False)
        assert not play(
            RunRequest.resuming(SavedRun(killed), Scripted(script), engine=FakeEngine(), others=models())
        ).errors
        assert not unlabelled(audit_run(SavedRun(killed)))
