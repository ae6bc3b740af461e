"""Trains an adapter on whole workflows, so that choreographed games say what baseline games said.

Each step feeds some traces, packed into forwards over their whole graphs of messages, and makes one update. The adapter
with the lowest loss on held-out traces is kept, or, with a `Validation`, the one with the highest score in games. An
interrupted training resumes from its last checkpoint and gives the same adapter. It computes in threads that end with
it, so that games played later in the same process are not slowed down. Independent of the command line.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from agentcho.engine.lora_adapter import AdapterTraining
from agentcho.errors import TuneError
from agentcho.lab.timing import alone, stoppable
from agentcho.lab.tune.choice import Validation
from agentcho.lab.tune.folder import Folder
from agentcho.lab.tune.lessons import Lessons, batches, packed, steps_of
from agentcho.lab.tune.losses import loss, mean_loss, words
from agentcho.lab.tune.recipe import Recipe
from agentcho.lab.tune.speed import Speed
from agentcho.lab.tune.unfolding import Unfolded
from agentcho.records.environment import machine_info, source_digests, versions
from agentcho.runner.engine import Engine
from agentcho.runner.model.lora import attention_linears

SAVED_EVERY = 300.0


def recompute(network: Any) -> None:
    """Make a stock model keep activations only at its layers' boundaries; older libraries use another method name."""
    name = "activation_checkpointing_enable"
    getattr(network, name if hasattr(network, name) else "gradient_checkpointing_enable")({"use_reentrant": False})


class Progress(NamedTuple):
    """The state after a step: its number, the total, the step's loss, and traces a second since the beginning."""

    step: int
    steps: int
    loss: float
    speed: float


@dataclass
class Count:
    """The counters of a training that is resumed. Losses are nats a token on the held-out traces; `score` is the best
    mean of a validation."""

    step: int = 0
    best_step: int = 0
    before: float = math.inf
    best: float = math.inf
    score: float = -math.inf
    tokens: int = 0
    seconds: float = 0.0
    traces: int = 0


