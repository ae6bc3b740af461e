"""Stores the messages of responses for `previous_response_id`, for the callers that requested them.

They are kept in memory, limited in number and size for each tenant, and for a limited time. Independent of HTTP and
models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import NamedTuple

from agentcho.serve.api import ids
from agentcho.serve.api.messages import letters
from agentcho.serve.api_errors import ApiError
from agentcho.serve.request import Caller, QuotedMessage

Owner = tuple[str, str, str, str]
"""Tenant, key, society and agent. A response can be continued only by the caller that requested it."""
PARAM = "previous_response_id"
EACH = 200
"""Characters that a message counts for beside its own."""


class StoredResponse(NamedTuple):
    """The messages up to the answer of a response, their owner, the number of characters kept, and until when they are
    kept. `shown` is the response as JSON, as it was sent."""

    owner: Owner
    messages: tuple[QuotedMessage, ...]
    letters: int
    until: float
    shown: str = ""


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
        found = self._found(caller, id)
        if found is None:
            told = f"{PARAM}: there is no such response, or it is no longer kept; send all messages"
            raise ApiError(404, told, PARAM, "previous_response_not_found")
        return found.messages

    def shown(self, caller: Caller, id: str) -> StoredResponse:
        """A response that the caller asks to see. `ApiError` 404: as for `get`."""
        found = self._found(caller, id)
        if found is None:
            told = "there is no such response for this key, society and agent, or it is no longer kept"
            raise ApiError(404, f"{told}; give the id of a stored response", code="response_not_found")
        return found

    def delete(self, caller: Caller, id: str) -> None:
        """Forget a response. `ApiError` 404: as for `get`."""
        self.shown(caller, id)
        del self._kept[caller.tenant][id]

    def end(self, tenant: str, society: str) -> bool:
        """Forget all responses of a society that has ended. Returns whether there were any."""
        own = self._alive(tenant)
        theirs = [id for id, kept in own.items() if kept.owner[2] == society]
        for id in theirs:
            del own[id]
        return bool(theirs)

    def _found(self, caller: Caller, id: str) -> StoredResponse | None:
        own = self._alive(caller.tenant)
        found = own.get(id)
        if found is None or found.owner != _owner(caller):
            return None
        own[id] = own.pop(id)
        return found

    def resolved(self, caller: Caller, messages: Iterable[QuotedMessage]) -> list[QuotedMessage]:
        """The messages, with the answers of stored responses, or parts of them, where they refer to these. `ApiError`
        404: this caller has no such answer."""
        found, own = list[QuotedMessage](), None
        for message in messages:
            if not message.refers:
                found.append(message)
                continue
            own = own or self._answers(caller)
            part, last = _part(own, message.id or ""), found[-1] if found else None
            if last is not None and last.id == part.id:
                found[-1] = last._replace(text=last.text or part.text, calls=(*last.calls, *part.calls))
            else:
                found.append(part)
        return found

    def _answers(self, caller: Caller) -> _OwnAnswers:
        own, owner = self._alive(caller.tenant), _owner(caller)
        found = {stored.messages[-1].id: id for id, stored in own.items() if stored.owner == owner}
        return _OwnAnswers(own, found)

    def keep(self, caller: Caller, id: str, messages: tuple[QuotedMessage, ...], shown: str = "") -> None:
        """Keep the messages of a response, its answer included, and the response itself as JSON."""
        for tenant in [*self._kept]:
            self._alive(tenant)
        own = self._alive(caller.tenant)
        until = self._clock() + self._seconds
        own[id] = StoredResponse(_owner(caller), messages, _size(messages) + len(shown), until, shown=shown)
        while len(own) > self._most or sum(each.letters for each in own.values()) > self._letters:
            del own[next(iter(own))]
        if own:
            self._kept[caller.tenant] = own

    def _alive(self, tenant: str) -> dict[str, StoredResponse]:
        """The responses kept for a tenant. Expired ones are removed."""
        own, now = self._kept.get(tenant, {}), self._clock()
        for id in [id for id, kept in own.items() if kept.until <= now]:
            del own[id]
        if not own:
            self._kept.pop(tenant, None)
        return own


class _OwnAnswers(NamedTuple):
    """The responses kept for a tenant, and the ids of those of one caller by the ids of their answers."""

    responses: dict[str, StoredResponse]
    ids: dict[str | None, str]


def _part(own: _OwnAnswers, item: str) -> QuotedMessage:
    """The answer that an item belongs to, with its text or with the one call that the item is."""
    of = ids.answer(item)
    if (id := own.ids.get(of)) is not None:
        stored = own.responses[id] = own.responses.pop(id)
        said = stored.messages[-1]
        calls = tuple(call for number, call in enumerate(said.calls) if ids.item(of, number) == item)
        if calls or item == ids.item(of):
            return said._replace(calls=calls, text="" if calls else said.text)
    raise ApiError(404, f"input: there is no item {item!r}, or it is no longer kept; send the item itself", "input")


def _size(messages: Sequence[QuotedMessage]) -> int:
    """The number of characters of messages in memory: of their texts, names and ids, and `EACH` for every message and
    call."""
    named = (each for message in messages for each in (message.name, message.id, message.call_id))
    called = [call for message in messages for call in message.calls]
    names = sum(map(len, filter(None, named))) + sum(len(call.id) for call in called)
    return letters(messages) + names + EACH * (len(messages) + len(called))


def _owner(caller: Caller) -> Owner:
    return caller.tenant, caller.key, caller.society or "", caller.agent or ""
