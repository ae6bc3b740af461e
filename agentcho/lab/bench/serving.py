"""`agentcho serve` beside `transformers serve`: recorded messages sent as prompts over HTTP, to both in turns.

Each workflow is played twice a repeat: with one token an answer, for the times of first tokens and for what was reused,
and with `tokens`, for the speed. Where what a server said is quoted and not what was recorded, it is played once. Does
not know: how a server is started, how figures are shown.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from agentcho.config import TemplateChecks
from agentcho.errors import ConfigError
from agentcho.lab.bench import servers
from agentcho.lab.bench.chats import Chat, chats
from agentcho.lab.bench.client import Endpoint, Heard, ask, fed_tokens, first_model
from agentcho.lab.bench.measure import Timed, measure, runs_of
from agentcho.lab.bench.plans import Workload
from agentcho.lab.bench.played import ArmUnavailable
from agentcho.lab.bench.result import Figures
from agentcho.protocol.progress import ProgressCallback, part
from agentcho.records.trace import Workflow

PLAIN = "plain"
BASELINE = "@baseline"
ENFORCE = "@enforce"
PEER = "transformers serve"
ARMS = (PLAIN, BASELINE, ENFORCE, PEER)
"""The server without a society, which reuses equal beginnings; a society in both ways of reading; the peer."""
AT_ONCE = 32
"""Requests that are under way at a time, at most."""
DETAILS = "prompt_tokens_details"


Quote = Literal["recorded", "said"]


class ServingOptions(NamedTuple):
    """What is measured. `tokens` an answer, where speed is; `quote`: the words in which a prompt has what was said
    before, those that were recorded or those of the server that is asked; `peer_python`: of the environment that has
    transformers[serving]; `checked`: what our server is asked to do about templates."""

    model: str
    dtype: str = "float32"
    tokens: int = 64
    quote: Quote = "recorded"
    repeats: int = 3
    seed: int = 1
    peer_python: Path | None = None
    checked: TemplateChecks = TemplateChecks()


class Sends(Protocol):
    """Sends one chat of a play to a server."""

    def __call__(self, chat: Chat, play: str, tokens: int) -> Heard: ...


class Server(NamedTuple):
    """How an arm is asked. `fed`: how many tokens the model was fed so far, where its server says so."""

    send: Sends
    fed: Callable[[], float | None] = lambda: None


def ours(port: int, model: str, arm: str, chat: Chat, play: str, tokens: int) -> Heard:
    """To `agentcho serve`. Each play has a society of its own, or shares nothing with another one by its salt. Without
    a society no names are sent, for the peer has none."""
    if arm == PLAIN:
        return ask(Endpoint(port), body(model, chat.nameless, tokens) | {"cache_salt": play})
    base = f"/s/{play}/{chat.agent}/v1"
    return ask(Endpoint(port, base), body(model + arm, chat, tokens))


def theirs(port: int, model: str, chat: Chat, play: str, tokens: int) -> Heard:
    """To `transformers serve`, which refuses fields that it does not know, and drops the names of speakers."""
    return ask(Endpoint(port), body(model, chat.nameless, tokens))


def body(model: str, chat: Chat, tokens: int) -> dict[str, Any]:
    """A request for the likeliest answer."""
    return {"model": model, "messages": chat.messages, "max_tokens": tokens, "temperature": 0}


def serving(
    asked: ServingOptions,
    subjects: Sequence[Workload],
    named: Sequence[str],
    tell: ProgressCallback,
    running: Mapping[str, Server] = MappingProxyType({}),
) -> list[Figures]:
    """Every subject in all named arms, in turns, on servers that run side by side; `running` are more, by their names,
    that run already. An arm whose server does not run here is left out, with the reason. `ConfigError`: a name that
    there is not, or our own server does not run."""
    for name in named:
        if name not in ARMS:
            raise ConfigError(f"unknown arm {name!r}; give one of {', '.join(ARMS)}")
    found: list[Figures] = []
    with ExitStack() as stack:
        started, reasons = _started(stack, asked, named)
        started |= running
        each = runs_of(started, asked.repeats)
        for number, subject in enumerate(subjects):
            plays = {name: _Plays(name, server, subject.name, asked) for name, server in started.items()}
            told = part(tell, number * each, len(subjects) * each)
            timed = {
                name: Timed(partial(one.warm, subject.warm), partial(one.take, subject.workflow))
                for name, one in plays.items()
            }
            taken = measure(subject.name, timed, asked.repeats, told)
            found += [_with_same(figures, plays) for figures in taken]
            found += [Figures.of(subject.name, name, [], why) for name, why in reasons.items()]
    return found


def _started(stack: ExitStack, asked: ServingOptions, named: Sequence[str]) -> tuple[dict[str, Server], dict[str, str]]:
    """How each arm is asked; and why those that are missing do not run here."""
    found, reasons = dict[str, Server](), dict[str, str]()
    mine = [name for name in named if name != PEER]
    if mine:
        port = servers.free_port()
        try:
            command = servers.ours(asked.model, asked.dtype, port, asked.checked.template_differs)
            stack.enter_context(servers.running(command, port))
        except ArmUnavailable as error:
            raise ConfigError(f"`agentcho serve`: {error}") from error
        model = first_model(Endpoint(port))
        found |= {name: Server(partial(ours, port, model, name), partial(fed_tokens, port)) for name in mine}
    if PEER in named:
        port = servers.free_port()
        try:
            command = servers.peer(asked.model, asked.dtype, port, asked.peer_python)
            stack.enter_context(servers.running(command, port))
            found[PEER] = Server(partial(theirs, port, servers.folder(asked.model)))
        except ArmUnavailable as error:
            reasons[PEER] = str(error)
    return found, reasons


class _Plays:
    """The plays of one workflow in one arm. Those of the same number have the same words in all arms."""

    def __init__(self, arm: str, server: Server, subject: str, asked: ServingOptions) -> None:
        self._arm = arm
        self._server = server
        self._subject = subject
        self._asked = asked
        self.said: list[dict[str, str]] = []

    def warm(self, workflow: Workflow) -> Mapping[str, float]:
        """A play that is not counted."""
        self._play(workflow, -1, self._asked.tokens)
        return {}

    def take(self, workflow: Workflow) -> Mapping[str, float]:
        """A play for first tokens, and one for speed; one for both where it is quoted."""
        number = len(self.said)
        if self._asked.quote == "said":
            first, fed = whole, _ = self._play(workflow, number, self._asked.tokens)
        else:
            first, fed = self._play(workflow, number, 1)
            whole, _ = self._play(workflow, number, self._asked.tokens)
        self.said.append({id: heard.text for id, heard in whole.items()})
        return spared(list(first.values()), fed) | speed(list(whole.values()))

    def _play(self, workflow: Workflow, number: int, tokens: int) -> tuple[dict[str, Heard], dict[str, float]]:
        """What was heard; and how many tokens the server fed its model for it."""
        dice = random.Random(f"{self._asked.seed} {self._subject} {number} {tokens}")
        label = f"{dice.getrandbits(64):016x}"
        name = "-".join((label, self._arm.strip("@").split()[0]))
        send = partial(self._server.send, play=name, tokens=tokens)
        before = self._server.fed()
        heard = play(chats(workflow, f"Talk {label}. "), send, self._asked.quote == "said")
        after = self._server.fed()
        return heard, {} if before is None or after is None else {"fed": after - before}


def play(calls: Sequence[Chat], send: Any, quote_said: bool = False) -> dict[str, Heard]:
    """Send each chat as soon as those that it waits for have ended; `quote_said`: with what they said.
    `ArmUnavailable`, of the first that fails."""
    heard, given = dict[str, Heard](), dict[Future[Heard], str]()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        left = list(calls)
        while left or given:
            for chat in [chat for chat in left if chat.after <= heard.keys()]:
                said = {id: heard[id].text for id in chat.quotes if id in heard} if quote_said else {}
                given[threads.submit(send, chat.quoting(said))] = chat.id
                left.remove(chat)
            for done in wait(given, return_when=FIRST_COMPLETED).done:
                heard[given.pop(done)] = done.result()
    return heard


def first_tokens(heard: Sequence[Heard]) -> dict[str, float]:
    """Mean seconds from sending to a first token; the tokens of all prompts, and the shares of them that the server
    says were reused exactly, and through encodings of messages; nothing of it where it says nothing."""
    found = {"ttft": fmean(one.first - one.began for one in heard), "prompt": _sum(heard, "prompt_tokens")}
    cached, reused = (_sum(heard, DETAILS, name) for name in ("cached_tokens", "message_reused_tokens"))
    known = any(one.counted(DETAILS, "cached_tokens") is not None for one in heard)
    return found | ({"exact": cached / found["prompt"], "reused": reused / found["prompt"]} if known else {})


def spared(heard: Sequence[Heard], fed: Mapping[str, float]) -> dict[str, float]:
    """First tokens, and where it is known what the model was `fed`, the share of prompt tokens that it was not: what it
    was fed beyond the tokens of answers is counted as prompt."""
    found = first_tokens(heard) | dict(fed)
    if fed:
        found["spared"] = 1 - (fed["fed"] - _sum(heard, "completion_tokens")) / found["prompt"]
    return found


def speed(heard: Sequence[Heard]) -> dict[str, float]:
    """Seconds of a whole play, the tokens that were said in it, both together a second, and mean seconds to a first
    token beside answers of that length."""
    seconds = max(one.ended for one in heard) - min(one.began for one in heard)
    said, waited = _sum(heard, "completion_tokens"), fmean(one.first - one.began for one in heard)
    return {"seconds": seconds, "said": said, "rate": said / seconds, "ttft_long": waited}


def _sum(heard: Sequence[Heard], *path: str) -> float:
    return sum(one.counted(*path) or 0.0 for one in heard)


def _with_same(figures: Figures, plays: Mapping[str, _Plays]) -> Figures:
    """The peer's, with the share of its answers that have the words of the server without a society, play by play: both
    read the same prompts, and both read them exactly."""
    if figures.arm != PEER or not figures.values or PLAIN not in plays:
        return figures
    both = zip(plays[PEER].said, plays[PLAIN].said, strict=False)
    same = tuple(fmean(said[id] == other[id] for id in said) for said, other in both)
    return figures.model_copy(update={"values": figures.values | {"same": same}})
