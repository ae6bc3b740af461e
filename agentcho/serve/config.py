"""Options of a server, frozen and validated once, on entry.

Independent of HTTP.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from agentcho.config import (
    FAKE,
    LOCAL,
    VLLM,
    WEIGHED,
    ComputeOptions,
    DeviceOptions,
    EngineOptions,
    FrozenOptions,
    TemplateChecks,
    check_model,
)
from agentcho.protocol.call_validation import MOST_LIKELY
from agentcho.serve.api.limits import RequestLimits
from agentcho.serve.api.models import RequestTarget, read
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import LogprobsRule, Sharing

Count = Annotated[int, Field(ge=1, lt=1 << 53)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+")
USUAL_PORT = {"http": ":80", "https": ":443"}
TENANT_REQUESTS = 64
"""The default of `ServeLimits.tenant_requests` on a server with keys."""


class ServeLimits(BaseModel):
    """Limits of a server. `tenant_per_minute` and `tenant_generating` None: no limit.

    - `connections`, `requests`: concurrent ones of the whole server. `tenant_requests`: concurrent ones of a tenant
      (None: 64 with keys, no limit of its own without, because then all callers are one tenant). `tenant_per_minute`:
      those that a tenant starts within a minute; a key may have lower limits of its own.
      `tenant_generating`: how many tokens the concurrent requests of a tenant may ask for in all; room for them is
      reserved until they end.
    - `header_seconds`, `body_seconds`, `send_seconds`: how long a client may take to send its header and its body, and
      to read one piece of an answer.
    - `buffered_bytes`: the total size of the bodies that are being read.
    - `body_bytes`, `messages`, `choices` ("n"), `stops`, `logprobs`, `tools`, `schema_bytes` (as JSON) and
      `schema_depth`: what one request may contain or ask for.
    - `conversations`: how many responses of a tenant are kept for `previous_response_id` (0: none), with at most
      `conversation_letters` characters in all, each for `conversation_minutes`.
    - `idle_minutes`: how long a society lasts without requests. `society_messages`: how many messages it remembers.
      `society_tokens`, `tenant_tokens`: how many tokens may be kept encoded; the least recently read are dropped first.
      `tenant_societies`: how many societies may exist at a time; the least recently used ends first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    connections: Count = 512
    requests: Count = 256
    tenant_requests: Count | None = None
    tenant_per_minute: Count | None = None
    tenant_generating: Count | None = None
    header_seconds: Seconds = 10.0
    body_seconds: Seconds = 30.0
    send_seconds: Seconds = 30.0
    buffered_bytes: Count = 256_000_000
    body_bytes: Count = 10_000_000
    messages: Count = 4096
    choices: Count = 128
    stops: Annotated[int, Field(ge=1, le=64)] = 16
    logprobs: Annotated[int, Field(ge=0, le=MOST_LIKELY)] = MOST_LIKELY
    tools: Count = 128
    schema_bytes: Count = 65_536
    schema_depth: Count = 64
    conversations: Annotated[int, Field(ge=0)] = 1000
    conversation_letters: Count = 10_000_000
    conversation_minutes: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    idle_minutes: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    society_messages: Count = 4096
    society_tokens: Count = 1 << 18
    tenant_societies: Count = 1000
    tenant_tokens: Count = 1 << 20

    def settled(self, keys: bool) -> ServeLimits:
        """The limits of a server with or without keys, with the default of `tenant_requests` filled in."""
        if not keys or self.tenant_requests is not None:
            return self
        return self.model_copy(update={"tenant_requests": TENANT_REQUESTS})

    @property
    def asked(self) -> RequestLimits:
        """The limits of a single request."""
        return RequestLimits(
            **{name: getattr(self, name) for name in RequestLimits._fields if name in ServeLimits.model_fields}
        )


class ModelNames(FrozenOptions):
    """The served model and its name in the API."""

    model: str = Field(default="understudy", description=LOCAL)
    name: str | None = Field(
        default=None,
        pattern=r"^[^#\s]{1,200}$",
        description="Name of the model in the API. Default: its id, or the folder's name.",
        json_schema_extra={"panel": "Model"},
    )


