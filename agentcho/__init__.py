"""agentcho: societies of language-model agents on one shared key-value cache of messages.

Names load on first use, so that `import agentcho` is quick and does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from logging import NullHandler, getLogger
from typing import TYPE_CHECKING
from warnings import warn

from agentcho.moved import install

if TYPE_CHECKING:
    from agentcho.agent import Agent
    from agentcho.api import arun, compare, load, run, sweep
    from agentcho.choreography.choreographer import Choreographer
    from agentcho.config import Limits, ModelConfig, RunConfig
    from agentcho.errors import (
        AdapterError,
        AgentchoError,
        AnswerInvalid,
        ArgumentError,
        AudienceError,
        AudienceWarning,
        CallbackFailed,
        CallFailed,
        CannotWrite,
        ConfigError,
        ContextOverflow,
        EndpointFailed,
        EngineBusy,
        EngineClosed,
        EngineFailed,
        ExtraMissing,
        GamesFailed,
        LeakageError,
        LimitReached,
        ModelBroken,
        ModelError,
        ModelNotFound,
        Overloaded,
        PersonLeft,
        RecordBroken,
        RecordError,
        RecordInUse,
        RecordNotFound,
        RequestError,
        ResumeMismatch,
        ScenarioError,
        ScenarioNotFound,
        StoreDamaged,
        StoreFull,
        TaskError,
        ToolFailed,
        TuneError,
        UnknownEncoding,
        UnsupportedModel,
        WorkersLost,
    )
    from agentcho.games.play.game import Game
    from agentcho.games.play.people import Person, PersonPrompt
    from agentcho.games.results.played import Played, PlayedGame
    from agentcho.games.results.table import Table
    from agentcho.games.runs.replay import replay
    from agentcho.games.tools.mcp_server import MCPServer
    from agentcho.games.tools.tool import Tool, tool
    from agentcho.message import EVERYONE, Audience, Message, Metadata
    from agentcho.protocol.call import Decode, Prefill, Repair, Sampling
    from agentcho.protocol.speculation_corpus import Corpus
    from agentcho.provenance.views import After, Read, View
    from agentcho.records.canonical import canonical_transcript
    from agentcho.reuse.anchors import Anchor
    from agentcho.reuse.ape import Ape
    from agentcho.reuse.cacheblend import CacheBlend
    from agentcho.reuse.ends import Ends
    from agentcho.reuse.epic import Epic
    from agentcho.reuse.first_k import FirstK
    from agentcho.reuse.full import Full
    from agentcho.reuse.kvcomm import KVComm
    from agentcho.reuse.top_k import TopK
    from agentcho.runner.engine import Engine
    from agentcho.scenario import Judged, Scenario
    from agentcho.tasks import Concepts, Problem, Vault, Vignette, task_set

__all__ = [
    "EVERYONE",
    "AdapterError",
    "After",
    "Agent",
    "AgentchoError",
    "Anchor",
    "AnswerInvalid",
    "Ape",
    "ArgumentError",
    "Audience",
    "AudienceError",
    "AudienceWarning",
    "CacheBlend",
    "CallFailed",
    "CallbackFailed",
    "CannotWrite",
    "Choreographer",
    "Concepts",
    "ConfigError",
    "ContextOverflow",
    "Corpus",
    "Decode",
    "EndpointFailed",
    "Ends",
    "Engine",
    "EngineBusy",
    "EngineClosed",
    "EngineFailed",
    "Epic",
    "ExtraMissing",
    "FirstK",
    "Full",
    "Game",
    "GamesFailed",
    "Judged",
    "KVComm",
    "LeakageError",
    "LimitReached",
    "Limits",
    "MCPServer",
    "Message",
    "Metadata",
    "ModelBroken",
    "ModelConfig",
    "ModelError",
    "ModelNotFound",
    "Overloaded",
    "Person",
    "PersonLeft",
    "PersonPrompt",
    "Played",
    "PlayedGame",
    "Prefill",
    "Problem",
    "Read",
    "RecordBroken",
    "RecordError",
    "RecordInUse",
    "RecordNotFound",
    "Repair",
    "RequestError",
    "ResumeMismatch",
    "RunConfig",
    "Sampling",
    "Scenario",
    "ScenarioError",
    "ScenarioNotFound",
    "StoreDamaged",
    "StoreFull",
    "Table",
    "TaskError",
    "Tool",
    "ToolFailed",
    "TopK",
    "TuneError",
    "UnknownEncoding",
    "UnsupportedModel",
    "Vault",
    "View",
    "Vignette",
    "WorkersLost",
    "arun",
    "canonical_transcript",
    "compare",
    "load",
    "replay",
    "run",
    "sweep",
    "task_set",
    "tool",
]


HOMES = {
    "agent": ["Agent"],
    "api": ["arun", "compare", "load", "run", "sweep"],
    "choreography.choreographer": ["Choreographer"],
    "config": ["Limits", "ModelConfig", "RunConfig"],
    "errors": [
        "AdapterError",
        "AgentchoError",
        "AnswerInvalid",
        "ArgumentError",
        "AudienceError",
        "AudienceWarning",
        "CallFailed",
        "CallbackFailed",
        "CannotWrite",
        "ConfigError",
        "ContextOverflow",
        "EndpointFailed",
        "EngineBusy",
        "EngineClosed",
        "EngineFailed",
        "ExtraMissing",
        "GamesFailed",
        "LeakageError",
        "LimitReached",
        "ModelBroken",
        "ModelError",
        "ModelNotFound",
        "Overloaded",
        "PersonLeft",
        "RecordBroken",
        "RecordError",
        "RecordInUse",
        "RecordNotFound",
        "RequestError",
        "ResumeMismatch",
        "ScenarioError",
        "ScenarioNotFound",
        "StoreDamaged",
        "StoreFull",
        "TaskError",
        "ToolFailed",
        "TuneError",
        "UnknownEncoding",
        "UnsupportedModel",
        "WorkersLost",
    ],
    "games.play.game": ["Game"],
    "games.play.people": ["Person", "PersonPrompt"],
    "games.results.played": ["Played", "PlayedGame"],
    "games.results.table": ["Table"],
    "games.runs.replay": ["replay"],
    "games.tools.mcp_server": ["MCPServer"],
    "games.tools.tool": ["Tool", "tool"],
    "message": ["EVERYONE", "Audience", "Message", "Metadata"],
    "protocol.call": ["Decode", "Prefill", "Repair", "Sampling"],
    "protocol.speculation_corpus": ["Corpus"],
    "provenance.views": ["After", "Read", "View"],
    "records.canonical": ["canonical_transcript"],
    "reuse.anchors": ["Anchor"],
    "reuse.ape": ["Ape"],
    "reuse.cacheblend": ["CacheBlend"],
    "reuse.ends": ["Ends"],
    "reuse.epic": ["Epic"],
    "reuse.first_k": ["FirstK"],
    "reuse.full": ["Full"],
    "reuse.kvcomm": ["KVComm"],
    "reuse.top_k": ["TopK"],
    "runner.engine": ["Engine"],
    "scenario": ["Judged", "Scenario"],
    "tasks": ["Concepts", "Problem", "Vault", "Vignette", "task_set"],
}
"""The modules that define the names of `__all__`."""
MOVED: dict[str, str] = {
    "Asked": "PersonPrompt",
    "Blend": "CacheBlend",
    "First": "FirstK",
    "Most": "TopK",
}
"""Replacements for names of version 0.4, by old name: another name of `__all__`, or a module of the package and a name
in it, such as "games.runtime.play". They import until version 0.6. Old names are in no other list here, and type
checkers do not know them."""


def __getattr__(name: str) -> object:
    if name in MOVED:
        return _moved(name)
    home = next((module for module, names in HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def _moved(name: str) -> object:
    """Return what replaced a name, with a `DeprecationWarning` at the place that uses the old one."""
    module, _, new = MOVED[name].rpartition(".")
    told = f"{__name__}.{name} is now {__name__}.{MOVED[name]}; the old name is removed in 0.6"
    warn(told, DeprecationWarning, stacklevel=3)
    return getattr(import_module(f"{__name__}.{module}" if module else __name__), new)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


install()
getLogger("agentcho").addHandler(NullHandler())
