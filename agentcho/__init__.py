"""agentcho: societies of language-model agents on one shared key-value cache of messages.

Names load on first use, so that `import agentcho` is quick and imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from logging import NullHandler, getLogger
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentcho.agent import Agent
    from agentcho.canonical import canonical_transcript
    from agentcho.choreographer import Choreographer
    from agentcho.cli.script import run
    from agentcho.config import Limits, RunConfig
    from agentcho.engine import Engine
    from agentcho.errors import AgentchoError
    from agentcho.game import Game
    from agentcho.message import EVERYONE, Audience, Message, Metadata
    from agentcho.replayer import replay
    from agentcho.request import Decode, First, Most, Prefill, Repair, Sampling
    from agentcho.scenario import Judged, Scenario
    from agentcho.tasks import Concepts, Problem, task_set
    from agentcho.visibility import After, Read, View

__all__ = [
    "EVERYONE",
    "After",
    "Agent",
    "AgentchoError",
    "Audience",
    "Choreographer",
    "Concepts",
    "Decode",
    "Engine",
    "First",
    "Game",
    "Judged",
    "Limits",
    "Message",
    "Metadata",
    "Most",
    "Prefill",
    "Problem",
    "Read",
    "Repair",
    "RunConfig",
    "Sampling",
    "Scenario",
    "View",
    "canonical_transcript",
    "replay",
    "run",
    "task_set",
]


def _homes() -> dict[str, str]:
    """The module that defines each name of `__all__`."""
    return {
        "Agent": "agent", "AgentchoError": "errors", "Choreographer": "choreographer", "Engine": "engine",
        "canonical_transcript": "canonical",
        "Game": "game", "Judged": "scenario", "Scenario": "scenario", "replay": "replayer", "run": "cli.script",
        **dict.fromkeys(("Decode", "First", "Most", "Prefill", "Repair", "Sampling"), "request"),
        **dict.fromkeys(("EVERYONE", "Audience", "Message", "Metadata"), "message"),
        **dict.fromkeys(("After", "Read", "View"), "visibility"),
        **dict.fromkeys(("Limits", "RunConfig"), "config"),
        **dict.fromkeys(("Concepts", "Problem", "task_set"), "tasks"),
    }  # fmt: skip


def __getattr__(name: str) -> object:
    home = _homes().get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


getLogger("agentcho").addHandler(NullHandler())
