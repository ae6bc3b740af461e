"""The society, agent and readers that a request declares in `kv_transfer_params` of vLLM's APIs.

Must not import vLLM, so that clients can use it too. Independent of tokens and encodings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from agentcho.errors import RequestError

KEY = "agentcho"
"""The key in `kv_transfer_params` of the parameters for this connector."""
MOST_MESSAGES = 4096
MOST_READERS = 256
Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Role = Literal["system", "developer", "user", "assistant", "tool"]
Readers = frozenset[str] | None
"""Who may read something. None: the whole society."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DeclaredMessage(_Strict):
    """One message of a prompt.

    Attributes:
        role: Its role, as given to the chat template.
        readers: "society", or the agents that may read it besides its sender. None: decided by its role. System,
            developer and tool messages are then for the sender alone, user messages for the audience of the request,
            and answers for the readers for whom they were said; an assistant message that was not said in this
            society is for the sender alone.
    """

    role: Role
    readers: Literal["society"] | Annotated[list[Name], Field(max_length=MOST_READERS)] | None = None


class SharedPrompt(_Strict):
    """A request of an agent in a society.

    Attributes:
        society: The name of the society.
        agent: The name of the agent.
        messages: The messages of the prompt, in order, without those that the chat template adds. None: the whole
            prompt is for the agent alone.
        audience: Who may read the answer and user messages besides the agent. None: the whole society.
    """

    society: Name
    agent: Name
    messages: Annotated[list[DeclaredMessage], Field(max_length=MOST_MESSAGES)] | None = None
    audience: Annotated[list[Name], Field(max_length=MOST_READERS)] | None = None

    def with_agent(self, names: Iterable[str] | None) -> Readers:
        """The agent and these others. None: the whole society."""
        return None if names is None else frozenset({self.agent, *names})


class TurningCheck(_Strict):
    """A request whose prompt is one repeated token, used to measure how the model's keys rotate with position."""

    measure: Literal[True]


def parsed(params: object) -> SharedPrompt | TurningCheck | None:
    """Parse the parameters of a request. None: it has none, so nothing of it is shared.

    Args:
        params: The `kv_transfer_params` of the request.

    Raises:
        RequestError: They are malformed.
    """
    if params is None:
        return None
    if not isinstance(params, Mapping):
        raise RequestError("kv_transfer_params must be an object")
    if KEY not in params:
        return None
    given = params[KEY]
    kind = TurningCheck if isinstance(given, Mapping) and "measure" in given else SharedPrompt
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, ("kv_transfer_params", KEY, *first["loc"])))
        raise RequestError(f"{place}: {first['msg']}") from error


def request_params(
    society: str,
    agent: str,
    messages: Sequence[Mapping[str, Any]] | None = None,
    *,
    audience: Sequence[str] | None = None,
    readers: Mapping[int, Sequence[str] | Literal["society"]] | None = None,
) -> dict[str, Any]:
    """Return what a client sends as `kv_transfer_params`, for example in the `extra_body` of OpenAI's client.

    Args:
        society: The name of the society.
        agent: The name of the agent that asks.
        messages: The messages of the request, each with a `role`. None: all of them are for the agent alone.
        audience: Who may read the answer and user messages besides the agent. None: the whole society.
        readers: Who may read a message, by its index in `messages`. The roles of the others decide.

    Raises:
        RequestError: A name or a role cannot be sent.
    """
    told: dict[str, Any] = {"society": society, "agent": agent}
    if messages is not None:
        chosen = readers or {}
        told["messages"] = [
            {"role": message.get("role")} | ({"readers": _listed(chosen[index])} if index in chosen else {})
            for index, message in enumerate(messages)
        ]
    if audience is not None:
        told["audience"] = list(audience)
    params = {KEY: told}
    parsed(params)
    return params


def _listed(readers: Sequence[str] | Literal["society"]) -> str | list[str]:
    return readers if isinstance(readers, str) else list(readers)
