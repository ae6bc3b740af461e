"""Times the talk of three agents that docs/clients.md has for AutoGen, by the address of its server: `agentcho serve`
without a society, as a society in both ways of reading, and `transformers serve`.

The code is that of the page. The address, the model, and a label before each system prompt are inserted, so that no
talk reuses what an earlier one left.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from agentcho.errors import ConfigError
from agentcho.lab.bench import servers
from agentcho.lab.bench.client import Endpoint, fed_tokens, first_model
from agentcho.lab.bench.measure import Timed, measure, runs_of
from agentcho.lab.bench.played import ArmUnavailable
from agentcho.lab.bench.result import Figures
from agentcho.lab.bench.serving import BASELINE, ENFORCE, PEER, PLAIN
from agentcho.protocol.progress import ProgressCallback, part

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "clients.md"
CLIENTS = ROOT / ".venv" / "clients" / "frameworks" / "bin" / "python"
TALKER = Path(__file__).parent / "talker.py"
SUBJECTS = {"as on the page": 0, "with a task of 500 words": 500}
"""The number of additional words in the task, which all agents read."""
WORDS = (
    "price",
    "of",
    "grain",
    "and",
    "wool",
    "in",
    "every",
    "town",
    "on",
    "market",
    "day",
    "for",
    "who",
    "buys",
    "more",
)
URL, MODEL = "http://127.0.0.1:8000/s/market-b/{name}/v1", 'model="understudy"'
SYSTEM, TASK = "system_message=BRIEFS[name]", 'task="Agree on a price."'
"""Strings that occur once in the page's code and are replaced here."""
Say = Callable[[str], dict[str, Any]]
"""Runs code in the client's environment, and returns its result."""


class Asked(NamedTuple):
    """What is measured. `peer_python`: the Python of the environment that has transformers[serving]; `clients`: that of
    the one that has AutoGen."""

    model: str
    dtype: str = "float32"
    repeats: int = 9
    seed: int = 1
    peer_python: Path | None = None
    clients: Path = CLIENTS


class Server(NamedTuple):
    """How an arm's server is addressed: the address, in which {name} is the agent and {talk} the society; the model;
    and how many tokens the model was fed so far, if the server reports that."""

    address: str
    model: str
    fed: Callable[[], float | None] = lambda: None


