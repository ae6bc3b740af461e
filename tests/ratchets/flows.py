"""The files and functions of agentcho that a steady decode step and a `say` run through.

A game is played on a tiny random model, with a record, and a profile hook notes each code object of the package that a
frame starts in: functions, lambdas, and comprehensions (up to Python 3.11, where these have frames). The result is the
same on every machine: the model is in float32 on the CPU, too small for packed weights, and generates only letters,
whatever the last bits of its logits are.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import ascii_letters
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

import agentcho
from agentcho import Agent, Engine, Game, RunConfig, Scenario
from agentcho.events import Event, Token
from agentcho.games.runs.request import RunRequest
from agentcho.games.runs.runtime import play
from agentcho.protocol.call import StepResult
from tests.around import Around
from tests.engine.families import llama_family
from tests.engine.templates import tokenizer

from . import Counts

PACKAGE = Path(agentcho.__file__).parent
STEADY = range(8, 24)
"""The observed steps of a message: its start-up is over, and its end has not begun."""
WORDS = 48
"""Tokens of the observed messages: more than a shadow waits for."""
INLINED = sys.version_info >= (3, 12)
"""Comprehensions have no frames of their own, so fewer functions are seen."""


class Function(NamedTuple):
    """A code object: its file in the package, its first line, and its qualified name."""

    file: str
    line: int
    name: str


Flow = list[Function]
"""The code objects that were run, sorted by file."""


class Recorder:
    """A profile hook that notes the code objects under `folder` that frames start in, for each open window."""

    def __init__(self, folder: Path = PACKAGE) -> None:
        self._folder = folder
        self._begins = f"{folder}{os.sep}"
        self._seen: dict[str, dict[int, CodeType]] = {}
        self._open: tuple[str, ...] = ()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and self._open and code.co_filename.startswith(self._begins):
            for window in self._open:
                self._seen[window][id(code)] = code

    def open(self, *windows: str) -> None:
        """Start windows, in every thread."""
        for window in windows:
            self._seen[window] = {}
        self._open = (*self._open, *windows)

    def close(self, *windows: str) -> None:
        """End windows; those that are not open are ignored."""
        self._open = tuple(window for window in self._open if window not in windows)

    def flow(self, window: str) -> Flow:
        """The code objects seen in a window."""
        return sorted(
            Function(Path(code.co_filename).relative_to(self._folder).as_posix(), code.co_firstlineno, code.co_qualname)
            for code in self._seen[window].values()
        )

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Install the hook in this thread and in those started meanwhile. Garbage collection is off: generators that
        others left unfinished would be closed in a window."""
        before, collecting = (sys.getprofile(), threading.getprofile()), gc.isenabled()
        gc.disable()
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before[0])
            threading.setprofile(before[1])
            if collecting:
                gc.enable()


class Talker(Agent):
    """Says the likeliest letters to everyone."""

    role = "talker"
    audience = "everyone"


class Talk(Scenario):
    """An agent with a secret and one without talk; one message of each is observed."""

    name = "talk"

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self.steps = steps

    async def play(self, game: Game) -> Scenario.Outcome:
        ann, bob = game.cast(Talker, "ann", system="Your secret is a number."), game.cast(Talker, "bob")
        await game.announce("Talk to each other about what you would like to do today.")
        await ann.say(top_k=1, max_tokens=8)
        await bob.say(top_k=1, max_tokens=8)
        self.steps.recorder.open("first token", "say")
        await ann.say(prompt="Well?", top_k=1, max_tokens=WORDS)
        self.steps.recorder.close("say")
        self.steps.made = 0
        await bob.think(top_k=1, max_tokens=WORDS)  # it has no shadow
        return self.Outcome()


class Steps(Around):
    """An engine that observes each of its `STEADY` steps, counted from when `made` is set, and everything from the
    first to the last of them."""

    def __init__(self, engine: Engine, recorder: Recorder) -> None:
        super().__init__(engine)
        self.recorder = recorder
        self.made: int | None = None

    def step(self, deterministic: bool = False) -> StepResult:
        if self.made is None:
            return super().step(deterministic)
        self.made += 1
        if self.made not in STEADY:
            return super().step(deterministic)
        self.recorder.open(window := f"step {self.made}")
        result = super().step(deterministic)
        self.recorder.close(window)
        assert (len(result.spoken), result.encoded, result.finished, result.failed) == (1, 1, (), ())
        if self.made == STEADY[0]:
            self.recorder.open("round")
        if self.made == STEADY[-1]:
            self.recorder.close("round")
        return result


class Flows(NamedTuple):
    """The code that ran: in each steady step, in the engine alone; from the end of the first to the end of the last,
    including everything between steps; and in a `say`, up to its first token and up to its end."""

    steps: list[Flow]
    round: Flow
    first: Flow
    say: Flow

    def named(self) -> dict[str, Flow]:
        """The flows that have a ratchet."""
        return {
            "decode step": self.steps[0],
            "decode step and all between two": self.round,
            "say to its first token": self.first,
            "say to its end": self.say,
        }


def counts(flows: Flows) -> Counts:
    """The number of files in each flow."""
    return {f"{name}: files": len({function.file for function in flow}) for name, flow in flows.named().items()}


def measured(engine: Engine) -> Flows:
    """Measure the second of two games: the first one fills the caches."""
    played(engine)
    return played(engine)


def played(engine: Engine) -> Flows:
    """Play one game and return what it runs through."""
    recorder = Recorder()

    def heard(event: Event) -> None:
        if isinstance(event, Token):
            recorder.close("first token")

    steps = Steps(engine, recorder)
    with TemporaryDirectory() as folder, recorder.listening():
        over = play(RunRequest(Talk(steps), RunConfig(), engine=steps, sink=heard, out=Path(folder)))
    over.check(1)
    alone = [recorder.flow(f"step {number}") for number in STEADY]
    return Flows(alone, *map(recorder.flow, ("round", "first token", "say")))


@contextmanager
def tiny() -> Iterator[Engine]:
    """An engine over a tiny random Llama that almost surely generates only letters."""
    family = llama_family()
    model: Any = family.build()
    words, head = tokenizer(family.style), model.get_output_embeddings()
    letters = words.convert_tokens_to_ids(list(ascii_letters))
    with torch.no_grad():
        others = torch.ones(len(head.weight), dtype=torch.bool)
        others[letters] = False
        head.weight[others] = 0
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        words.save_pretrained(folder)
        with Engine.load(folder, device="cpu", dtype="float32", store_tokens=1 << 14, host_tokens=0) as engine:
            yield engine
