"""The adapters of the paper's trained rows: traces of baseline games that no row is compared on, the training on them,
and the games that select the best checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentcho.engine.lora_adapter import Adapter, find_adapter
from agentcho.lab.collect import Interrupted, Playing
from agentcho.lab.paper.found import HeldOut
from agentcho.lab.tune.choice import Choice
from agentcho.lab.tune.recipe import Recipe
from agentcho.protocol.progress import ProgressCallback
from agentcho.records.files import write_errors
from agentcho.records.trace import Workflow, read_traces
from agentcho.records.trained_adapters import unfinished


class Ends(NamedTuple):
    """The scenario of a single step that is to end like other games, and the file of its traces."""

    playing: Playing
    file: Path


class Lesson(NamedTuple):
    """The training of one adapter: on the games of `playing` with these numbers, in `file`, or on a single step forced
    to end like each of them. `choice`: how its checkpoint is selected; None: by the loss on the traces that the recipe
    holds out. `folder` keeps the adapter."""

    playing: Playing
    numbers: range
    file: Path
    single: Ends | None
    recipe: Recipe
    folder: Path
    choice: Choice | None = None

    @property
    def done(self) -> bool:
        """Whether the adapter is trained."""
        return (self.folder / "agentcho.json").is_file() and unfinished(self.folder) is None

    @property
    def adapter(self) -> Adapter:
        """The trained adapter."""
        return find_adapter(self.folder)

    def sample(self, tell: ProgressCallback) -> None:
        """Play the games that its traces lack. `Interrupted`: Ctrl-C; finished games are kept."""
        from agentcho.lab.tune.sampling import sample

        with write_errors(self.file):
            self.file.parent.mkdir(parents=True, exist_ok=True)
        found = sample(self.playing, self.numbers, self.file, tell)
        if not found.interrupted and self.single is not None:
            ended = read_traces(self.file)
            numbers = _first(self.numbers, {int(each.meta["game"]) for each in ended})
            found = sample(playing=self.single.playing, numbers=numbers, file=self.single.file, tell=tell, finals=ended)
        if found.interrupted:
            raise Interrupted

    def train(self, here: Callable[[], Any], tell: ProgressCallback) -> None:
        """Train on the traces, from the last checkpoint if there is one."""
        from agentcho.lab.tune.lessons import lessons
        from agentcho.lab.tune.training import Progress, Training

        def told(now: Progress) -> None:
            tell(f"steps ({self.folder.name}, loss {now.loss:.4f})", now.step, now.steps)

        playing, file = (self.playing, self.file) if self.single is None else self.single
        name, engine = playing.scenario.name, here()
        found = lessons(file, name, engine, self.recipe)
        validation = None if self.choice is None else self.choice.validation(here, tell)
        Training(
            scenario=name,
            base=engine,
            lessons=found,
            recipe=self.recipe,
            folder=self.folder,
            tell=told,
            validation=validation,
        ).train()

    def held_out(self, asked: Sequence[str]) -> HeldOut:
        """How many of the tasks that are compared on occur verbatim in a trace."""
        found, trained = read_traces(self.file), self.adapter.trained
        return HeldOut(
            tasks=len(asked),
            seen=seen(asked, found),
            traces=len(found) if trained is None else trained.train,
            step=0 if trained is None else trained.step,
            epochs=self.recipe.epochs,
            chosen=None if self.choice is None else self.choice.score,
            dev=0 if trained is None else trained.dev if self.choice is None else len(self.choice.numbers),
        )


def _first(numbers: range, there: set[int]) -> range:
    """The numbers up to the first game without a trace, because it ended without an outcome."""
    missing = (number for number in numbers if number not in there)
    return range(numbers.start, next(missing, numbers.stop))


def seen(asked: Iterable[str], traces: Iterable[Workflow]) -> int:
    """How many of these texts occur in a message of the traces that has no author."""
    told = [message.text for trace in traces for message in trace.messages if message.author is None]
    return sum(any(words in text for text in told) for words in asked)