class Training:
    """The state of one training. `keep_epochs`: the adapter of each epoch is kept in a folder of its own, too."""

    def __init__(
        self,
        scenario: str,
        base: Engine,
        lessons: Lessons,
        recipe: Recipe,
        folder: Path,
        tell: Callable[[Progress], None],
        validation: Validation | None = None,
        keep_epochs: bool = False,
    ) -> None:
        self._scenario = scenario
        self._keep_epochs = keep_epochs
        self._print = base.fingerprint
        self._lessons = lessons
        self._recipe = recipe
        plan = recipe.model_dump(mode="json")
        request: dict[str, Any] = {
            "scenario": scenario,
            "base": self._print["weights"],
            "traces": lessons.digest,
            "recipe": plan,
        }
        if validation is not None:
            request["chosen"] = {"score": validation.score, "games": validation.games}
        self._folder = Folder(folder, request)
        self._tell = tell
        self._validation = validation
        self._check: Callable[[], None] = lambda: None
        torch.manual_seed(recipe.seed)
        self.engine = alone(base.trained)(recipe.adapter(attention_linears(base.network)))
        self._network = cast(Any, self.engine.network)
        if recipe.recompute:
            recompute(self._network)
        self._weights = [each for each in self._network.parameters() if each.requires_grad]
        self._peak = recipe.peak(self._network.config.hidden_size)
        self._optimizer = torch.optim.AdamW(self._weights, lr=self._peak, betas=(0.9, 0.95), weight_decay=recipe.decay)
        self._dev = packed(lessons.dev, recipe.tokens)
        self._steps, self._count = steps_of(lessons.train, recipe), Count()
        self._epoch = self._steps // recipe.epochs
        self.speed: Speed | None = None

    def train(self) -> AdapterTraining:
        """Train to the end. `TuneError`: the training cannot continue; the best adapter so far is kept. Ctrl-C ends it
        after the current step, or a message of the games that select the checkpoint (`Interrupted`)."""
        return stoppable(self._train)

    def _train(self, check: Callable[[], None]) -> AdapterTraining:
        self._check = check
        self._resume()
        began = saved = perf_counter()
        for batch in islice(batches(self._lessons.train, self._recipe), self._count.step, None):
            check()
            value = self._step(batch)
            now = perf_counter()
            self._count.seconds, began = self._count.seconds + now - began, now
            self._note(value)
            if self._count.step % self._epoch == 0 or self._count.step == self._steps:
                self._compare()
                began = perf_counter()
            if now - saved > SAVED_EVERY or self._count.step % self._epoch == 0:
                self._save()
                saved = perf_counter()
        trained = self._trained()
        self._folder.write_trained(trained)
        self._folder.done()
        return trained

    def log(self) -> list[dict[str, Any]]:
        """The lines of its log so far."""
        return self._folder.log()

    def _step(self, batch: list[Unfolded]) -> float:
        """One forward, backward and update; returns the loss in nats a word."""
        step, recipe = self._count.step, self._recipe
        torch.manual_seed(hash((recipe.seed, step)))
        self._network.train()
        total, count = 0.0, words(batch)
        for traces in packed(batch, recipe.tokens):
            value = loss(self.engine, traces) / count
            torch.autograd.backward(value)
            total += value.item()
        norm = nn.utils.clip_grad_norm_(self._weights, recipe.clip)
        if not math.isfinite(total) or not math.isfinite(float(norm)):
            raise self._not_finite(step + 1)
        for group in self._optimizer.param_groups:
            group["lr"] = self._peak * recipe.pace(step, self._steps)
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._count.step, self._count.traces = step + 1, self._count.traces + len(batch)
        self._count.tokens += sum(trace.tokens for trace in batch)
        return total

    def _note(self, value: float) -> None:
        count = self._count
        rate = self._optimizer.param_groups[0]["lr"]
        self._folder.tell({"step": count.step, "loss": round(value, 6), "rate": rate, "tokens": count.tokens})
        self._tell(Progress(count.step, self._steps, value, count.traces / max(count.seconds, 1e-9)))

    def _compare(self) -> None:
        """Compare the adapter with the best one so far, on the held-out traces or by the validation."""
        self._network.eval()
        count, found = self._count, mean_loss(self.engine, self._dev)
        if count.step == 0:
            count.before = found
        if not math.isfinite(found):
            raise self._not_finite(count.step)
        line: dict[str, Any] = {"step": count.step, "dev": round(found, 6)}
        state, config = self.engine.adapters.state(), self.engine.adapters.config()
        score = 0.0
        if self._validation is not None:
            score = self._validation.measured(self._folder.write_candidate(state, config), self._check)
            line["score"] = round(score, 6)
        self._folder.tell(line)
        if (-score, found) < (-count.score, count.best):
            count.best = found
            count.best_step = count.step
            count.score = score
            self._folder.write_best(state, config, self._trained())
        if self._keep_epochs and count.step:
            here = {"best": found, "step": count.step, "chosen": None}
            trained = self._trained().model_copy(update=here)
            self._folder.write_epoch(count.step // self._epoch, state, config, trained)

    def _not_finite(self, step: int) -> TuneError:
        kept = f"the best adapter until then is in {self._folder.path}"
        return TuneError(f"step {step}", f"its loss is not finite; {kept}. Train with a lower --rate, or in float32")

    def _trained(self) -> AdapterTraining:
        count = self._count
        return AdapterTraining(
            scenario=self._scenario,
            mode=self._recipe.mode,
            leakage=self._recipe.leakage,
            base=self._print,
            recipe=self._recipe.model_dump(mode="json"),
            traces=self._lessons.digest,
            train=len(self._lessons.train),
            dev=len(self._lessons.dev),
            before=count.before,
            best=count.best,
            step=count.best_step,
            tokens=count.tokens,
            seconds=round(count.seconds, 1),
            machine=machine_info() | versions() | source_digests(),
            speed=None if self.speed is None else self.speed._asdict(),
            chosen=self._chosen(),
        )

    def _chosen(self) -> dict[str, Any] | None:
        """The games that selected the checkpoint, and its score in them."""
        if self._validation is None:
            return None
        score, games, _ = self._validation
        return {"score": score, "games": games, "mean": self._count.score}

    def _save(self) -> None:
        adapters = self.engine.adapters
        self._folder.save(
            {"adapter": adapters.state(), "optimizer": self._optimizer.state_dict(), **self._count.__dict__}
        )

    def _resume(self) -> None:
        """Load the last checkpoint; if there is none, measure the loss before training."""
        state = self._folder.saved()
        if state is None:
            self._compare()
            return
        self.engine.adapters.restore(state["adapter"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._count = Count(**{name: state.get(name, value) for name, value in Count().__dict__.items()})
