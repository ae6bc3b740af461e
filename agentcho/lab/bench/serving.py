"""Benchmarks `agentcho serve` and `transformers serve` in turns, with recorded messages sent as prompts over HTTP.

Each workflow is played twice per repeat: with one token per answer, for the times of first tokens and for reuse, and
with `tokens`, for the speed. If prompts quote what the server said instead of the recorded texts, it is played once.
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
"""The server without a society, which reuses equal prefixes; a society in both reading modes; the peer."""
AT_ONCE = 32
"""Maximum of concurrent requests."""
DETAILS = "prompt_tokens_details"


Quote = Literal["recorded", "said"]


class ServingOptions(NamedTuple):
    """What is measured. `tokens`: per answer, when measuring speed; `quote`: whether prompts quote the recorded texts
    or what the server said; `peer_python`: that of an environment with transformers[serving]; `checked`: the template
    options of our server."""

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
    """How requests of an arm are sent. `fed`: the number of tokens fed to the model so far, if its server reports
    it."""

    send: Sends
    fed: Callable[[], float | None] = lambda: None


def ours(port: int, model: str, arm: str, chat: Chat, play: str, tokens: int) -> Heard:
    """Send to `agentcho serve`. A play has a society of its own, or without one a salt, so that plays share nothing.
    Without a society no names are sent, as to the peer."""
    if arm == PLAIN:
        return ask(Endpoint(port), body(model, chat.nameless, tokens) | {"cache_salt": play})
    base = f"/s/{play}/{chat.agent}/v1"
    return ask(Endpoint(port, base), body(model + arm, chat, tokens))


def theirs(port: int, model: str, chat: Chat, play: str, tokens: int) -> Heard:
    """Send to `transformers serve`, which refuses unknown fields and drops the names of speakers."""
    return ask(Endpoint(port), body(model, chat.nameless, tokens))


def body(model: str, chat: Chat, tokens: int) -> dict[str, Any]:
    """A request for a greedy answer."""
    return {"model": model, "messages": chat.messages, "max_tokens": tokens, "temperature": 0}


def serving(
    asked: ServingOptions,
    subjects: Sequence[Workload],
    named: Sequence[str],
    tell: ProgressCallback,
    running: Mapping[str, Server] = MappingProxyType({}),
) -> list[Figures]:
    """Measure every subject in all named arms, interleaved, on servers that run side by side; `running` are servers
    that already run, by name. An arm whose server does not run here is left out, with the reason. `ConfigError`:
    unknown arm, or our own server does not run."""
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
    """Start the servers; returns those that run by arm, and why the others do not run here."""
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
    """The plays of one workflow in one arm. Plays with the same number have the same texts in all arms."""

    def __init__(self, arm: str, server: Server, subject: str, asked: ServingOptions) -> None:
        self._arm = arm
        self._server = server
        self._subject = subject
        self._asked = asked
        self.said: list[dict[str, str]] = []

    def warm(self, workflow: Workflow) -> Mapping[str, float]:
        """Play once for warm-up."""
        self._play(workflow, -1, self._asked.tokens)
        return {}

    def take(self, workflow: Workflow) -> Mapping[str, float]:
        """Play once for first tokens and once for speed; once for both if what the server said is quoted."""
        number = len(self.said)
        if self._asked.quote == "said":
            first, fed = whole, _ = self._play(workflow, number, self._asked.tokens)
        else:
            first, fed = self._play(workflow, number, 1)
            whole, _ = self._play(workflow, number, self._asked.tokens)
        self.said.append({id: heard.text for id, heard in whole.items()})
        return spared(list(first.values()), fed) | speed(list(whole.values()))

    def _play(self, workflow: Workflow, number: int, tokens: int) -> tuple[dict[str, Heard], dict[str, float]]:
        """The responses, and the number of tokens that the server fed to its model for them."""
        dice = random.Random(f"{self._asked.seed} {self._subject} {number} {tokens}")
        label = f"{dice.getrandbits(64):016x}"
        name = "-".join((label, self._arm.strip("@").split()[0]))
        send = partial(self._server.send, play=name, tokens=tokens)
        before = self._server.fed()
        heard = play(chats(workflow, f"Talk {label}. "), send, self._asked.quote == "said")
        after = self._server.fed()
        return heard, {} if before is None or after is None else {"fed": after - before}


def play(calls: Sequence[Chat], send: Any, quote_said: bool = False) -> dict[str, Heard]:
    """Send each chat as soon as those that it waits for have ended; `quote_said`: quote their actual answers.
    `ArmUnavailable`: raised by the first that fails."""
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
    """Mean seconds from sending to the first token; the tokens of all prompts; and, if the server reports them, the
    shares of these that were reused exactly, and through encodings of messages."""
    found = {"ttft": fmean(one.first - one.began for one in heard), "prompt": _sum(heard, "prompt_tokens")}
    cached, reused = (_sum(heard, DETAILS, name) for name in ("cached_tokens", "message_reused_tokens"))
    known = any(one.counted(DETAILS, "cached_tokens") is not None for one in heard)
    return found | ({"exact": cached / found["prompt"], "reused": reused / found["prompt"]} if known else {})


def spared(heard: Sequence[Heard], fed: Mapping[str, float]) -> dict[str, float]:
    """First tokens and, if `fed` is known, the share of prompt tokens that were not fed: tokens fed beyond those of
    answers are counted as prompt."""
    found = first_tokens(heard) | dict(fed)
    if fed:
        found["spared"] = 1 - (fed["fed"] - _sum(heard, "completion_tokens")) / found["prompt"]
    return found


def speed(heard: Sequence[Heard]) -> dict[str, float]:
    """Seconds of a whole play, its generated tokens, their rate per second, and mean seconds to the first token at this
    answer length."""
    seconds = max(one.ended for one in heard) - min(one.began for one in heard)
    said, waited = _sum(heard, "completion_tokens"), fmean(one.first - one.began for one in heard)
    return {"seconds": seconds, "said": said, "rate": said / seconds, "ttft_long": waited}


def _sum(heard: Sequence[Heard], *path: str) -> float:
    return sum(one.counted(*path) or 0.0 for one in heard)


def _with_same(figures: Figures, plays: Mapping[str, _Plays]) -> Figures:
    """The peer's figures with the share of its answers equal to those of the server without a society, play by play:
    both read the same prompts, and both exactly."""
    if figures.arm != PEER or not figures.values or PLAIN not in plays:
        return figures
    both = zip(plays[PEER].said, plays[PLAIN].said, strict=False)
    same = tuple(fmean(said[id] == other[id] for id in said) for said, other in both)
    return figures.model_copy(update={"values": figures.values | {"same": same}})
