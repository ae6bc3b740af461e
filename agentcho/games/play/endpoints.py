"""The models behind APIs of one game: which model is asked, and what its prompts may and may not contain.

A message that not everyone may read is sent only to the vendor of its author's model; `Endpoints.port` has the exact
rule. Independent of HTTP.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from typing import cast

from agentcho.errors import LeakageError
from agentcho.message import EVERYONE, Role
from agentcho.protocol.call import Sampling
from agentcho.protocol.text_calls import PromptMessage, TextCall, TextPort
from agentcho.provenance.drafts import Draft
from agentcho.provenance.prefix_cache_salts import cache_salts
from agentcho.provenance.views import ReadSet

Ports = Mapping[str | None, TextPort]
"""Models behind APIs by name; None is the run's own model."""


class Endpoints:
    """The models behind APIs of one game.

    `drafts` are its messages by id, and grow. `allowed` are vendors that may be sent everything. Two prompts share a
    server's cache entries if everybody who may read one may read the other: see `cache_salts`. The key of the salts
    belongs to this game and is never recorded.
    """

    def __init__(self, ports: Ports, drafts: Mapping[str, Draft], allowed: Collection[str] = ()) -> None:
        self._ports = ports
        self._drafts = drafts
        self._allowed = frozenset(allowed)
        self._key = secrets.token_bytes(32)

    def vendor(self, model: str | None) -> str | None:
        """Return the vendor that sees what a model is sent, or None if the model is loaded here."""
        port = self._ports.get(model)
        return None if port is None else port.vendor

    def port(self, model: str | None, author: str, reads: ReadSet, sent: bool = True) -> TextPort | None:
        """Return the endpoint that `author` speaks through, or None if its model is loaded here.

        With `sent` False a person answers, so that nothing is sent. Raises `LeakageError` if one of the messages to
        read must not be sent there: not everyone may read it, it is neither the author's own nor the scenario's nor
        from a model of that vendor, and the vendor may not be sent everything. The result of a tool can repeat the
        arguments of its call, so it counts as what the calling agent said.
        """
        port = self._ports.get(model)
        if port is not None and sent and port.vendor not in self._allowed:
            for read in reads.reads:
                self._check(author, port.vendor, self._drafts[read.id])
        return port

    def _check(self, author: str, vendor: str, draft: Draft) -> None:
        said = self._drafts[draft.act.call] if draft.act.call else draft
        whose, own = said.metadata.author, self.vendor(said.engine)
        if draft.metadata.audience != EVERYONE and whose is not None and whose != author and own != vendor:
            raise LeakageError.vendor(author, draft.metadata.id, whose, own, vendor)

    def call(self, draft: Draft, sampling: Sampling, most: int | None = None) -> TextCall:
        """Return the request for the message of a draft: what its author reads, in order, and at most `most` tokens."""
        author = draft.metadata.author
        assert author is not None
        prompt = tuple(self._quoted(author, self._drafts[read.id]) for read in draft.reads.reads)
        read = [self._drafts[read.id].metadata for read in draft.reads.reads]
        salt = cache_salts([*read, draft.metadata], author, key=self._key)[-1]
        if most is not None and sampling.choices is None and sampling.json_schema is None:
            sampling = sampling.limited(most)
        return TextCall(prompt, draft.text, sampling, salt)

    def _quoted(self, reader: str, draft: Draft) -> PromptMessage:
        """Return a message as it appears in the prompt of `reader`.

        A message of another agent is a user message with that agent's name.
        """
        said, role = draft.message, draft.metadata.role
        assert said is not None
        own = role == "assistant" and draft.metadata.author == reader
        quoted = "user" if role == "assistant" and draft.metadata.author is not None and not own else cast(Role, role)
        return PromptMessage(quoted, None if own else draft.name, said.header + said.text, own)
