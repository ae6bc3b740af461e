"""Salts for prefix caches of servers: which requests may reuse the keys and values of which others.

They keep a server's cache hits from revealing to one agent what another one read. Independent of servers and words.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable
from itertools import accumulate

from agentcho.errors import RequestError
from agentcho.message import Audience, Message, Metadata, agent_name, audience
from agentcho.protocol.value_checks import checked_list, type_name

SHORTEST_KEY = 16
DOMAIN = b"agentcho.cache-salt/1\n"
"""Prefix of all digested data, so that the same key gives other digests in other uses."""


def cache_salts(messages: Iterable[Message | Metadata], reader: str, *, key: bytes) -> tuple[str, ...]:
    """Return the salts of one request to a server with a prefix cache, such as vLLM or SGLang.

    There is one salt per message, and **the last one is the `cache_salt` of the request**. The others are for servers
    that take a salt per block: use that of the message in which the block ends. Agents then share more, and everything
    below holds for each block.

    Requests share only if their `key` is equal. Use one key per game, because the same name is another agent in another
    game.

    *What a salt does.* A server keeps the tokens of every request in blocks. A request reuses (hits) its longest
    beginning, in whole blocks, that an earlier request with the same salt began with too, and is then answered sooner.
    An agent that times its own requests therefore learns whether a beginning that it guesses was there.

    *What is promised.* Take two runs with the same requests (who asks with which messages) that differ only in words of
    messages that agent R may not read, none of which is in a request of R. Each request of R then hits the same blocks
    in both runs.

    *Why.* The salt is a digest of one thing: A, the agents who may read every message of the request. R may read all of
    its own request, so R is in A. All other requests under that salt have the same A, so R may read all of their
    messages. Their words are therefore the same in both runs, and so is everything that can be hit. A reader who may
    not read its own request (a direct leak, which `leakage="audit"` records) is not in A. The salt of that request
    covers this reader and A, and no other reader ever has it.

    *Why no two salts could be merged.* Let A and B differ, and let R be in A but not in B (or the other way round). A
    request of B has a message that R may not read. A request of R in A can contain R's guess of that message, and would
    hit if the guess is right.

    *What is not covered.* A salt cannot hide how full and how busy a server is, and some servers ignore the field.

    Args:
        messages: The messages of the request in prompt order. The last one is the new message, whose words the server
            generates and keeps too.
        reader: The agent who asks.
        key: At least 16 secret random bytes.

    Returns:
        One salt per message, each 43 characters of letters, digits, "-" and "_".

    Raises:
        RequestError: There are no messages, they belong to several games, or `key` is invalid.
        AudienceError: `reader` cannot name an agent.

    Example::

        salts = cache_salts([*prompt, new_message], "ann", key=secrets.token_bytes(32))
        body["cache_salt"] = salts[-1]
    """
    name, secret = agent_name(reader), _secret(key)
    audiences = _audiences(checked_list(messages, "the messages of a request"))
    return tuple(_salt(secret, readers, name) for readers in accumulate(audiences, Audience.both))


def _secret(key: object) -> bytes:
    if not isinstance(key, bytes) or len(key) < SHORTEST_KEY:
        what = f"{len(key)} bytes" if isinstance(key, bytes) else type_name(key)
        raise RequestError(f"the key of cache salts is {what}; give at least {SHORTEST_KEY} secret random bytes")
    return key


def _audiences(messages: tuple[object, ...]) -> list[Audience]:
    """Return copies of the audiences of messages, made of plain strings."""
    if not messages:
        raise RequestError("a request without messages has no cache salt; give its messages, with the new one last")
    given = [each for each in messages if isinstance(each, Message | Metadata)]
    if len(given) < len(messages):
        stranger = next(each for each in messages if not isinstance(each, Message | Metadata))
        raise RequestError(f"one of the messages of a request is {type_name(stranger)}; give a Message or its metadata")
    if len(games := {each.game for each in given if isinstance(each, Message)}) > 1:
        raise RequestError(
            f"the messages of a request belong to several games ({', '.join(map(str, sorted(games)))}); "
            "give messages of one game"
        )
    return [audience(each.audience) for each in given]


def _salt(key: bytes, readers: Audience, reader: str) -> str:
    """Return a 256-bit digest of `readers`, and of `reader` too if it is not among them, as 43 characters."""
    alone = None if readers.includes(reader) else reader
    content = json.dumps([readers.to_json(), alone]).encode()
    digest = hmac.new(key, DOMAIN + content, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
