"""API keys: which tenant, society and agent each one speaks for. Only the hash of a key is stored.

The file is TOML with one `[[keys]]` table per entry; `agentcho key` appends one. Independent of HTTP.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import tomllib
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from agentcho.errors import CannotWrite, ConfigError
from agentcho.message import AgentName
from agentcho.records.files import write_errors
from agentcho.serve.api import models
from agentcho.serve.api_errors import ApiError
from agentcho.serve.web.admission import KeyLimits

PREFIX = "ak-"
REMEDY = "mend or delete that entry; `agentcho key FILE --tenant NAME` makes a new one"
ABSENT = "there is no such society"
"""The same error text for a society that does not exist and for one that belongs to others."""
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=1, lt=1 << 53)]


def _society(name: str) -> str:
    """Check the name of a society as clients can send it. ValueError: they cannot."""
    return _sayable(models.society_name, name)


def _agent(name: str) -> str:
    """Check the name of an agent as clients can send it. ValueError: they cannot."""
    return _sayable(models.member_name, name)


def _sayable(check: Callable[[object, models.NamedTarget], str], name: str) -> str:
    try:
        return check(name, models.NamedTarget("a key"))
    except ApiError as error:
        raise ValueError(error.message) from None


class ApiKey(BaseModel):
    """An entry of the file.

    `sha256` is the key's hash in hexadecimal digits. `society`, `agent`: the only ones that it speaks for (None: any of
    its tenant, except for agents that have keys of their own). `requests_per_minute`, `concurrent`: limits in addition
    to the server's. `tokens`: how many tokens its tenant may keep encoded. `priority`: it may ask to be served before
    others. `metrics`: it may read the metrics of the whole server.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    sha256: Hash
    tenant: AgentName
    society: Annotated[str, AfterValidator(_society)] | None = None
    agent: Annotated[str, AfterValidator(_agent)] | None = None
    requests_per_minute: Count | None = None
    concurrent: Count | None = None
    tokens: Count | None = None
    priority: bool = False
    metrics: bool = False

    @property
    def name(self) -> str:
        """Its name in logs and records, from which the key cannot be derived."""
        return self.sha256[:12]

    @property
    def bounds(self) -> KeyLimits:
        """The key's own limits."""
        return KeyLimits(self.concurrent, self.requests_per_minute)


class RequestClaim(NamedTuple):
    """The society and the agent that a request names, by its path, header or body."""

    society: str | None = None
    agent: str | None = None


class ApiKeys:
    """All entries of a file. If empty, the server has no keys, and everyone is the tenant "" and may do everything."""

    def __init__(self, entries: Iterable[ApiKey] = ()) -> None:
        self._entries = tuple(entries)

    def __len__(self) -> int:
        return len(self._entries)

    @classmethod
    def read(cls, path: Path) -> ApiKeys:
        """The keys of a file. `ConfigError` says which entry is wrong and why. It is also raised if users other than
        the owner can access the file, if two entries have the same hash, and if there is no entry at all."""
        try:
            mode, text = path.stat().st_mode, path.read_text("utf-8")
        except OSError as error:
            raise ConfigError(f"keys {path}: {error.strerror}; `agentcho key {path} --tenant NAME` makes one") from None
        except UnicodeDecodeError:
            raise ConfigError(f"keys {path}: it is not UTF-8 text; {REMEDY}") from None
        if os.name == "posix" and mode & 0o077:
            raise ConfigError(f"keys {path}: users other than its owner may access this file; run: chmod 600 {path}")
        return cls(_entries(path, text))

    def find(self, given: str) -> ApiKey | None:
        """The entry of a given key, None if there is none. Takes the same time for every entry."""
        digest = sha256(given.encode("utf-8", "surrogateescape")).hexdigest()
        found = None
        for entry in self._entries:
            if hmac.compare_digest(entry.sha256, digest):
                found = entry
        return found

    def allowed(self, key: ApiKey, claim: RequestClaim) -> RequestClaim:
        """The society and agent that a request speaks for. `ApiError` 404: the society is not the key's; 403: the agent
        is not."""
        if key.society is not None and claim.society not in (None, key.society):
            raise ApiError(404, ABSENT, code="society_not_found")
        society = key.society if claim.society is None else claim.society
        if key.agent is not None and claim.agent not in (None, key.agent):
            raise ApiError(403, "this key belongs to another agent", code="agent_not_allowed")
        agent = key.agent if claim.agent is None else claim.agent
        if key.agent is None and agent is not None and self._bound(key.tenant, society, agent):
            raise ApiError(403, "this agent has a key of its own", code="agent_not_allowed")
        return RequestClaim(society, agent)

    def _bound(self, tenant: str, society: str | None, agent: str) -> bool:
        same = (entry for entry in self._entries if (entry.tenant, entry.agent) == (tenant, agent))
        return any(entry.society in (None, society) for entry in same)

    def tokens(self, tenant: str) -> int | None:
        """How many tokens a tenant may keep encoded: the largest number among its keys. None: the server's default."""
        said = [entry.tokens for entry in self._entries if entry.tenant == tenant and entry.tokens is not None]
        return max(said, default=None)


def _entries(path: Path, text: str) -> Sequence[ApiKey]:
    try:
        read = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"keys {path}: {error}; {REMEDY}") from None
    rows = read.pop("keys", None)
    if read or not isinstance(rows, list) or not rows:
        raise ConfigError(f"keys {path}: it must contain at least one [[keys]] entry and nothing else; {REMEDY}")
    found = [_entry(path, number, row) for number, row in enumerate(rows, 1)]
    if len({entry.sha256 for entry in found}) < len(found):
        raise ConfigError(f"keys {path}: two entries have the same sha256; {REMEDY}")
    return found


def _entry(path: Path, number: int, row: object) -> ApiKey:
    try:
        return ApiKey.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "entry"
        raise ConfigError(f"keys {path}, entry {number}: {where}: {first['msg']}; {REMEDY}") from None
    except Exception as error:  # an invalid name of an agent, tenant or society
        raise ConfigError(f"keys {path}, entry {number}: {error}; {REMEDY}") from None


def add_key(path: Path, **fields: object) -> str:
    """Make a key and append its entry to a file, which is created if needed and accessible only to its owner. Returns
    the key, which is stored nowhere. `ConfigError`: the fields or the existing file are invalid. `CannotWrite`."""
    given = PREFIX + secrets.token_urlsafe(32)
    said = {name: value for name, value in fields.items() if value not in (None, False)}
    said["sha256"] = sha256(given.encode()).hexdigest()
    _entry(path, 1, said)
    if path.exists() and path.stat().st_size:
        ApiKeys.read(path)
    lines = "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in said.items())
    if not path.absolute().parent.is_dir():
        raise CannotWrite(path, f"there is no folder {path.parent}", begun=False)
    with write_errors(path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(handle, "a", encoding="utf-8") as file:
            path.chmod(0o600)
            file.write(f"\n[[keys]]\n{lines}")
    return given