class ListenOptions(FrozenOptions):
    """Where a server listens, who may use it, and who may read the messages sent to it."""

    adapters: dict[str, Path] = Field(default_factory=dict)
    host: str = Field(default="127.0.0.1", description="Address to listen on. Any but loopback needs --keys.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    keys: Path | None = Field(
        default=None,
        description="File of keys, as written by `agentcho key`. Without it, anyone on this machine may send requests.",
        json_schema_extra={"metavar": "FILE"},
    )
    allow_origin: tuple[str, ...] = Field(
        default=(),
        description="Origin of web pages that may use this server, such as https://chat.example.org; repeatable.",
        json_schema_extra={"metavar": "ORIGIN", "panel": "Options"},
    )
    leakage: Literal["audit", "enforce"] = Field(default="enforce", description="How societies handle leaks.")
    user_messages: Sharing = Field(
        default="shared",
        description="Whether user messages are shared with the whole society or private to the agent that sends them.",
        json_schema_extra={"panel": "Leakage"},
    )

    @field_validator("allow_origin")
    @classmethod
    def _origins(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        """Raise for a text that no browser sends as an origin: it would allow nothing."""
        for origin in given:
            if not ORIGIN.fullmatch(origin) or origin.endswith(USUAL_PORT.get(origin.partition(":")[0], "/")):
                raise ValueError(
                    f"allow_origin {origin!r}: no browser sends this; give scheme, host and port in lower case, "
                    "without the usual port and without a path, as in https://chat.example.org"
                )
        return given


class ServeConfig(TemplateChecks, ListenOptions, ComputeOptions, DeviceOptions, EngineOptions, ModelNames):
    """How a server is started. Frozen. A field with a description is an option of `agentcho serve`.

    `adapters`: folders by name; each is an engine of its own, and a model `M+NAME`. `logprobs` None: "exact", or
    "refuse" with `engine` "vllm", because vLLM has no deterministic profile to compute them exactly. Raises pydantic's
    `ValidationError`.
    """

    deterministic: bool = Field(
        default=False,
        description="Make every result independent, bit for bit, of what its reader may not read. Slower.",
    )
    logprobs: LogprobsRule | None = Field(
        default=None,
        description="Log-probabilities. exact: a request that asks for them runs as with --deterministic, so that "
        "nothing else shows in them, and slows all others down while it runs. raw: at full speed; they tell to the "
        "token how long hidden messages beside them are, those of other tenants too. refuse: answer 400.  "
        "[default: exact; refuse with --engine vllm]",
    )
    prefill_budget: int | None = Field(
        default=None,
        ge=1,
        description="Maximum number of prompt tokens encoded per step while other requests are being answered.",
        json_schema_extra={"metavar": "TOKENS"},
    )
    record: str = Field(
        default="runs",
        description="Folder of runs: each society is one; 'none' keeps none.",
        json_schema_extra={"metavar": "DIR", "panel": "Output"},
    )
    keep_days: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="At startup, delete this server's records that are older than this.",
        json_schema_extra={"metavar": "DAYS", "panel": "Output"},
    )
    limits: ServeLimits = Field(
        default=ServeLimits(),
        description="Set a limit of the server, such as requests=64; docs/serve.md lists them.",
        json_schema_extra={"panel": "Options"},
    )

    @model_validator(mode="after")
    def _fits(self) -> ServeConfig:
        self._fits_engine()
        if self.deterministic and self.prefill_budget is not None:
            raise ValueError(
                "prefill_budget has no effect with deterministic, which never divides a prefill; leave one of them out"
            )
        if self.deterministic and self.logprobs == "raw":
            raise ValueError(
                "logprobs=raw contradicts deterministic, in which log-probabilities are exact; leave one of them out"
            )
        if self.keep_days is not None and self.folder is None:
            raise ValueError(
                "keep_days has no effect with record=none; give a folder as record, or leave keep_days out"
            )
        wrong = ["an adapter"] if self.adapters else []
        wrong += [name for name in WEIGHED if getattr(self, name, None) is not None]
        if self.model == FAKE and wrong:
            raise ValueError(f"{wrong[0]} needs a model with weights, and the fake model has none; leave it out")
        if not _is_plain(self.served_name):
            raise ValueError(
                f"the model's name {self.served_name!r} contains a mode or a society (@MODE, #SOCIETY), which "
                "requests append to it; give another name"
            )
        if wrong := [name for name in self.adapters if not name or set(name) & set("@#/+ ")]:
            raise ValueError(
                f"adapter {wrong[0]!r}: the name becomes part of a model's id; give one without @ # / + and spaces"
            )
        return self

    def _fits_engine(self) -> None:
        if self.engine != VLLM:
            return
        given = {name: value for name, value in self if value != type(self).model_fields[name].default}
        if self.adapters:
            given["adapter"] = ...
        check_model(self.model, given)
        if self.logprobs == "exact":
            raise ValueError(
                "logprobs=exact cannot be used with engine vllm: vLLM has no deterministic profile; "
                "give raw or refuse, which is its default"
            )

    @property
    def logprobs_rule(self) -> LogprobsRule:
        """How requests for log-probabilities are handled."""
        return self.logprobs or ("refuse" if self.engine == VLLM else "exact")

    @property
    def served_name(self) -> str:
        """The model's name in the API."""
        return self.name or (Path(self.model).resolve().name if Path(self.model).is_dir() else self.model)

    @property
    def folder(self) -> Path | None:
        """The folder in which societies are recorded, None for no records."""
        return None if self.record == "none" else Path(self.record)


def _is_plain(name: str) -> bool:
    """Whether a model's name reads as nothing but a name."""
    try:
        return read(name) == RequestTarget(name)
    except ApiError:
        return False
