"""Valid addresses of servers, and the key that is sent to each."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentcho import Sampling
from agentcho.config import ModelConfig, served
from agentcho.errors import ConfigError, ExtraMissing
from agentcho.integrations.endpoints.address import address_of, key_of
from agentcho.integrations.endpoints.endpoint import open_endpoint
from agentcho.protocol.text_calls import PromptMessage, TextCall

from .faulty import faulty, says

KEY = "k-123456"
FAR = "https://models.example/v1"


def config(**more: Any) -> ModelConfig:
    return ModelConfig.model_validate({"model": "openai:m", "base_url": "http://127.0.0.1:8000"} | more)


def key(**more: Any) -> str:
    found = config(**more)
    return key_of(found, "far", address_of(found, "far")).reveal()


@pytest.mark.parametrize(
    ("url", "base", "vendor"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1", "127.0.0.1:8000"),
        ("http://LOCALHOST:8000/v1/", "http://localhost:8000/v1", "localhost:8000"),
        ("http://[::1]:8000/s/talk/bob/v1", "http://[::1]:8000/s/talk/bob/v1", "::1:8000"),
        ("http://127.0.0.1", "http://127.0.0.1/v1", "127.0.0.1:80"),
    ],
)
def test_an_address_is_the_base_of_the_api(url: str, base: str, vendor: str) -> None:
    port = open_endpoint(config(base_url=url), "far")
    assert port.fingerprint == {"model": "openai:m", "server": "openai", "address": base}
    assert (port.name, port.vendor, port.context) == ("far", vendor, None)


def test_a_vendor_and_a_context_are_as_configured() -> None:
    port = open_endpoint(config(vendor="us", context=99), "far")
    assert (port.vendor, port.context) == ("us", 99)


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "127.0.0.1:8000",
        "ftp://127.0.0.1",
        "file:///etc/passwd",
        "http://",
        "http://127.0.0.1:port",
        "http://127.0.0.1:99999",
        "http://ann:secret@127.0.0.1",
        "http://127.0.0.1/v1?key=secret",
        "http://127.0.0.1/v1#secret",
        "http://[::1",
        "http://a b/",
    ],
)
def test_what_is_no_address_is_refused(url: str | None) -> None:
    with pytest.raises(ConfigError, match="model far: base_url") as found:
        open_endpoint(config(base_url=url), "far")
    assert "secret" not in str(found.value)


@pytest.mark.parametrize("model", ["understudy", "openai:", "openai: ", "OpenAI:m"])
def test_what_is_no_model_of_a_server_is_refused(model: str) -> None:
    with pytest.raises(ConfigError, match="openai:NAME"):
        open_endpoint(config(model=model), "far")


def test_a_model_of_a_server_is_known_by_its_name() -> None:
    assert served("openai:m")
    assert not served("understudy")


def test_a_key_goes_to_whom_it_is_meant_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert key() == "none"
    assert key(base_url="https://api.openai.com/v1") == KEY
    assert key(key_env="OPENAI_API_KEY") == KEY
    with pytest.raises(ConfigError, match=r"models\.example needs a key"):
        key(base_url=FAR)
    with pytest.raises(ConfigError, match="NO_SUCH_KEY, which should hold its key, is not set"):
        key(base_url=FAR, key_env="NO_SUCH_KEY")


def test_a_key_is_read_from_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    with caplog.at_level(logging.WARNING):
        assert key(base_url=FAR, key_file=str(file)) == KEY
    assert not caplog.records
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        key(base_url=FAR, key_file=str(file))
    assert "chmod 600" in caplog.text
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"two words", b"two\nlines", b"\xff", "k\u00e9y".encode(), b"k" * 9999]
)
def test_a_file_without_a_usable_key_is_an_error_that_does_not_show_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=r"model far: .*key") as found:
        key(base_url=FAR, key_file=str(file))
    assert "two" not in str(found.value)


def test_a_key_has_one_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give one of them"):
        key(key_file=str(tmp_path / "key"), key_env="FAR_KEY")
    with pytest.raises(ConfigError, match="No such file"):
        key(key_file=str(tmp_path / "key"))


@pytest.mark.parametrize("given", [KEY, "sk-key.of-somebody", "hf_KeyOfSomebody", "k" * 200])
@pytest.mark.parametrize("option", ["key_env", "key_file"])
def test_a_key_in_place_of_where_it_is_is_not_repeated(option: str, given: str) -> None:
    with pytest.raises(ConfigError, match="not the key itself") as found:
        key(**{option: given})
    assert given not in str(found.value)


def test_a_key_that_travels_in_clear_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FAR_KEY", KEY)
    with caplog.at_level(logging.WARNING):
        key(base_url="http://models.example/v1", key_env="FAR_KEY")
    assert "unencrypted" in caplog.text
    assert KEY not in caplog.text


def test_no_representation_has_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_KEY", KEY)
    found = config(key_env="FAR_KEY")
    secret = key_of(found, "far", address_of(found, "far"))
    port = open_endpoint(found, "far")
    assert KEY not in f"{secret!r} {secret} {port!r} {port} {port.fingerprint} {found!r}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_a_request_has_the_key_and_nothing_else_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "environment")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("FAR_KEY", KEY)

    async def headers(**more: Any) -> dict[str, str]:
        async with faulty(says("good day")) as server, server.asked(**more) as port:
            await port.ask(TextCall((PromptMessage("user", None, "hello"),), sampling=Sampling(max_tokens=4)))
            return server.requests[0].headers

    sent = anyio.run(lambda: headers(key_env="FAR_KEY"))
    assert sent["authorization"] == f"Bearer {KEY}"
    assert "environment" not in str(sent)
    assert anyio.run(headers)["authorization"] == "Bearer none"


def test_a_client_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcho.extras._installed", lambda module: module != "openai")
    with pytest.raises(ExtraMissing, match=r"agentcho\[endpoints\]"):
        open_endpoint(config(), "far")
