"""A served model on the fake engine, and shortcuts for requests to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from agentcho import RunConfig
from agentcho.audit.audit import audit_run
from agentcho.records.record import SavedRun, runs
from agentcho.serve.request import AnswerDelta, Answers, Caller, ChatRequest, QuotedMessage
from agentcho.serve.sharing.served import ServedModel, Serving
from agentcho.testing import FakeEngine


class Asked:
    """A served model, with the deltas of the last answer in `heard`."""

    def __init__(self, model: ServedModel, folder: Path | None) -> None:
        self.model, self.folder = model, folder
        self.heard: list[AnswerDelta] = []

    async def ask(self, *messages: QuotedMessage, who: Caller | None = None, **options: Any) -> Answers:
        """Sends one request: by the agent `who` of a society, or else outside of any society."""
        self.heard.clear()
        return await self.model.answer(who or Caller(), ChatRequest(messages, **options), self.heard.append)

    @property
    def engine(self) -> FakeEngine:
        """The fake engine behind the model."""
        assert isinstance(self.model.engine, FakeEngine)
        return self.model.engine


@asynccontextmanager
async def served(folder: Path | None = None, engine: FakeEngine | None = None, **how: Any) -> AsyncIterator[Asked]:
    """Serves a model while the context lasts."""
    engine = engine or FakeEngine()
    model = ServedModel("fake", engine, RunConfig(model="fake"), Serving(record=folder, **how))
    async with model.serving():
        yield Asked(model, folder)
    assert engine.rows == 0
    assert engine.pages == 0, "something is still stored"
    engine.check_integrity()


def play(body: Callable[..., Awaitable[None]], *args: Any) -> None:
    """Runs a coroutine function to completion."""
    anyio.run(body, *args)


def saved(folder: Path) -> SavedRun:
    """The only record in a folder."""
    [run] = runs(folder)
    return run


def conclusion(folder: Path) -> str:
    """The conclusion of an audit of that record."""
    return audit_run(saved(folder)).conclusion


def system(text: str) -> QuotedMessage:
    return QuotedMessage("system", text)


def user(text: str, name: str | None = None, id: str | None = None) -> QuotedMessage:
    return QuotedMessage("user", text, name, id)


def assistant(text: str, name: str | None = None, id: str | None = None) -> QuotedMessage:
    return QuotedMessage("assistant", text, name, id)


def tool(text: str) -> QuotedMessage:
    return QuotedMessage("tool", text)


def agent(name: str | None, society: str = "town", tenant: str = "", **more: Any) -> Caller:
    return Caller(tenant, society, name, **more)
