"""What `previous_response_id` goes on with: the messages of responses, kept for those who asked for them.

Kept in memory, in bounds of number and size for each tenant, and for a time. Does not know: HTTP, models, what a
message means.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from agentcho.serve.api.messages import letters
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Caller, QuotedMessage

Owner = tuple[str, str, str, str]
"""Tenant, key, society and agent: a response is gone on with by who asked for it, and by nobody else."""
PARAM = "previous_response_id"


class StoredResponse(NamedTuple):
    """The messages up to the answer of a response, whose they are, their letters, and until when they are kept."""

    owner: Owner
    messages: tuple[QuotedMessage, ...]
    letters: int
    until: float


class ResponseStore:
    """Those of a server: at most `most` responses of a tenant, of `letters` together, for so many `seconds`. What was
    asked for least recently goes first."""

    def __init__(self, most: int, letters: int, seconds: float, clock: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._letters = letters
        self._seconds = seconds
        self._clock = clock
        self._kept: dict[str, dict[str, StoredResponse]] = {}

    def get(self, caller: Caller, id: str) -> tuple[QuotedMessage, ...]:
        """The messages up to the answer of this response. `ApiError` 404: there is none of that id for this caller,
        whoever else has one."""
        own = self._alive(caller.tenant)
        found = own.get(id)
        if found is None or found.owner != _owner(caller):
            told = f"{PARAM}: there is no such response, or it is no longer kept; send all messages"
            raise ApiError(404, told, PARAM, "previous_response_not_found")
        own[id] = own.pop(id)
        return found.messages

    def keep(self, caller: Caller, id: str, messages: tuple[QuotedMessage, ...]) -> None:
        """Keep the messages up to the answer of a response, that included."""
        own = self._alive(caller.tenant)
        until = self._clock() + self._seconds
        own[id] = StoredResponse(_owner(caller), messages, letters(messages), until)
        while len(own) > self._most or sum(each.letters for each in own.values()) > self._letters:
            del own[next(iter(own))]
        if own:
            self._kept[caller.tenant] = own

    def _alive(self, tenant: str) -> dict[str, StoredResponse]:
        """What is kept for a tenant, less what is too old; that of all others is dropped too."""
        now = self._clock()
        for each in [*self._kept]:
            for id in [id for id, kept in self._kept[each].items() if kept.until <= now]:
                del self._kept[each][id]
            if not self._kept[each]:
                del self._kept[each]
        return self._kept.get(tenant, {})


def _owner(caller: Caller) -> Owner:
    return caller.tenant, caller.key, caller.society or "", caller.agent or ""
