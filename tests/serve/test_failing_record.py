"""Records that cannot be written: the client concerned gets an error, and no other client is affected."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcho import RunConfig
from agentcho.audit.audit import audit_run
from agentcho.cli.serve_run import FILES
from agentcho.errors import CannotWrite
from agentcho.records.record import RunRecord, runs
from agentcho.records.transcript import TranscriptEntry
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Caller, ChatRequest
from tests.serve.stage import agent, play, served, user

ANN, BOB, STRANGER = agent("ann"), agent("bob"), agent("eve", "village", "another")


class Disk:
    """A disk that can be full."""

    def __init__(self, patch: pytest.MonkeyPatch, *methods: str) -> None:
        self.full = False
        for name in methods:
            patch.setattr(RunRecord, name, self._checked(getattr(RunRecord, name)))

    def _checked(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*args: Any) -> Any:
            if self.full:
                raise CannotWrite(Path("somewhere"), "no space is left")
            return write(*args)

        return checked


def test_a_society_whose_record_cannot_be_ended_hurts_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, "over")

    async def body() -> None:
        async with served(tmp_path, idle=0.0) as at:
            await at.ask(user("hello"), who=ANN, max_tokens=4)
            disk.full = True
            at.model.end_idle()
            assert at.model.society_info(ANN) is None
            await at.ask(user("hello"), who=agent("ann", "other"), max_tokens=4)
            await at.ask(user("hello"), who=STRANGER, max_tokens=4)
            disk.full = False

    play(body)
    assert sorted(run.status for run in runs(tmp_path)) == ["done", "failed", "failed"]


def test_there_are_no_more_records_at_a_time_than_files_for_them(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, records=2) as at:
            for name in ("one", "two", "three"):
                await at.ask(user("hello"), who=agent("ann", name), max_tokens=4)
            assert at.model.society_info(agent("ann", "one")) is None
            await at.ask(user("hello"), who=STRANGER, max_tokens=4)
            with pytest.raises(ApiError, match="no room") as told:
                await at.ask(user("hello"), who=agent("sue", "village", "third"), max_tokens=4)
            assert (told.value.status, told.value.retry_after) == (503, 5)
            assert at.model.society_info(agent("ann", "three")) is not None

    play(body)
    before = len(os.listdir("/dev/fd"))
    record = RunRecord.create(tmp_path, "it", {}, RunConfig(model="fake"), {})
    assert len(os.listdir("/dev/fd")) - before <= FILES
    record.close("done")


def test_where_records_are_few_the_tenant_with_most_societies_gives_its_least_recent_one_up(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path, records=4) as at:

            def left(*callers: Caller) -> list[bool]:
                return [at.model.society_info(each) is not None for each in callers]

            many = [agent("ann", name) for name in ("one", "two", "three", "four")]
            for who in (*many, many[0]):
                await at.ask(user("hello"), who=who, max_tokens=4)
            await at.ask(user("hello"), who=STRANGER, max_tokens=4)
            assert left(*many, STRANGER) == [True, False, True, True, True]
            await at.ask(user("hello"), who=STRANGER._replace(society="hamlet"), max_tokens=4)
            assert left(*many, STRANGER) == [True, False, False, True, True]
            await at.ask(user("hello"), who=STRANGER._replace(society="farm"), max_tokens=4)
            assert left(*many, STRANGER) == [True, False, False, True, False]

    play(body)


def test_after_a_write_that_failed_the_society_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, "said")

    async def body() -> None:
        async with served(tmp_path) as at:
            await at.ask(user("hello"), who=ANN, max_tokens=4)
            request = ChatRequest((user("hello"), user("and now")), max_tokens=4)
            with pytest.raises(CannotWrite):
                await at.model.answer(BOB, request, lambda delta: setattr(disk, "full", True))
            disk.full = False
            again = await at.ask(user("hello"), user("and now"), who=BOB, max_tokens=4)
            assert again.answers[0].text

    play(body)
    assert [run.status for run in runs(tmp_path)] in (["failed", "done"], ["done", "failed"])
    assert all(audit_run(run).conclusion != "findings" for run in runs(tmp_path))


def test_a_disk_that_was_full_for_one_answer_ends_no_society_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer's encodings were registered when its line could not be written; the next line can be."""
    said = RunRecord.said

    def once(record: RunRecord, entry: TranscriptEntry) -> None:
        if entry.message.kind == "decode" and entry.message.author == "bob" and not failed:
            failed.append(entry)
            raise CannotWrite(Path("somewhere"), "no space is left")
        said(record, entry)

    failed = list[TranscriptEntry]()
    monkeypatch.setattr(RunRecord, "said", once)

    async def body() -> None:
        async with served(tmp_path) as at:
            one = await at.ask(user("hello"), who=ANN, max_tokens=4)
            quoted = user("hello"), user(one.answers[0].text), user("and you")
            with pytest.raises(CannotWrite):
                await at.ask(*quoted, who=BOB, max_tokens=4)
            await at.ask(*quoted, who=BOB, max_tokens=4)

    play(body)
    assert sorted(run.status for run in runs(tmp_path)) == ["done", "failed"]
