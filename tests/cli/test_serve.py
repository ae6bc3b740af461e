"""`agentcho serve` and `agentcho key`: errors are reported before a model is loaded."""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import agentcho as agentcho_package
from agentcho import RunConfig
from agentcho.cli.serve_run import delete_old, serving_of
from agentcho.errors import CannotWrite
from agentcho.records.record import RunRecord, write_info
from agentcho.serve.config import ServeConfig, ServeLimits
from agentcho.serve.web.app import Site
from agentcho.serve.web.keys import ApiKey, ApiKeys
from agentcho.testing import FakeEngine

from .conftest import Command, one_line

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


@pytest.fixture(autouse=True)
def _mask() -> Iterator[None]:
    """Restores the umask, which the command sets for the whole process to keep files private."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_it_has_every_option_that_errors_advise_who_can_reach_its_users(agentcho: Command) -> None:
    root = Path(agentcho_package.__file__).parent
    files = [*(path for room in ("serve", "runner", "engine") for path in (root / room).rglob("*.py"))]
    text = " ".join(path.read_text() for path in (*files, root / "provenance" / "message_boundaries.py"))
    of_others = re.compile(r"`(agentcho key|agentcho doctor|llama-gguf-split)[^`]*`")
    advised = set(re.findall(r"--[a-z][a-z-]+", of_others.sub("", text)))
    assert {"--keys", "--port", "--plain-markers"} <= advised
    assert advised <= set(re.findall(r"--[a-z][a-z-]+", agentcho("serve", "--help-all").out))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--host", "0.0.0.0"), "anyone who can reach this address could send requests; give --keys FILE"),
        (("--host", "no.such.host.invalid"), "give an address of this machine"),
        (("--keys", "none.toml"), "keys none.toml: No such file.*`agentcho key none.toml --tenant NAME`"),
        (("--record", "none", "--keep-days", "3"), "keep_days has no effect with record=none"),
        (("--model", "fake", "--adapter", "mild=folder"), "an adapter needs a model with weights"),
        (("--adapter", "a@b=folder"), "adapter 'a@b'"),
        (("--name", "a@enforce"), "the model's name 'a@enforce' contains a mode or a society"),
        (("--record", "taken"), "nothing can be written to taken"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_what_is_wrong_is_said_in_a_line_before_a_model_is_loaded(
    agentcho: Command, words: tuple[str, ...], told: str
) -> None:
    Path("taken").write_text("a file")
    assert re.search(told, one_line(agentcho("serve", "--port", "0", *words)))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--port", "70000"), "--port"),
        (("--limit", "requests=0"), "--limit requests"),
        (("--limit", "request=1"), "--limit request"),
        (("--limit", "requests"), "is not of the form KEY=VALUE"),
        (("--adapter", "folder"), "is not of the form KEY=VALUE"),
        (("--leakage", "deny"), "--leakage"),
        (("--name", "a#b"), "--name"),
    ],
)
@pytest.mark.usefixtures("no_model")
def test_an_option_that_does_not_fit_is_named(agentcho: Command, words: tuple[str, ...], told: str) -> None:
    ran = agentcho("serve", *words)
    assert ran.code == 2
    assert told in ran.err


@pytest.mark.usefixtures("no_model")
def test_an_address_in_use_is_named_before_a_model_is_loaded(agentcho: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert f"cannot listen on 127.0.0.1:{port}" in one_line(agentcho("serve", "--port", port))


@pytest.mark.usefixtures("no_model")
def test_what_has_to_be_installed_is_said_first(agentcho: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "agentcho[serve]" in one_line(agentcho("serve", "--host", "0.0.0.0"))


def test_a_key_is_printed_once_and_its_hash_is_kept(agentcho: Command) -> None:
    ran = agentcho("key", "keys.toml", "--tenant", "red", "--society", "talk", "--concurrent", "3", "--metrics")
    assert ran.code == 0
    found = ApiKeys.read(Path("keys.toml")).find(ran.out.strip())
    assert found is not None
    assert (found.tenant, found.society, found.concurrent) == ("red", "talk", 3)
    assert (found.metrics, found.priority) == (True, False)
    assert ran.out.strip() not in Path("keys.toml").read_text()
    assert "tenant" in one_line(agentcho("key", "keys.toml", "--tenant", ""))


def test_a_key_that_cannot_be_kept_is_not_made(agentcho: Command) -> None:
    told = agentcho("key", "nowhere/keys.toml", "--tenant", "lab")
    assert (told.code, told.out) == (2, "")
    assert "keys.toml: there is no folder nowhere; give another path" in one_line(told)


def test_old_records_of_societies_are_deleted_and_no_others(tmp_path: Path) -> None:
    for name in ("society-talk", "debate"):
        RunRecord.create(tmp_path, name, {}, RunConfig(), {}, asked="serve").close("done")
    running = RunRecord.create(tmp_path, "society-busy", {}, RunConfig(), {}, asked="serve")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    assert delete_old(tmp_path, timedelta(days=1)) == []
    [gone] = delete_old(tmp_path, timedelta())
    assert "society-talk" in gone.name
    assert sorted("talk" in path.name for path in tmp_path.iterdir()) == [False, False, False]
    running.close("done")


def test_what_only_looks_like_an_old_record_of_a_society_is_left(tmp_path: Path) -> None:
    def society(folder: Path, asked: str = "serve", **changed: str) -> Path:
        record = RunRecord.create(folder, "society-talk", {}, RunConfig(), {}, asked=asked)
        record.close("done")
        write_info(record.path, record.info.model_copy(update=changed))
        return record.path

    kept = [
        society(tmp_path, "society-talk"),
        society(tmp_path, ended="yesterday"),
        society(tmp_path, ended="2026-01-01"),
    ]
    linked = tmp_path / "linked"
    linked.symlink_to(society(tmp_path / "elsewhere"))
    gone = society(tmp_path)
    assert delete_old(tmp_path, timedelta()) == [gone]
    assert all((path / "run.json").exists() for path in (*kept, linked))


def test_an_old_record_that_cannot_be_deleted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    RunRecord.create(tmp_path, "society-talk", {}, RunConfig(), {}, asked="serve").close("done")
    monkeypatch.setattr("agentcho.cli.serve_run.shutil.rmtree", refused)
    with pytest.raises(CannotWrite, match="society-talk: Permission denied"):
        delete_old(tmp_path, timedelta())


def test_the_commands_of_the_page_are_taken_as_they_stand(agentcho: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    served = list[str]()

    def run(serve: object, site: Site, *rest: object) -> bool:
        served.extend(site.models)
        return True

    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", lambda config, tell: FakeEngine())
    monkeypatch.setattr("agentcho.cli.serve_run.anyio.run", run)
    said = [line for line in LINES if line.startswith("agentcho ")]
    for line in said:
        ran = agentcho(*shlex.split(line)[1:], *(["--port", "0"] if " serve " in line else []))
        assert ran.code == 0, ran.err
    assert served == ["understudy"] * sum(" serve " in line for line in said)
    assert len(said) - len(served) == len(ApiKeys.read(Path("keys.toml")))


def test_each_adapter_is_a_model_on_an_engine_of_its_own(agentcho: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, site = list[str | None](), list[Site]()

    def load(config: RunConfig, tell: object) -> FakeEngine:
        loaded.append(config.adapter)
        return FakeEngine()

    def run(serve: object, asked: Site, *rest: object) -> bool:
        site.append(asked)
        return False

    monkeypatch.setattr("agentcho.games.runs.runtime.load_engine", load)
    monkeypatch.setattr("agentcho.cli.serve_run.anyio.run", run)
    words = ("--adapter", "mild=one", "--adapter", "wild=two", "--name", "ours", "--record", "none")
    assert agentcho("serve", "--port", "0", *words).code == 130
    assert loaded == [None, "one", "two"]
    assert list(site[0].models) == ["ours", "ours+mild", "ours+wild"]
    assert len({id(model.frames) for model in site[0].models.values()}) == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--limit", "tenant_request=3"), "did you mean 'tenant_requests'? The limits are connections,"),
        (("--limit", "logprobs=50"), "less than or equal to 20"),
        (("--name", "x@audit@enforce"), "contains a mode or a society"),
        *(
            (("--allow-origin", origin), "no browser sends this")
            for origin in (
                "*",
                "null",
                "chat.example",
                "https://a.example/",
                "https://A.example",
                "https://a.example:443",
            )
        ),
    ],
)
def test_what_a_server_cannot_be_started_with_is_told(agentcho: Command, words: tuple[str, ...], told: str) -> None:
    ran = agentcho("serve", "--model", "fake", "--record", "none", *words)
    assert ran.code != 0
    assert told in " ".join(ran.err.split())
    assert "Traceback" not in ran.err


def test_options_and_bounds_reach_what_serves() -> None:
    limits = {
        "idle_minutes": 2,
        "society_tokens": 30,
        "society_messages": 40,
        "tenant_societies": 5,
        "tenant_tokens": 60,
        "tenant_generating": 80,
    }
    config = ServeConfig.model_validate({"leakage": "audit", "record": "none", "limits": limits})
    entry = ApiKey(sha256="0" * 64, tenant="red", tokens=70)
    engine = FakeEngine()
    engine.store.limit = 90
    made = serving_of(config, ApiKeys([entry]), engine)
    assert made.generating == 80
    assert (made.mode, made.record, made.idle, made.societies) == ("audit", None, 120, 5)
    assert (made.keeping.tokens, made.keeping.messages, made.keeping.capacity) == (30, 40, 90)
    assert (made.quota("red"), made.quota("blue")) == (70, 60)
    assert not made.deterministic
    assert serving_of(config.model_copy(update={"deterministic": True}), ApiKeys([entry]), engine).deterministic


def test_every_bound_is_told_on_the_page_with_its_default() -> None:
    table = PAGE[PAGE.index("| name | default |") :].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| (`.*?`) \| (.*?) \|", table, re.MULTILINE))
    told = dict[str, str]()
    for names, values in rows.items():
        told |= zip(re.findall(r"`(\w+)`", names), re.split(r", (?=\S)", values), strict=True)
    said = {
        name: None if value.startswith("no limit") else float(value.replace(",", "")) for name, value in told.items()
    }
    assert said == ServeLimits().model_dump()
    assert told["tenant_requests"].endswith(f"; {ServeLimits().settled(keys=True).tenant_requests} with keys")
