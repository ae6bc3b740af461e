"""API keys: what a key file accepts, and for whom each key speaks."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from agentcho.errors import ConfigError
from agentcho.serve.api_errors import ApiError
from agentcho.serve.web.keys import ApiKey, ApiKeys, RequestClaim, add_key


def key(word: str, tenant: str = "red", **fields: object) -> ApiKey:
    return ApiKey.model_validate({"sha256": sha256(word.encode()).hexdigest(), "tenant": tenant, **fields})


def refused(keys: ApiKeys, of: ApiKey, claim: RequestClaim) -> tuple[int, str]:
    with pytest.raises(ApiError) as error:
        keys.allowed(of, claim)
    return error.value.status, error.value.message


def written(path: Path, text: str) -> str:
    """The error for a key file with this text."""
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError) as error:
        ApiKeys.read(path)
    return str(error.value)


def test_a_key_that_was_made_is_found_and_its_file_is_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    first = add_key(path, tenant="red", society="talk", agent="bob", concurrent=2, metrics=True)
    second = add_key(path, tenant="blue")
    keys = ApiKeys.read(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert first not in path.read_text()
    found, other = keys.find(first), keys.find(second)
    assert found is not None
    assert other is not None
    assert (found.tenant, found.society, found.agent, found.concurrent, found.metrics) == (
        "red",
        "talk",
        "bob",
        2,
        True,
    )
    assert (other.tenant, other.society, other.metrics, other.priority) == ("blue", None, False, False)
    assert keys.find(first[:-1]) is None
    assert keys.find("\udc80") is None
    assert found.sha256 != found.name


def test_every_entry_is_compared_whichever_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def compared(left: str, right: str) -> bool:
        seen.append(left)
        return left == right

    monkeypatch.setattr("agentcho.serve.web.keys.hmac.compare_digest", compared)
    keys = ApiKeys([key("a"), key("b"), key("c")])
    assert keys.find("a") is not None
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "at least one"),
        ("keys = 3", "at least one"),
        ("[[keys]]\ntenant = 'a'", "entry 1: sha256"),
        ("[[keys]]\nsha256 = 'abc'\ntenant = 'a'", "entry 1: sha256"),
        (f"[[keys]]\nsha256 = '{'0' * 64}'", "entry 1: tenant"),
        (f"[[keys]]\nsha256 = '{'0' * 64}'\ntenant = ' '", "entry 1: tenant"),
        (f"[[keys]]\nsha256 = '{'0' * 64}'\ntenant = 'a'\nconcurrent = 0", "entry 1: concurrent"),
        (f"[[keys]]\nsha256 = '{'0' * 64}'\ntenant = 'a'\nrequests_per_minute = {10**400}", "requests_per_minute"),
        (f"[[keys]]\nsha256 = '{'0' * 64}'\ntenant = 'a'\nsociety = 'my team'", "entry 1: society"),
        (f"[[keys]]\nsha256 = '{'0' * 64}'\ntenant = 'a'\nagent = 'a/b'", "entry 1: agent"),
        (f"[[keys]]\nsha256 = '{'0' * 64}'\ntenant = 'a'\ntenat = 'b'", "entry 1: tenat"),
        (f"[[keys]]\nsha256 = '{'0' * 64}'\ntenant = 'a'\n" * 2, "same sha256"),
        ("[[keys", "at end of document"),
        (f"keys = {'[' * 9999}", "recursion"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_the_entry(text: str, told: str, tmp_path: Path) -> None:
    said = written(tmp_path / "keys.toml", text)
    assert told in said
    assert str(tmp_path / "keys.toml") in said
    assert "\n" not in said.strip()


def test_a_file_that_others_can_read_or_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    with pytest.raises(ConfigError, match="No such file"):
        ApiKeys.read(path)
    add_key(path, tenant="red")
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        ApiKeys.read(path)
    with pytest.raises(ConfigError, match="chmod 600"):
        add_key(path, tenant="blue")
    path.unlink()
    path.touch(0o644)
    os.chmod(path, 0o644)
    add_key(path, tenant="blue")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_wrong_entry_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tenant"):
        add_key(tmp_path / "keys.toml", tenant="")
    assert not (tmp_path / "keys.toml").exists()


def test_a_key_of_a_society_reaches_no_other_and_the_refusal_is_that_of_an_absent_one() -> None:
    mine = key("a", society="talk")
    keys = ApiKeys([mine])
    assert keys.allowed(mine, RequestClaim()) == RequestClaim("talk", None)
    assert keys.allowed(mine, RequestClaim("talk", "bob")) == RequestClaim("talk", "bob")
    assert refused(keys, mine, RequestClaim("other")) == (404, "there is no such society")


def test_a_key_of_an_agent_speaks_for_no_other() -> None:
    bob = key("b", society="talk", agent="bob")
    keys = ApiKeys([bob])
    assert keys.allowed(bob, RequestClaim("talk")) == RequestClaim("talk", "bob")
    assert refused(keys, bob, RequestClaim("talk", "alice"))[0] == 403


def test_who_has_a_key_of_its_own_is_spoken_for_by_no_other_of_its_tenant() -> None:
    bob, anybody = key("b", society="talk", agent="bob"), key("a")
    carol, stranger = key("c", agent="carol"), key("s", tenant="blue")
    keys = ApiKeys([bob, anybody, carol, stranger])
    assert refused(keys, anybody, RequestClaim("talk", "bob"))[0] == 403
    assert refused(keys, anybody, RequestClaim("any", "carol"))[0] == 403
    assert keys.allowed(anybody, RequestClaim("other", "bob")) == RequestClaim("other", "bob")
    assert keys.allowed(anybody, RequestClaim("talk", "alice")) == RequestClaim("talk", "alice")
    assert keys.allowed(stranger, RequestClaim("talk", "bob")) == RequestClaim("talk", "bob")


def test_the_tokens_of_a_tenant_are_the_most_that_its_keys_say() -> None:
    keys = ApiKeys([key("a", tokens=10), key("b", tokens=30), key("c"), key("d", tenant="blue")])
    assert keys.tokens("red") == 30
    assert keys.tokens("blue") is None
