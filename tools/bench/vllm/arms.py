"""The arms of the comparison with vLLM: each plays one workflow with every text forced, on the same weights.

Plain vLLM runs in a separate process, because a process can have only one connector.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from time import process_time
from typing import Any, NamedTuple

from agentcho.engine.core import EngineCore
from agentcho.engine.framing import Framing
from agentcho.games.runs.replay import awaited
from agentcho.lab.bench.arms import GENERATE, arm
from agentcho.lab.bench.played import ArmUnavailable, CallTimes, WorkflowTimes
from agentcho.lab.bench.prompts import prompts
from agentcho.records.trace import Workflow
from agentcho.runner.engine import Engine
from agentcho.runner.model.checkpoint import folder_of
from agentcho.runner.model.model import find
from tools.bench.vllm.names import ON_VLLM, OWN, PLAIN

ENGINE: Mapping[str, Any] = {"max_num_seqs": 64, "block_size": 32}
"""The options of both vLLMs. Prefixes are shared in whole blocks. On a CPU a block has 128 tokens by default; with
that, fewer tokens are shared, and steps take longer here."""

Play = Callable[[Workflow], Mapping[str, float]]


class Engines(NamedTuple):
    """The same weights three times: in agentcho's own engine, in engine vllm, and in plain vLLM."""

    own: Engine
    vllm: EngineCore
    peer: Peer


class Peer:
    """Plain vLLM in a separate process. See `peer`."""

    def __init__(self, process: subprocess.Popen[str], framing: Framing) -> None:
        self._end = framing.end
        self._process, self._framing, self._warm = process, framing, False

    def play(self, workflow: Workflow) -> dict[str, float]:
        """Play a workflow; return the figures. `ArmUnavailable`: the process has ended."""
        needs, said = awaited(workflow), prompts(workflow, self._framing)
        calls = {
            id: {"prompt": call.prompt, "text": [*call.text, self._end], "needs": sorted(needs[id])}
            for id, call in said.items()
        }
        found = self._asked("play", calls=calls)
        times = {id: CallTimes(*each) for id, each in found["calls"].items()}
        played = WorkflowTimes(times, found["encoded"], found["steps"])
        return played.figures() | {"cpu": found["cpu"], "step": found["step"]}

    def step(self, prompts: Sequence[list[int]], text: list[int]) -> dict[str, float]:
        """CPU seconds of a decode step with a row for each prompt."""
        calls = {str(nth): {"prompt": prompt, "text": text, "needs": []} for nth, prompt in enumerate(prompts)}
        return {"step": self._asked("play", calls=calls)["step"]}

    def first(self, prefix: list[int], tails: Iterator[list[int]]) -> dict[str, float]:
        """The figures of a first token after a prefix that is in its cache, and a tail that is not."""
        if not self._warm:
            self._asked("first", prompt=[*prefix, *next(tails)], kept=False)
            self._warm = True
        found: dict[str, float] = self._asked("first", prompt=[*prefix, *next(tails)], kept=True)
        return found

    def _asked(self, what: str, **options: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps([what, options]), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())
        except (OSError, ValueError) as error:
            raise ArmUnavailable(f"plain vLLM ended with exit code {self._process.poll()}") from error


@contextmanager
def engines(model: str, dtype: str, context: int) -> Iterator[Engines]:
    """All three, until the context ends."""
    words = [str(folder_of(find(model).path)), dtype, str(context), json.dumps(ENGINE)]
    command = [sys.executable, "-m", "tools.bench.vllm.peer", *words]
    with (
        Engine.load(model, device="cpu", dtype=dtype, context=context) as own,
        Engine.load(model, engine="vllm", dtype=dtype, context=context, options=ENGINE) as on_vllm,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            yield Engines(own, on_vllm, Peer(process, own.framing))
        finally:
            process.kill()


def arms(on: Engines) -> dict[str, Play]:
    """All arms by name."""
    return {
        PLAIN: on.peer.play,
        **{name: partial(_played, arm(way), on.vllm) for name, way in ON_VLLM.items()},
        **{name: partial(_played, arm(way), on.own) for name, way in OWN.items()},
        GENERATE: partial(_played, arm(GENERATE), on.own),
    }


def _played(way: Any, engine: EngineCore, workflow: Workflow) -> dict[str, float]:
    used = process_time()
    played: WorkflowTimes = way(engine, workflow, True)
    return played.figures() | {"cpu": process_time() - used}