def page_code() -> str:
    """The page's code for AutoGen. `ConfigError`: there is none that can be given another address."""
    found = re.search(r"^## AutoGen\n.*?^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    code = found[1] if found else ""
    if any(code.count(part) != 1 for part in (URL, MODEL, SYSTEM, TASK)):
        raise ConfigError(f"{PAGE.name} has no code for AutoGen with {URL}, {MODEL}, {SYSTEM} and {TASK} once each")
    return code


class Talk(NamedTuple):
    """One talk: its society, the prefix of all system prompts, and the prefix of the task."""

    society: str
    label: str
    task: str = ""


def code_for(code: str, server: Server, talk: Talk) -> str:
    """The page's code, changed to have this talk with this server."""
    address, model = server.address.replace("{talk}", talk.society), f"model={server.model!r}"
    system, task = SYSTEM.replace("BRIEFS", f"{talk.label!r} + BRIEFS"), TASK.replace("=", f"={talk.task!r} + ")
    return code.replace(URL, address).replace(MODEL, model).replace(SYSTEM, system).replace(TASK, task)


def talks(asked: Asked, tell: ProgressCallback) -> list[Figures]:
    """Every arm in turns. An arm whose server does not run here is left out, with the reason. `ConfigError`: AutoGen is
    not installed, the page's code has changed, or agentcho's own server does not run."""
    code = page_code()
    with ExitStack() as stack:
        say = stack.enter_context(talker(asked.clients))
        started, reasons = _started(stack, asked)
        found, each = list[Figures](), runs_of(started, asked.repeats)
        for number, (subject, words) in enumerate(SUBJECTS.items()):
            plays = [_Talks(name, server, asked.seed, words) for name, server in started.items()]
            timed = {one.arm: Timed(partial(one.take, say, code, -1), partial(one.take, say, code)) for one in plays}
            found += measure(subject, timed, asked.repeats, part(tell, number * each, len(SUBJECTS) * each))
            found += [Figures.of(subject, name, [], why) for name, why in reasons.items()]
    return found


@contextmanager
def talker(python: Path) -> Iterator[Say]:
    """Runs code in an environment that has AutoGen, in one process until the context ends."""
    if not python.is_file():
        raise ConfigError(f"there is no {python}: run `make clients`, or give --clients-python")
    command = [str(python), str(TALKER)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        given, heard = process.stdin, process.stdout
        assert given is not None
        assert heard is not None

        def say(code: str) -> dict[str, Any]:
            print(json.dumps({"code": code}), file=given, flush=True)
            line = heard.readline()
            found: dict[str, Any] = json.loads(line) if line else {"error": "the client ended"}
            if "error" in found or not found["answers"]:
                raise ArmUnavailable(" ".join(found.get("error", "nobody answered").split())[:200])
            return found

        yield say


def version_of(python: Path) -> str:
    """The client and its version, or "none" if it is not installed."""
    name = "autogen-agentchat"
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    ran = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    return f"{name} {ran.stdout.strip()}" if ran.stdout.strip() else "none"


def _started(stack: ExitStack, asked: Asked) -> tuple[dict[str, Server], dict[str, str]]:
    """The server of each arm, and why a missing one does not run here."""
    port = servers.free_port()
    try:
        stack.enter_context(servers.running(servers.ours(asked.model, asked.dtype, port), port))
    except ArmUnavailable as error:
        raise ConfigError(f"`agentcho serve`: {error}") from error
    model, root, fed = first_model(Endpoint(port)), f"http://127.0.0.1:{port}", partial(fed_tokens, port)
    found = {PLAIN: Server(f"{root}/v1", model, fed)}
    found |= {way: Server(f"{root}/s/{{talk}}/{{name}}/v1", model + way, fed) for way in (BASELINE, ENFORCE)}
    port = servers.free_port()
    try:
        command = servers.peer(asked.model, asked.dtype, port, asked.peer_python)
        stack.enter_context(servers.running(command, port))
    except ArmUnavailable as error:
        return found, {PEER: str(error)}
    return found | {PEER: Server(f"http://127.0.0.1:{port}/v1", servers.folder(asked.model))}, {}


class _Talks:
    """The talks of one arm. Those with the same number have the same words in all arms, apart from the answers."""

    def __init__(self, arm: str, server: Server, seed: int, words: int) -> None:
        self.arm, self._server, self._seed, self._words, self._taken = arm, server, seed, words, 0

    def take(self, say: Say, code: str, number: int | None = None) -> Mapping[str, float]:
        """Run one talk: that of this number, or the next one."""
        if number is None:
            number, self._taken = self._taken, self._taken + 1
        before = self._server.fed()
        found = say(code_for(code, self._server, self._made(number)))
        after = self._server.fed()
        return figures(found) | ({} if before is None or after is None else {"fed": after - before})

    def _made(self, number: int) -> Talk:
        dice = random.Random(f"{self._seed} {self._words} {number}")
        label = f"{dice.getrandbits(64):016x}"
        task = " ".join(dice.choices(WORDS, k=self._words))
        return Talk(f"{label}-{self.arm.strip('@').split()[0]}", f"Talk {label}. ", task and f"{task}. ")


def figures(found: Mapping[str, Any]) -> dict[str, float]:
    """The figures of one talk: its seconds, the mean seconds of an answer, and the seconds per generated token; the
    tokens of all prompts, and of all answers; and the shares of the former that the server reports as reused exactly,
    and through encodings of messages."""
    answers = found["answers"]
    usages = [each["usage"] for each in answers]
    total = {name: float(sum(each.get(f"{name}_tokens", 0) for each in usages)) for name in ("prompt", "completion")}
    told = [each.get("prompt_tokens_details") or {} for each in usages]
    known = {"exact": "cached_tokens", "reused": "message_reused_tokens"} if any(told) else {}
    shares = {name: sum(each.get(of) or 0 for each in told) / total["prompt"] for name, of in known.items()}
    times = {"seconds": found["seconds"], "answer": fmean(each["seconds"] for each in answers)}
    times["token"] = times["seconds"] / max(total["completion"], 1)
    return times | {"prompt": total["prompt"], "said": total["completion"]} | shares
