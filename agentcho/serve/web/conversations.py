"""Stores the messages of responses for `previous_response_id`, for the callers that requested them.

They are kept in memory, limited in number and size for each tenant, and for a limited time. Independent of HTTP and
models.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from agentcho.serve.api.messages import letters
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Caller, QuotedMessage

Owner = tuple[str, str, str, str]
"""Tenant, key, society and agent. A response can be continued only by the caller that requested it."""
PARAM = "previous_response_id"


class StoredResponse(NamedTuple):
    """The messages up to the answer of a response, their owner, their number of characters, and until when they are
    kept."""

    owner: Owner
    messages: tuple[QuotedMessage, ...]
    letters: int
    until: float


class ResponseStore:
    """The responses of a server: at most `most` per tenant, with at most `letters` characters in all, each for
    `seconds`. The least recently used are dropped first."""

    def __init__(self, most: int, letters: int, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._letters = letters
        self._seconds = seconds
        self._clock = clock
        self._kept: dict[str, dict[str, StoredResponse]] = {}

    def get(self, caller: Caller, id: str) -> tuple[QuotedMessage, ...]:
        """The messages up to the answer of this response. `ApiError` 404: this caller has none with that id, whether or
        not others do."""
        own = self._alive(caller.tenant)
        found = own.get(id)
        if found is None or found.owner != _owner(caller):
            told = f"{PARAM}: there is no such response, or it is no longer kept; send all messages"
            raise ApiError(404, told, PARAM, "previous_response_not_found")
        own[id] = own.pop(id)
        return found.messages

    def keep(self, caller: Caller, id: str, messages: tuple[QuotedMessage, ...]) -> None:
        """Keep the messages of a response, its answer included."""
        own = self._alive(caller.tenant)
        until = self._clock() + self._seconds
        own[id] = StoredResponse(_owner(caller), messages, letters(messages), until)
        while len(own) > self._most or sum(each.letters for each in own.values()) > self._letters:
            del own[next(iter(own))]
        if own:
            self._kept[caller.tenant] = own

    def _alive(self, tenant: str) -> dict[str, StoredResponse]:
        """The responses kept for a tenant. Expired ones of all tenants are removed."""
        now = self._clock()
        for each in [*self._kept]:
            for id in [id for id, kept in self._kept[each].items() if kept.until <= now]:
                del self._kept[each][id]
            if not self._kept[each]:
                del self._kept[each]
        return self._kept.get(tenant, {})


def _owner(caller: Caller) -> Owner:
    return caller.tenant, caller.key, caller.society or "", caller.agent or ""
