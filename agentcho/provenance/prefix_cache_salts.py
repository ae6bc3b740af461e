"""Salts for prefix caches of servers: which requests may reuse the keys and values of which others.

Does not know: servers, words, how a request is sent.
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
"""The first bytes of all that is digested, so that a key that is used elsewhere too gives other digests there."""


def cache_salts(messages: Iterable[Message | Metadata], reader: str, *, key: bytes) -> tuple[str, ...]:
    """The salts of one request to a server with a prefix cache, such as vLLM or SGLang: one a message, and **the last
    is the `cache_salt` of the request**.

    `messages` are those of the request in the order of its prompt, and last the new message, whose words the server
    generates and keeps too; `reader` is the agent who asks. `key` is secret, at least 16 random bytes. Requests share
    only where their keys are equal: take one key a game, for names mean other agents in another game.

    *What a salt does.* A server keeps the tokens of every request in blocks. A request reuses (hits) its longest
    beginning, in whole blocks, that an earlier request of the same salt began with too, and then answers sooner. So an
    agent that measures its own requests learns whether a beginning that it guesses was there.

    *What is promised.* Let two runs have the same requests (who asks with which messages), and differ only in words of
    messages that agent R may not read, none of which stands in a request of R. Then each request of R hits the same
    blocks in both.

    *Why.* The salt is a digest of one thing: A, the agents who may read every message of the request. R may read all
    of its own request, so R is in A. All other requests under that salt have the same A, so R may read all of their
    messages: their words are the same in both runs, and with them all that can be hit. A reader who may not read its
    own request (a direct leak, which `leakage="audit"` records) is not in A; that request has a salt of this reader and
    A, which no other reader ever has.

    *Why no two salts could be one.* Let A and B differ, and R be in A but not in B (or the other way round). A request
    of B has a message that R may not read. A request of R in A can say what R guesses of it, and would hit if right.

    The other salts are those of the request's beginnings, for a server that takes a salt for each block: that of the
    message in which the block ends. Everything above holds for each block then, and agents share more.

    `RequestError`: no messages, messages of several games, or a key that is none. `AudienceError`: no name of an agent.
    Not covered, for a salt cannot: how full and how busy a server is, and servers that ignore the field.
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
    """The audiences of messages, made anew of exact words."""
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
    """A digest of `readers`, 256 bits in 43 letters, digits, - and _; of `reader` too if it is none of them."""
    alone = None if readers.includes(reader) else reader
    content = json.dumps([readers.to_json(), alone]).encode()
    digest = hmac.new(key, DOMAIN + content, hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
