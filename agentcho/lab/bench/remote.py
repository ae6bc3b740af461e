"""Benchmarks a user's own server of OpenAI's API on the same workflows, sent as text; alone, or beside `agentcho
serve`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentcho.config import API, ModelConfig
from agentcho.errors import ConfigError
from agentcho.integrations.endpoints.address import NO_KEY, address_of, key_of
from agentcho.lab.bench.chats import Chat
from agentcho.lab.bench.client import Endpoint, Heard, ask, first_model
from agentcho.lab.bench.plans import Workload
from agentcho.lab.bench.played import ArmUnavailable
from agentcho.lab.bench.result import Figures
from agentcho.lab.bench.serving import ENFORCE, PLAIN, Server, ServingOptions, body, serving
from agentcho.protocol.progress import ProgressCallback

SERVER = "server"
"""The arm of the user's own server."""
OPTION = "of --server"


class Remote(NamedTuple):
    """A server that answers: its address, and the model that it is asked for."""

    endpoint: Endpoint
    model: str

    def send(self, chat: Chat, play: str, tokens: int) -> Heard:
        """Send one chat, without names of speakers, because few servers accept them. `ArmUnavailable`: it has failed;
        its reason does not contain the key."""
        try:
            return ask(self.endpoint, body(self.model, chat.nameless, tokens))
        except ArmUnavailable as error:
            key = self.endpoint.key
            raise ArmUnavailable(str(error) if key is None else key.out_of(str(error))) from None


def reached(url: str, model: str | None, key_env: str | None) -> Remote:
    """The server at `url`, once it has answered. `model`: None takes the first that it lists. Its key is in the
    environment variable `key_env`. `ConfigError`: no URL, no key, no answer, no such model."""
    config = ModelConfig(model=f"{API}{model or ''}", base_url=url, key_env=key_env)
    address = address_of(config, OPTION)
    key = key_of(config, OPTION, address)
    base = "/" + address.url.partition("://")[2].partition("/")[2]
    sent = None if key.reveal() == NO_KEY else key
    endpoint = Endpoint(port=address.port, base=base, host=address.host, secure=address.secure, key=sent)
    try:
        found = Remote(endpoint, model or first_model(endpoint))
    except ArmUnavailable as error:
        raise ConfigError(
            f"the server at {address.url} does not report its model: {key.out_of(str(error))}; start it, or name a "
            "model with --server-model"
        ) from None
    try:
        ask(endpoint, {"model": found.model, "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 1})
    except ArmUnavailable as error:
        raise ConfigError(
            f"model {found.model} of the server at {address.url} does not answer: {key.out_of(str(error))}"
        ) from None
    return found


def beside(
    remote: Remote, asked: ServingOptions, own: bool, subjects: Sequence[Workload], tell: ProgressCallback
) -> list[Figures]:
    """Measure every subject on the server; `own`: interleaved with `agentcho serve` of the model that `asked` names."""
    ours = (PLAIN, ENFORCE) if own else ()
    return serving(asked=asked, subjects=subjects, named=ours, tell=tell, running={SERVER: Server(remote.send)})
